"""The rule Lock: people who must get an action."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from prefermab.errors import InputError
from prefermab.programme.planning.rules.base import ANY, Forces, setting
from prefermab.programme.planning.rules.words import column_and_ids

if TYPE_CHECKING:
    from prefermab.programme.planning.rules.people import People


class Lock(Forces):
    """Some people must get some action, or a certain one."""

    name = "lock"

    lock_column: str | None = setting(
        None,
        "Column of true and false, or of actions: these people are acted on first, those with the "
        "name of an action with that one.",
        part=name, option="lock", column="texts",
        label="Act on first", hint="A column of yes and no, or of actions.",
    )  # fmt: skip
    lock_ids: Sequence[str | int] = setting(
        (), "Ids of further people who are acted on first.", part=name, metavar="ID ..."
    )

    def forced(self, people: "People") -> np.ndarray:
        locked = np.where(people.with_ids(self.lock_ids, "lock_ids"), ANY, 0)
        if self.lock_column is None:
            return locked
        import polars as pl

        from prefermab.programme.tables.columns import FALSE, TRUE, as_labels
        from prefermab.programme.tables.table import first_row, row_in

        given, where = people.column(self.lock_column), people.where
        text = as_labels(given).str.to_lowercase()
        actions = {name.lower(): place for place, name in enumerate(people.action_names)}
        words = {**dict.fromkeys(TRUE, ANY), **dict.fromkeys(FALSE, 0), "": 0, **actions}
        strange = text.is_not_null() & ~text.is_in(list(words))
        if strange.any():
            row = first_row(strange)
            raise InputError(
                f"{where}: the column '{self.lock_column}' must hold true, false or an action (one "
                f"of {', '.join(people.action_names)}), but {row_in(where, row)} holds "
                f"'{given[row]}'."
            )
        asked = text.replace_strict(words, default=0, return_dtype=pl.Int32).fill_null(0).to_numpy()
        return np.where(asked != 0, asked, locked)

    def words(self) -> Mapping[str, tuple[str, str]]:
        text = column_and_ids(self.lock_column, self.lock_ids)
        return {self.name: ("people who are locked in", text)}
