"""The paper's claims, each as a number with a 95 % interval over training seeds.

A claim holds if the whole interval is on its side of the line, fails if all of it is on the other
side, and is open in between.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy import stats

HOLDS, FAILS, OPEN = "holds", "does not hold", "open"


@dataclasses.dataclass(frozen=True)
class Trend:
    """A claim, what was measured for it, and what that says."""

    claim: str
    measured: str
    estimate: float
    low: float
    high: float
    verdict: str


def trend(
    claim: str,
    measured: str,
    values: np.ndarray,
    line: float = 0.0,
    below: bool = False,
    of: Callable[[np.ndarray], float] | None = None,
) -> Trend:
    """A claim that `values`, one a seed, lie above a line (or below it) on average: a t interval,
    or, for another statistic `of` them, a bootstrap over seeds.

    >>> import numpy as np
    >>> from prefermab.paper.claims import trend
    >>> trend("more is more", "gain", np.array([1.0, 1.2, 0.9, 1.1])).verdict
    'holds'
    """
    values = np.asarray(values, float)
    if of is None:
        estimate, (low, high) = float(values.mean()), t_interval(values)
    else:
        estimate, (low, high) = of(values), bootstrap(values, of)
    sided = (high < line, low > line) if below else (low > line, high < line)
    verdict = HOLDS if sided[0] else FAILS if sided[1] else OPEN
    if np.isnan(estimate):
        verdict = OPEN
    return Trend(claim, measured, estimate, low, high, verdict)


def t_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean of independent values."""
    if values.size < 2:
        return -np.inf, np.inf
    half = stats.t.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean() - half), float(values.mean() + half)


def bootstrap(values: np.ndarray, of: Callable[[np.ndarray], float]) -> tuple[float, float]:
    """95 % interval of a statistic of rows, by drawing rows again 2,000 times."""
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(values), (2000, len(values)))
    drawn = np.array([of(values[pick]) for pick in picks])
    # Taken from among the values: one may be infinite, and then there is nothing between two.
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    return float(low), float(high)


def interquartile_mean(values: np.ndarray) -> float:
    """The mean of the middle half.

    >>> import numpy as np
    >>> from prefermab.paper.claims import interquartile_mean
    >>> interquartile_mean(np.array([0.0, 1.0, 2.0, 100.0]))
    1.5
    """
    ordered = np.sort(np.asarray(values, float))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def samples_to_reach(goal: float, samples: np.ndarray, rewards: np.ndarray) -> float:
    """Samples after which a curve first reaches a goal; infinite if it never does.

    >>> import numpy as np
    >>> from prefermab.paper.claims import samples_to_reach
    >>> samples_to_reach(2.0, np.array([0, 100, 200]), np.array([1.0, 2.5, 3.0]))
    100.0
    """
    reached = np.flatnonzero(rewards >= goal)
    return float(samples[reached[0]]) if reached.size else np.inf
