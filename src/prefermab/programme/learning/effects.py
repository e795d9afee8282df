"""Estimates for the population of a log: transition probabilities, average effects of actions, and
effects by group, with 90 % posterior intervals."""

import dataclasses

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from prefermab.common.intervals import TAILS
from prefermab.programme.logs.features import Column
from prefermab.programme.logs.fitting import Fit, transition_tables
from prefermab.programme.logs.reading import Log

MOST_CHANCES, MOST_GROUP_CHANCES, LEAST_DRAWS = 1 << 26, 1 << 22, 64
"""About how many probabilities are computed, for the population and for groups; and the fewest
posterior draws. For large logs, averages are over a random sample of the people."""

QUANTILE_GROUPS = 3
"""Number of groups of about equal size for a numeric feature with more distinct values than
that."""


@dataclasses.dataclass(frozen=True, eq=False)
class Effects:
    """Averages over the people of the log, each with a 90 % posterior interval from low to high.

    `transitions`: state, action, next, n (number of transitions), chance, low, high. `effects`:
    state, action, n, effect (expected reward of the next state under the action, less that without
    an action), low, high. `groups`: average effects on people with the same value of a feature, in
    the states in which they were seen: feature, group, people, action, n, gain, low, high.
    """

    transitions: pl.DataFrame
    effects: pl.DataFrame
    groups: pl.DataFrame


def estimate_effects(log: Log, fit: Fit) -> Effects:
    """Estimates transition probabilities, effects of actions, and effects by group.

    >>> from prefermab.programme.learning.effects import estimate_effects
    >>> from prefermab.programme.logs.fitting import fit_log
    >>> from prefermab.programme.logs.reading import read_log
    >>> from prefermab.programme.logs.simulated import example_tables
    >>> frame = example_tables(people=60, weeks=10)[1]
    >>> log = read_log(frame, time="week", passive="none",
    ...     rewards={"engaged": 1, "drifting": 0.5, "silent": 0})
    >>> estimate_effects(log, fit_log(log, draws=8)).effects["state"].to_list()
    ['engaged', 'drifting', 'silent']
    """
    people, draws = _subsample(log, fit, MOST_CHANCES)
    known = fit.terms(log.features[people])
    chances = np.stack([transition_tables(draw, known).mean(axis=0) for draw in draws])
    counts = np.zeros(log.shape, int)
    seen = log.transitions
    np.add.at(counts, (seen.state, seen.action, seen.following), 1)
    shown = np.zeros(log.shape[:2], int)
    np.add.at(shown, log.sighted[1:], 1)
    earned = chances @ log.labels.rewards
    gained = earned - earned[..., :1]
    states, actions = log.labels.states, log.labels.actions
    transitions = [
        (states[s], actions[a], states[t], int(counts[s, a, t]), *_interval(chances[:, s, a, t]))
        for s, a, t in np.ndindex(log.shape)
    ]
    effects = [
        (states[s], actions[a], int(shown[s, a]), *_interval(gained[:, s, a]))
        for s, a in np.ndindex(log.shape[:2])
        if a > 0
    ]
    names = ["state", "action", "next", "n", "chance", "low", "high"]
    return Effects(
        pl.DataFrame(transitions, schema=names, orient="row"),
        pl.DataFrame(
            effects, schema=["state", "action", "n", "effect", "low", "high"], orient="row"
        ),
        effects_by_group(log, fit),
    )


def effects_by_group(log: Log, fit: Fit) -> pl.DataFrame:
    """The average effect of each action on the reward of the next state, by level of a category or
    third of a number. Columns are those of `Effects.groups`."""
    names, member = _groups(log)
    n_states, n_actions, _ = log.shape
    person, state, action = log.sighted
    rows, acted = np.zeros((2, len(log.features), max(n_states, n_actions)))
    np.add.at(rows, (person, state), 1.0)
    np.add.at(acted, (person, action), 1.0)
    people, draws = _subsample(log, fit, MOST_GROUP_CHANCES)
    known, weights = fit.terms(log.features[people]), rows[people, :n_states]
    within = member[:, people]
    total = within @ weights.sum(axis=1)
    gains = []
    for draw in draws:
        earned = transition_tables(draw, known) @ log.labels.rewards
        gained = np.einsum("ps,psa->pa", weights, earned - earned[..., :1])
        gains.append((within @ gained) / np.maximum(total, 1)[:, None])
    by_draw, sizes, under = np.stack(gains), member.sum(axis=1), member @ acted
    return pl.DataFrame(
        [
            (*names[g], int(sizes[g]), log.labels.actions[a], int(under[g, a]),
             *_interval(by_draw[:, g, a]))
            for g in np.flatnonzero(total) for a in range(1, n_actions)
        ],
        schema=["feature", "group", "people", "action", "n", "gain", "low", "high"],
        orient="row",
    )  # fmt: skip


def _subsample(log: Log, fit: Fit, numbers: int) -> tuple[np.ndarray, np.ndarray]:
    """A random sample of people, by number, and posterior draws of coefficients, to average
    over."""
    size = int(np.prod(log.shape))
    some = max(1000, 4 * numbers // (LEAST_DRAWS * size))
    people = np.random.default_rng(0).permutation(len(log.features))[:some]
    return people, fit.draws[: max(LEAST_DRAWS, numbers // (len(people) * size))]


def _interval(draws: np.ndarray) -> tuple[float, float, float]:
    """The posterior mean, and the ends of the 90 % interval."""
    low, high = np.quantile(draws, TAILS)
    return float(draws.mean()), float(low), float(high)


def _groups(log: Log) -> tuple[list[tuple[str, str]], csr_array]:
    """The names (feature, group) of all groups, and the membership matrix (group, person)."""
    names, place, start = [], [], 0
    for column in log.columns:
        size = len(column.feature_names)
        own, each = _column_groups(column, log.features[:, start : start + size])
        place.append(each + len(names))
        names += [(column.name, name) for name in own]
        start += size
    rows, n = np.concatenate([*place, np.zeros(0, int)]), len(log.features)
    people = np.tile(np.arange(n), len(place))
    return names, csr_array((np.ones(len(rows)), (rows, people)), shape=(len(names), n))


def _column_groups(column: Column, features: np.ndarray) -> tuple[list[str], np.ndarray]:
    """The names of a column's groups, of which the last is `unknown`, and the position of each
    person's group."""
    first, unknown = features[:, 0], np.isnan(features[:, 0])
    if column.levels is not None:
        names, place = list(column.levels), np.nan_to_num(features).argmax(axis=1)
    elif len(values := np.unique(first[~unknown])) <= QUANTILE_GROUPS:
        names, place = [f"{value:g}" for value in values], np.searchsorted(values, first)
    else:
        cuts = np.quantile(first[~unknown], np.arange(1, QUANTILE_GROUPS) / QUANTILE_GROUPS)
        _, place = np.unique(np.searchsorted(cuts, first), return_inverse=True)
        parts = [first[(place == part) & ~unknown] for part in range(place.max() + 1)]
        names = [f"{part.min():g} to {part.max():g}" if len(part) else "" for part in parts]
    return [*names, "unknown"], np.where(unknown, len(names), place)
