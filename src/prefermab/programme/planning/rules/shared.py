"""Limits that people with the same label share."""

import dataclasses

import numpy as np


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
        >>> from prefermab.programme.planning.rules.shared import SharedLimits
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
