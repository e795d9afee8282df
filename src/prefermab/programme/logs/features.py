"""Features of the people in a log: which columns give which features, and what was known about a
person in each row.

A column that never changes within any person is an attribute: its value is used in all rows of the
person, also in rows before it was first recorded. In a column that changes, each row uses the last
value recorded up to this row, so that no row uses a later value.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.programme.logs.labels import distinct_labels
from prefermab.programme.tables.columns import as_labels, as_measures, as_numbers, level_feature
from prefermab.programme.tables.privacy import MOST_CATEGORIES
from prefermab.programme.tables.table import first_row, row_in
from prefermab.programme.tables.values import OPEN_ENDED, is_number_text

PERSON, PLACE = "\0person", "\0place"
"""Names that no column of a log has."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column that gives features: a number, or a category with these levels."""

    name: str
    levels: tuple[str, ...] | None = None

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The column's own name, or `name=level` for each level."""
        if self.levels is None:
            return (self.name,)
        return tuple(level_feature(self.name, level) for level in self.levels)


@dataclasses.dataclass(frozen=True, eq=False)
class Profiles:
    """Every combination of feature values that was known about somebody: `values` (profile,
    feature). `by_row` (row,) and `latest` (person,) are positions in `values`: the profile of each
    row, and the last profile of each person."""

    values: np.ndarray
    by_row: np.ndarray
    latest: np.ndarray


def feature_columns(frame: pl.DataFrame, where: str) -> list[Column]:
    """The columns as numbers or categories, by their types and their distinct values."""
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
    if kind == pl.String and is_number_text(values):
        as_numbers(values, where)  # raises where a number has two meanings
        return Column(name)
    _check_words(values, where)
    levels = as_labels(values).drop_nulls().unique()
    if levels.is_empty():
        raise InputError(f"{where}: the feature column '{name}' has no known value.")
    if len(levels) > MOST_CATEGORIES:
        raise InputError(
            f"{where}: the feature column '{name}' has {len(levels):,} different texts; a category "
            f"has at most {MOST_CATEGORIES}: leave it out of the features."
        )
    return Column(name, tuple(distinct_labels(values, "level", where)))


def _check_words(values: pl.Series, where: str) -> None:
    """Raises an error if most of the distinct texts are numbers: the others are then mistakes."""
    text = as_labels(values)
    numeric = text.cast(pl.Float64, strict=False).is_not_null()
    # Ranges such as 3+ make a category of the numbers beside them.
    wrong = text.is_not_null() & ~numeric & ~text.str.contains(OPEN_ENDED)
    if wrong.any() and text.filter(numeric).n_unique() > text.filter(wrong).n_unique():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' holds numbers in {numeric.sum():,} rows but "
            f"'{values[row]}' in {row_in(where, row)}: correct it, or leave it empty if it is "
            "unknown (n/a, #N/A or - is a text)."
        )


def cast_columns(
    frame: pl.DataFrame, columns: Sequence[Column], order: pl.Series, where: str
) -> pl.DataFrame:
    """Feature columns in the order of the rows, as numbers or labels; null means unknown."""
    numeric = {column.name: column.levels is None for column in columns}
    return frame.select(
        (as_measures(values, where) if numeric[values.name] else as_labels(values)).gather(order)
        for values in frame.get_columns()
    )


def changing_columns(known: pl.DataFrame, person: pl.Series) -> dict[str, int]:
    """The columns that change within a person, each with the number of such people.

    >>> import polars as pl
    >>> from prefermab.programme.logs.features import changing_columns
    >>> known = pl.DataFrame({"age": [30, 31, 50], "region": ["n", None, "s"]})
    >>> changing_columns(known, pl.Series("person", [0, 0, 1]))
    {'age': 1}
    """
    if not known.width:
        return {}
    by_person = known.with_columns(person.alias(PERSON)).group_by(PERSON)
    people = by_person.agg(pl.all().min() < pl.all().max()).drop(PERSON).sum().row(0, named=True)
    return {name: int(n) for name, n in people.items() if n}


def find_profiles(known: pl.DataFrame, person: pl.Series, columns: Sequence[Column]) -> Profiles:
    """The profiles of rows that are sorted by person and time."""
    if not columns:
        # One profile for all, in which nothing is known.
        by_row = np.zeros(len(person), int)
        return Profiles(np.zeros((1, 0)), by_row, by_row[_last_rows(person)])
    changing = changing_columns(known, person)
    forward = {name: pl.col(name).forward_fill() for name in known.columns}
    filled = known.with_columns(person.alias(PERSON)).select(
        (values if name in changing else values.backward_fill()).over(PERSON)
        for name, values in forward.items()
    )
    each = filled.with_row_index(PLACE).group_by(known.columns, maintain_order=True).agg(PLACE)
    by_row = np.empty(len(person), int)
    sizes = each[PLACE].list.len().to_numpy()
    by_row[each[PLACE].explode().to_numpy()] = np.repeat(np.arange(len(each)), sizes)
    parts = [encode(column, each[column.name], "the log") for column in columns]
    return Profiles(np.concatenate(parts, axis=1), by_row, by_row[_last_rows(person)])


def encode(column: Column, values: pl.Series, where: str) -> np.ndarray:
    """(row, feature): the features of a column; NaN where unknown.

    >>> import polars as pl
    >>> from prefermab.programme.logs.features import Column, encode
    >>> encode(Column("region", ("n", "s")), pl.Series("region", ["s", None]), "log").tolist()
    [[0.0, 1.0], [nan, nan]]
    """
    if column.levels is None:
        return as_numbers(values, where).cast(pl.Float64).fill_null(np.nan).to_numpy()[:, None]
    text = as_labels(values)
    is_level = [(text == level).cast(pl.Float64).fill_null(np.nan) for level in column.levels]
    return np.stack([found.to_numpy() for found in is_level], axis=1)


def _last_rows(person: pl.Series) -> np.ndarray:
    """The last row of each person."""
    number = person.to_numpy()
    return np.flatnonzero(np.append(number[1:] != number[:-1], True))
