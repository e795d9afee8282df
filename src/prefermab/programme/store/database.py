"""The SQLite file of a programme: its tables, transactions and migrations.

The journal is SQLite's rollback journal with synchronous=EXTRA: committed data is on the disk, and
between two calls the whole programme is one file that can be copied. A write-ahead log would let
more processes write at once, which a programme with a few calls a week does not need, and would
keep its latest pages in a second file.
"""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from prefermab.errors import BusyError, InputError, PrefermabError, StorageError

APPLICATION = 0x70726D62
"""The application id that marks a SQLite file as a programme."""

VERSION = 4
"""Version of the tables. A file with a lower version is migrated when it is opened; one with a
higher version was written by a later prefermab."""

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
    layout TEXT,
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

DEVIATIONS = """
CREATE TABLE deviations (
    round INTEGER NOT NULL,
    id NOT NULL REFERENCES people (id),
    planned TEXT NOT NULL,
    done TEXT NOT NULL,
    allowed INTEGER NOT NULL CHECK (allowed IN (0, 1)),
    why TEXT,
    PRIMARY KEY (round, id)
) WITHOUT ROWID
"""


class Database:
    """The open file of a programme. Every change is made within `writing`."""

    def __init__(self, place: str | Path, wait: float, *, begin: bool = True):
        self.path, self.wait = check_path(place), wait
        if not begin and not self.path.is_file():
            raise self._no_programme()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.sql = sqlite3.connect(self.path, timeout=wait, isolation_level=None)
        except OSError as error:
            raise StorageError(f"cannot open {self.path}: {error.strerror or error}.") from None
        except sqlite3.Error as error:
            raise self._readable(error) from None
        try:
            self._prepare(begin)
        except BaseException:
            self.sql.close()
            raise

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is committed as a whole or not at all; no other process can write."""
        yield from self._transaction("BEGIN IMMEDIATE")

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction in which all reads see the same state of the file."""
        yield from self._transaction("BEGIN")

    def close(self) -> None:
        """Closes the file."""
        try:
            self.sql.close()
        except sqlite3.Error as error:
            raise self._readable(error) from None

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
            raise self._readable(error) from None

    def _prepare(self, begin: bool) -> None:
        try:
            for pragma in ("journal_mode = DELETE", "synchronous = EXTRA", "foreign_keys = ON"):
                self.sql.execute(f"PRAGMA {pragma}")
        except sqlite3.Error as error:
            raise self._readable(error) from None
        with self.writing() as sql:
            known = sql.execute("PRAGMA application_id").fetchone()[0]
            version = sql.execute("PRAGMA user_version").fetchone()[0]
            tables = sql.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if known == 0 and version == 0 and tables == 0:
                if not begin:
                    raise self._no_programme()
                for statement in [*TABLES.split(";\n"), DEVIATIONS]:
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
                for step in MIGRATIONS[version - 1 :]:
                    step(sql)
                sql.execute(f"PRAGMA user_version = {VERSION}")

    def _no_programme(self) -> InputError:
        return InputError(
            f"there is no programme at {self.path}; Programme(path, model), or `prefermab "
            "programme begin`, begins one."
        )

    def _readable(self, error: sqlite3.Error) -> PrefermabError:
        """An error of SQLite as one of ours, in one sentence."""
        text, code = str(error), str(getattr(error, "sqlite_errorname", ""))
        if "same thread" in text:
            return InputError(
                "a Programme belongs to the thread that opened it: open one in each thread."
            )
        if "closed database" in text:
            return InputError("the programme is closed.")
        if "locked" in text:
            return BusyError(
                f"{self.path} is in use by another process, which did not finish within "
                f"{self.wait:g} seconds; nothing was changed."
            )
        if "not a database" in text:
            return InputError(f"{self.path} is not a SQLite file; expected one of a programme.")
        if "readonly" in text and code != "SQLITE_READONLY_DIRECTORY":
            return StorageError(f"{self.path} is read-only; expected a file that can be written.")
        if "readonly" in text or "unable to open" in text:
            return StorageError(f"{self.path} cannot be written: expected a folder that can be.")
        if "full" in text:
            return StorageError(f"{self.path}: the disk is full; nothing was changed.")
        if "malformed" in text:
            return StorageError(f"{self.path} is damaged: SQLite cannot read all of it.")
        return StorageError(f"{self.path}: SQLite says '{text}'; nothing was changed.")


def check_path(place: str | Path) -> Path:
    """The path of a file; the address of a database is refused."""
    if "://" in str(place) or str(place).startswith("sqlite:"):
        raise InputError(f"expected the path of a file, such as calls.db, not '{place}'.")
    return Path(place)


def _add_reached(sql: sqlite3.Connection) -> None:
    """From version 1 to 2: adds whether an action reached its person; old ones count as reached."""
    sql.execute(
        "ALTER TABLE actions ADD COLUMN reached INTEGER NOT NULL DEFAULT 1 "
        "CHECK (reached IN (0, 1))"
    )
    stored = sql.execute("SELECT value FROM meta WHERE key = 'corrections'").fetchone()
    if stored is None:
        return
    corrections = json.loads(stored[0])
    for old in corrections:
        old["actions"] = [[*row, 1] for row in old["actions"]]
    sql.execute("UPDATE meta SET value = ? WHERE key = 'corrections'", (json.dumps(corrections),))


def _add_deviations(sql: sqlite3.Connection) -> None:
    """From version 2 to 3: adds who was not treated as planned; of past rounds that is unknown."""
    sql.execute(DEVIATIONS)
    last = sql.execute("SELECT max(round) FROM plans WHERE status = 'recorded'").fetchone()[0]
    sql.execute("INSERT INTO meta VALUES ('deviations_from', ?)", (json.dumps(1 + (last or 0)),))


def _add_layout(sql: sqlite3.Connection) -> None:
    """From version 3 to 4: adds how people and list of a plan are stored; old ones are whole."""
    sql.execute("ALTER TABLE plans ADD COLUMN layout TEXT")


MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    _add_reached, _add_deviations, _add_layout,
)  # fmt: skip
"""The first goes from version 1 to 2, and so on. They run in the transaction that opens the file:
if the process is killed meanwhile, the file stays as it was."""
