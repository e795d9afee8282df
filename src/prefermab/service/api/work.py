"""The API: plans, what-if, marks and jobs."""

import dataclasses
from typing import Annotated, Any, Literal, cast

import polars as pl
from fastapi import APIRouter, Query, Request
from pydantic import Field, TypeAdapter, WithJsonSchema
from starlette.responses import JSONResponse, Response

from prefermab.errors import InputError
from prefermab.programme.planning.rules import Rules
from prefermab.programme.planning.rules.base import setting_of
from prefermab.service.api.programme import TABLE_RESPONSE, JsonBody
from prefermab.service.auth.access import Guarded, account_of
from prefermab.service.http.tables import quiet, send_table
from prefermab.service.work import late as lateness
from prefermab.service.work import marks as marking
from prefermab.service.work.approval import approve
from prefermab.service.work.changes import change_for, change_list
from prefermab.service.work.desk import Desk, as_id, desk_of
from prefermab.service.work.plan_requests import compare_budgets, facts_of, make_plan, rules_of

router = APIRouter(prefix="/api/v1", route_class=Guarded, tags=["plans"])

JsonAmount = int | float
"""Whole numbers stay whole, so that those with more digits than a float holds are refused."""

Ids = list[str | int]


RulesBody = Annotated[
    dict[str, Any],
    WithJsonSchema(
        {
            "type": "object",
            "title": "RulesBody",
            "description": "Rules that a plan must keep, with the fields of `prefermab.Rules`.",
            "properties": {
                field.name: {
                    **TypeAdapter[Any](cast(Any, field.type)).json_schema(),
                    "description": setting_of(field).help,
                }
                for field in dataclasses.fields(Rules)
            },
        }
    ),
]


class PlanBody(JsonBody):
    """The arguments of a plan. With `again` it replaces the list that is valid when the request
    arrives, or `attempt`; if somebody changes the list meanwhile, the answer is 409."""

    budget: JsonAmount
    rules: RulesBody | None = None
    waiting: int = 20
    round: int | None = None
    again: bool = False
    attempt: int | None = None
    explore: float = 0.0
    seed: int | None = None
    why: str | None = None


class ListChangeBody(JsonBody):
    """A change of the list by hand: `off` takes a person off it, `on` puts them on it, and `free`
    ends either. `instead` takes their place or gives it up. `attempt` is the number of the list
    that the user has looked at, by default the valid one."""

    id: str | int
    kind: Literal["off", "on", "free"]
    why: str = Field(max_length=2000)
    instead: str | int | None = None
    attempt: int | None = None


class ApprovalBody(JsonBody):
    """The number of the list that is approved."""

    attempt: int


class BudgetsBody(JsonBody):
    """Budgets to compare."""

    budgets: list[JsonAmount] = Field(min_length=1, max_length=200)
    rules: RulesBody | None = None


class LearningBody(JsonBody):
    """How to learn a model from the programme's own log."""

    rewards: dict[str, float]
    budget: JsonAmount | None = None
    steps: int = Field(default=6000, ge=1, le=100_000)
    rounds_left: int = Field(default=0, ge=0, le=520)
    seed: int = 0


class Mark(JsonBody):
    """What was done with a person; an `action` of null takes the mark back."""

    id: str | int
    action: str | None
    reached: bool = True
    why: str | None = None
    at: float | None = Field(default=None, description="Seconds since 1970; now if left out.")


class MarksBody(JsonBody):
    """Marks of the current round, or of a round that was closed before they arrived."""

    round: int
    attempt: int | None = Field(
        default=None, description="The number of the list by which they were made."
    )
    marks: list[Mark] = Field(max_length=10_000)


class LateDecisionBody(JsonBody):
    """A decision on late marks: correct the record by them, or leave it as it is."""

    round: int
    ids: Ids = Field(min_length=1, max_length=10_000)
    accept: bool
    why: str = Field(max_length=2000)
    over_budget: bool = False
    seen: float | None = Field(
        default=None, description="When they were read: refused if one of them arrived later."
    )


def as_plain_values(body: JsonBody) -> dict[str, Any]:
    """A body as a dictionary, without fields that are null."""
    return body.model_dump(exclude_none=True)


