"""Uploaded tables: read, checked row by row, and stored until the user confirms the import."""

import dataclasses
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import sqlalchemy as sa

from prefermab.errors import InputError, unknown
from prefermab.programme.planning.roster import SINCE_ACTION, SINCE_SEEN
from prefermab.programme.store import Programme, queries
from prefermab.programme.store.frames import (
    column_kinds,
    read_details,
    read_ids,
    split_last_action,
)
from prefermab.programme.tables.columns import column, source_columns, state_numbers
from prefermab.programme.tables.naming import find_name, match_names
from prefermab.programme.tables.table import Source
from prefermab.service.auth.accounts import hash_secret, new_secret
from prefermab.service.auth.database import UPLOADS
from prefermab.service.http.tables import read_sent_table

UPLOAD_KINDS = {"join": "People who join", "states": "States seen this week"}
ENDINGS = {".csv": ".csv", ".tsv": ".csv", ".txt": ".csv", ".xlsx": ".xlsx",
           ".parquet": ".parquet", ".pq": ".parquet"}  # fmt: skip
"""Accepted file suffixes, and the format that each is read as."""

UPLOAD_LASTS = 3600.0
"""Seconds for which an uploaded table waits for confirmation."""

MOST_WRONG_ROWS = 200
"""The search for wrong rows stops after this many: probably all rows are wrong then."""


@dataclasses.dataclass(frozen=True)
class WrongRow:
    """A row that cannot be imported, and why."""

    row: int
    number: int
    id: str
    why: str


@dataclasses.dataclass(frozen=True)
class ImportPreview:
    """A table that was read and checked, but is not imported yet."""

    frame: pl.DataFrame
    where: Source
    wrong: list[WrongRow]
    more_wrong: bool
    used: list[str]
    stored: list[str]
    missing: list[str]

    @property
    def right(self) -> pl.DataFrame:
        """The rows that can be imported."""
        rows = {one.row for one in self.wrong}
        return self.frame.filter(pl.Series([k not in rows for k in range(self.frame.height)]))


def keep_upload(
    sql: sa.Connection, user: str, kind: str, file: str, data: bytes, now: float
) -> str:
    """Stores a table until it is confirmed; returns the secret that names it. Deletes the user's
    earlier upload, and expired ones."""
    if kind not in UPLOAD_KINDS:
        raise unknown("kind of table", kind, UPLOAD_KINDS)
    secret = new_secret()
    sql.execute(
        UPLOADS.delete().where((UPLOADS.c.at < now - UPLOAD_LASTS) | (UPLOADS.c.name == user))
    )
    row = {"secret": hash_secret(secret), "name": user, "kind": kind, "file": file, "data": data}
    sql.execute(UPLOADS.insert().values(at=now, **row))
    return secret


def take_upload(sql: sa.Connection, secret: str, user: str, now: float) -> tuple[str, str, bytes]:
    """The kind, file name and bytes of a user's upload; raises if it does not exist any more."""
    mine = (UPLOADS.c.secret == hash_secret(secret)) & (UPLOADS.c.name == user)
    found = sql.execute(
        sa.select(UPLOADS).where(mine, UPLOADS.c.at >= now - UPLOAD_LASTS)
    ).one_or_none()
    if found is None:
        raise InputError("this table is not kept any more: choose the file again.")
    return found.kind, found.file, found.data


def drop_upload(sql: sa.Connection, user: str) -> None:
    """Deletes the upload of a user."""
    sql.execute(UPLOADS.delete().where(UPLOADS.c.name == user))


def read_upload(file: str, data: bytes) -> tuple[pl.DataFrame, Source]:
    """The table in a file, and its name for messages."""
    name = Path(file.replace("\\", "/")).name[-80:] or "table"
    ending = Path(name).suffix.lower()
    if ending not in ENDINGS:
        raise InputError(f"{name}: expected a file whose name ends in {', '.join(ENDINGS)}.")
    with tempfile.TemporaryDirectory(prefix="prefermab-") as folder:
        path = Path(folder) / f"table{ENDINGS[ending]}"
        path.write_bytes(data)
        return read_sent_table(path, name)


