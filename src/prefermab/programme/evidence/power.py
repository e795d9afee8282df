"""Sample size of a trial for a given power, by simulation of the programme itself."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import norm

from prefermab.common.intervals import Interval
from prefermab.errors import InputError, count, number, share
from prefermab.models.model import Model
from prefermab.programme.evidence.designs import (
    BY_CLUSTER,
    BY_PERSON,
    Design,
    Layout,
    draw_layout,
    estimate_trial_effects,
)
from prefermab.programme.evidence.effects import FOLLOWED, TrialArm, follows_index
from prefermab.programme.evidence.simulated_trials import (
    Pool,
    TrialHistories,
    TrialProgramme,
    draw_pool,
    play_programme_trials,
)

LAST_TRIALS, FIRST_TRIALS = 1000, 300
"""Simulated trials in the last turns of the search, and in the first two."""

SEARCH_TURNS = 9
"""Most sample sizes that the search tries."""

PEOPLE_SIMULATED_AT_ONCE = 400_000
"""About how many people are simulated together."""

LARGEST_TRIAL = 20_000
"""Largest number of people or rounds of a trial; above it, the search raises an error."""

STRATA = 3
"""Strata of simulated people: thirds by the model's index in their first state."""


@dataclasses.dataclass(frozen=True)
class SampleSize:
    """The size of a trial: people, rounds and, for cluster designs, clusters. `power` is the share
    of `trials` simulated trials of this size that showed the gain, `wanted` the power that was
    wanted, `gain` the true gain for which the power holds, and `simulated_gain` the model's gain
    per person and round in the simulation."""

    design: str
    people: int
    rounds: int
    clusters: int | None
    gain: float
    simulated_gain: float
    wanted: float
    power: float
    trials: int
    spread: float
    """Standard deviation of the estimate over trials."""

    def __str__(self) -> str:
        units = "" if self.clusters is None else f" in {self.clusters:,} clusters"
        return (
            f"{self.design}: {self.people:,} people{units} over {self.rounds:,} rounds show a gain "
            f"of {self.gain:.4g} per person and round in {self.power:.1%} of {self.trials:,} "
            f"simulated trials ({self.wanted:.0%} wanted); the model gains "
            f"{self.simulated_gain:.4g} in the simulation"
        )


