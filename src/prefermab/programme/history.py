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
    states = sql.execute("SELECT round, id, state FROM states ORDER BY round, id").fetchall()
    rounds, ids, places = zip(*states, strict=True) if states else [()] * 3
    plans = sql.execute(
        "SELECT round, attempt, status, json_extract(asked, '$.budget'), "
        "(SELECT sum(cost) FROM actions a WHERE a.round = p.round AND a.attempt = p.attempt), "
        "(SELECT count(*) FROM actions a WHERE a.round = p.round AND a.attempt = p.attempt), "
        "model, made, closed FROM plans p ORDER BY round, attempt"
    ).fetchall()
    done = sql.execute("SELECT round, id, action, cost FROM actions ORDER BY round, id").fetchall()
    deed = {"round": pl.Int64, "id": who, "action": pl.String, "cost": pl.Float64}
    return History(
        people=people.drop("details").hstack(known.get_columns()),
        states=pl.DataFrame(
            [
                pl.Series("round", rounds, dtype=pl.Int64),
                pl.Series("id", ids, dtype=who),
                state_names(model, places),
            ]
        ),
        plans=pl.DataFrame(plans, schema=PLANS, orient="row"),
        actions=pl.DataFrame(done, schema=deed, orient="row"),
    )
