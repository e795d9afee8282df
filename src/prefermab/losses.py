"""PPO's pieces as pure functions of arrays. Time runs along the first axis."""

from collections.abc import Callable
from typing import TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

T = TypeVar("T")


def advantages(
    rewards: Float[Array, "round arm"],
    values: Float[Array, "round arm"],
    last_value: Float[Array, "arm"],
    discount: float,
    trace: float,
) -> Float[Array, "round arm"]:
    """Generalised advantage estimates: Σ_k (discount·trace)^k δ_{t+k} with
    δ_t = r_t + discount·V_{t+1} - V_t.

    >>> import jax.numpy as jnp
    >>> from prefermab.losses import advantages
    >>> advantages(jnp.ones((2, 1)), jnp.zeros((2, 1)), jnp.zeros(1), 0.5, 1.0).ravel()
    Array([1.5, 1. ], dtype=float32)
    """
    next_values = jnp.concatenate([values[1:], last_value[None]])
    surprise = rewards + discount * next_values - values

    def earlier(later, now):
        total = now + discount * trace * later
        return total, total

    _, estimates = jax.lax.scan(earlier, jnp.zeros_like(last_value), surprise, reverse=True)
    return estimates


def mean_over(
    mask: Bool[Array, "round arm"], values: Float[Array, "round arm"]
) -> Float[Array, ""]:
    """Mean of the values of those who are in."""
    return jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


def clipped_gain(
    ratio: Float[Array, "round arm"], advantage: Float[Array, "round arm"], clip: float
) -> Float[Array, "round arm"]:
    """PPO's surrogate: min(ratio·A, clip(ratio, 1 - clip, 1 + clip)·A).

    >>> import jax.numpy as jnp
    >>> from prefermab.losses import clipped_gain
    >>> clipped_gain(jnp.array([[1.5, 0.5]]), jnp.array([[1.0, -1.0]]), 0.2)
    Array([[ 1.2, -0.8]], dtype=float32)
    """
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def entropy(logits: Float[Array, "round arm act"]) -> Float[Array, "round arm"]:
    """-Σ p log p."""
    log_p = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


def price_slope(
    spending: Float[Array, "round"], budget: Float[Array, ""], discount: float
) -> Float[Array, ""]:
    """Slope in λ of the relaxation (Prop. 2, with the sign of its proof): budget less spending,
    both discounted to the end of time. λ falls while spending is under budget and rises over it.

    >>> import jax.numpy as jnp
    >>> from prefermab.losses import price_slope
    >>> price_slope(jnp.full(1000, 3.0), jnp.array(7.0), 0.9).round(2)     # (7 - 3) / (1 - 0.9)
    Array(40., dtype=float32)
    """
    weights = discount ** jnp.arange(spending.shape[0])
    return budget / (1 - discount) - jnp.sum(weights * spending)


def descend(
    loss: Callable[[T], Float[Array, ""]], part: T, state: PyTree, rate: float, passes: int
) -> tuple[T, PyTree, Float[Array, ""]]:
    """Several steps of Adam on one loss; the part of a network that is changed, Adam's state and
    the last loss."""
    adam = optax.adam(rate)
    arrays, fixed = eqx.partition(part, eqx.is_array)

    def one_pass(carry, _):
        arrays, state = carry
        value, slope = jax.value_and_grad(lambda a: loss(eqx.combine(a, fixed)))(arrays)
        update, state = adam.update(slope, state)
        return (optax.apply_updates(arrays, update), state), value

    (arrays, state), values = jax.lax.scan(one_pass, (arrays, state), None, length=passes)
    return cast(T, eqx.combine(arrays, fixed)), state, values[-1]


def running_mean(mean: T, new: T, epochs: Int[Array, ""]) -> T:
    """The mean of a network over the last so many epochs; before them, the network itself."""
    many = jnp.maximum(epochs, 1)
    return jax.tree.map(
        lambda old, now: old + (now - old) / many if eqx.is_array(now) else now, mean, new
    )
