"""Logs of a programme that never was: for tests and studies, where the truth must be known."""

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from prefermab.arms import Arms
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
    >>> from prefermab.logs.simulation import simulate
    >>> simulate(pm.domains.Synthetic(), people=2, rounds=3).shape
    (6, 8)
    """
    n, length = count(people, "people"), count(rounds, "rounds", at_least=2)
    key_arms, key_start, key_act, key_luck = jax.random.split(jax.random.key(seed), 4)
    if arms is None:
        arms = domain.draw_arms(key_arms, n)
    acted = jax.random.bernoulli(key_act, checked(share, "share"), (length, n))
    which = jax.random.randint(jax.random.fold_in(key_act, 1), (length, n), 1, domain.n_actions)
    actions = jnp.where(acted, which, 0)
    start = jax.vmap(domain.start)(jax.random.split(key_start, n), arms)

    def one_round(state, at):
        key, action = at
        after = jax.vmap(domain.step)(jax.random.split(key, n), arms, state, action)
        return after, state

    keys = jax.random.split(key_luck, length)
    states = np.asarray(jax.lax.scan(one_round, start, (keys, actions))[1])
    features = np.asarray(domain.features(arms), float)
    person, time = np.meshgrid(np.arange(n), np.arange(length))
    kept = _present(np.random.default_rng(seed), n, length, stay, missing)
    frame = pl.DataFrame(
        {
            "id": person[kept],
            "time": time[kept],
            "state": np.array(domain.state_names)[states[kept]],
            "action": np.array(domain.action_names)[np.asarray(actions)[kept]],
        }
    )
    seen = dict(zip(domain.feature_names, features[person[kept]].T, strict=True))
    return frame.with_columns(**seen).fill_nan(None).sort("id", "time")


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
