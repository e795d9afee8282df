"""Who was acted on, and tests for unmeasured confounding.

A hidden cause is something outside of the log that influences who is acted on and also the next
state. With one, the effect of acting cannot be estimated. It is not in the log, but it leaves
traces: people who were acted on more often than others in the same state and with the same features
then differ from them in rounds in which nobody acted on them, and in their earlier rewards.
"""

import dataclasses

import numpy as np
import polars as pl

from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.log_warnings import LogWarning
from prefermab.programme.logs.population import estimate_propensity
from prefermab.programme.logs.reading import Log

CHANCE = 2.24
"""Standard errors above which a trace counts as found (a two-sided test at a level of 2.5 %)."""

PRIOR_ROUNDS = 2.0
"""Weight, in rounds, of the mean of all people in a person's mean earlier reward (shrinkage)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Allocation:
    """`balance` compares transitions under an action with the others: what, acted, others,
    difference (in standard deviations). `trace` is a z statistic: above 0 if people who were acted
    on more often than similar people were better off, before and when nobody acted on them."""

    balance: pl.DataFrame
    trace: float

    def warnings(self, unit: str) -> list[LogWarning]:
        """The warning about a hidden cause, if `trace` is significant."""
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
    """Compares people who were acted on with the others, and tests for traces of a hidden cause.

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
    traces = [
        _trace_when_passive(log, excess, beyond, acted == 0),
        _trace_before(log, excess, before),
    ]
    # Each trace is a sum over people. Scaled to variance 1 they can be added within a person, and
    # people stay independent.
    both = np.sum([each / max(np.sqrt((each**2).sum()), 1e-12) for each in traces], axis=0)
    return Allocation(
        balance_table(log, before), float(both.sum() / np.sqrt((both**2).sum() or 1.0))
    )


def _trace_when_passive(
    log: Log, excess: np.ndarray, beyond: np.ndarray, passive: np.ndarray
) -> np.ndarray:
    """(person,): the person's mean excess of actions over the propensity, times the sum of their
    residual rewards in rounds without an action."""
    moves, size = log.transitions, len(log.latest)
    rounds = np.maximum(np.bincount(moves.person, minlength=size), 1)
    quiet = np.bincount(moves.person, passive, size)
    more = np.bincount(moves.person, excess, size) / rounds
    better = np.bincount(moves.person, np.where(passive, beyond, 0.0), size)
    more = more - (more * quiet).sum() / max(quiet.sum(), 1)
    return more * (better - quiet * better.sum() / max(quiet.sum(), 1))


def _trace_before(log: Log, excess: np.ndarray, before: np.ndarray) -> np.ndarray:
    """(person,): the sum over rounds of the excess of actions over the propensity, times the
    earlier reward, adjusted for state and features by linear regression."""
    where, moves = ~np.isnan(before), log.transitions
    own = moves.where(where)
    known = np.nan_to_num(log.profiles[own.profile])
    known = (known - known.mean(axis=0)) / np.maximum(known.std(axis=0), 1e-12)
    design = np.concatenate([np.eye(log.shape[0])[own.state], known], axis=1)
    apart = before[where] - design @ np.linalg.lstsq(design, before[where], rcond=None)[0]
    return np.bincount(own.person, apart * excess[where], len(log.latest))


def _reward_before(log: Log) -> np.ndarray:
    """(transition,): the mean reward of the person's earlier states, shrunk towards the mean of all
    people; NaN where there are none."""
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
    """Compares transitions under an action with the others: what, acted, others, and the
    standardised mean difference. `before` is the earlier reward, computed if left out."""
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
    """Sensitivity of a gain to a hidden cause, by the marginal sensitivity model (Tan 2006).

    In this model a hidden cause changes the odds of being acted on by a factor of at most Γ. The
    result is the smallest Γ at which the gain can be 0: each importance weight may be multiplied by
    any number between 1/Γ and Γ, and the least favourable choice is taken.

    Args:
        ratio: (transition,) The importance weight of each transition under an action.
        residual: (transition,) Its reward less the prediction.
        weight: The total weight of all people.
        gain: The mean gain.

    Returns:
        Γ, at most 100; None where there is no gain.
    """
    if gain <= 0 or not ratio.sum():
        return None
    order = np.argsort(residual)
    ratio, residual = ratio[order], residual[order]
    mean = ratio @ residual / ratio.sum()

    def lost(gamma: float) -> float:
        # The least favourable weights: times Γ for residuals up to a cut, divided by Γ above it.
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
