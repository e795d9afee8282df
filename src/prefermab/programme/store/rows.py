"""Many rows at once, written and found with few statements on either database."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import polars as pl
import sqlalchemy as sa
from sqlalchemy import Connection, Table
from sqlalchemy.exc import DBAPIError

MOST_BY_ID = 2000
"""Rows of more people than this are found by reading the whole table."""

FEWEST_ROWS_TO_COPY = 1000
"""Rows from which on PostgreSQL gets them by COPY."""

TYPES = {sa.BigInteger: pl.Int64, sa.Double: pl.Float64}

MOST_IDS_PER_STATEMENT = 500
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
    kinds = {name: table.c[name].type for name in columns}
    encoders = {name: kind.bind_processor(sql.dialect) for name, kind in kinds.items()}
    given = {
        name: list(map(encode, columns[name])) if (encode := encoders[name]) else columns[name]
        for name in columns
    }
    # Rows keep their order, which numbers people.
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
    """Sends rows to a temporary table of PostgreSQL, `given`, with their place.

    COPY reads CSV as polars writes it: texts in quotation marks, and nothing for null.
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
    """The errors of the database's driver."""
    return sql.dialect.loaded_dbapi.Error  # type: ignore[union-attr]


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
    for start in range(0, len(ids), MOST_IDS_PER_STATEMENT):
        yield from fetch(
            sql, statement.where(column.in_(ids[start : start + MOST_IDS_PER_STATEMENT]))
        )


def timestamp() -> str:
    """The time now, as it is stored."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
