"""The rule Shares: how much of a plan each group gets."""

from collections.abc import Mapping

import numpy as np

from prefermab.errors import InputError, share
from prefermab.programme.planning.rules.base import Ties, setting
from prefermab.programme.planning.rules.shared import SharedLimits
from prefermab.programme.planning.rules.words import number_of_each, shares_in_words


class Shares(Ties):
    """Groups have a least or a largest share of the people acted on."""

    name = "shares"

    group_column: str | None = setting(
        None,
        "Column with the group of each person, for least and largest shares.",
        part=None, option="group", column="texts",
        label="Groups", hint="The column that shares below are about.",
    )  # fmt: skip
    min_share: Mapping[str, float] = setting(
        {},
        "Smallest share of the people acted on who must come from a group, such as north=0.3.",
        part="min_share", metavar="GROUP=SHARE ...", percent=True,
        label="Least shares", hint="Such as: north 30%, south 20%",
    )  # fmt: skip
    max_share: Mapping[str, float] = setting(
        {},
        "Largest share of the people acted on who may come from a group.",
        part="max_share", metavar="GROUP=SHARE ...", percent=True,
        label="Largest shares", hint="Such as: north 60%",
    )  # fmt: skip

    def __post_init__(self) -> None:
        for name in ("min_share", "max_share"):
            for group, value in getattr(self, name).items():
                share(value, f"{name} of the group '{group}'")
        if (self.min_share or self.max_share) and self.group_column is None:
            raise InputError("min_share and max_share need `group_column`.")
        least = sum(self.min_share.values())
        if least > 1 + 1e-9:
            raise InputError(
                f"the least shares of the groups ({shares_in_words(self.min_share)}) add up to "
                f"{least:.0%}, more than 100%."
            )
        for group in self.min_share.keys() & self.max_share.keys():
            if self.min_share[group] > self.max_share[group]:
                raise InputError(
                    f"the group '{group}' must get at least {self.min_share[group]:.0%} and at "
                    f"most {self.max_share[group]:.0%} of the actions: no plan can do both."
                )

    @property
    def label_column(self) -> str | None:
        return self.group_column

    def limits(self, label: np.ndarray, names: tuple[str, ...]) -> SharedLimits:
        of = f"group of the column '{self.group_column}'"
        return SharedLimits.of(
            label,
            names,
            least=number_of_each(self.min_share, names, 0.0, of),
            largest=number_of_each(self.max_share, names, 1.0, of),
        )

    def words(self) -> Mapping[str, tuple[str, str]]:
        return {
            "min_share": ("least shares of groups", shares_in_words(self.min_share)),
            "max_share": ("largest shares of groups", shares_in_words(self.max_share)),
        }
