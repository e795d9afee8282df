"""Reads and writes of a programme's tables; each function runs in a transaction of `Database`."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from sqlite3 import Connection
from types import SimpleNamespace
from typing import Any

import polars as pl
from polars.datatypes import DataTypeClass

from prefermab.errors import InputError, brief, list_names
from prefermab.programme.columns import is_continuous
from prefermab.programme.planning.plan import Summary
from prefermab.programme.planning.printed import write_list
from prefermab.programme.store.changes import PlanReader, store_frames
from prefermab.programme.store.frames import (
    BEFORE,
    SINCE_ACTION,
    SINCE_SEEN,
    column_kinds,
    from_json,
    to_json,
)
from prefermab.programme.store.models import Planner, is_same_model
from prefermab.programme.tables import row_in

MEMBERS = """
SELECT p.id, s.state, s.round, (SELECT max(round) FROM actions WHERE id = p.id), p.details
FROM stays t JOIN people p ON p.id = t.id
LEFT JOIN states s ON s.id = p.id AND s.round = (
    SELECT max(round) FROM states WHERE id = p.id AND round >= t.joined
)
WHERE t.gone IS NULL ORDER BY p.number
"""


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


def current_round(sql: Connection) -> int:
    """The round after the last recorded one; the first is 1."""
    last = sql.execute("SELECT max(round) FROM plans WHERE status = 'recorded'").fetchone()[0]
    return 1 + (last or 0)


def get_meta(sql: Connection, key: str) -> Any:
    """The value of a key in the table `meta`, or None."""
    found = sql.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return None if found is None else json.loads(found[0])


def set_meta(sql: Connection, key: str, value: Any) -> None:
    """Stores the value of a key in the table `meta`."""
    sql.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, json.dumps(value)))


def check_key(sql: Connection, mark: str | None) -> None:
    """Raises an error unless ids are pseudonyms by the key with this mark; the first is kept."""
    if get_meta(sql, "ids") is None:
        set_meta(sql, "key", mark)
    stored = get_meta(sql, "key")
    if stored == mark:
        return
    if stored is None:
        raise InputError("the ids of this programme are no pseudonyms: leave out --pseudonymise.")
    raise InputError(
        "the ids of this programme are pseudonyms: name the file of their key by --pseudonymise."
        if mark is None
        else "the ids of this programme are pseudonyms by another key than that of --pseudonymise."
    )


def id_type(sql: Connection) -> DataTypeClass:
    """The type of the ids in this programme."""
    return pl.String if get_meta(sql, "ids") == "text" else pl.Int64


def is_member(sql: Connection, ids: pl.Series, where: str) -> pl.Series:
    """Which of these people take part now; their ids must be of the same kind as all others."""
    if not len(ids):
        return pl.Series(dtype=pl.Boolean)
    kind = get_meta(sql, "ids")
    new = "text" if ids.dtype == pl.String else "whole numbers"
    if kind is None:
        set_meta(sql, "ids", new)
    elif kind != new:
        raise InputError(f"{where}: ids are {kind} in this programme, but {ids[0]!r} is not.")
    members = [row[0] for row in sql.execute("SELECT id FROM stays WHERE gone IS NULL")]
    return ids.is_in(pl.Series(members, dtype=ids.dtype).implode())


def strangers(sql: Connection, ids: pl.Series, where: str, *, skip: bool = False) -> pl.Series:
    """Which of these people do not take part now; raises, and names them, unless they are to be
    skipped."""
    unknown = ~is_member(sql, ids, where)
    if unknown.any() and not skip:
        raise InputError(
            f"{where}: {name_rows(ids, unknown, where)} not in the programme: leave out, let them "
            "join first, or add skip_unknown=True (--skip-unknown)."
        )
    return unknown


def check_members(sql: Connection, ids: pl.Series, where: str) -> None:
    """Raises, and names them, if some of these people do not take part now."""
    unknown = ids.filter(~is_member(sql, ids, where))
    if len(unknown):
        verb = "is" if len(unknown) == 1 else "are"
        names = list_names(map(str, unknown))
        raise InputError(f"{where}: {names} {verb} not in the programme.")


def name_rows(ids: pl.Series, which: pl.Series, where: str) -> str:
    """These people and their rows, with a verb: `row 2: 17 is`, `3 people (17 in row 2, …) are`."""
    rows = which.arg_true().to_list()
    if len(rows) == 1:
        return f"{row_in(where, rows[0])}: {brief(ids[rows[0]])} is"
    named = list_names(f"{brief(ids[row])} in {row_in(where, row)}" for row in rows)
    return f"{len(rows):,} people ({named}) are"


def known_kinds(sql: Connection) -> dict[str, str]:
    """The stored columns and their kinds."""
    return dict(sql.execute("SELECT name, kind FROM columns ORDER BY number").fetchall())


def put_details(sql: Connection, ids: pl.Series, details: pl.DataFrame, where: str) -> None:
    """Stores details of people; columns that are not given stay as they were."""
    kinds = column_kinds(details, known_kinds(sql), where)
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
    """Stores states seen in a round; a later one of the same round replaces an earlier one."""
    seen = states.is_not_null()
    rows = zip(ids.filter(seen).to_list(), states.filter(seen).to_list(), strict=True)
    sql.executemany(
        "INSERT INTO states (id, round, state) VALUES (?, ?, ?) "
        "ON CONFLICT (id, round) DO UPDATE SET state = excluded.state",
        ((who, round, state) for who, state in rows),
    )


def get_members(sql: Connection, model: Planner, since: str = SINCE_ACTION) -> pl.DataFrame:
    """Everyone who takes part, in the order of joining, as a model plans for them.

    `since` names the column with the rounds since the last action.
    """
    now, rows = current_round(sql), sql.execute(MEMBERS).fetchall()
    ids, states, seen, acted, details = zip(*rows, strict=True) if rows else [()] * 5
    known = from_json(details, known_kinds(sql))
    last = pl.Series("acted", acted, dtype=pl.Int64)
    if BEFORE in known.columns:
        last = pl.select(pl.max_horizontal(last, known[BEFORE])).to_series()
        known = known.drop(BEFORE)
    if "opt_in" in known.columns:
        # People whose table had no such column are opted in.
        known = known.with_columns(pl.col("opt_in").fill_null(True))
    rounds = [(now - last).alias(since), (now - pl.Series(seen, dtype=pl.Int64)).alias(SINCE_SEEN)]
    if since in known.columns:
        raise InputError(
            f"rules.last_column names '{since}', a column of the people's table; the programme "
            "counts the rounds since the last action itself, so name another."
        )
    columns = [pl.Series("id", ids, dtype=id_type(sql)), state_names(model, states)]
    return pl.DataFrame([*columns, *rounds, *known.get_columns()])


def state_names(model: Planner, states: Sequence[Any]) -> pl.Series:
    """States by name, or as numbers if they are continuous."""
    if is_continuous(model):
        return pl.Series("state", states, dtype=pl.Float64)
    names = [None if place is None else model.state_names[place] for place in states]
    return pl.Series("state", names, dtype=pl.String)


def get_plan(sql: Connection, round: int, attempt: int | None = None) -> Planned | None:
    """The plan of a round, or None: the valid one, or that with the number `attempt`."""
    which = "status <> 'superseded'" if attempt is None else "attempt = ?"
    found = sql.execute(
        "SELECT round, attempt, layout, inputs, output, status, model, asked, versions, facts "
        f"FROM plans WHERE round = ? AND {which}",
        (round,) if attempt is None else (round, attempt),
    ).fetchone()
    if found is None:
        return None
    round, number, _, _, _, status, model, *texts = found
    asked, used, facts = (json.loads(text) for text in texts)
    frames = PlanReader(sql).frames(found[:5])
    return Planned(round, number, status, model, asked, used, facts, *frames)


def find_plan(sql: Connection, round: int, attempt: int | None) -> Planned:
    """The same; raises if there is none."""
    found = get_plan(sql, round, attempt)
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
    rows = sql.execute(
        "SELECT round, attempt, layout, inputs, output, asked FROM plans "
        "WHERE status = 'recorded' ORDER BY round"
    )
    for *stored, asked in rows:
        yield stored[0], json.loads(asked), *reader.frames(tuple(stored))


def put_plan(sql: Connection, plan: Planned) -> None:
    """Stores a plan; it supersedes an earlier one of the same round."""
    sql.execute("UPDATE plans SET status = 'superseded' WHERE round = ?", (plan.round,))
    sql.execute(
        "INSERT INTO plans (round, attempt, status, model, asked, versions, facts, layout, "
        "inputs, output) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            plan.round,
            plan.attempt,
            plan.status,
            plan.model,
            json.dumps(plan.asked),
            json.dumps(plan.versions),
            json.dumps(plan.facts),
            *store_frames(sql, plan.inputs, plan.frame),
        ),
    )


def start_stays(sql: Connection, ids: pl.Series, round: int) -> None:
    """People take part from this round on; whoever left in the same round counts as not gone."""
    sql.executemany(
        "INSERT INTO stays VALUES (?, ?, NULL) ON CONFLICT (id, joined) DO UPDATE SET gone = NULL",
        ((who, round) for who in ids.to_list()),
    )


def end_stays(sql: Connection, ids: pl.Series, round: int) -> None:
    """People do not take part from this round on."""
    sql.executemany(
        "UPDATE stays SET gone = ? WHERE id = ? AND gone IS NULL",
        ((round, who) for who in ids.to_list()),
    )


def count_attempts(sql: Connection, round: int) -> int:
    """The number of plans of a round, superseded ones included."""
    return sql.execute("SELECT count(*) FROM plans WHERE round = ?", (round,)).fetchone()[0]


def current_model(sql: Connection) -> str | None:
    """The hash of the model that runs the programme."""
    found = sql.execute("SELECT hash FROM models ORDER BY number DESC LIMIT 1").fetchone()
    return None if found is None else found[0]


def set_model(
    sql: Connection, model: Planner, model_hash: str, path: Path, *, change_model: bool
) -> None:
    """Makes this model run the programme from the current round on, if it may."""
    running = current_model(sql)
    if running == model_hash:
        return
    for key in ("state_names", "action_names"):
        stored, names = get_meta(sql, key), list(getattr(model, key))
        if stored is None:
            set_meta(sql, key, names)
        elif stored != names:
            raise InputError(
                f"{path}: the {key.replace('_', ' ')} of the programme are {', '.join(stored)}, "
                f"but this model's are {', '.join(names)}."
            )
    if running is not None and not change_model and not is_same_model(model, running):
        raise InputError(
            f"{path}: the programme is run by the model {running[:12]}, but this one is "
            f"{model_hash[:12]}; open it with change_model=True (`programme begin` with "
            "--change-model) to go on with this one."
        )
    name, since = str(getattr(model, "domain_name", "own")), current_round(sql)
    sql.execute(
        "INSERT INTO models (hash, name, since) VALUES (?, ?, ?)", (model_hash, name, since)
    )
