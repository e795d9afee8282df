"""What rules see of people."""

import dataclasses
from collections.abc import Iterable

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.programme.tables.cleaning import clean_ids
from prefermab.programme.tables.columns import as_flags, as_labels, as_numbers, named_column


@dataclasses.dataclass(frozen=True, eq=False)
class People:
    """The people whom a rule is about: a table, their ids, who is opted in, and the names of the
    actions. `where` names the table in messages."""

    table: pl.DataFrame
    ids: pl.Series
    opt_in: np.ndarray
    action_names: tuple[str, ...]
    where: str

    @property
    def size(self) -> int:
        """How many people there are."""
        return len(self.ids)

    def column(self, name: str) -> pl.Series:
        """A column that a rule names, as it is."""
        return named_column(self.table, name, self.where)

    def flags(self, name: str) -> np.ndarray:
        """A column of true and false; empty cells are false."""
        return as_flags(self.column(name), self.where, unknown=False).to_numpy()

    def numbers(self, name: str) -> pl.Series:
        """A column of numbers; empty cells are null."""
        return as_numbers(self.column(name), self.where)

    def labels(self, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
        """A column of labels as numbers, -1 for people without a label, and the labels."""
        text = clean_ids(self.column(name).cast(pl.String))
        labels = tuple(sorted(text.drop_nulls().unique().to_list()))
        places = {label: place for place, label in enumerate(labels)}
        found = text.replace_strict(places, default=-1, return_dtype=pl.Int32).fill_null(-1)
        return found.to_numpy(), labels

    def with_ids(self, ids: Iterable[str | int], setting: str) -> np.ndarray:
        """Which people have one of these ids, which a setting names."""
        wanted = clean_ids(pl.Series([str(one) for one in ids], dtype=pl.String)).to_list()
        if not wanted:
            return np.zeros(self.size, bool)
        text = as_labels(self.ids)
        strange = set(map(str, wanted)) - set(text.to_list())
        if strange:
            raise InputError(
                f"{self.where}: nobody has the id '{min(strange)}' that {setting} names."
            )
        return text.is_in(wanted).to_numpy()
