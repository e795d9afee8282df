"""What stands in a programme's file, read and written within a transaction of `database`."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from sqlite3 import Connection
from types import SimpleNamespace
from typing import Any, cast

import polars as pl

from prefermab.errors import InputError, StorageError
from prefermab.programme.columns import is_continuous
from prefermab.programme.planning.plan import Summary
from prefermab.programme.store.packing import pack, unpack
from prefermab.programme.store.people import (
    BEFORE,
    SINCE_ACTION,
    SINCE_SEEN,
    from_json,
    kinds_of,
    to_json,
)
from prefermab.programme.tables import write_table

IN_THE_PROGRAMME = """
SELECT p.id, s.state, s.round, (SELECT max(round) FROM actions WHERE id = p.id), p.details
FROM stays t JOIN people p ON p.id = t.id
LEFT JOIN states s ON s.id = p.id AND s.round = (
    SELECT max(round) FROM states WHERE id = p.id AND round >= t.joined
)
WHERE t.gone IS NULL ORDER BY p.number
"""


@dataclasses.dataclass(frozen=True, eq=False)
class Planned:
    """A plan as it is kept: what was asked of which model, from what, and what came out.

    `frame` is that of the model's plan, `asked` the arguments it was made with, `inputs` the people
    it was made for, and `facts` its summary as plain values.
    """

    round: int
    attempt: int
    status: str
    model: str
    asked: dict[str, Any]
    versions: dict[str, str]
    facts: dict[str, Any]
    inputs: pl.DataFrame
    frame: pl.DataFrame

    @property
    def summary(self) -> Summary:
        """The summary as the model gave it, or what it says where its fields were others."""
        fits = {field.name for field in dataclasses.fields(Summary)} == set(self.facts)
        return cast(Summary, (Summary if fits else SimpleNamespace)(**self.facts))

    @property
    def waiting(self) -> pl.DataFrame:
        """The next ones, should somebody drop out."""
        return self.frame.filter(pl.col("list") == "waiting").sort("rank")

    def write(self, path: str | Path) -> None:
        """Writes the plan's frame as CSV or Parquet, whole or not at all."""
        write_table(self.frame, Path(path))


def current_round(sql: Connection) -> int:
    """The round after the last that was recorded; the first is 1."""
    last = sql.execute("SELECT max(round) FROM plans WHERE status = 'recorded'").fetchone()[0]
    return 1 + (last or 0)


def get_meta(sql: Connection, key: str) -> Any:
    """A fact about the whole programme, or None."""
    found = sql.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if found is None else json.loads(found[0])


def set_meta(sql: Connection, key: str, value: Any) -> None:
    """Keeps a fact about the whole programme."""
    sql.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


def present(sql: Connection, ids: pl.Series, where: str) -> pl.Series:
    """Which of these people are in now; their ids must be of the kind that all others have."""
    if not len(ids):
        return pl.Series(dtype=pl.Boolean)
    kind = get_meta(sql, "ids")
    new = "text" if ids.dtype == pl.String else "whole numbers"
    if kind is None:
        set_meta(sql, "ids", new)
    elif kind != new:
        raise InputError(f"{where}: ids are {kind} in this programme, but {ids[0]!r} is not.")
    inside = [row[0] for row in sql.execute("SELECT id FROM stays WHERE gone IS NULL")]
    return ids.is_in(pl.Series(inside, dtype=ids.dtype).implode())


def known_kinds(sql: Connection) -> dict[str, str]:
    """The columns that are kept, and what they hold."""
    return dict(sql.execute("SELECT name, kind FROM columns ORDER BY number").fetchall())


