"""Reads tables from databases: SQLite files, and PostgreSQL by URL."""

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from typing import Any

import polars as pl

from prefermab.common.files import UNREADABLE, check_file
from prefermab.common.limits import most_unpacked, too_large
from prefermab.errors import InputError, brief, list_names, optional
from prefermab.programme.tables.address import Address
from prefermab.programme.tables.cleaning import check_column_names, clean, plain_numbers

QUOTE = '"'
BYTES_OF_CELL = 32
"""Bytes of a cell of SQLite while it is an object of Python, besides those of its text."""

LONGEST_VALUE, LONGEST_QUERY, STEPS_BETWEEN_LOOKS = 1 << 24, 120.0, 1_000_000
"""For SQLite: bytes of a value, seconds for a table, and its steps between looks at the clock."""

LIST_TABLES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') "
    "AND name NOT LIKE 'sqlite_%' ORDER BY name",
    "postgresql": "SELECT CASE table_schema WHEN 'public' THEN table_name "
    "ELSE table_schema || '.' || table_name END FROM information_schema.tables "
    "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1",
}


def read_database(address: Address, *, as_text: bool = False) -> pl.DataFrame:
    """Reads one table of a database, to which nothing is ever written."""
    with open_read_only(address) as connection:
        table = _choose_table(connection, address)
        quoted = ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))
        if address.kind == "sqlite":
            quoted = '"' + table.replace('"', '""') + '"'
            _count(connection, quoted, address)
        frame = pl.read_database(f"SELECT * FROM {quoted}", connection, infer_schema_length=None)
    check_column_names(frame.columns, address.shown)
    frame = clean(frame)
    if as_text:
        return frame.with_columns(pl.selectors.numeric().cast(pl.String))
    return plain_numbers(frame)


def _count(connection: sqlite3.Connection, table: str, address: Address) -> None:
    """Raises an error if a table holds too much: a view of a line can make any number of rows."""
    most = most_unpacked(address.path.stat().st_size)
    names = [one[0] for one in connection.execute(f"SELECT * FROM {table} LIMIT 0").description]
    check_column_names(names, address.shown)
    rows = most // (BYTES_OF_CELL * len(names)) + 1
    lengths = ", ".join(f'total(length("{name.replace(QUOTE, 2 * QUOTE)}"))' for name in names)
    query = f"SELECT count(*), {lengths} FROM (SELECT * FROM {table} LIMIT {rows})"
    found, *texts = connection.execute(query).fetchone()
    if found * len(names) * BYTES_OF_CELL + sum(texts) > most:
        raise too_large(address.shown, most, "export it as CSV or Parquet")


@contextlib.contextmanager
def open_read_only(address: Address) -> Iterator[Any]:
    """Opens a connection that can only read; errors of the database become `InputError`."""
    connect = _sqlite if address.kind == "sqlite" else _postgresql
    connection, errors = connect(address)
    try:
        yield connection
    except (*errors, *UNREADABLE, UnicodeError) as error:
        why = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError(
            f"{address.shown}: the database cannot be read: {brief(why, 160)}."
        ) from None
    finally:
        connection.close()


def _sqlite(address: Address) -> tuple[Any, tuple[type[Exception], ...]]:
    check_file(address.path, address.shown)
    uri = f"{address.path.resolve().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True)
    # What a view computes can be large, and take for ever.
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
    end = time.monotonic() + LONGEST_QUERY
    connection.set_progress_handler(lambda: time.monotonic() > end, STEPS_BETWEEN_LOOKS)
    return connection, (sqlite3.Error,)


def _postgresql(address: Address) -> tuple[Any, tuple[type[Exception], ...]]:
    psycopg = optional("psycopg", "postgresql", f"{address.shown}: PostgreSQL")
    try:
        connection = psycopg.connect(address.place, connect_timeout=10)
        connection.read_only = True
    except psycopg.Error as error:
        why = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError(f"{address.shown}: no connection: {brief(why, 160)}.") from None
    return connection, (psycopg.Error,)


def _choose_table(connection: Any, address: Address) -> str:
    cursor = connection.cursor()
    cursor.execute(LIST_TABLES[address.kind])
    tables = [name for (name,) in cursor.fetchall()]
    if address.part is not None:
        if address.part in tables:
            return address.part
        raise InputError(
            f"{address.shown}: there is no table '{address.part}'; found "
            f"{list_names(tables) or 'none'}."
        )
    if len(tables) != 1:
        raise InputError(
            f"{address.shown}: it has the tables {list_names(tables) or 'none'}; write which one "
            f"after the database, such as #{tables[0] if tables else 'visits'}."
        )
    return tables[0]
