"""Pages: sign-in, sign-out, setting a password; static files."""

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from prefermab.service.auth import accounts
from prefermab.service.auth.access import Guarded
from prefermab.service.auth.incoming import OpenError, ShortText
from prefermab.service.auth.signing import address_of
from prefermab.service.http.rendering import STATIC, FormText, local, page, redirect
from prefermab.service.work.desk import desk_of

router = APIRouter(route_class=Guarded, include_in_schema=False)


@router.get("/static/{name}", name="static")
def static_file(name: str) -> Response:
    """A script, a style sheet or a picture. Only files that existed at the start are served."""
    if name not in STATIC:
        raise HTTPException(404)
    data, kind, _ = STATIC[name]
    return Response(data, media_type=kind, headers={"cache-control": "max-age=31536000, immutable"})


@router.get("/", name="home")
def home(request: Request) -> Response:
    """The first page: this week's list."""
    return redirect(request, "/week")


@router.get("/sign-in", name="sign_in_page")
def sign_in_page(request: Request, next: str = "/") -> Response:
    """The sign-in form."""
    return page(request, "sign_in.html", next=local(next), wrong=False, name="")


@router.post("/sign-in", name="sign_in")
def sign_in(
    request: Request, name: ShortText, password: ShortText, next: FormText = "/"
) -> Response:
    """Begins a session, and ends the one that the browser had before."""
    desk = desk_of(request)
    secret = desk.sign_ins.sign_in(name, password, address_of(request), desk.note)
    if secret is None:
        response = page(request, "sign_in.html", next=local(next), wrong=True, name=name)
        response.status_code = 401
        return response
    desk.sign_ins.sign_out(request)
    answer = redirect(request, next)
    desk.sign_ins.give_cookie(answer, secret)
    return answer


@router.post("/sign-out", name="sign_out")
def sign_out(request: Request) -> Response:
    """Ends the session."""
    desk = desk_of(request)
    desk.sign_ins.sign_out(request)
    answer = redirect(request, "/sign-in")
    desk.sign_ins.take_cookie(answer)
    return answer


@router.get("/welcome/{secret}", name="welcome_page")
def welcome_page(request: Request, secret: str) -> Response:
    """The form to set a password, opened by a one-time link."""
    desk = desk_of(request)
    with desk.records.reading() as sql:
        link = accounts.find_link(sql, secret, desk.clock())
        known = accounts.all_tokens(sql)["name"]
    tokens = (known == link.name).sum() if link.name else 0
    return page(
        request, "welcome.html", link=link, shortest=accounts.SHORTEST_PASSWORD, tokens=tokens
    )


@router.post("/welcome/{secret}", name="welcome")
def welcome(
    request: Request, secret: str, password: ShortText, again: ShortText, name: ShortText = ""
) -> Response:
    """Sets a password and signs the user in."""
    desk = desk_of(request)
    if accounts.check_password(password) != again:
        raise OpenError("the two passwords differ: go back and type the same one twice.")
    with desk.records.reading() as sql:
        accounts.find_link(sql, secret, desk.clock())
    hashed = accounts.HASHER.hash(password)
    with desk.records.writing() as sql:
        user, ended = accounts.use_link(sql, secret, name, hashed, desk.clock())
        desk.note(sql, user, "set password", {"ended": ended})
        desk.sign_ins.remember(sql, user, address_of(request))
        session = desk.sign_ins.begin(sql, user)
    desk.sign_ins.sign_out(request)
    answer = redirect(request, "/")
    desk.sign_ins.give_cookie(answer, session)
    return answer
