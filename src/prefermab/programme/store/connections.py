"""Addresses of programmes, connections to the two databases, and clear messages for their errors.

A programme is a file, or has a name in a PostgreSQL database:

    calls.db                                      a SQLite file
    postgresql://anna@db.example.org/health#calls   the programme `calls` of a database

Messages show an address without its password and its settings.
"""

import contextlib
import dataclasses
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from prefermab.common.files import make_private_file
from prefermab.errors import (
    BusyError,
    InputError,
    PrefermabError,
    StorageError,
    brief,
    optional,
)

SCHEMES = ("postgresql+psycopg", "postgresql", "postgres")
EXAMPLE = "postgresql://anna@db.example.org/health#calls"
PROGRAMME_NAME = re.compile(r"(?!pg_|information_schema$|public$)[a-z][a-z0-9_]{0,47}")

READING = "reading"
"""The execution option of connections that only read; on SQLite these take no lock."""

LOCK = "SELECT {take}(hashtextextended('prefermab {what} ' || current_setting('search_path'), 0))"
ROOM_NEEDED = 1 << 16
"""Bytes that SQLite needs on the disk to open a file: its shared memory has half as many."""

PRAGMAS = ("synchronous = EXTRA", "wal_autocheckpoint = 1", "foreign_keys = ON")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a programme is: a path, or the address of a database and a name in it."""

    path: Path | None
    url: URL | None = None
    name: str = ""

    @property
    def shown(self) -> str:
        """The place in messages, never with a password."""
        if self.url is None:
            return str(self.path)
        url = self.url.set(drivername="postgresql", query={})
        return f"{url.render_as_string(hide_password=True)}#{self.name}"

    def without_password(self, text: str) -> str:
        """A message of the database, with *** for the password if it holds one."""
        secret = None if self.url is None else self.url.password
        return text.replace(str(secret), "***") if secret else text


def parse_place(place: str | Path) -> Place:
    """Parses a place as a user writes it: a path or an address.

    >>> from prefermab.programme.store.connections import parse_place
    >>> parse_place("postgresql://anna:secret@localhost/health#calls").shown
    'postgresql://anna:***@localhost/health#calls'
    """
    text = str(place)
    scheme, colon, _ = text.partition("://")
    if not colon and not text.startswith(("sqlite:", *(f"{one}:" for one in SCHEMES))):
        return Place(Path(place))
    if not colon or scheme not in SCHEMES:
        raise InputError(
            f"expected the path of a file, such as calls.db, or an address, such as {EXAMPLE}, "
            f"not '{brief(text.partition(':')[0])}:…'."
        )
    address, mark, name = text.rpartition("#")
    if not mark:
        raise InputError(
            f"the address of the database names no programme; write one after it, as in {EXAMPLE}."
        )
    if not PROGRAMME_NAME.fullmatch(name):
        raise InputError(
            f"a programme in a database has a name of at most 48 small letters, digits and _, "
            f"such as calls, not '{brief(name)}'."
        )
    return Place(None, _url(address), name)


def _url(address: str) -> URL:
    try:
        url = make_url(address).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        raise InputError(
            f"the address of the database cannot be read; expected {EXAMPLE}."
        ) from None
    given: dict[str, Any] = dict(url.query)
    secret = given.pop("password", None)
    if isinstance(secret, str):
        url = url.set(password=secret)
    if not url.database and "dbname" not in given:
        raise InputError(f"the address names no database; expected one as in {EXAMPLE}.")
    return url.set(query=given)


def engine_for(place: Place, wait: float) -> Engine:
    """A SQLAlchemy engine for a place, which does not connect yet."""
    return sqlite_engine(place, wait) if place.path is not None else postgresql_engine(place)


def sqlite_engine(place: Place, wait: float) -> Engine:
    """An engine for a SQLite file: `begin` locks the file, unless the connection only reads."""
    assert place.path is not None
    path: Path = place.path

    def connect() -> sqlite3.Connection:
        # When a thread ends, another thread may have to close its connection.
        given: Any = {"timeout": wait, "isolation_level": None, "check_same_thread": False}
        # With a write-ahead log even readers create files beside the database. If the folder cannot
        # be written or the disk is full, and nobody has the file open, it is complete and can be
        # read without them.
        log = Path(f"{path}-wal")
        alone = path.exists() and (not log.exists() or not log.stat().st_size)
        if not (alone and not os.access(path.parent, os.W_OK)):
            with contextlib.suppress(OSError):
                make_private_file(path)
            connection = sqlite3.connect(path, **given)
            if not alone or can_read(connection):
                return connection
            connection.close()
        return sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True, **given)

    # Transactions are always ended, so closing a connection never has to roll back.
    engine = create_engine(
        "sqlite://", creator=connect, poolclass=NullPool, pool_reset_on_return=None
    )

    def prepare(connection: Any, _: object) -> None:
        try:
            for pragma in PRAGMAS:
                connection.execute(f"PRAGMA {pragma}")
        except sqlite3.Error:
            connection.close()
            raise

    def begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get(READING)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


def can_read(connection: sqlite3.Connection) -> bool:
    """Whether a file can be read; not if its disk has no place for the files beside it."""
    try:
        connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
    except sqlite3.OperationalError as error:
        name = str(getattr(error, "sqlite_errorname", ""))
        return not name.startswith(("SQLITE_IOERR", "SQLITE_FULL", "SQLITE_CANTOPEN"))
    except sqlite3.Error:
        pass  # it is told where it is read
    return True


def use_write_ahead_log(sql: Connection) -> None:
    """Switches a SQLite file to a write-ahead log, so that readers and writers do not wait for each
    other. A file that cannot be written stays as it is."""
    driver: Any = sql.connection.driver_connection
    if driver.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        with contextlib.suppress(sqlite3.OperationalError):
            driver.execute("PRAGMA journal_mode = WAL")


def postgresql_engine(place: Place) -> Engine:
    """An engine for a PostgreSQL database; it uses the tables of the programme's schema."""
    assert place.url is not None
    given = {"connect_timeout": 10, "application_name": "prefermab"}
    given = {name: value for name, value in given.items() if name not in place.url.query}
    optional("psycopg", "postgresql", f"{place.shown}: PostgreSQL")
    engine = create_engine(place.url, connect_args=given, poolclass=NullPool)

    def prepare(connection: Any, _: object) -> None:
        # Committed data must be on the disk, even if the server's default is otherwise.
        connection.execute(
            "SELECT set_config('search_path', %s, false), set_config('synchronous_commit', 'on', "
            "false) WHERE current_setting('synchronous_commit') = 'off' "
            "UNION ALL SELECT set_config('search_path', %s, false), ''",
            (place.name, place.name),
        )
        connection.commit()

    event.listen(engine, "connect", prepare)
    return engine


