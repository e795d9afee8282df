"""Addresses of tables: a file or a database, and settings for reading it. Also the clean-up of
every table that is read: blanks, accents, names of columns, cells that are too long.

A `#` in an address is followed by the sheet of a workbook, the table of a database or a setting:
`visits.xlsx#May`, `calls.db#visits`, `visits.csv#encoding=cp1250`, `visits.csv#decimal=,`. If there
is a file with the whole address as its name, that file is meant.
"""

import dataclasses
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import polars as pl

from prefermab.errors import InputError, brief
from prefermab.programme.values import PLAIN_NUMBER

TEXT = (".csv", ".tsv", ".txt")
WORKBOOK = (".xlsx", ".xlsm")
PARQUET = (".parquet", ".pq")
SQLITE = (".db", ".sqlite", ".sqlite3")
URLS = ("sqlite", "postgresql", "postgres")
ENDINGS_BY_KIND = {"text": TEXT, "workbook": WORKBOOK, "parquet": PARQUET, "sqlite": SQLITE}
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}

LARGEST_UNPACKED = 1 << 30
"""The most bytes to which a compressed file, or the parts of a workbook, may unpack."""


@dataclasses.dataclass(frozen=True)
class Address:
    """Where a table is, and the settings for reading it."""

    place: str
    """The path of a file, or the URL of a database."""
    part: str | None = None
    """The sheet of a workbook, or the table of a database."""
    encoding: str | None = None
    separator: str | None = None
    decimal: str | None = None

    @property
    def is_url(self) -> bool:
        """Whether it is the URL of a database."""
        return self.place.partition("://")[0] in URLS and "://" in self.place

    @property
    def path(self) -> Path:
        """The file; for a URL of SQLite, the file behind it."""
        if self.place.startswith("sqlite://"):
            return Path(self.place.removeprefix("sqlite://").removeprefix("/"))
        return Path(self.place)

    @property
    def kind(self) -> str:
        """text, workbook, parquet, sqlite or postgresql."""
        if self.is_url:
            return "sqlite" if self.place.startswith("sqlite") else "postgresql"
        path = self.path
        ending = Path(path.stem).suffix if path.suffix.lower() == ".gz" else path.suffix
        for kind, endings in ENDINGS_BY_KIND.items():
            if ending.lower() in endings and (kind == "text" or path.suffix.lower() != ".gz"):
                return kind
        expected = ", ".join(ending for endings in ENDINGS_BY_KIND.values() for ending in endings)
        raise InputError(
            f"{self.shown}: expected a file that ends in {expected} or .csv.gz, or the URL of a "
            "database."
        )

    @property
    def shown(self) -> str:
        """The address in messages, with *** for a password in a URL."""
        place = self.place
        if self.is_url and (password := urlsplit(place).password):
            place = place.replace(f":{password}@", ":***@", 1)
        return f"{place}#{self.part}" if self.part else place

    @property
    def first_row(self) -> int:
        """The number of the first row in messages: 2 in text files and workbooks, else 1."""
        return 2 if self.kind in ("text", "workbook") else 1


def parse_address(table: str | Path, **settings: str | None) -> Address:
    """Parses an address as a user writes it; `settings` that are not None replace those in it.

    >>> from prefermab.programme.sources.address import parse_address
    >>> parse_address("visits.xlsx#May").part, parse_address("a.csv#encoding=cp1250").encoding
    ('May', 'cp1250')
    """
    text = str(table)
    given = {name: value for name, value in settings.items() if value is not None}
    if "#" not in text or _exists(Path(text)):
        return _check_settings(Address(text, **given))
    place, *marks = text.split("#")
    written: dict[str, str] = {}
    for mark in marks:
        name, equals, value = mark.partition("=")
        if equals and name in ("encoding", "separator", "decimal"):
            written[name] = value
        elif mark and "part" not in written:
            written["part"] = mark
        else:
            raise InputError(
                f"{text}: expected a sheet or table, encoding=..., separator=... or decimal=... "
                f"after a #, not '{mark}'."
            )
    return _check_settings(Address(place, **{**written, **given}))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name that is too long
        return False


def _check_settings(address: Address) -> Address:
    separator = address.separator
    if separator is not None:
        separator = SEPARATORS.get(separator, separator)
        if len(separator) != 1:
            raise InputError(
                f"{address.shown}: separator must be comma, semicolon, tab, bar or one character, "
                f"not '{separator}'."
            )
    decimal = {"comma": ",", "dot": ".", "point": "."}.get(address.decimal or "", address.decimal)
    if decimal not in (None, ".", ","):
        raise InputError(f"{address.shown}: decimal must be , or ., not '{decimal}'.")
    return dataclasses.replace(address, separator=separator, decimal=decimal)


