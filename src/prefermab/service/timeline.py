"""A person's time in the programme: what was seen, believed, planned and done, round by round."""

import dataclasses
from typing import Any

import numpy as np
import polars as pl

from prefermab.model import Model
from prefermab.programme.columns import is_continuous
from prefermab.programme.planning.places import place_texts, read_places
from prefermab.programme.store.rows import select
from prefermab.programme.store.schema import PLANS
from prefermab.service.desk import Desk

RECENT = 2
"""Past rounds whose plans are read for rank and reason, if not all are asked for."""

LEFT, TOP, STEP, HIGH = 120, 16, 44, 26
"""Of the chart: room for names, the first line, the width of a round, the height of a state."""


@dataclasses.dataclass
class Round:
    """A round of a person."""

    number: int
    inside: bool
    """Whether they took part."""
    events: list[str]
    state: str | float | None = None
    since: int | None = None
    """Rounds since a state was seen; 0 in the round in which it was seen."""
    last: str | float | None = None
    """The state seen last."""
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
    _carry(rounds)
    if isinstance(model, Model) and model.sightings is not None:
        _believe(model, person, rounds)
    _explain(desk, person, rounds, head.round, head.attempt, None if all_rounds else RECENT)
    return rounds


def _round(
    number: int, now: int, stays: list[dict[str, Any]], told: dict[str, Any], passive: str
) -> Round:
    inside = any(
        stay["joined"] <= number and (stay["gone"] is None or number < stay["gone"])
        for stay in stays
    )
    events = ["joined" for stay in stays if stay["joined"] == number]
    events += ["left" for stay in stays if stay["gone"] == number]
    found = Round(number, inside, events, state=told.get("state"), why=told.get("why"))
    if number < now and inside:
        found.action = told.get("action", passive)
        found.reached = told.get("reached")
        found.planned = told.get("planned", found.action)
    return found


def _carry(rounds: list[Round]) -> None:
    """How long ago a state was seen, in each round; whoever joins again begins anew."""
    last: Round | None = None
    for one in rounds:
        last = None if "joined" in one.events else last
        last = one if one.state is not None else last
        if last is not None and one.inside:
            one.since, one.last = one.number - last.number, last.state


def _believe(model: Model, person: str | int, rounds: list[Round]) -> None:
    """What the model believes of a state that was not seen."""
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
    # The first numbers of a place's code are what is believed there; see `Unseen.encode`.
    codes = (np.asarray(model.network.perception.codes)[:, : len(tree.states)] + 1) / 2
    texts = place_texts(model, tree)
    for one, place in zip(rounds, places, strict=True):
        if one.inside:
            one.belief, one.believed = codes[place].tolist(), texts[place]


def _explain(
    desk: Desk, person: str | int, rounds: list[Round], now: int, attempt: int | None,
    most: int | None,
) -> None:  # fmt: skip
    """Rank and reason of the newest rounds, from their plans."""
    with desk.records.reading() as sql:
        valid = select(PLANS, "round", "attempt").where(PLANS.c.status == "recorded")
        plans = {row.round: row.attempt for row in sql.execute(valid)}
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
class Chart:
    """Where everything stands in the picture of a timeline."""

    width: int
    height: int
    lines: list[tuple[str, int]]
    """States with their heights."""
    ticks: list[tuple[int, int]]
    """Rounds with their places."""
    dots: list[tuple[int, float, str]]
    curve: str
    cells: list[tuple[int, int, float]]
    """What is believed: place, height and how likely."""
    actions: list[tuple[int, bool, str]]
    bottom: int


def chart_of(rounds: list[Round], model: Any) -> Chart:
    """The picture of a timeline: states from top to bottom, rounds from left to right."""
    continuous = is_continuous(model)
    names = ["1", "0.5", "0"] if continuous else list(model.state_names)
    if getattr(model, "sightings", None) is not None:
        names = list(model.sightings.states)
    height = {name: TOP + HIGH * place for place, name in enumerate(names)}
    bottom = TOP + HIGH * len(names)
    x = {one.number: LEFT + STEP * place for place, one in enumerate(rounds)}
    dots = []
    for one in rounds:
        if one.state is not None:
            y = height["0"] - float(one.state) * (height["0"] - TOP) if continuous else height.get(
                str(one.state), TOP)  # fmt: skip
            dots.append((x[one.number], y, str(one.state)))
    cells = [
        (x[one.number] - STEP // 2 + 4, height[name] - HIGH // 2 + 3, round(likely, 3))
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
    return Chart(
        width=LEFT + STEP * len(rounds), height=bottom + 40, lines=list(height.items()),
        ticks=[(one.number, x[one.number]) for one in rounds[::step]], dots=dots,
        curve=" ".join(f"{place},{y:.1f}" for place, y, _ in dots), cells=cells, actions=acted,
        bottom=bottom,
    )  # fmt: skip
