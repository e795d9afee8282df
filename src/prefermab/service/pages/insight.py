"""The pages "What if" (other budgets) and "Groups" (who is acted on how often)."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import polars as pl
from fastapi import APIRouter, Request
from starlette.responses import Response

from prefermab.errors import unknown
from prefermab.models.model import Model
from prefermab.programme.planning.plan import what_if
from prefermab.programme.store import Planned
from prefermab.programme.store.lookups import acted_on
from prefermab.programme.store.request import PlanRequest
from prefermab.service.auth.access import Guarded
from prefermab.service.http.rendering import line_chart, page
from prefermab.service.work.desk import Desk, desk_of

router = APIRouter(route_class=Guarded, include_in_schema=False)
POINTS = 20
"""Steps of the slider, from 0 to twice the budget."""

POINTS_BY_PLAN: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
"""Cache of `what_if_points`, by programme, round and attempt."""

MOST_GROUPS_IN_COLUMN, ROUNDS_SHOWN = 12, 8
"""Most values that a column of groups may have; number of rounds that are shown."""


def newest_plan(desk: Desk) -> Planned | None:
    """The plan of the current round, or else of the round before; None if nothing was planned."""
    head = desk.head()
    if head.attempt is not None:
        return desk.planned(head.round, head.attempt)
    return desk.programme().planned(head.round - 1) if head.round > 1 else None


@router.get("/what-if", name="what_if_page")
def what_if_page(request: Request, budget: float | None = None) -> Response:
    """What the newest plan would gain with other budgets."""
    desk = desk_of(request)
    plan = newest_plan(desk)
    if plan is None or not isinstance(desk.model, Model):
        return page(request, "what_if.html", plan=None, own=plan is not None)
    rows = what_if_points(desk, desk.model, plan)
    asked = float(plan.asked["budget"]) if budget is None else budget
    now = min(range(len(rows)), key=lambda k: abs(rows[k]["budget"] - asked))
    gains = [row["gain"] for row in rows]
    curve = gains if None not in gains else [float(row["chosen"]) for row in rows]
    chart = line_chart([row["budget"] for row in rows], {"gain": curve})
    return page(
        request, "what_if.html", plan=plan, rows=rows, now=now, chart=chart,
        dots=chart.dots["gain"], by_gain=None not in gains,
    )  # fmt: skip


def what_if_points(desk: Desk, model: Model, plan: Planned) -> list[dict[str, Any]]:
    """Budgets from 0 to twice the plan's, each with what it would gain and spend, and with the gain
    of one more unit (`more`). People and rules are those of the plan; all budgets are judged at its
    price. A plan never changes, so the points are computed once."""
    key = (desk.settings.place, plan.round, plan.attempt)
    if key not in POINTS_BY_PLAN:
        given = PlanRequest(plan.asked)
        budget = float(plan.asked["budget"]) or 10.0
        whole = budget == int(budget) and budget >= POINTS / 2
        step = max(1.0, round(2 * budget / POINTS)) if whole else 2 * budget / POINTS
        budgets = sorted({*(step * k for k in range(POINTS + 1)), budget})
        left = plan.asked.get("rounds_left")
        frame = what_if(
            model, plan.inputs, budgets, given.rules, rounds_left=left, valued_at=budget
        )
        # From differences of gains, which keep the rules; the price would ignore them.
        more = pl.col("gain").diff().shift(-1) / pl.col("budget").diff().shift(-1)
        POINTS_BY_PLAN.pop(next(iter(POINTS_BY_PLAN)), None) if len(POINTS_BY_PLAN) > 8 else None
        POINTS_BY_PLAN[key] = frame.with_columns(more=more).to_dicts()
    return POINTS_BY_PLAN[key]


@dataclasses.dataclass(frozen=True)
class GroupLine:
    """A group: its number of people in each round, and how many of them were acted on."""

    name: str
    people: Sequence[int]
    acted: Sequence[int]

    @property
    def rates(self) -> list[float | None]:
        """The share of the group that was acted on in each round."""
        return [a / n if n else None for a, n in zip(self.acted, self.people, strict=True)]


@router.get("/groups", name="groups_page")
def groups_page(request: Request, by: str | None = None) -> Response:
    """Who was acted on how often, by group and round."""
    desk = desk_of(request)
    plan = newest_plan(desk)
    if plan is None:
        return page(request, "groups.html", columns=[])
    columns = group_columns(plan.inputs)
    if not columns:
        return page(request, "groups.html", columns=[], planned=True)
    by = by or next((name for name in columns if name == "region"), columns[0])
    if by not in columns:
        raise unknown("column of groups", by, columns)
    rounds = list(range(max(1, plan.round - ROUNDS_SHOWN + 1), plan.round + 1))
    lines = group_lines(desk, by, rounds, plan)
    chart = line_chart(
        rounds, {line.name: line.rates for line in lines[:4]}, percent=True, whole=True
    )
    return page(
        request, "groups.html", columns=columns, by=by, rounds=rounds, lines=lines, chart=chart,
        open=plan.status == "planned",
    )  # fmt: skip


def group_columns(people: pl.DataFrame) -> list[str]:
    """Columns of text or flags with few values, such as the region."""
    return [
        values.name
        for values in people
        if values.dtype in (pl.String, pl.Boolean) and values.name not in ("id", "name")
        and 1 < values.n_unique() <= MOST_GROUPS_IN_COLUMN
    ]  # fmt: skip


def group_lines(desk: Desk, by: str, rounds: Sequence[int], newest: Planned) -> list[GroupLine]:
    """The numbers of each group by round, the largest group first. A round that is planned but not
    recorded counts the people on its list."""
    counts: dict[str, dict[int, tuple[int, int]]] = {}
    for which in rounds:
        plan = newest if which == newest.round else desk.programme().planned(which)
        if plan.status == "planned":
            acted = plan.frame.filter(pl.col("list") == "chosen")["id"]
        else:
            acted = acted_in(desk, which, plan.frame["id"].dtype)
        if by not in plan.inputs.columns:
            continue
        named = plan.inputs.select(
            group=pl.col(by).cast(pl.String).fill_null("unknown"),
            acted=pl.col("id").is_in(acted.implode()),
        )
        for group, people, done in named.group_by("group").agg(
            people=pl.len(), done=pl.col("acted").sum()
        ).rows():  # fmt: skip
            counts.setdefault(group, {})[which] = (people, done)
    lines = [
        GroupLine(name, *zip(*(found.get(which, (0, 0)) for which in rounds), strict=True))
        for name, found in counts.items()
    ]
    return sorted(lines, key=lambda line: (-sum(line.people), line.name))


def acted_in(desk: Desk, round: int, kind: Any) -> pl.Series:
    """The ids of the people acted on in a recorded round."""
    with desk.programme().database.reading() as sql:
        return pl.Series("id", acted_on(sql, round), dtype=kind)
