"""Everything a programme keeps, as frames."""

import dataclasses
from sqlite3 import Connection
from typing import Any

import polars as pl

from prefermab.programme.people import from_json
from prefermab.programme.queries import get_meta, known_kinds, state_names

PLANS = {
    "round": pl.Int64,
    "attempt": pl.Int64,
    "status": pl.String,
    "budget": pl.Float64,
    "spent": pl.Float64,
    "acted_on": pl.Int64,
    "model": pl.String,
    "made": pl.String,
    "closed": pl.String,
}


@dataclasses.dataclass(frozen=True, eq=False)
class History:
    """Everything a programme keeps, as frames."""

    people: pl.DataFrame
    """A row for each stay: id, joined, gone (the first round they are out), what is known."""
    states: pl.DataFrame
    """round, id, state."""
    plans: pl.DataFrame
    """A row for each plan, superseded ones included; `spent` and `acted_on` say what was done."""
    actions: pl.DataFrame
    """round, id, action, cost; the passive action is not kept."""
    corrections: pl.DataFrame
    """round, corrected (when), id, action, cost: what was recorded before it was corrected; one row
    without an id where nothing was."""
    passive: str
    """The action that means doing nothing."""
    features: tuple[str, ...]
    """Columns that the model's features are read from, of those that are known."""

    @property
    def log(self) -> pl.DataFrame:
        """The programme as a log that a model can be learned from.

        A row for everyone who was in, in each round: id, time (the round), the state if it was
        seen in that round, the action, and the features as they are known now. Of the round that
        is on there are the states seen in it, without actions: they say what the last ones did.
        """
        closed = self.plans.filter(pl.col("status") == "recorded").select("round")
        inside = self.people.select("id", "joined", "gone").join(closed, how="cross")
        inside = inside.filter(
            (pl.col("joined") <= pl.col("round"))
            & (pl.col("gone").is_null() | (pl.col("round") < pl.col("gone")))
        )
        keys = [frame.select("round", "id") for frame in (inside, self.states, self.actions)]
        done = self.actions.select("round", "id", "action")
        known = self.people.select("id", *self.features).unique("id", keep="last")
        over = pl.col("round").is_in(closed["round"].implode())
        action = pl.when(over).then(pl.col("action").fill_null(self.passive))
        return (
            pl.concat(keys)
            .unique()
            .join(self.states, on=["round", "id"], how="left")
            .join(done, on=["round", "id"], how="left")
            .join(known, on="id", how="left")
            .with_columns(action=action)
            .sort("round", "id")
            .select("id", pl.col("round").alias("time"), "state", "action", *self.features)
        )


def read_history(sql: Connection, model: Any) -> History:
    """All frames, of one moment."""
    who = pl.String if get_meta(sql, "ids") == "text" else pl.Int64
    stays = sql.execute(
        "SELECT t.id, t.joined, t.gone, p.details FROM stays t JOIN people p ON p.id = t.id "
        "ORDER BY t.joined, p.number"
    ).fetchall()
    kept = {"id": who, "joined": pl.Int64, "gone": pl.Int64, "details": pl.String}
    people = pl.DataFrame(stays, schema=kept, orient="row")
    known = from_json(people["details"].to_list(), known_kinds(sql))
    done = sql.execute("SELECT round, id, action, cost FROM actions ORDER BY round, id").fetchall()
    deed = {"round": pl.Int64, "id": who, "action": pl.String, "cost": pl.Float64}
    heads = dict.fromkeys(name.partition("=")[0] for name in model.feature_names)
    return History(
        people=people.drop("details").hstack(known.get_columns()),
        states=_states(sql, model, who),
        plans=read_plans(sql),
        actions=pl.DataFrame(done, schema=deed, orient="row"),
        corrections=_corrections(sql, who),
        passive=model.action_names[0],
        features=tuple(name for name in heads if name in known.columns),
    )


def read_plans(sql: Connection) -> pl.DataFrame:
    """Every plan, and what was done of it."""
    plans = sql.execute(
        "SELECT round, attempt, status, json_extract(asked, '$.budget'), "
        "(SELECT total(cost) FROM actions a WHERE a.round = p.round AND a.attempt = p.attempt), "
        "(SELECT count(*) FROM actions a WHERE a.round = p.round AND a.attempt = p.attempt), "
        "model, made, closed FROM plans p ORDER BY round, attempt"
    ).fetchall()
    return pl.DataFrame(plans, schema=PLANS, orient="row")


def _states(sql: Connection, model: Any, who: Any) -> pl.DataFrame:
    states = sql.execute("SELECT round, id, state FROM states ORDER BY round, id").fetchall()
    rounds, ids, places = zip(*states, strict=True) if states else [()] * 3
    return pl.DataFrame(
        [
            pl.Series("round", rounds, dtype=pl.Int64),
            pl.Series("id", ids, dtype=who),
            state_names(model, places),
        ]
    )


def _corrections(sql: Connection, who: Any) -> pl.DataFrame:
    rows = [
        (old["round"], old["corrected"], *row)
        for old in get_meta(sql, "corrections") or []
        for row in old["actions"] or [(None, None, None)]
    ]
    kept = {"round": pl.Int64, "corrected": pl.String, "id": who}
    return pl.DataFrame(rows, schema=kept | {"action": pl.String, "cost": pl.Float64}, orient="row")
