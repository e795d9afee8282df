"""Policies that know the true dynamics: Myopic, Whittle and Lagrangian."""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from prefermab.arms import Actions, Costs, Key, Observation
from prefermab.budget import by_price
from prefermab.domains.base import Domain
from prefermab.errors import InputError, number
from prefermab.oracles.dynamic_programming import Rewards, Transitions, backward_induction
from prefermab.oracles.lagrangian import Prices, relax
from prefermab.oracles.whittle import indices_of_arm
from prefermab.policies.base import Memory, Policy, Problem


class Informed(Policy):
    """A policy that knows the true dynamics: a subclass gives `prepare`, and that, what acts."""

    @abc.abstractmethod
    def prepare(self, problem: Problem) -> Policy: ...

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        raise InputError(f"{type(self).__name__} must be prepared for a problem before it acts.")


class ByTable(Policy):
    """Acts by known gains of each action over the passive one, (round or 1, arm, cell, action)."""

    domain: Domain
    gains: Float[Array, "time arm state act"]

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        now = self.gains[jnp.minimum(seen.round, self.gains.shape[0] - 1)]
        cell = jax.vmap(self.domain.cell)(seen.state)
        gains = now[jnp.arange(seen.n_arms), cell]
        return by_price(gains, seen.costs, seen.budget, seen.opt_in), memory


class Myopic(Informed):
    """Buys the most expected reward in the next state for the budget; knows the true dynamics.

    >>> import prefermab as pm
    >>> pm.policies.Myopic()
    Myopic()
    """

    def prepare(self, problem: Problem) -> Policy:
        expected = jnp.einsum("isat,it->isa", problem.transitions(), problem.rewards())
        return ByTable(problem.domain, (expected - expected[..., :1])[None])


class Whittle(Informed):
    """Acts where the Whittle index per cost is highest; two actions; knows the true dynamics.

    The index is that of the discounted problem without an end. An arm with a negative index is
    left alone. A continuous state is taken at the nearest point of its domain's grid.

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
        arms = jax.vmap(indices_of_arm, in_axes=(0, 0, None))
        indices, _ = arms(problem.transitions(), twice, self.discount)
        gains = jnp.stack([jnp.zeros_like(indices), indices], axis=-1)
        return ByTable(problem.domain, gains[None])


class Lagrangian(Informed):
    """Any number of actions and any costs, finite horizon; knows the true dynamics.

    In each round an action is worth its expected next reward and the value of the next state,
    priced as in the Lagrangian relaxation; the budget then buys the most of that. The prices are
    those found at the start, or, with `resolve`, found again in every round from where the arms
    are by then (slower, and better when there are few arms). A continuous state is taken at the
    nearest point of its domain's grid.

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
        return by_price(now, seen.costs, seen.budget, seen.opt_in), memory


def _gains(
    transitions: Transitions,
    rewards: Rewards,
    costs: Costs,
    prices: Prices,
    opt_in: Bool[Array, "round arm"],
) -> Float[Array, "round arm state act"]:
    """What each action is worth over the passive one before its own price is paid."""
    q = backward_induction(transitions, rewards, costs, prices, opt_in)
    worth = q + prices[:, None, None, None] * costs[None, :, None, :]
    return worth - worth[..., :1]
