"""The API: the programme and its people under /api/v1."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl
from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from prefermab.errors import InputError
from prefermab.programme.columns import column
from prefermab.programme.store import Programme
from prefermab.service.access import Guarded, account_of
from prefermab.service.desk import Desk, as_id, desk_of
from prefermab.service.exchange import MEDIA_TYPES, quiet, read_sent, send_table, stored

router = APIRouter(prefix="/api/v1", route_class=Guarded, tags=["programme"])

WhyQuery = Annotated[
    str | None, Query(description="The reason, for the audit log.", max_length=2000)
]
TABLE_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"content": {media: {} for media in MEDIA_TYPES}, "description": "A table."}
}
TABLE_BODY: dict[str, Any] = {"requestBody": {"content": {media: {} for media in MEDIA_TYPES}}}
"""What OpenAPI says of tables that are sent out and in."""


class Asked(BaseModel):
    """A JSON body; fields that nobody knows are refused."""

    model_config = ConfigDict(extra="forbid")


class Leaving(Asked):
    """Who leaves."""

    ids: list[str | int]
    why: str | None = None


class Ending(Asked):
    """The round with which the programme ends; null where it goes on."""

    last_round: int | None


class NewModel(Asked):
    """The model that runs the programme from now on: one that ships, or one that a job learned."""

    model: str
    why: str | None = None


@router.get("/me", name="me")
def get_me(request: Request) -> dict[str, Any]:
    """Who sends this request, and what they may do."""
    account = account_of(request)
    return {"name": account.name, "role": account.role, "rights": sorted(account.rights)}


@router.get("/programme", name="programme")
def get_programme(request: Request) -> dict[str, Any]:
    """Where the programme stands."""
    desk = desk_of(request)
    head, open = desk.head(), desk.programme()
    model = open.model
    return {
        "round": head.round, "planned": head.attempt is not None, "people": desk.count_people(),
        "ids": open.ids, "last_round": open.last_round, "model": open.hash,
        "states": list(model.state_names), "actions": list(model.action_names),
        "features": list(model.feature_names),
    }  # fmt: skip


@router.put("/programme/last-round", name="set_last_round")
def put_last_round(request: Request, asked: Ending) -> dict[str, Any]:
    """Says with which round the programme ends."""
    programme = desk_of(request).programme(account_of(request))
    programme.last_round = asked.last_round
    return {"last_round": programme.last_round}


@router.put("/programme/model", name="set_model")
def put_model(request: Request, asked: NewModel) -> dict[str, Any]:
    """Lets another model run the programme."""
    desk = desk_of(request)
    desk.change_model(asked.model, account_of(request), asked.why)
    return {"model": desk.programme().hash}


@router.get("/people", name="people", responses=TABLE_RESPONSE)
def get_people(request: Request) -> Response:
    """Everyone who takes part, as a plan made now would see them."""
    desk = desk_of(request)
    return send_table(request, desk.own(desk.roster(), account_of(request)), "people")


@router.get("/people/{person}", name="person")
def get_person(request: Request, person: Annotated[str, InPath(max_length=200)]) -> dict[str, Any]:
    """What is known of a person, round by round."""
    desk = desk_of(request)
    who = as_id(person, desk.programme().ids)
    desk.check_own(who, account_of(request))
    return desk.timeline(who)


@router.post("/people", name="join", openapi_extra=TABLE_BODY)
async def post_people(request: Request, why: WhyQuery = None) -> dict[str, Any]:
    """Adds the people of a table."""

    def work(programme: Programme, frame: pl.DataFrame, where: str) -> dict[str, Any]:
        return {"joined": programme.join(frame, where=where, why=why)}

    return await with_table(request, work)


@router.post("/people/leave", name="leave")
def post_leaving(request: Request, asked: Leaving) -> dict[str, Any]:
    """Removes people from this round on; they may join again."""
    programme = desk_of(request).programme(account_of(request))
    ids = [as_id(str(one), programme.ids) for one in asked.ids]
    return {"left": programme.leave(ids, why=asked.why)}


@router.post("/states", name="observe", openapi_extra=TABLE_BODY)
async def post_states(
    request: Request, skip_unknown: bool = False, why: WhyQuery = None
) -> dict[str, Any]:
    """Stores the states of a table as seen in this round."""

    def work(programme: Programme, frame: pl.DataFrame, where: str) -> dict[str, Any]:
        given = {"skip_unknown": skip_unknown, "where": where, "why": why}
        return {"observed": programme.observe(frame, **given)}

    return await with_table(request, work)


@router.post("/records", name="record", openapi_extra=TABLE_BODY)
async def post_record(
    request: Request,
    round: int | None = None,
    correct: bool = False,
    partial: bool = False,
    yes: bool = False,
    over_budget: bool = False,
    why: WhyQuery = None,
) -> dict[str, Any]:
    """Stores what was done in a round and closes it; without a table, all as planned."""

    def work(programme: Programme, frame: pl.DataFrame | None, where: str) -> dict[str, Any]:
        recorded = programme.record(
            frame, round=round, correct=correct, partial=partial, yes=yes,
            over_budget=over_budget, where=where, why=why,
        )  # fmt: skip
        return {"round": recorded, "otherwise": programme.deviations(recorded).height}

    return await with_table(request, work, needed=False)


async def with_table(request: Request, work: Any, *, needed: bool = True) -> dict[str, Any]:
    """Does `work` with the programme and the table that was sent."""
    desk, account = desk_of(request), account_of(request)
    name = request.query_params.get("name", "the table")[:80]

    def run(file: Path | None) -> dict[str, Any]:
        if file is None and needed:
            raise InputError("send a table as the body of the request.")
        programme = desk.programme(account)
        if file is None:
            return work(programme, None, "record")
        frame, where = read_sent(file, name)
        with quiet():
            return work(programme, ids_as_text(programme, frame, where), where)

    async with stored(request) as file:
        return await run_in_threadpool(run, file)


def ids_as_text(programme: Programme, frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """A table whose ids are text if the programme's are."""
    if not frame.height:
        return frame
    ids = column(frame, "id", where)
    as_text = programme.ids == "text" and ids.dtype.is_integer()
    return frame.with_columns(ids.cast(pl.String)) if as_text else frame


