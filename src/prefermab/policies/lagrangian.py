"""The Lagrangian policy: what the relaxation's prices say the future is worth, made feasible."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from prefermab.arms import Actions, Costs, Key, Observation
from prefermab.budget import by_price
from prefermab.oracles.dynamic_programming import Rewards, Transitions, backward_induction
from prefermab.oracles.lagrangian import Prices, relax
from prefermab.policies.base import ByTable, Informed, Memory, Policy, Problem


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
