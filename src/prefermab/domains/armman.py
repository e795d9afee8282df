"""ARMMAN: a mother's engagement with health messages, and calls that may raise it."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prefermab.arms.observation import Arm, Key, State
from prefermab.domains.base import WAYS_TO_DRAW, FiniteDomain, check_draws, check_range
from prefermab.errors import InputError

# Ranges of the six parameters for the groups A, B, C: (group, parameter, low and high).
_ANY, _LOST, _MIDDLE = (0.0, 1.0), (0.35, 0.85), (0.35, 0.85)
_RANGES = np.array(
    [
        [_ANY, _ANY, (0.5, 1.0), (0.5, 1.0), _LOST, _LOST],
        [_ANY, _ANY, _MIDDLE, (0.15, 0.65), _LOST, _LOST],
        [_ANY, _ANY, _MIDDLE, (0.0, 0.5), _LOST, _LOST],
    ],
    dtype=np.float32,
)
_REWARDS = np.array([1.0, 0.5, 0.0], dtype=np.float32)


class Armman(FiniteDomain):
    """Three states with rewards 1, .5 and 0, and two actions.

    An arm has one parameter for each state and action, a probability: that a motivated arm stays so
    (else it becomes persuadable); that a persuadable arm becomes a lost cause if not called, or
    motivated if called (else it stays persuadable); that a lost cause stays one (else it becomes
    persuadable). Their ranges depend on the arm's group, A, B or C.

    Args:
        mix: Shares of the groups A, B and C.
        motivated: Range of the probability to stay motivated, called or not.
        draws: How a parameter is drawn: from a random `subinterval` of its range, or `uniform`.
        feature_map: How features are made from the parameters.

    >>> import jax
    >>> import prefermab as pm
    >>> domain = pm.domains.Armman(mix=(0.4, 0.2, 0.4))
    >>> domain.state_names
    ('motivated', 'persuadable', 'lost cause')
    """

    mix: tuple[float, float, float] = (0.2, 0.2, 0.6)
    motivated: tuple[float, float] = (0.0, 1.0)
    draws: str = "subinterval"

    later: ClassVar[tuple[str, ...]] = ("motivated", "draws")
    name: ClassVar[str] = "armman"
    action_names: ClassVar[tuple[str, ...]] = ("none", "call")
    state_names: ClassVar[tuple[str, ...]] = ("motivated", "persuadable", "lost cause")
    parameter_names: ClassVar[tuple[str, ...]] = (
        "stay_motivated", "stay_motivated_called", "fall", "rise_called", "stay_lost",
        "stay_lost_called",
    )  # fmt: skip

    def __check_init__(self) -> None:
        shares = np.asarray(self.mix, dtype=float)
        if shares.shape != (3,) or not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-6:
            raise InputError(f"mix must be three shares that add up to 1, not {self.mix}.")
        check_range(self.motivated, "motivated")
        if self.motivated[0] < 0 or self.motivated[1] > 1:
            raise InputError(f"motivated must lie between 0 and 1, not {self.motivated}.")
        check_draws(self.draws)

    def draw(self, key: Key) -> Arm:
        key_group, key_values = jax.random.split(key)
        group = jax.random.choice(key_group, 3, p=jnp.asarray(self.mix))
        ranges = jnp.asarray(_RANGES)[group].at[:2].set(jnp.asarray(self.motivated, jnp.float32))
        return WAYS_TO_DRAW[self.draws](key_values, ranges[:, 0], ranges[:, 1])

    def parameters(self, arm: Arm) -> Float[Array, "param"]:
        return arm

    def costs(self, arm: Arm) -> Float[Array, "act"]:
        return jnp.array([0.0, 1.0])

    def reward_at(self, arm: Arm, state: State) -> Float[Array, ""]:
        return jnp.asarray(_REWARDS)[state]

    def row(self, arm: Arm, cell: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, "state"]:
        p = arm.reshape(3, 2)[cell, action]
        zero = jnp.zeros_like(p)
        from_motivated = jnp.stack([p, 1 - p, zero])
        from_persuadable = jnp.where(
            action == 1, jnp.stack([p, 1 - p, zero]), jnp.stack([zero, 1 - p, p])
        )
        from_lost = jnp.stack([zero, 1 - p, p])
        return jnp.stack([from_motivated, from_persuadable, from_lost])[cell]
