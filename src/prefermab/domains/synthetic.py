"""Synthetic (Killian et al. 2022, as in the paper), with two states and with a continuous state."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms.observation import Arm, Key, State
from prefermab.domains.base import ContinuousDomain, FiniteDomain, range_ends
from prefermab.errors import number, unknown

REWARD_KINDS = ("identity", "scaled", "exponential")


class Synthetic(FiniteDomain):
    """Two states and two actions; the reward is the state.

    p_jk, the probability of going from state j to state 0 under action k, is uniform on
    [.4,.6], [.4,.6], [.8,1], [0,1] for jk = 00, 01, 10, 11.

    Args:
        shift: Added to every p_jk, which is then clipped to [0, 1]: the paper's distribution shift.
        feature_map: How features are made from the parameters.

    >>> import jax
    >>> import prefermab as pm
    >>> domain = pm.domains.Synthetic(shift=0.05)
    >>> domain.transitions(domain.draw(jax.random.key(0))).shape
    (2, 2, 2)
    """

    shift: float = 0.0

    name: ClassVar[str] = "synthetic"
    action_names: ClassVar[tuple[str, ...]] = ("none", "act")
    state_names: ClassVar[tuple[str, ...]] = ("bad", "good")
    parameter_names: ClassVar[tuple[str, ...]] = ("p00", "p01", "p10", "p11")
    usual_arms: ClassVar[int] = 21

    def __check_init__(self) -> None:
        number(self.shift, "shift", at_least=-1.0)

    def draw(self, key: Key) -> Arm:
        low, high = range_ends((0.4, 0.6), (0.4, 0.6), (0.8, 1.0), (0.0, 1.0))
        drawn = jax.random.uniform(key, (4,), minval=low, maxval=high)
        return jnp.clip(drawn + self.shift, 0.0, 1.0)

    def parameters(self, arm: Arm) -> Float[Array, "param"]:
        return arm

    def costs(self, arm: Arm) -> Float[Array, "act"]:
        return jnp.array([0.0, 1.0])

    def reward_at(self, arm: Arm, state: State) -> Float[Array, ""]:
        return state.astype(jnp.float32)

    def row(self, arm: Arm, cell: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, "state"]:
        to_bad = arm.reshape(2, 2)[cell, action]
        return jnp.stack([to_bad, 1 - to_bad])


class ContinuousSynthetic(ContinuousDomain):
    """A state in [0, 1] that falls without action and rises with it.

    It moves by a normal step with standard deviation 0.2 and mean μ₀ in [-.5, -.1] (passive) or μ₁
    in [.1, .5] (active).

    Args:
        reward: "identity" for s, "scaled" for min(2s, 1), "exponential" for min(eˢ - 1, 1).
        grid: Number of grid points that oracles use for the state.
        feature_map: How features are made from the parameters.

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
        if self.reward not in REWARD_KINDS:
            raise unknown("reward", str(self.reward), REWARD_KINDS)

    def draw(self, key: Key) -> Arm:
        low, high = range_ends((-0.5, -0.1), (0.1, 0.5))
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
