"""A made-up programme for `serve --demo`: 400 people in week 5, with typical events."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from prefermab.models.loading import load
from prefermab.models.model import Model
from prefermab.programme.logs.simulated import (
    ENGAGEMENT_STATES,
    example_people,
    next_example_states,
)
from prefermab.programme.planning.rules import Rules
from prefermab.programme.store import Programme

DEMO_MODEL = Path(__file__).parents[1] / "clinic"
"""The model that the README's `prefermab learn` learns from the tables of `prefermab example`."""

DEMO_PEOPLE, DEMO_BUDGET, DEMO_WEEK = 400, 40, 5
WORKERS = ("Ana", "Bo", "Chi", "Dita", "Eli")
FIRST_NAMES = (
    "Amina", "Bea", "Chandra", "Devi", "Esi", "Farida", "Gita", "Hana", "Indira", "Jaya",
    "Kavita", "Lakshmi", "Meena", "Nadia", "Oma", "Pooja", "Rani", "Sita", "Tara", "Usha",
)  # fmt: skip
LAST_NAMES = (
    "Adeyemi", "Bhatt", "Chavan", "Das", "Eze", "Fernandes", "Gupta", "Hegde", "Iyer", "Joshi",
    "Kale", "Lobo", "Mehta", "Nair", "Okafor", "Patil", "Rao", "Shinde", "Thomas", "Verma",
)  # fmt: skip
WHY_MISSED = ("number does not work", "travelling this week", "asked to be called next week")
WHY_EXTRA = ("asked for a call", "nurse was in the village", "neighbour reported that she is ill")
DEMO_RULES = Rules(
    exclude_column="do_not_call", cooldown=2, group_column="region", min_share={"north": 0.3},
    worker_column="worker", budgets={"Eli": 5},
)  # fmt: skip
"""Nobody is called again within two weeks, and at least 30 % of those called are of the north."""


def make_demo(place: str | Path, people: int = DEMO_PEOPLE, budget: float = DEMO_BUDGET) -> Model:
    """Makes the demo programme in a new file.

    Args:
        place: The file, such as calls.db.
        people: How many people have joined by week 5.
        budget: Calls in a week.

    Returns:
        The model of the programme.

    >>> import tempfile
    >>> import prefermab as pm
    >>> from prefermab.service.work.demo import make_demo
    >>> file = tempfile.mkdtemp() + "/demo.db"
    >>> model = make_demo(file, people=60, budget=6)
    >>> with pm.Programme.open(file, model) as programme:
    ...     programme.round, programme.plans().height
    (5, 5)
    """
    model, village = load(DEMO_MODEL), Village(people)
    with Programme(place, model, who="Paul") as programme:
        programme.keep_place(str(DEMO_MODEL))
        for week in range(1, DEMO_WEEK + 1):
            village.begin(programme, week)
            programme.plan(budget, DEMO_RULES)
            if week < DEMO_WEEK:
                programme.record(village.end(programme))
            if week == 3:
                correct(programme, 2)
    return model


class Village:
    """The people of the demo; their states change as in the tutorial's example."""

    def __init__(self, size: int):
        self.rng = np.random.default_rng(5)
        self.people = describe(self.rng, size)
        self.state = self.rng.integers(0, len(ENGAGEMENT_STATES), size)
        joins = np.where(self.rng.random(size) < 0.9, 1, self.rng.integers(2, DEMO_WEEK + 1, size))
        self.joins = pl.Series(joins)

    def seen(self) -> pl.Series:
        """Everybody's present state, by name."""
        return pl.Series("state", np.array(ENGAGEMENT_STATES)[self.state])

    def begin(self, programme: Programme, week: int) -> None:
        """Begins a week: some people join, some leave, and most states are observed."""
        if week > 1:
            here = programme.roster()["id"].to_list()
            programme.leave(here[3 * week :: len(here)])
            here = programme.roster()["id"].to_list()
            seen = self.people.select("id").with_columns(self.seen())
            reported = pl.Series(self.rng.random(seen.height) < 0.93) & seen["id"].is_in(here)
            programme.observe(seen.filter(reported))
        programme.join(self.people.with_columns(self.seen()).filter(self.joins == week))

    def end(self, programme: Programme) -> pl.DataFrame:
        """Ends a week: returns what was done, the list with a few swaps, and moves all states
        on."""
        frame = programme.planned().frame
        called = frame.filter(pl.col("list") == "chosen")["id"].to_list()
        waiting = frame.filter(pl.col("list") == "waiting").sort("rank")["id"].to_list()
        swaps = list(zip(called[1::15], waiting, strict=False))
        rest = [one for one in called if one not in {missed for missed, _ in swaps}]
        rows = [row for k, pair in enumerate(swaps) for row in swap(*pair, k)]
        rows += [(one, "call", bool(self.rng.random() < 0.88), None) for one in rest]
        names = {"id": pl.String, "action": pl.String, "reached": pl.Boolean, "why": pl.String}
        done = pl.DataFrame(rows, schema=names, orient="row")
        acted = self.people["id"].is_in(done.filter(pl.col("action") == "call")["id"].implode())
        self.state = next_example_states(self.rng, self.people, self.state, acted.to_numpy())
        return done


def describe(rng: np.random.Generator, size: int) -> pl.DataFrame:
    """Made-up people with names; each worker goes to one or two regions."""
    people = example_people(rng, size).drop("joined", "left")
    region = people["region"].replace_strict({"east": 0, "north": 1, "south": 2}).to_numpy()
    worker = np.where(rng.random(size) < 0.5, region, 2 + region)
    order = rng.permutation(max(size, 400))[:size]
    return people.with_columns(
        pl.Series(
            "name", [f"{FIRST_NAMES[k % 20]} {LAST_NAMES[(k // 20 + k) % 20]}" for k in order]
        ),
        pl.Series("worker", np.array(WORKERS)[worker]),
        pl.Series("do_not_call", np.where(rng.random(size) < 0.02, "yes", "no")),
    )


def swap(missed: str, instead: str, number: int) -> list[tuple[Any, ...]]:
    """Two rows of a record: one person was not called, another was called instead."""
    which = number % len(WHY_MISSED)
    return [(missed, "none", None, WHY_MISSED[which]), (instead, "call", True, WHY_EXTRA[which])]


def correct(programme: Programme, week: int) -> None:
    """Corrects a record in which somebody was called who was not."""
    actions = programme.history().actions.filter(pl.col("round") == week)
    late: dict[str, Any] = {"id": actions["id"][:1], "action": ["none"], "why": ["wrong form"]}
    programme.record(pl.DataFrame(late), round=week, correct=True, partial=True)
