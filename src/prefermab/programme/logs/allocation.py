"""Who was acted on, and why: what a log can say about causes that no column holds.

If people were acted on by something hidden that also moves their state, what acting does cannot be
told. The hidden cause itself is not in the log, but it leaves traces. People who were acted on more
often than others in the same state and with the same features then differ from these in the rounds
in which nobody acted on them; and in the same state, those who are acted on had another past.
"""

import dataclasses

import numpy as np
import polars as pl

from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.reading import Log
from prefermab.programme.logs.seen import chances_of_actions
from prefermab.programme.logs.shapes import Caution

CHANCE = 2.24
"""Standard errors beyond which traces are taken as found: by chance in 2.5 of 100 honest logs."""

LIKE_ALL = 2.0
"""Rounds that everybody's mean counts for in the mean of what a person earned before."""


@dataclasses.dataclass(frozen=True, eq=False)
class Allocation:
    """`balance` compares transitions under an action with the others: what, acted, others,
    difference (in standard deviations). `trace` is how many standard errors the people who were
    acted on more than others like them stand above these, before and when nobody acted."""

    balance: pl.DataFrame
    trace: float

    def cautions(self, unit: str) -> list[Caution]:
        """What was found, in a sentence."""
        if abs(self.trace) <= CHANCE:
            return []
        better = "better" if self.trace > 0 else "worse"
        return [
            Caution(
                "hidden_cause",
                "people who were acted on more often than others in the same state and with the "
                f"same features were {better} off than these before, and in {unit}s in which "
                f"nobody acted on them ({abs(self.trace):.1f} standard errors): they seem to be "
                "chosen by something that is not in the log and also moves the state; add the "
                "column that they were chosen by, or choose some at random.",
                spoils=True,
            )
        ]


def allocation_of(log: Log, fit: Fit) -> Allocation:
    """How those acted on differ from others, and whether that leaves traces.

    >>> import prefermab as pm
    >>> from prefermab.programme.logs.allocation import allocation_of
    >>> from prefermab.programme.logs.simulated import simulate
    >>> from prefermab.programme.logs.fitting import fit_log
    >>> from prefermab.programme.logs.reading import read_log
    >>> frame = simulate(pm.domains.Synthetic(), people=50, rounds=10, share=0.2)
    >>> log = read_log(frame, passive="none", rewards={"bad": 0, "good": 1})
    >>> allocation_of(log, fit_log(log, draws=8)).cautions("week")  # drawn at random
    []
    """
    moves = log.transitions
    acted = (moves.action > 0).astype(float)
    excess = acted - 1 + chances_of_actions(log, moves)[moves.profile, moves.state, 0]
    chances = fit.chances(log.profiles)[moves.profile, moves.state, 0]
    beyond = log.meaning.rewards[moves.following] - chances @ log.meaning.rewards
    before = _before(log)
    traces = [_when_idle(log, excess, beyond, acted == 0), _in_the_past(log, excess, before)]
    # Each of both is a sum over people; put on one scale they add up, and people stay independent.
    both = np.sum([each / max(np.sqrt((each**2).sum()), 1e-12) for each in traces], axis=0)
    return Allocation(_balance(log, before), float(both.sum() / np.sqrt((both**2).sum() or 1.0)))


def _when_idle(log: Log, excess: np.ndarray, beyond: np.ndarray, idle: np.ndarray) -> np.ndarray:
    """(person,): acted on more than others like them, and better off when not acted on."""
    moves, size = log.transitions, len(log.latest)
    rounds = np.maximum(np.bincount(moves.person, minlength=size), 1)
    quiet = np.bincount(moves.person, idle, size)
    more = np.bincount(moves.person, excess, size) / rounds
    better = np.bincount(moves.person, np.where(idle, beyond, 0.0), size)
    more = more - (more * quiet).sum() / max(quiet.sum(), 1)
    return more * (better - quiet * better.sum() / max(quiet.sum(), 1))


def _in_the_past(log: Log, excess: np.ndarray, before: np.ndarray) -> np.ndarray:
    """(person,): acted on more than others like them after a better past, in the same state."""
    where, moves = ~np.isnan(before), log.transitions
    own = moves.where(where)
    known = np.nan_to_num(log.profiles[own.profile])
    known = (known - known.mean(axis=0)) / np.maximum(known.std(axis=0), 1e-12)
    design = np.concatenate([np.eye(log.shape[0])[own.state], known], axis=1)
    apart = before[where] - design @ np.linalg.lstsq(design, before[where], rcond=None)[0]
    return np.bincount(own.person, apart * excess[where], len(log.latest))


def _before(log: Log) -> np.ndarray:
    """The mean reward of a person's states before each transition, drawn towards everybody's mean
    where few are known; NaN where none is."""
    moves = log.transitions
    order = np.lexsort((moves.round, moves.person))
    earned = log.meaning.rewards[moves.state[order]]
    first = np.flatnonzero(np.diff(moves.person[order], prepend=-1))
    place = np.arange(len(moves)) - np.repeat(first, np.diff(np.append(first, len(moves))))
    total = np.cumsum(earned) - earned
    total -= np.repeat(total[first], np.diff(np.append(first, len(moves))))
    before = np.empty(len(moves))
    known = (total + LIKE_ALL * earned.mean()) / (place + LIKE_ALL)
    before[order] = np.where(place > 0, known, np.nan)
    return before


def _balance(log: Log, before: np.ndarray) -> pl.DataFrame:
    moves = log.transitions
    acted = moves.action > 0
    features = log.profiles[moves.profile].T
    states = np.eye(log.shape[0])[moves.state].T
    named = zip(
        [*log.feature_names, *(f"state {name}" for name in log.meaning.states), "reward before"],
        [*features, *states, before],
        strict=True,
    )
    rows = []
    for name, values in named:
        known = ~np.isnan(values)
        own, others = values[known & acted], values[known & ~acted]
        if not (len(own) and len(others)):
            continue
        spread = np.sqrt((own.var() + others.var()) / 2)
        apart = float(own.mean() - others.mean())
        rows.append((name, float(own.mean()), float(others.mean()),
                     apart / spread if spread > 0 else 0.0))  # fmt: skip
    schema = {"what": pl.String, "acted": pl.Float64, "others": pl.Float64,
              "difference": pl.Float64}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")