@router.post("/plans", name="plan")
def post_plan(request: Request, body: PlanBody) -> Any:
    """Plans the current round. For a large programme this becomes a job: the status is then 202,
    and Location is the address of the job."""
    desk, account, asked = desk_of(request), account_of(request), as_plain_values(body)
    rules_of(asked)  # a job would find mistakes in them later
    head = desk.head()
    if body.again and body.round in (None, head.round):
        asked = {"round": head.round, "attempt": head.attempt, **asked}
    elif body.attempt is not None:
        raise InputError("attempt names the list that is replaced: it needs again=true.")
    if desk.is_large():
        return accepted(desk, desk.jobs.submit("plan", asked, account.name))
    with quiet():
        return facts_of(make_plan(desk.programme(account), asked))


@router.post("/plans/{round}/change", name="change_plan")
def post_change(request: Request, round: int | Literal["current"], body: ListChangeBody) -> Any:
    """Changes the list of the current round by hand. Changes that others make at the same time
    stay; if one of them is about the same person, the answer is 409. For a large programme this
    becomes a job."""
    desk, account = desk_of(request), account_of(request)
    ids = desk.programme().ids
    instead = None if body.instead is None else as_id(str(body.instead), ids)
    change = change_for(
        desk, as_id(str(body.id), ids), body.kind, body.why, instead,
        round=None if round == "current" else round, attempt=body.attempt,
    )  # fmt: skip
    if desk.is_large():
        asked = {"change": dataclasses.asdict(change)}
        return accepted(desk, desk.jobs.submit("plan", asked, account.name))
    with quiet():
        return facts_of(change_list(desk.programme(account), change))


@router.post("/plans/{round}/approve", name="approve_plan")
def post_approval(request: Request, round: int, body: ApprovalBody) -> dict[str, Any]:
    """Approves the list of the current round: from then on what is done can be recorded."""
    desk = desk_of(request)
    approve(desk, account_of(request), round, body.attempt)
    return {"round": round, "approved": body.attempt}


@router.get("/plans/{round}", name="planned")
def get_planned(
    request: Request, round: int | Literal["current"], attempt: int | None = None
) -> Any:
    """A plan without its people: its arguments, its summary and the software versions."""
    return facts_of(find_planned(desk_of(request), round, attempt))


@router.get("/plans/{round}/list", name="planned_list", responses=TABLE_RESPONSE)
def get_planned_list(
    request: Request,
    round: int | Literal["current"],
    attempt: int | None = None,
    only: Annotated[Literal["chosen", "waiting"] | None, Query(alias="list")] = None,
) -> Response:
    """The list of a plan: everybody, only the chosen people, or only the waiting list."""
    desk = desk_of(request)
    plan = find_planned(desk, round, attempt)
    frame = desk.visible_rows(plan.frame, account_of(request))
    if only is not None:
        frame = frame.filter(pl.col("list") == only).sort("rank")
    return send_table(request, frame, f"round-{plan.round}")


@router.get("/plans/{round}/people", name="planned_people", responses=TABLE_RESPONSE)
def get_planned_people(
    request: Request, round: int | Literal["current"], attempt: int | None = None
) -> Response:
    """The people of a plan as the model saw them."""
    plan = find_planned(desk_of(request), round, attempt)
    return send_table(request, plan.inputs, f"round-{plan.round}-people")


@router.post("/plans/{round}/replay", name="replay")
def post_replay(request: Request, round: int, attempt: int | None = None) -> Any:
    """Makes a plan again from stored data; an error if a single bit differs."""
    desk, account = desk_of(request), account_of(request)
    if desk.is_large():
        asked = {"round": round, "attempt": attempt}
        return accepted(desk, desk.jobs.submit("replay", asked, account.name))
    with quiet():
        return facts_of(desk.programme().replay(round, attempt))


@router.post("/what-if", name="what_if", responses=TABLE_RESPONSE)
def post_what_if(request: Request, body: BudgetsBody) -> Any:
    """What each of several budgets would gain and spend. For a large programme this becomes a
    job."""
    desk, given = desk_of(request), as_plain_values(body)
    rules = rules_of(given)
    if desk.is_large():
        return accepted(desk, desk.jobs.submit("what-if", given, account_of(request).name))
    with quiet():
        found = compare_budgets(desk.programme(), given["budgets"], rules)
    return send_table(request, found, "what-if")


