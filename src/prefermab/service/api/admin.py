"""The API: users and tokens. Every change is written to the audit log."""

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from prefermab.service.api.programme import TABLE_RESPONSE, JsonBody
from prefermab.service.auth import accounts
from prefermab.service.auth.access import Account, Guarded, RefusedError, account_of
from prefermab.service.http.tables import send_table
from prefermab.service.work.desk import desk_of

router = APIRouter(prefix="/api/v1", route_class=Guarded, tags=["users"])


class UserBody(JsonBody):
    """A user to add."""

    name: str
    role: str


class UserChangeBody(JsonBody):
    """Changes of a user; null leaves a field as it is."""

    role: str | None = None
    active: bool | None = None


class TokenBody(JsonBody):
    """A token to make."""

    label: str = Field(max_length=80)
    scopes: list[str]
    days: float | None = Field(default=None, gt=0, le=accounts.MOST_DAYS)


@router.get("/users", name="users", responses=TABLE_RESPONSE)
def get_users(request: Request) -> Response:
    """Every user."""
    with desk_of(request).records.reading() as sql:
        return send_table(request, accounts.all_users(sql), "users")


@router.post("/users", name="add_user", status_code=201)
def post_user(request: Request, body: UserBody) -> dict[str, Any]:
    """Adds a user; the answer has a one-time link to set their password."""
    desk, account, name = desk_of(request), account_of(request), accounts.check_name(body.name)
    with desk.records.writing() as sql:
        secret = accounts.add_user(sql, name, body.role, desk.clock())
        desk.note(sql, account.name, "add user", {"user": name, "role": body.role})
    return {"name": name, "link": f"{desk.settings.root}/welcome/{secret}"}


@router.patch("/users/{name}", name="change_user")
def patch_user(request: Request, name: str, body: UserChangeBody) -> dict[str, Any]:
    """Changes a user's role, or whether they may sign in; ends their sessions."""
    desk, account = desk_of(request), account_of(request)
    with desk.records.writing() as sql:
        accounts.change_user(sql, name, body.role, body.active)
        changed = body.model_dump(exclude_none=True)
        desk.note(sql, account.name, "change user", {"user": name, **changed})
        user = accounts.known_user(sql, name)
    return {"name": user.name, "role": user.role, "active": user.active}


@router.post("/users/{name}/link", name="user_link", status_code=201)
def post_user_link(request: Request, name: str) -> dict[str, Any]:
    """A one-time link for a user who has forgotten their password."""
    desk, account = desk_of(request), account_of(request)
    with desk.records.writing() as sql:
        secret = accounts.new_link(sql, name, desk.clock())
        desk.note(sql, account.name, "link for user", {"user": name})
    return {"name": name, "link": f"{desk.settings.root}/welcome/{secret}"}


@router.get("/tokens", name="tokens", responses=TABLE_RESPONSE)
def get_tokens(request: Request) -> Response:
    """Your tokens, without their secrets; admins get the tokens of all users."""
    account = manager_of_tokens(request)
    with desk_of(request).records.reading() as sql:
        found = accounts.all_tokens(sql)
    mine = found if account.may("admin") else found.filter(name=account.name)
    return send_table(request, mine, "tokens")


@router.post("/tokens", name="add_token", status_code=201)
def post_token(request: Request, body: TokenBody) -> dict[str, Any]:
    """Makes a token for you. This answer is the only place that shows it. A token cannot make
    another token: sign in for this."""
    desk, account = desk_of(request), account_of(request)
    if account.by_token:
        raise RefusedError("a token cannot make tokens: sign in.")
    scopes = sorted(set(body.scopes))
    with desk.records.writing() as sql:
        secret = accounts.add_token(sql, account.name, body.label, scopes, desk.clock(), body.days)
        desk.note(sql, account.name, "add token", {"label": body.label, "scopes": scopes})
    return {"token": secret, "name": account.name, "scopes": scopes}


@router.delete("/tokens/{number}", name="drop_token")
def delete_token(request: Request, number: int) -> dict[str, Any]:
    """Deletes a token: one of yours; admins may delete any token."""
    desk, account = desk_of(request), manager_of_tokens(request)
    with desk.records.writing() as sql:
        accounts.drop_token(sql, number, None if account.may("admin") else account.name)
        desk.note(sql, account.name, "drop token", {"token": number})
    return {"dropped": number}


def manager_of_tokens(request: Request) -> Account:
    """The account that sends a request about tokens; raises if that is a token which may not manage
    users."""
    account = account_of(request)
    if account.by_token and not account.may("admin"):
        raise RefusedError("this needs a token with the scope admin, or sign in.")
    return account
