"""Reads tables from files, databases and data frames, and writes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from prefermab.common.files import UNREADABLE, check_file, write_atomically
from prefermab.common.limits import most_unpacked, too_large
from prefermab.common.parquet import SMALLER, read_parquet
from prefermab.errors import InputError
from prefermab.programme.tables.address import Address, parse_address
from prefermab.programme.tables.cleaning import TEXTS, check_cells, check_column_names, clean
from prefermab.programme.tables.databases import read_database
from prefermab.programme.tables.text import UNKNOWN, read_text
from prefermab.programme.tables.values import mark_formulas
from prefermab.programme.tables.workbooks import read_workbook, row_below_header, write_sheets

__all__ = [
    "UNKNOWN",
    "Source",
    "as_frame",
    "check_table_path",
    "first_row",
    "format_number",
    "format_people",
    "read_table",
    "row_in",
    "source_of",
    "write_table",
]

WRITABLE = (".csv", ".parquet", ".pq", ".xlsx")


def read_table(
    path: str | Path,
    *,
    sheet: str | None = None,
    encoding: str | None = None,
    separator: str | None = None,
    decimal: str | None = None,
    as_text: bool = False,
) -> pl.DataFrame:
    """Reads a table from a file or a database.

    The separator, encoding and decimal mark of a text file are detected; an `InputWarning` reports
    a guess that may be wrong. Ids such as 007 are read as text, so that they keep their zeros.

    Args:
        path: A text file (.csv, .tsv, .txt, also .gz), an Excel workbook (.xlsx), a Parquet file,
            a SQLite file (.db) or the URL of a database (`postgresql://...`). A `#` after it can
            add the sheet or table, or a setting: `visits.xlsx#May`, `visits.csv#encoding=cp1250`.
        sheet: The sheet of a workbook, or the table of a database, if there are several.
        encoding: The encoding of a text file, such as cp1252.
        separator: The character between the columns of a text file.
        decimal: The decimal mark of a text file, a comma or a dot.
        as_text: Return numbers as text; in text files and workbooks, as they are written there.

    Returns:
        The table; unknown values, such as empty cells or NA in a text file, are null.

    >>> import pathlib, tempfile
    >>> from prefermab.programme.tables.table import read_table
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = file.write_text("id;state;weight\\n7;good;70,5\\n8;bad;\\n")
    >>> read_table(file)["weight"].to_list()
    [70.5, None]
    """
    address = parse_address(
        path, part=sheet, encoding=encoding, separator=separator, decimal=decimal
    )
    kind = address.kind
    if kind != "postgresql":
        check_file(address.path, address.shown)
        if address.path.stat().st_size == 0:
            raise InputError(f"{address.shown}: the file is empty; expected a header and rows.")
    try:
        frame = READERS[kind](address, as_text=as_text)
    except (*UNREADABLE, MemoryError) as error:
        raise InputError(f"{address.shown}: {_why_unreadable(kind, error)}") from None
    check_cells(frame, _source(address))
    return frame


def _read_parquet(address: Address, *, as_text: bool = False) -> pl.DataFrame:
    frame = read_parquet(address.path, address.shown)
    check_column_names(frame.columns, address.shown)
    # Rows can share a text until they are cleaned: then each has its own.
    most = most_unpacked(address.path.stat().st_size)
    if sum(size[0] for size in frame.select(TEXTS.str.len_bytes().sum())) > most:
        raise too_large(address.shown, most, SMALLER)
    frame = clean(frame)
    return frame.with_columns(pl.selectors.numeric().cast(pl.String)) if as_text else frame


READERS = {
    "text": read_text,
    "workbook": read_workbook,
    "parquet": _read_parquet,
    "sqlite": read_database,
    "postgresql": read_database,
}


def write_table(frame: pl.DataFrame, path: str | Path) -> None:
    """Writes a table as CSV, Parquet or Excel; the file is complete or not written at all.

    A text that a spreadsheet would run as a formula stays a text: in CSV it gets an apostrophe in
    front, which `read_table` removes.

    Args:
        frame: The table.
        path: A file whose name ends in .csv, .parquet, .pq or .xlsx; an existing one is replaced.
    """
    path = Path(path)
    check_table_path(path)
    as_sheet = lambda draft: write_sheets(draft, {"table": frame})  # noqa: E731
    as_text = lambda draft: mark_formulas(frame).write_csv(draft)  # noqa: E731
    writers = {".csv": as_text, ".xlsx": as_sheet}
    if path.suffix.lower() in writers:
        check_plain_columns(frame, path)
    write_atomically(path, writers.get(path.suffix.lower(), frame.write_parquet))


def check_plain_columns(frame: pl.DataFrame, path: Path) -> None:
    """Raises an error if a column holds lists, records or bytes, which only Parquet can hold."""
    for name, kind in frame.schema.items():
        if kind.is_nested() or kind in (pl.Binary, pl.Object):
            raise InputError(
                f"{path}: the column '{name}' holds {kind} values, which a {path.suffix} file "
                "cannot hold: leave it out, or write a .parquet file."
            )


def check_table_path(path: Path) -> None:
    """Raises an error unless `write_table` can write a file with this name."""
    if path.suffix.lower() not in WRITABLE:
        raise InputError(f"{path}: expected a name that ends in {', '.join(WRITABLE)}.")


def as_frame(frame: Any, name: str = "frame") -> pl.DataFrame:
    """Converts a table to a polars frame.

    Args:
        frame: A polars or pandas frame.
        name: The name of the table in error messages.

    Returns:
        The same table as a polars frame.

    >>> import polars as pl
    >>> from prefermab.programme.tables.table import as_frame
    >>> as_frame(pl.DataFrame({"id": [1]})).columns
    ['id']
    """
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if type(frame).__module__.partition(".")[0] == "pandas":
        columns = {str(column): _without_nan(frame[column]) for column in frame.columns}
        return pl.DataFrame(columns, strict=False)
    raise InputError(f"{name} must be a polars or pandas frame, not {type(frame).__name__}.")


class Source(str):
    """The name of a table in messages, with the number of its first row.

    >>> from prefermab.programme.tables.table import Source, row_in
    >>> row_in(Source("people.csv", 2), 0), row_in("the table", 0)
    ('row 2', 'row 1')
    """

    _first: int | Callable[[], int]

    def __new__(cls, name: str, first_row: int | Callable[[], int]) -> "Source":
        source = super().__new__(cls, name)
        source._first = first_row
        return source

    @property
    def first_row(self) -> int:
        """The number of the first row below the header, computed at first use."""
        if callable(self._first):
            self._first = self._first()
        return self._first


def source_of(path: str | Path) -> Source:
    """The name of a table in messages, where the first row below a header is row 2."""
    return _source(parse_address(path))


def _source(address: Address) -> Source:
    if address.kind == "workbook":
        return Source(address.shown, lambda: row_below_header(address))
    return Source(address.shown, address.first_row)


def row_in(where: str, row: int) -> str:
    """The name of a row in messages; `row` counts from 0. In a plain `where` the first is row 1."""
    return f"row {row + (where.first_row if isinstance(where, Source) else 1)}"


def first_row(where: pl.Series) -> int:
    """The place of the first true value."""
    return int(where.arg_max() or 0)


def format_number(number: float | None) -> str:
    """A number with no more digits than a reader needs.

    >>> from prefermab.programme.tables.table import format_number
    >>> format_number(1e6), format_number(12.5), format_number(0.12345)
    ('1,000,000', '12.5', '0.1235')
    """
    if number is None:
        return "?"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def format_people(number: int) -> str:
    """A number of people in words.

    >>> from prefermab.programme.tables.table import format_people
    >>> format_people(1), format_people(1200)
    ('1 person', '1,200 people')
    """
    return "1 person" if number == 1 else f"{number:,} people"


def _without_nan(values: Any) -> list[Any]:
    """A pandas column as a list with None for unknown values."""
    return values.astype(object).where(values.notna(), None).tolist()


def _why_unreadable(kind: str, error: BaseException) -> str:
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror or error}."
    if isinstance(error, MemoryError):
        return "it needs more memory than there is."
    if kind == "parquet":
        return "it is not a Parquet file that can be read."
    first = " ".join(str(error).split()).partition(". ")[0]
    return f"it cannot be read as a table ({first[:160]})."