def simulate_effects(
    pool: Pool,
    design: Design,
    programme: TrialProgramme,
    people: int,
    clusters: int,
    trials: int,
    rng: np.random.Generator,
) -> list[dict[str, Interval]]:
    """The estimated effects in simulated trials.

    Args:
        pool: The people that trials draw from.
        design: The design.
        programme: The programme that is tested.
        people: People in a trial.
        clusters: The number of clusters, for designs that need them.
        trials: The number of trials.
        rng: Random numbers.

    Returns:
        For each trial, the interval of each estimator.
    """
    found: list[dict[str, Interval]] = []
    batch = max(PEOPLE_SIMULATED_AT_ONCE // people, 1)
    while len(found) < trials:
        number = min(batch, trials - len(found))
        who = rng.integers(0, pool.size, (number, people))
        layouts = [_layout(pool, design, one, clusters, rng) for one in who]
        played = play_layouts(pool, design, programme, who, layouts, rng)
        for place, layout in enumerate(layouts):
            arm = played.arm(place)
            found.append(
                estimate_trial_effects(
                    design, layout, arm, _exchangeable(pool, design, layout, arm)
                )
            )
    return found


def _exchangeable(pool: Pool, design: Design, layout: Layout, people: TrialArm) -> bool:
    """Whether the analysis would use `reshuffled`: there is one action, and the model's actions
    went to the people with the highest index."""
    if pool.steps is not None and pool.steps.costs.shape[1] > 2:
        return False
    if pool.quotas is None and pool.steps is None:
        return True
    if design.name not in BY_PERSON:
        return False
    return follows_index(people.where(layout.by_model[:, 0])) >= FOLLOWED


def play_layouts(
    pool: Pool,
    design: Design,
    programme: TrialProgramme,
    who: np.ndarray,
    layouts: list[Layout],
    rng: np.random.Generator,
) -> TrialHistories:
    """Simulates trials with these layouts. Each cluster has its own budget in designs with
    clusters; everybody shares one budget in a switchback; otherwise each arm has its own."""
    by_model = np.stack([layout.by_model for layout in layouts])
    if design.name in BY_CLUSTER:
        own = np.stack([layout.unit for layout in layouts])
    elif design.name == "switchback":
        own = np.zeros(by_model.shape[:2], int)
    else:
        own = by_model[:, :, 0].astype(int)
    shared = own + (own.max() + 1) * np.arange(len(layouts))[:, None]
    budget = [pool.budget(programme.share, size) for size in np.bincount(shared.ravel()).tolist()]
    return play_programme_trials(
        pool, who, by_model, shared, np.array(budget), programme.control, programme.cooldown, rng
    )


def _layout(
    pool: Pool, design: Design, who: np.ndarray, clusters: int, rng: np.random.Generator
) -> Layout:
    people = len(who)
    if design.name in BY_CLUSTER:
        return draw_layout(design, np.arange(people) % clusters, np.zeros(clusters, int), rng)
    stratum = np.zeros(people, int)
    if design.name == "stratified":
        first = (pool.index[who] * pool.start[who]).sum(axis=1)
        stratum = np.argsort(np.argsort(first)) * STRATA // people
    return draw_layout(design, np.arange(people), stratum, rng)


def needed(
    model: Model,
    design: Design,
    programme: TrialProgramme,
    *,
    domain: Any = None,
    gain: float | None = None,
    power: float = 0.8,
    people: int = 200,
    cluster_size: int = 30,
    trials: int = LAST_TRIALS,
    seed: int = 0,
    progress: Callable[[float, str], None] | None = None,
) -> SampleSize:
    """The smallest trial that shows a gain with the wanted power, by simulation of trials.

    A gain is shown if the whole 90 % interval of the primary estimator is above 0. If `gain`
    differs from the model's gain in the simulation, the intervals are shifted by the difference.
    This assumes that the variance of the estimate does not depend on the gain.

    Args:
        model: The model that the trial tests.
        design: The design, with its rounds; for a switchback the number of rounds is searched.
        programme: Share of people acted on, control and rules.
        domain: The domain that people are drawn from, such as `prefermab.from_log(log)`; the
            model's own if None.
        gain: The true gain per person and round; the model's gain in the simulation if None.
        power: The probability with which the trial shows this gain.
        people: People in a switchback; in other designs, the first size that is tried.
        cluster_size: People in a cluster.
        trials: Simulated trials in the last turns of the search.
        seed: Random seed.
        progress: Called with the share that is done, and a text that says what is being done.

    Returns:
        The size of the trial.

    Example::

        design = pm.evidence.Design("individual", rounds=12)
        tried = pm.evidence.TrialProgramme(share=0.1, control="random")
        print(pm.evidence.needed(pm.load("armman"), design, tried, gain=0.05))
    """
    programme.check_design(design)
    pool = draw_pool(model, domain, seed=seed, programme=programme)
    return needed_for_pool(
        pool, design, programme, gain=gain, power=power, people=people, cluster_size=cluster_size,
        trials=trials, seed=seed, progress=progress,
    )  # fmt: skip


def needed_for_pool(
    pool: Pool,
    design: Design,
    programme: TrialProgramme,
    *,
    gain: float | None = None,
    power: float = 0.8,
    people: int = 200,
    cluster_size: int = 30,
    trials: int = LAST_TRIALS,
    seed: int = 0,
    progress: Callable[[float, str], None] | None = None,
) -> SampleSize:
    """The same as `needed`, for a pool of people that exists already."""
    wanted, size = share(power, "power"), count(people, "people", at_least=8)
    if not 0.05 < wanted < 1:
        raise InputError(f"power must lie between 0.05 and 1, not {wanted:g}.")
    rng = np.random.default_rng([seed, 1])
    search = _Search(pool, design, programme, size, count(cluster_size, "cluster_size"), gain, rng)
    units = search.find(wanted, trials, progress)
    if progress is not None:
        progress(0.9, f"trials with {search.in_words(units)}")
    lows, target = search.low_ends(units, trials)
    return SampleSize(
        design.name, search.people(units), search.rounds(units), search.clusters(units), target,
        search.simulated, wanted, float((lows > 0).mean()), trials, search.spread,
    )  # fmt: skip


class _Search:
    """The search for the number of units: people, clusters, or pairs of blocks."""

    def __init__(
        self,
        pool: Pool,
        design: Design,
        programme: TrialProgramme,
        size: int,
        cluster_size: int,
        gain: float | None,
        rng: np.random.Generator,
    ):
        self.pool, self.design, self.programme, self.rng = pool, design, programme, rng
        self.size, self.cluster_size = size, cluster_size
        self.gain = None if gain is None else number(gain, "gain")
        if self.gain == 0:
            raise InputError("gain must be above 0: no trial shows a gain of 0.")
        self.step = 4 if design.name in BY_PERSON else 1
        self.fewest = 4 if design.name in BY_CLUSTER else 2 if self.step == 1 else 8
        self.simulated, self.spread = 0.0, 0.0

    def first(self) -> int:
        """The first number of units that is tried."""
        if self.design.name in BY_CLUSTER:
            return 12
        return 6 if self.design.name == "switchback" else self.size

    def find(
        self, wanted: float, trials: int, progress: Callable[[float, str], None] | None
    ) -> int:
        """The smallest number of units with the wanted power, by a bracketed search."""
        units, few, enough = self.first(), self.fewest - self.step, None
        for turn in range(SEARCH_TURNS):
            if progress is not None:
                progress(0.9 * turn / SEARCH_TURNS, f"trials with {self.in_words(units)}")
            lows, target = self.low_ends(units, FIRST_TRIALS if turn < 2 else trials)
            if (lows > 0).mean() >= wanted:
                enough = units
            else:
                few = units
            guess = self.next(units, lows, target, wanted)
            if turn > 1 and self.step > 1 and abs(guess - units) <= self.step:
                return guess
            if enough is not None:
                if enough - few <= self.step:
                    break
                guess = int(np.clip(guess, few + self.step, enough - self.step))
            units = max(guess, few + self.step)
        return units if enough is None else enough

    def people(self, units: int) -> int:
        if self.design.name in BY_CLUSTER:
            return units * self.cluster_size
        return self.size if self.design.name == "switchback" else units

    def rounds(self, units: int) -> int:
        if self.design.name == "switchback":
            return units * 2 * self.design.block
        return self.design.rounds

    def clusters(self, units: int) -> int | None:
        return units if self.design.name in BY_CLUSTER else None

    def in_words(self, units: int) -> str:
        return f"{self.people(units):,} people and {self.rounds(units):,} rounds"

    def low_ends(self, units: int, trials: int) -> tuple[np.ndarray, float]:
        """The lower ends of the intervals in simulated trials, shifted to the true gain, and that
        gain."""
        design = dataclasses.replace(self.design, rounds=self.rounds(units))
        found = simulate_effects(
            self.pool, design, self.programme, self.people(units), units, trials, self.rng
        )
        counts = [next(iter(one.values())) for one in found]
        estimates = np.array([one.estimate for one in counts])
        self.simulated, self.spread = float(estimates.mean()), float(estimates.std())
        target = self.simulated if self.gain is None else self.gain
        if target <= 0:
            raise InputError(
                f"the model gains {target:.3g} per person and round in the simulation, which no "
                "trial can show: give the gain that is to be shown."
            )
        return np.array([one.low for one in counts]) + target - self.simulated, target

    def next(self, units: int, lows: np.ndarray, target: float, wanted: float) -> int:
        """The next number of units to try. The distance of the lower ends from the gain is taken to
        fall with the square root of the number of units; this number puts the wanted share of
        them above 0."""
        reach = target - float(np.quantile(lows, 1 - wanted))
        # The quantile of few simulated trials is noisy; that of a normal distribution with the same
        # mean and variance is less so.
        smooth = target - float(lows.mean() + norm.ppf(1 - wanted) * lows.std())
        root = np.sqrt(units) * (reach + smooth) / 2 / target
        found = max(int(np.ceil(root**2 / self.step)) * self.step, self.fewest)
        if self.people(found) > LARGEST_TRIAL or self.rounds(found) > LARGEST_TRIAL:
            raise InputError(
                f"such a trial would need {self.in_words(found)}, more than {LARGEST_TRIAL:,}: a "
                f"gain of {target:.3g} per person and round is too small to be shown."
            )
        return found
