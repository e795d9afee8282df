"""Confidence intervals of an estimate from the influence of independent units on it.

An estimate is nearly a mean over units (people, clusters, weeks). What one unit adds to it is the
unit's influence, and the standard error follows from the spread of the influences. If few units
dominate the estimate, this spread is itself uncertain, and skewed. Therefore the normal quantile is
replaced by Student's, with degrees of freedom from the fourth moment (Satterthwaite), and skewness
is removed by Hall's transformation (1992), which moves the interval towards the long tail.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from scipy.stats import t as student

LEVEL = 0.90
"""Confidence level of every printed interval; sentences in reports say "90 %" too."""

TAILS, STANDARD_ERRORS = (0.05, 0.95), 1.645
"""The same as quantiles, and as standard errors of a normal estimate on either side."""


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate with its 90 % interval and standard error.

    >>> import prefermab as pm
    >>> pm.evidence.Interval(0.2, 0.1, 0.3, 0.06).shown
    True
    """

    estimate: float
    low: float
    high: float
    stderr: float

    @property
    def shown(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0

    def as_data(self) -> dict[str, Any]:
        """The numbers by name."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        return f"{self.estimate:+.4g} ({self.low:+.4g} to {self.high:+.4g})"


def from_influence(
    estimate: float,
    influence: np.ndarray,
    level: float = LEVEL,
    lost: int = 1,
    normal: bool = False,
) -> Interval:
    """The confidence interval of an estimate from the influence of its units.

    Args:
        estimate: The estimate.
        influence: (unit,) what each unit adds to the error, times the number of units.
        level: The confidence level.
        lost: Degrees of freedom that were spent on means.
        normal: Use Student's interval without corrections: for few units that are themselves means
            of many, so that moments beyond the second say nothing.

    Returns:
        The interval.

    >>> import numpy as np
    >>> from prefermab.common.intervals import from_influence
    >>> found = from_influence(2.0, np.array([-1.0, 1.0] * 50))
    >>> round(found.low, 2), round(found.high, 2)
    (1.83, 2.17)
    """
    estimate, size = float(estimate), len(influence)
    free = max(size - lost, 1)
    deviations = influence - influence.mean()
    variance = float((deviations**2).sum()) / free
    error = float(np.sqrt(variance / size))
    if error == 0:
        return Interval(estimate, estimate, estimate, 0.0)
    if normal:
        reach = error * float(student.ppf((1 + level) / 2, free))
        return Interval(estimate, estimate - reach, estimate + reach, error)
    scaled = deviations / np.sqrt(variance)
    skewness, kurtosis = float((scaled**3).mean()), float((scaled**4).mean())
    # About `free` if the influences are normal; fewer if a few units dominate.
    degrees = float(np.clip(2 * size / max(kurtosis - 1, 1e-9), 1, free))
    most = float(student.ppf((1 + level) / 2, degrees))
    left, right = (_unskewed(x, skewness / math.sqrt(size)) for x in (-most, most))
    return Interval(estimate, estimate - error * right, estimate - error * left, error)


def _unskewed(quantile: float, skew: float) -> float:
    """The value of the t statistic whose transformed value is this quantile."""
    if abs(skew) < 1e-6:
        return quantile
    inner = 1 + skew * (quantile - skew / 6)
    return 3 / skew * float(np.cbrt(inner) - 1)


def by_unit(values: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Adds up the influence of rows for each unit, on the scale of `from_influence`.

    >>> import numpy as np
    >>> from prefermab.common.intervals import by_unit
    >>> by_unit(np.array([1.0, 2.0, 3.0]), np.array([5, 5, 9])).tolist()
    [2.0, 2.0]
    """
    _, place = np.unique(unit, return_inverse=True)
    total = np.bincount(place, values)
    return total * (len(total) / len(values))


def effective_size(weights: np.ndarray) -> float:
    """Kish's effective number of units with these weights.

    >>> import numpy as np
    >>> from prefermab.common.intervals import effective_size
    >>> effective_size(np.ones(7)), effective_size(np.array([1.0, 0.0]))
    (7.0, 1.0)
    """
    return float(weights.sum() ** 2 / max((weights**2).sum(), 1e-300))
