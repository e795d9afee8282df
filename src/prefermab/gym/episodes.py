"""Trials that someone outside decides for, one round a call.

The rules are those of `rollout`. An episode shows as many arms as there are places; where
people come and go, a place shows whoever holds it, and a dummy while nobody does. A set of actions
that costs too much is not refused: what does not fit is left out.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from prefermab.arms import Actions, Arms, Costs, Key, Observation, OptIn, States, TrialKeys
from prefermab.budget import cost_of, greedy
from prefermab.domains.base import Domain
from prefermab.evaluation import opt_in_key
from prefermab.opt_in import Streaming, fixed_share, in_place, opted_in_count
from prefermab.oracles.lagrangian import joins
from prefermab.rollout import World, advance, come_in, draw_world, observe


class Setup(eqx.Module):
    """What all episodes have in common. `arms` are drawn anew for each unless they are given."""

    domain: Domain
    budget: Float[Array, ""]
    n_arms: int
    rounds: int
    opt_in: float | Streaming
    arms: Arms | None = None


class Episode(eqx.Module):
    """Where an episode stands. `places` says who holds each place in each round, -1 for nobody."""

    world: World
    places: Int[Array, "*worlds round arm"]
    costs: Float[Array, "*worlds person act"]
    state: Array
    round: Int[Array, "*worlds"]


class Outcome(eqx.Module):
    """What came of a round: what is seen next, and what was carried out of what was asked."""

    seen: Observation
    reward: Float[Array, "*worlds"]
    executed: Int[Array, "*worlds arm"]
    spent: Float[Array, "*worlds"]
    projected: Bool[Array, "*worlds"]


def project(
    actions: Actions, costs: Costs, budget: Float[Array, ""] | float, opt_in: OptIn
) -> Actions:
    """The actions that fit: arms are served in their order while the budget lasts.

    An arm whose action no longer fits, or that is opted out, gets the passive action; cheaper
    actions of later arms are still carried out. What fits as it is stays as it is.

    >>> import jax.numpy as jnp
    >>> from prefermab.gym.episodes import project
    >>> costs = jnp.tile(jnp.array([0.0, 1.0, 2.0]), (4, 1))
    >>> project(jnp.array([2, 2, 1, 1]), costs, 3.0, jnp.array([True, True, True, True]))
    Array([2, 0, 1, 0], dtype=int32)
    """
    n_arms, n_actions = costs.shape
    asked = actions[:, None] == jnp.arange(n_actions)
    in_order = -jnp.arange(n_arms, dtype=costs.dtype)[:, None]
    return greedy(jnp.where(asked, in_order, -jnp.inf), costs, budget, opt_in)


@eqx.filter_jit
def begin(setup: Setup, keys: TrialKeys) -> tuple[Episode, Observation]:
    """A new episode for each key, and what is seen first."""

    def one_world(key: Key) -> tuple[Episode, Observation]:
        places, opt_in = _who_is_in(setup, opt_in_key(key))
        world = draw_world(key, setup.domain, opt_in, setup.arms)
        costs = jax.vmap(setup.domain.costs)(world.arms)
        episode = Episode(world, places, costs, world.start, jnp.zeros((), int))
        return episode, _by_place(episode, _look(setup, episode))

    return jax.vmap(one_world)(keys)


@eqx.filter_jit
def step(
    setup: Setup, episodes: Episode, asked: Int[Array, "world arm"]
) -> tuple[Episode, Outcome]:
    """One round of every episode."""

    def one_world(episode: Episode, asked: Actions) -> tuple[Episode, Outcome]:
        people = _look(setup, episode)
        seen = _by_place(episode, people)
        executed = project(asked, seen.costs, seen.budget, seen.opt_in)
        holder = _holders(episode)
        nobody = jnp.where(holder < 0, people.n_arms, holder)
        actions = jnp.zeros(people.n_arms, executed.dtype).at[nobody].set(executed, mode="drop")
        luck = jax.random.split(episode.world.luck, setup.rounds)[episode.round]
        state, reward = advance(setup.domain, episode.world, people, actions, luck)
        after = Episode(episode.world, episode.places, episode.costs, state, episode.round + 1)
        seen_next = _by_place(after, _look(setup, after))
        spent = cost_of(executed, seen.costs)
        return after, Outcome(seen_next, reward, executed, spent, jnp.any(executed != asked))

    return jax.vmap(one_world)(episodes, asked)


def _who_is_in(
    setup: Setup, key: Key
) -> tuple[Int[Array, "round arm"], Bool[Array, "round person"]]:
    """Who holds each place, and who of all that ever come is in."""
    n_arms, rounds = setup.n_arms, setup.rounds
    if isinstance(setup.opt_in, Streaming):
        places = setup.opt_in.occupants(key, n_arms, rounds)
        return places, in_place(places, n_arms * rounds)
    share = fixed_share(key, n_arms, opted_in_count(setup.opt_in, n_arms))
    places = jnp.broadcast_to(jnp.arange(n_arms), (rounds, n_arms))
    return places, jnp.broadcast_to(share, (rounds, n_arms))


def _look(setup: Setup, episode: Episode) -> Observation:
    """What is to be seen of everyone who ever comes; after the last round nobody comes in."""
    world, last = episode.world, setup.rounds - 1
    now = jnp.minimum(episode.round, last)
    arrives = joins(world.opt_in)[now] & (episode.round <= last)
    state: States = come_in(world, arrives, episode.state)
    opt_in, budget = world.opt_in[now], setup.budget
    return observe(setup.domain, world.arms, episode.costs, state, opt_in, budget, episode.round)


def _holders(episode: Episode) -> Int[Array, "arm"]:
    return episode.places[jnp.minimum(episode.round, episode.places.shape[0] - 1)]


def _by_place(episode: Episode, people: Observation) -> Observation:
    """From everyone who ever comes to the places: a dummy that costs nothing where nobody is."""
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
