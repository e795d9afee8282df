"""Stores, finds and reads plans.

A programme plans for almost the same people round after round. So only the changes of the people
since the last plan are stored, and all of them only every now and then. The list of a plan is
stored without the columns that it shares with the people. Every bit is read as it was stored.
"""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import sqlalchemy as sa
from sqlalchemy import Connection

from prefermab.errors import DamageError, InputError
from prefermab.programme.planning.plan import Summary
from prefermab.programme.planning.printed import write_list
from prefermab.programme.store.changes import hash_value
from prefermab.programme.store.comparing import plan_hashes
from prefermab.programme.store.frames import pack, unpack
from prefermab.programme.store.rows import fetch, select, timestamp
from prefermab.programme.store.schema import PLANS

VALID, RECORDED, SUPERSEDED = "planned", "recorded", "superseded"

LONGEST_CHAIN = 12
"""After so many plans with changes only, people are stored whole again, because reading a plan goes
through all changes before it."""

StoredPlan = tuple[int, int, str | None, bytes, bytes]
"""The round, attempt, layout, people and list of a plan, as in the database."""

STORED = select(PLANS, "round", "attempt", "layout", "inputs", "output")
READ_ERRORS = (pl.exceptions.PolarsError, OSError, ValueError, KeyError, IndexError)


@dataclasses.dataclass(frozen=True, eq=False)
class Planned:
    """A plan as it is stored: the arguments, the model, the people and the list."""

    round: int
    attempt: int
    """The number of the plan within its round, from 1."""
    status: str
    """planned, recorded or superseded."""
    model: str
    """The hash of the model."""
    asked: dict[str, Any]
    """The arguments of the plan."""
    versions: dict[str, str]
    """The versions of the software that made the plan."""
    facts: dict[str, Any]
    """The plan's summary as plain values."""
    inputs: pl.DataFrame
    """The people of the plan, as the model saw them."""
    frame: pl.DataFrame
    """The list: a row for each person."""

    @property
    def summary(self) -> Summary | SimpleNamespace:
        """The plan's summary; a namespace if your own model has its own type of summary."""
        try:
            return Summary(**self.facts)
        except TypeError:
            return SimpleNamespace(**self.facts)

    @property
    def waiting(self) -> pl.DataFrame:
        """The waiting list: the people who come next if somebody drops out."""
        return self.frame.filter(pl.col("list") == "waiting").sort("rank")

    def write(self, path: str | Path) -> None:
        """Writes the list as CSV, Parquet or Excel."""
        write_list(self.frame, self.facts, Path(path))


def get_plan(
    sql: Connection, round: int, attempt: int | None = None, near: Planned | None = None
) -> Planned | None:
    """The valid plan of a round, or the one with the number `attempt`; None if there is none. With
    the plan that was stored before it, `near`, less has to be read."""
    which = PLANS.c.status != SUPERSEDED if attempt is None else PLANS.c.attempt == attempt
    names = ["round", "attempt", "layout", "inputs", "output", "status", "model"]
    statement = select(PLANS, *names, "asked", "versions", "facts")
    reader = PlanReader(sql)
    found = fetch(sql, statement.where(PLANS.c.round == round, which))
    if not found:
        return None
    round, number, layout, inputs, output, status, model, *texts = found[0]
    asked, used, facts = (json.loads(text) for text in texts)
    if near is not None:
        reader.last = (near.round, near.attempt), near.inputs
    frames = reader.frames((round, number, layout, inputs, output))
    return Planned(round, number, status, model, asked, used, facts, *frames)


def find_plan(
    sql: Connection, round: int, attempt: int | None, near: Planned | None = None
) -> Planned:
    """The same as `get_plan`, but raises an error if there is no such plan."""
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
    """Yields for each recorded round its number, and the arguments, people and list of its plan."""
    reader = PlanReader(sql)
    statement = select(PLANS, "round", "attempt", "asked").where(PLANS.c.status == RECORDED)
    for round, attempt, asked in fetch(sql, statement.order_by(PLANS.c.round)):
        yield round, json.loads(asked), *reader.frames(reader.stored(round, attempt))


