"""Plans as they are stored, found and read."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import sqlalchemy as sa
from sqlalchemy import Connection

from prefermab.errors import InputError
from prefermab.programme.planning.plan import Summary
from prefermab.programme.planning.printed import write_list
from prefermab.programme.store.changes import PlanReader
from prefermab.programme.store.rows import fetch, select, timestamp
from prefermab.programme.store.schema import PLANS

RECORDED, SUPERSEDED = "recorded", "superseded"


@dataclasses.dataclass(frozen=True, eq=False)
class Planned:
    """A plan as it is stored: what was asked of which model, and the answer."""

    round: int
    attempt: int
    """1 for the first plan of a round; each later plan of the same round counts on."""
    status: str
    """planned, recorded or superseded."""
    model: str
    """The hash of the model."""
    asked: dict[str, Any]
    """The arguments of the plan."""
    versions: dict[str, str]
    """The software that made it."""
    facts: dict[str, Any]
    """The plan's summary as plain values."""
    inputs: pl.DataFrame
    """The people it was made for, as the model saw them."""
    frame: pl.DataFrame
    """The list: a row for each person."""

    @property
    def summary(self) -> Summary | SimpleNamespace:
        """The plan's summary; a namespace if a model of your own has a summary of its own."""
        try:
            return Summary(**self.facts)
        except TypeError:
            return SimpleNamespace(**self.facts)

    @property
    def waiting(self) -> pl.DataFrame:
        """The waiting list: who is next if somebody drops out."""
        return self.frame.filter(pl.col("list") == "waiting").sort("rank")

    def write(self, path: str | Path) -> None:
        """Writes the list as CSV, Parquet or Excel."""
        write_list(self.frame, self.facts, Path(path))


def get_plan(
    sql: Connection, round: int, attempt: int | None = None, near: Planned | None = None
) -> Planned | None:
    """The plan of a round, or None: the valid one, or that with the number `attempt`. If `near` is
    the plan that was stored before it, less has to be read."""
    which = PLANS.c.status != SUPERSEDED if attempt is None else PLANS.c.attempt == attempt
    names = ["round", "attempt", "layout", "inputs", "output", "status", "model"]
    statement = select(PLANS, *names, "asked", "versions", "facts")
    found = fetch(sql, statement.where(PLANS.c.round == round, which))
    if not found:
        return None
    round, number, layout, inputs, output, status, model, *texts = found[0]
    asked, used, facts = (json.loads(text) for text in texts)
    reader = PlanReader(sql)
    if near is not None:
        reader.last = (near.round, near.attempt), near.inputs
    frames = reader.frames((round, number, layout, inputs, output))
    return Planned(round, number, status, model, asked, used, facts, *frames)


def find_plan(
    sql: Connection, round: int, attempt: int | None, near: Planned | None = None
) -> Planned:
    """The same; raises if there is none."""
    found = get_plan(sql, round, attempt, near)
    if found is None:
        raise InputError(
            f"round {round} is not planned yet."
            if attempt is None
            else f"round {round} has no plan with the number {attempt}."
        )
    return found


def recorded_plans(
    sql: Connection,
) -> Iterator[tuple[int, dict[str, Any], pl.DataFrame, pl.DataFrame]]:
    """For each recorded round: its number, what was asked, the people of its plan, and the list."""
    reader = PlanReader(sql)
    statement = select(PLANS, "round", "attempt", "asked").where(PLANS.c.status == RECORDED)
    for round, attempt, asked in fetch(sql, statement.order_by(PLANS.c.round)):
        yield round, json.loads(asked), *reader.frames(reader.stored(round, attempt))


def put_plan(sql: Connection, plan: Planned, stored: tuple[str, bytes, bytes]) -> None:
    """Stores a plan, with its frames as `store_frames` made them; it supersedes an earlier one of
    the same round."""
    same = PLANS.c.round == plan.round
    sql.execute(sa.update(PLANS).where(same).values(status=SUPERSEDED))
    layout, inputs, output = stored
    row = {
        "round": plan.round, "attempt": plan.attempt, "status": plan.status, "model": plan.model,
        "asked": json.dumps(plan.asked), "versions": json.dumps(plan.versions),
        "made": timestamp(), "facts": json.dumps(plan.facts),
        "layout": layout, "inputs": inputs, "output": output,
    }  # fmt: skip
    sql.execute(sa.insert(PLANS).values(row))


def count_attempts(sql: Connection, round: int) -> int:
    """The number of plans of a round, superseded ones included."""
    every = sa.select(sa.func.count()).select_from(PLANS)
    return sql.execute(every.where(PLANS.c.round == round)).scalar_one()


def close_round(sql: Connection, plan: Planned) -> None:
    """Closes the round of a plan; the next one becomes current."""
    which = (PLANS.c.round == plan.round) & (PLANS.c.attempt == plan.attempt)
    sql.execute(sa.update(PLANS).where(which).values(status=RECORDED, closed=timestamp()))
