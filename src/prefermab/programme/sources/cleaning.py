"""What is done to every table that is read: blanks, accents, names of columns, absurd cells."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import polars as pl

from prefermab.errors import InputError, brief

LONGEST = 1 << 17
"""Characters of the longest cell: more come from a quote that was never closed."""

TEXTS = pl.selectors.string()

MOST_COLUMNS = 50_000
"""Columns of the widest table; Excel has 16,384."""

PLAIN = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
DIGITS = r"^[+-]?[0-9]+$"
LONGEST_WHOLE = 18
"""Digits that a whole number can have; longer ones are codes."""

ZEROS = r"^[+-]?0[0-9]"


def clean(frame: pl.DataFrame) -> pl.DataFrame:
    """Names and texts without outer blanks; an accented letter is one character; no empty texts.

    >>> import polars as pl
    >>> from prefermab.programme.sources.cleaning import clean
    >>> clean(pl.DataFrame({" id ": ["Jose\\u0301 ", "  "]})).to_dict(as_series=False)
    {'id': ['José', None]}
    """
    blanks = "\ufeff \t\r\n\xa0"
    names = {name: unicodedata.normalize("NFC", name).strip(blanks) for name in frame.columns}
    # One query for all columns: a table may have very many.
    frame = frame.rename(names).with_columns(TEXTS.str.strip_chars())
    size = frame.select(TEXTS.str.len_bytes().sum())
    letters = frame.select(TEXTS.str.len_chars().sum())
    accents = [name for name in size.columns if size[name][0] != letters[name][0]]
    frame = frame.with_columns(pl.col(name).str.normalize("NFC") for name in accents)
    blank = [pl.col(name) for name in columns_where(frame, TEXTS == "")]
    return frame.with_columns(pl.when(text != "").then(text) for text in blank)


def columns_where(frame: pl.DataFrame, condition: pl.Expr, *, all: bool = False) -> list[str]:
    """The columns in which a condition on their cells holds for any cell, or for all known ones."""
    found = frame.select(condition.all() if all else condition.any())
    return [name for name in found.columns if found[name][0]]


def check_names(names: Sequence[str], where: str) -> None:
    """Raises if two columns have the same name."""
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


def check_cells(frame: pl.DataFrame, where: str, first_row: int) -> None:
    """Raises if a cell is absurdly long."""
    for name in columns_where(frame, TEXTS.str.len_bytes() > LONGEST):
        row = int((frame[name].str.len_bytes() > LONGEST).arg_max() or 0)
        raise InputError(
            f"{where}: row {row + first_row} of the column '{brief(name)}' holds a text of "
            f"{len(frame[name][row]):,} characters; a quotation mark may be missing."
        )


def plain_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """Texts that are all plain numbers as numbers, or all true and false as such.

    Codes with leading zeros, and numbers too long to be exact, stay texts.
    """
    known = columns_where(frame, TEXTS.is_not_null())
    texts = frame.select(known)
    flags = set(columns_where(texts, TEXTS.is_in(["true", "false"]), all=True))
    numbers = columns_where(texts, TEXTS.str.contains(PLAIN), all=True)
    texts = texts.select(numbers)
    codes = {*columns_where(texts, TEXTS.str.contains(ZEROS))}
    whole = {*columns_where(texts, TEXTS.str.contains(DIGITS), all=True)}
    codes |= whole & {*columns_where(texts, TEXTS.str.len_bytes() > LONGEST_WHOLE)}
    numbers = [name for name in numbers if name not in codes]
    kinds: dict[Any, Any] = {name: pl.Int64 if name in whole else pl.Float64 for name in numbers}
    return frame.cast(kinds).with_columns((pl.col(name) == "true").alias(name) for name in flags)
