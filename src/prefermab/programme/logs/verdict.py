"""Whether a log shows that a model gains anything: the gain, the same where nothing can be gained,
and all that speaks against believing it."""

import dataclasses
from collections.abc import Callable
from typing import Literal

import numpy as np

from prefermab.programme.logs.allocation import Allocation, allocation_of
from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.gain import Gain, Judged, judge
from prefermab.programme.logs.reading import Log
from prefermab.programme.logs.seen import shuffled
from prefermab.programme.logs.shapes import FEW, Caution, cautions
from prefermab.programme.tables import people

Verdict = Literal["shown", "not shown", "cannot tell"]

SHUFFLES, ORDERS = 5, 2
"""Logs with shuffled actions that are judged beside the log itself, and with how many orders."""

UNSEEN = 0.2
"""Share of the model's spending where the log almost never acted, from which on nothing is told."""

MOST_ROUNDS = 12
"""That a gain is counted over, unless asked otherwise: as far as the recipe looks ahead."""


@dataclasses.dataclass(frozen=True, eq=False)
class Findings:
    """What a log shows. `placebo` has the gains found in logs whose actions were shuffled among the
    people in the same state and round: they should be about 0."""

    verdict: Verdict
    judged: Judged | None
    placebo: tuple[Gain, ...]
    allocation: Allocation
    cautions: tuple[Caution, ...]


def usual_rounds(log: Log) -> int:
    """Rounds that a gain is counted over if nobody says: half as many as the log has, at most as
    many as the recipe looks ahead."""
    return int(np.clip(log.found.rounds // 2, 2, MOST_ROUNDS))


def find(
    log: Log,
    fit: Fit,
    budget: float,
    rounds: int,
    seed: int = 0,
    progress: Callable[[float, str], None] | None = None,
) -> Findings:
    """Judges a log, with `budget` to spend on a person in a round on average."""
    allocation = allocation_of(log, fit)
    warned = [*cautions(log), *allocation.cautions(log.found.unit)]
    few = _too_few(log)
    if few is not None:
        return Findings("cannot tell", None, (), allocation, (*warned, few))

    def told(first: float, share: float) -> Callable[[float, str], None]:
        return lambda done, what: progress and progress(first + share * done, what)

    judged = judge(log, budget, rounds, seed, progress=told(0.0, 0.5))
    placebo = []
    for number in range(SHUFFLES):
        mixed = shuffled(log.transitions, seed + number + 1)
        part = told(0.5 + 0.5 * number / SHUFFLES, 0.5 / SHUFFLES)
        placebo.append(judge(log, budget, rounds, seed, ORDERS, mixed, part).gain)
    warned += _doubts(judged, placebo)
    return Findings(verdict_of(judged.gain, warned), judged, tuple(placebo), allocation, (*warned,))


def verdict_of(gain: Gain, warned: list[Caution]) -> Verdict:
    """Nothing can be told from a log that something spoils, whatever its figures are.

    >>> from prefermab.programme.logs.gain import Gain
    >>> from prefermab.programme.logs.verdict import verdict_of
    >>> verdict_of(Gain(0.4, 0.1, 0.7, 0.18), [])
    'shown'
    """
    if any(caution.spoils for caution in warned):
        return "cannot tell"
    return "shown" if gain.shown else "not shown"


def _too_few(log: Log) -> Caution | None:
    """Where there are not enough people to learn from some and judge on others."""
    moves = log.transitions
    for who, told in (
        (moves.person, "with transitions"),
        (moves.person[moves.action > 0], "who were acted on"),
    ):
        n = len(np.unique(who))
        if n < FEW:
            return Caution(
                "too_few_to_judge",
                f"there are {people(n)} {told}, and at least {FEW} are needed to learn from some "
                "and judge on others: collect more.",
                spoils=True,
            )
    return None


def _doubts(judged: Judged, placebo: list[Gain]) -> list[Caution]:
    found = []
    if judged.unseen > UNSEEN:
        found.append(
            Caution(
                "never_tried",
                f"{judged.unseen:.0%} of what the model would spend goes to people and states in "
                "which the log almost never acted, so that nobody saw what comes of it: act on "
                "some of them, chosen at random, first.",
                spoils=True,
            )
        )
    claimed = sum(gain.shown for gain in placebo)
    if claimed > 1:
        found.append(
            Caution(
                "placebo_shown",
                f"in {claimed} of {len(placebo)} logs whose actions were shuffled, so that nothing "
                "can be gained, a gain was found all the same: figures of this log cannot be "
                "trusted; collect more.",
                spoils=True,
            )
        )
    return found
