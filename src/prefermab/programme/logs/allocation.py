"""Who was acted on, and whether a hidden cause decided it.

If people were chosen by something that is not in the log and also moves their state, the effect of
acting cannot be measured. The hidden cause itself is not in the log, but it leaves traces: people
who were acted on more often than others in the same state and with the same features then differ
from these in the rounds in which nobody acted on them, and in what they earned before.
"""

import dataclasses

import numpy as np
import polars as pl

from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.population import estimate_propensity
from prefermab.programme.logs.reading import Log
from prefermab.programme.logs.warnings import LogWarning

CHANCE = 2.24
"""Standard errors above which traces count as found: by chance in 2.5 of 100 logs without any."""

PRIOR_ROUNDS = 2.0
"""Rounds that everybody's mean counts for in the mean of what a person earned before."""


@dataclasses.dataclass(frozen=True, eq=False)
class Allocation:
    """`balance` compares transitions under an action with the others: what, acted, others,
    difference (in standard deviations). `trace` is how many standard errors the people who were
    acted on more often than others like them were better off, before and when nobody acted."""

    balance: pl.DataFrame
    trace: float

    def warnings(self, unit: str) -> list[LogWarning]:
        """The warning about a hidden cause, if there are traces of one."""
        if abs(self.trace) <= CHANCE:
            return []
        better = "better" if self.trace > 0 else "worse"
        return [
            LogWarning(
                "hidden_cause",
                "people who were acted on more often than others in the same state and with the "
                f"same features were {better} off than these before, and in {unit}s in which "
                f"nobody acted on them ({abs(self.trace):.1f} standard errors): they seem to be "
                "chosen by something that is not in the log and also moves the state; add the "
                "column that they were chosen by, or choose some at random.",
                spoils=True,
            )
        ]


def check_allocation(log: Log, fit: Fit) -> Allocation:
    """How those acted on differ from others, and whether that leaves traces.

    >>> from prefermab.programme.logs.allocation import check_allocation
    >>> from prefermab.programme.logs.simulated import example_tables
    >>> from prefermab.programme.logs.fitting import fit_log
    >>> from prefermab.programme.logs.reading import read_log
    >>> frame = example_tables(people=60, weeks=10)[1]
    >>> log = read_log(frame, time="week", passive="none",
    ...     rewards={"engaged": 1, "drifting": 0.5, "silent": 0})
    >>> check_allocation(log, fit_log(log, draws=8)).warnings("week")  # chosen at random
    []
    """
    moves = log.transitions
    acted = (moves.action > 0).astype(float)
    excess = acted - 1 + estimate_propensity(log, moves)[moves.profile, moves.state, 0]
    chances = fit.chances(log.profiles)[moves.profile, moves.state, 0]
    beyond = log.labels.rewards[moves.following] - chances @ log.labels.rewards
    before = _reward_before(log)
    traces = [_trace_when_idle(log, excess, beyond, acted == 0), _trace_before(log, excess, before)]
    # Each trace is a sum over people; on one scale they add up, and people stay independent.
    both = np.sum([each / max(np.sqrt((each**2).sum()), 1e-12) for each in traces], axis=0)
    return Allocation(
        balance_table(log, before), float(both.sum() / np.sqrt((both**2).sum() or 1.0))
    )


def _trace_when_idle(
    log: Log, excess: np.ndarray, beyond: np.ndarray, idle: np.ndarray
) -> np.ndarray:
    """(person,): acted on more often than others like them, times better off when not acted on."""
    moves, size = log.transitions, len(log.latest)
    rounds = np.maximum(np.bincount(moves.person, minlength=size), 1)
    quiet = np.bincount(moves.person, idle, size)
    more = np.bincount(moves.person, excess, size) / rounds
    better = np.bincount(moves.person, np.where(idle, beyond, 0.0), size)
    more = more - (more * quiet).sum() / max(quiet.sum(), 1)
    return more * (better - quiet * better.sum() / max(quiet.sum(), 1))


def _trace_before(log: Log, excess: np.ndarray, before: np.ndarray) -> np.ndarray:
    """(person,): acted on more often than others like them, times better off before, given the
    state."""
    where, moves = ~np.isnan(before), log.transitions
    own = moves.where(where)
    known = np.nan_to_num(log.profiles[own.profile])
    known = (known - known.mean(axis=0)) / np.maximum(known.std(axis=0), 1e-12)
    design = np.concatenate([np.eye(log.shape[0])[own.state], known], axis=1)
    apart = before[where] - design @ np.linalg.lstsq(design, before[where], rcond=None)[0]
    return np.bincount(own.person, apart * excess[where], len(log.latest))


def _reward_before(log: Log) -> np.ndarray:
    """The mean reward of a person's states before each transition, shrunk towards everybody's mean;
    NaN where there is none."""
    moves = log.transitions
    order = np.lexsort((moves.round, moves.person))
    earned = log.labels.rewards[moves.state[order]]
    first = np.flatnonzero(np.diff(moves.person[order], prepend=-1))
    place = np.arange(len(moves)) - np.repeat(first, np.diff(np.append(first, len(moves))))
    total = np.cumsum(earned) - earned
    total -= np.repeat(total[first], np.diff(np.append(first, len(moves))))
    before = np.empty(len(moves))
    known = (total + PRIOR_ROUNDS * earned.mean()) / (place + PRIOR_ROUNDS)
    before[order] = np.where(place > 0, known, np.nan)
    return before


def balance_table(log: Log, before: np.ndarray | None = None) -> pl.DataFrame:
    """Transitions under an action beside the others: what, acted, others, difference in standard
    deviations; `before` is what people earned until then, computed if left out."""
    moves, before = log.transitions, _reward_before(log) if before is None else before
    acted = moves.action > 0
    features = log.profiles[moves.profile].T
    states = np.eye(log.shape[0])[moves.state].T
    named = zip(
        [*log.feature_names, *(f"state {name}" for name in log.labels.states), "reward before"],
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


def hidden_cause_odds(
    ratio: np.ndarray, residual: np.ndarray, weight: float, gain: float
) -> float | None:
    """By how many times a hidden cause must change the odds of being acted on to undo a gain: the
    least Γ of Tan's sensitivity model (2006) at which weights that may be Γ times larger or
    smaller, put on the worst, remove it.

    Args:
        ratio: the weight of each transition under an action.
        residual: what came there beyond the prediction.
        weight: of all people together.
        gain: the gain for each of them.

    Returns:
        Γ, at most 100; None where there is no gain.
    """
    if gain <= 0 or not ratio.sum():
        return None
    order = np.argsort(residual)
    ratio, residual = ratio[order], residual[order]
    mean = ratio @ residual / ratio.sum()

    def lost(gamma: float) -> float:
        # The worst weights are large up to some place in the order and small beyond it.
        large, small = np.cumsum(ratio) * gamma, (ratio.sum() - np.cumsum(ratio)) / gamma
        up, down = np.cumsum(ratio * residual) * gamma, np.cumsum((ratio * residual)[::-1])[::-1]
        down = np.append(down[1:], 0.0) / gamma
        return (mean - ((up + down) / (large + small)).min()) * ratio.sum() / weight

    low, high = 1.0, 100.0
    if lost(high) < gain:
        return high
    for _ in range(30):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if lost(middle) > gain else (middle, high)
    return float(high)
