"""What a fit says of the population: transitions and what acting does, with intervals."""

import numpy as np
import polars as pl

from prefermab.programme.logs.fitting import Fit, tables
from prefermab.programme.logs.reading import Log

NUMBERS, LEAST = 1 << 26, 64
"""Chances that are worked out, about; and the draws that are used at least. Where both cannot be
had for everybody, figures are averaged over some of the people only."""


def estimates(log: Log, fit: Fit) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Transitions of the population and effects of actions, each with a 90 % interval.

    Transitions: state, action, next, n (seen), chance, low, high. Effects: state, action, n, the
    expected reward of the next state less that without acting, low, high. Averages are over the
    people of the log as their features are.
    """
    people, draws = some_of(log, fit)
    known = fit.terms(log.features[people])
    worlds = np.stack([tables(draw, known).mean(axis=0) for draw in draws])
    counts = np.zeros(log.shape, int)
    seen = log.transitions
    np.add.at(counts, (seen.state, seen.action, seen.following), 1)
    earned = worlds @ log.meaning.rewards
    gained = earned - earned[..., :1]
    states, actions = log.meaning.states, log.meaning.actions
    transitions = [
        (states[s], actions[a], states[t], int(counts[s, a, t]), *spread(worlds[:, s, a, t]))
        for s, a, t in np.ndindex(log.shape)
    ]
    effects = [
        (states[s], actions[a], int(counts[s, a].sum()), *spread(gained[:, s, a]))
        for s, a in np.ndindex(log.shape[:2])
        if a > 0
    ]
    names = ["state", "action", "next", "n", "chance", "low", "high"]
    return (
        pl.DataFrame(transitions, schema=names, orient="row"),
        pl.DataFrame(
            effects, schema=["state", "action", "n", "effect", "low", "high"], orient="row"
        ),
    )


def some_of(log: Log, fit: Fit, numbers: int = NUMBERS) -> tuple[np.ndarray, np.ndarray]:
    """People, by number, and draws of coefficients that figures are averaged over."""
    size = int(np.prod(log.shape))
    some = max(1000, 4 * numbers // (LEAST * size))
    people = np.random.default_rng(0).permutation(len(log.features))[:some]
    return people, fit.draws[: max(LEAST, numbers // (len(people) * size))]


def spread(draws: np.ndarray) -> tuple[float, float, float]:
    """Mean, and the ends of a 90 % interval."""
    low, high = np.quantile(draws, [0.05, 0.95])
    return float(draws.mean()), float(low), float(high)
