"""States as people write them: by name or by number, in a model's own words."""

from typing import Any

import polars as pl

from prefermab.errors import InputError
from prefermab.programme.tables import as_labels, as_numbers, first_row, row_in

NAMED = 12
"""As many states are named in a message; of more, the first and the last."""


def is_continuous(model: Any) -> bool:
    """Whether states are numbers between 0 and 1 rather than names."""
    return bool(model.network.perception.continuous)


def state_numbers(
    model: Any, given: pl.Series, ids: pl.Series, where: str, needed: pl.Series | None = None
) -> pl.Series:
    """States as numbers, null where a cell is empty; one that the model does not know is an error,
    but for people whose state is not `needed`."""
    if is_continuous(model):
        numbers = as_numbers(given, where)
        wrong = (numbers < 0) | (numbers > 1)
    else:
        places = {str(place): place for place in range(len(model.state_names))}
        places |= {name.lower(): place for place, name in enumerate(model.state_names)}
        text = as_labels(given).str.to_lowercase()
        numbers = text.replace_strict(places, default=None, return_dtype=pl.Int64)
        wrong = text.is_not_null() & numbers.is_null()
    if needed is not None:
        wrong &= needed
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: {row_in(where, row)}, id {ids[row]}, has the state '{given[row]}'; expected "
            f"{expected_state(model)}."
        )
    return numbers.alias("state")


def expected_state(model: Any) -> str:
    """What a state may be, in words."""
    if is_continuous(model):
        return "a number from 0 to 1"
    names = model.state_names
    return f"one of {', '.join(names if len(names) <= NAMED else (names[0], '…', names[-1]))}"