@router.get("/marks", name="marks", responses=TABLE_RESPONSE)
def get_mark_table(request: Request) -> Response:
    """The marks of the current round."""
    desk, account = desk_of(request), account_of(request)
    head, frame = desk.week(account)
    with desk.records.reading() as sql:
        found = marking.get_marks(sql, head.round)
    if account.own_only:
        own = pl.Series(dtype=pl.String) if frame is None else frame["id"].cast(pl.String)
        found = found.filter(pl.col("id").is_in(own.implode()))
    return send_table(request, found, f"round-{head.round}-marks")


@router.post("/marks", name="mark")
def post_marks(request: Request, body: MarksBody) -> dict[str, Any]:
    """Stores marks: what was done with people, before the round is recorded as a whole. Marks of a
    closed round, or of a list that has been changed since, are kept too: they wait for a decision,
    and `late` counts them. The list by which they were made has to be approved."""
    desk, account = desk_of(request), account_of(request)
    given = [one.model_dump() for one in body.marks]
    lists = lateness.check_by_lists(desk, account, body.round, given, body.attempt)
    if lists.ticks_wait:
        return {"stored": 0, "late": lateness.add_late(desk, account, lists, given)}
    with desk.records.writing() as sql:
        lists.check_same(sql)
        lateness.settle_marks(desk, sql, desk.programme().model.action_names[0])
        return {"stored": len(lateness.put_ticks(desk, account, lists, sql, given)), "late": 0}


@router.get("/marks/late", name="late_marks", responses=TABLE_RESPONSE)
def get_late_marks(request: Request) -> Response:
    """Late marks: they arrived after their round was closed and wait for a decision. Field workers
    get only their own."""
    desk, account = desk_of(request), account_of(request)
    return send_table(request, lateness.all_late(desk, account).drop("came"), "late-marks")


@router.post("/marks/late", name="decide_marks")
def post_late_decision(request: Request, body: LateDecisionBody) -> dict[str, Any]:
    """Corrects the record of a closed round by late marks, for these people only; or dismisses the
    marks."""
    desk, account = desk_of(request), account_of(request)
    decided = lateness.decide_late_marks(
        desk, account, body.round, {str(one) for one in body.ids},
        accept=body.accept, why=body.why, over_budget=body.over_budget, seen=body.seen,
    )  # fmt: skip
    return {"round": body.round, "decided": decided}


@router.post("/marks/record", name="record_marks")
def post_marks_record(
    request: Request,
    round: int,
    rest: Literal["planned", "nothing"] = "planned",
    over_budget: bool = False,
    why: str | None = None,
) -> dict[str, Any]:
    """Records the current round from its marks and closes it. `rest` says what was done with people
    on the list without a mark."""
    desk, account = desk_of(request), account_of(request)
    plan = lateness.plan_in_force(desk, round)
    lateness.close_by_marks(desk, account, plan, rest=rest, over_budget=over_budget, why=why)
    return {"round": round, "otherwise": desk.programme().deviations(round).height}


@router.post("/jobs/learn", name="learn", status_code=202)
def post_learning(request: Request, body: LearningBody) -> Any:
    """Learns a model from the programme's own log, as a job."""
    desk = desk_of(request)
    return accepted(
        desk, desk.jobs.submit("learn", as_plain_values(body), account_of(request).name)
    )


@router.get("/jobs", name="jobs", responses=TABLE_RESPONSE)
def get_jobs(request: Request) -> Response:
    """The latest 200 jobs, the newest first."""
    return send_table(request, desk_of(request).jobs.all(), "jobs")


@router.get("/jobs/{number}", name="job")
def get_job(request: Request, number: int) -> dict[str, Any]:
    """The progress of a job, and its answer when it is done."""
    return desk_of(request).jobs.get(number)


@router.delete("/jobs/{number}", name="cancel")
def delete_job(request: Request, number: int) -> dict[str, Any]:
    """Ends a job; what it has stored by then stays."""
    return desk_of(request).jobs.cancel(number)


def accepted(desk: Desk, job: dict[str, Any]) -> Response:
    """The answer to a request that became a job: status 202 and the address of the job."""
    place = f"{desk.settings.root}/api/v1/jobs/{job['number']}"
    return JSONResponse(job, 202, {"location": place})


def find_planned(desk: Desk, round: int | str, attempt: int | None) -> Any:
    """The plan of a round; without an attempt, the valid one."""
    head = desk.head()
    if round in ("current", head.round) and attempt is None:
        attempt = head.attempt
    number = head.round if round == "current" else int(round)
    if attempt is None:
        return desk.programme().planned(number)
    return desk.planned(number, attempt)
