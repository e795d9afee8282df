"""Compares tables with what the entries of the audit log stored of them.

The last entry of a row says what the row is. One table is in memory at a time, by columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import polars as pl
import sqlalchemy as sa
from sqlalchemy import Connection

from prefermab.errors import MOST_NAMED, DamageError, brief
from prefermab.programme.store.changes import ByColumn, read_parts, read_rows
from prefermab.programme.store.covered import COVERED
from prefermab.programme.store.rows import CHANGES_KEY, TYPES, fetch, select
from prefermab.programme.store.schema import AUDIT, METADATA, Id

MOST_WAITING_ROWS = 300_000
"""Rows of entries that are collected before they replace earlier ones."""

ENTRY, GONE, HAS, LOGGED = " entry", " gone", " here", " logged"
"""Columns beside those of a table; their blank keeps them apart."""


def check_stored(sql: Connection, names: str, *, but: str = "") -> None:
    """Raises an error if tables differ from what the audit log stored of them.

    It is called before people, states and plans are used, so that damage is never taken for data.

    Args:
        sql: A connection within a transaction.
        names: Names of tables, with blanks between them.
        but: Hashed columns that are not compared, with blanks between them.
    """
    noted = sql.info.get(CHANGES_KEY)
    for name in names.split():
        if noted and name in {*noted.written, *noted.keys}:
            continue  # this transaction has changed it, and the log does not have that yet
        if sql.dialect.name == "sqlite":  # a damaged index can hide rows that the table has
            whole = sql.exec_driver_sql(f"PRAGMA integrity_check({name})").scalar()
            if whole != "ok":
                raise DamageError(f"SQLite finds a fault in the table '{name}'")
        found, more = find_differences(sql, name, but=but)
        if found:
            others = f" ({more - 1:,} other rows differ too)" if more > 1 else ""
            raise DamageError(f"{found[0]}{others}")


def plan_hashes(sql: Connection) -> dict[tuple[int, int], tuple[bytes, bytes]]:
    """The hashes of the people and the list of each plan, by round and attempt. Raises an error if
    anything else of a plan is not as the audit log stored it."""
    check_stored(sql, "plans", but="inputs output")
    logged = _logged_rows(sql, "plans", ["round", "attempt", "inputs", "output"])
    rows = logged.drop(ENTRY).rows()
    return {(round, attempt): (inputs, output) for round, attempt, inputs, output in rows}


def check_last_states(
    sql: Connection,
    ids: Sequence[Any],
    joined: Sequence[int],
    seen: Sequence[int | None],
    states: Sequence[float | None],
) -> None:
    """Raises an error if somebody's last state is not the one that the audit log stored last.

    Entries are read from the newest to the oldest until everybody is found, so this takes no longer
    after many rounds.

    Args:
        sql: A connection within a transaction.
        ids: Everybody who takes part.
        joined: The rounds in which they joined.
        seen: The rounds of their last states; None without one.
        states: Their last states.
    """
    columns = {"id": list(ids), "round": list(seen), "state": list(states)}
    left = _frame("states", columns, columns).with_columns(joined=pl.Series(joined, dtype=pl.Int64))
    waiting: ByColumn = {one: [] for one in (*columns, ENTRY)}

    def find() -> pl.DataFrame:
        last = _frame("states", waiting, waiting).sort("round", ENTRY, descending=True)
        last = last.unique("id", keep="first", maintain_order=True)
        if last.schema["id"] != left.schema["id"]:
            raise DamageError("states: the id of a row is of another kind")
        both = left.join(last, on="id", suffix=LOGGED)
        now = pl.col("round" + LOGGED) >= pl.col("joined")
        wrong = pl.col("round").ne_missing(pl.when(now).then("round" + LOGGED))
        wrong |= pl.col("state").ne_missing(pl.when(now).then("state" + LOGGED))
        for row in both.filter(wrong).head(1).iter_rows(named=True):
            raise _state_error(sql, row)
        for values in waiting.values():
            values.clear()
        return left.join(last, on="id", how="anti")

    before = None
    with closing(read_parts(sql, "states", newest_first=True)) as parts:
        for number, part in parts:
            if number != before and len(waiting["id"]) >= max(1, left.height // 2):
                left = find()
            if not left.height:
                return
            before = number
            for rows in part["rows"]:
                for one in columns:
                    waiting[one] += rows[one]
                waiting[ENTRY] += [number] * len(rows["id"])
    if waiting["id"]:
        left = find()
    for row in left.filter(pl.col("round").is_not_null()).head(1).iter_rows(named=True):
        raise _state_error(sql, row)


def _state_error(sql: Connection, row: dict[str, Any]) -> DamageError:
    found, _ = find_differences(sql, "states")
    person = f"states: the last state of {brief(row['id'], 40)} is not as in the log"
    return DamageError((found or [person])[0])


def find_differences(sql: Connection, name: str, *, but: str = "") -> tuple[list[str], int]:
    """How a table differs from what the audit log stored of it.

    Args:
        sql: A connection within a transaction.
        name: The name of the table.
        but: Hashed columns that are not compared, with blanks between them.

    Returns:
        The first rows that differ, each in words, and how many there are.
    """
    known = COVERED[name]
    columns = [one for one in known.columns if one not in but.split()]
    logged = _logged_rows(sql, name, columns)
    has_table = name in METADATA.tables or sa.inspect(sql).has_table(name)
    stored = _stored_rows(sql, name, columns, but) if has_table else logged.drop(ENTRY).clear()
    if not stored.height or not logged.height:  # the type of ids is known from rows only
        kinds = (logged if logged.height else stored).select(known.key).schema
        stored, logged = stored.cast(kinds), logged.cast(kinds)
    if stored.select(known.key).schema != logged.select(known.key).schema:
        raise DamageError(f"{name}: a column of {', '.join(known.key)} is of another kind")
    if stored.sort(known.key).equals(logged.drop(ENTRY).sort(known.key)):
        return [], 0
    values = columns[len(known.key) :]
    both = stored.with_columns(pl.lit(True).alias(HAS)).join(
        logged.rename({one: one + LOGGED for one in values}), on=known.key, how="full",
        coalesce=True,
    )  # fmt: skip
    wrong = pl.col(HAS).is_null() | pl.col(ENTRY).is_null()
    for one in values:
        wrong |= pl.col(one).ne_missing(pl.col(one + LOGGED))
    rows = both.filter(wrong)
    if not rows.height:
        return [], 0
    first = rows.sort(known.key).head(MOST_NAMED).to_dicts()
    numbers = {row[ENTRY] for row in first if row[ENTRY] is not None}
    whats = dict(fetch(sql, select(AUDIT, "number", "what").where(AUDIT.c.number.in_(numbers))))
    return [_in_words(name, row, values, whats) for row in first], rows.height


def _in_words(name: str, row: dict[str, Any], values: list[str], whats: dict[int, str]) -> str:
    """How a row differs from the log."""
    known, number = COVERED[name], row[ENTRY]
    which = f"{name}: {', '.join(f'{one} {brief(row[one], 40)}' for one in known.key)}"
    if number is None:
        return f"{which}: this row is not in the log"
    entry = f"row {number:,} of the log ({whats.get(number, 'which is gone')})"
    if row[HAS] is None:
        return f"{which}: this row is gone; {entry} stored it"
    differ = [one for one in values if row[one] != row[one + LOGGED]]
    told = [
        f"another value of {one} than in"
        if one in known.hashed.split()
        else f"{one} is {_shown(row[one])}, and {_shown(row[one + LOGGED])} in"
        for one in differ
    ]
    return f"{which}: {' and '.join(told)} {entry}"


def _shown(value: Any) -> str:
    return "empty" if value is None else brief(value)


def _stored_rows(sql: Connection, name: str, columns: list[str], but: str) -> pl.DataFrame:
    """The rows of a table, with hashes in place of hashed values."""
    pieces = [_frame(name, rows, columns) for rows in read_rows(sql, name, but=but)]
    return pl.concat(pieces) if pieces else _frame(name, {one: [] for one in columns}, columns)


def _logged_rows(sql: Connection, name: str, columns: list[str]) -> pl.DataFrame:
    """The rows of a table by the entries of the log, and the number of the last entry of each."""
    key = COVERED[name].key
    every = [*columns, ENTRY, GONE]
    found = _frame(name, {one: [] for one in every}, every)
    for new, whole in _batches(sql, name, columns):
        both = new if whole or not found.height else pl.concat([found, new])
        found = both.unique(key, keep="last").filter(pl.col(GONE) == 0)
    return found.drop(GONE)


def _batches(sql: Connection, name: str, columns: list[str]) -> Iterator[tuple[pl.DataFrame, bool]]:
    """The rows of many entries at once, in their order, and whether earlier rows are void."""
    waiting: ByColumn = {one: [] for one in (*columns, ENTRY, GONE)}
    whole = False

    def batch() -> tuple[pl.DataFrame, bool]:
        made = _frame(name, waiting, waiting), whole
        for values in waiting.values():
            values.clear()
        return made

    with closing(read_parts(sql, name)) as parts:
        for number, part in parts:
            if part["whole"]:
                for values in waiting.values():
                    values.clear()
                whole = True
            for rows, gone in (*((one, 0) for one in part["rows"]), (part["gone"], 1)):
                size = len(next(iter(rows.values()), ()))
                for one in columns:
                    waiting[one] += rows.get(one, [None] * size)
                waiting[ENTRY] += [number] * size
                waiting[GONE] += [gone] * size
            if len(waiting[ENTRY]) > MOST_WAITING_ROWS:
                yield batch()
                whole = False
    if waiting[ENTRY] or whole:
        yield batch()


def _frame(name: str, rows: ByColumn, columns: Iterable[str]) -> pl.DataFrame:
    """Rows as a frame; an error names a column with a value of a wrong kind."""
    return pl.DataFrame([_series(name, one, rows[one]) for one in columns])


def _series(name: str, column: str, values: list[Any]) -> pl.Series:
    table = METADATA.tables.get(name)
    kind: Any
    if column in (ENTRY, GONE):
        kind = pl.Int64
    elif column in COVERED[name].hashed.split():
        kind = pl.Binary
    elif table is None:  # a table of the service: few rows, whose types differ by database
        kind, values = pl.String, [_plain(value) for value in values]
    elif isinstance(table.c[column].type, Id):
        kind = pl.Int64 if not values or isinstance(values[0], int) else pl.String
    else:
        kind = TYPES.get(type(table.c[column].type), pl.String)
    try:
        return pl.Series(column, values, dtype=kind, strict=True)
    except (TypeError, OverflowError, pl.exceptions.PolarsError):
        raise DamageError(f"{name}: the {column} of a row is of a wrong kind") from None


def _plain(value: Any) -> str | None:
    """A value as text, the same for databases with and without truth values."""
    if value is None or isinstance(value, str):
        return value
    return str(int(value) if value == int(value) else float(value))
