"""Tables in text files: separators, decimal commas, line ends, and rows that do not fit."""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from prefermab.errors import InputError, brief
from prefermab.programme.sources.address import SEPARATORS, Address
from prefermab.programme.sources.cleaning import (
    TEXTS,
    check_names,
    clean,
    columns_where,
    plain_numbers,
)
from prefermab.programme.sources.encodings import decode
from prefermab.programme.values import is_number_text, number_meaning, parse_numbers

UNKNOWN = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Cells of a text file that mean an unknown value."""

LARGEST_UNPACKED = 1 << 30
"""Bytes that a compressed file may hold."""

OTHERS = {
    b"PK\x03\x04": "an Excel workbook or another archive: let its name end in .xlsx",
    b"PAR1": "a Parquet file: let its name end in .parquet",
    b"SQLite format 3": "a SQLite database: let its name end in .db",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save it as .xlsx",
    b"%PDF": "a PDF",
}
"""First bytes of files that are no text."""


def read_text(address: Address, *, as_text: bool = False) -> pl.DataFrame:
    """Reads a text file; `as_text` leaves all cells as they are written."""
    text = _lines(decode(_read_bytes(address), address.encoding, address.shown))
    said = re.match(r"sep=(.)\n", text)
    if said is not None:  # Excel's own way to name the separator
        text = text[said.end() :]
    if not text.strip():
        raise InputError(f"{address.shown}: the file is empty; expected a header and rows.")
    separator = address.separator or (said[1] if said else find_separator(text, address.shown))
    _check_rows(text, separator, address.shown)
    frame = pl.read_csv(
        text.encode(), separator=separator, infer_schema=False, null_values=list(UNKNOWN)
    )
    return clean(frame) if as_text else infer_numbers(clean(frame), address)


def find_separator(text: str, where: str) -> str:
    """The character between columns: the one that divides the first rows into most columns.

    >>> from prefermab.programme.sources.text import find_separator
    >>> find_separator("id;weight\\n1;70,5\\n", "people.csv")
    ';'
    """
    sample = "".join(text[:100_000].splitlines(keepends=True)[:50])
    widths: dict[str, int] = {}
    ragged: dict[str, int] = {}
    for separator in SEPARATORS.values():
        rows = [row for row in csv.reader(io.StringIO(sample), delimiter=separator) if row]
        # The last row of a long sample may be cut off.
        rows = rows[:-1] if len(rows) > 2 and len(sample) >= 100_000 else rows
        same = len({len(row) for row in rows}) == 1
        (widths if same else ragged)[separator] = len(rows[0])
    best = max(widths.values(), default=1)
    found = [separator for separator, width in widths.items() if width == best]
    if best > 1 and len(found) > 1:
        names = [name for name, mark in SEPARATORS.items() if mark in found]
        raise InputError(
            f"{where}: its columns may be divided by {' or '.join(names)}; say which after the "
            f"file, such as #separator={names[0]}."
        )
    if best > 1:
        return found[0]
    return max(ragged, key=ragged.__getitem__) if max(ragged.values(), default=1) > 1 else ","


def infer_numbers(frame: pl.DataFrame, address: Address) -> pl.DataFrame:
    """Columns of numbers as such, in a file whose decimals may be written with a comma."""
    decimal, numbers = address.decimal, []
    commas = columns_where(frame, TEXTS.str.contains(",", literal=True))
    texts = [frame[name] for name in commas if is_number_text(frame[name])]
    if decimal is None and any(number_meaning(column) == "comma" for column in texts):
        decimal = ","
    if decimal is None:
        return plain_numbers(frame)
    dots = columns_where(frame, TEXTS.str.contains(".", literal=True))
    texts += [frame[n] for n in dots if n not in commas and is_number_text(frame[n])]
    found = {column.name: number_meaning(column) for column in texts}
    for column in texts:
        meaning = found[column.name]
        if decimal == "," and meaning == "dot or thousands" and not address.decimal:
            raise InputError(
                f"{address.shown}: the column '{column.name}' holds "
                f"'{brief(column.drop_nulls()[0])}', whose dot may stand before decimals or "
                "between thousands, as other columns have decimal commas; say what stands before "
                "decimals after the file: #decimal=, or #decimal=."
            )
        by_comma = decimal == "," and meaning == "dot or thousands"
        if by_comma or meaning in ("comma", "comma or thousands"):
            numbers.append(parse_numbers(column, address.shown, decimal=decimal))
    return plain_numbers(frame.with_columns(numbers))


def _read_bytes(address: Address) -> bytes:
    path = address.path
    data = _unpack(path, address.shown) if path.suffix.lower() == ".gz" else path.read_bytes()
    for first, what in OTHERS.items():
        if data.startswith(first):
            raise InputError(f"{address.shown}: it is no table in text, but {what}.")
    return data


def _unpack(path: Path, where: str) -> bytes:
    try:
        with gzip.open(path) as file:
            data = file.read(LARGEST_UNPACKED + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{where}: it is not a gzip file that can be read.") from None
    if len(data) > LARGEST_UNPACKED:
        raise InputError(
            f"{where}: it unpacks to more than {LARGEST_UNPACKED >> 20:,} MB; unpack it first, or "
            "use Parquet."
        )
    return data


def _lines(text: str) -> str:
    """Lines end as on Unix; old Macs ended them with a carriage return alone."""
    if "\r" not in text:
        return text
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def _check_rows(text: str, separator: str, where: str) -> None:
    """Raises unless every row has as many fields as the header, whose names differ."""
    rows = _rows(text, separator, where)
    header = next(rows)
    check_names(header, where)
    first = text.partition("\n")[0]
    lines = text.count("\n") + (not text.endswith("\n"))
    # Counting separators is fast and enough where nothing is quoted; else rows are parsed.
    if '"' not in text and text.count(separator) == lines * first.count(separator):
        return
    for number, fields in enumerate(rows, 2):
        if fields and len(fields) != len(header):
            few = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
            raise InputError(
                f"{where}: row {number} has {few}, but the header has {len(header)}; expected as "
                "many, with quotes around a text that holds the separator."
            )


def _rows(text: str, separator: str, where: str) -> Iterator[list[str]]:
    """The fields of each row."""
    reader = csv.reader(_each_line(text), delimiter=separator)
    number = 1
    try:
        for fields in reader:
            yield fields
            number += 1
    except csv.Error:
        raise InputError(
            f"{where}: row {number} holds a text without an end; a quotation mark may be missing."
        ) from None


def _each_line(text: str) -> Iterator[str]:
    """Line by line, without a copy of the whole text."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end