def translate_error(
    error: DBAPIError | sqlite3.Error | OverflowError | UnicodeEncodeError,
    place: Place,
    wait: float,
    *,
    ending: bool,
) -> PrefermabError:
    """Converts an error of a database into an error of ours with one clear sentence.

    `ending` is true if it occurred while a transaction was committed.
    """
    if isinstance(error, sqlite3.Error):
        return sqlite_error(error, place, wait)
    # SQLite cannot store half of a surrogate pair, and PostgreSQL no NUL either.
    if isinstance(error, UnicodeEncodeError) or "NUL (0x00)" in str(getattr(error, "orig", "")):
        return InputError(f"{place.shown}: a text has a character that cannot be stored.")
    if isinstance(error, OverflowError) or getattr(error.orig, "sqlstate", None) == "22003":
        return InputError(f"{place.shown}: a number is too large to be stored or looked for.")
    if isinstance(error.orig, sqlite3.Error):
        return sqlite_error(error.orig, place, wait)
    return postgresql_error(error, place, wait, ending=ending)


def sqlite_error(error: sqlite3.Error, place: Place, wait: float) -> PrefermabError:
    """Converts an error of SQLite."""
    text, code = str(error), str(getattr(error, "sqlite_errorname", ""))
    path = place.shown
    if "locked" in text:
        return BusyError(
            f"{path} is in use by another process, which did not finish within "
            f"{wait:g} seconds; nothing was changed."
        )
    if "not a database" in text:
        return InputError(f"{path} is not a SQLite file; expected the file of a programme.")
    if "readonly" in text and code != "SQLITE_READONLY_DIRECTORY":
        return StorageError(f"{path} is read-only; expected a file that can be written.")
    if "readonly" in text or "unable to open" in text:
        return StorageError(f"{path} cannot be written: expected a folder that can be written to.")
    if "full" in text or ("I/O error" in text and is_full(place.path)):
        return StorageError(f"{path}: the disk is full; nothing was changed.")
    if "malformed" in text:
        return StorageError(f"{path} is damaged: SQLite cannot read all of it.")
    return StorageError(f"{path}: SQLite says '{text}'; nothing was changed.")


