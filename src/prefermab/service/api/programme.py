"""The API: the programme and its people under /api/v1."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import polars as pl
from fastapi import APIRouter, Query, Request
from fastapi import Path as InPath
from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from prefermab.errors import InputError, StorageError
from prefermab.programme.store import Programme
from prefermab.programme.store.queries import current_round
from prefermab.programme.tables.columns import column
from prefermab.service.auth.access import Guarded, account_of
from prefermab.service.http.tables import (
    MEDIA_TYPES,
    body_in_file,
    quiet,
    read_sent_table,
    send_table,
)
from prefermab.service.work.approval import RoundLists
from prefermab.service.work.desk import as_id, desk_of

router = APIRouter(prefix="/api/v1", route_class=Guarded, tags=["programme"])

WhyQuery = Annotated[
    str | None, Query(description="The reason, for the audit log.", max_length=2000)
]
TABLE_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"content": {media: {} for media in MEDIA_TYPES}, "description": "A table."}
}
TABLE_BODY: dict[str, Any] = {"requestBody": {"content": {media: {} for media in MEDIA_TYPES}}}
"""OpenAPI descriptions of tables in answers and in requests."""


class JsonBody(BaseModel):
    """The JSON body of a request; unknown fields are refused, numbers that are not finite, and true
    or false in place of a number or an id: pydantic would read true as the person 1."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def refuse_truth(cls, value: Any, field: ValidationInfo) -> Any:
        """Raises if a value is true or false, or has such an item, and the field is not of them."""
        wanted = cls.model_fields[field.field_name or ""].annotation
        given = value if isinstance(value, list) else [value]
        if bool not in (wanted, *get_args(wanted)) and any(isinstance(one, bool) for one in given):
            raise ValueError("Input should be neither true nor false")
        return value


class LeaveBody(JsonBody):
    """The people who leave."""

    ids: list[str | int]
    why: str | None = None


class LastRoundBody(JsonBody):
    """The last round of the programme; null if it has no end."""

    last_round: int | None


class ModelBody(JsonBody):
    """The model that plans from now on: one that ships, or one that a job learned."""

    model: str
    why: str | None = None


@router.get("/me", name="me")
def get_me(request: Request) -> dict[str, Any]:
    """The user who sends this request, with role and rights."""
    account = account_of(request)
    return {"name": account.name, "role": account.role, "rights": sorted(account.rights)}


@router.get("/programme", name="programme")
def get_programme(request: Request) -> dict[str, Any]:
    """The state of the programme: round, people, model and its names."""
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
def put_last_round(request: Request, body: LastRoundBody) -> dict[str, Any]:
    """Sets the last round of the programme."""
    programme = desk_of(request).programme(account_of(request))
    programme.last_round = body.last_round
    return {"last_round": programme.last_round}


@router.put("/programme/model", name="set_model")
def put_model(request: Request, body: ModelBody) -> dict[str, Any]:
    """Changes the model of the programme."""
    desk = desk_of(request)
    desk.change_model(body.model, account_of(request), body.why)
    return {"model": desk.programme().hash}


@router.get("/people", name="people", responses=TABLE_RESPONSE)
def get_people(request: Request) -> Response:
    """Everyone who takes part, as a plan made now would see them."""
    desk = desk_of(request)
    return send_table(request, desk.visible_rows(desk.roster(), account_of(request)), "people")


@router.get("/people/{person}", name="person")
def get_person(request: Request, person: Annotated[str, InPath(max_length=200)]) -> dict[str, Any]:
    """All that is stored about a person, round by round."""
    desk = desk_of(request)
    who = as_id(person, desk.programme().ids)
    desk.check_visible(who, account_of(request))
    return desk.timeline(who)


@router.post("/people", name="join", openapi_extra=TABLE_BODY)
async def post_people(request: Request, why: WhyQuery = None) -> dict[str, Any]:
    """Adds the people of a table."""

    def work(programme: Programme, frame: pl.DataFrame, where: str) -> dict[str, Any]:
        return {"joined": programme.join(frame, where=where, why=why)}

    return await with_table(request, work)


@router.post("/people/leave", name="leave")
def post_leaving(request: Request, body: LeaveBody) -> dict[str, Any]:
    """Removes people from this round on; they may join again."""
    programme = desk_of(request).programme(account_of(request))
    ids = [as_id(str(one), programme.ids) for one in body.ids]
    return {"left": programme.leave(ids, why=body.why)}


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
    """Stores what was done in a round and closes it. Without a table, everything was done as
    planned. The list of the round has to be approved."""

    def work(programme: Programme, frame: pl.DataFrame | None, where: str) -> dict[str, Any]:
        with programme.database.writing() as sql:
            now = current_round(sql)
            if round in (None, now):
                RoundLists.read(sql, now).check()
            recorded = programme.record(
                frame, round=round, correct=correct, partial=partial, yes=yes,
                over_budget=over_budget, where=where, why=why,
            )  # fmt: skip
        return {"round": recorded, "otherwise": programme.deviations(recorded).height}

    return await with_table(request, work, needed=False)


async def with_table(request: Request, work: Any, *, needed: bool = True) -> dict[str, Any]:
    """Calls `work` with the programme, the table in the request and its name."""
    desk, account = desk_of(request), account_of(request)
    name = request.query_params.get("name", "the table")[:80]

    def run(file: Path | None) -> dict[str, Any]:
        if file is None and needed:
            raise InputError("send a table as the body of the request.")
        programme = desk.programme(account)
        if file is None:
            return work(programme, None, "record")
        frame, where = read_sent_table(file, name)
        with quiet():
            return work(programme, ids_as_text(programme, frame, where), where)

    async with body_in_file(request) as file:
        return await run_in_threadpool(run, file)


def ids_as_text(programme: Programme, frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """The table, with ids as text if the programme's ids are text."""
    if not frame.height:
        return frame
    ids = column(frame, "id", where)
    as_text = programme.ids == "text" and ids.dtype.is_integer()
    return frame.with_columns(ids.cast(pl.String)) if as_text else frame


@router.get("/plans", name="plans", responses=TABLE_RESPONSE)
def get_plans(request: Request) -> Response:
    """Every plan, with its budget and its spending."""
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
    """One part of all that is stored; `log` is a table to learn a model from."""
    return send_table(request, getattr(desk_of(request).programme().history(), part), part)


@router.get("/audit", name="audit", responses=TABLE_RESPONSE)
def get_audit(request: Request) -> Response:
    """Every change: who, when, what and why."""
    return send_table(request, desk_of(request).programme().audit(), "audit")


@router.post("/audit/verify", name="verify_audit")
def post_audit_check(request: Request, head: str | None = None) -> dict[str, Any]:
    """Checks that no row of the audit log was changed, removed or inserted later. Status 409 says
    that one was, or that there is no row with the hash `head`."""
    try:
        proof = desk_of(request).programme().verify_audit((head or "").strip() or None)
    except StorageError as error:
        raise HTTPException(409, str(error)) from None
    return dataclasses.asdict(proof)


@router.get("/openapi.json", name="openapi", include_in_schema=False)
def get_openapi(request: Request) -> Response:
    """The OpenAPI description of this API."""
    root = desk_of(request).settings.root
    schema = request.app.openapi()
    return JSONResponse({**schema, "servers": [{"url": root}]} if root else schema)
