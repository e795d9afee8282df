"""Tables of people: read from a file or taken from a frame, with errors that say where."""

import csv
from pathlib import Path
from typing import Any

import polars as pl

from prefermab.errors import InputError
from prefermab.files import write_atomically

READABLE = (".csv", ".parquet", ".pq")
UNKNOWN = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""What a cell of a CSV file may hold where the value is not known."""


def read_table(path: Path) -> pl.DataFrame:
    """The table in a CSV or Parquet file.

    >>> import pathlib, tempfile
    >>> from prefermab.programme.tables import read_table
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = file.write_text("id,state,age\\n7,good,31\\n8,bad,\\n")
    >>> read_table(file)["age"].to_list()
    [31, None]
    """
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
        unknown = list(UNKNOWN)
        frame = pl.read_csv(path, infer_schema_length=None, null_values=unknown)
        for name in frame.select(pl.selectors.integer()).columns:
            if name.strip().lower() == "id":
                kind = {name: pl.String}
                written = pl.read_csv(
                    path, columns=[name], schema_overrides=kind, null_values=unknown
                )
                if written[name].str.contains(LEADING_ZERO).any():
                    frame = frame.with_columns(written[name])
        return frame
    except (pl.exceptions.PolarsError, OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: {_told(path, error)}") from None


LEADING_ZERO = r"^\s*[+-]?0[0-9]"
"""Of an id such as 007, which is a text: a number would lose the zeros."""

SEPARATORS = {b";": "semicolons", b"\t": "tabs", b"|": "bars"}


def _check_commas(path: Path) -> None:
    """Commas between the columns, and as many of them in every row as in the header."""
    text = path.read_bytes()
    head = text[: text.find(b"\n") % (len(text) + 1)]
    if b"\0" in head:
        raise InputError(f"{path}: the text is in UTF-16; save it as UTF-8.")
    for mark, name in SEPARATORS.items():
        if mark in head and b"," not in head:
            raise InputError(
                f"{path}: only one column was found, because {name} separate the columns; save it "
                "with commas between the columns."
            )
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    # Where nothing is in quotes, counting is enough; rows are looked at only if that fails.
    if b'"' in text or text.count(b",") != lines * head.count(b","):
        _check_lengths(path)


def _check_lengths(path: Path) -> None:
    """Every row has as many fields as the header, but for lines with nothing in them."""
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


def as_frame(frame: Any, name: str = "frame") -> pl.DataFrame:
    """A polars or pandas frame, as a polars frame.

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
        columns = {str(column): _plain(frame[column]) for column in frame.columns}
        return pl.DataFrame(columns, strict=False)
    raise InputError(f"{name} must be a polars or pandas frame, not {type(frame).__name__}.")


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Writes CSV or Parquet, whole or not at all."""
    check_table_path(path)
    if path.suffix.lower() == ".csv":
        write_atomically(path, frame.write_csv)
    else:
        write_atomically(path, frame.write_parquet)


def check_table_path(path: Path) -> None:
    """A table is written as CSV or Parquet."""
    if path.suffix.lower() not in READABLE:
        raise InputError(f"{path}: expected a name that ends in {', '.join(READABLE)}.")


def column(frame: pl.DataFrame, name: str, where: str) -> pl.Series:
    """A column that must be there, found by its name without regard to case or outer blanks."""
    if name in frame.columns:
        return frame[name]
    plain = {column.strip().lower(): column for column in frame.columns}
    if name.strip().lower() in plain:
        return frame[plain[name.strip().lower()]]
    raise InputError(
        f"{where}: the column '{name}' is missing; found {', '.join(frame.columns) or 'none'}."
    )


def as_numbers(values: pl.Series, where: str) -> pl.Series:
    """Numbers with null for unknown, or what is wrong and in which row."""
    if values.dtype == pl.Boolean:
        return values.cast(pl.Float64)
    cast = values.cast(pl.Float64, strict=False)
    wrong = values.is_not_null() & cast.is_null()
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' must hold numbers, but {row_in(where, row)} "
            f"holds '{values[row]}'."
        )
    infinite = cast.is_infinite().fill_null(False)
    if infinite.any():
        row = first_row(infinite)
        raise InputError(
            f"{where}: the column '{values.name}' must hold finite numbers, but "
            f"{row_in(where, row)} holds {values[row]}."
        )
    return cast.fill_nan(None)


class Source(str):
    """What a table is called in messages; it knows the number of its first row.

    >>> from prefermab.programme.tables import Source, row_in
    >>> row_in(Source("people.csv", 2), 0), row_in("the table", 0)
    ('row 2', 'row 1')
    """

    first: int

    def __new__(cls, name: str, first: int) -> "Source":
        source = super().__new__(cls, name)
        source.first = first
        return source


def source_of(path: Path) -> Source:
    """A file's name; a spreadsheet counts the header of a CSV file as its first row."""
    return Source(str(path), 2 if path.suffix.lower() == ".csv" else 1)


