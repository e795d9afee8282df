"""The rule Cooldown: rounds of rest after an action."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from prefermab.errors import InputError
from prefermab.programme.planning.rules.base import Bars, setting
from prefermab.programme.tables.naming import (
    ACTION_SEEN,
    OPT_IN,
    SINCE_ACTION,
    SINCE_SEEN,
    find_name,
)

NO_ROUNDS = ("id", "state", OPT_IN, SINCE_SEEN, ACTION_SEEN)
"""Columns that do not hold the rounds since the last action."""

if TYPE_CHECKING:
    from prefermab.programme.planning.rules.people import People


class Cooldown(Bars):
    """Nobody is acted on again within a number of rounds."""

    name = "cooldown"
    kept_out = "in cooldown"

    cooldown: int = setting(
        0,
        "Number of rounds without an action that must follow each action on a person.",
        part=name, label="Rounds of rest after an action", hint="0 if there is no such rule.",
    )  # fmt: skip
    last_column: str = setting(
        SINCE_ACTION,
        "Column with the rounds since a person's last action, for the cooldown; empty if there was "
        "none.",
        part=None, option="last", metavar="COLUMN", column="numbers",
    )  # fmt: skip

    def __post_init__(self) -> None:
        if find_name(NO_ROUNDS, self.last_column) is not None:
            raise InputError(
                f"last_column must name the column of the rounds since the last action, such as "
                f"{SINCE_ACTION}, not '{self.last_column}'."
            )

    def barred(self, people: "People") -> np.ndarray:
        if not self.cooldown:
            return np.zeros(people.size, bool)
        from prefermab.programme.tables.table import first_row, row_in

        since = people.numbers(self.last_column)
        if (since < 0).any():
            row = first_row(since < 0)
            raise InputError(
                f"{people.where}: the column '{self.last_column}' must hold rounds since the last "
                f"action, but {row_in(people.where, row)} holds {since[row]:g}."
            )
        return (since <= self.cooldown).fill_null(False).to_numpy()

    def words(self) -> Mapping[str, tuple[str, str]]:
        rounds = f"{self.cooldown} round{'s' * (self.cooldown != 1)}"
        return {self.name: ("rest after an action", rounds)}
