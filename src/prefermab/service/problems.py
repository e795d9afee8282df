"""Error answers: problem+json for programs, a page for people, never a traceback."""

import dataclasses
import logging
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from prefermab.errors import BusyError, InputError, OutdatedError, PrefermabError, StorageError
from prefermab.service.access import RefusedError, SignInNeededError
from prefermab.service.exchange import KindError
from prefermab.service.signing import WINDOW, TooManyError

LOG = logging.getLogger("prefermab.service")

STATUS: dict[type[PrefermabError], int] = {
    SignInNeededError: 401,
    RefusedError: 403,
    TooManyError: 429,
    KindError: 415,
    OutdatedError: 409,
    BusyError: 503,
    StorageError: 500,
    InputError: 400,
    PrefermabError: 400,
}
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
    429: "Too many attempts",
    500: "Storage failed",
    503: "Busy",
}


@dataclasses.dataclass(frozen=True)
class ProblemDetails:
    """An error as an answer: a status and one sentence."""

    status: int
    detail: str

    @property
    def title(self) -> str:
        """The kind of error in a few words."""
        return TITLES.get(self.status, "Error")

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        after = {503: "5", 429: f"{WINDOW:.0f}"}
        found = {"retry-after": after[self.status]} if self.status in after else {}
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


def problem_of(error: Exception) -> ProblemDetails:
    """The status and sentence for an error."""
    for kind, status in STATUS.items():
        if isinstance(error, kind):
            return ProblemDetails(status, str(error))
    return ProblemDetails(500, "something failed here; the server's log has more.")


async def answer_error(request: Request, error: Exception) -> Response:
    """Answers an error; an unexpected one is also written to the log."""
    if not isinstance(error, PrefermabError):
        LOG.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return send_problem(request, problem_of(error))


async def answer_invalid(request: Request, error: Exception) -> Response:
    """Answers a request with missing or invalid fields, in one sentence."""
    assert isinstance(error, RequestValidationError)
    named = [
        f"{'.'.join(str(part) for part in one['loc'][1:]) or 'the body'}: {one['msg']}"
        for one in error.errors()
    ]
    return send_problem(request, ProblemDetails(422, f"{'; '.join(named)[:500]}."))


async def answer_http(request: Request, error: Exception) -> Response:
    """Answers an HTTP error, such as an unknown path or method."""
    assert isinstance(error, HTTPException)
    known = {404: "there is no such page.", 405: "this page does not take that method."}
    return send_problem(
        request, ProblemDetails(error.status_code, known.get(error.status_code, error.detail))
    )


def send_problem(request: Request, problem: ProblemDetails) -> Response:
    """A page for people who read in a browser, problem+json under /api."""
    from prefermab.service.rendering import page, path_of, redirect

    if is_for_programs(request):
        return problem_response(problem)
    if problem.status == 401 and request.method == "GET":
        return redirect(request, f"/sign-in?next={quote(path_of(request))}")
    response = page(request, "problem.html", problem=problem)
    response.status_code = problem.status
    response.headers.update(problem.headers)
    return response


def is_for_programs(request: Request) -> bool:
    """Whether a request is for the API, or a script of a page asks for JSON."""
    accepts = request.headers.get("accept", "")
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return path.startswith(("/api/", "/metrics", "/static/")) or "json" in accepts


HANDLERS: dict[Any, Any] = {
    PrefermabError: answer_error,
    RequestValidationError: answer_invalid,
    HTTPException: answer_http,
    Exception: answer_error,
}
