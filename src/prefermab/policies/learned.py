"""Policies made of trained networks."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms import Actions, Key, Observation
from prefermab.budget import Scores, cost_of, greedy, lowest_price, preferred, upgrade
from prefermab.networks import ActorCritic, Worth
from prefermab.policies.base import Memory, Policy

HALVINGS = 7
"""In search of the price that fits. A finer search decides the same: what it would leave to the
last halvings, spending the rest of the budget does."""


class BySweep(Policy):
    """Bisects for the lowest price at which what every arm prefers fits the budget, takes that,
    and spends what is left on the best further worth per cost.

    An action worth less than nothing at price 0 is never taken, though budget be left.
    """

    worth: Worth

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        return self.at(self.price(seen), seen), memory

    def gains(self, price: Float[Array, ""], seen: Observation) -> Scores:
        """Worth of each action over the passive one, before its own cost is paid."""
        return jax.vmap(self.worth, in_axes=(0, 0, None))(seen.state, seen.features, price)[1]

    def price(self, seen: Observation) -> Float[Array, ""]:
        """The lowest price at which what every arm prefers fits the budget."""

        def spending(price: Float[Array, ""]) -> Float[Array, ""]:
            choice = preferred(self.gains(price, seen), seen.costs, price, seen.opt_in)
            return cost_of(choice, seen.costs)

        highest = self.worth.perception.highest_price
        # Bisects the root of the price: prices that budgets lead to are low.
        root = lowest_price(
            lambda root: spending(root**2), seen.budget, jnp.sqrt(highest), HALVINGS
        )
        return root**2

    def at(self, price: Float[Array, ""], seen: Observation) -> Actions:
        """What every arm prefers at a price that fits, and the rest of the budget spent."""
        gains = self.gains(price, seen)
        wanted = preferred(gains, seen.costs, price, seen.opt_in)
        # Even the highest price may not fit a tiny budget: then only the filling decides.
        fits = cost_of(wanted, seen.costs) <= seen.budget
        actions = jnp.where(fits, wanted, 0)
        free = self.gains(jnp.zeros(()), seen)
        useful = jnp.where(free > 0, gains, -jnp.inf).at[:, 0].set(0.0)
        for _ in range(seen.costs.shape[1] - 1):
            actions = upgrade(actions, useful, seen.costs, seen.budget, seen.opt_in)
        return actions


class ByGreedyProba(Policy):
    """The paper's inference (Algorithm 3): the price of the round from the price network, then
    actions by highest log-odds until the budget is reached.
    """

    network: ActorCritic

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        price = self.network.price(seen.state, seen.features, seen.opt_in)
        log_p = jax.nn.log_softmax(self.network.logits_of(seen.state, seen.features, price))
        # log p - log(1 - p): probabilities round to 1 and tie long before their odds do.
        others = jax.vmap(jax.vmap(_log_sum_without, in_axes=(None, 0)), in_axes=(0, None))
        odds = log_p - others(log_p, jnp.arange(log_p.shape[1]))
        return greedy(odds, seen.costs, seen.budget, seen.opt_in), memory


def policy_of(network: Worth | ActorCritic) -> Policy:
    """The way of deciding that belongs to a network."""
    return ByGreedyProba(network) if isinstance(network, ActorCritic) else BySweep(network)


def _log_sum_without(log_p: Float[Array, "act"], action: Int[Array, ""]) -> Float[Array, ""]:
    return jax.nn.logsumexp(jnp.where(jnp.arange(log_p.size) == action, -jnp.inf, log_p))
