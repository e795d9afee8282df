"""Baselines that use neither learning nor the dynamics."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from prefermab.arms.amounts import Digits, read_amounts
from prefermab.arms.budget import greedy
from prefermab.arms.observation import Actions, Key, Observation
from prefermab.policies.base import Memory, Policy


class NoAction(Policy):
    """Never acts.

    >>> import prefermab as pm
    >>> pm.policies.NoAction()
    NoAction()
    """

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        return jnp.zeros(seen.n_arms, jnp.int32), memory


class Random(Policy):
    """The paper's Random: visits arms in random order and gives each a uniformly random action
    among those still affordable, the passive one included. Opted-out arms are visited too.

    >>> import prefermab as pm
    >>> pm.policies.Random()
    Random()
    """

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        key_order, key_action = jax.random.split(key)
        order = jax.random.permutation(key_order, seen.n_arms)
        amounts = read_amounts(seen.costs, seen.budget) if seen.amounts is None else seen.amounts

        def visit(spent, at):
            costs, lot = at
            affordable = spent + costs <= amounts.budget
            nth = jnp.floor(lot * jnp.sum(affordable))
            action = jnp.argmax(jnp.cumsum(affordable) > nth)
            return spent + costs[action], action

        lots = jax.random.uniform(key_action, (seen.n_arms,))
        nothing = Digits(*jnp.zeros((2,), jnp.int32))
        _, drawn = jax.lax.scan(visit, nothing, (amounts.costs[order], lots))
        return jnp.zeros(seen.n_arms, jnp.int32).at[order].set(drawn.astype(jnp.int32)), memory


class Lottery(Policy):
    """Takes opted-in arms and their actions in random order until the budget is spent.

    `Random` follows the paper: it also visits opted-out arms and draws the passive action. In a
    programme where most people who ever joined are out, it would spend next to nothing.

    >>> import prefermab as pm
    >>> pm.policies.Lottery()
    Lottery()
    """

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        scores = jax.random.uniform(key, seen.costs.shape)
        return greedy(scores, seen.costs, seen.budget, seen.opt_in, seen.amounts), memory


class RoundRobin(Policy):
    """Acts on the arms that have waited longest, with the most expensive action that fits.
    Arms that were never acted on come first, in their order.

    >>> import prefermab as pm
    >>> pm.policies.RoundRobin()
    RoundRobin()
    """

    def memory(self, n_arms: int) -> Int[Array, "arm"]:
        """When each arm was last acted on: its position in the order of all actions."""
        return jnp.arange(n_arms) - n_arms

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        turn = jnp.argsort(jnp.argsort(memory))
        by_cost = jnp.argsort(jnp.argsort(-seen.costs, axis=1), axis=1)
        scores = -(turn[:, None] * seen.costs.shape[1] + by_cost).astype(jnp.float32)
        actions = greedy(scores, seen.costs, seen.budget, seen.opt_in, seen.amounts)
        return actions, jnp.where(actions > 0, seen.round * seen.n_arms + turn, memory)
