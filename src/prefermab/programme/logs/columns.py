"""Columns of a log as labels, times and features, or what is wrong with them and in which row."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.programme.columns import as_labels, as_numbers
from prefermab.programme.tables import first_row, row_in

MOST_CATEGORIES = 50
"""A column with more different texts is a name or a number of its own, not a category."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column that gives features: a number, or a category of one of these levels."""

    name: str
    levels: tuple[str, ...] | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column's own name, or `name=level` for each level."""
        if self.levels is None:
            return (self.name,)
        return tuple(f"{self.name}={level}" for level in self.levels)


def label_of(value: Any) -> str:
    """A label as text, whatever it was written as.

    >>> from prefermab.programme.logs.columns import label_of
    >>> [label_of(value) for value in ("call ", 1, 1.0, True)]
    ['call', '1', '1', 'true']
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating) and value == int(value):
        return str(int(value))
    return str(value).strip()


def in_order(names: Sequence[str]) -> list[str]:
    """Numbers by size, then texts by letter.

    >>> from prefermab.programme.logs.columns import in_order
    >>> in_order(["call", "10", "9"])
    ['9', '10', 'call']
    """

    def place(name: str) -> tuple[bool, float, str]:
        try:
            return False, float(name), name
        except ValueError:
            return True, 0.0, name

    return sorted(names, key=place)


def known_labels(values: pl.Series, role: str, where: str) -> dict[str, int]:
    """The different labels of a column in order, none like another but for upper and lower case,
    each with the first row that holds it."""
    places = pl.DataFrame({"label": as_labels(values)}).with_row_index("row").drop_nulls()
    each = places.group_by("label").agg(pl.col("row").min(), pl.len().alias("n"))
    first, often = (dict(zip(each["label"], each[name], strict=True)) for name in ("row", "n"))
    rows = {name: int(first[name]) for name in in_order(list(first))}
    alike: dict[str, str] = {}
    for name in rows:
        other = alike.setdefault(name.lower(), name)
        if other != name:
            few, many = sorted((other, name), key=lambda label: often[label])
            raise InputError(
                f"{where}: the {role} '{few}' of {row_in(where, rows[few])} in the column "
                f"'{values.name}' differs from '{many}' in upper and lower case only; expected one "
                "spelling."
            )
    return rows


def times(values: pl.Series, where: str) -> pl.Series:
    """Whole numbers: as they are, or the days of dates."""
    kind = values.dtype
    if kind == pl.String:
        values = _parsed(values, where)
        kind = values.dtype
    if values.null_count():
        row = first_row(values.is_null())
        raise InputError(
            f"{where}: {row_in(where, row)} has no time in the column '{values.name}'."
        )
    if kind in (pl.Date, pl.Datetime):
        return values.cast(pl.Date).cast(pl.Int64)
    if not kind.is_numeric():
        raise InputError(
            f"{where}: the column '{values.name}' must hold whole numbers or dates, not {kind}."
        )
    numbers = as_numbers(values, where)
    wrong = numbers.is_null() | (numbers != numbers.round())
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' must hold whole numbers or dates, but "
            f"{row_in(where, row)} holds {values[row]}."
        )
    return numbers.cast(pl.Int64)


def _parsed(values: pl.Series, where: str) -> pl.Series:
    """Text as whole numbers or as dates, whichever more of it is."""
    text = values.str.strip_chars()
    text = text.set(text == "", None)
    tried = [
        text.cast(pl.Int64, strict=False),
        text.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False),
    ]
    best = min(tried, key=lambda found: found.null_count())
    wrong = text.is_not_null() & best.is_null()
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' must hold whole numbers or dates such as "
            f"2026-01-31, but {row_in(where, row)} holds '{values[row]}'."
        )
    return best


def feature_columns(frame: pl.DataFrame, where: str) -> list[Column]:
    """What each column gives, by its type and its different values."""
    return [_feature_column(frame[name], where) for name in frame.columns]


def _feature_column(values: pl.Series, where: str) -> Column:
    name, kind = values.name, values.dtype
    if "=" in name:
        raise InputError(f"{where}: the feature column '{name}' must not have = in its name.")
    if kind.is_temporal():
        raise InputError(
            f"{where}: the feature column '{name}' holds {kind} values; expected numbers or text."
        )
    if kind.is_numeric() or kind == pl.Boolean:
        if as_numbers(values, where).null_count() == len(values):
            raise InputError(f"{where}: the feature column '{name}' has no known value.")
        return Column(name)
    if kind not in (pl.String, pl.Categorical, pl.Enum):
        raise InputError(f"{where}: the feature column '{name}' must hold numbers or text.")
    _check_words(values, where)
    levels = as_labels(values).drop_nulls().unique()
    if levels.is_empty():
        raise InputError(f"{where}: the feature column '{name}' has no known value.")
    if len(levels) > MOST_CATEGORIES:
        raise InputError(
            f"{where}: the feature column '{name}' has {len(levels):,} different texts; a category "
            f"has at most {MOST_CATEGORIES}: leave it out of the features."
        )
    return Column(name, tuple(known_labels(values, "level", where)))


def _check_words(values: pl.Series, where: str) -> None:
    """Where most of the different texts are numbers, the others are taken for mistakes."""
    text = as_labels(values)
    numeric = text.cast(pl.Float64, strict=False).is_not_null()
    wrong = text.is_not_null() & ~numeric
    if wrong.any() and text.filter(numeric).n_unique() > text.filter(wrong).n_unique():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' holds numbers in {numeric.sum():,} rows but "
            f"'{values[row]}' in {row_in(where, row)}: correct it, or leave it empty if it is "
            "unknown (n/a, #N/A or - is a text)."
        )


def encode(column: Column, values: pl.Series, where: str) -> np.ndarray:
    """Features (row, feature) of a column: NaN where unknown.

    >>> import polars as pl
    >>> from prefermab.programme.logs.columns import Column, encode
    >>> encode(Column("region", ("n", "s")), pl.Series("region", ["s", None]), "log").tolist()
    [[0.0, 1.0], [nan, nan]]
    """
    if column.levels is None:
        return as_numbers(values, where).cast(pl.Float64).fill_null(np.nan).to_numpy()[:, None]
    text = as_labels(values)
    is_level = [(text == level).cast(pl.Float64).fill_null(np.nan) for level in column.levels]
    return np.stack([found.to_numpy() for found in is_level], axis=1)
