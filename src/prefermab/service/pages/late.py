"""The page "Ticks that came late": accept late marks as corrections, or dismiss them."""

from typing import Annotated, Any

import polars as pl
from fastapi import APIRouter, Form, Request
from starlette.responses import Response

from prefermab.service.auth.access import Guarded, account_of
from prefermab.service.http.rendering import FormText, page, redirect
from prefermab.service.pages.record import describe_mark
from prefermab.service.pages.week import columns_of
from prefermab.service.work import late as lateness
from prefermab.service.work.approval import RoundLists
from prefermab.service.work.desk import Desk, desk_of
from prefermab.service.work.marks import mark_in_words
from prefermab.service.work.week import lines

router = APIRouter(route_class=Guarded, include_in_schema=False)
LATE_MESSAGES = {
    "corrected": "The record is corrected.",
    "counted": "The ticks count.",
    "left": "The record stays as it was.",
}


@router.get("/record/late", name="late_page")
def late_page(request: Request, said: str = "") -> Response:
    """Late marks by round, beside what was planned and recorded."""
    desk = desk_of(request)
    seen, waiting = desk.clock(), lateness.all_late(desk, account_of(request))
    rounds = {
        round: late_rows(desk, round, waiting.filter(round=round))
        for round in waiting["round"].unique().sort()
    }
    return page(
        request, "late.html", rounds=rounds, said=LATE_MESSAGES.get(said), seen=seen,
        head=desk.head(),
    )  # fmt: skip


def late_rows(desk: Desk, round: int, waiting: pl.DataFrame) -> list[dict[str, Any]]:
    """A line for each late mark of a round: the person, and what was planned, recorded and
    marked."""
    plan, passive = lateness.plan_in_force(desk, round), desk.programme().model.action_names[0]
    with desk.records.reading() as sql:
        lists = RoundLists.read(sql, round)
        done = lateness.done_so_far(sql, lists)
    nothing = passive if lists.is_closed else "no tick"
    ticks = {row["id"]: row for row in waiting.iter_rows(named=True)}
    about = plan.frame.filter(pl.col("id").cast(pl.String).is_in(list(ticks)))
    rows = lines(about, columns_of(desk, plan))
    others = sorted(set(ticks) - {str(row["id"]) for row in rows})
    rows += [{"id": one, "name": None, "action": "not in the plan"} for one in others]
    for row in rows:
        tick = ticks[str(row["id"])]
        action, reached = done.get(str(row["id"]), (nothing, True))
        row["recorded"] = mark_in_words(action, reached)
        row["ticked"] = mark_in_words(tick["action"], tick["reached"])
        row["mark"] = describe_mark(tick, row["action"], passive)
    return rows


@router.post("/record/late", name="decide_late")
def decide_late(
    request: Request,
    round: Annotated[int, Form()],
    ids: Annotated[list[str], Form()] = [],  # noqa: B006  # read by FastAPI, never changed
    accept: FormText = "",
    why: FormText = "",
    over_budget: FormText = "",
    seen: Annotated[float | None, Form()] = None,
) -> Response:
    """Corrects the record by the selected marks, or leaves it as it is."""
    desk, accepted = desk_of(request), accept == "yes"
    lateness.decide_late_marks(
        desk, account_of(request), round, set(ids),
        accept=accepted, why=why, over_budget=bool(over_budget), seen=seen,
    )  # fmt: skip
    done = "corrected" if round < desk.head().round else "counted"
    return redirect(request, f"/record/late?said={done if accepted else 'left'}")
