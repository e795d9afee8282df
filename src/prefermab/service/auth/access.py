"""Access control: roles, their rights, and one table of the rights that each route needs."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.params import Form
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from prefermab.errors import PrefermabError
from prefermab.service.auth.incoming import BODY, MOST_BYTES_OUTSIDE, check_address, check_body

RIGHTS = ("read", "record", "plan", "admin")
"""Rights that a token can have: see everything; record what was done; plan and change the roster;
manage users."""

OWN_PEOPLE = "own"
"""The right of field workers: see their own people, and record what was done with them."""

ROLES: Mapping[str, frozenset[str]] = {
    "viewer": frozenset({"read"}),
    "field worker": frozenset({OWN_PEOPLE}),
    "planner": frozenset({"read", "record", "plan"}),
    "admin": frozenset(RIGHTS),
}

EVERYBODY: frozenset[str] = frozenset()
"""Routes that answer without signing in."""

SIGNED_IN = frozenset((*RIGHTS, OWN_PEOPLE))
READ = frozenset({"read"})
READ_OWN = frozenset({"read", OWN_PEOPLE})
RECORD = frozenset({"record"})
RECORD_OWN = frozenset({"record", OWN_PEOPLE})
PLAN = frozenset({"plan"})
ADMIN = frozenset({"admin"})

RULES: Mapping[str, frozenset[str]] = {
    # pages
    "static": EVERYBODY,
    "sign_in_page": EVERYBODY,
    "sign_in": EVERYBODY,
    "sign_out": EVERYBODY,
    "welcome_page": EVERYBODY,
    "welcome": EVERYBODY,
    "home": SIGNED_IN,
    "week_page": READ_OWN,
    "week_file": READ_OWN,
    "plan_page": PLAN,
    "make_plan": PLAN,
    "plan_job_page": PLAN,
    "cancel_plan_job": PLAN,
    "change_page": PLAN,
    "change_week": PLAN,
    "approve_week": PLAN,
    "record_page": RECORD_OWN,
    "mark_page": RECORD_OWN,
    "close_page": RECORD,
    "late_page": RECORD,
    "decide_late": RECORD,
    "close_round": RECORD,
    "service_worker": EVERYBODY,
    "people_page": READ_OWN,
    "person_page": READ_OWN,
    "what_if_page": READ,
    "groups_page": READ,
    "import_page": PLAN,
    "preview_import": PLAN,
    "confirm_import": PLAN,
    "models_page": READ,
    "replay_round": READ,
    "audit_page": READ,
    "audit_verify": READ,
    "users_page": ADMIN,
    "users_invite": ADMIN,
    "users_change": ADMIN,
    "token_add": ADMIN,
    "token_drop": ADMIN,
    # the first pages where one server has several programmes
    "programmes_page": EVERYBODY,
    "sign_in_several_page": EVERYBODY,
    "sign_in_several": EVERYBODY,
    "sign_out_several": EVERYBODY,
    # machines
    "live": EVERYBODY,
    "ready": EVERYBODY,
    "metrics": READ,
    # the API: the programme and its people
    "me": SIGNED_IN,
    "openapi": SIGNED_IN,
    "programme": READ_OWN,
    "set_last_round": PLAN,
    "set_model": ADMIN,
    "people": READ_OWN,
    "person": READ_OWN,
    "join": PLAN,
    "leave": PLAN,
    "observe": PLAN,
    "record": RECORD,
    "plans": READ,
    "deviations": READ,
    "history": READ,
    "audit": READ,
    "verify_audit": READ,
    # the API: plans, marks and jobs
    "plan": PLAN,
    "change_plan": PLAN,
    "approve_plan": PLAN,
    "planned": READ,
    "planned_list": READ_OWN,
    "planned_people": READ,
    "replay": READ,
    "what_if": READ,
    "marks": READ_OWN,
    "mark": RECORD_OWN,
    "record_marks": RECORD,
    "late_marks": READ_OWN,
    "decide_marks": RECORD,
    "learn": PLAN,
    "jobs": READ,
    "job": READ,
    "cancel": PLAN,
    # the API: users and tokens
    "users": ADMIN,
    "add_user": ADMIN,
    "change_user": ADMIN,
    "user_link": ADMIN,
    "tokens": SIGNED_IN,
    "add_token": SIGNED_IN,
    "drop_token": SIGNED_IN,
}
"""Rights for each route, by its name: one of them is enough."""


FOR_PROGRAMS = ("/api/", "/metrics")
"""Beginnings of the paths of routes that answer programs; all others are pages."""


@dataclasses.dataclass(frozen=True)
class Account:
    """The user who sends a request, and their rights."""

    name: str
    role: str
    rights: frozenset[str]
    by_token: bool = False

    @property
    def own_only(self) -> bool:
        """Whether they see their own people only."""
        return "read" not in self.rights

    def may(self, right: str) -> bool:
        """Whether they have a right."""
        return right in self.rights


class SignInNeededError(PrefermabError):
    """Nobody is signed in."""


class RefusedError(PrefermabError):
    """The signed-in user does not have the right."""


class Guarded(APIRoute):
    """A route that checks `RULES` before it reads the body of the request, and that the request
    holds only what can be stored."""

    def get_route_handler(self) -> Any:
        handle, body = super().get_route_handler(), self.body_field
        is_page = not self.path.startswith(FOR_PROGRAMS)

        async def guarded(request: Request) -> Response:
            check_address(request)
            account = await run_in_threadpool(admit, request, self.name, is_page)
            request.state.account = account
            if account is None:
                request.scope[BODY].most = MOST_BYTES_OUTSIDE
            if body is not None:
                await check_body(request, form=isinstance(body.field_info, Form))
            return await handle(request)

        return guarded


def admit(request: Request, route: str, is_page: bool) -> Account | None:
    """The account that sends the request; raises if it may not call this route. A token is for the
    API: pages show more than one right allows."""
    needed = RULES.get(route)
    account: Account | None = request.app.state.identify(request)
    if needed is None:
        raise RefusedError(f"nobody may call {route}: it has no rule.")
    if needed is EVERYBODY:
        return account
    if account is None:
        raise SignInNeededError("sign in first, or send a token that is valid.")
    if account.by_token and is_page:
        raise RefusedError("a token is for the API, not for pages: sign in.")
    if not needed & account.rights:
        raise RefusedError(f"the role {account.role} may not do this.")
    return account


def account_of(request: Request) -> Account:
    """The account that sends the request; raises if nobody is signed in."""
    account = request.state.account
    if account is None:
        raise SignInNeededError("sign in first, or send a token that is valid.")
    return account
