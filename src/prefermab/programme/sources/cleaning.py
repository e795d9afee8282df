"""What is done to every table that is read: blanks, accents, names of columns, absurd cells."""

import unicodedata
from collections.abc import Sequence

import polars as pl

from prefermab.errors import InputError, brief

LONGEST = 1 << 20
"""Characters of the longest cell: more come from a quote that was never closed."""

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
    renamed = frame.rename(names)
    texts = [name for name, kind in renamed.schema.items() if kind == pl.String]
    return renamed.with_columns(_clean_text(renamed[name]) for name in texts)


def _clean_text(text: pl.Series) -> pl.Series:
    stripped = text.str.strip_chars()
    if stripped.str.len_bytes().sum() != stripped.str.len_chars().sum():
        stripped = stripped.str.normalize("NFC")
    empty = stripped == ""
    return stripped.set(empty, None) if empty.any() else stripped


def check_names(names: Sequence[str], where: str) -> None:
    """Raises if two columns have the same name."""
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
    for values in frame:
        if values.dtype != pl.String:
            continue
        long = (values.str.len_bytes() > LONGEST).fill_null(False)
        if long.any():
            row = int(long.arg_max() or 0)
            raise InputError(
                f"{where}: row {row + first_row} of the column '{brief(values.name)}' holds a text "
                f"of {len(values[row]):,} characters; a quotation mark may be missing."
            )


def plain_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """Texts that are all plain numbers as numbers, or all true and false as such.

    Codes with leading zeros, and numbers too long to be exact, stay texts.
    """
    numbers = []
    for values in frame:
        if values.dtype != pl.String or values.null_count() == len(values):
            continue
        if values.head(100).str.contains(PLAIN).any():
            numbers += _as_numbers(values)
        elif values.is_in(["true", "false"]).all():
            numbers.append((values == "true").alias(values.name))
    return frame.with_columns(numbers)


def _as_numbers(values: pl.Series) -> list[pl.Series]:
    """The column as numbers, if every cell is one."""
    if not values.str.contains(PLAIN).all() or values.str.contains(ZEROS).any():
        return []
    digits = values.str.contains(DIGITS)
    if digits.all():
        long = (values.str.len_bytes() > LONGEST_WHOLE).any()
        return [] if long else [values.cast(pl.Int64)]
    return [values.cast(pl.Float64)]
