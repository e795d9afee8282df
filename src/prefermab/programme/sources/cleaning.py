"""What is done to every table that is read: blanks, accents, names of columns, absurd cells."""

import unicodedata
from collections.abc import Sequence

import polars as pl

from prefermab.errors import InputError, brief

LONGEST = 1 << 20
"""Characters of the longest cell: more come from a quote that was never closed."""

PLAIN = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"
INTEGER = r"^[+-]?[0-9]{1,18}$"
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
    return renamed.with_columns(_clean_text(pl.col(name)) for name in texts)


def _clean_text(text: pl.Expr) -> pl.Expr:
    stripped = text.str.strip_chars().str.normalize("NFC")
    return pl.when(stripped != "").then(stripped)


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
    """Texts that are all plain numbers as numbers; codes with leading zeros stay texts."""
    numbers = []
    for values in frame:
        if values.dtype != pl.String or values.null_count() == len(values):
            continue
        if not values.head(100).str.contains(PLAIN).all() or not values.str.contains(PLAIN).all():
            continue
        if values.str.contains(ZEROS).any():
            continue
        whole = bool(values.str.contains(INTEGER).all())
        numbers.append(values.cast(pl.Int64 if whole else pl.Float64))
    return frame.with_columns(numbers)
