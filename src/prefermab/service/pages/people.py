"""Pages of people: everyone who takes part, and one person's timeline: what was seen, believed,
planned and done, round by round.
"""

import dataclasses
from typing import Any
from urllib.parse import urlencode

import numpy as np
import polars as pl
from fastapi import APIRouter, Request
from starlette.responses import Response

from prefermab.models.model import Model
from prefermab.programme.planning.roster import place_texts, read_places
from prefermab.programme.store.lookups import newest_request, recorded_attempts
from prefermab.programme.tables.columns import is_continuous
from prefermab.programme.tables.naming import first_named
from prefermab.service.auth.access import Guarded, account_of
from prefermab.service.http.rendering import page
from prefermab.service.work.desk import Desk, as_id, desk_of
from prefermab.service.work.plan_requests import PlanForm
from prefermab.service.work.week import (
    NAMES,
    PHONES,
    Columns,
    Filter,
    is_phone,
    lines,
    values_of,
)

router = APIRouter(route_class=Guarded, include_in_schema=False)
PEOPLE_PER_PAGE = 50
"""People that one page shows."""

RECENT = 2
"""Past rounds for which rank and reason are read from the plans, unless all are requested."""

NAMES_WIDTH, FIRST_LINE, ROUND_WIDTH, STATE_HEIGHT = 120, 16, 44, 26
"""Sizes in the picture of a timeline: width of the names, height of the first line, width of a
round, height of a state."""