@router.get("/plans", name="plans", responses=TABLE_RESPONSE)
def get_plans(request: Request) -> Response:
    """Every plan with its budget and what was spent."""
    return send_table(request, desk_of(request).programme().plans(), "plans")


@router.get("/deviations", name="deviations", responses=TABLE_RESPONSE)
def get_deviations(request: Request, round: int | None = None) -> Response:
    """Who was not treated as planned."""
    return send_table(request, desk_of(request).programme().deviations(round), "deviations")


@router.get("/history/{part}", name="history", responses=TABLE_RESPONSE)
def get_history(
    request: Request,
    part: Literal["people", "states", "plans", "actions", "corrections", "log"],
) -> Response:
    """Everything that is stored, part by part; `log` is a table to learn a model from."""
    return send_table(request, getattr(desk_of(request).programme().history(), part), part)


@router.get("/audit", name="audit", responses=TABLE_RESPONSE)
def get_audit(request: Request) -> Response:
    """Every change: who, when, what and why."""
    return send_table(request, desk_of(request).programme().audit(), "audit")


@router.post("/audit/verify", name="verify_audit")
def post_audit_check(request: Request, head: str | None = None) -> dict[str, Any]:
    """Checks that nothing in the audit log was changed, removed or put in later."""
    return dataclasses.asdict(desk_of(request).programme().verify_audit(head))


@router.get("/openapi.json", name="openapi", include_in_schema=False)
def get_openapi(request: Request) -> Response:
    """What OpenAPI says of this API."""
    root = desk_of(request).settings.root
    told = request.app.openapi()
    return JSONResponse({**told, "servers": [{"url": root}]} if root else told)


__all__ = ["Asked", "Desk", "router"]
