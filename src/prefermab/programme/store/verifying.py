"""Verifies a programme by its audit log: the chain of hashes, and then table by table.

The rows that the entries of the log stored (`changes.py`) are put together again and compared with
the tables (`comparing.py`). Entries of 0.2.0 stored no rows: of them only the digests of plans and
records are compared, and the first entry of a later version stored all tables as they were then.
"""

import dataclasses
import json
from contextlib import closing
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from prefermab.errors import StorageError, brief
from prefermab.programme.store.audit import ROWS, digest_of, row_hash
from prefermab.programme.store.changes import entry_hashes, fetch_pieces
from prefermab.programme.store.comparing import find_differences
from prefermab.programme.store.covered import COVERED, HEAD_KEY
from prefermab.programme.store.rows import fetch, select
from prefermab.programme.store.schema import ACTIONS, AUDIT, META, PLANS

MOST_SHOWN = 5
"""The most rows that differ in one message."""


@dataclasses.dataclass(frozen=True)
class AuditProof:
    """The result of verifying: the number of rows of the audit log, and the hash of the last."""

    rows: int
    head: str
    kept: int | None = None
    """The number of the row with the hash that was kept elsewhere, if one was given."""
    since: int = 1
    """The first row that covers all tables. Rows before it are of an earlier version, and only
    plans and records are compared with them."""


def verify_audit(sql: Connection, head: str | None = None) -> AuditProof:
    """Checks the audit log, and all tables that it covers against it; raises an error that names
    the first fault of the log, or the rows that differ.

    Args:
        sql: A connection within a transaction.
        head: The hash of a row that was kept elsewhere; the log must still have that row.

    Returns:
        How many rows there are, the hash of the last, and from which row on all is covered.
    """
    before, kept, since, place = "", None, None, 0
    old: dict[tuple[Any, ...], tuple[int, str] | None] = {}
    entries = fetch_pieces(sql, sa.select(AUDIT).order_by(AUDIT.c.number))
    with closing(entries), closing(entry_hashes(sql)) as parts:
        part = next(parts, None)
        for row in (row for some in entries for row in some):
            number, at, _, what, _, details, digest, hash = row
            place += 1
            if number != place:
                raise StorageError(f"audit: row {place} is missing; the next one is row {number}.")
            if hash != row_hash(before, row[:-1]):
                raise StorageError(
                    f"audit: row {place} ({what}, {at}) is not as it was written, or does not "
                    "belong after the row before it."
                )
            before, kept = hash, place if hash == head else kept
            covers = digest.startswith(ROWS)
            since = place if covers and since is None else since
            found = ""
            if part is not None and part[0] == place:
                found, part = part[1], next(parts, None)
            if found != (digest.removeprefix(ROWS) if covers else ""):
                raise StorageError(
                    f"audit: the rows that row {place} ({what}, {at}) stored in the table "
                    "'changes' are not as they were written."
                )
            if which := _plan_or_record(what, details):
                old[which] = None if covers else (place, digest)
    _check_end(sql, place, before)
    if part is not None:
        raise StorageError(
            f"audit: the table 'changes' has rows for a row {part[0]} that the log lacks."
        )
    if head is not None and kept is None:
        raise StorageError(
            f"audit: no row has the hash {brief(head)} that was kept: rows were cut off at the "
            "end, or the whole log was replaced."
        )
    _check_old_contents(sql, old)
    _check_tables(sql)
    return AuditProof(place, before, kept, since or place + 1)


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


def _check_tables(sql: Connection) -> None:
    """Raises an error that names the rows of covered tables that differ from the log."""
    found, more = [], 0
    for name in COVERED:
        told, number = find_differences(sql, name)
        found, more = found + told, more + number
    if more:
        shown = "; ".join(found[:MOST_SHOWN])
        rest = f"; and {more - MOST_SHOWN:,} more" if more > MOST_SHOWN else ""
        rows = "1 row is" if more == 1 else f"{more:,} rows are"
        raise StorageError(f"audit: {rows} not as in the log: {shown}{rest}.")


def _plan_or_record(what: str, details: str) -> tuple[Any, ...] | None:
    """The plan or record that a row of the log is about."""
    if what not in ("plan", "record", "correct"):
        return None
    facts = json.loads(details)
    if what == "plan":
        return "plan", facts["round"], facts["attempt"]
    return "record", facts["round"]


def _check_old_contents(
    sql: Connection, entries: dict[tuple[Any, ...], tuple[int, str] | None]
) -> None:
    """Raises an error unless plans and records of 0.2.0 have the digests of their last entries."""
    for (what, *which), entry in entries.items():
        if entry is None:
            continue
        found = _plan_digest(sql, *which) if what == "plan" else _record_digest(sql, *which)
        if found != entry[1]:
            name = f"plan {which[-1]}" if what == "plan" else "the record"
            raise StorageError(
                f"audit: {name} of round {which[0]} was changed: it does not match row {entry[0]}."
            )


def _plan_digest(sql: Connection, round: int, attempt: int) -> str:
    """The digest of a plan as 0.2.0 made it."""
    names = ("layout", "inputs", "output", "model", "asked", "versions", "facts")
    which = (PLANS.c.round == round) & (PLANS.c.attempt == attempt)
    return digest_of(
        *(part for row in fetch(sql, select(PLANS, *names).where(which)) for part in row)
    )


def _record_digest(sql: Connection, round: int) -> str:
    """The digest of a record as 0.2.0 made it."""
    done = select(ACTIONS, "id", "action", "cost", "reached").where(ACTIONS.c.round == round)
    return digest_of(sorted(fetch(sql, done), key=lambda row: str(row[0])))
