"""Tables of people: CSV and Parquet files and data frames, read and written.

>>> import pathlib, tempfile
>>> import polars as pl
>>> import prefermab as pm
>>> file = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
>>> pm.tables.write_table(pl.DataFrame({"id": [7, 8], "state": ["good", "bad"]}), file)
>>> pm.tables.read_table(file)["state"].to_list()
['good', 'bad']
"""

import csv
from pathlib import Path
from typing import Any

import polars as pl

from prefermab.errors import InputError
from prefermab.files import write_atomically

READABLE = (".csv", ".parquet", ".pq")
UNKNOWN = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Cells of a CSV file that mean an unknown value."""

LEADING_ZERO = r"^\s*[+-]?0[0-9]"
"""An id such as 007 is text: as a number it would lose its zeros."""

SEPARATORS = {b";": "semicolons", b"\t": "tabs", b"|": "bars"}


def read_table(path: str | Path) -> pl.DataFrame:
    """Reads a CSV or Parquet file.

    Ids such as 007 are read as text, so that they keep their zeros.

    Args:
        path: A file whose name ends in .csv, .parquet or .pq.

    Returns:
        The table; unknown values, such as empty cells or NA in a CSV file, are null.

    >>> import pathlib, tempfile
    >>> from prefermab.programme.tables import read_table
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = file.write_text("id,state,age\\n7,good,31\\n8,bad,\\n")
    >>> read_table(file)["age"].to_list()
    [31, None]
    """
    path = Path(path)
    if path.suffix.lower() not in READABLE:
        raise InputError(f"{path}: expected a file that ends in {', '.join(READABLE)}.")
    if not path.exists():
        raise InputError(f"{path}: there is no such file.")
    if path.is_dir():
        raise InputError(f"{path}: expected a file, but it is a folder.")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty; expected a header and rows.")
    try:
        if path.suffix.lower() != ".csv":
            return pl.read_parquet(path)
        _check_commas(path)
        return _read_csv(path)
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {_why_unreadable(path, error)}") from None


def write_table(frame: pl.DataFrame, path: str | Path) -> None:
    """Writes a table as CSV or Parquet; the file is complete or not written at all.

    Args:
        frame: The table.
        path: A file whose name ends in .csv, .parquet or .pq; an existing one is replaced.
    """
    path = Path(path)
    check_table_path(path)
    write = frame.write_csv if path.suffix.lower() == ".csv" else frame.write_parquet
    write_atomically(path, write)


def check_table_path(path: Path) -> None:
    """Raises unless the name ends as that of a table does."""
    if path.suffix.lower() not in READABLE:
        raise InputError(f"{path}: expected a name that ends in {', '.join(READABLE)}.")


def as_frame(frame: Any, name: str = "frame") -> pl.DataFrame:
    """Converts a table to a polars frame.

    Args:
        frame: A polars or pandas frame.
        name: What an error message calls it.

    Returns:
        The same table as a polars frame.

    >>> import polars as pl
    >>> from prefermab.programme.tables import as_frame
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

    >>> from prefermab.programme.tables import Source, row_in
    >>> row_in(Source("people.csv", 2), 0), row_in("the table", 0)
    ('row 2', 'row 1')
    """

    first_row: int

    def __new__(cls, name: str, first_row: int) -> "Source":
        source = super().__new__(cls, name)
        source.first_row = first_row
        return source


def source_of(path: Path) -> Source:
    """A file's name; as in a spreadsheet, the header of a CSV file is row 1."""
    return Source(str(path), 2 if path.suffix.lower() == ".csv" else 1)


def row_in(where: str, row: int) -> str:
    """How a message names a row that is counted from 0; plain names count rows from 1."""
    return f"row {row + (where.first_row if isinstance(where, Source) else 1)}"


def first_row(where: pl.Series) -> int:
    """The first row that is true."""
    return int(where.arg_max() or 0)


def format_number(number: float | None) -> str:
    """A number with no more digits than a reader needs.

    >>> from prefermab.programme.tables import format_number
    >>> format_number(1e6), format_number(12.5), format_number(0.12345)
    ('1,000,000', '12.5', '0.1235')
    """
    if number is None:
        return "?"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def format_people(number: int) -> str:
    """A number of people in words.

    >>> from prefermab.programme.tables import format_people
    >>> format_people(1), format_people(1200)
    ('1 person', '1,200 people')
    """
    return "1 person" if number == 1 else f"{number:,} people"


def _read_csv(path: Path) -> pl.DataFrame:
    unknown = list(UNKNOWN)
    frame = pl.read_csv(path, infer_schema_length=None, null_values=unknown)
    for name in frame.select(pl.selectors.integer()).columns:
        if name.strip().lower() == "id":
            as_text = pl.read_csv(
                path, columns=[name], schema_overrides={name: pl.String}, null_values=unknown
            )
            if as_text[name].str.contains(LEADING_ZERO).any():
                frame = frame.with_columns(as_text[name])
    return frame


def _check_commas(path: Path) -> None:
    """Raises unless commas separate the columns and every row has as many as the header."""
    text = path.read_bytes()
    header = text.partition(b"\n")[0]
    if b"\0" in header:
        raise InputError(f"{path}: the text is in UTF-16; save it as UTF-8.")
    for mark, name in SEPARATORS.items():
        if mark in header and b"," not in header:
            raise InputError(
                f"{path}: only one column was found, because {name} separate the columns; save it "
                "with commas between the columns."
            )
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    # Counting commas is fast and enough where nothing is quoted; rows are parsed only if it fails.
    if b'"' in text or text.count(b",") != lines * header.count(b","):
        _check_lengths(path)


def _check_lengths(path: Path) -> None:
    """Raises unless every row has as many fields as the header; empty lines do not count."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = csv.reader(file)
        width = len(next(rows))
        for number, fields in enumerate(rows, 2):
            if fields and len(fields) != width:
                few = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
                raise InputError(
                    f"{path}: row {number} has {few}, but the header has {width}; expected as "
                    "many, with quotes around a text that holds a comma."
                )


def _without_nan(values: Any) -> list[Any]:
    """A pandas column as a list with None for unknown values."""
    return values.astype(object).where(values.notna(), None).tolist()


def _why_unreadable(path: Path, error: Exception) -> str:
    text = " ".join(str(error).split())
    if "utf" in text.lower():
        return "the text is not in UTF-8; save it in that encoding."
    if path.suffix.lower() != ".csv":
        return "it is not a Parquet file that can be read."
    first = text.partition(". ")[0]
    return f"it cannot be read as a table ({first[:160]})."
