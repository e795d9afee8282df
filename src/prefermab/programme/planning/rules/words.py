"""What rules share: numbers by name, and how settings are said."""

from collections.abc import Mapping, Sequence

import numpy as np

from prefermab.errors import InputError, unknown


def number_of_each(
    given: Mapping[str, float], names: tuple[str, ...], default: float, of: str
) -> np.ndarray:
    """The number of each name, or the default; `of` says what the names are.

    >>> from prefermab.programme.planning.rules.words import number_of_each
    >>> number_of_each({"Ana": 5.0}, ("Ana", "Bea"), 0.0, "worker")
    array([5., 0.])
    """
    import polars as pl

    from prefermab.programme.tables.cleaning import clean_ids

    numbers = {}
    for name, clean in zip(given, clean_ids(pl.Series([*given], dtype=pl.String)), strict=True):
        if clean not in names:
            raise unknown(of, name, names)
        if clean in numbers:
            raise InputError(f"the {of} '{name}' has two numbers; expected one.")
        numbers[clean] = given[name]
    return np.array([numbers.get(name, default) for name in names], float)


def shares_in_words(shares: Mapping[str, float]) -> str:
    """Shares as text, such as "north 30%, south 20%"."""
    return ", ".join(f"{name} {value:.0%}" for name, value in shares.items())


def column_and_ids(column: str | None, ids: Sequence[str | int]) -> str:
    """A column and a number of people as text, such as "column stop, 2 by hand"."""
    by_hand = f"{len(ids)} by hand" if ids else ""
    return ", ".join(one for one in (f"column {column}" if column else "", by_hand) if one)