def check_upload(programme: Programme, kind: str, file: str, data: bytes) -> ImportPreview:
    """Reads a table and finds its wrong rows; nothing is written.

    Args:
        programme: The programme to import it into.
        kind: "join" or "states".
        file: The name of the file.
        data: Its bytes.

    Returns:
        The table, its wrong rows, and which columns would be used, stored or are missing.
    """
    frame, where = read_upload(file, data)
    if kind == "states":
        frame = frame.drop(match_names(frame.columns, (SINCE_ACTION, SINCE_SEEN), where).values())
    check = make_check(programme, kind)
    check(frame.head(0), where)
    wrong = find_wrong(frame, where, check)
    wrong |= find_wrong_ids(programme, kind, frame, where, set(wrong))
    ids = column(frame, "id", where)
    rows = [
        WrongRow(row, row + where.first_row, str(ids[row]), wrong[row])
        for row in sorted(wrong)[:MOST_WRONG_ROWS]
    ]
    wanted = list(dict.fromkeys(source_columns(programme.model.feature_names)))
    used = match_names(frame.columns, ("id", "state", *wanted), where)
    stored = [name for name in frame.columns if name not in used.values()]
    missing = [name for name in wanted if name not in used] if kind == "join" else []
    return ImportPreview(frame, where, rows, len(wrong) > MOST_WRONG_ROWS, [*used], stored, missing)


def make_check(programme: Programme, kind: str) -> Callable[[pl.DataFrame, str], None]:
    """A function that reads a table as the programme would, and raises at the first mistake."""
    with programme.database.reading() as sql:
        kinds, now = queries.known_kinds(sql), queries.current_round(sql)

    def check(frame: pl.DataFrame, where: str) -> None:
        ids, rest = read_ids(frame, where), frame
        if kind == "join":
            rest, _ = split_last_action(frame, now, where)
        details = read_details(programme.model, rest, where, kinds)
        if len(ids):
            column_kinds(details, kinds, where)
        if kind == "states" or find_name(frame.columns, "state", where) is not None:
            state_numbers(programme.model, column(frame, "state", where), ids, where)

    return check


def find_wrong(
    frame: pl.DataFrame, where: Source, check: Callable[[pl.DataFrame, str], None]
) -> dict[int, str]:
    """The rows that do not pass a check, with the reason. Wrong rows are found by halving: a part
    that passes as a whole is not checked row by row."""
    found: dict[int, str] = {}

    def look(begin: int, end: int) -> None:
        if begin == end or len(found) > MOST_WRONG_ROWS:
            return
        part, name = frame.slice(begin, end - begin), Source(where, where.first_row + begin)
        try:
            check(part, name)
        except InputError as error:
            if end - begin == 1:
                found[begin] = without_place(str(error), where, begin)
                return
            middle, before = (begin + end) // 2, len(found)
            look(begin, middle)
            look(middle, end)
            if len(found) == before and not has_repeated_ids(part):
                raise

    look(0, frame.height)
    return found


def has_repeated_ids(frame: pl.DataFrame) -> bool:
    """Whether an id is in a table twice; its two halves alone may not show it."""
    return bool(column(frame, "id", "").is_duplicated().any())


def find_wrong_ids(
    programme: Programme, kind: str, frame: pl.DataFrame, where: Source, others: set[int]
) -> dict[int, str]:
    """Rows with a wrong id, with the reason: it is in an earlier row, is in the programme already,
    or is not in it."""
    ids = column(frame, "id", where).cast(pl.String).str.strip_chars()
    here = programme.roster()["id"].cast(pl.String)
    inside, again = ids.is_in(here.implode()), ids.is_duplicated() & ~ids.is_first_distinct()
    wrong = inside if kind == "join" else ~inside
    why = "in the programme already" if kind == "join" else "not in the programme"
    found = {row: f"{ids[row]} is {why}." for row in wrong.arg_true().to_list()}
    found |= {
        row: f"{ids[row]} stands in an earlier row too." for row in again.arg_true().to_list()
    }
    return {row: text for row, text in found.items() if row not in others and ids[row] is not None}


def without_place(sentence: str, where: Source, row: int) -> str:
    """An error about one row, without file and row number, which the page shows beside it."""
    for start in (f"{where}: ", f"row {row + where.first_row}, ", f"row {row + where.first_row}: "):
        sentence = sentence.removeprefix(start)
    return re.sub(r"^id [^,:]*[,:] ", "", sentence)
