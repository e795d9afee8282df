"""The API: users and tokens. What is changed here goes into the audit log."""

from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from prefermab.service import accounts
from prefermab.service.access import Guarded, RefusedError, account_of
from prefermab.service.api import TABLE_RESPONSE, Asked
from prefermab.service.desk import desk_of
from prefermab.service.exchange import send_table

router = APIRouter(prefix="/api/v1", route_class=Guarded, tags=["users"])


class NewUser(Asked):
    """A user to add."""

    name: str
    role: str


class Change(Asked):
    """What is to change of a user."""

    role: str | None = None
    active: bool | None = None


class NewToken(Asked):
    """A token to make."""

    label: str = Field(max_length=80)
    scopes: list[str]
    days: float | None = Field(default=None, gt=0, le=3660)


@router.get("/users", name="users", responses=TABLE_RESPONSE)
def get_users(request: Request) -> Response:
    """Every user."""
    with desk_of(request).records.reading() as sql:
        return send_table(request, accounts.all_users(sql), "users")


@router.post("/users", name="add_user", status_code=201)
def post_user(request: Request, asked: NewUser) -> dict[str, Any]:
    """Adds a user; the answer has the one-time link with which they set their password."""
    desk, account = desk_of(request), account_of(request)
    with desk.records.writing() as sql:
        secret = accounts.add_user(sql, asked.name, asked.role, desk.clock())
        desk.note(sql, account.name, "add user", {"user": asked.name.strip(), "role": asked.role})
    return {"name": asked.name.strip(), "link": f"{desk.settings.root}/welcome/{secret}"}


@router.patch("/users/{name}", name="change_user")
def patch_user(request: Request, name: str, asked: Change) -> dict[str, Any]:
    """Gives a user another role, or lets them sign in no longer; their sessions end."""
    desk, account = desk_of(request), account_of(request)
    with desk.records.writing() as sql:
        accounts.change_user(sql, name, asked.role, asked.active)
        changed = asked.model_dump(exclude_none=True)
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
    """Your tokens without their secrets; those of everybody for admins."""
    account = account_of(request)
    with desk_of(request).records.reading() as sql:
        found = accounts.all_tokens(sql)
    mine = found if account.may("admin") else found.filter(name=account.name)
    return send_table(request, mine, "tokens")


@router.post("/tokens", name="add_token", status_code=201)
def post_token(request: Request, asked: NewToken) -> dict[str, Any]:
    """Makes a token of yours; its secret is in this answer and nowhere else. A token cannot make
    another one: somebody has to be signed in."""
    desk, account = desk_of(request), account_of(request)
    if account.by_token:
        raise RefusedError("a token cannot make tokens: sign in.")
    scopes = sorted(set(asked.scopes))
    with desk.records.writing() as sql:
        secret = accounts.add_token(
            sql, account.name, asked.label, scopes, desk.clock(), asked.days
        )
        desk.note(sql, account.name, "add token", {"label": asked.label, "scopes": scopes})
    return {"token": secret, "name": account.name, "scopes": scopes}


@router.delete("/tokens/{number}", name="drop_token")
def delete_token(request: Request, number: int) -> dict[str, Any]:
    """Makes a token invalid: one of yours, or anybody's for admins."""
    desk, account = desk_of(request), account_of(request)
    with desk.records.writing() as sql:
        accounts.drop_token(sql, number, None if account.may("admin") else account.name)
        desk.note(sql, account.name, "drop token", {"token": number})
    return {"dropped": number}
