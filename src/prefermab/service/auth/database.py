"""Tables of the service, and transactions on them.

The tables are in the programme's own database; the scripts in `migrations` create them. Times are
seconds since 1970. Sessions, tokens and links are random texts of 256 bits, stored as SHA-256;
passwords are hashed by argon2. Ids of people are stored as text.
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

from prefermab.programme.store.audit import put_audit
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
"""Sign-ins that failed or are in progress: one row for each limit in `signing.LIMITS`, with a hash
of the name and address that it counts."""

KNOWN_ADDRESSES = _table("known_addresses", "who", who=Text, name=Text, at=Double)
"""Addresses from which users have signed in, as hashes of name and address."""

ROUND_MARKS = _table(
    "marks", "round person",
    round=BigInteger, person=Text, action=Text, reached=Boolean, why=Text, name=Text, at=Double,
)  # fmt: skip
"""What was done so far in a round. When the round is recorded, its marks are removed."""

LATE_MARKS = _table(
    "late", "round person",
    round=BigInteger, person=Text, action=Text, reached=Boolean, why=Text, name=Text, at=Double,
    came=Double,
)  # fmt: skip
"""Marks that arrived after their round was recorded, until somebody decides on them."""

APPROVALS = _table(
    "approvals", "round attempt", round=BigInteger, attempt=BigInteger, name=Text, at=Double
)
"""Lists that were approved, and by whom."""

JOBS = _table(
    "jobs", "number",
    number=BigInteger, kind=Text, asked=Text, name=Text, status=Text, share=Double, doing=Text,
    answer=Text, process=Text, made=Double, beat=Double, ended=Double,
)  # fmt: skip

UPLOADS = _table(
    "uploads", "secret", secret=Text, name=Text, kind=Text, file=Text, data=LargeBinary, at=Double
)
"""Uploaded tables that wait for confirmation."""


SERVICE_SCRIPTS = Path(__file__).parents[1] / "migrations"
SERVICE_VERSION_TABLE, NEWEST_SERVICE_VERSION = "service_version", "s010"


class ClosedWhenDropped:
    """A holder that closes its value when the holder is dropped.

    A connection must be closed by the thread that opened it. A thread that ends drops what it has
    in `threading.local`, so a holder kept there closes the connection in the right thread.
    """

    def __init__(self, value: Any):
        self.value = value

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.value.close()


class Records:
    """The tables of the service, through one connection for each thread."""

    def __init__(self, place: str, wait: float):
        self.place, self.wait, self.local = place, wait, threading.local()
        with self.reading() as sql:
            ready = version_of(sql, SERVICE_VERSION_TABLE) == NEWEST_SERVICE_VERSION
        if not ready:
            with self.writing() as sql:
                upgrade(sql, SERVICE_SCRIPTS, SERVICE_VERSION_TABLE, self._database().shown)
                put_audit(sql, "the service", "migrate", details={"to": NEWEST_SERVICE_VERSION})

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes, committed as a whole or not at all. Only one runs at a time,
        over all processes."""
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
        known: ClosedWhenDropped | None = getattr(self.local, "database", None)
        if known is None:
            known = self.local.database = ClosedWhenDropped(
                Database(self.place, self.wait, begin=False)
            )
        return known.value
