"""The file of a programme: its tables, and transactions that hold or never happened.

The journal is SQLite's rollback journal with synchronous=EXTRA: what was committed is on the disk,
and between two calls the whole programme is one file that can be copied as it is. A write-ahead
log would let more processes write at once, which a programme of a few calls a week does not need,
and would keep its latest pages in a second file.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from prefermab.errors import BusyError, InputError, PrefermabError, StorageError
from prefermab.programme.store.migrations import migrate

APPLICATION = 0x70726D62
"""Marks a SQLite file as a programme."""

VERSION = 2
"""Of the tables; a file with a higher one was written by a later prefermab, and a file with a lower
one is migrated when it is opened."""

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE models (
    number INTEGER PRIMARY KEY, hash TEXT NOT NULL, name TEXT NOT NULL, since INTEGER NOT NULL
);
CREATE TABLE columns (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL
);
CREATE TABLE people (
    number INTEGER PRIMARY KEY, id NOT NULL UNIQUE, details TEXT NOT NULL
);
CREATE TABLE stays (
    id NOT NULL REFERENCES people (id),
    joined INTEGER NOT NULL,
    gone INTEGER CHECK (gone >= joined),
    PRIMARY KEY (id, joined)
) WITHOUT ROWID;
CREATE UNIQUE INDEX one_stay ON stays (id) WHERE gone IS NULL;
CREATE TABLE states (
    id NOT NULL REFERENCES people (id),
    round INTEGER NOT NULL,
    state NOT NULL,
    PRIMARY KEY (id, round)
) WITHOUT ROWID;
CREATE TABLE plans (
    round INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('planned', 'recorded', 'superseded')),
    model TEXT NOT NULL,
    asked TEXT NOT NULL,
    versions TEXT NOT NULL,
    made TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%SZ', 'now')),
    closed TEXT,
    facts TEXT NOT NULL,
    inputs BLOB NOT NULL,
    output BLOB NOT NULL,
    PRIMARY KEY (round, attempt)
);
CREATE UNIQUE INDEX one_plan ON plans (round) WHERE status <> 'superseded';
CREATE TABLE actions (
    id NOT NULL REFERENCES people (id),
    round INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    action TEXT NOT NULL,
    cost REAL NOT NULL,
    reached INTEGER NOT NULL DEFAULT 1 CHECK (reached IN (0, 1)),
    PRIMARY KEY (id, round),
    FOREIGN KEY (round, attempt) REFERENCES plans (round, attempt)
) WITHOUT ROWID;
CREATE INDEX actions_of_round ON actions (round);
"""


class Database:
    """An open file of a programme. Every change is made within `writing`."""

    def __init__(self, place: str | Path, wait: float, *, begin: bool = True):
        self.path, self.wait = checked(place), wait
        if not begin and not self.path.is_file():
            raise self._nothing_there()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.sql = sqlite3.connect(self.path, timeout=wait, isolation_level=None)
        except OSError as error:
            raise StorageError(f"cannot open {self.path}: {error.strerror or error}.") from None
        except sqlite3.Error as error:
            raise self._trouble(error) from None
        try:
            self._prepare(begin)
        except BaseException:
            self.sql.close()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other process can write beside: all of it holds, or nothing."""
        yield from self._transaction("BEGIN IMMEDIATE")

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Everything read within is of one moment."""
        yield from self._transaction("BEGIN")

    def close(self) -> None:
        """Lets go of the file."""
        try:
            self.sql.close()
        except sqlite3.Error as error:
            raise self._trouble(error) from None

    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        try:
            self.sql.execute(begin)
            try:
                yield self.sql
                self.sql.execute("COMMIT")
            finally:
                if self.sql.in_transaction:
                    self.sql.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._trouble(error) from None

    def _prepare(self, begin: bool) -> None:
        try:
            for pragma in ("journal_mode = DELETE", "synchronous = EXTRA", "foreign_keys = ON"):
                self.sql.execute(f"PRAGMA {pragma}")
        except sqlite3.Error as error:
            raise self._trouble(error) from None
        with self.writing() as sql:
            known = sql.execute("PRAGMA application_id").fetchone()[0]
            version = sql.execute("PRAGMA user_version").fetchone()[0]
            tables = sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if known == 0 and version == 0 and tables == 0:
                if not begin:
                    raise self._nothing_there()
                for statement in TABLES.split(";\n"):
                    sql.execute(statement)
                sql.execute(f"PRAGMA application_id = {APPLICATION}")
                sql.execute(f"PRAGMA user_version = {VERSION}")
            elif known != APPLICATION:
                raise InputError(f"{self.path} is a SQLite file, but not of a programme.")
            elif version > VERSION:
                raise InputError(
                    f"{self.path} has tables of version {version}, and this prefermab reads "
                    f"version {VERSION}: it was written by a later one."
                )
            elif version < VERSION:
                migrate(sql, version)
                sql.execute(f"PRAGMA user_version = {VERSION}")

    def _nothing_there(self) -> InputError:
        return InputError(
            f"there is no programme at {self.path}; Programme(path, model), or `prefermab "
            "programme begin`, begins one."
        )

    def _trouble(self, error: sqlite3.Error) -> PrefermabError:
        """What SQLite complains of, as a sentence."""
        told, code = str(error), str(getattr(error, "sqlite_errorname", ""))
        if "same thread" in told:
            return InputError(
                "a Programme belongs to the thread that opened it: open one in each thread."
            )
        if "closed database" in told:
            return InputError("the programme is closed.")
        if "locked" in told:
            return BusyError(
                f"{self.path} is in use by another process, which did not finish within "
                f"{self.wait:g} seconds; nothing was changed."
            )
        if "not a database" in told:
            return InputError(f"{self.path} is not a SQLite file; expected one of a programme.")
        if "readonly" in told and code != "SQLITE_READONLY_DIRECTORY":
            return StorageError(f"{self.path} is read-only; expected a file that can be written.")
        if "readonly" in told or "unable to open" in told:
            return StorageError(f"{self.path} cannot be written: expected a folder that can be.")
        if "full" in told:
            return StorageError(f"{self.path}: the disk is full; nothing was changed.")
        if "malformed" in told:
            return StorageError(f"{self.path} is damaged: SQLite cannot read all of it.")
        return StorageError(f"{self.path}: SQLite says '{told}'; nothing was changed.")


def checked(place: str | Path) -> Path:
    """The path of a file; an address of a database is none."""
    if "://" in str(place) or str(place).startswith("sqlite:"):
        raise InputError(f"expected the path of a file, such as calls.db, not '{place}'.")
    return Path(place)
