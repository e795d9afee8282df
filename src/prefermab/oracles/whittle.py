"""Whittle indices (Whittle 1988): for each state, the price of acting at which acting and waiting
are worth the same.

The indices of all states of an arm are found in one upward sweep of the price. At a very low price
acting is optimal everywhere. While the set of active states is fixed, the advantage of acting is
linear in the price; this gives the next state to turn passive and the price at which it does.
Turning it passive changes one row of the policy's transition matrix, so the matrix that gives the
advantages follows by a rank-one update (Sherman and Morrison 1950). An arm of S states costs O(S³),
and arms are vmapped. An arm is indexable if no state that has turned passive becomes active again
at a higher price (Weber and Weiss 1990 show what indexability is good for).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from prefermab.domains.base import scatter_chances
from prefermab.domains.tabular import check_transitions
from prefermab.errors import InputError, number, reals
from prefermab.oracles.dynamic_programming import Sparse, Transitions

MOST_STATES_TOGETHER, CACHED_NUMBERS = 8, 1 << 15
"""With at most MOST_STATES_TOGETHER states all arms are computed together; with more, as many arms
at a time as have CACHED_NUMBERS entries in their inverses."""


def indices_of_arm(
    transitions: Float[Array, "state 2 state"],
    rewards: Float[Array, "state 2"],
    discount: Float[Array, ""] | float,
) -> tuple[Float[Array, "state"], Bool[Array, ""]]:
    """Whittle indices of one arm, and whether it is indexable; works under jit and vmap."""
    passive, active = transitions[:, 0], transitions[:, 1]
    n_states = passive.shape[0]
    dtype = transitions.dtype
    tiny = 1e-5 if dtype == jnp.float32 else 1e-10
    gap = discount * (active - passive)
    # Values are (I - discount·P)⁻¹ (reward - price·is_active); `matrix` is gap·(I - discount·P)⁻¹.
    matrix = gap @ jnp.linalg.inv(jnp.eye(n_states, dtype=dtype) - discount * active)

    def one_state(carry, _):
        matrix, is_active, price, found, indexable = carry
        # The advantage of acting is gain - price·fall.
        reward = jnp.where(is_active, rewards[:, 1], rewards[:, 0])
        gain = rewards[:, 1] - rewards[:, 0] + matrix @ reward
        fall = 1 + matrix @ is_active.astype(dtype)

        now = gain - price * fall
        crossing = jnp.where(fall > tiny, gain / jnp.where(fall > tiny, fall, 1.0), jnp.inf)
        crossing = jnp.where(jnp.isfinite(price), jnp.maximum(crossing, price), crossing)
        # A state whose advantage is already zero at this price turns passive at this price.
        crossing = jnp.where(jnp.isfinite(price) & (now <= tiny), price, crossing)
        crossing = jnp.where(is_active, crossing, jnp.inf)
        state = jnp.argmin(crossing)
        next_price = crossing[state]

        wants_back = ~is_active & (gain - next_price * fall > tiny)
        moved = next_price > price + tiny
        indexable &= ~(moved & jnp.any(wants_back & jnp.isfinite(next_price)))

        change = matrix[state]
        matrix = matrix - jnp.outer(matrix[:, state], change / (1 + change[state]))
        found = found.at[state].set(next_price)
        return (matrix, is_active.at[state].set(False), next_price, found, indexable), None

    start = (
        matrix,
        jnp.ones(n_states, bool),
        jnp.asarray(-jnp.inf, dtype),
        jnp.zeros(n_states, dtype),
        jnp.asarray(True),
    )
    (_, _, _, found, indexable), _ = jax.lax.scan(one_state, start, None, length=n_states)
    return found, indexable


def indices_of_arms(
    transitions: Transitions, rewards: Float[Array, "arm state 2"], discount: float
) -> Float[Array, "arm state"]:
    """Whittle indices of arms; works under jit and vmap. Sparse tables are expanded one arm at a
    time."""
    if not isinstance(transitions, Sparse):
        return jax.vmap(lambda p, r: indices_of_arm(p, r, discount)[0])(transitions, rewards)
    targets = transitions.targets
    one = lambda arm: indices_of_arm(scatter_chances(arm[0], targets), arm[1], discount)[0]  # noqa: E731
    return jax.lax.map(one, (transitions.chances, rewards))


@jax.jit
def _indices_of_arms(
    transitions: Float[Array, "arm state 2 state"],
    rewards: Float[Array, "arm state 2"],
    discount: Float[Array, ""],
) -> tuple[Float[Array, "arm state"], Bool[Array, "arm"]]:
    one = lambda arm: indices_of_arm(arm[0], arm[1], discount)  # noqa: E731
    n_arms, n_states = transitions.shape[:2]
    if jax.default_backend() != "cpu" or n_states <= MOST_STATES_TOGETHER:
        return jax.vmap(one)((transitions, rewards))
    # An arm's inverse is read once for each state, so it should stay in the CPU's cache.
    together = max(1, min(n_arms, CACHED_NUMBERS // n_states**2))
    return jax.lax.map(one, (transitions, rewards), batch_size=together)


def _in_double(transitions: Any, rewards: Any, discount: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices and indexability of checked input, in double precision."""
    table = check_transitions(transitions)
    n_arms, n_states, n_actions, _ = table.shape
    if n_actions != 2:
        raise InputError(f"Whittle indices need exactly 2 actions, not {n_actions}.")
    given = reals(rewards, "rewards", ndim=(1, 2, 3))
    shapes = {(n_states,), (n_arms, n_states), (n_arms, n_states, 2)}
    if given.shape not in shapes:
        raise InputError(
            f"rewards must have the shape (state,), (arm, state) or (arm, state, action) with "
            f"{n_arms} arms and {n_states} states, not {given.shape}."
        )
    if given.ndim < 3:
        given = np.broadcast_to(given, (n_arms, n_states))[..., None]
    given = np.broadcast_to(given, (n_arms, n_states, 2))
    beta = number(discount, "discount")
    if beta >= 1:
        raise InputError(f"discount must be below 1, not {beta:g}.")
    # Single precision loses the order of close indices, and users compare to many digits.
    with jax.enable_x64(True):
        found, indexable = _indices_of_arms(
            jnp.asarray(table), jnp.asarray(given), jnp.asarray(beta)
        )
        return np.asarray(found), np.asarray(indexable)


