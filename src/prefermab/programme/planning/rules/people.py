"""What rules see of people, and the limits that people with the same label share."""

import dataclasses
from collections.abc import Iterable

import numpy as np
import polars as pl

from prefermab.common.errors import InputError
from prefermab.programme.tables.cleaning import clean_ids
from prefermab.programme.tables.columns import as_flags, as_labels, as_numbers, named_column

ANY = -1
"""The person must get some action, whichever is best."""


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


@dataclasses.dataclass(frozen=True, eq=False)
class SharedLimits:
    """Limits that people with the same label share, by label.

    `least` and `largest` are shares of all people acted on, `budget` what may be spent on people
    with the label, `people` how many of them may be acted on.
    """

    label: np.ndarray
    """Everyone's place in `names`, -1 for people without a label."""
    names: tuple[str, ...]
    least: np.ndarray
    largest: np.ndarray
    budget: np.ndarray
    people: np.ndarray
    shares: bool = False
    """Whether shares are asked for, though they may allow everything."""

    @classmethod
    def of(
        cls,
        label: np.ndarray,
        names: tuple[str, ...],
        least: np.ndarray | None = None,
        largest: np.ndarray | None = None,
        budget: np.ndarray | None = None,
        people: np.ndarray | None = None,
    ) -> "SharedLimits":
        """Limits of which most are left out.

        >>> import numpy as np
        >>> from prefermab.programme.planning.rules.people import SharedLimits
        >>> SharedLimits.of(np.array([0, 1, 0]), ("Ana", "Bea"), budget=np.array([5.0, 3.0])).people
        array([inf, inf])
        """
        free = np.full(len(names), np.inf)
        return cls(
            label,
            names,
            np.zeros(len(names)) if least is None else least,
            np.ones(len(names)) if largest is None else largest,
            free if budget is None else budget,
            free if people is None else people,
            least is not None or largest is not None,
        )

    @property
    def binds(self) -> bool:
        """Whether there is any limit."""
        some = (
            (self.least > 0) | (self.largest < 1) | (np.minimum(self.budget, self.people) < np.inf)
        )
        return bool(some.any())
