"""What was known of people when: the features of a row are those known at or before it.

A column whose known values never change within any person is an attribute: its value holds for all
rows of that person, also those before somebody wrote it down. A column that changes within somebody
is carried forward only. What was learned later must not tell of weeks before.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from prefermab.programme.columns import as_labels, as_numbers
from prefermab.programme.logs.columns import Column, encode

PERSON, PLACE = "\0person", "\0place"
"""Names that no column of a log has."""


@dataclasses.dataclass(frozen=True, eq=False)
class Profiles:
    """Every combination of values that was known of somebody: `values` (profile, feature); and by
    place in `values` what was known in each row (row,), in the order of `rows`, and of each
    person at last (person,)."""

    values: np.ndarray
    of_row: np.ndarray
    latest: np.ndarray


def typed(
    others: pl.DataFrame, columns: Sequence[Column], order: pl.Series, where: str
) -> pl.DataFrame:
    """Columns of features in the order of the rows, as numbers or labels, null where unknown."""
    numeric = {column.name: column.levels is None for column in columns}
    return others.select(
        (as_numbers(values, where) if numeric[values.name] else as_labels(values)).gather(order)
        for values in others.get_columns()
    )


def changing(known: pl.DataFrame, person: pl.Series) -> dict[str, int]:
    """The columns that change within somebody, and within how many people.

    >>> import polars as pl
    >>> from prefermab.programme.logs.profiles import changing
    >>> known = pl.DataFrame({"age": [30, 31, 50], "region": ["n", None, "s"]})
    >>> changing(known, pl.Series("person", [0, 0, 1]))
    {'age': 1}
    """
    if not known.width:
        return {}
    by_person = known.with_columns(person.alias(PERSON)).group_by(PERSON)
    people = by_person.agg(pl.all().min() < pl.all().max()).drop(PERSON).sum().row(0, named=True)
    return {name: int(n) for name, n in people.items() if n}


def profiles_of(known: pl.DataFrame, person: pl.Series, columns: Sequence[Column]) -> Profiles:
    """Profiles of rows that are in the order of people and time."""
    if not columns:
        # One profile for all, in which nothing is known.
        of_row = np.zeros(len(person), int)
        return Profiles(np.zeros((1, 0)), of_row, of_row[_ends(person)])
    moves = changing(known, person)
    forward = {name: pl.col(name).forward_fill() for name in known.columns}
    filled = known.with_columns(person.alias(PERSON)).select(
        (values if name in moves else values.backward_fill()).over(PERSON)
        for name, values in forward.items()
    )
    each = filled.with_row_index(PLACE).group_by(known.columns, maintain_order=True).agg(PLACE)
    of_row = np.empty(len(person), int)
    sizes = each[PLACE].list.len().to_numpy()
    of_row[each[PLACE].explode().to_numpy()] = np.repeat(np.arange(len(each)), sizes)
    parts = [encode(column, each[column.name], "the log") for column in columns]
    return Profiles(np.concatenate(parts, axis=1), of_row, of_row[_ends(person)])


def _ends(person: pl.Series) -> np.ndarray:
    """The last row of each person."""
    number = person.to_numpy()
    return np.flatnonzero(np.append(number[1:] != number[:-1], True))
