"""Error answers: problem+json for programs, a page for people, never a traceback."""

import dataclasses
import logging
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from prefermab.errors import (
    BusyError,
    InputError,
    OutdatedError,
    PrefermabError,
    StorageError,
    visible,
)
from prefermab.service.auth.access import FOR_PROGRAMS, RefusedError, SignInNeededError
from prefermab.service.auth.incoming import OpenError
from prefermab.service.auth.signing import WINDOW, TooManyError
from prefermab.service.http.tables import KindError


class QueueFullError(PrefermabError):
    """A user has as many unfinished jobs as one may have."""


LOG = logging.getLogger("prefermab.service")

STATUS: dict[type[PrefermabError], int] = {
    SignInNeededError: 401,
    RefusedError: 403,
    TooManyError: 429,
    QueueFullError: 429,
    KindError: 415,
    OutdatedError: 409,
    BusyError: 503,
    StorageError: 500,
    InputError: 400,
    PrefermabError: 400,
}
OPEN_ERRORS = (SignInNeededError, RefusedError, TooManyError, OpenError)
"""Errors whose sentences everybody may read. Others may name a path, an address or a person."""

SENTENCES_OUTSIDE = {500: "the service cannot do this now; its log has more.",
                     503: "the service is busy: try again in a moment."}  # fmt: skip
"""What is said of other errors before somebody is signed in; of the rest: "this is not possible."
"""

RETRY_AFTER: dict[type[PrefermabError], float] = {
    TooManyError: WINDOW,
    QueueFullError: 30,
    BusyError: 5,
}
"""Seconds after which a request may succeed that was refused with this error."""

TITLES = {
    400: "Not possible",
    401: "Not signed in",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Too large",
    415: "Unknown kind of table",
    421: "Other host",
    422: "Not possible",
    429: "Too many requests",
    500: "Storage failed",
    503: "Busy",
}


@dataclasses.dataclass(frozen=True)
class ProblemDetails:
    """An error as an answer: a status, one sentence, and after how many seconds to try again."""

    status: int
    detail: str
    after: float | None = None

    @property
    def title(self) -> str:
        """The kind of error in a few words."""
        return TITLES.get(self.status, "Error")

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        found = {} if self.after is None else {"retry-after": f"{self.after:.0f}"}
        return found | ({"www-authenticate": "Bearer"} if self.status == 401 else {})

    def as_json(self) -> dict[str, Any]:
        """The error in the format of RFC 9457."""
        return {"type": "about:blank", "title": self.title, "status": self.status,
                "detail": self.detail}  # fmt: skip


def problem_response(problem: ProblemDetails) -> Response:
    """The answer for programs."""
    return JSONResponse(
        problem.as_json(), problem.status, problem.headers, "application/problem+json"
    )


def problem_of(request: Request, error: Exception) -> ProblemDetails:
    """The status and sentence for an error. Nobody is told where the programme is stored, and
    those who are not signed in are told only of what they sent."""
    kind = next((kind for kind in STATUS if isinstance(error, kind)), None)
    status, wait = (500, None) if kind is None else (STATUS[kind], RETRY_AFTER.get(kind))
    if getattr(request.state, "account", None) is None and not isinstance(error, OPEN_ERRORS):
        said = SENTENCES_OUTSIDE.get(status, "this is not possible.")
        return ProblemDetails(status, said, wait)
    if not isinstance(error, PrefermabError):
        return ProblemDetails(status, "something failed here; the server's log has more.")
    desk = getattr(request.app.state, "desk", None)
    shown = str(error) if desk is None else str(error).replace(desk.settings.shown, "the programme")
    return ProblemDetails(status, shown, wait)


async def answer_error(request: Request, error: Exception) -> Response:
    """Answers an error; one that is not about the request is also written to the log."""
    path = visible(request.url.path)
    if not isinstance(error, PrefermabError):
        LOG.error("%s %s failed", request.method, path, exc_info=error)
    elif isinstance(error, StorageError | BusyError):
        LOG.warning("%s %s: %s", request.method, path, error)
    return send_problem(request, problem_of(request, error))


async def answer_invalid(request: Request, error: Exception) -> Response:
    """Answers a request with missing or invalid fields, in one sentence."""
    assert isinstance(error, RequestValidationError)
    named = [
        f"{'.'.join(str(part) for part in one['loc'][1:]) or 'the body'}: {one['msg']}"
        for one in error.errors()
    ]
    return send_problem(request, ProblemDetails(422, visible(f"{'; '.join(named)[:500]}.")))


async def answer_http(request: Request, error: Exception) -> Response:
    """Answers an HTTP error, such as an unknown path or method."""
    assert isinstance(error, HTTPException)
    known = {404: "there is no such page.", 405: "this page does not take that method."}
    return send_problem(
        request, ProblemDetails(error.status_code, known.get(error.status_code, error.detail))
    )


def send_problem(request: Request, problem: ProblemDetails) -> Response:
    """A page for people who read in a browser, problem+json under /api."""
    from prefermab.service.http.rendering import page, path_of, redirect

    if is_for_programs(request):
        return problem_response(problem)
    if problem.status == 401 and request.method == "GET":
        target = quote(path_of(request))
        return redirect(request, f"/sign-in?next={target}" if len(target) < 1000 else "/sign-in")
    response = page(request, "problem.html", problem=problem)
    response.status_code = problem.status
    response.headers.update(problem.headers)
    return response


def is_for_programs(request: Request) -> bool:
    """Whether a request is for the API, or a script of a page asks for JSON."""
    accepts = request.headers.get("accept", "")
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return path.startswith((*FOR_PROGRAMS, "/static/")) or "json" in accepts


HANDLERS: dict[Any, Any] = {
    PrefermabError: answer_error,
    RequestValidationError: answer_invalid,
    HTTPException: answer_http,
    Exception: answer_error,
}