@router.get("/people", name="people_page")
def people_page(
    request: Request, at: int = 1, worker: str = "", group: str = "", find: str = ""
) -> Response:
    """Everyone who takes part, with a search."""
    desk, account = desk_of(request), account_of(request)
    with desk.records.reading() as sql:
        form = PlanForm.from_asked(newest_request(sql))
    everyone = desk.visible_rows(desk.roster(), account)
    columns = Columns.of(everyone, desk.settings.worker_column, form.rules["group_column"] or None)
    wanted = Filter(worker, group, find)
    found = wanted.apply(everyone, columns)
    pages = max(1, -(-found.height // PEOPLE_PER_PAGE))
    at = min(max(at, 1), pages)
    here = found.slice((at - 1) * PEOPLE_PER_PAGE, PEOPLE_PER_PAGE)
    return page(
        request, "people.html", rows=lines(here, columns), found=found.height,
        total=everyone.height, at=at, pages=pages, wanted=wanted, columns=columns,
        groups=values_of(everyone, columns.group),
        workers=[] if account.own_only else values_of(everyone, columns.worker),
        query=urlencode({name: value for name, value in vars(wanted).items() if value}),
    )  # fmt: skip


@router.get("/people/person", name="person_page")
def person_page(request: Request, id: str, all: bool = False) -> Response:
    """The timeline of a person."""
    desk = desk_of(request)
    person = as_id(id, desk.programme().ids)
    desk.check_visible(person, account_of(request))
    rounds = timeline_of(desk, person, all_rounds=all)
    details = desk.details(person)
    name, phone = (details.get(first_named([*details], known) or "") for known in (NAMES, PHONES))
    phone = phone if is_phone(phone) else None
    numbers = {key: value for key, value in details.items() if isinstance(value, float)}
    shown = {key: value for key, value in details.items() if key not in numbers}
    model, older = desk.programme().model, not all and len(rounds) > RECENT + 1
    return page(
        request, "person.html", id=person, name=name, phone=phone, details=shown, numbers=numbers,
        rounds=rounds, chart=timeline_chart(rounds, model), older=older, now=desk.head().round,
        passive=model.action_names[0],
    )  # fmt: skip


@dataclasses.dataclass
class Round:
    """One round of a person's timeline."""

    number: int
    inside: bool
    """Whether they took part."""
    events: list[str]
    state: str | float | None = None
    since: int | None = None
    """Rounds since a state was seen; 0 in the round in which it was seen."""
    last: str | float | None = None
    """The state last seen."""
    belief: list[float] | None = None
    believed: str | None = None
    planned: str | None = None
    rank: int | None = None
    reason: str | None = None
    action: str | None = None
    reached: bool | None = None
    why: str | None = None


def timeline_of(desk: Desk, person: str | int, *, all_rounds: bool = False) -> list[Round]:
    """The rounds of a person, the newest last."""
    known, head, model = desk.timeline(person), desk.head(), desk.programme().model
    first = min((stay["joined"] for stay in known["stays"]), default=head.round)
    by_round = {one["round"]: one for one in known["rounds"]}
    rounds = [
        _round(number, head.round, known["stays"], by_round.get(number, {}), model.action_names[0])
        for number in range(first, head.round + 1)
    ]
    _count_since_seen(rounds)
    if isinstance(model, Model) and model.sightings is not None:
        _add_beliefs(model, person, rounds)
    _add_reasons(desk, person, rounds, head.round, head.attempt, None if all_rounds else RECENT)
    return rounds


def _round(
    number: int, now: int, stays: list[dict[str, Any]], known: dict[str, Any], passive: str
) -> Round:
    inside = any(
        stay["joined"] <= number and (stay["gone"] is None or number < stay["gone"])
        for stay in stays
    )
    events = ["joined" for stay in stays if stay["joined"] == number]
    events += ["left" for stay in stays if stay["gone"] == number]
    found = Round(number, inside, events, state=known.get("state"), why=known.get("why"))
    if number < now and inside:
        found.action = known.get("action", passive)
        found.reached = known.get("reached")
        found.planned = known.get("planned", found.action)
    return found


def _count_since_seen(rounds: list[Round]) -> None:
    """Sets for each round the state last seen and the rounds since; joining again starts anew."""
    last: Round | None = None
    for one in rounds:
        last = None if "joined" in one.events else last
        last = one if one.state is not None else last
        if last is not None and one.inside:
            one.since, one.last = one.number - last.number, last.state


def _add_beliefs(model: Model, person: str | int, rounds: list[Round]) -> None:
    """Sets for each round the probabilities of states, by a model of unseen states."""
    tree = model.sightings
    assert tree is not None
    acted, since_action = None, []
    for one in rounds:
        since_action.append(None if acted is None else one.number - acted)
        acted = one.number if one.action not in (None, tree.actions[0]) else acted
    frame = pl.DataFrame(
        {
            "id": [person] * len(rounds),
            "state": pl.Series([one.last for one in rounds], dtype=pl.String),
            "rounds_since_seen": pl.Series([one.since for one in rounds], dtype=pl.Int64),
            "rounds_since_action": pl.Series(since_action, dtype=pl.Int64),
        }
    )
    places = read_places(
        model, tree, frame, frame["id"], np.ones(len(rounds), bool), "the timeline"
    )
    # The first numbers of a place's code are the believed probabilities; see `Unseen.encode`.
    codes = (np.asarray(model.network.perception.codes)[:, : len(tree.states)] + 1) / 2
    texts = place_texts(model, tree)
    for one, place in zip(rounds, places, strict=True):
        if one.inside:
            one.belief, one.believed = codes[place].tolist(), texts[place]


def _add_reasons(
    desk: Desk, person: str | int, rounds: list[Round], now: int, attempt: int | None,
    most: int | None,
) -> None:  # fmt: skip
    """Sets rank and reason from the plans, for the newest rounds or for all (`most` is None)."""
    with desk.records.reading() as sql:
        plans = recorded_attempts(sql)
    if attempt is not None:
        plans[now] = attempt
    for place, one in enumerate(reversed([one for one in rounds if one.inside])):
        if one.number not in plans or (most is not None and place > most):
            continue
        plan = desk.planned(one.number, plans[one.number])
        row = plan.frame.filter(pl.col("id") == person).select("action", "rank", "reason")
        if row.height:
            one.planned, one.rank, one.reason = row.row(0)


@dataclasses.dataclass(frozen=True)
class TimelineChart:
    """The picture of a timeline, in coordinates that a template draws."""

    width: int
    height: int
    lines: list[tuple[str, int]]
    """Names of states, with their heights."""
    ticks: list[tuple[int, int]]
    """Numbers of rounds, with their horizontal places."""
    dots: list[tuple[int, float, str]]
    curve: str
    cells: list[tuple[int, int, float]]
    """Believed probabilities: place, height and probability."""
    actions: list[tuple[int, bool, str]]
    bottom: int


def timeline_chart(rounds: list[Round], model: Any) -> TimelineChart:
    """The picture of a timeline: states from top to bottom, rounds from left to right."""
    continuous = is_continuous(model)
    names = ["1", "0.5", "0"] if continuous else list(model.state_names)
    if getattr(model, "sightings", None) is not None:
        names = list(model.sightings.states)
    height = {name: FIRST_LINE + STATE_HEIGHT * place for place, name in enumerate(names)}
    bottom = FIRST_LINE + STATE_HEIGHT * len(names)
    x = {one.number: NAMES_WIDTH + ROUND_WIDTH * place for place, one in enumerate(rounds)}
    dots = []
    for one in rounds:
        if one.state is not None:
            y = height.get(str(one.state), FIRST_LINE)
            if continuous:
                y = height["0"] - float(one.state) * (height["0"] - FIRST_LINE)
            dots.append((x[one.number], y, str(one.state)))
    cells = [
        (
            x[one.number] - ROUND_WIDTH // 2 + 4,
            height[name] - STATE_HEIGHT // 2 + 3,
            round(likely, 3),
        )
        for one in rounds
        if one.belief is not None and one.since != 0
        for name, likely in zip(names, one.belief, strict=True)
    ]
    passive = model.action_names[0]
    acted = [
        (x[one.number], bool(one.reached), str(one.action))
        for one in rounds
        if one.action not in (None, passive)
    ]
    step = max(1, len(rounds) // 20)
    return TimelineChart(
        width=NAMES_WIDTH + ROUND_WIDTH * len(rounds), height=bottom + 40,
        lines=list(height.items()),
        ticks=[(one.number, x[one.number]) for one in rounds[::step]], dots=dots,
        curve=" ".join(f"{place},{y:.1f}" for place, y, _ in dots), cells=cells, actions=acted,
        bottom=bottom,
    )  # fmt: skip
