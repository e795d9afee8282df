"""Transactions on the tables of the service, in the database of the programme."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, OperationalError

from prefermab.errors import BusyError, InputError, StorageError
from prefermab.service.tables import METADATA

PRAGMAS = ("synchronous = EXTRA", "foreign_keys = ON")


class Records:
    """The tables of the service. All threads of a process share it."""

    def __init__(self, place: str, wait: float):
        if "://" not in place and not Path(place).is_file():
            raise InputError(
                f"there is no programme at {place}: `prefermab programme begin` begins one."
            )
        self.place, self.wait = place, wait
        self.engine = make_engine(place, wait)
        with self.writing() as sql:
            METADATA.create_all(sql)

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that changes something, committed as a whole or not at all."""
        with self._readable(), self.engine.connect() as sql:
            sql = sql.execution_options(prefermab_writes=True)
            with sql.begin():
                yield sql

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that only reads."""
        with self._readable(), self.engine.connect() as sql, sql.begin():
            yield sql

    def close(self) -> None:
        """Closes all connections."""
        self.engine.dispose()

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except OperationalError as error:
            if "locked" in str(error.orig) or "timeout" in str(error.orig).lower():
                raise BusyError(
                    f"the programme is in use by another process, which did not finish within "
                    f"{self.wait:g} seconds; nothing was changed."
                ) from None
            raise StorageError(f"the database says '{error.orig}'; nothing was changed.") from None
        except DBAPIError as error:
            raise StorageError(f"the database says '{error.orig}'; nothing was changed.") from None


def make_engine(place: str, wait: float) -> sa.Engine:
    """The engine of a file or an address."""
    if "://" in place:
        return sa.create_engine(place)
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=place), connect_args={"timeout": wait}
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin(sql: sa.Connection) -> None:
        writes = sql.get_execution_options().get("prefermab_writes")
        sql.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
