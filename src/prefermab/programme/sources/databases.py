"""Reads tables from databases: SQLite files, and PostgreSQL by URL."""

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import polars as pl

from prefermab.errors import InputError, brief, list_names, optional
from prefermab.files import check_file
from prefermab.programme.sources.address import Address
from prefermab.programme.sources.cleaning import check_column_names, clean, plain_numbers

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
        frame = pl.read_database(f"SELECT * FROM {quoted}", connection, infer_schema_length=None)
    check_column_names(frame.columns, address.shown)
    frame = clean(frame)
    if as_text:
        return frame.with_columns(pl.selectors.numeric().cast(pl.String))
    return plain_numbers(frame)


@contextlib.contextmanager
def open_read_only(address: Address) -> Iterator[Any]:
    """Opens a connection that can only read; errors of the database become `InputError`."""
    connect = _sqlite if address.kind == "sqlite" else _postgresql
    connection, errors = connect(address)
    try:
        yield connection
    except (*errors, pl.exceptions.PolarsError) as error:
        why = str(error).strip().partition("\n")[0].rstrip(".")
        raise InputError(
            f"{address.shown}: the database cannot be read: {brief(why, 160)}."
        ) from None
    finally:
        connection.close()


def _sqlite(address: Address) -> tuple[Any, tuple[type[Exception], ...]]:
    check_file(address.path, address.shown)
    uri = f"{address.path.resolve().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True), (sqlite3.Error,)


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
