"""The Whittle index policy."""

import jax
import jax.numpy as jnp

from prefermab.errors import InputError, number
from prefermab.oracles.whittle import indices_of_arm
from prefermab.policies.base import ByTable, Informed, Policy, Problem


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
