"""Writes and finds many rows with few statements, on SQLite and PostgreSQL."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import polars as pl
import sqlalchemy as sa
from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError

MOST_BY_ID = 2000
"""To find the rows of more people than this, the whole table is read."""

FEWEST_ROWS_TO_COPY = 1000
"""From this number of rows on, they are written to PostgreSQL by COPY."""

TYPES = {sa.BigInteger: pl.Int64, sa.Double: pl.Float64}

MOST_IDS_PER_STATEMENT = 500
"""The most people that one statement looks for."""

AS_GIVEN = "excluded.{name}"
"""In an upsert: the new value replaces the old one."""

CHANGES_KEY = "changes"
"""Where a connection keeps the rows that its transaction has touched (`changes.Changes`)."""


def select(table: Table, *columns: str | sa.ColumnElement[Any]) -> sa.Select[Any]:
    """A statement that selects columns of a table, given by name, or expressions."""
    return sa.select(*(table.c[one] if isinstance(one, str) else one for one in columns))


def fetch(sql: Connection, statement: sa.Executable) -> list[tuple[Any, ...]]:
    """The rows of a statement as plain tuples."""
    found = sql.execute(statement)
    if sql.dialect.name == "sqlite" and found.cursor is not None:
        return list(found.cursor.fetchall())  # on SQLite no column needs a conversion
    return list(map(tuple, found.fetchall()))


def put_rows(
    sql: Connection,
    table: Table,
    columns: Mapping[str, Sequence[Any]],
    replace: str = "",
    key: str = "",
    how: str = AS_GIVEN,
) -> None:
    """Inserts rows, which are given by columns. If a key exists already, updates the columns
    `replace` of its row.

    `replace` and `key` are names of columns with blanks between them. The key is by default the
    table's primary key. `how` is the updated value in SQL.
    """
    if not len(next(iter(columns.values()))):
        return
    names = ", ".join(columns)
    clash, keys = "", key.split() or [column.name for column in table.primary_key]
    if (noted := sql.info.get(CHANGES_KEY)) is not None:
        known = how == AS_GIVEN and (not replace or {*keys, *replace.split()} >= set(columns))
        noted.put(table, columns, exact=known)
    if replace:
        new = ", ".join(f"{name} = {how.format(name=name)}" for name in replace.split())
        clash = f" ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {new}"
    if sql.dialect.name == "sqlite":
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table.name} ({names}) VALUES ({marks}){clash}"
        driver: Any = sql.connection.driver_connection
        driver.executemany(statement, zip(*columns.values(), strict=True))
        return
    kinds = {name: table.c[name].type for name in columns}
    encoders = {name: kind.bind_processor(sql.dialect) for name, kind in kinds.items()}
    given = {
        name: list(map(encode, columns[name])) if (encode := encoders[name]) else columns[name]
        for name in columns
    }
    # Rows keep their order, because it gives people their numbers.
    insert = f"INSERT INTO {table.name} ({names}) SELECT {names} FROM {{}} ORDER BY place{clash}"
    if len(next(iter(columns.values()))) < FEWEST_ROWS_TO_COPY:
        marks = ", ".join(f"%s::{kind.compile(sql.dialect)}[]" for kind in kinds.values())
        source = f"unnest({marks}) WITH ORDINALITY AS given ({names}, place)"
        sql.exec_driver_sql(insert.format(source), tuple(map(list, given.values())))
        return
    _copy(sql, table, given)
    sql.exec_driver_sql(insert.format("pg_temp.given"))
    sql.exec_driver_sql("DROP TABLE pg_temp.given")


def _copy(sql: Connection, table: Table, columns: Mapping[str, Sequence[Any]]) -> None:
    """Copies rows, with their place, to the temporary table `given` of PostgreSQL.

    COPY reads CSV as polars writes it: texts in quotation marks, and an empty field for null.
    """
    rows = pl.DataFrame(
        [
            pl.Series(name, values, dtype=TYPES.get(type(table.c[name].type), pl.String))
            for name, values in columns.items()
        ]
    ).with_row_index("place")
    text = rows.write_csv(include_header=False, quote_style="non_numeric")
    names = ", ".join(columns)
    sql.exec_driver_sql(
        f"CREATE TEMPORARY TABLE given AS SELECT 0::BIGINT AS place, {names} FROM {table.name} "
        "WITH NO DATA"
    )
    driver: Any = sql.connection.driver_connection
    command = f"COPY pg_temp.given (place, {names}) FROM STDIN (FORMAT csv)"
    try:
        with driver.cursor() as cursor, cursor.copy(command) as copy:
            copy.write(text)
    except driver_errors(sql) as error:
        raise DBAPIError(command, None, error) from None


def driver_errors(sql: Connection) -> type[Exception]:
    """The base class of the errors of the database's driver."""
    return sql.dialect.loaded_dbapi.Error  # type: ignore[union-attr]


def rows_of(
    sql: Connection, statement: sa.Select[Any], ids: Sequence[Any]
) -> Iterator[tuple[Any, ...]]:
    """The rows of a statement for these people; for many people, the rows of everybody.

    The statement's first column must be the id.
    """
    if len(ids) > MOST_BY_ID:
        yield from fetch(sql, statement)
        return
    column = statement.selected_columns[0]
    for start in range(0, len(ids), MOST_IDS_PER_STATEMENT):
        yield from fetch(
            sql, statement.where(column.in_(ids[start : start + MOST_IDS_PER_STATEMENT]))
        )


def distinct_values(sql: Connection, column: sa.Column[Any]) -> list[Any]:
    """The different values of a column in order. With an index on the column this takes one step
    for each value, however many rows there are."""
    found: list[Any] = []
    smallest = sa.select(column).order_by(column).limit(1)
    while True:
        after = smallest if not found else smallest.where(column > found[-1])
        value = sql.execute(after).scalar()
        if value is None:
            return found
        found.append(value)


def timestamp() -> str:
    """The present time, in the form in which it is stored."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
