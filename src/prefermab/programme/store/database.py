"""The database of a programme: its connection, transactions and locks, on SQLite or PostgreSQL.

On SQLite a programme is one file, with a write-ahead log beside it while it is open. A reader sees
one state of it without waiting for writers, even while a plan for many people is read or stored.
With synchronous=EXTRA committed data is on the disk. It is moved from the log to the file at once,
or with the next change if somebody is reading; the last connection that closes removes the log.

On PostgreSQL a programme is a schema of a database, with the name of the programme. A writer holds
an advisory lock of the programme until its transaction ends, so there is one writer at a time; a
reader sees one state of the programme and does not wait for writers.

Other tables beside those of a programme, such as the users of a service, are created by Alembic
scripts (`migrating.upgrade`). They are written within `Database.writing`, or with
`Database.engine`, which does not take the programme's lock.
"""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import filelock
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from prefermab.errors import BusyError, DamageError, InputError, StorageError, brief
from prefermab.programme.store import migrating
from prefermab.programme.store.audit import note_rest
from prefermab.programme.store.changes import Changes, note_statements
from prefermab.programme.store.connections import (
    LOCK,
    READING,
    engine_for,
    lock_writers,
    make_file_and_folder,
    parse_place,
    translate_error,
    use_write_ahead_log,
)
from prefermab.programme.store.rows import CHANGES_KEY

UNREADABLE = "a text in it cannot be read"


class Database:
    """The open database of a programme. Every change is made within `writing`."""

    def __init__(
        self, place: str | Path, wait: float, *, begin: bool = True, who: str | None = None
    ):
        self.place, self.wait = parse_place(place), wait
        path = self.place.path
        if path is not None and not begin and not path.is_file():
            raise migrating.no_programme_error(self.place.shown)
        if path is not None:
            make_file_and_folder(path)
        self.engine = engine_for(self.place, wait)
        """SQLAlchemy's engine: it opens a new connection each time, to this programme's tables."""
        note_statements(self.engine)
        self._thread = threading.get_ident()
        with self._translated_errors():
            self._connection = self.engine.connect()
        try:
            self._prepare(begin, who)
        except BaseException:
            self._connection.close()
            raise

    @property
    def shown(self) -> str:
        """The place in messages: a path, or an address without its password."""
        return self.place.shown

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed as a whole or not at all; no other process can write
        meanwhile. Within another transaction it becomes a part of that one."""
        if self._open_connection().in_transaction():
            assert not self._connection.get_execution_options()[READING], "it only reads"
            yield self._connection
            return
        with self._transaction(reading=False) as sql:
            if sql.dialect.name == "postgresql":
                self._limit_waiting(sql)
                lock_writers(sql)
            yield sql

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction in which all reads see the same state of the programme. Within another
        transaction it becomes a part of that one."""
        if self._open_connection().in_transaction():
            yield self._connection
            return
        with self._transaction(reading=True) as sql:
            if sql.dialect.name == "postgresql":
                sql.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield sql

    @contextlib.contextmanager
    def planning(self) -> Iterator[None]:
        """A lock for making a plan: other processes can read and write meanwhile, but not plan."""
        if self.place.path is None:
            self._lock_planning("pg_advisory_lock")
            try:
                yield
            finally:
                # If the connection is lost, the server has released its locks.
                with contextlib.suppress(DBAPIError):
                    self._lock_planning("pg_advisory_unlock")
            return
        self._open_connection()
        lock = filelock.FileLock(f"{self.place.path}-plan", timeout=self.wait, mode=0o600)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise BusyError(
                f"{self.shown} is in use by another process, which did not finish its plan within "
                f"{self.wait:g} seconds; nothing was changed."
            ) from None
        try:
            yield
        finally:
            # A process that waits for this file can then plan at the same time as one that creates
            # a new file. Work is done twice, but only one plan is stored.
            with contextlib.suppress(OSError):
                Path(lock.lock_file).unlink()
            lock.release()

    def close(self) -> None:
        """Closes the connection."""
        self._check_thread()
        with self._translated_errors():
            self._connection.close()
            self.engine.dispose()

    def _lock_planning(self, take: str) -> None:
        with self._transaction(reading=False) as sql:
            self._limit_waiting(sql)
            sql.exec_driver_sql(LOCK.format(take=take, what="plan"))

    def _limit_waiting(self, sql: Connection) -> None:
        milliseconds = max(1, round(1000 * self.wait))
        sql.exec_driver_sql("SELECT set_config('lock_timeout', %s, true)", (f"{milliseconds}ms",))

    @contextlib.contextmanager
    def _transaction(self, *, reading: bool) -> Iterator[Connection]:
        sql, ending = self._open_connection(), False
        try:
            sql.execution_options(**{READING: reading})
            sql.info[CHANGES_KEY] = None if reading else Changes()
            with sql.begin():
                yield sql
                if not reading:
                    note_rest(sql)
                ending = True
        except (DBAPIError, sqlite3.Error, OverflowError, UnicodeEncodeError) as error:
            raise translate_error(error, self.place, self.wait, ending=ending) from None
        except DamageError as error:
            raise self._damaged(str(error)) from None
        except UnicodeDecodeError:
            raise self._damaged(UNREADABLE) from None

    def _damaged(self, what: str) -> StorageError:
        return StorageError(
            f"{self.shown} is damaged, or was changed by something else than prefermab: "
            f"{brief(what, 300)}; `prefermab audit verify` tells more."
        )

    @contextlib.contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except (DBAPIError, sqlite3.Error) as error:
            raise translate_error(error, self.place, self.wait, ending=False) from None
        except UnicodeDecodeError:
            raise self._damaged(UNREADABLE) from None

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            raise InputError(
                "a Programme belongs to the thread that opened it: open one in each thread."
            )

    def _open_connection(self) -> Connection:
        self._check_thread()
        if self._connection.closed:
            raise InputError("the programme is closed.")
        return self._connection

    def _prepare(self, begin: bool, who: str | None) -> None:
        """Creates or migrates the tables if needed; only then other processes have to wait."""
        with self.reading() as sql:
            ready = migrating.is_ready(sql)
        if not ready:
            with self.writing() as sql:
                migrating.prepare_tables(sql, self.place, begin=begin, who=who)
        if self.place.path is not None:
            with self._translated_errors():
                use_write_ahead_log(self._connection)
