"""Checks of every request before it is handled: host, origin and size. Adds security headers to
every answer."""

import time
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prefermab.service.auth.incoming import BODY
from prefermab.service.auth.settings import Settings
from prefermab.service.http.problems import ProblemDetails, problem_response

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "worker-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "require-trusted-types-for 'script'",
    )
)
"""Nothing is loaded from other hosts; no inline scripts or styles, no eval, no framing of pages."""

HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
Count = Callable[[str, int, float], None]
"""Counts an answered request, given its route, status and seconds."""

SAFE = ("GET", "HEAD", "OPTIONS")


class Guards:
    """Middleware that refuses requests to unknown hosts, changes from other sites, and long
    bodies."""

    def __init__(self, app: ASGIApp, settings: Settings, count: Count):
        self.app, self.settings, self.count = app, settings, count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # a WebSocket is not answered
        headers = Headers(scope=scope)
        refused = self._refusal(scope, headers)
        if refused is not None:
            await problem_response(refused)(scope, receive, self._send(send))
            return
        body, answer = Body(receive, self.settings.most_bytes), Answer(self._send(send))
        begun = time.perf_counter()
        scope[BODY] = body
        try:
            await self.app(scope, body, answer)
        finally:
            route = getattr(scope.get("route"), "name", "none")
            self.count(route, answer.status or 500, time.perf_counter() - begun)

    def _refusal(self, scope: Scope, headers: Headers) -> ProblemDetails | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self.settings.allows(hosts[0]):
            return ProblemDetails(
                421, "this server does not answer to that host name (see --allow-host)."
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.settings.most_bytes:
            return ProblemDetails(413, too_long(self.settings.most_bytes))
        if scope["method"] in SAFE:
            return None
        scheme = "https" if self.settings.https else scope["scheme"]
        if is_same_site(headers, f"{scheme}://{hosts[0]}"):
            return None
        detail = "this change was asked for by another site, and is refused."
        if headers.get("origin", "").lower() == f"https://{hosts[0]}".lower():
            detail = "this change came by https: start the service with --https."
        return ProblemDetails(403, detail)

    def _send(self, send: Send) -> Send:
        """Sends an answer with the headers that every answer has."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
                if self.settings.https:
                    headers.setdefault("strict-transport-security", "max-age=31536000")
                message["headers"] = headers.raw
            await send(message)

        return with_headers


class Body:
    """Receives the body of a request and counts its bytes; more than `most` are refused."""

    def __init__(self, receive: Receive, most: int):
        self.receive, self.most, self.bytes = receive, most, 0

    async def __call__(self) -> Message:
        """Receives the next piece."""
        message = await self.receive()
        if message["type"] == "http.request":
            self.bytes += len(message.get("body", b""))
            if self.bytes > self.most:
                raise HTTPException(413, too_long(self.most))
        return message


class Answer:
    """Sends an answer and remembers its status."""

    def __init__(self, send: Send):
        self.send, self.status = send, None

    async def __call__(self, message: Message) -> None:
        """Sends the next piece."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self.send(message)


def too_long(most: int) -> str:
    """The answer to a request that is too long.

    >>> from prefermab.service.http.guards import too_long
    >>> too_long(16 << 10), too_long(64 << 20)
    ('a request may have at most 16 kB here.', 'a request may have at most 64 MB here.')
    """
    size = f"{most >> 20} MB" if most >> 20 else f"{most >> 10} kB"
    return f"a request may have at most {size} here."


def is_same_site(headers: Headers, own: str) -> bool:
    """Whether a change comes from one of our own pages, or from a program with a token.

    Browsers say in Sec-Fetch-Site where a request comes from; older ones send at least Origin. A
    request with a bearer token needs neither: another site cannot know the token, and browsers do
    not send it by themselves.

    >>> from starlette.datastructures import Headers
    >>> from prefermab.service.http.guards import is_same_site
    >>> is_same_site(Headers({"sec-fetch-site": "cross-site"}), "http://localhost")
    False
    """
    if headers.get("authorization", "").lower().startswith("bearer "):
        return True
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return False
    if origin is not None:
        return origin.lower() == own.lower()
    return site == "same-origin"