def put_plan(sql: Connection, plan: Planned, stored: tuple[str, bytes, bytes]) -> None:
    """Stores a plan, with frames from `store_frames`. It supersedes earlier plans of the round."""
    same = (PLANS.c.round == plan.round) & (PLANS.c.status != SUPERSEDED)
    sql.execute(sa.update(PLANS).where(same).values(status=SUPERSEDED))
    layout, inputs, output = stored
    row = {
        "round": plan.round, "attempt": plan.attempt, "status": plan.status, "model": plan.model,
        "asked": json.dumps(plan.asked), "versions": json.dumps(plan.versions),
        "made": timestamp(), "facts": json.dumps(plan.facts),
        "layout": layout, "inputs": inputs, "output": output,
    }  # fmt: skip
    sql.execute(sa.insert(PLANS).values(row))


def valid_request(sql: Connection, round: int) -> tuple[int, dict[str, Any]] | None:
    """The number and the arguments of the list that is valid in an open round; None without one."""
    here = (PLANS.c.round == round) & (PLANS.c.status == VALID)
    found = sql.execute(select(PLANS, "attempt", "asked").where(here)).one_or_none()
    return None if found is None else (found.attempt, json.loads(found.asked))


def count_attempts(sql: Connection, round: int) -> int:
    """The number of plans of a round, superseded ones included."""
    every = sa.select(sa.func.count()).select_from(PLANS)
    return sql.execute(every.where(PLANS.c.round == round)).scalar_one()


def close_round(sql: Connection, plan: Planned) -> None:
    """Closes the round of a plan; the next one becomes current."""
    which = (PLANS.c.round == plan.round) & (PLANS.c.attempt == plan.attempt)
    sql.execute(sa.update(PLANS).where(which).values(status=RECORDED, closed=timestamp()))


