"""Several programmes on one server, and the first page that lists them.

Each programme is an application of its own under /p/NAME, with its own users. Programmes share only
the process: a session, token or link of one is not valid in another, and each has its own cookie
name. Signing in on the first page signs the user in to every programme that has this name with this
password.
"""

import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import RedirectResponse, Response

import prefermab
from prefermab.programme.store.lookups import newest_note
from prefermab.service.api import health
from prefermab.service.app import THREADS, create_app
from prefermab.service.auth import accounts
from prefermab.service.auth.access import Account, Guarded
from prefermab.service.auth.incoming import ShortText
from prefermab.service.auth.settings import Clock, Settings, check_programme_names, from_environment
from prefermab.service.auth.signing import TooManyError, address_of, verify
from prefermab.service.http.guards import Guards
from prefermab.service.http.problems import HANDLERS
from prefermab.service.http.rendering import page
from prefermab.service.pages import sign_in
from prefermab.service.work.desk import Desk

router = APIRouter(route_class=Guarded, include_in_schema=False)
router.add_api_route("/static/{name}", sign_in.static_file, name="static")
router.add_api_route("/api/v1/health", health.live, name="live")


def create_several(
    settings: Sequence[Settings], *, clock: Clock = time.time, model: Any = None
) -> FastAPI:
    """The application that serves several programmes.

    Args:
        settings: The settings of each programme; their names must differ.
        clock: Returns the time in seconds since 1970.
        model: The model of all of them; by default the one stored with each.

    Returns:
        An ASGI application; its `state.desks` has the desk of each programme by name.
    """
    check_programme_names(settings)
    parts = {one.name: create_app(one, clock=clock, model=model) for one in settings}
    desks: dict[str, Desk] = {name: part.state.desk for name, part in parts.items()}

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield
        for desk in desks.values():
            desk.close()

    app = FastAPI(
        title="prefermab", version=prefermab.__version__, lifespan=lifespan,
        docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False,
        exception_handlers=HANDLERS,
    )  # fmt: skip
    app.include_router(router)
    for one in settings:
        app.mount(one.root, parts[one.name])
    app.state.desks, app.state.identify = desks, lambda _: None
    # Programmes count their requests themselves.
    app.add_middleware(Guards, settings=settings[0], count=lambda *_: None)
    return app


def desks_of(request: Request) -> list[Desk]:
    """The desks of all programmes of a server."""
    return list(request.app.state.desks.values())


@router.get("/", name="programmes_page")
def programmes_page(request: Request) -> Response:
    """The programmes in which the browser is signed in, with the state of each."""
    signed = [(desk, desk.sign_ins.identify(request)) for desk in desks_of(request)]
    rows = [row_of(desk, account) for desk, account in signed if account is not None]
    if not rows:
        return RedirectResponse("/sign-in", 303)
    return page(request, "programmes.html", rows=rows)


def row_of(desk: Desk, account: Account) -> dict[str, Any]:
    """The state of a programme, as far as the account may see it."""
    head = desk.head()
    with desk.records.reading() as sql:
        plan = newest_note(sql, ["plan"])
    seen = not account.own_only
    return {
        "name": desk.settings.name, "root": desk.settings.root, "role": account.role,
        "user": account.name, "round": head.round, "planned": head.attempt is not None,
        "people": desk.count_people() if seen else None,
        "plan": None if plan is None else {
            "round": json.loads(plan.details)["round"], "at": plan.at,
            "who": plan.who if seen else None,
        },
    }  # fmt: skip


@router.get("/sign-in", name="sign_in_several_page")
def sign_in_everywhere_page(request: Request) -> Response:
    """The sign-in form for all programmes."""
    return page(request, "sign_in.html", next="/", wrong=False, name="")


@router.post("/sign-in", name="sign_in_several")
def sign_in_everywhere(request: Request, name: ShortText, password: ShortText) -> Response:
    """Begins a session in every programme that has this name with this password."""
    begun = begin_sessions(desks_of(request), name, password, address_of(request))
    if not begun:
        response = page(request, "sign_in.html", next="/", wrong=True, name=name)
        response.status_code = 401
        return response
    for desk, _ in begun:
        desk.sign_ins.sign_out(request)
    only = begun[0][0].settings.root if len(begun) == 1 else ""
    answer = RedirectResponse(f"{only}/", 303)
    for desk, secret in begun:
        desk.sign_ins.give_cookie(answer, secret)
    return answer


def begin_sessions(
    desks: Sequence[Desk], name: str, password: str, address: str
) -> list[tuple[Desk, str]]:
    """Begins sessions of a user; returns each programme's desk with the secret of its session.

    Programmes without this user compare the password with a dummy hash, so that the time of the
    answer does not show which programmes have the user.
    """
    known = [desk for desk in desks if _knows(desk, name.strip())] or desks[:1]
    begun, refused = [], None
    for desk in known:
        try:
            secret = desk.sign_ins.sign_in(name, password, address, desk.note)
        except TooManyError as error:
            refused = error
            continue
        if secret is not None:
            begun.append((desk, secret))
    if refused is not None and not begun:
        raise refused
    for desk in desks:
        if desk not in known:
            verify(desk.sign_ins.nobody, password)
    return begun


def _knows(desk: Desk, name: str) -> bool:
    with desk.records.reading() as sql:
        user = accounts.get_user(sql, name)
    return user is not None and user.active and user.password is not None


@router.post("/sign-out", name="sign_out_several")
def sign_out_everywhere(request: Request) -> Response:
    """Ends the sessions of all programmes."""
    answer = RedirectResponse("/sign-in", 303)
    for desk in desks_of(request):
        desk.sign_ins.sign_out(request)
        desk.sign_ins.take_cookie(answer)
    return answer


def serve_from_environment() -> FastAPI:
    """The application of a worker process that `prefermab serve` started."""
    from prefermab.common.files import use_compilation_cache

    use_compilation_cache()
    settings = from_environment()
    return create_app(settings[0]) if len(settings) == 1 else create_several(settings)
