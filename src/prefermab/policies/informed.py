"""Policies that know the true dynamics: Myopic, Whittle and Lagrangian."""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from prefermab.arms.budget import by_price
from prefermab.arms.observation import Actions, Costs, Key, Observation
from prefermab.domains.base import Domain
from prefermab.errors import InputError, number
from prefermab.oracles.dynamic_programming import (
    Rewards,
    Transitions,
    backward_induction,
    expectation,
)
from prefermab.oracles.lagrangian import Prices, relax
from prefermab.oracles.whittle import indices_of_arms
from prefermab.policies.base import Memory, Policy, Problem


class Informed(Policy):
    """A policy that knows the true dynamics: `prepare` returns the policy that acts."""

    @abc.abstractmethod
    def prepare(self, problem: Problem) -> Policy: ...

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        raise InputError(f"{type(self).__name__} must be prepared for a problem before it acts.")


class ByTable(Policy):
    """Acts by a table of gains of each action over the passive one, (round or 1, arm, cell,
    action)."""

    domain: Domain
    gains: Float[Array, "time arm state act"]

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        now = self.gains[jnp.minimum(seen.round, self.gains.shape[0] - 1)]
        cell = jax.vmap(self.domain.cell)(seen.state)
        gains = now[jnp.arange(seen.n_arms), cell]
        return by_price(gains, seen.costs, seen.budget, seen.opt_in, seen.amounts), memory


class Myopic(Informed):
    """Maximises the expected reward of the next state only.

    >>> import prefermab as pm
    >>> pm.policies.Myopic()
    Myopic()
    """

    def prepare(self, problem: Problem) -> Policy:
        expected = expectation(problem.transitions())(problem.rewards().T)
        expected = jnp.moveaxis(expected, -1, 0)
        return ByTable(problem.domain, (expected - expected[..., :1])[None])


class Whittle(Informed):
    """The Whittle index policy (Whittle 1988; asymptotically optimal by Weber and Weiss 1990 under
    their conditions): acts where the index per cost is highest. For two actions.

    The index is that of the discounted problem with an infinite horizon. An arm with a negative
    index gets no action. A continuous state is rounded to the nearest point of its domain's grid.

    Args:
        discount: Discount factor per round of the index, below 1.

    >>> import prefermab as pm
    >>> pm.policies.Whittle(discount=0.95)
    Whittle(discount=0.95)
    """

    discount: float = 0.9

    def __check_init__(self) -> None:
        if number(self.discount, "discount") >= 1:
            raise InputError(f"discount must be below 1, not {self.discount:g}.")

    def prepare(self, problem: Problem) -> Policy:
        if problem.domain.n_actions != 2:
            raise InputError(
                f"Whittle needs two actions, and the domain '{problem.domain.name}' has "
                f"{problem.domain.n_actions}: use Lagrangian."
            )
        rewards = problem.rewards()
        twice = jnp.stack([rewards, rewards], axis=-1)
        indices = indices_of_arms(problem.transitions(), twice, self.discount)
        gains = jnp.stack([jnp.zeros_like(indices), indices], axis=-1)
        return ByTable(problem.domain, gains[None])


class Lagrangian(Informed):
    """Acts by the values of the Lagrangian relaxation (Eq. 2 of the paper, with a finite horizon).
    For any number of actions and any costs.

    In each round the value of an action is its expected next reward plus the value of the next
    state at the relaxation's prices; the budget is then spent on the highest values per cost. A
    continuous state is rounded to the nearest point of its domain's grid.

    Args:
        resolve: Whether to compute the prices again in every round, from the current states; this
            is slower, and better with few arms. By default they are computed once, at the start.

    >>> import prefermab as pm
    >>> pm.policies.Lagrangian(resolve=True)
    Lagrangian(resolve=True)
    """

    resolve: bool = False

    def prepare(self, problem: Problem) -> Policy:
        if self.resolve:
            return _Resolving(problem, problem.transitions(), problem.rewards(), problem.costs())
        tables = problem.transitions(), problem.rewards(), problem.costs()
        prices = problem.prices
        if prices is None:
            start = jax.vmap(problem.domain.cell)(problem.start)
            _, prices = relax(*tables, problem.budget, start, problem.opt_in)
        return ByTable(problem.domain, _gains(*tables, prices, problem.opt_in))


class _Resolving(Policy):
    """Computes the prices of the relaxation again in every round."""

    problem: Problem
    transitions: Transitions
    rewards: Rewards
    costs: Costs

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        rounds = jnp.arange(self.problem.opt_in.shape[0])
        ahead = jnp.roll(self.problem.opt_in, -seen.round, axis=0)
        ahead &= (rounds < rounds.size - seen.round)[:, None]
        cell = jax.vmap(self.problem.domain.cell)(seen.state)
        tables = self.transitions, self.rewards, self.costs
        _, prices = relax(*tables, seen.budget, cell, ahead)
        gains = _gains(*tables, prices, ahead)[0]
        now = gains[jnp.arange(seen.n_arms), cell]
        return by_price(now, seen.costs, seen.budget, seen.opt_in, seen.amounts), memory


def _gains(
    transitions: Transitions,
    rewards: Rewards,
    costs: Costs,
    prices: Prices,
    opt_in: Bool[Array, "round arm"],
) -> Float[Array, "round arm state act"]:
    """Value of each action minus that of the passive one, before the action's own cost is paid."""
    q = backward_induction(transitions, rewards, costs, prices, opt_in)
    worth = q + prices[:, None, None, None] * costs[None, :, None, :]
    return worth - worth[..., :1]
