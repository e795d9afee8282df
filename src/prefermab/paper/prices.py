"""The best price of the relaxation, to compare the learned one with (Prop. 3)."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from prefermab.domains import Domain
from prefermab.opt_in import opted_in_count
from prefermab.oracles import value_iteration
from prefermab.paper.runner import EVALUATION_SEED, Scale, Store, Task, TaskResult
from prefermab.paper.tables import Setting
from prefermab.paper.tasks import untrained
from prefermab.recipes import Paper

INSTANCES = 32
THIRDS = 25


@dataclasses.dataclass(frozen=True)
class BestPrice(Task):
    """The price at which the relaxation is tightest, for each of some draws of arms with as many
    in as in training: (instance)."""

    setting: Setting
    scale: Scale

    @classmethod
    def of(cls, setting: Setting, scale: Scale) -> "BestPrice":
        """Only the domain, the arms and the budget matter."""
        plain = dataclasses.replace(untrained(setting), opt_in=Paper.opt_in)
        return cls(plain, dataclasses.replace(scale, seeds=1, trials=0))

    @property
    def title(self) -> str:
        return f"best price of {self.setting.domain}"

    @property
    def cost(self) -> float:
        return 5 + self.setting.tried_on().n_cells / 5

    def work(self, store: Store) -> TaskResult:
        domain = self.setting.tried_on()
        inside = opted_in_count(self.setting.opt_in, self.setting.n_arms)
        keys = jax.random.split(
            jax.random.key(EVALUATION_SEED), 4 if self.scale.quick else INSTANCES
        )
        budget = jnp.float32(self.setting.budget)
        return {"price": np.array([best_price(domain, inside, budget, key) for key in keys])}


@eqx.filter_jit
def best_price(
    domain: Domain, n_arms: int, budget: Float[Array, ""], key: Array
) -> Float[Array, ""]:
    """The price that minimises the dual of some new arms from a uniform start, by thirds; the
    reward of a decision is that of the next state, as in training."""
    discount, arms = Paper.discount, domain.draw_arms(key, n_arms)
    moves, costs = jax.vmap(domain.transitions)(arms), jax.vmap(domain.costs)(arms)
    rewards = jax.vmap(domain.rewards)(arms) / discount

    def dual(price: Float[Array, ""]) -> Float[Array, ""]:
        worth = value_iteration(moves, rewards, costs, price, discount).max(axis=2)
        return price * budget / (1 - discount) + worth.mean(axis=1).sum()

    def narrow(_, ends):
        low, high = ends
        left, right = low + (high - low) / 3, high - (high - low) / 3
        falls = dual(left) > dual(right)
        return jnp.where(falls, left, low), jnp.where(falls, high, right)

    dearest = (rewards.max() - rewards.min()) / (1 - discount)
    dearest = dearest / jnp.where(costs > 0, costs, jnp.inf).min()
    low, high = jax.lax.fori_loop(0, THIRDS, narrow, (jnp.zeros_like(dearest), dearest))
    return (low + high) / 2
