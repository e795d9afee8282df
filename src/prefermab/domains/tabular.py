"""Tabular: arms that the user gives as arrays."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prefermab.arms.features import FeatureMap
from prefermab.arms.observation import Arm, Key, State
from prefermab.domains.base import FiniteDomain
from prefermab.errors import InputError, reals


class Tabular(FiniteDomain):
    """Arms that are given as arrays; drawing arms resamples them.

    Args:
        transitions: Probabilities, (arm, state, action, next state).
        rewards: Reward of each state, (state,) or (arm, state).
        costs: Cost of each action, (action,) or (arm, action); action 0 is passive and costs 0.
        features: (arm, feature), or (round, arm, feature) where they change between rounds; the
            last round's are used from then on. By default the arm's own dynamics.
        state_names: A name for each state.
        action_names: A name for each action.
        feature_names: A name for each feature.

    >>> import numpy as np
    >>> import prefermab as pm
    >>> stay = np.array([[[[0.9, 0.1], [0.4, 0.6]], [[0.5, 0.5], [0.1, 0.9]]]])
    >>> domain = pm.domains.Tabular(stay, rewards=[0, 1], costs=[0, 2.5])
    >>> domain.n_actions, domain.n_cells
    (2, 2)
    """

    table: Float[Array, "given state act state"]
    reward_table: Float[Array, "given state"]
    cost_table: Float[Array, "given act"]
    feature_table: Float[Array, "time given feat"]
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    parameter_names: tuple[str, ...]

    name: ClassVar[str] = "tabular"

    def __init__(
        self,
        transitions: Any,
        rewards: Any,
        costs: Any,
        features: Any = None,
        *,
        state_names: tuple[str, ...] | None = None,
        action_names: tuple[str, ...] | None = None,
        feature_names: tuple[str, ...] | None = None,
    ):
        table = check_transitions(transitions)
        n_arms, n_states, n_actions, _ = table.shape
        seen = _features(features, table)
        self.feature_map = FeatureMap("identity")
        self.table = jnp.asarray(table, jnp.float32)
        self.reward_table = jnp.asarray(check_rewards(rewards, n_arms, n_states), jnp.float32)
        self.cost_table = jnp.asarray(check_costs(costs, n_arms, n_actions), jnp.float32)
        self.feature_table = jnp.asarray(seen, jnp.float32)
        self.state_names = _names(state_names, "state", n_states)
        self.action_names = _names(action_names, "action", n_actions)
        self.parameter_names = _names(feature_names, "feature", seen.shape[-1])

    def draw(self, key: Key) -> Arm:
        return jax.random.randint(key, (), 0, self.table.shape[0])

    def parameters(self, arm: Arm) -> Float[Array, "param"]:
        return self.feature_table[0, arm]

    def observe(self, arm: Arm, round: int | Int[Array, ""]) -> Float[Array, "feat"]:
        return self.feature_table[jnp.minimum(round, self.feature_table.shape[0] - 1), arm]

    def costs(self, arm: Arm) -> Float[Array, "act"]:
        return self.cost_table[arm]

    def reward_at(self, arm: Arm, state: State) -> Float[Array, ""]:
        return self.reward_table[arm, state]

    def row(self, arm: Arm, cell: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, "state"]:
        return self.table[arm, cell, action]


def check_transitions(transitions: Any) -> np.ndarray:
    """Checks (arm, state, action, next state): each row is a distribution over next states."""
    table = reals(transitions, "transitions", ndim=(4,))
    n_arms, n_states, n_actions, n_next = table.shape
    if n_next != n_states or min(n_arms, n_states, n_actions) == 0:
        raise InputError(
            "transitions must have the shape (arm, state, action, next state) with as many next "
            f"states as states and none of them empty, not {table.shape}."
        )
    wrong = np.argwhere(np.any(table < 0, axis=-1) | (np.abs(table.sum(axis=-1) - 1) > 1e-5))
    if len(wrong):
        arm, state, action = (int(i) for i in wrong[0])
        row = np.array2string(table[arm, state, action], precision=4, threshold=8)
        raise InputError(
            f"transitions[{arm}, {state}, {action}] must be probabilities that add up to 1, "
            f"but it is {row}, which adds up to {table[arm, state, action].sum():.6g}."
        )
    return table


def check_rewards(rewards: Any, n_arms: int, n_states: int) -> np.ndarray:
    """Checks (state,) or (arm, state), and returns (arm, state)."""
    return _per_arm(rewards, "rewards", n_arms, n_states, "state")


def check_costs(costs: Any, n_arms: int, n_actions: int) -> np.ndarray:
    """Checks (action,) or (arm, action), not negative with action 0 free, and returns (arm,
    action)."""
    table = _per_arm(costs, "costs", n_arms, n_actions, "action")
    if (table < 0).any():
        raise InputError(f"costs must not be negative, but the lowest is {table.min():g}.")
    if (table[:, 0] != 0).any():
        raise InputError(f"action 0 is the passive one and must cost 0, not {table[:, 0].max():g}.")
    return table


def _per_arm(values: Any, name: str, n_arms: int, size: int, axis: str) -> np.ndarray:
    array = reals(values, name, ndim=(1, 2))
    if array.shape not in {(size,), (n_arms, size)}:
        raise InputError(
            f"{name} must have the shape ({axis},) = ({size},) or (arm, {axis}) = "
            f"({n_arms}, {size}) to go with transitions, not {array.shape}."
        )
    return np.broadcast_to(array, (n_arms, size))


def _features(features: Any, table: np.ndarray) -> np.ndarray:
    """Checks features and returns (round, arm, feature). NaN is allowed and means unknown."""
    if features is None:
        return table[..., :-1].reshape(1, len(table), -1)
    try:
        seen = np.asarray(features, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("features must be an array of numbers.") from None
    if seen.ndim == 2:
        seen = seen[None]
    if seen.ndim != 3 or seen.shape[1] != len(table) or 0 in seen.shape:
        raise InputError(
            f"features must have the shape (arm, feature) or (round, arm, feature) with "
            f"{len(table)} arms, not {np.shape(features)}."
        )
    return seen


def _names(names: tuple[str, ...] | None, kind: str, size: int) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{kind} {i}" for i in range(size))
    if len(names) != size:
        raise InputError(f"{kind}_names must name {size} {kind}s, not {len(names)}.")
    return tuple(names)
