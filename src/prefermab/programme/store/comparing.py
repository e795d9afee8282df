"""Compares tables with what the entries of the audit log stored of them.

The last entry of a row says what the row is. One table is in memory at a time, by columns.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import polars as pl
import sqlalchemy as sa
from sqlalchemy import Connection

from prefermab.errors import MOST_NAMED, DamageError, brief
from prefermab.programme.store.changes import Columns, read_parts, read_rows
from prefermab.programme.store.covered import COVERED
from prefermab.programme.store.rows import TYPES, fetch, select
from prefermab.programme.store.schema import AUDIT, METADATA, Id

MOST_WAITING_ROWS = 300_000
"""Rows of entries that are collected before they replace earlier ones."""

ENTRY, GONE, HERE, LOGGED = " entry", " gone", " here", " logged"
"""Columns beside those of a table; their blank keeps them apart."""


def check_stored(sql: Connection, names: str, *, but: str = "") -> None:
    """Raises an error if tables differ from what the audit log stored of them.

    It is called before people, states and plans are used, so that damage is never taken for data.

    Args:
        sql: A connection within a transaction.
        names: Names of tables, with blanks between them.
        but: Hashed columns that are not compared, with blanks between them.
    """
    for name in names.split():
        found, more = find_differences(sql, name, but=but)
        if found:
            others = f" ({more - 1:,} other rows differ too)" if more > 1 else ""
            raise DamageError(f"{found[0]}{others}")


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
    stored = _stored_rows(sql, name, columns, but) if has_table else logged.clear().drop(ENTRY)
    values = columns[len(known.key) :]
    both = stored.with_columns(pl.lit(True).alias(HERE)).join(
        logged.rename({one: one + LOGGED for one in values}), on=known.key, how="full",
        coalesce=True,
    )  # fmt: skip
    wrong = pl.col(HERE).is_null() | pl.col(ENTRY).is_null()
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
    if row[HERE] is None:
        return f"{which}: this row is gone; {entry} stored it"
    differ = [one for one in values if row[one] != row[one + LOGGED]]
    told = [
        f"the {one} is another than in"
        if one in known.hashed.split()
        else f"the {one} is {_shown(row[one])}, and {_shown(row[one + LOGGED])} in"
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
    found = _frame(name, {one: [] for one in columns}, columns, ENTRY, GONE)
    for new, whole in _batches(sql, name, columns):
        kept = found.clear() if whole else found
        # Ids are numbers or texts, which the first rows tell.
        both = pl.concat([kept, new] if kept.height else [new])
        found = both.unique(key, keep="last").filter(pl.col(GONE) == 0)
    return found.drop(GONE)


def _batches(sql: Connection, name: str, columns: list[str]) -> Iterator[tuple[pl.DataFrame, bool]]:
    """The rows of many entries at once, in their order, and whether earlier rows are void."""
    waiting: Columns = {one: [] for one in (*columns, ENTRY, GONE)}
    whole = False

    def batch() -> tuple[pl.DataFrame, bool]:
        made = _frame(name, waiting, columns, ENTRY, GONE), whole
        for values in waiting.values():
            values.clear()
        return made

    for number, part in read_parts(sql, name):
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


def _frame(name: str, rows: Columns, columns: Iterable[str], *more: str) -> pl.DataFrame:
    """Rows as a frame; an error names the first value of a wrong kind."""
    made = [_series(name, one, rows[one]) for one in columns]
    return pl.DataFrame([*made, *(pl.Series(one, rows[one], dtype=pl.Int64) for one in more)])


def _series(name: str, column: str, values: list[Any]) -> pl.Series:
    table = METADATA.tables.get(name)
    if column in COVERED[name].hashed.split():
        kind: Any = pl.Binary
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
    return msgspec.json.encode(float(value)).decode()
