"""People in the worlds that a log allows: what is drawn of them, once, to learn from."""

import dataclasses

import numpy as np

from prefermab.programme.logs.fitting import Fit, Terms, tables
from prefermab.programme.logs.people import LEAST
from prefermab.programme.logs.reading import Log

WORLDS = 64
"""Draws of a fit that arms are drawn in."""

MOST, NUMBERS = 1 << 14, 1 << 24
"""Arms that are drawn in advance, and the most numbers that their tables may have together."""

ANYWHERE = 0.02
"""Share of starts in any state, so that a state in which nobody is now is met too."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """Arms: transitions (arm, state, action, next state), features (arm, feature) and chances of
    the first state (arm, state). Arm i lives in the world i modulo their number."""

    table: np.ndarray
    features: np.ndarray
    starts: np.ndarray


def draw_pool(rng: np.random.Generator, log: Log, fit: Fit, newcomers: float, worlds: int) -> Pool:
    """For each of the first worlds of a fit as many people, each with a table drawn from what their
    features, and their own past, leave open."""
    size = max(2, min(MOST, NUMBERS // int(np.prod(log.shape))) // worlds)
    person = rng.integers(0, len(log.features), (size, worlds))
    new = rng.random((size, worlds)) < newcomers
    blur = bandwidth(fit.terms, len(log.features))
    features = log.features[person]
    features = features + new[..., None] * blur * rng.standard_normal(features.shape)
    order = np.argsort(log.transitions.person, kind="stable")
    ends = np.searchsorted(log.transitions.person[order], np.arange(len(log.features) + 1))
    table = np.empty((size, worlds, *log.shape), np.float32)
    for world in range(worlds):
        chances = tables(fit.draws[world], fit.terms(features[:, world]))
        shape = fit.kappas[world] * np.maximum(chances, LEAST)
        own = np.where(new[:, world], -1, person[:, world])
        table[:, world] = dirichlet(rng, shape + _counts(log, own, order, ends))
    arrivals = _shares(log.first_state, log.shape[0])
    starts = np.where(new[..., None], arrivals, _starts(log.last_state, arrivals)[person])
    parts = (table, features, starts)
    return Pool(*(part.reshape(size * worlds, *part.shape[2:]) for part in parts))


def dirichlet(rng: np.random.Generator, shape: np.ndarray) -> np.ndarray:
    """Distributions along the last axis."""
    drawn = rng.standard_gamma(shape)
    # All of them can be too small for a number only where every shape is tiny.
    drawn = np.where(drawn.sum(axis=-1, keepdims=True) > 0, drawn, shape)
    return drawn / drawn.sum(axis=-1, keepdims=True)


def bandwidth(terms: Terms, people: int) -> np.ndarray:
    """How far the numbers of a newcomer lie from those of the person they are like: the width of
    a kernel that suits so many people and numbers (Scott's rule)."""
    return np.where(terms.numeric, terms.spread, 0.0) * people ** (-1 / (terms.numeric.sum() + 4))


def _counts(log: Log, person: np.ndarray, order: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """(arm, state, action, next state): what was seen of these people, nothing of person -1."""
    counts = np.zeros((len(person), *log.shape), np.float32)
    lengths = np.where(person >= 0, ends[person + 1] - ends[person], 0)
    arm = np.repeat(np.arange(len(person)), lengths)
    place = np.arange(len(arm)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    event = order[ends[person[arm]] + place]
    seen = log.transitions
    np.add.at(counts, (arm, seen.state[event], seen.action[event], seen.following[event]), 1.0)
    return counts


def _shares(states: np.ndarray, n_states: int) -> np.ndarray:
    known = np.bincount(states[states >= 0], minlength=n_states)
    return (1 - ANYWHERE) * known / max(known.sum(), 1) + ANYWHERE / n_states


def _starts(last: np.ndarray, arrivals: np.ndarray) -> np.ndarray:
    n_states = len(arrivals)
    here = (1 - ANYWHERE) * np.eye(n_states)[np.maximum(last, 0)] + ANYWHERE / n_states
    return np.where(last[:, None] >= 0, here, arrivals)
