"""Pages of this week's list: show, make, change by hand, approve and download it."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import polars as pl
from fastapi import APIRouter, Depends, Form, Request
from starlette.responses import Response

from prefermab.errors import InputError, OutdatedError
from prefermab.programme.planning.rules import Rules
from prefermab.programme.planning.rules.base import setting_of
from prefermab.programme.store import Planned
from prefermab.programme.store.lookups import newest_request
from prefermab.programme.store.queries import known_kinds
from prefermab.service.auth.access import Account, Guarded, account_of
from prefermab.service.http.rendering import FormNumber, FormText, page, redirect
from prefermab.service.http.tables import MEDIA_TYPES, quiet
from prefermab.service.work.approval import approve
from prefermab.service.work.changes import by_hand, change_for, change_list, seen_list
from prefermab.service.work.desk import Desk, Head, as_id, desk_of
from prefermab.service.work.late import all_late
from prefermab.service.work.plan_requests import PlanForm, form_fields, make_plan, rules_of
from prefermab.service.work.week import (
    Columns,
    Filter,
    attempts,
    lines,
    moved,
    rule_costs,
    sentences,
    values_of,
)

router = APIRouter(route_class=Guarded, include_in_schema=False)
LIST_ROWS_PER_PAGE = 100
"""Rows of a list that one page shows."""


WEEK_MESSAGES = {
    "planned": "The list is made. Look through it, change it if you must, then approve it.",
    "changed": "The list is changed, and has to be approved again.",
    "same": "Nothing differs: the list is as it was.",
    "approved": "The list is approved: everybody can now record what they do.",
    "closed": "The round is recorded. The next one can be planned.",
}
"""Messages after a change, by the value of `said` in the address."""


@router.get("/week", name="week_page")
def week_page(
    request: Request, at: int = 1, worker: str = "", group: str = "", find: str = "", said: str = ""
) -> Response:
    """This week's list with reasons, notes, rule costs, the waiting list and all attempts."""
    desk, account = desk_of(request), account_of(request)
    head, frame = desk.week(account)
    if head.attempt is None or frame is None:
        return page(
            request, "week_open.html", head=head, people=desk.count_people(),
            said=WEEK_MESSAGES.get(said), late=all_late(desk, account).height,
        )  # fmt: skip
    plan = desk.planned(head.round, head.attempt)
    columns, wanted = columns_of(desk, plan), Filter(worker, group, find)
    listed = wanted.apply(frame, columns)
    chosen = listed.filter(pl.col("list") == "chosen").sort("rank")
    pages = max(1, -(-chosen.height // LIST_ROWS_PER_PAGE))
    at = min(max(at, 1), pages)
    here = chosen.slice((at - 1) * LIST_ROWS_PER_PAGE, LIST_ROWS_PER_PAGE)
    tries = attempts(desk, head.round)
    return page(
        request, "week.html", head=head, plan=plan, facts=plan.facts, said=WEEK_MESSAGES.get(said),
        rows=lines(here, columns), found=chosen.height,
        waiting=lines(listed.filter(pl.col("list") == "waiting").sort("rank"), columns),
        columns=columns, wanted=wanted, at=at, pages=pages,
        query=urlencode({name: value for name, value in vars(wanted).items() if value}),
        workers=values_of(frame, columns.worker), groups=values_of(frame, columns.group),
        sentences=sentences(plan), costs=rule_costs(plan), attempts=tries,
        approved=next((one.approved for one in tries if one.number == head.attempt), None),
        moved=_moved(desk, plan), hand=by_hand(plan.asked), late=all_late(desk, account).height,
    )  # fmt: skip


def columns_of(desk: Desk, plan: Planned) -> Columns:
    """The columns of a plan's list that pages show."""
    rules = rules_of(plan.asked) or Rules()
    return Columns.of(plan.frame, desk.settings.worker_column, rules.group_column)


def _moved(desk: Desk, plan: Planned) -> tuple[list[Any], list[Any]] | None:
    return moved(plan, desk.planned(plan.round, plan.attempt - 1)) if plan.attempt > 1 else None


@router.get("/week/list.{ending}", name="week_file")
def week_file(request: Request, ending: Literal["csv", "xlsx", "parquet"]) -> Response:
    """The list as a file: an Excel workbook to print, or a CSV or Parquet table."""
    desk = desk_of(request)
    head, frame = desk.week(account_of(request))
    if head.attempt is None or frame is None:
        raise InputError(f"round {head.round} is not planned yet.")
    plan = desk.planned(head.round, head.attempt)
    with tempfile.TemporaryDirectory(prefix="prefermab-") as folder:
        file = Path(folder) / f"list.{ending}"
        dataclasses.replace(plan, frame=frame).write(file)
        data = file.read_bytes()
    kind = next(media for media, known in MEDIA_TYPES.items() if known == f".{ending}")
    name = f'attachment; filename="round-{head.round}.{ending}"'
    return Response(data, media_type=kind, headers={"content-disposition": name})


@router.get("/week/plan", name="plan_page")
def plan_page(request: Request) -> Response:
    """The form for a plan, filled in with the arguments of the last plan."""
    desk = desk_of(request)
    head = desk.head()
    with desk.records.reading() as sql:
        kinds, form = known_kinds(sql), PlanForm.from_asked(newest_request(sql))
    return page(
        request, "plan.html", head=head, form=form, people=desk.count_people(),
        settings=[(field.name, field.type is bool, setting_of(field)) for field in form_fields()],
        columns={
            "truths": [name for name, kind in kinds.items() if kind in ("text", "truth")],
            "texts": [name for name, kind in kinds.items() if kind in ("text", "whole", "truth")],
            "numbers": [name for name, kind in kinds.items() if kind in ("whole", "number")],
        },
        hand=form.by_hand if head.attempt is not None else 0,
    )  # fmt: skip


async def settings_typed(request: Request) -> dict[str, str]:
    """What was typed into the form for the settings of rules."""
    form = await request.form()
    return {field.name: str(form.get(field.name, "")) for field in form_fields()}


@router.post("/week/plan", name="make_plan")
def plan_week(
    request: Request,
    rules: Annotated[dict[str, str], Depends(settings_typed)],
    budget: FormText,
    waiting: FormText = "20",
    explore: FormText = "",
    keep: FormText = "",
    why: FormText = "",
    round: FormNumber = None,
    attempt: FormNumber = None,
) -> Response:
    """Makes this week's list. `round` and `attempt` are those of the list that the form replaces;
    0 if there was none."""
    desk, account = desk_of(request), account_of(request)
    form = PlanForm(budget, waiting, explore, rules)
    head = desk.head()
    asked = form.asked()
    if head.attempt is not None:
        if attempt == 0:
            raise OutdatedError("somebody made the list meanwhile: look at it first.")
        old = seen_list(desk, round, attempt)
        if not why.strip():
            raise InputError("say why the list is made again: the reason is kept.")
        if keep:
            kept = (rules_of(old.asked) or Rules()).ids()
            asked["rules"] = {**(asked["rules"] or {}), **kept}
        asked["attempt"] = old.attempt
    asked |= {"why": why.strip() or None, "round": head.round}
    if desk.is_large():
        return _as_job(request, desk, account, asked)
    with quiet():
        made = make_plan(desk.programme(account), asked)
    return _made(request, head, made, "planned")


def _as_job(request: Request, desk: Desk, account: Account, asked: dict[str, Any]) -> Response:
    """Makes the list of a large programme by a job."""
    job = desk.jobs.submit("plan", asked, account.name)
    return redirect(request, f"/week/job/{job['number']}")


def _made(request: Request, before: Head, made: Planned, said: str) -> Response:
    """The page of the list after it was made, with a message."""
    same = (made.round, made.attempt) == (before.round, before.attempt)
    return redirect(request, f"/week?said={'same' if same else said}")


@router.get("/week/job/{number}", name="plan_job_page")
def plan_job_page(request: Request, number: int) -> Response:
    """The progress of a job that plans; redirects to the list when it is done."""
    job = desk_of(request).jobs.get(number)
    if job["status"] == "done":
        said = "changed" if "change" in job["asked"] else "planned"
        return redirect(request, f"/week?said={said}")
    return page(request, "job.html", job=job, ended=job["status"] not in ("waiting", "running"))


@router.post("/week/job/{number}/cancel", name="cancel_plan_job")
def cancel_plan_job(request: Request, number: int) -> Response:
    """Cancels a job that plans."""
    desk_of(request).jobs.cancel(number)
    return redirect(request, f"/week/job/{number}")


@router.get("/week/change", name="change_page")
def change_page(request: Request, id: str) -> Response:
    """The form to take somebody off the list or put them on it."""
    desk = desk_of(request)
    head = desk.head()
    if head.attempt is None:
        raise InputError(f"round {head.round} is not planned yet.")
    plan = desk.planned(head.round, head.attempt)
    columns = columns_of(desk, plan)
    one = plan.frame.filter(pl.col("id").cast(pl.String) == id)
    if not one.height:
        raise InputError(f"there is no '{id[:80]}' in the plan of round {head.round}.")
    chosen = plan.frame.filter(pl.col("list") == "chosen").sort("rank", descending=True)
    line = lines(one, columns)[0]
    return page(
        request, "change.html", head=head, line=line, hand=by_hand(plan.asked).get(id, ""),
        waiting=lines(plan.waiting.head(50), columns), chosen=lines(chosen.head(50), columns),
        barred=line["rank"] is None,
    )  # fmt: skip


@router.post("/week/change", name="change_week")
def change_week(
    request: Request,
    id: FormText,
    kind: FormText,
    why: FormText = "",
    instead: FormText = "",
    round: FormNumber = None,
    attempt: FormNumber = None,
) -> Response:
    """Changes the list by hand: makes a new attempt of the plan, with user and reason. `round` and
    `attempt` are those of the list that the user has looked at."""
    desk, account = desk_of(request), account_of(request)
    ids, before = desk.programme().ids, desk.head()
    other = as_id(instead, ids) if instead else None
    change = change_for(desk, as_id(id, ids), kind, why, other, round=round, attempt=attempt)
    if desk.is_large():
        return _as_job(request, desk, account, {"change": dataclasses.asdict(change)})
    with quiet():
        made = change_list(desk.programme(account), change)
    return _made(request, before, made, "changed")


@router.post("/week/approve", name="approve_week")
def approve_week(
    request: Request, round: Annotated[int, Form()], attempt: Annotated[int, Form()]
) -> Response:
    """Approves this week's list."""
    approve(desk_of(request), account_of(request), round, attempt)
    return redirect(request, "/week?said=approved")
