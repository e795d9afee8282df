"""The audit log: who changed what, when and why, in rows that are chained by hashes.

Each change of a programme adds one row, in the transaction of the change. The hash of a row covers
its values and the hash of the row before, so a row that is changed, removed or inserted later is
detected. Its digest covers the rows of other tables that the change wrote (`changes.py`), and
`verifying.py` compares these tables with them. Whoever can write to the database can also make a
whole new log; that is detected only if the hash of a row, such as the last, was kept elsewhere.
"""

import getpass
import hashlib
import json
import os
from collections.abc import Iterable
from typing import Any

import msgspec
import polars as pl
import sqlalchemy as sa
from sqlalchemy import Connection

from prefermab.errors import InputError, brief
from prefermab.programme.store.changes import store_changes
from prefermab.programme.store.connections import lock_writers
from prefermab.programme.store.covered import HEAD_KEY
from prefermab.programme.store.rows import CHANGES_KEY, fetch, put_rows, select, timestamp
from prefermab.programme.store.schema import AUDIT, META

ROWS = "rows:"
"""Begins the digest of an entry that stores rows of other tables; those of 0.2.0 have none."""

LONGEST_REASON = 2000
"""The most characters of a reason."""


def put_audit(
    sql: Connection,
    who: str | None,
    what: str,
    why: str | None = None,
    details: dict[str, Any] | None = None,
) -> str:
    """Adds a row to the audit log, in the transaction of the change that it describes, and stores
    with it the rows of covered tables that were written since the last row of the log.

    Args:
        sql: A connection within a transaction, as `Database.writing` gives it.
        who: Who made the change; the user of the operating system if None.
        what: The kind of change, such as "join".
        why: The reason, if one was given.
        details: Plain values that describe the change.

    Returns:
        The hash of the row.
    """
    lock_writers(sql)
    last = select(AUDIT, "number", "hash").order_by(AUDIT.c.number.desc()).limit(1)
    (number, before), *_ = *fetch(sql, last), (0, "")
    text, noted = json.dumps(details or {}, sort_keys=True), sql.info[CHANGES_KEY]
    noted.who = check_who(who)
    stored = store_changes(sql, noted, number + 1)
    row = {
        "number": number + 1, "at": timestamp(), "who": noted.who, "what": what,
        "why": check_why(why), "details": text,
        "digest": digest_of(text) if stored is None else ROWS + stored,
    }  # fmt: skip
    row["hash"] = row_hash(before, row.values())
    sql.execute(sa.insert(AUDIT).values(row))
    head = json.dumps({"number": number + 1, "hash": row["hash"]})
    put_rows(sql, META, {"key": [HEAD_KEY], "value": [head]}, "value")
    return row["hash"]


def note_rest(sql: Connection) -> None:
    """Adds a row to the audit log if a transaction ends with changes that have no row yet."""
    noted = sql.info[CHANGES_KEY]
    if noted:
        put_audit(sql, noted.who, "other changes")


def row_hash(before: str, row: Iterable[Any]) -> str:
    """The hash of a row's values, without its own hash, and of the hash of the row before."""
    text = json.dumps([before, *row], ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(*parts: str | bytes | list[Any] | None) -> str:
    """The hash of several parts, each of which is hashed after its length.

    >>> from prefermab.programme.store.audit import digest_of
    >>> digest_of("ab", "c") == digest_of("a", "bc")
    False
    """
    found = hashlib.sha256()
    for part in parts:
        if not isinstance(part, str | bytes):
            part = msgspec.json.encode(part)
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "big"))
        found.update(data)
    return found.hexdigest()


def check_who(who: str | None) -> str:
    """The name of whoever makes changes; that of the operating system's user if None."""
    if who is None:
        try:
            return getpass.getuser()
        except (OSError, KeyError, ImportError):  # a user without a name
            return f"user {getattr(os, 'getuid', lambda: 'unknown')()}"
    return _plain(who, "who", 200)


def check_why(why: str | None) -> str | None:
    """The reason; raises an error if it is too long or cannot be stored."""
    return None if why is None else _plain(why, "why", LONGEST_REASON)


def _plain(text: object, name: str, most: int) -> str:
    if not isinstance(text, str) or not text.strip() or len(text) > most:
        raise InputError(f"{name} must be a text of 1 to {most:,} characters, not {brief(text)!r}.")
    if "\0" in text or (not text.isprintable() and any(0xD800 <= ord(c) < 0xE000 for c in text)):
        raise InputError(f"{name} holds a character that cannot be stored.")
    return text.strip()


def newest_entries(
    sql: Connection, who: str, what: str, words: str, before: int | None, most: int
) -> list[Any]:
    """Rows of the audit log, the newest first.

    Args:
        sql: A connection within a transaction.
        who: Only rows of this user, unless empty.
        what: Only rows of this kind, unless empty.
        words: Only rows with this text in their reason or details, unless empty.
        before: Only rows with a smaller number, unless None.
        most: The most rows.

    Returns:
        Rows with the columns of the log.
    """
    rows = sa.select(AUDIT).order_by(AUDIT.c.number.desc()).limit(most)
    for column, value in ((AUDIT.c.who, who), (AUDIT.c.what, what)):
        rows = rows.where(column == value) if value else rows
    if words:  # details are stored as JSON, with letters such as é escaped
        escaped = json.dumps(words)[1:-1]
        rows = rows.where(
            AUDIT.c.why.icontains(words, autoescape=True)
            | AUDIT.c.details.icontains(escaped, autoescape=True)
        )
    rows = rows if before is None else rows.where(AUDIT.c.number < before)
    return list(sql.execute(rows))


def read_audit(sql: Connection) -> pl.DataFrame:
    """The audit log as a frame."""
    rows = fetch(sql, sa.select(AUDIT).order_by(AUDIT.c.number))
    schema = {one.name: pl.Int64 if one.name == "number" else pl.String for one in AUDIT.columns}
    return pl.DataFrame(rows, schema=schema, orient="row")
