"""The rows that a change writes, stored with its entry of the audit log.

While a transaction writes, `Changes` collects which rows of covered tables it touches: SQLAlchemy
tells of every INSERT, UPDATE and DELETE, and `rows.put_rows` of what it writes itself. With the
entry of the audit log the rows are stored as they are then, in the table `changes`: one compressed
part for each table. The entry has the hash of its parts, so `verify` can trust them.
"""

import hashlib
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Delete, Engine, Insert, Update, event

from prefermab.errors import DamageError
from prefermab.programme.store.covered import COVERED
from prefermab.programme.store.rows import CHANGES_KEY, MOST_BY_ID, fetch, select
from prefermab.programme.store.schema import CHANGES, METADATA

ROWS_IN_PART = 50_000
"""The most rows in a part of a table that is stored as a whole."""

PARTS_AT_ONCE = 50
"""Parts that are read into memory together."""

KEYS_PER_STATEMENT = 200
HASH_BYTES = 16
"""Bytes of the hash of a value; shorter ones take less place, and these cannot be guessed."""

ByColumn = dict[str, list[Any]]
"""Rows of a table, given by columns."""


class Changes:
    """The rows that a transaction has touched since the last entry of the audit log."""

    def __init__(self) -> None:
        self.who: str | None = None
        """Who made the last entry in this transaction."""
        self.clear()

    def clear(self) -> None:
        """Forgets all rows: an entry has them now."""
        self.written: dict[str, list[ByColumn]] = defaultdict(list)
        self.keys: dict[str, dict[tuple[Any, ...], None]] = defaultdict(dict)
        self.whole: list[str] | None = None

    def __bool__(self) -> bool:
        return bool(self.written or self.keys or self.whole is not None)

    def put(self, table: sa.Table, columns: Mapping[str, Sequence[Any]], *, exact: bool) -> None:
        """Notes rows that are written, given by columns.

        Args:
            table: Their table.
            columns: The columns that are given.
            exact: Whether the values are stored as given; if not, rows are read later.
        """
        known = COVERED.get(table.name)
        if known is None or set(columns[known.key[0]]) <= set(known.besides):
            return
        if exact and set(known.columns) <= set(columns):
            found = {name: list(columns[name]) for name in known.columns}
            self.written[table.name].append(_hashed(table.name, found))
        else:
            self.touch(table.name, zip(*(columns[name] for name in known.key), strict=True))

    def touch(self, name: str, keys: Iterable[tuple[Any, ...]]) -> None:
        """Notes rows of a table by their keys; they are read when the entry is written."""
        besides = COVERED[name].besides
        new = dict.fromkeys(keys if not besides else (one for one in keys if one[0] not in besides))
        if new:
            self.keys[name].update(new)


def note_tables(sql: Connection, scripts: str) -> None:
    """Lets the next entry of the audit log store tables whole, since scripts may have changed them.

    Args:
        sql: A connection within a transaction that writes.
        scripts: The table with the version of the scripts: those of the programme come first, so
            after them all tables are stored.
    """
    look, known = sa.inspect(sql), COVERED.items()
    every = scripts == "prefermab_version"
    names = [name for name, one in known if every or one.scripts == scripts]
    sql.info[CHANGES_KEY].whole = [name for name in names if look.has_table(name)]


def note_statements(engine: Engine) -> None:
    """Notes the rows that statements of SQLAlchemy insert, update or delete."""
    event.listen(engine, "before_execute", _before)
    event.listen(engine, "after_execute", _after)


def _before(sql: Connection, statement: Any, *_: Any) -> None:
    noted: Changes | None = sql.info.get(CHANGES_KEY)
    if noted is None or not isinstance(statement, Update | Delete):
        return
    table: Any = statement.table
    name = table.name
    if name in COVERED:
        rows = select(table, *COVERED[name].key)
        where = statement.whereclause
        noted.touch(name, fetch(sql, rows if where is None else rows.where(where)))


def _after(sql: Connection, statement: Any, *rest: Any) -> None:
    noted: Changes | None = sql.info.get(CHANGES_KEY)
    if noted is None or not isinstance(statement, Insert) or statement.table.name not in COVERED:
        return
    result = rest[-1]
    row = {**result.last_inserted_params(), **result.inserted_primary_key._mapping}
    name = statement.table.name
    noted.touch(name, [tuple(row[one] for one in COVERED[name].key)])


def store_changes(sql: Connection, noted: Changes, number: int) -> str | None:
    """Stores the rows that were touched since the last entry of the audit log.

    Args:
        sql: A connection within a transaction that writes.
        noted: The rows.
        number: The number of the entry.

    Returns:
        The hash of what was stored; None if no row was touched.
    """
    if not noted:
        return None
    found = hashlib.sha256()
    for name in sorted({*noted.written, *noted.keys, *(noted.whole or ())}):
        for part, content in enumerate(_parts(sql, noted, name)):
            data = zlib.compress(msgspec.msgpack.encode(content), 1)
            row = {"number": number, "name": name, "part": part, "data": data}
            sql.execute(sa.insert(CHANGES).values(row))
            add_part(found, name, data)
    noted.clear()
    return found.hexdigest()


def add_part(found: Any, name: str, data: bytes) -> None:
    """Adds a part to the hash of the parts of an entry."""
    found.update(name.encode() + b"\0" + hashlib.sha256(data).digest())


