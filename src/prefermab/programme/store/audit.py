"""The audit log: who changed what, when and why, in rows that are chained by hashes.

Each change of a programme adds one row, in the transaction of the change. The hash of a row covers
its values and the hash of the row before, so a row that is changed, removed or inserted later is
detected. Whoever can write to the database can also make a whole new log; that is detected only if
the hash of a row, such as the last, was kept elsewhere.
"""

import dataclasses
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

from prefermab.errors import InputError, StorageError, brief
from prefermab.programme.store.connections import lock_writers
from prefermab.programme.store.rows import fetch, put_rows, select, timestamp
from prefermab.programme.store.schema import ACTIONS, AUDIT, META, PLANS

HEAD_KEY = "audit_head"
"""The key of the table `meta` under which the number and hash of the last row are stored."""

LONGEST_REASON = 2000
"""The most characters of a reason."""


@dataclasses.dataclass(frozen=True)
class AuditProof:
    """The result of checking an audit log: the number of rows, and the hash of the last one."""

    rows: int
    head: str
    kept: int | None = None
    """The number of the row with the hash that was kept elsewhere, if one was given."""


def put_audit(
    sql: Connection,
    who: str | None,
    what: str,
    why: str | None = None,
    details: dict[str, Any] | None = None,
    digest: str = "",
) -> str:
    """Adds a row to the audit log, in the transaction of the change that it describes.

    Args:
        sql: A connection within a transaction, as `Database.writing` gives it.
        who: Who made the change; the user of the operating system if None.
        what: The kind of change, such as "join".
        why: The reason, if one was given.
        details: Plain values that describe the change.
        digest: The hash of all that was changed (`digest_of`); by default that of the details.

    Returns:
        The hash of the row.
    """
    lock_writers(sql)
    last = select(AUDIT, "number", "hash").order_by(AUDIT.c.number.desc()).limit(1)
    (number, before), *_ = *fetch(sql, last), (0, "")
    text = json.dumps(details or {}, sort_keys=True)
    row = {
        "number": number + 1, "at": timestamp(), "who": check_who(who), "what": what,
        "why": check_why(why), "details": text, "digest": digest or digest_of(text),
    }  # fmt: skip
    row["hash"] = row_hash(before, row.values())
    sql.execute(sa.insert(AUDIT).values(row))
    head = json.dumps({"number": number + 1, "hash": row["hash"]})
    put_rows(sql, META, {"key": [HEAD_KEY], "value": [head]}, "value")
    return row["hash"]


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


def read_audit(sql: Connection) -> pl.DataFrame:
    """The audit log as a frame."""
    rows = fetch(sql, sa.select(AUDIT).order_by(AUDIT.c.number))
    schema = {one.name: pl.Int64 if one.name == "number" else pl.String for one in AUDIT.columns}
    return pl.DataFrame(rows, schema=schema, orient="row")


def verify_audit(sql: Connection, head: str | None = None) -> AuditProof:
    """Checks the audit log, and plans and records against it; raises an error at the first fault.

    Args:
        sql: A connection within a transaction.
        head: The hash of a row that was kept elsewhere; the log must still have that row.

    Returns:
        How many rows there are, and the hash of the last.
    """
    rows = sql.execute(sa.select(AUDIT).order_by(AUDIT.c.number)).fetchall()
    before, kept = "", None
    for place, row in enumerate(rows, 1):
        if row.number != place:
            raise StorageError(f"audit: row {place} is missing; the next one is row {row.number}.")
        if row.hash != row_hash(before, row[:-1]):
            raise StorageError(
                f"audit: row {place} ({row.what}, {row.at}) is not as it was written, or does not "
                "belong after the row before it."
            )
        before, kept = row.hash, place if row.hash == head else kept
    _check_end(sql, len(rows), before)
    if head is not None and kept is None:
        raise StorageError(
            f"audit: no row has the hash {brief(head)} that was kept: rows were cut off at the "
            "end, or the whole log was replaced."
        )
    _check_contents(sql, rows)
    return AuditProof(len(rows), before, kept)


def _check_end(sql: Connection, rows: int, last: str) -> None:
    """Raises an error unless the log ends with the row that was written last."""
    stored = sql.execute(select(META, "value").where(META.c.key == HEAD_KEY)).scalar()
    noted = {"number": 0, "hash": ""} if stored is None else json.loads(stored)
    if noted["number"] > rows:
        raise StorageError(
            f"audit: row {rows + 1} is missing: {noted['number']} rows were written, and the last "
            f"{noted['number'] - rows} of them are gone."
        )
    if (noted["number"], noted["hash"]) != (rows, last):
        raise StorageError(f"audit: row {rows} is not the one that was written last.")


def _check_contents(sql: Connection, rows: Iterable[Any]) -> None:
    """Raises an error unless stored plans and records have the digests of their rows in the log."""
    latest: dict[tuple[Any, ...], Any] = {}
    for row in rows:
        facts = json.loads(row.details)
        if row.what == "plan":
            latest["plan", facts["round"], facts["attempt"]] = row
        elif row.what in ("record", "correct"):
            latest["record", facts["round"]] = row
    for (what, *which), row in latest.items():
        found = plan_digest(sql, *which) if what == "plan" else record_digest(sql, *which)
        if found != row.digest:
            name = f"plan {which[-1]}" if what == "plan" else "the record"
            raise StorageError(
                f"audit: {name} of round {which[0]} was changed: it does not match row "
                f"{row.number}."
            )


def plan_digest(sql: Connection, round: int, attempt: int) -> str:
    """The hash of a stored plan: its arguments, people, list and model."""
    names = ("layout", "inputs", "output", "model", "asked", "versions", "facts")
    which = (PLANS.c.round == round) & (PLANS.c.attempt == attempt)
    return digest_of(
        *(part for row in fetch(sql, select(PLANS, *names).where(which)) for part in row)
    )


def record_digest(sql: Connection, round: int) -> str:
    """The hash of the stored actions of a round."""
    done = select(ACTIONS, "id", "action", "cost", "reached").where(ACTIONS.c.round == round)
    return digest_of(sorted(fetch(sql, done), key=lambda row: str(row[0])))
