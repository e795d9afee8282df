"""Logs of a programme that never was: for tests and studies, where the truth must be known."""

import equinox as eqx
import jax
import numpy as np
import polars as pl

from prefermab.arms import Arms, Key
from prefermab.domains.base import FiniteDomain
from prefermab.errors import count
from prefermab.errors import share as checked


def simulate(
    domain: FiniteDomain,
    people: int = 2000,
    rounds: int = 26,
    share: float = 0.05,
    seed: int = 0,
    arms: Arms | None = None,
    stay: float = 1.0,
    missing: float = 0.0,
) -> pl.DataFrame:
    """A log of `people` arms of a domain, of whom a random `share` gets a random active action in
    each round.

    With `stay` below 1 people come when they like and leave with probability 1 - stay after each
    round; `missing` is the share of rows that nobody wrote down.

    >>> import prefermab as pm
    >>> from prefermab.programme.logs.simulated import simulate
    >>> simulate(pm.domains.Synthetic(), people=2, rounds=3).shape
    (6, 8)
    """
    n, length = count(people, "people"), count(rounds, "rounds", at_least=2)
    rng = np.random.default_rng(count(seed, "seed", at_least=0))
    key_arms, key_start = jax.random.split(jax.random.key(seed))
    if arms is None:
        arms = domain.draw_arms(key_arms, n)
    table, features, state = (np.asarray(x) for x in _seen(domain, arms, n, key_start))
    acted = rng.random((length, n)) < checked(share, "share")
    actions = np.where(acted, rng.integers(1, domain.n_actions, (length, n)), 0)
    states = np.empty((length, n), int)
    for now in range(length):
        states[now] = state
        reached = np.cumsum(table[np.arange(n), state, actions[now]], axis=1)
        state = (reached <= rng.random((n, 1)) * reached[:, -1:]).sum(axis=1)
    person, time = np.meshgrid(np.arange(n), np.arange(length))
    kept = _present(rng, n, length, stay, missing)
    frame = pl.DataFrame(
        {
            "id": person[kept],
            "time": time[kept],
            "state": np.array(domain.state_names)[states[kept]],
            "action": np.array(domain.action_names)[actions[kept]],
        }
    )
    seen = dict(zip(domain.feature_names, features[person[kept]].T.astype(float), strict=True))
    return frame.with_columns(**seen).fill_nan(None).sort("id", "time")


@eqx.filter_jit
def _seen(domain: FiniteDomain, arms: Arms, n_arms: int, key: Key):
    """Transitions, features and first states of arms."""
    start = jax.vmap(domain.start)(jax.random.split(key, n_arms), arms)
    return jax.vmap(domain.transitions)(arms), domain.features(arms), start


def _present(
    rng: np.random.Generator, people: int, rounds: int, stay: float, missing: float
) -> np.ndarray:
    """(round, person): who has a row."""
    kept = rng.random((rounds, people)) >= checked(missing, "missing")
    if checked(stay, "stay") == 1:
        return kept
    begun = rng.integers(0, rounds, people)
    length = rng.geometric(max(1 - stay, 1e-9), people)
    time = np.arange(rounds)[:, None]
    return kept & (time >= begun) & (time < begun + length)