def row_in(where: str, row: int) -> str:
    """A row, counted from 0, as a message names it."""
    return f"row {row + getattr(where, 'first', 1)}"


def first_row(where: pl.Series) -> int:
    """The first row that is true."""
    return int(where.arg_max() or 0)


def as_labels(values: pl.Series) -> pl.Series:
    """Labels as text, null where there is none; 3.0 is the label 3.

    >>> import polars as pl
    >>> from prefermab.programme.tables import as_labels
    >>> as_labels(pl.Series([3.0, None])).to_list()
    ['3', None]
    """
    if values.dtype.is_float():
        values = values.fill_nan(None)
    if is_whole(values):
        values = values.cast(pl.Int64)
    text = values.cast(pl.String).str.strip_chars()
    return text.set(text == "", None)


def is_whole(values: pl.Series) -> bool:
    """Whether floating-point numbers are whole ones, as a column with gaps is often read."""
    return values.dtype.is_float() and bool((values.is_null() | (values == values.round())).all())


def check_ids(ids: pl.Series, where: str) -> None:
    """No id is missing, and none stands twice."""
    if ids.null_count():
        row = first_row(ids.is_null())
        raise InputError(f"{where}: {row_in(where, row)} has no id.")
    twice = ids.is_duplicated()
    if twice.any():
        rows = (twice & (ids == ids[first_row(twice)])).arg_true()
        raise InputError(
            f"{where}: the id {ids[int(rows[0])]} is in {row_in(where, rows[0])} and again in "
            f"{row_in(where, rows[1])}; expected one row for each person."
        )


TRUE, FALSE = ("true", "yes", "y", "1", "1.0", "t"), ("false", "no", "n", "0", "0.0", "f")


def as_flags(values: pl.Series, where: str, *, unknown: bool) -> pl.Series:
    """True and false, also as yes and no or 1 and 0; `unknown` where a cell is empty."""
    if values.dtype == pl.Boolean:
        return values.fill_null(unknown)
    text = values.cast(pl.String).str.strip_chars().str.to_lowercase()
    wrong = text.is_not_null() & ~text.is_in((*TRUE, *FALSE))
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' must hold true or false, but "
            f"{row_in(where, row)} holds '{values[row]}'."
        )
    return text.is_in(TRUE).fill_null(unknown)


def _plain(values: Any) -> Any:
    """A pandas column as something that polars takes: unknown values as None."""
    found = values.astype(object).where(values.notna(), None)
    return found.tolist()


def _told(path: Path, error: Exception) -> str:
    text = " ".join(str(error).split())
    if "utf" in text.lower():
        return "the text is not in UTF-8; save it in that encoding."
    if path.suffix.lower() != ".csv":
        return "it is not a Parquet file that can be read."
    first = text.partition(". ")[0]
    return f"it cannot be read as a table ({first[:160]})."
