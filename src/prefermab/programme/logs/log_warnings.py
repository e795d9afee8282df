"""Warnings about a log: too little data, or rows that do not mean what they seem to mean. Each has
a code for programs, and a sentence for people that says what was found and what to do.

A log without warnings may still be wrong: it cannot show why people were acted on.
"""

from collections.abc import Iterator

import numpy as np

from prefermab.programme.logs.reading import Log
from prefermab.programme.tables.table import UNKNOWN, format_people

FEWEST_SEEN = 30
"""People, or transitions under an action, below which effects are mostly assumed."""

MANY_MISSING = 0.05
"""Share of rows without a state or an action above which there is a warning."""

SURE = 4.0
"""Standard errors above which a difference is not explained by chance."""


class LogWarning(UserWarning):
    """A warning about a log.

    `code` names it for programs and stays the same. `sentence` says what was found, with figures,
    and what to do. `spoils` is true where no gain can be measured on such a log.

    >>> from prefermab.programme.logs.log_warnings import LogWarning
    >>> str(LogWarning("few_people", "the log has 3 people only."))
    'the log has 3 people only.'
    """

    def __init__(self, code: str, sentence: str, spoils: bool = False):
        super().__init__(code, sentence, spoils)
        self.code, self.sentence, self.spoils = code, sentence, spoils

    def __str__(self) -> str:
        return self.sentence


def log_warnings(log: Log) -> list[LogWarning]:
    """All warnings about a log, before any gain is measured.

    >>> from prefermab.programme.logs.simulated import example_tables
    >>> from prefermab.programme.logs.reading import read_log
    >>> from prefermab.programme.logs.log_warnings import log_warnings
    >>> frame = example_tables(people=20, weeks=26)[1]
    >>> log = read_log(frame, time="week", passive="none",
    ...     rewards={"engaged": 1, "drifting": 0.5, "silent": 0})
    >>> [warning.code for warning in log_warnings(log)]
    ['few_people', 'few_actions']
    """
    return [warning for check in CHECKS for warning in check(log)]


def _few_people_or_actions(log: Log) -> Iterator[LogWarning]:
    if log.found.people < FEWEST_SEEN:
        yield LogWarning(
            "few_people",
            f"the log has {format_people(log.found.people)} only: estimates for others like them "
            "are mostly assumption.",
        )
    counts = np.bincount(log.transitions.action, minlength=len(log.labels.actions))
    if log.histories is not None:
        counts = log.histories.rounds_between_sightings(len(counts))
    for name, n in zip(log.labels.actions, counts.tolist(), strict=True):
        if n < FEWEST_SEEN:
            yield LogWarning(
                "few_actions",
                f"the log has only {n} transition{'' if n == 1 else 's'} under the action "
                f"'{name}': its effect is mostly assumption.",
            )


def _many_unknown(log: Log) -> Iterator[LogWarning]:
    found = log.found
    for what, n in (("state", found.unknown_states), ("action", found.unknown_actions)):
        if n > MANY_MISSING * found.rows and not (what == "state" and log.histories is not None):
            words = ", ".join(word for word in UNKNOWN if word)
            yield LogWarning(
                f"unknown_{what}s",
                f"{n:,} of {found.rows:,} rows have no {what}, and transitions that need it are "
                f"left out; in a CSV file the words {words} count as empty, and no others.",
            )


def _carried_forward(log: Log) -> Iterator[LogWarning]:
    seen = log.transitions
    moved, acted = seen.state != seen.following, seen.action > 0
    n, n_acted = int((~acted).sum()), int(acted.sum())
    if n < 50 or n_acted < FEWEST_SEEN:
        return
    still, busy = moved[~acted].mean(), moved[acted].mean()
    if still <= 0.01 and busy >= 0.1 and _z_score(still, n, busy, n_acted) > SURE:
        yield LogWarning(
            "states_carried_forward",
            f"under '{log.labels.actions[0]}' {int((~moved[~acted]).sum()):,} of {n:,} "
            f"transitions kept their state, under actions {int((~moved[acted]).sum()):,} of "
            f"{n_acted:,}: if old states were copied into rows in which nobody looked, the effect "
            "of acting cannot be measured; leave the state empty where nobody looked.",
            spoils=True,
        )


def _outcome_in_same_row(log: Log) -> Iterator[LogWarning]:
    # If the action depends on the state, it does not depend on the row before, given the state. If
    # the action caused the state, people with a worse state before are likelier to have had it.
    found = log.diagnostics
    same, after, previous = found.same_row, found.next_row, found.previous_row
    if same.z > SURE and same.effect > max(after.effect, 0.0) and previous.z < -3:
        yield LogWarning(
            "outcome_in_same_row",
            f"rows with an action have a better state in the same row already (reward "
            f"{same.effect:+.2f} against rows with the same state before), more than in the next "
            f"row ({after.effect:+.2f}): the state seems to be written down after the action; move "
            "actions one round back, or states one on.",
            spoils=True,
        )


