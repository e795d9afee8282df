"""Synthetic: two states, two actions; the paper's smallest domain."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms import Arm, Key, State
from prefermab.domains.base import FiniteDomain, bounds
from prefermab.errors import number


class Synthetic(FiniteDomain):
    """p_jk, the probability of going from state j to state 0 under action k, is uniform on
    [.4,.6], [.4,.6], [.8,1], [0,1] for jk = 00, 01, 10, 11; the reward is the state.

    `shift` is added to every p_jk (then clipped to [0, 1]): the paper's distribution shift.

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
        low, high = bounds((0.4, 0.6), (0.4, 0.6), (0.8, 1.0), (0.0, 1.0))
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
