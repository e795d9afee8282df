"""Plays a policy in one trial; the world of the trial is the same for every policy."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from prefermab.arms.amounts import Amounts, read_amounts
from prefermab.arms.budget import cost_of
from prefermab.arms.observation import (
    Actions,
    Arms,
    Costs,
    Features,
    Key,
    Observation,
    OptIn,
    States,
    hide_opted_out,
    reward_of_opted_in,
)
from prefermab.arms.opt_in import joins
from prefermab.domains.base import Domain, draw_index
from prefermab.errors import InputError
from prefermab.policies.base import Policy, Problem


class Trajectory(eqx.Module):
    """What happened in an epoch of training, round by round, and the price of the epoch."""

    state: Float[Array, "round arm"] | Int[Array, "round arm"]
    action: Int[Array, "round arm"]
    reward: Float[Array, "round arm"]
    cost: Float[Array, "round arm"]
    last_state: States
    features: Features
    opt_in: OptIn
    price: Float[Array, ""]


class NotActionsError(InputError):
    """A policy did not return actions; `why` is the error message without its subject."""

    def __init__(self, why: str):
        self.why = why
        super().__init__(f"a policy {why}")


class World(eqx.Module):
    """What is the same for every policy in a comparison: arms, starts, opt-ins and luck."""

    arms: Arms
    start: States
    opt_in: Bool[Array, "round arm"]
    luck: Key


class Played(eqx.Module):
    """The outcome of each round of a trial. `sound` is false where an action does not exist, and
    `reached` counts the different opted-in arms that were acted on so far."""

    reward: Float[Array, "*round"]
    spent: Float[Array, "*round"]
    opted_in: Int[Array, "*round"]
    sound: Bool[Array, "*round"]
    reached: Int[Array, "*round"]


def reward_per_arm(played: Played) -> Float[Array, "*trials"]:
    """Total reward of a trial, divided by the mean number of opted-in arms."""
    return played.reward.sum(axis=-1) / played.opted_in.mean(axis=-1)


def draw_world(
    key: Key, domain: Domain, opt_in: Bool[Array, "round arm"], arms: Arms | None = None
) -> World:
    """Draws arms, unless they are given, and first states, from a random stream of their own."""
    key_arms, key_start, key_luck = jax.random.split(key, 3)
    n_arms = opt_in.shape[1]
    if arms is None:
        arms = domain.draw_arms(key_arms, n_arms)
    start = jax.vmap(domain.start)(jax.random.split(key_start, n_arms), arms)
    return World(arms, start, opt_in, key_luck)


def observe(
    domain: Domain,
    arms: Arms,
    costs: Costs,
    state: States,
    opt_in: Bool[Array, "arm"],
    budget: Float[Array, ""],
    round: Int[Array, ""],
    amounts: Amounts | None = None,
) -> Observation:
    """What a policy sees in a round, with dummies for opted-out arms."""
    state, features = hide_opted_out(opt_in, state, domain.features(arms, round))
    return Observation(state, features, opt_in, costs, budget, round, amounts)


def start_newcomers(world: World, arrives: Bool[Array, "arm"], state: States) -> States:
    """States after some arms joined; these arms start in `world.start`."""
    return jnp.where(arrives, world.start, state)


class Moves(eqx.Module):
    """Draws the next states of some arms and gives their rewards, by their domain. Where actions
    lead to few cells, it uses tables that are computed once; every draw is the same either way."""

    domain: Domain
    arms: Arms
    chances: Float[Array, "arm state act next"] | None
    rewards: Float[Array, "arm state"] | None

    @classmethod
    def of(cls, domain: Domain, arms: Arms) -> "Moves":
        """The moves of these arms."""
        if domain.targets is None:
            return cls(domain, arms, None, None)
        chances, rewards = jax.vmap(domain.successors)(arms), jax.vmap(domain.rewards)(arms)
        return cls(domain, arms, chances, rewards)

    def __call__(
        self, luck: Key, state: States, actions: Actions
    ) -> tuple[States, Float[Array, "arm"]]:
        """The next states and their rewards."""
        keys, arm = jax.random.split(luck, state.shape[0]), jnp.arange(state.shape[0])
        if self.chances is None or self.rewards is None or self.domain.targets is None:
            after = jax.vmap(self.domain.step)(keys, self.arms, state, actions)
            return after, jax.vmap(self.domain.reward_at)(self.arms, after)
        drawn = jax.vmap(draw_index)(keys, self.chances[arm, state, actions])
        after = jnp.asarray(self.domain.targets)[state, actions, drawn].astype(state.dtype)
        return after, self.rewards[arm, after]


def play(
    policy: Policy,
    domain: Domain,
    world: World,
    budget: Float[Array, ""],
    key: Key,
    prices: Float[Array, "round"] | None = None,
) -> Played:
    """Plays `policy` in `world` for all rounds of its opt-in schedule.

    The reward of a decision is that of the next state.
    """
    n_rounds, n_arms = world.opt_in.shape
    costs = jax.vmap(domain.costs)(world.arms)
    amounts = read_amounts(costs, budget)
    problem = Problem(domain, world.arms, world.start, world.opt_in, budget, prices)
    ready = policy.prepare(problem)
    move = Moves.of(domain, world.arms)

    def one_round(carry, at):
        state, memory, reached = carry
        now, opt_in, arrives, key_luck, key_policy = at
        state = start_newcomers(world, arrives, state)
        seen = observe(domain, world.arms, costs, state, opt_in, budget, now, amounts)
        actions, memory = ready.act(seen, memory, key_policy)
        actions = _whole(actions, n_arms)
        sound = jnp.all((actions >= 0) & (actions < domain.n_actions))
        state, each = move(key_luck, seen.state, actions)
        reward = reward_of_opted_in(opt_in, each)
        reached |= opt_in & (actions > 0)
        spent, there = cost_of(actions, costs), jnp.sum(opt_in)
        played = Played(reward, spent, there, sound, jnp.sum(reached))
        return (state, memory, reached), played

    rounds = (
        jnp.arange(n_rounds),
        world.opt_in,
        joins(world.opt_in),
        jax.random.split(world.luck, n_rounds),
        jax.random.split(key, n_rounds),
    )
    begin = world.start, ready.memory(n_arms), jnp.zeros(n_arms, bool)
    _, played = jax.lax.scan(one_round, begin, rounds)
    return played


def _whole(actions, n_arms: int) -> Int[Array, "arm"]:
    """The actions that a policy returned, as checked integers."""
    actions = jnp.asarray(actions)
    if actions.shape != (n_arms,):
        raise NotActionsError(
            f"must return one action for each of {n_arms} arms, "
            f"not an array of the shape {actions.shape}."
        )
    if not jnp.issubdtype(actions.dtype, jnp.integer) and actions.dtype != bool:
        raise NotActionsError(f"must return whole numbers, not {actions.dtype}.")
    return actions.astype(jnp.int32)