LONGEST_CELL = 1 << 17
"""The most characters in a cell; longer cells come from a quotation mark that is never closed."""

TEXTS = pl.selectors.string()

ZERO_WIDTH_SIGNS = "\ufeff\u200b\u200c\u200d\u200e\u200f\u2060"
"""Characters without width, which can be in copied text: with them, ids that look the same
differ."""

MOST_COLUMNS = 50_000
"""The most columns of a table; Excel has 16,384."""

WHOLE_NUMBER = r"^[+-]?[0-9]+$"
LONGEST_WHOLE = 18
"""The most characters of a whole number; longer ones are codes."""

ZEROS = r"^[+-]?0[0-9]"


def clean(frame: pl.DataFrame) -> pl.DataFrame:
    """Strips outer blanks from names and texts, makes an accented letter one character (NFC), and
    makes empty texts null.

    >>> import polars as pl
    >>> from prefermab.programme.sources.address import clean
    >>> clean(pl.DataFrame({" id ": ["Jose\\u0301 ", "  "]})).to_dict(as_series=False)
    {'id': ['José', None]}
    """
    blanks = f" \t\r\n\xa0{ZERO_WIDTH_SIGNS}"
    names = {name: unicodedata.normalize("NFC", name).strip(blanks) for name in frame.columns}
    # One query serves all columns, since a table may have very many.
    frame = frame.rename(names)
    frame = frame.with_columns(
        TEXTS.str.strip_chars().str.strip_chars(ZERO_WIDTH_SIGNS).str.strip_chars()
    )
    size = frame.select(TEXTS.str.len_bytes().sum())
    letters = frame.select(TEXTS.str.len_chars().sum())
    accents = [name for name in size.columns if size[name][0] != letters[name][0]]
    frame = frame.with_columns(pl.col(name).str.normalize("NFC") for name in accents)
    blank = [pl.col(name) for name in columns_where(frame, TEXTS == "")]
    return frame.with_columns(pl.when(text != "").then(text) for text in blank)


def columns_where(frame: pl.DataFrame, condition: pl.Expr, *, all: bool = False) -> list[str]:
    """The columns in which a condition holds for any cell, or with `all` for every known cell."""
    found = frame.select(condition.all() if all else condition.any())
    return [name for name in found.columns if found[name][0]]


def check_column_names(names: Sequence[str], where: str) -> None:
    """Raises an error if two columns have the same name, or if there are too many columns."""
    if len(names) > MOST_COLUMNS:
        raise InputError(
            f"{where}: it has {len(names):,} columns, and at most {MOST_COLUMNS:,} are read."
        )
    known: dict[str, int] = {}
    for place, name in enumerate(names, 1):
        key = unicodedata.normalize("NFC", name).strip()
        if key and key in known:
            raise InputError(
                f"{where}: the columns {known[key]} and {place} have the same name, "
                f"'{brief(key)}'; expected different ones."
            )
        known[key] = place


def check_cells(frame: pl.DataFrame, where: str) -> None:
    """Raises an error if a cell is too long."""
    for name in columns_where(frame, TEXTS.str.len_bytes() > LONGEST_CELL):
        row = int((frame[name].str.len_bytes() > LONGEST_CELL).arg_max() or 0)
        number = row + getattr(where, "first_row", 2)
        raise InputError(
            f"{where}: row {number} of the column '{brief(name)}' holds a text of "
            f"{len(frame[name][row]):,} characters; a quotation mark may be missing."
        )


def plain_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """Converts columns of text that hold only plain numbers, or only true and false.

    Codes with leading zeros, and numbers that are too long to be exact, stay text.
    """
    known = columns_where(frame, TEXTS.is_not_null())
    texts = frame.select(known)
    flags = set(columns_where(texts, TEXTS.is_in(["true", "false"]), all=True))
    numbers = columns_where(texts, TEXTS.str.contains(PLAIN_NUMBER), all=True)
    texts = texts.select(numbers)
    codes = {*columns_where(texts, TEXTS.str.contains(ZEROS))}
    whole = {*columns_where(texts, TEXTS.str.contains(WHOLE_NUMBER), all=True)}
    codes |= whole & {*columns_where(texts, TEXTS.str.len_bytes() > LONGEST_WHOLE)}
    numbers = [name for name in numbers if name not in codes]
    kinds: dict[Any, Any] = {name: pl.Int64 if name in whole else pl.Float64 for name in numbers}
    return frame.cast(kinds).with_columns((pl.col(name) == "true").alias(name) for name in flags)
