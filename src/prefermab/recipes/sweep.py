"""Recipe `sweep`: learns from sampled steps what each action is worth at every price.

In each step new arms are drawn, each with its own price and a random state, and every action is
tried once under the same luck. With a slow copy (V̄, Ḡ) of the network valuing next states,

    y_a = R(s'_a) + discount·(V̄(s'_a) + max_b [Ḡ(s'_a, b) - price·cost(b)])

is a sample of an action's worth before its own cost. V(s) is fitted to y_0 and the gain G(s,a) to
y_a - y_0. The difference of two samples with the same luck is far less noisy than either, and
decisions need nothing else.

There is no price network and no policy gradient. The price is searched for when deciding, which
serves any number of arms and any budget.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from prefermab.arms.observation import Arms, Key
from prefermab.domains.base import Domain
from prefermab.networks.worth import Worth
from prefermab.recipes.learner import Batch, Learner, Lessons, hide_features, sample_prices
from prefermab.recipes.regression import Regression

VALUE_WEIGHT = 0.1
"""Weight of the value of waiting in the loss: the values of next states contain it."""


@dataclasses.dataclass(frozen=True)
class Sweep(Regression[None]):
    """Trains at many prices and searches for the price when deciding; needs sampled steps only.

    >>> import prefermab as pm
    >>> model = pm.pretrain(pm.domains.Synthetic(), pm.recipes.Sweep(steps=20))
    >>> model.recipe
    'sweep'
    """

    name: ClassVar[str] = "sweep"

    @property
    def learner(self) -> Learner[None]:
        tries = Tries(self.arms, self.discount, self.masked)
        return Learner(
            tries, self.steps, self.width, self.depth, self.learning_rate, self.target_rate,
            self.focus, VALUE_WEIGHT,
        )  # fmt: skip

    @property
    def rounds_ahead(self) -> float:
        return 1 / (1 - self.discount)

    def samples_per_round(self, domain: Domain) -> int:
        """Every action is tried once."""
        return domain.n_actions


@dataclasses.dataclass(frozen=True)
class Tries(Lessons[None]):
    """Tries of every action on new arms."""

    arms: int
    discount: float
    masked: float

    def prepare(self, domain: Domain, slow: Worth, key: Key) -> None:
        """Nothing is kept from step to step."""

    def teach(
        self, domain: Domain, slow: Worth, memory: None, step: Int[Array, ""], key: Key
    ) -> tuple[None, Batch]:
        """New arms in every step."""
        key_arms, key_tries = jax.random.split(key)
        arms = domain.draw_arms(key_arms, self.arms)
        return None, self.batch(domain, slow, arms, self.arms, key_tries)

    def batch(self, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Batch:
        """Each arm at its own price in a random state, and one try of every action."""
        key_state, key_price, key_luck, key_mask = jax.random.split(key, 4)
        state = jax.vmap(domain.start)(jax.random.split(key_state, n_arms), arms)
        price = sample_prices(key_price, slow.perception.highest_price, (n_arms,))
        features = hide_features(key_mask, domain.features(arms), self.masked)

        def tried(key, arm, state, features, price, action):
            after = domain.step(key, arm, state, action)
            value, gains = slow(after, features, price)
            best = jnp.max(gains - price * domain.costs(arm))
            return domain.reward_at(arm, after) + self.discount * (value + best)

        each_action = jax.vmap(tried, in_axes=(None, None, None, None, None, 0))
        each_arm = jax.vmap(each_action, in_axes=(0, 0, 0, 0, 0, None))
        keys = jax.random.split(key_luck, n_arms)
        worth = each_arm(keys, arms, state, features, price, jnp.arange(domain.n_actions))
        return Batch(state, features, price, worth, jax.vmap(domain.costs)(arms))