class PlanReader:
    """Reads the people and lists of plans. It keeps the people that it read last, because the next
    plan's are mostly stored as changes to them. Plans are compared with the audit log first, so
    that damaged bytes are never unpacked."""

    def __init__(self, sql: Connection):
        self.sql, self.hashes = sql, plan_hashes(sql)
        self.last: tuple[tuple[int, int], pl.DataFrame] | None = None

    def frames(self, stored: StoredPlan) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The people and the list of a plan."""
        round, attempt, layout, _, output = stored
        people = self.people(stored)
        self._check(round, attempt, output, 1)
        try:
            listed, names = unpack(output), None if layout is None else json.loads(layout)["list"]
            if names is not None:
                listed = listed.with_columns(
                    people[name] for name in names if name not in listed.columns
                )
                listed = listed.select(names)
        except READ_ERRORS:
            raise damaged_plan_error(round) from None
        return people, listed

    def people(self, stored: StoredPlan) -> pl.DataFrame:
        """The people of a plan."""
        round, attempt, layout, inputs, _ = stored
        if self.last is not None and self.last[0] == (round, attempt):
            return self.last[1]
        base = None if layout is None else json.loads(layout)["base"]
        before = None
        if base is not None:
            last, people = self.last or (None, None)
            before = people if last == tuple(base) else self.people(self.stored(*base))
        self._check(round, attempt, inputs, 0)
        try:
            found = unpack(inputs) if before is None else unpack_changes(inputs, before)
        except READ_ERRORS:
            raise damaged_plan_error(round) from None
        self.last = (round, attempt), found
        return found

    def _check(self, round: int, attempt: int, data: bytes, which: int) -> None:
        if hash_value(data) != self.hashes[round, attempt][which]:
            raise damaged_plan_error(round)

    def stored(self, round: int, attempt: int) -> StoredPlan:
        """The stored values of a plan."""
        which = (PLANS.c.round == round) & (PLANS.c.attempt == attempt)
        found = self.sql.execute(STORED.where(which)).first()
        if found is None:
            raise damaged_plan_error(round)
        return tuple(found)

    def newest(self) -> StoredPlan | None:
        """The stored values of the last plan; None if there is no plan."""
        last = STORED.order_by(PLANS.c.round.desc(), PLANS.c.attempt.desc()).limit(1)
        found = self.sql.execute(last).first()
        return None if found is None else tuple(found)


def damaged_plan_error(round: int) -> DamageError:
    """The error for a plan that cannot be read."""
    return DamageError(f"the plan of round {round} is not as it was stored")


def store_frames(sql: Connection, people: pl.DataFrame, made: pl.DataFrame) -> tuple[Any, ...]:
    """The layout, people and list of a plan, as they are stored in the database."""
    reader = PlanReader(sql)
    before, data, base = reader.newest(), pack(people), None
    chain = 0 if before is None else _chain(before)
    if before is not None and chain < LONGEST_CHAIN:
        changes = pack_changes(people, reader.people(before))
        if len(changes) < len(data):
            data, base = changes, [before[0], before[1]]
    shared = [
        name
        for name in made.columns
        if made.height == people.height and name in people.columns
        and bool(_same_bits(made[name], people[name]).all())
    ]  # fmt: skip
    layout = {"base": base, "chain": 0 if base is None else chain + 1, "list": made.columns}
    return json.dumps(layout), data, pack(made.drop(shared))


def _chain(stored: StoredPlan) -> int:
    return 0 if stored[2] is None else json.loads(stored[2])["chain"]


def pack_changes(new: pl.DataFrame, old: pl.DataFrame) -> bytes:
    """A frame as changes to an older one, in bytes: where each row was, and values that differ.

    >>> import polars as pl
    >>> from prefermab.programme.store.plans import pack_changes, unpack_changes
    >>> old = pl.DataFrame({"id": [1, 2, 3], "state": ["good", "bad", "bad"]})
    >>> new = pl.DataFrame({"id": [1, 3, 4], "state": ["good", "good", "bad"]})
    >>> unpack_changes(pack_changes(new, old), old).equals(new)
    True
    """
    rows = pl.DataFrame({"id": old["id"], "place": np.arange(old.height, dtype=np.int64)})
    at = new.select("id").join(rows, on="id", how="left", maintain_order="left")["place"]
    stored = {"names": pl.Series(new.columns, dtype=pl.String), "place": _steps(at.fill_null(-1))}
    for number, values in enumerate(new):
        changed = pl.Series(np.ones(new.height, bool))
        if values.name in old.columns and old[values.name].dtype == values.dtype:
            before = old[values.name].gather(at)
            changed = ~(_same_bits(before, values) & at.is_not_null())
        stored[f"rows {number}"] = _steps(changed.arg_true().cast(pl.Int64))
        stored[f"values {number}"] = values.filter(changed)
    return pack(pl.DataFrame([values.implode().alias(name) for name, values in stored.items()]))


def unpack_changes(data: bytes, old: pl.DataFrame) -> pl.DataFrame:
    """The frame from the bytes of `pack_changes` and the same older frame."""
    stored = {values.name: values[0] for values in unpack(data)}
    at = stored["place"].cum_sum().to_numpy().copy()
    found = []
    for number, name in enumerate(stored["names"]):
        rows = stored[f"rows {number}"].cum_sum().to_numpy()
        values = stored[f"values {number}"]
        before = old[name] if len(rows) < len(at) else values.clear()
        # Each row takes its value from the old values followed by the changed ones.
        place = at.copy()
        place[rows] = len(before) + np.arange(len(rows))
        found.append(pl.concat([before, values]).gather(place).alias(name))
    return pl.DataFrame(found)


def _steps(numbers: pl.Series) -> pl.Series:
    """The first number and the differences between neighbours, which compress well."""
    return numbers.diff().fill_null(numbers.first()) if len(numbers) else numbers


def _same_bits(one: pl.Series, other: pl.Series) -> pl.Series:
    """Where two columns have the same bits: 0.0 differs from -0.0, and null equals null."""
    if one.dtype != other.dtype:
        return pl.Series(np.zeros(len(one), bool))
    same = one.eq_missing(other)
    if one.dtype.is_float():
        bits = [values.fill_null(0.0).to_numpy() for values in (one, other)]
        kind = f"i{bits[0].dtype.itemsize}"
        same &= pl.Series(bits[0].view(kind) == bits[1].view(kind))
    return same