def whittle_indices(transitions: Any, rewards: Any, discount: float = 0.9) -> np.ndarray:
    """Whittle index of every state of every arm, in double precision.

    The convention is the textbook's:
    Q(s,a) = R(s) - price·[a is active] + discount·Σ P(s'|s,a) V(s').

    Args:
        transitions: Probabilities, (arm, state, 2, next state); action 1 is the active one.
        rewards: (state,), (arm, state), or (arm, state, 2) where the reward depends on the action.
        discount: Discount factor per round, below 1.

    Returns:
        The indices, (arm, state). For an arm that is not indexable, the first price at which the
        state turns passive.

    >>> import numpy as np
    >>> import prefermab as pm
    >>> up, down = [0.2, 0.8], [0.9, 0.1]
    >>> arm = np.array([[[down, up], [down, up]]])       # acting decides, whatever the state
    >>> pm.oracles.whittle_indices(arm, [0, 1], discount=0.9).round(3)     # 0.9 · (0.8 - 0.1)
    array([[0.63, 0.63]])
    """
    return _in_double(transitions, rewards, discount)[0]


def is_indexable(transitions: Any, rewards: Any, discount: float = 0.9) -> np.ndarray:
    """Whether each arm is indexable: raising the price never makes a passive state active.

    Args:
        transitions: Probabilities, (arm, state, 2, next state); action 1 is the active one.
        rewards: (state,), (arm, state), or (arm, state, 2) where the reward depends on the action.
        discount: Discount factor per round, below 1.

    Returns:
        True or False for each arm, (arm,).

    >>> import numpy as np
    >>> import prefermab as pm
    >>> arm = np.array([[[[0.9, 0.1], [0.2, 0.8]], [[0.9, 0.1], [0.2, 0.8]]]])
    >>> pm.oracles.is_indexable(arm, [0, 1])
    array([ True])
    """
    return _in_double(transitions, rewards, discount)[1]
