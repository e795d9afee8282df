"""How far published figures are from what they estimate, judged by the baselines.

The published 50 trials share about 130 test arms, so that the printed standard deviation over √50
is too small an error. No Action and Random learn nothing: by how much theirs differ from ours tells
how much larger the true error is. One factor for each domain multiplies the printed error such that
the differences of its baselines have the spread that their errors say. A factor also takes in what
we may have read differently from the authors, such as how arms are drawn.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

LARGEST_FACTOR = 100.0


@dataclasses.dataclass(frozen=True)
class Pair:
    """A published mean beside ours; `printed` is the published error if trials were independent."""

    published: float
    printed: float
    ours: float
    stderr: float

    def error(self, factor: float) -> float:
        """The standard error of the difference."""
        return math.hypot(self.stderr, factor * self.printed)

    def z(self, factor: float) -> float:
        """The difference in standard errors."""
        gap, error = self.ours - self.published, self.error(factor)
        return gap / error if error else math.inf * gap if gap else 0.0

    def mark(self, factor: float, bound: float = math.inf) -> str:
        """better, same (within two standard errors), worse, or beyond: worse than a published
        figure above the bound, which no policy can reach."""
        z = self.z(factor)
        if abs(z) <= 2:
            return "same"
        return "better" if z > 0 else "beyond" if self.published > bound else "worse"


@dataclasses.dataclass(frozen=True)
class Fit:
    """The factor of a domain, the number of baseline cells behind it, and how many of them are
    within two standard errors with it and without."""

    factor: float = 1.0
    cells: int = 0
    within: int = 0
    within_as_printed: int = 0


@dataclasses.dataclass(frozen=True)
class Noise:
    """The factors by domain: for rewards, and for what is earned over No Action."""

    level: Mapping[str, Fit] = dataclasses.field(default_factory=dict)
    lift: Mapping[str, Fit] = dataclasses.field(default_factory=dict)

    def of_level(self, domain: str) -> float:
        """The factor for a reward."""
        return self.level.get(domain, Fit()).factor

    def of_lift(self, domain: str) -> float:
        """The factor for a lift over No Action."""
        return self.lift.get(domain, Fit()).factor


def fit_factor(pairs: Sequence[Pair]) -> Fit:
    """The factor at which the mean square of the differences, in standard errors, is one; never
    below one, for 50 trials cannot be more precise than independent ones.

    >>> from prefermab.paper.noise import Pair, fit_factor
    >>> round(fit_factor([Pair(1.0, 0.1, 1.3, 0.0), Pair(1.0, 0.1, 0.7, 0.0)]).factor, 3)
    3.0
    """
    if not pairs:
        return Fit()
    low, high = 1.0, LARGEST_FACTOR
    for _ in range(50):
        middle = (low + high) / 2
        wide = np.mean([pair.z(middle) ** 2 for pair in pairs]) < 1
        low, high = (low, middle) if wide else (middle, high)
    return Fit(low, len(pairs), count_within(pairs, low), count_within(pairs, 1.0))


def count_within(pairs: Iterable[Pair], factor: float) -> int:
    """How many differences are within two standard errors."""
    return int(sum(abs(pair.z(factor)) <= 2 for pair in pairs))