def is_full(path: Path | None) -> bool:
    """Whether the disk has no room for the files that SQLite makes beside a database."""
    if path is None or not hasattr(os, "statvfs"):
        return False
    with contextlib.suppress(OSError):
        disk = os.statvfs(path.parent)
        return disk.f_bavail * disk.f_frsize < ROOM_NEEDED
    return False


def postgresql_error(
    error: DBAPIError, place: Place, wait: float, *, ending: bool
) -> PrefermabError:
    """Converts an error of PostgreSQL; details of rows are left out, since rows are people."""
    code = getattr(error.orig, "sqlstate", None) or ""
    text = getattr(getattr(error.orig, "diag", None), "message_primary", None) or error.orig
    lines = [line for line in str(text).strip().splitlines() if line] or ["nothing"]
    first = lines[0].removeprefix("connection failed: ").strip().rstrip(".")
    why = brief(place.without_password(first), 200)
    if code in ("55P03", "57014", "40P01", "40001"):
        return BusyError(
            f"{place.shown} is in use by another process, which did not finish within "
            f"{wait:g} seconds; nothing was changed."
        )
    if code == "28P01" or "authentication failed" in why or "no password supplied" in why:
        return InputError(f"{place.shown}: the server refuses this user or password ({why}).")
    if code == "3D000" or ("database" in why and "does not exist" in why):
        return InputError(f"{place.shown}: there is no such database ({why}).")
    if code == "42501":
        return InputError(f"{place.shown}: this user may not do that ({why}).")
    if code.startswith("53"):
        return StorageError(f"{place.shown}: the server is out of resources ({why}).")
    if error.connection_invalidated or code in ("57P01", "57P02", "57P03") or not code:
        if ending:
            return StorageError(
                f"{place.shown}: the connection was lost during a commit: check whether the change "
                "was stored before you make it again."
            )
        return StorageError(f"{place.shown}: no connection ({why}); nothing was changed.")
    return StorageError(f"{place.shown}: PostgreSQL says '{why}'; nothing was changed.")


def make_file_and_folder(path: Path) -> None:
    """Makes the folder of a new file, and the file, which only its owner can read: SQLite gives the
    files beside it the same mode."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if os.path.isdir(path):  # noqa: PTH112
            raise IsADirectoryError(21, "it is a folder")
        with contextlib.suppress(OSError):  # SQLite says why
            make_private_file(path)
    except OSError as error:
        raise StorageError(f"cannot open {path}: {error.strerror or error}.") from None


def lock_writers(sql: Connection) -> None:
    """Takes the writers' lock of a programme until the transaction ends. On SQLite a transaction
    that writes has it already. Taking it twice does no harm."""
    if sql.dialect.name == "postgresql":
        sql.exec_driver_sql(LOCK.format(take="pg_advisory_xact_lock", what="write"))