def put_details(sql: Connection, ids: pl.Series, details: pl.DataFrame, where: str) -> None:
    """Keeps what is known of people; columns that are not among these stay as they were."""
    kinds = kinds_of(details, known_kinds(sql), where)
    sql.executemany(
        "INSERT INTO columns (name, kind) VALUES (?, ?) "
        "ON CONFLICT (name) DO UPDATE SET kind = excluded.kind",
        kinds.items(),
    )
    sql.executemany(
        "INSERT INTO people (id, details) VALUES (?, ?) "
        "ON CONFLICT (id) DO UPDATE SET details = json_patch(details, excluded.details)",
        zip(ids.to_list(), to_json(details, len(ids)), strict=True),
    )


def put_states(sql: Connection, ids: pl.Series, states: pl.Series, round: int) -> None:
    """Keeps states seen in a round; a later look in the same round replaces an earlier one."""
    seen = states.is_not_null()
    rows = zip(ids.filter(seen).to_list(), states.filter(seen).to_list(), strict=True)
    sql.executemany(
        "INSERT INTO states (id, round, state) VALUES (?, ?, ?) "
        "ON CONFLICT (id, round) DO UPDATE SET state = excluded.state",
        ((who, round, state) for who, state in rows),
    )


def roster(sql: Connection, model: Any, since: str = SINCE_ACTION) -> pl.DataFrame:
    """Everyone who is in, in the order of joining, as a model plans for them."""
    now, rows = current_round(sql), sql.execute(IN_THE_PROGRAMME).fetchall()
    ids, states, seen, acted, details = zip(*rows, strict=True) if rows else [()] * 5
    id_type = pl.String if get_meta(sql, "ids") == "text" else pl.Int64
    known = from_json(details, known_kinds(sql))
    last = pl.Series("acted", acted, dtype=pl.Int64)
    if BEFORE in known.columns:
        last = pl.select(pl.max_horizontal(last, known[BEFORE])).to_series()
        known = known.drop(BEFORE)
    if "opt_in" in known.columns:
        # Whom nobody asked is in: a newcomer's column says nothing of the others.
        known = known.with_columns(pl.col("opt_in").fill_null(True))
    rounds = [(now - last).alias(since), (now - pl.Series(seen, dtype=pl.Int64)).alias(SINCE_SEEN)]
    if since in known.columns:
        raise InputError(
            f"rules.last names '{since}', a column that people came with; the programme counts "
            "the rounds since the last action itself, so name another."
        )
    columns = [pl.Series("id", ids, dtype=id_type), state_names(model, states)]
    return pl.DataFrame([*columns, *rounds, *known.get_columns()])


def state_names(model: Any, states: Any) -> pl.Series:
    """States as they are called, or as they are where they are numbers."""
    if is_continuous(model):
        return pl.Series("state", states, dtype=pl.Float64)
    names = [None if place is None else model.state_names[place] for place in states]
    return pl.Series("state", names, dtype=pl.String)


def get_plan(sql: Connection, round: int, attempt: int | None = None) -> Planned | None:
    """The plan of a round: the one that holds, or an earlier attempt."""
    which = "status <> 'superseded'" if attempt is None else "attempt = ?"
    found = sql.execute(
        "SELECT round, attempt, status, model, asked, versions, facts, inputs, output "
        f"FROM plans WHERE round = ? AND {which}",
        (round,) if attempt is None else (round, attempt),
    ).fetchone()
    if found is None:
        return None
    round, number, status, model, asked, used, facts, inputs, output = found
    asked, used, facts = (json.loads(text) for text in (asked, used, facts))
    frames = _unpacked(round, inputs), _unpacked(round, output)
    return Planned(round, number, status, model, asked, used, facts, *frames)


def recorded_inputs(sql: Connection) -> Iterator[tuple[int, dict[str, Any], pl.DataFrame]]:
    """For each recorded round: its number, what was asked, and the people as they were known."""
    rows = sql.execute(
        "SELECT round, asked, inputs FROM plans WHERE status = 'recorded' ORDER BY round"
    )
    for round, asked, inputs in rows:
        yield round, json.loads(asked), _unpacked(round, inputs)


