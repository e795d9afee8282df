"""Cleans every table that is read: blanks, accents, names of columns, cells that are too long, and
numbers stored as text."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import polars as pl

from prefermab.errors import InputError, brief
from prefermab.programme.tables.values import PLAIN_NUMBER

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

MANY_DIGITS = r"^[+-]?[0-9]{16}"
"""Beside fractions, a whole number of so many digits may not be exact."""

ZEROS = r"^[+-]?0[0-9]"


def clean(frame: pl.DataFrame) -> pl.DataFrame:
    """Strips outer blanks from names and texts, makes an accented letter one character (NFC), and
    makes empty texts null.

    >>> import polars as pl
    >>> from prefermab.programme.tables.cleaning import clean
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


def clean_ids(ids: pl.Series) -> pl.Series:
    """Ids by the rule of `clean`, so that a person is the same one in a file and in a frame.

    >>> import polars as pl
    >>> from prefermab.programme.tables.cleaning import clean_ids
    >>> clean_ids(pl.Series(["a ", "Jose\\u0301"])).to_list()
    ['a', 'José']
    """
    if not isinstance(ids.dtype, pl.String | pl.Categorical | pl.Enum):
        return ids.fill_nan(None) if ids.dtype.is_float() else ids
    return clean(ids.cast(pl.String).alias("id").to_frame())["id"].alias(ids.name)


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
    texts = texts.select(name for name in numbers if name not in whole)
    codes |= {*columns_where(texts, TEXTS.str.contains(MANY_DIGITS))}
    numbers = [name for name in numbers if name not in codes]
    kinds: dict[Any, Any] = {name: pl.Int64 if name in whole else pl.Float64 for name in numbers}
    return frame.cast(kinds).with_columns((pl.col(name) == "true").alias(name) for name in flags)
