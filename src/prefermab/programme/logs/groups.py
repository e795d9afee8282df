"""Whom an action helps: what it gains among people with the same value of a feature."""

import numpy as np
import polars as pl
from scipy.sparse import csr_array

from prefermab.programme.logs.columns import Column
from prefermab.programme.logs.estimates import some_of, spread
from prefermab.programme.logs.fitting import Fit, tables
from prefermab.programme.logs.reading import Log

PARTS = 3
"""Of about as many people each, by a number that has more different values."""


NUMBERS = 1 << 22
"""Chances that are worked out, about; where people are very many, of some of them only."""


def whom_it_helps(log: Log, fit: Fit) -> pl.DataFrame:
    """What each action gains in the reward of the next state, by level of a category or third of a
    number: the average over the group's people and the states that were seen of them.

    Columns: feature, group, people, action, n (transitions under it that were seen), gain, and low
    and high, which hold 90 % of the worlds that the log allows.
    """
    names, member = _groups(log)
    n_states, n_actions, _ = log.shape
    seen = log.transitions
    rows, acted = np.zeros((2, len(log.features), max(n_states, n_actions)))
    np.add.at(rows, (seen.person, seen.state), 1.0)
    np.add.at(acted, (seen.person, seen.action), 1.0)
    people, draws = some_of(log, fit, NUMBERS)
    known, weights = fit.terms(log.features[people]), rows[people, :n_states]
    within = member[:, people]
    total = within @ weights.sum(axis=1)
    gains = []
    for draw in draws:
        earned = tables(draw, known) @ log.meaning.rewards
        gained = np.einsum("ps,psa->pa", weights, earned - earned[..., :1])
        gains.append((within @ gained) / np.maximum(total, 1)[:, None])
    worlds, sizes, under = np.stack(gains), member.sum(axis=1), member @ acted
    return pl.DataFrame(
        [
            (*names[g], int(sizes[g]), log.meaning.actions[a], int(under[g, a]),
             *spread(worlds[:, g, a]))
            for g in np.flatnonzero(total) for a in range(1, n_actions)
        ],
        schema=["feature", "group", "people", "action", "n", "gain", "low", "high"],
        orient="row",
    )  # fmt: skip


def _groups(log: Log) -> tuple[list[tuple[str, str]], csr_array]:
    """(feature, group) by name, and which people (group, person) are in each."""
    names, place, start = [], [], 0
    for column in log.columns:
        size = len(column.feature_names)
        own, each = _of_column(column, log.features[:, start : start + size])
        place.append(each + len(names))
        names += [(column.name, name) for name in own]
        start += size
    rows, n = np.concatenate([*place, np.zeros(0, int)]), len(log.features)
    people = np.tile(np.arange(n), len(place))
    return names, csr_array((np.ones(len(rows)), (rows, people)), shape=(len(names), n))


def _of_column(column: Column, features: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Names of groups, the last of them `unknown`, and everybody's place among them."""
    first, unknown = features[:, 0], np.isnan(features[:, 0])
    if column.levels is not None:
        names, place = list(column.levels), np.nan_to_num(features).argmax(axis=1)
    elif len(values := np.unique(first[~unknown])) <= PARTS:
        names, place = [f"{value:g}" for value in values], np.searchsorted(values, first)
    else:
        cuts = np.quantile(first[~unknown], np.arange(1, PARTS) / PARTS)
        _, place = np.unique(np.searchsorted(cuts, first), return_inverse=True)
        parts = [first[(place == part) & ~unknown] for part in range(place.max() + 1)]
        names = [f"{part.min():g} to {part.max():g}" if len(part) else "" for part in parts]
    return [*names, "unknown"], np.where(unknown, len(names), place)