def _unpacked(round: int, data: bytes) -> pl.DataFrame:
    """A frame of a plan, or a sentence that says that it is damaged."""
    try:
        return unpack(data)
    except (pl.exceptions.PolarsError, OSError, ValueError):
        raise StorageError(f"the plan of round {round} is damaged and cannot be read.") from None


def put_plan(sql: Connection, plan: Planned) -> None:
    """Keeps a plan; one of the same round that was not recorded is superseded by it."""
    sql.execute("UPDATE plans SET status = 'superseded' WHERE round = ?", (plan.round,))
    sql.execute(
        "INSERT INTO plans (round, attempt, status, model, asked, versions, facts, inputs, "
        "output) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            plan.round,
            plan.attempt,
            plan.status,
            plan.model,
            json.dumps(plan.asked),
            json.dumps(plan.versions),
            json.dumps(plan.facts),
            pack(plan.inputs),
            pack(plan.frame),
        ),
    )


def get_actions(sql: Connection, round: int) -> dict[Any, tuple[str, bool]]:
    """Who was acted on in a round, how, and whether it reached them."""
    rows = sql.execute("SELECT id, action, reached FROM actions WHERE round = ?", (round,))
    return {who: (action, bool(reached)) for who, action, reached in rows}


def put_stays(sql: Connection, ids: pl.Series, round: int) -> None:
    """People are in from a round on; who left in that same round never did."""
    sql.executemany(
        "INSERT INTO stays VALUES (?, ?, NULL) ON CONFLICT (id, joined) DO UPDATE SET gone = NULL",
        ((who, round) for who in ids.to_list()),
    )


def end_stays(sql: Connection, ids: pl.Series, round: int) -> None:
    """People are out from a round on."""
    sql.executemany(
        "UPDATE stays SET gone = ? WHERE id = ? AND gone IS NULL",
        ((round, who) for who in ids.to_list()),
    )


def put_actions(sql: Connection, plan: Planned, done: pl.DataFrame) -> None:
    """Keeps what was done in the round of a plan, in the place of what was kept before."""
    sql.execute("DELETE FROM actions WHERE round = ?", (plan.round,))
    rows = done.select("id", "action", "cost", pl.col("reached").cast(pl.Int64)).rows()
    sql.executemany(
        "INSERT INTO actions (id, round, attempt, action, cost, reached) VALUES (?, ?, ?, ?, ?, ?)",
        ((who, plan.round, plan.attempt, *done) for who, *done in rows),
    )


def close_round(sql: Connection, plan: Planned) -> None:
    """The round of a plan is over: the next one is on."""
    sql.execute(
        "UPDATE plans SET status = 'recorded', closed = strftime('%Y-%m-%dT%H:%M:%SZ', 'now') "
        "WHERE round = ? AND attempt = ?",
        (plan.round, plan.attempt),
    )


def note_correction(sql: Connection, round: int) -> None:
    """Keeps what was recorded for a round, before other actions take its place."""
    at = sql.execute("SELECT strftime('%Y-%m-%dT%H:%M:%SZ', 'now')").fetchone()[0]
    rows = sql.execute(
        "SELECT id, action, cost, reached FROM actions WHERE round = ? ORDER BY id", (round,)
    ).fetchall()
    old = {"round": round, "corrected": at, "actions": rows}
    set_meta(sql, "corrections", [*(get_meta(sql, "corrections") or []), old])


def attempts(sql: Connection, round: int) -> int:
    """How many plans a round has, superseded ones included."""
    return sql.execute("SELECT count(*) FROM plans WHERE round = ?", (round,)).fetchone()[0]


def current_model(sql: Connection) -> str | None:
    """The hash of the model that runs the programme."""
    found = sql.execute("SELECT hash FROM models ORDER BY number DESC LIMIT 1").fetchone()
    return None if found is None else found[0]


def put_model(sql: Connection, hash: str, name: str) -> None:
    """A model takes over, from the round that is on."""
    since = current_round(sql)
    sql.execute("INSERT INTO models (hash, name, since) VALUES (?, ?, ?)", (hash, name, since))
