"""Many rows at once, written and found with few statements on either database."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Table

MOST_BY_ID = 2000
"""Rows of more people than this are found by reading the whole table."""

AT_ONCE = 500
"""People that one statement looks for."""


def select(table: Table, *columns: str | sa.ColumnElement[Any]) -> sa.Select[Any]:
    """A statement that selects columns of a table, by name, or expressions."""
    return sa.select(*(table.c[one] if isinstance(one, str) else one for one in columns))


def fetch(sql: Connection, statement: sa.Executable) -> list[tuple[Any, ...]]:
    """The rows of a statement as plain tuples."""
    found = sql.execute(statement)
    if sql.dialect.name == "sqlite" and found.cursor is not None:
        return list(found.cursor.fetchall())  # no column of ours is converted there
    return list(map(tuple, found.fetchall()))


def put_rows(
    sql: Connection,
    table: Table,
    columns: Mapping[str, Sequence[Any]],
    replace: str = "",
    key: str = "",
    how: str = "excluded.{name}",
) -> None:
    """Inserts rows, given by columns; where the key is there already, `replace` is set anew.

    `replace` and `key` are names with blanks between them; the key is by default the table's. `how`
    is the new value in SQL.
    """
    if not len(next(iter(columns.values()))):
        return
    names = ", ".join(columns)
    clash = ""
    if replace:
        keys = key.split() or [column.name for column in table.primary_key]
        new = ", ".join(f"{name} = {how.format(name=name)}" for name in replace.split())
        clash = f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {new}"
    if sql.dialect.name == "sqlite":
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table.name} ({names}) VALUES ({marks}){clash}"
        driver: Any = sql.connection.driver_connection
        driver.executemany(statement, zip(*columns.values(), strict=True))
        return
    # One statement with an array for each column; rows keep their order, which numbers people.
    kinds = [table.c[name].type for name in columns]
    marks = ", ".join(f"%s::{kind.compile(sql.dialect)}[]" for kind in kinds)
    statement = (
        f"INSERT INTO {table.name} ({names}) SELECT {names} FROM unnest({marks}) "
        f"WITH ORDINALITY AS given ({names}, place) ORDER BY place{clash}"
    )
    given = []
    for kind, values in zip(kinds, columns.values(), strict=True):
        encode = kind.bind_processor(sql.dialect)
        given.append(list(values) if encode is None else [encode(value) for value in values])
    sql.exec_driver_sql(statement, tuple(given))


def rows_of(
    sql: Connection, statement: sa.Select[Any], ids: Sequence[Any]
) -> Iterator[tuple[Any, ...]]:
    """The rows of a statement that belong to these people, and perhaps more: of many people, all.

    The statement's first column is the id.
    """
    if len(ids) > MOST_BY_ID:
        yield from fetch(sql, statement)
        return
    column = statement.selected_columns[0]
    for start in range(0, len(ids), AT_ONCE):
        yield from fetch(sql, statement.where(column.in_(ids[start : start + AT_ONCE])))


def timestamp() -> str:
    """The time now, as it is stored."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
