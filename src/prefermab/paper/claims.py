"""The paper's claims, each tested by a number with a 95 % interval over training seeds.

A claim holds if the whole interval is on its side of a line. It fails if the whole interval is on
the other side, and is open if the interval contains the line.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy import stats

from prefermab.paper.results import Mean, Results
from prefermab.paper.runner import PAPER_RECIPES
from prefermab.paper.tables import Section, Setting, Table

HOLDS, FAILS, OPEN = "holds", "does not hold", "open"


@dataclasses.dataclass(frozen=True)
class Trend:
    """A claim, what was measured to test it, the result, and the verdict."""

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
    """Tests the claim that the mean of `values`, one for each seed, is above a line (or below it).

    The interval is a t interval. For another statistic `of` the values, it is a bootstrap over
    seeds.

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
    """95 % interval of a statistic of rows, from 2,000 samples of rows with replacement."""
    rng = np.random.default_rng(0)
    picks = rng.integers(0, len(values), (2000, len(values)))
    drawn = np.array([of(values[pick]) for pick in picks])
    # The nearest value, not an interpolation: a value may be infinite.
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


SETTLED_EPOCHS = 10
"""The price at the end of training is the mean over this many last epochs."""

POINTS_FOR_POWER = 3
"""A power of the number of arms is fitted only if at least this many gaps are above noise."""


@dataclasses.dataclass(frozen=True)
class Gaps:
    """How far the models of a recipe are below Whittle, at each number of arms."""

    recipe: str
    sizes: np.ndarray
    by_seed: np.ndarray
    """(seed, size)"""
    stderr: np.ndarray
    """Over seeds and paired trials, for each size."""

    @property
    def above_noise(self) -> np.ndarray:
        """For each size, whether the mean gap is more than two standard errors."""
        return self.by_seed.mean(axis=0) > 2 * self.stderr

    def power(self) -> tuple[float, float, float] | None:
        """The power of the number of arms with which the gap falls, and its bootstrap interval over
        seeds. None if too few gaps are above noise."""
        kept = self.above_noise
        if kept.sum() < POINTS_FOR_POWER:
            return None
        sizes, gaps = self.sizes[kept], self.by_seed[:, kept]
        fit = lambda rows: slope(sizes, rows.mean(axis=0))  # noqa: E731
        low, high = bootstrap(gaps, fit)
        return fit(gaps), low, high


def slope(sizes: np.ndarray, gaps: np.ndarray) -> float:
    """The power of size with which gaps fall: the slope of a line through their logarithms."""
    positive = gaps > 0
    if positive.sum() < 2:
        return np.nan
    return float(np.polyfit(np.log(sizes[positive]), np.log(gaps[positive]), 1)[0])


def gaps_of(results: Results, section: Section) -> list[Gaps]:
    """The gaps of each recipe. Where the section varies the number of arms of an instance, only of
    recipes that train on such instances; where it varies the number of different arms, of all."""
    settings = section.rows[0].settings
    by_n = section_by_n(section)
    sizes = np.array([float(at.n_arms if by_n else at.unique_arms or 0) for at in settings])
    found = []
    for recipe in results.recipes:
        if by_n and recipe not in PAPER_RECIPES:
            continue
        each = [results.informed(at)[None] - results.rewards(recipe, at) for at in settings]
        by_seed = np.stack([gap.mean(axis=1) for gap in each], axis=1)
        stderr = np.array([Mean.of(gap).stderr for gap in each])
        found.append(Gaps(recipe, sizes, by_seed, stderr))
    return found


def section_by_n(section: Section) -> bool:
    """Whether a section varies the number of arms of an instance."""
    return section.rows[0].settings[0].unique_arms is None


def larger_n(results: Results, table: Table) -> list[Trend]:
    """Proposition 1: the gap is smaller with many arms than with few."""
    found = []
    for section in table.sections:
        what = "arms of an instance" if section_by_n(section) else "different training arms"
        claim = f"Better generalization with more {what}"
        for gaps in gaps_of(results, section):
            fewest, most = gaps.sizes[0], gaps.sizes[-1]
            measured = (
                f"`{gaps.recipe}`: gap to Whittle with {fewest:.0f} less that with {most:.0f}"
            )
            found.append(trend(claim, measured, gaps.by_seed[:, 0] - gaps.by_seed[:, -1]))
    return found


def price_trends(results: Results) -> list[Trend]:
    """Proposition 3: training moves the price to the best one; at most a tenth of the distance at
    the start is left."""
    found = []
    for title, setting in results.where():
        best = float(results.best_prices(setting).mean())
        for recipe in paper_recipes(results):
            first, last = price_ends(results, recipe, setting)
            left = np.abs(last - best) / np.abs(first - best).mean()
            what = (
                f"`{recipe}`, {title}: distance to the best price ({best:.2f}) at the end of "
                f"training (price {last.mean():.2f}), as a share of that at its start"
            )
            claim = "The price converges to the best one (10 % left)"
            found.append(trend(claim, what, left, 0.1, below=True))
    return found


def price_ends(results: Results, recipe: str, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Each seed's price at the start and at the end of training."""
    prices = results.prices(recipe, setting)
    return prices[:, 0], prices[:, -SETTLED_EPOCHS:].mean(axis=1)


def paper_recipes(results: Results) -> list[str]:
    """The recipes that learn a price."""
    return [recipe for recipe in results.recipes if recipe in PAPER_RECIPES]
