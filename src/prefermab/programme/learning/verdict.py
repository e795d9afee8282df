"""The verdict on a log: whether it shows that a model gains anything. It combines the estimated
gain, a placebo test with shuffled actions, and all warnings."""

import dataclasses
from collections.abc import Callable
from typing import Literal

import numpy as np

from prefermab.common.intervals import Interval
from prefermab.programme.learning.gain import Comparison, estimate_gain
from prefermab.programme.logs.allocation import Allocation, check_allocation
from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.log_warnings import FEWEST_SEEN, LogWarning, log_warnings
from prefermab.programme.logs.reading import Log, LogTransitions
from prefermab.programme.tables.table import format_people
from prefermab.recipes import Exact

Verdict = Literal["shown", "not shown", "cannot tell"]

SHUFFLES, PLACEBO_ORDERS = 5, 2
"""Number of placebo logs with shuffled actions, and of random orders of people for each."""

MOST_UNTRIED_SPENDING = 0.2
"""Largest share of the model's spending on people and states in which the log almost never acted;
above it, the verdict is `cannot tell`."""

MOST_ROUNDS = Exact().horizon
"""Most rounds that a gain is summed over by default: the horizon of the recipe `exact`."""


@dataclasses.dataclass(frozen=True, eq=False)
class Assessment:
    """What a log shows. `comparison` is None where there are too few people. `placebo` has the
    gains estimated from logs with shuffled actions, which should be about 0. `allocation` is None
    where most states are empty."""

    verdict: Verdict
    comparison: Comparison | None
    placebo: tuple[Interval, ...]
    allocation: Allocation | None
    warnings: tuple[LogWarning, ...]


def default_rounds(log: Log) -> int:
    """Rounds that a gain is summed over: half as many as the log has, at least 2, at most 12."""
    return int(np.clip(log.found.rounds // 2, 2, MOST_ROUNDS))


def assess(
    log: Log,
    fit: Fit,
    budget: float,
    rounds: int,
    seed: int = 0,
    progress: Callable[[float, str], None] | None = None,
) -> Assessment:
    """The verdict on a log, with `budget` as the mean per person and round."""
    allocation = check_allocation(log, fit)
    warnings = [*log_warnings(log), *allocation.warnings(log.found.unit)]
    few = _too_few(log)
    if few is not None:
        return Assessment("cannot tell", None, (), allocation, (*warnings, few))

    def within(first: float, share: float) -> Callable[[float, str], None]:
        return lambda done, what: progress and progress(first + share * done, what)

    comparison = estimate_gain(log, budget, rounds, seed, progress=within(0.0, 0.5))
    placebo = []
    for number in range(SHUFFLES):
        shuffled = shuffle_actions(log.transitions, seed + number + 1)
        part = within(0.5 + 0.5 * number / SHUFFLES, 0.5 / SHUFFLES)
        placebo.append(
            estimate_gain(log, budget, rounds, seed, PLACEBO_ORDERS, shuffled, part).gain
        )
    warnings += _doubts(comparison, placebo)
    verdict = decide(comparison.gain, warnings)
    return Assessment(verdict, comparison, tuple(placebo), allocation, tuple(warnings))


def decide(gain: Interval, warnings: list[LogWarning]) -> Verdict:
    """`cannot tell` if any warning spoils the log; otherwise `shown` if the whole 90 % interval is
    above 0, else `not shown`.

    >>> from prefermab.common.intervals import Interval
    >>> from prefermab.programme.learning.verdict import decide
    >>> decide(Interval(0.4, 0.1, 0.7, 0.18), [])
    'shown'
    """
    if any(warning.spoils for warning in warnings):
        return "cannot tell"
    return "shown" if gain.shown else "not shown"


def shuffle_actions(moves: LogTransitions, seed: int) -> LogTransitions:
    """The placebo: a permutation of the actions, stratified by state and round. It removes any
    effect of acting and keeps everything else."""
    chance = np.random.default_rng(seed).random(len(moves))
    in_order = np.lexsort((np.arange(len(moves)), moves.state, moves.round))
    shuffled = np.lexsort((chance, moves.state, moves.round))
    action = moves.action.copy()
    action[in_order] = moves.action[shuffled]
    return dataclasses.replace(moves, action=action)


def _too_few(log: Log) -> LogWarning | None:
    """A warning if there are not enough people to learn from some and measure on others."""
    moves = log.transitions
    for who, which in (
        (moves.person, "with transitions"),
        (moves.person[moves.action > 0], "who were acted on"),
    ):
        n = len(np.unique(who))
        if n < FEWEST_SEEN:
            return LogWarning(
                "too_few_to_judge",
                f"there are {format_people(n)} {which}, and at least {FEWEST_SEEN} are needed to "
                "learn from some and judge on others: collect more.",
                spoils=True,
            )
    return None


def _doubts(comparison: Comparison, placebo: list[Interval]) -> list[LogWarning]:
    """Warnings about the estimate itself."""
    found = []
    if comparison.untried > MOST_UNTRIED_SPENDING:
        found.append(
            LogWarning(
                "never_tried",
                f"{comparison.untried:.0%} of what the model would spend goes to people and states "
                "in which the log almost never acted, so that the log does not show what follows: "
                "first act on some of them, chosen at random.",
                spoils=True,
            )
        )
    claimed = sum(gain.shown for gain in placebo)
    if claimed > 1:
        found.append(
            LogWarning(
                "placebo_shown",
                f"a gain was found in {claimed} of {len(placebo)} copies of this log with shuffled "
                "actions, in which there is none: figures of this log cannot be trusted; collect "
                "more.",
                spoils=True,
            )
        )
    return found
