"""Shapes of a log that are worth a warning: too little of it, or rows that do not mean what they
seem to. Each has a code for programs and a sentence for people: what was found, and what to do.

A log that passes has not been proved right; whom actions went to and why no file can tell.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from prefermab.programme.logs.reading import Log
from prefermab.programme.tables import UNKNOWN, people

FEW = 30
"""People, or transitions under an action, below which what acting does is mostly assumed."""

MANY = 0.05
"""Share of rows without a state or an action that is worth a warning."""

SURE = 4.0
"""Standard errors from which on something is taken as found and not as chance."""


@dataclasses.dataclass(frozen=True)
class Caution:
    """A warning about a log."""

    code: str
    """Its name for programs, which stays the same."""
    sentence: str
    """What was found, with figures, and what to do."""
    spoils: bool = False
    """Whether no gain can be told from such a log."""


def cautions(log: Log) -> list[Caution]:
    """All that is worth a warning about a log.

    >>> import prefermab as pm
    >>> from prefermab.programme.logs.simulated import simulate
    >>> from prefermab.programme.logs.reading import read_log
    >>> from prefermab.programme.logs.shapes import cautions
    >>> frame = simulate(pm.domains.Synthetic(), people=20, rounds=30, share=0.2)
    >>> log = read_log(frame, passive="none", rewards={"bad": 0, "good": 1})
    >>> [caution.code for caution in cautions(log)]
    ['few_people']
    """
    return [caution for check in CHECKS for caution in check(log)]


def _few(log: Log) -> Iterator[Caution]:
    if log.found.people < FEW:
        yield Caution(
            "few_people",
            f"the log tells of {people(log.found.people)} only: what is said of others like them "
            "is mostly assumed.",
        )
    counts = np.bincount(log.transitions.action, minlength=len(log.meaning.actions))
    for name, n in zip(log.meaning.actions, counts.tolist(), strict=True):
        if n < FEW:
            yield Caution(
                "few_actions",
                f"the log has only {n} transition{'' if n == 1 else 's'} under the action "
                f"'{name}': what it does is mostly assumed.",
            )


def _unknown(log: Log) -> Iterator[Caution]:
    found = log.found
    for what, n in (("state", found.unknown_states), ("action", found.unknown_actions)):
        if n > MANY * found.rows:
            words = ", ".join(word for word in UNKNOWN if word)
            yield Caution(
                f"unknown_{what}s",
                f"{n:,} of {found.rows:,} rows have no {what}, and transitions that need it are "
                f"left out; in a CSV file the words {words} count as empty, and no others.",
            )


def _carried_forward(log: Log) -> Iterator[Caution]:
    seen = log.transitions
    moved, acted = seen.state != seen.following, seen.action > 0
    n, n_acted = int((~acted).sum()), int(acted.sum())
    if n < 50 or n_acted < FEW:
        return
    still, busy = moved[~acted].mean(), moved[acted].mean()
    if still <= 0.01 and busy >= 0.1 and _apart(still, n, busy, n_acted) > SURE:
        yield Caution(
            "states_carried_forward",
            f"under '{log.meaning.actions[0]}' {int((~moved[~acted]).sum()):,} of {n:,} "
            f"transitions kept their state, under actions {int((~moved[acted]).sum()):,} of "
            f"{n_acted:,}: if old states were copied into rows in which nobody looked, what acting "
            "changes cannot be told; leave the state empty where nobody looked.",
            spoils=True,
        )


def _outcome_in_same_row(log: Log) -> Iterator[Caution]:
    # Where the state decides who gets the action, the row before says no more about it. Where the
    # action made the state, those who came from a worse one are the likelier to have had it.
    same, after, came = log.signs.same_row, log.signs.next_row, log.signs.came_from
    if same.z > SURE and same.effect > max(after.effect, 0.0) and came.z < -3:
        yield Caution(
            "outcome_in_same_row",
            f"rows with an action have a better state in the same row already (reward "
            f"{same.effect:+.2f} beside rows with the same state before), more than in the next "
            f"row ({after.effect:+.2f}): the state seems to be written down after the action; move "
            "actions one round back, or states one on.",
            spoils=True,
        )


def _only_successes(log: Log) -> Iterator[Caution]:
    seen, rewards = log.transitions, log.meaning.rewards
    below = rewards[seen.state] < rewards.max()
    better = rewards[seen.following] > rewards[seen.state]
    acted, not_acted = (below & (seen.action > 0)), (below & (seen.action == 0))
    n, n_not = int(acted.sum()), int(not_acted.sum())
    if n < FEW or n_not < FEW:
        return
    share, otherwise = better[acted].mean(), better[not_acted].mean()
    if share >= 0.98 and otherwise <= 0.8:
        yield Caution(
            "only_successes",
            f"{int(better[acted].sum()):,} of {n:,} actions that could lead to a better state did "
            f"so, and {otherwise:.0%} of the rounds without; write down every action that was "
            "tried: were those that failed left out, or written as "
            f"'{log.meaning.actions[0]}'?",
            spoils=True,
        )


def _stops(log: Log) -> Iterator[Caution]:
    levels = np.unique(log.meaning.rewards)
    half = len(levels) // 2
    worse = log.meaning.rewards <= levels[half - 1]
    better = log.meaning.rewards >= levels[-half]
    n_low, low = log.signs.stops[worse].sum(axis=0).tolist()
    n_high, high = log.signs.stops[better].sum(axis=0).tolist()
    if low < 10 or n_high < FEW:
        return
    often, seldom = low / n_low, high / n_high
    if often >= 2 * seldom and _apart(seldom, n_high, often, n_low) > 3:
        by_action = log.signs.stops_by_action
        spoils = abs(by_action.z) > SURE
        also = f", and {by_action.effect:+.1%} after an action" if spoils else ""
        yield Caution(
            "rows_stop_when_worse",
            f"rows of a person stop before the log's end after {often:.1%} of those with a worse "
            f"state and {seldom:.1%} of those with a better one{also}: who went missing was worse "
            "than who is seen; give those who left a state of their own, with a row.",
            spoils,
        )


def _changes(log: Log) -> Iterator[Caution]:
    signs = log.signs
    if signs.changing:
        told = ", ".join(f"'{name}' within {people(n)}" for name, n in signs.changing.items())
        yield Caution(
            "feature_changes",
            f"features change: {told}; in each round the value known then is used, and a plan uses "
            "the last.",
        )
    for name, together in signs.follows.items():
        if abs(together) >= 0.4:
            yield Caution(
                "feature_follows_state",
                f"the column '{name}' moves with the state from row to row (correlation "
                f"{together:+.2f} with its reward): it is the state in disguise; leave it out of "
                "the features, or make it part of the state.",
            )


def _odd(log: Log) -> Iterator[Caution]:
    for odd in log.signs.odd:
        yield Caution(
            "sentinel",
            f"the column '{odd.column}' holds {odd.value} in {odd.rows:,} rows, far from all other "
            "values: if it stands for unknown, leave these cells empty.",
        )


def _state_order(log: Log) -> Iterator[Caution]:
    strange = {odd.value for odd in log.signs.odd}
    codes = {
        label: reward
        for label, reward in zip(log.meaning.states, log.meaning.rewards, strict=True)
        if label not in strange
    }
    try:
        ordered = sorted(codes, key=float)
    except ValueError:
        return
    steps = np.diff([codes[label] for label in ordered])
    if len(codes) >= 3 and (steps > 0).any() and (steps < 0).any():
        earned = ", ".join(f"{codes[label]:g}" for label in ordered)
        yield Caution(
            "state_order",
            f"the states {', '.join(ordered)} are numbers, but their rewards {earned} neither rise "
            "nor fall with them: check that each state has the reward that was meant.",
        )


def _useless(log: Log) -> Iterator[Caution]:
    start = 0
    for column in log.columns:
        values = log.profiles[:, start]
        start += len(column.feature_names)
        if len(np.unique(values[~np.isnan(values)])) == 1 and len(column.levels or ("",)) == 1:
            yield Caution(
                "constant_feature",
                f"the column '{column.name}' has one value for everybody and tells nobody apart: "
                "leave it out of the features.",
            )
    for name in log.signs.like_ids:
        yield Caution(
            "id_feature",
            f"the column '{name}' has another value for each of {people(log.found.people)}, as an "
            "id has: leave it out of the features.",
        )


CHECKS = (
    _few, _unknown, _carried_forward, _outcome_in_same_row, _only_successes, _stops, _changes, _odd,
    _state_order, _useless,
)  # fmt: skip


def _apart(one: float, n: int, other: float, m: int) -> float:
    """By how many standard errors one share of n is below another of m."""
    both = (one * n + other * m) / (n + m)
    return float((other - one) / np.sqrt(max(both * (1 - both), 1e-12) * (1 / n + 1 / m)))
