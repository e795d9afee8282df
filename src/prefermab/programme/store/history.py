"""Reads everything that a programme stores, as frames."""

import dataclasses
import json
from collections import Counter
from fractions import Fraction
from typing import Any

import polars as pl
import sqlalchemy as sa
from sqlalchemy import Connection

from prefermab.programme.store.comparing import check_stored
from prefermab.programme.store.frames import from_json
from prefermab.programme.store.models import Planner
from prefermab.programme.store.plans import RECORDED, recorded_plans
from prefermab.programme.store.queries import get_meta, id_type, known_kinds, state_names
from prefermab.programme.store.request import PlanRequest
from prefermab.programme.store.rows import fetch, select
from prefermab.programme.store.schema import ACTIONS, DEVIATIONS, PEOPLE, SEEN_STATES, STAYS
from prefermab.programme.store.schema import PLANS as PLANS_TABLE
from prefermab.programme.tables.columns import source_columns

PLAN_COLUMNS = {
    "round": pl.Int64,
    "attempt": pl.Int64,
    "status": pl.String,
    "budget": pl.Float64,
    "spent": pl.Float64,
    "acted_on": pl.Int64,
    "reached": pl.Int64,
    "changed": pl.Int64,
    "corrected": pl.Int64,
    "model": pl.String,
    "made": pl.String,
    "closed": pl.String,
}

LOG_COLUMNS = ("id", "round", "time", "state", "action", "available", "reached", "probability")
"""Columns of every log; a feature with such a name is left out."""

NOW = " now"
"""A suffix for details as they are known now; those of a past round have none."""


@dataclasses.dataclass(frozen=True, eq=False)
class History:
    """Everything that a programme stores, as frames."""

    people: pl.DataFrame
    """A row for each stay: id, joined, gone (the first round without them), and details."""
    states: pl.DataFrame
    """A row for each state that was seen: round, id, state."""
    plans: pl.DataFrame
    """A row for each plan, superseded ones included. `spent`, `acted_on`, `reached` and `changed`
    come from the record: the costs, how many people were acted on, how many of them were reached,
    and how many were not treated as planned. `corrected` is how often the record was corrected."""
    actions: pl.DataFrame
    """A row for each action that was done: round, id, action, cost, reached. The passive action is
    not stored."""
    corrections: pl.DataFrame
    """The rows of records before their correction: round, corrected (the time), id, action, cost,
    reached. A record without actions has one row without an id."""
    passive: str
    """The action that means doing nothing."""
    features: tuple[str, ...]
    """The stored columns that the model's features are read from."""
    listed: pl.DataFrame
    """Everyone in the plan of each recorded round, as known at that time: round, id, available,
    planned, probability and features. `available` is false for people whom the plan could not
    choose; `probability` is the chance with which they got the planned action."""

    @property
    def log(self) -> pl.DataFrame:
        """The programme as a log that a model can be learned from.

        There is a row for each person and round: id, time (the round), the state if it was seen in
        that round, the action, whether the person could be acted on (`available`), whether the
        action reached them, and the features as known when the round was planned. If lots were
        drawn in any round, `probability` is the chance with which the plan gave this action; it is
        1 in rounds without lots, and empty where something else was done than planned. People who
        joined after the plan count as not available, unless they were acted on. The current round
        has states but no actions: the states show the effect of the last actions.
        """
        closed = self.plans.filter(pl.col("status") == "recorded").select("round")
        inside = self.people.select("id", "joined", "gone").join(closed, how="cross")
        inside = inside.filter(
            (pl.col("joined") <= pl.col("round"))
            & (pl.col("gone").is_null() | (pl.col("round") < pl.col("gone")))
        )
        keys = [frame.select("round", "id") for frame in (inside, self.states, self.actions)]
        done = self.actions.select("round", "id", "action", "reached")
        now = self.people.select("id", *self.features).unique("id", keep="last")
        over = pl.col("round").is_in(closed["round"].implode())
        listed, acted = pl.col("available").is_not_null(), pl.col("action").is_not_null()
        action = pl.when(over).then(pl.col("action").fill_null(self.passive))
        available = pl.when(over).then(acted | pl.col("available").fill_null(False))
        features = [
            pl.when(listed).then(pl.col(name)).otherwise(pl.col(name + NOW)).alias(name)
            for name in self.features
        ]
        lots = (self.listed["probability"] < 1).any()
        chance = pl.when(pl.col("action") == pl.col("planned")).then("probability")
        return (
            pl.concat(keys)
            .unique()
            .join(self.states, on=["round", "id"], how="left")
            .join(done, on=["round", "id"], how="left")
            .join(self.listed, on=["round", "id"], how="left")
            .join(now, on="id", how="left", suffix=NOW)
            .with_columns(*features, action=action, available=available)
            .with_columns(probability=chance)
            .sort("round", "id")
            .rename({"round": "time"})
            .select(
                "id",
                "time",
                "state",
                "action",
                "available",
                "reached",
                *["probability"] * lots,
                *self.features,
            )
        )


