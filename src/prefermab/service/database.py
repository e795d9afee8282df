"""Transactions on the tables of the service, which stand beside those of the programme."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from prefermab.programme.store.database import Database
from prefermab.programme.store.migrating import upgrade, version_of

SCRIPTS = Path(__file__).parent / "migrations"
VERSION_TABLE, HEAD = "service_version", "s003"


class Kept:
    """Something that is closed when nobody has it any more.

    What a thread keeps in `threading.local` is dropped by that thread when it ends: so a connection
    is closed by the thread that opened it, as it must be.
    """

    def __init__(self, value: Any):
        self.value = value

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.value.close()


class Records:
    """The tables of the service. Each thread of a process has a connection of its own."""

    def __init__(self, place: str, wait: float):
        self.place, self.wait, self.local = place, wait, threading.local()
        with self.reading() as sql:
            ready = version_of(sql, VERSION_TABLE) == HEAD
        if not ready:
            with self.writing() as sql:
                upgrade(sql, SCRIPTS, VERSION_TABLE, self._database().shown)

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that changes something, committed as a whole or not at all. There is one
        at a time, whichever process it is of."""
        with self._database().writing() as sql:
            yield sql

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that only reads; all its reads see the same state."""
        with self._database().reading() as sql:
            yield sql

    def close(self) -> None:
        """Closes this thread's connection."""
        self.local.__dict__.pop("database", None)

    def _database(self) -> Database:
        known: Kept | None = getattr(self.local, "database", None)
        if known is None:
            known = self.local.database = Kept(Database(self.place, self.wait, begin=False))
        return known.value
