"""Tables of the service, and transactions on them.

They stand beside those of the programme in the same database; the scripts in `migrations` make
them.

Times are seconds since 1970. Secrets (sessions, tokens, links) are stored as SHA-256 of a random
text of 256 bits; passwords by argon2. A person's id is stored as text.
"""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    LargeBinary,
    MetaData,
    Table,
    Text,
)
from sqlalchemy.types import TypeEngine

from prefermab.programme.store.database import Database
from prefermab.programme.store.migrating import upgrade, version_of

SERVICE_METADATA = MetaData()


def _table(name: str, key: str, /, **types: type[TypeEngine[Any]]) -> Table:
    keys = key.split()
    columns = [Column(one, kind, primary_key=one in keys) for one, kind in types.items()]
    return Table(name, SERVICE_METADATA, *columns)


USERS = _table("users", "name", name=Text, role=Text, password=Text, active=Boolean, made=Double)
LINKS = _table("links", "secret", secret=Text, name=Text, role=Text, ends=Double)
"""One-time links to set a password: for a user, or without a name for the first admin."""

SESSIONS = _table("sessions", "secret", secret=Text, name=Text, begun=Double, seen=Double)
TOKENS = _table(
    "tokens", "secret",
    secret=Text, number=BigInteger, label=Text, name=Text, scopes=Text, made=Double, ends=Double,
)  # fmt: skip
ATTEMPTS = _table("attempts", "", who=Text, at=Double)
"""Sign-ins that failed, or are under way: one row for each thing that is limited."""

ROUND_MARKS = _table(
    "marks", "round person",
    round=BigInteger, person=Text, action=Text, reached=Boolean, why=Text, name=Text, at=Double,
)  # fmt: skip
"""What was done so far in a round that is not recorded yet; then its marks are removed."""

LATE = _table(
    "late", "round person",
    round=BigInteger, person=Text, action=Text, reached=Boolean, why=Text, name=Text, at=Double,
    came=Double,
)  # fmt: skip
"""Marks that came after their round was recorded, until somebody decides on them."""

APPROVALS = _table(
    "approvals", "round attempt", round=BigInteger, attempt=BigInteger, name=Text, at=Double
)
"""Lists that a planner has approved."""

JOBS = _table(
    "jobs", "number",
    number=BigInteger, kind=Text, asked=Text, name=Text, status=Text, share=Double, doing=Text,
    answer=Text, process=Text, made=Double, beat=Double, ended=Double,
)  # fmt: skip

UPLOADS = _table(
    "uploads", "secret", secret=Text, name=Text, kind=Text, file=Text, data=LargeBinary, at=Double
)
"""Tables that somebody looks at before they are imported."""


SERVICE_SCRIPTS = Path(__file__).parent / "migrations"
SERVICE_VERSION_TABLE, NEWEST_SERVICE_VERSION = "service_version", "s003"


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
            ready = version_of(sql, SERVICE_VERSION_TABLE) == NEWEST_SERVICE_VERSION
        if not ready:
            with self.writing() as sql:
                upgrade(sql, SERVICE_SCRIPTS, SERVICE_VERSION_TABLE, self._database().shown)

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