def read_history(sql: Connection, model: Planner) -> History:
    """Reads all frames in one transaction, after a comparison with the audit log."""
    check_stored(sql, "meta columns people stays states actions deviations")
    who = id_type(sql)
    stays = fetch(
        sql,
        select(STAYS, "id", "joined", "gone", PEOPLE.c.details)
        .join(PEOPLE, PEOPLE.c.id == STAYS.c.id)
        .order_by(STAYS.c.joined, PEOPLE.c.number),
    )
    schema = {"id": who, "joined": pl.Int64, "gone": pl.Int64, "details": pl.String}
    people = pl.DataFrame(stays, schema=schema, orient="row")
    known = from_json(people["details"].to_list(), known_kinds(sql))
    done = fetch(sql, select(ACTIONS, "round", "id", "action", "cost", "reached"))
    columns = source_columns(model.feature_names)
    features = tuple(name for name in columns if name in known.columns and name not in LOG_COLUMNS)
    return History(
        people=people.drop("details").hstack(known.get_columns()),
        states=_states(sql, model, who),
        plans=read_plans(sql),
        actions=_actions(done, {"round": pl.Int64, "id": who}).sort("round", "id"),
        corrections=_corrections(sql, who),
        passive=model.action_names[0],
        features=features,
        listed=_listed(sql, who, {name: known.schema[name] for name in features}),
    )


def read_plans(sql: Connection) -> pl.DataFrame:
    """A row for each plan, with the totals of its record."""
    check_stored(sql, "meta plans actions deviations", but="inputs output")
    sums, changed, plans = _sums(sql), _changed(sql), []
    names = ("round", "attempt", "status", "asked", "model", "made", "closed")
    for round, attempt, status, asked, *rest in sorted(fetch(sql, select(PLANS_TABLE, *names))):
        done = sums.get((round, attempt), (0.0, 0, 0))
        budget = json.loads(asked)["budget"]
        plans.append((round, attempt, status, budget, *done, changed.get(round, 0), 0, *rest))
    frame = pl.DataFrame(plans, schema=PLAN_COLUMNS, orient="row")
    # Files of earlier versions do not store deviations from the plans of their first rounds.
    known = pl.col("round") >= (get_meta(sql, "deviations_from") or 1)
    times = Counter(old["round"] for old in get_meta(sql, "corrections") or [])
    recorded = pl.col("status") == RECORDED
    return frame.with_columns(
        changed=pl.when(recorded & known).then("changed"),
        corrected=pl.when(recorded).then(
            pl.col("round").replace_strict(times, default=0, return_dtype=pl.Int64)
        ),
    )


