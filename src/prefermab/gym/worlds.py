"""Worlds that run in step, for someone who decides with NumPy: checked input, arrays of one's own.

Trial t of seed s is the one that `pm.evaluate(..., seed=s)` plays as its t-th, from 0.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from prefermab import domains
from prefermab.arms import Arms, Observation, TrialKeys
from prefermab.domains import Domain
from prefermab.domains.checking import check_once
from prefermab.errors import InputError, count, number
from prefermab.evaluation import how_many
from prefermab.gym.episodes import Episode, Setup, begin, step
from prefermab.opt_in import Streaming, opted_in_count

Seen = dict[str, Any]
"""The fields of an `Observation` as arrays, and `known` for features."""


def setup_of(
    domain: Domain | str | None,
    n_arms: int | None,
    budget: float | None,
    rounds: int,
    opt_in: float | Streaming,
    arms: Arms | None,
    **settings: Any,
) -> Setup:
    """The arguments of an environment, checked."""
    if isinstance(domain, str):
        domain = domains.get(domain, **settings)
    elif not isinstance(domain, Domain):
        raise InputError(f"domain must be a Domain such as Armman(), or a name, not {domain!r}.")
    elif settings:
        raise InputError(f"{next(iter(settings))} is no argument where a Domain is given.")
    check_once(domain)
    n_arms = count(domain.usual_arms if n_arms is None else n_arms, "n_arms")
    money = number(domain.usual_budget if budget is None else budget, "budget")
    if arms is not None:
        n_arms = how_many(arms)
    if isinstance(opt_in, Streaming):
        if arms is not None:
            raise InputError("people come and go in a stream: it cannot be played with given arms.")
    elif opted_in_count(opt_in, n_arms) == 0:
        raise InputError(f"at opt_in {opt_in:g} none of {n_arms} arms is in: nothing to decide.")
    return Setup(domain, jnp.asarray(money), n_arms, count(rounds, "rounds"), opt_in, arms)


class Worlds:
    """Worlds that run in step: their seeds, which trial of each is on, and where it stands."""

    def __init__(self, setup: Setup, size: int):
        self.setup, self.size = setup, size
        self.seeds: list[int | None] = [None] * size
        self.trials = np.zeros(size, np.int32)
        self.episodes: Episode | None = None
        self.round = 0

    @property
    def over(self) -> bool:
        """Whether the last round has been played."""
        return self.round >= self.setup.rounds

    def reset(self, seeds: Sequence[int | None], spare: np.random.Generator) -> Seen:
        """A seed begins its trials; without one the next trial comes, or, at first, any."""
        for i, seed in enumerate(seeds):
            if seed is None and self.seeds[i] is not None:
                self.trials[i] += 1
            else:
                self.seeds[i] = int(spare.integers(2**32)) if seed is None else seed
                self.trials[i] = 0
        keys = _keys(np.array(self.seeds, np.uint32), self.trials)
        self.episodes, seen = begin(self.setup, keys)
        self.round = 0
        return _as_numpy(seen)

    def step(self, asked: np.ndarray) -> tuple[Seen, np.ndarray, dict[str, np.ndarray]]:
        """What is seen next, the rewards, and what was carried out of what was asked."""
        if self.episodes is None:
            raise InputError("an environment must be reset before its first step.")
        if self.over:
            raise InputError(f"the episode ended after {self.round} rounds: reset it first.")
        self.episodes, outcome = step(self.setup, self.episodes, jnp.asarray(asked))
        self.round += 1
        info = {
            "projected": np.array(outcome.projected),
            "executed": np.array(outcome.executed, np.int64),
            "spent": np.array(outcome.spent, np.float64),
            "budget": np.full(self.size, float(self.setup.budget)),
        }
        return _as_numpy(outcome.seen), np.array(outcome.reward, np.float64), info


def as_seed(seed: int | None) -> int | None:
    """A seed that JAX does not cut short, or none."""
    if seed is None:
        return None
    if count(seed, "seed", at_least=0) >= 2**32:
        raise InputError(f"seed must be less than 2**32, not {seed}.")
    return int(seed)


def as_actions(actions: Any, setup: Setup, worlds: tuple[int, ...]) -> np.ndarray:
    """Actions of each arm, of each of so many worlds, that exist."""
    given, wanted = np.asarray(actions), (*worlds, setup.n_arms)
    top = setup.domain.n_actions - 1
    if given.shape != wanted:
        raise InputError(f"actions must have the shape {wanted}, not {given.shape}.")
    if given.dtype.kind not in "iu" or given.min() < 0 or given.max() > top:
        raise InputError(f"actions must be whole numbers from 0 to {top}.")
    return given.astype(np.int32)


@jax.jit
def _keys(seeds: jax.Array, trials: jax.Array) -> TrialKeys:
    return jax.vmap(lambda seed, trial: jax.random.fold_in(jax.random.key(seed), trial))(
        seeds, trials
    )


def _as_numpy(seen: Observation) -> Seen:
    """Arrays of one's own. An unknown feature is 0 and not `known`; so are all where one is out."""
    features, opt_in = np.array(seen.features), np.array(seen.opt_in)
    whole = jnp.issubdtype(seen.state.dtype, jnp.integer)
    return {
        "state": np.array(seen.state, np.int64 if whole else np.float32),
        "features": np.where(np.isnan(features), np.float32(0), features),
        "known": (~np.isnan(features) & opt_in[..., None]).astype(np.int8),
        "opt_in": opt_in.astype(np.int8),
        "costs": np.array(seen.costs),
        "budget": np.array(seen.budget)[:, None],
        "round": np.array(seen.round, np.int64),
    }