def _only_successes(log: Log) -> Iterator[LogWarning]:
    seen, rewards = log.transitions, log.labels.rewards
    below = rewards[seen.state] < rewards.max()
    better = rewards[seen.following] > rewards[seen.state]
    acted, not_acted = (below & (seen.action > 0)), (below & (seen.action == 0))
    n, n_not = int(acted.sum()), int(not_acted.sum())
    if n < FEWEST_SEEN or n_not < FEWEST_SEEN:
        return
    share, otherwise = better[acted].mean(), better[not_acted].mean()
    if share >= 0.98 and otherwise <= 0.8:
        yield LogWarning(
            "only_successes",
            f"{int(better[acted].sum()):,} of {n:,} actions that could lead to a better state did "
            f"so, and {otherwise:.0%} of the rounds without: write down every action that was "
            "tried, and check whether failed ones were left out, or written as "
            f"'{log.labels.actions[0]}'.",
            spoils=True,
        )


def _rows_stop(log: Log) -> Iterator[LogWarning]:
    levels = np.unique(log.labels.rewards)
    half = len(levels) // 2
    worse = log.labels.rewards <= levels[half - 1]
    better = log.labels.rewards >= levels[-half]
    n_low, low = log.diagnostics.stops[worse].sum(axis=0).tolist()
    n_high, high = log.diagnostics.stops[better].sum(axis=0).tolist()
    if low < 10 or n_high < FEWEST_SEEN:
        return
    often, seldom = low / n_low, high / n_high
    if often >= 2 * seldom and _z_score(seldom, n_high, often, n_low) > 3:
        by_action = log.diagnostics.stops_by_action
        spoils = abs(by_action.z) > SURE
        also = f", and {by_action.effect:+.1%} after an action" if spoils else ""
        yield LogWarning(
            "rows_stop_when_worse",
            f"rows of a person stop before the log's end after {often:.1%} of those with a worse "
            f"state and {seldom:.1%} of those with a better one{also}: people who went missing "
            "were worse off than people who stayed; add a row with a state of its own for people "
            "who left.",
            spoils,
        )


def _features_change(log: Log) -> Iterator[LogWarning]:
    changing = log.diagnostics.changing
    if changing:
        columns = ", ".join(f"'{name}' within {format_people(n)}" for name, n in changing.items())
        yield LogWarning(
            "feature_changes",
            f"features change: {columns}; each round uses the value known then, and a plan uses "
            "the last one.",
        )
    for name, correlation in log.diagnostics.state_correlation.items():
        if abs(correlation) >= 0.4:
            yield LogWarning(
                "feature_follows_state",
                f"the column '{name}' moves with the state from row to row (correlation "
                f"{correlation:+.2f} with its reward): it repeats the state; leave it out of the "
                "features, or make it part of the state.",
            )


def _sentinels(log: Log) -> Iterator[LogWarning]:
    for sentinel in log.diagnostics.sentinels:
        yield LogWarning(
            "sentinel",
            f"the column '{sentinel.column}' holds {sentinel.value} in {sentinel.rows:,} rows, far "
            "from all other values: if it stands for unknown, leave these cells empty.",
        )


def _state_order(log: Log) -> Iterator[LogWarning]:
    codes_for_unknown = {sentinel.value for sentinel in log.diagnostics.sentinels}
    codes = {
        label: reward
        for label, reward in zip(log.labels.states, log.labels.rewards, strict=True)
        if label not in codes_for_unknown
    }
    try:
        ordered = sorted(codes, key=float)
    except ValueError:
        return
    steps = np.diff([codes[label] for label in ordered])
    if len(codes) >= 3 and (steps > 0).any() and (steps < 0).any():
        earned = ", ".join(f"{codes[label]:g}" for label in ordered)
        yield LogWarning(
            "state_order",
            f"the states {', '.join(ordered)} are numbers, but their rewards {earned} neither rise "
            "nor fall with them: check that each state has the reward that was meant.",
        )


def _useless_features(log: Log) -> Iterator[LogWarning]:
    start = 0
    for column in log.columns:
        values = log.profiles[:, start]
        start += len(column.feature_names)
        if len(np.unique(values[~np.isnan(values)])) == 1 and len(column.levels or ("",)) == 1:
            yield LogWarning(
                "constant_feature",
                f"the column '{column.name}' has one value for everybody and cannot tell people "
                "apart: leave it out of the features.",
            )
    for name in log.diagnostics.like_ids:
        yield LogWarning(
            "id_feature",
            f"the column '{name}' has a different value for each of "
            f"{format_people(log.found.people)}, as an id has: leave it out of the features.",
        )


CHECKS = (
    _few_people_or_actions, _many_unknown, _carried_forward, _outcome_in_same_row,
    _only_successes, _rows_stop, _features_change, _sentinels, _state_order, _useless_features,
)  # fmt: skip


def _z_score(one: float, n: int, other: float, m: int) -> float:
    """The z statistic of the difference between two shares: `other` of m rows less `one` of n
    rows."""
    both = (one * n + other * m) / (n + m)
    return float((other - one) / np.sqrt(max(both * (1 - both), 1e-12) * (1 / n + 1 / m)))
