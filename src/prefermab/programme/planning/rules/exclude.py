"""The rule Exclude: people who are not acted on."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from prefermab.programme.planning.rules.base import Bars, setting
from prefermab.programme.planning.rules.words import column_and_ids

if TYPE_CHECKING:
    from prefermab.programme.planning.rules.people import People


class Exclude(Bars):
    """Some people are not acted on."""

    name = "exclude"
    kept_out = "excluded"

    exclude_column: str | None = setting(
        None,
        "Column of true and false: people with true are not acted on.",
        part=name, option="exclude", column="truths",
        label="Do not act on", hint="A column of yes and no.",
    )  # fmt: skip
    exclude_ids: Sequence[str | int] = setting(
        (), "Ids of further people who are not acted on.", part=name, metavar="ID ..."
    )

    def barred(self, people: "People") -> np.ndarray:
        found = people.with_ids(self.exclude_ids, "exclude_ids")
        return found if self.exclude_column is None else found | people.flags(self.exclude_column)

    def words(self) -> Mapping[str, tuple[str, str]]:
        text = column_and_ids(self.exclude_column, self.exclude_ids)
        return {self.name: ("people who are excluded", text)}
