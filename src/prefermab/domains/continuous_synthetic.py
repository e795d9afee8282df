"""Continuous Synthetic: a state in [0, 1] that falls when left alone and rises when acted on."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms import Arm, Key, State
from prefermab.domains.base import ContinuousDomain, bounds
from prefermab.errors import unknown

REWARDS = ("identity", "scaled", "exponential")


class ContinuousSynthetic(ContinuousDomain):
    """The state moves by a normal step with standard deviation 0.2 and mean μ₀ in [-.5, -.1]
    (passive) or μ₁ in [.1, .5] (active). The reward is s, min(2s, 1) or min(eˢ - 1, 1).

    >>> import prefermab as pm
    >>> pm.domains.ContinuousSynthetic(reward="scaled").parameter_names
    ('drift', 'drift_acted')
    """

    reward: str = "identity"
    grid: int = eqx.field(kw_only=True, default=51)

    name: ClassVar[str] = "continuous-synthetic"
    action_names: ClassVar[tuple[str, ...]] = ("none", "act")
    parameter_names: ClassVar[tuple[str, ...]] = ("drift", "drift_acted")
    usual_arms: ClassVar[int] = 21

    def __check_init__(self) -> None:
        if self.reward not in REWARDS:
            raise unknown("reward", str(self.reward), REWARDS)

    def draw(self, key: Key) -> Arm:
        low, high = bounds((-0.5, -0.1), (0.1, 0.5))
        return jax.random.uniform(key, (2,), minval=low, maxval=high)

    def parameters(self, arm: Arm) -> Float[Array, "param"]:
        return arm

    def costs(self, arm: Arm) -> Float[Array, "act"]:
        return jnp.array([0.0, 1.0])

    def reward_at(self, arm: Arm, state: State) -> Float[Array, ""]:
        if self.reward == "scaled":
            return jnp.minimum(2 * state, 1.0)
        if self.reward == "exponential":
            return jnp.minimum(jnp.expm1(state), 1.0)
        return state

    def moments(
        self, arm: Arm, state: State, action: Int[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        return state + arm[action], jnp.asarray(0.2)