def entry_hashes(sql: Connection) -> Generator[tuple[int, str]]:
    """Yields the number of each entry that stores rows, and the hash of its parts as they are."""
    columns = select(CHANGES, "number", "name", "data").order_by(*CHANGES.primary_key)
    at, found = 0, hashlib.sha256()
    with closing(fetch_pieces(sql, columns, PARTS_AT_ONCE)) as pieces:
        for number, name, data in (row for rows in pieces for row in rows):
            if number != at:
                if at:
                    yield at, found.hexdigest()
                at, found = number, hashlib.sha256()
            add_part(found, name, data)
    if at:
        yield at, found.hexdigest()


def read_parts(
    sql: Connection, name: str, *, newest_first: bool = False
) -> Generator[tuple[int, dict[str, Any]]]:
    """Yields what the entries of the log stored of a table: the number of the entry, and a part:
    `whole` if these are all rows of the table, `rows` in pieces, and the keys of rows that are
    `gone`, given by columns. Each part is compressed with a checksum."""
    columns = select(CHANGES, "number", "data").where(CHANGES.c.name == name)
    order = (CHANGES.c.number, CHANGES.c.part)
    in_order = columns.order_by(*(one.desc() if newest_first else one for one in order))
    with closing(fetch_pieces(sql, in_order, PARTS_AT_ONCE)) as pieces:
        for number, data in (row for rows in pieces for row in rows):
            try:
                yield number, msgspec.msgpack.decode(zlib.decompress(data))
            except (zlib.error, msgspec.DecodeError, TypeError):
                raise DamageError(
                    f"what row {number} of the audit log stored of the table '{name}' cannot be "
                    "read"
                ) from None


def _parts(sql: Connection, noted: Changes, name: str) -> Iterator[dict[str, Any]]:
    known = COVERED[name]
    if noted.whole is not None and name in noted.whole:
        whole = True
        for rows in read_rows(sql, name):
            yield {"whole": whole, "rows": [rows], "gone": {}}
            whole = False
        if whole:
            yield {"whole": True, "rows": [], "gone": {}}
        return
    keys = noted.keys.get(name, {})
    rows = _rows_of_keys(sql, name, list(keys)) if keys else {one: [] for one in known.columns}
    columns, gone = [rows[one] for one in known.key], []
    if len(columns[0]) < len(keys):
        here = set(zip(*columns, strict=True))
        gone = [one for one in keys if one not in here]
    written = [*noted.written.get(name, ()), *([_hashed(name, rows)] if columns[0] else [])]
    yield {"whole": False, "rows": written, "gone": _by_column(known.key, gone)}


def _rows_of_keys(sql: Connection, name: str, keys: list[tuple[Any, ...]]) -> ByColumn:
    """The rows with these keys, given by columns; of many, the whole table is read."""
    table, known = covered_table(name), COVERED[name]
    statement, found = select(table, *known.columns), []
    if len(keys) > MOST_BY_ID:
        found = fetch(sql, statement)
        if len(found) > len(keys):
            wanted, width = set(keys), len(known.key)
            found = [row for row in found if row[:width] in wanted]
    else:
        which = sa.tuple_(*(table.c[one] for one in known.key))
        for start in range(0, len(keys), KEYS_PER_STATEMENT):
            some = keys[start : start + KEYS_PER_STATEMENT]
            found += fetch(sql, statement.where(which.in_(some)))
    return _by_column(known.columns, found)


def read_rows(sql: Connection, name: str, *, but: str = "") -> Generator[ByColumn]:
    """The rows of a covered table, with the hashes of hashed columns, in pieces given by columns.

    Args:
        sql: A connection within a transaction.
        name: The name of the table.
        but: Hashed columns that are not read, with blanks between them.
    """
    known = COVERED[name]
    columns = [one for one in known.columns if one not in but.split()]
    statement = select(covered_table(name), *columns)
    with closing(fetch_pieces(sql, statement)) as pieces:
        for rows in pieces:
            kept = [row for row in rows if row[0] not in known.besides]
            if kept:
                yield _hashed(name, _by_column(columns, kept))


def fetch_pieces(
    sql: Connection, statement: sa.Select[Any], size: int = ROWS_IN_PART
) -> Generator[list[tuple[Any, ...]]]:
    """The rows of a statement in pieces, so that they need not all be in memory."""
    is_file = sql.dialect.name == "sqlite"  # there no row is fetched early or needs a conversion
    found = sql.execute(statement, execution_options={"stream_results": not is_file})
    cursor: Any = found.cursor if is_file else found
    try:
        while rows := cursor.fetchmany(size):
            yield list(map(tuple, rows))
    finally:
        found.close()


def covered_table(name: str) -> Any:
    """A covered table; those of the service are known by the names of their columns."""
    if name in METADATA.tables:
        return METADATA.tables[name]
    return sa.table(name, *map(sa.column, COVERED[name].columns))


def _by_column(names: list[str], rows: Sequence[tuple[Any, ...]]) -> ByColumn:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _hashed(name: str, columns: ByColumn) -> ByColumn:
    """The columns with hashes in place of values that the log does not store."""
    for one in COVERED[name].hashed.split():
        if one in columns:
            columns[one] = list(map(hash_value, columns[one]))
    return columns


def hash_value(value: str | bytes | None) -> bytes | None:
    """The hash of a value of a hashed column; None for none."""
    if value is None:
        return None
    # A damaged cell may hold a number.
    data = value if isinstance(value, bytes) else str(value).encode()
    return hashlib.sha256(data).digest()[:HASH_BYTES]