def _sums(sql: Connection) -> dict[tuple[int, int], tuple[float, int, int]]:
    """For each recorded plan: what was spent, and how many people were acted on and reached.

    Costs are added exactly, so that both databases give the same bits.
    """
    keys = [ACTIONS.c[name] for name in ("round", "attempt", "cost")]
    counted = select(ACTIONS, *keys, sa.func.count(), sa.func.sum(ACTIONS.c.reached))
    found: dict[tuple[int, int], tuple[Fraction, int, int]] = {}
    for round, attempt, cost, people, reached in fetch(sql, counted.group_by(*keys)):
        spent, before, so_far = found.get((round, attempt), (Fraction(0), 0, 0))
        spent += Fraction(cost) * people
        found[round, attempt] = spent, before + people, so_far + int(reached)
    return {plan: (float(spent), *counts) for plan, (spent, *counts) in found.items()}  # type: ignore[misc]


def _changed(sql: Connection) -> dict[int, int]:
    """How many people of each round were not treated as planned."""
    counted = select(DEVIATIONS, "round", sa.func.count()).group_by(DEVIATIONS.c.round)
    return dict(fetch(sql, counted))


def read_deviations(sql: Connection, round: int | None = None) -> pl.DataFrame:
    """Who was not treated as planned, in one round or in all."""
    check_stored(sql, "deviations")
    columns = select(DEVIATIONS, "round", "id", "planned", "done", "allowed", "why")
    rows = fetch(sql, columns if round is None else columns.where(DEVIATIONS.c.round == round))
    texts = dict.fromkeys(("planned", "done"), pl.String)
    schema = {"round": pl.Int64, "id": id_type(sql), **texts, "allowed": pl.Int64, "why": pl.String}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.with_columns(pl.col("allowed").cast(pl.Boolean)).sort("round", "id")


def _listed(sql: Connection, who: Any, features: dict[str, Any]) -> pl.DataFrame:
    """Everyone in the plan of each recorded round, as known at that time."""
    schema = {"round": pl.Int64, "id": who, "available": pl.Boolean, "planned": pl.String,
              "probability": pl.Float64, **features}  # fmt: skip
    frames = [pl.DataFrame(schema=schema)]
    for round, asked, inputs, output in recorded_plans(sql):
        # A column that was added later was unknown in this round.
        missing = [pl.lit(None).alias(name) for name in features if name not in inputs.columns]
        available = PlanRequest(asked).selectable(inputs, f"round {round}")
        # Without lots, a column with this name comes from the table of people.
        chance = pl.col("probability") if asked.get("explore") else pl.lit(1.0)
        chances = output.select("id", planned="action", probability=chance)
        taken = [name for name in ("planned", "probability") if name in inputs.columns]
        rows = inputs.drop(taken).with_columns(*missing, round=pl.lit(round), available=available)
        rows = rows.join(chances, on="id", how="left", maintain_order="left")
        frames.append(rows.select(pl.col(name).cast(kind) for name, kind in schema.items()))
    return pl.concat(frames)


def _states(sql: Connection, model: Planner, who: Any) -> pl.DataFrame:
    states = fetch(sql, select(SEEN_STATES, "round", "id", "state"))
    rounds, ids, places = zip(*states, strict=True) if states else [()] * 3
    return pl.DataFrame(
        [
            pl.Series("round", rounds, dtype=pl.Int64),
            pl.Series("id", ids, dtype=who),
            state_names(model, places),
        ]
    ).sort("round", "id")


def _corrections(sql: Connection, who: Any) -> pl.DataFrame:
    rows = [
        (old["round"], old["corrected"], *row)
        for old in get_meta(sql, "corrections") or []
        for row in old["actions"] or [(None, None, None, None)]
    ]
    return _actions(rows, {"round": pl.Int64, "corrected": pl.String, "id": who})


def _actions(rows: list[Any], first: dict[str, Any]) -> pl.DataFrame:
    """Actions as a frame; `reached` is stored as 0 or 1."""
    schema = first | {"action": pl.String, "cost": pl.Float64, "reached": pl.Int64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame.with_columns(pl.col("reached").cast(pl.Boolean))
