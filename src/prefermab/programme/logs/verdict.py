"""Whether a log shows that a model gains anything: the gain, the same on a placebo, and everything
that speaks against believing it."""

import dataclasses
from collections.abc import Callable
from typing import Literal

import numpy as np

from prefermab.programme.intervals import Interval
from prefermab.programme.logs.allocation import Allocation, check_allocation
from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.gain import Comparison, estimate_gain
from prefermab.programme.logs.reading import Log, LogTransitions
from prefermab.programme.logs.warnings import FEWEST_SEEN, LogWarning, log_warnings
from prefermab.programme.tables import format_people
from prefermab.recipes import Exact

Verdict = Literal["shown", "not shown", "cannot tell"]

SHUFFLES, PLACEBO_ORDERS = 5, 2
"""Placebo logs with shuffled actions, and the random orders of people for each."""

MOST_UNTRIED_SPENDING = 0.2
"""Share of the model's spending where the log almost never acted above which no gain is
measured."""

MOST_ROUNDS = Exact().horizon
"""Rounds that a gain is counted over at most, unless given: the horizon of the recipe."""


@dataclasses.dataclass(frozen=True, eq=False)
class Assessment:
    """What a log shows. `comparison` is None where there are too few people. `placebo` has the
    gains found in logs whose actions were shuffled: they should be about 0. `allocation` is None
    where most states are empty."""

    verdict: Verdict
    comparison: Comparison | None
    placebo: tuple[Interval, ...]
    allocation: Allocation | None
    warnings: tuple[LogWarning, ...]


def default_rounds(log: Log) -> int:
    """Rounds that a gain is counted over: half as many as the log has, at most 12."""
    return int(np.clip(log.found.rounds // 2, 2, MOST_ROUNDS))


def assess(
    log: Log,
    fit: Fit,
    budget: float,
    rounds: int,
    seed: int = 0,
    progress: Callable[[float, str], None] | None = None,
) -> Assessment:
    """The verdict on a log, with `budget` for a person and round on average."""
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
        mixed = shuffle_actions(log.transitions, seed + number + 1)
        part = within(0.5 + 0.5 * number / SHUFFLES, 0.5 / SHUFFLES)
        placebo.append(estimate_gain(log, budget, rounds, seed, PLACEBO_ORDERS, mixed, part).gain)
    warnings += _doubts(comparison, placebo)
    verdict = decide(comparison.gain, warnings)
    return Assessment(verdict, comparison, tuple(placebo), allocation, tuple(warnings))


def decide(gain: Interval, warnings: list[LogWarning]) -> Verdict:
    """`cannot tell` if any warning spoils the log; otherwise by the gain's interval.

    >>> from prefermab.programme.intervals import Interval
    >>> from prefermab.programme.logs.verdict import decide
    >>> decide(Interval(0.4, 0.1, 0.7, 0.18), [])
    'shown'
    """
    if any(warning.spoils for warning in warnings):
        return "cannot tell"
    return "shown" if gain.shown else "not shown"


def shuffle_actions(moves: LogTransitions, seed: int) -> LogTransitions:
    """The placebo: actions shuffled among the people in the same state and round, which removes any
    effect of acting and keeps everything else."""
    chance = np.random.default_rng(seed).random(len(moves))
    as_is = np.lexsort((np.arange(len(moves)), moves.state, moves.round))
    mixed = np.lexsort((chance, moves.state, moves.round))
    action = moves.action.copy()
    action[as_is] = moves.action[mixed]
    return dataclasses.replace(moves, action=action)


def _too_few(log: Log) -> LogWarning | None:
    """A warning where there are not enough people to learn from some and measure on others."""
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
    if comparison.unseen > MOST_UNTRIED_SPENDING:
        found.append(
            LogWarning(
                "never_tried",
                f"{comparison.unseen:.0%} of what the model would spend goes to people and states "
                "in which the log almost never acted, so that nobody saw what comes of it: act on "
                "some of them, chosen at random, first.",
                spoils=True,
            )
        )
    claimed = sum(gain.shown for gain in placebo)
    if claimed > 1:
        found.append(
            LogWarning(
                "placebo_shown",
                f"in {claimed} of {len(placebo)} logs whose actions were shuffled, so that nothing "
                "can be gained, a gain was found all the same: figures of this log cannot be "
                "trusted; collect more.",
                spoils=True,
            )
        )
    return found
