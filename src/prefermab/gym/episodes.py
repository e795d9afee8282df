"""Trials in which the caller chooses the actions, one round in each call.

The rules are those of `rollout`. An episode shows as many arms as there are places. Where people
join and leave, a place shows the person who holds it, or an empty arm while nobody does. Actions
that cost more than the budget are not an error: those that do not fit are not executed. Trial t of
seed s is trial t of `pm.evaluate(..., seed=s)`, counted from 0.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from prefermab import domains
from prefermab.arms.budget import cost_of, greedy
from prefermab.arms.observation import (
    Actions,
    Arms,
    Costs,
    Key,
    Observation,
    OptIn,
    States,
    TrialKeys,
    number_of_arms,
    reward_of_opted_in,
)
from prefermab.arms.opt_in import (
    Streaming,
    fixed_share,
    holds_place,
    joins,
    opt_in_key,
    opted_in_count,
)
from prefermab.domains.base import Domain
from prefermab.domains.validate import check_once
from prefermab.errors import InputError, amount, count
from prefermab.evaluation.rollout import Moves, World, draw_world, observe, start_newcomers

ObservationArrays = dict[str, np.ndarray]
"""The fields of an `Observation` as NumPy arrays, and which features are `known`."""


class Setup(eqx.Module):
    """The settings that all episodes share. Each episode draws new arms unless `arms` are given."""

    domain: Domain
    budget: Float[Array, ""]
    n_arms: int
    rounds: int
    opt_in: float | Streaming
    arms: Arms | None = None


class Episode(eqx.Module):
    """The state of an episode. `places` has the person in each place and round, -1 for nobody."""

    world: World
    places: Int[Array, "*worlds round arm"]
    costs: Float[Array, "*worlds person act"]
    state: Array
    round: Int[Array, "*worlds"]


class Outcome(eqx.Module):
    """The outcome of a round: the next observation, the reward, and the executed actions."""

    seen: Observation
    reward: Float[Array, "*worlds"]
    executed: Int[Array, "*worlds arm"]
    spent: Float[Array, "*worlds"]
    projected: Bool[Array, "*worlds"]


def project(
    actions: Actions, costs: Costs, budget: Float[Array, ""] | float, opt_in: OptIn
) -> Actions:
    """The actions that fit the budget; arms are served in their order.

    An arm whose action no longer fits, or that is opted out, gets the passive action; cheaper
    actions of later arms are still executed. Actions that all fit are not changed.

    >>> import jax.numpy as jnp
    >>> from prefermab.gym.episodes import project
    >>> costs = jnp.tile(jnp.array([0.0, 1.0, 2.0]), (4, 1))
    >>> project(jnp.array([2, 2, 1, 1]), costs, 3.0, jnp.array([True, True, True, True]))
    Array([2, 0, 1, 0], dtype=int32)
    """
    n_arms, n_actions = costs.shape
    wanted = actions[:, None] == jnp.arange(n_actions)
    in_order = -jnp.arange(n_arms, dtype=costs.dtype)[:, None]
    return greedy(jnp.where(wanted, in_order, -jnp.inf), costs, budget, opt_in)


@eqx.filter_jit
def begin_episodes(setup: Setup, keys: TrialKeys) -> tuple[Episode, Observation]:
    """Begins an episode for each key; returns it with its first observation."""

    def one_world(key: Key) -> tuple[Episode, Observation]:
        places, opt_in = _participants(setup, opt_in_key(key))
        world = draw_world(key, setup.domain, opt_in, setup.arms)
        costs = jax.vmap(setup.domain.costs)(world.arms)
        episode = Episode(world, places, costs, world.start, jnp.zeros((), int))
        return episode, _by_place(episode, _observe_people(setup, episode))

    return jax.vmap(one_world)(keys)


@eqx.filter_jit
def step_episodes(
    setup: Setup, episodes: Episode, actions: Int[Array, "world arm"]
) -> tuple[Episode, Outcome]:
    """Plays one round of every episode. `actions` are by place."""

    def one_world(episode: Episode, wanted: Actions) -> tuple[Episode, Outcome]:
        people = _observe_people(setup, episode)
        seen = _by_place(episode, people)
        executed = project(wanted, seen.costs, seen.budget, seen.opt_in)
        holder = _holders(episode)
        # An empty place gets an index that is out of range, which `drop` ignores.
        person = jnp.where(holder < 0, people.n_arms, holder)
        by_person = jnp.zeros(people.n_arms, executed.dtype).at[person].set(executed, mode="drop")
        luck = jax.random.split(episode.world.luck, setup.rounds)[episode.round]
        state, each = Moves.of(setup.domain, episode.world.arms)(luck, people.state, by_person)
        reward = reward_of_opted_in(people.opt_in, each)
        after = Episode(episode.world, episode.places, episode.costs, state, episode.round + 1)
        seen_next = _by_place(after, _observe_people(setup, after))
        spent = cost_of(executed, seen.costs)
        return after, Outcome(seen_next, reward, executed, spent, jnp.any(executed != wanted))

    return jax.vmap(one_world)(episodes, actions)


def _participants(
    setup: Setup, key: Key
) -> tuple[Int[Array, "round arm"], Bool[Array, "round person"]]:
    """In each round, the person in each place, and for each person whether they are in."""
    n_arms, rounds = setup.n_arms, setup.rounds
    if isinstance(setup.opt_in, Streaming):
        places = setup.opt_in.occupants(key, n_arms, rounds)
        return places, holds_place(places, n_arms * rounds)
    share = fixed_share(key, n_arms, opted_in_count(setup.opt_in, n_arms))
    places = jnp.broadcast_to(jnp.arange(n_arms), (rounds, n_arms))
    return places, jnp.broadcast_to(share, (rounds, n_arms))


def _observe_people(setup: Setup, episode: Episode) -> Observation:
    """The observation of all people who ever join; after the last round nobody joins."""
    world, last = episode.world, setup.rounds - 1
    now = jnp.minimum(episode.round, last)
    arrives = joins(world.opt_in)[now] & (episode.round <= last)
    state: States = start_newcomers(world, arrives, episode.state)
    opt_in, budget = world.opt_in[now], setup.budget
    return observe(setup.domain, world.arms, episode.costs, state, opt_in, budget, episode.round)


def _holders(episode: Episode) -> Int[Array, "arm"]:
    """The person in each place in the current round, -1 for nobody."""
    return episode.places[jnp.minimum(episode.round, episode.places.shape[0] - 1)]


def _by_place(episode: Episode, people: Observation) -> Observation:
    """The observation by place instead of by person; empty places have zeros and are opted out."""
    holder = _holders(episode)
    index, held = jnp.maximum(holder, 0), holder >= 0
    return Observation(
        state=jnp.where(held, people.state[index], 0),
        features=jnp.where(held[:, None], people.features[index], 0.0),
        opt_in=held & people.opt_in[index],
        costs=jnp.where(held[:, None], people.costs[index], 0.0),
        budget=people.budget,
        round=people.round,
    )


def make_setup(
    domain: Domain | str | None,
    n_arms: int | None,
    budget: float | None,
    rounds: int,
    opt_in: float | Streaming,
    arms: Arms | None,
    **settings: Any,
) -> Setup:
    """Checks the arguments of an environment and returns them as a `Setup`."""
    if isinstance(domain, str):
        domain = domains.get(domain, **settings)
    elif not isinstance(domain, Domain):
        raise InputError(f"domain must be a Domain such as Armman(), or a name, not {domain!r}.")
    elif settings:
        raise InputError(f"{next(iter(settings))} is only allowed if the domain is given by name.")
    check_once(domain)
    n_arms = count(domain.usual_arms if n_arms is None else n_arms, "n_arms")
    money = amount(domain.usual_budget if budget is None else budget, "budget")
    if arms is not None:
        n_arms = number_of_arms(arms)
    if isinstance(opt_in, Streaming):
        if arms is not None:
            raise InputError(
                "opt_in is a Streaming process, in which new arms join: leave arms out."
            )
    elif opted_in_count(opt_in, n_arms) == 0:
        raise InputError(f"at opt_in {opt_in:g} none of {n_arms} arms is in: nothing to decide.")
    return Setup(domain, jnp.asarray(money), n_arms, count(rounds, "rounds"), opt_in, arms)


class Worlds:
    """Worlds that run together: the seed, the current trial and the state of each."""

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

    def reset(self, seeds: Sequence[int | None], spare: np.random.Generator) -> ObservationArrays:
        """Begins the first trial of each seed, or the next trial where the seed is None. A world
        without an earlier seed gets a random one."""
        for i, seed in enumerate(seeds):
            if seed is None and self.seeds[i] is not None:
                self.trials[i] += 1
            else:
                self.seeds[i] = int(spare.integers(2**32)) if seed is None else seed
                self.trials[i] = 0
        keys = _keys(np.array(self.seeds, np.uint32), self.trials)
        self.episodes, seen = begin_episodes(self.setup, keys)
        self.round = 0
        return _as_numpy(seen)

    def step(
        self, actions: np.ndarray
    ) -> tuple[ObservationArrays, np.ndarray, dict[str, np.ndarray]]:
        """Plays a round; returns the next observation, the rewards and the infos."""
        if self.episodes is None:
            raise InputError("an environment must be reset before its first step.")
        if self.over:
            raise InputError(f"the episode ended after {self.round} rounds: reset it first.")
        self.episodes, outcome = step_episodes(self.setup, self.episodes, jnp.asarray(actions))
        self.round += 1
        info = {
            "projected": np.array(outcome.projected),
            "executed": np.array(outcome.executed, np.int64),
            "spent": np.array(outcome.spent, np.float64),
            "budget": np.full(self.size, float(self.setup.budget)),
        }
        return _as_numpy(outcome.seen), np.array(outcome.reward, np.float64), info


def as_seed(seed: int | None) -> int | None:
    """Checks that a seed fits into 32 bits, which JAX requires."""
    if seed is None:
        return None
    if count(seed, "seed", at_least=0) >= 2**32:
        raise InputError(f"seed must be less than 2**32, not {seed}.")
    return int(seed)


def as_actions(actions: Any, setup: Setup, worlds: tuple[int, ...]) -> np.ndarray:
    """Checks the actions of each arm in each world."""
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


def _as_numpy(seen: Observation) -> ObservationArrays:
    """An observation as NumPy arrays. Features that are unknown, or of an opted-out arm, are 0, and
    `known` is 0 for them."""
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
