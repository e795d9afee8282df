"""PPO (Schulman et al. 2017) on the data of one epoch: line 21 of Algorithm 1.

Here are the batch, the losses of actor and critic, and two ways to descend them. They are pure
functions of arrays whose first axis is time.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from prefermab.arms.observation import Features
from prefermab.evaluation.rollout import Trajectory
from prefermab.networks.worth import ActorCritic
from prefermab.recipes.base import Metrics

T = TypeVar("T")


class PPOBatch(eqx.Module):
    """An epoch's data of some arms. `gain` is the advantage of the action taken, `before` its
    log-probability at that time, and `target` the value that the critic should give."""

    state: Float[Array, "round arm"] | Int[Array, "round arm"]
    action: Int[Array, "round arm"]
    gain: Float[Array, "round arm"]
    target: Float[Array, "round arm"]
    before: Float[Array, "round arm"]
    inside: Bool[Array, "round arm"]
    features: Features
    price: Float[Array, ""]

    @property
    def at(self) -> tuple[Array, Features, Float[Array, ""]]:
        """The inputs of the networks."""
        return self.state, self.features, self.price

    def of_arm(self, arm: Int[Array, ""]) -> "PPOBatch":
        """The data of one arm."""
        one = lambda x: jax.lax.dynamic_slice_in_dim(x, arm, 1, axis=1)  # noqa: E731
        return PPOBatch(
            one(self.state), one(self.action), one(self.gain), one(self.target), one(self.before),
            one(self.inside), self.features[arm][None], self.price,
        )  # fmt: skip


def batch_of(
    net: ActorCritic,
    seen: Trajectory,
    discount: float,
    trace: float,
    advantage: Callable[[Array], Array],
    target: str,
) -> PPOBatch:
    """The batch of an epoch, by generalised advantage estimation (Schulman et al. 2016).

    Args:
        net: The networks that acted.
        seen: What happened.
        discount: Discount factor per round.
        trace: λ of the estimation.
        advantage: A function of the advantages that the actor learns from, such as the identity.
        target: What the critic learns: its own values plus `advantages`, or the `returns` that
            followed.

    Returns:
        What actor and critic learn from.
    """
    at = (seen.state, seen.features, seen.price)
    values = net.in_every_round(net.values_of, *at)
    last = net.values_of(seen.last_state, seen.features, seen.price)
    paid = seen.reward - seen.price * seen.cost
    gain = advantages(paid, values, last, discount, trace)
    inside = jnp.broadcast_to(seen.opt_in, gain.shape)
    returns = lambda: advantages(paid, values, last, discount, 1.0)  # noqa: E731
    followed = gain if target == "advantages" else returns()
    before = jax.nn.log_softmax(net.in_every_round(net.logits_of, *at))
    before = jnp.take_along_axis(before, seen.action[..., None], axis=-1)[..., 0]
    return PPOBatch(
        seen.state, seen.action, advantage(gain), followed + values, before, inside, seen.features,
        seen.price,
    )  # fmt: skip


def actor_loss(
    net: ActorCritic, clip: float, weight: Float[Array, ""], actor: eqx.nn.MLP, batch: PPOBatch
) -> Float[Array, ""]:
    """PPO's clipped surrogate with an entropy bonus, over opted-in arms."""
    moved = eqx.tree_at(lambda n: n.actor, net, actor)
    logits = net.in_every_round(moved.logits_of, *batch.at)
    chosen = batch.action[..., None]
    now = jnp.take_along_axis(jax.nn.log_softmax(logits), chosen, axis=-1)[..., 0]
    gained = clipped_gain(jnp.exp(now - batch.before), batch.gain, clip)
    return -mean_over(batch.inside, gained + weight * entropy(logits))


def critic_loss(net: ActorCritic, critic: eqx.nn.MLP, batch: PPOBatch) -> Float[Array, ""]:
    """Mean squared error of the values, over opted-in arms."""
    moved = eqx.tree_at(lambda n: n.critic, net, critic)
    error = net.in_every_round(moved.values_of, *batch.at) - batch.target
    return mean_over(batch.inside, error**2)


Loss = Callable[[T, PPOBatch], Float[Array, ""]]


def descend_on_all(
    loss: Loss[T], batch: PPOBatch, part: T, state: PyTree, rate: float, passes: int
) -> tuple[T, PyTree, Float[Array, ""]]:
    """Each pass is one step of Adam on the loss over all arms."""
    return descend(lambda moved: loss(moved, batch), part, state, rate, passes)


def descend_arm_by_arm(
    loss: Loss[T], batch: PPOBatch, part: T, state: PyTree, rate: float, passes: int
) -> tuple[T, PyTree, Float[Array, ""]]:
    """Each pass is one step of Adam for every arm that is in, one arm after the other."""
    adam = optax.adam(rate)
    arrays, fixed = eqx.partition(part, eqx.is_array)

    def one_arm(carry, arm):
        arrays, state = carry
        one = batch.of_arm(arm)
        value, slope = jax.value_and_grad(lambda a: loss(eqx.combine(a, fixed), one))(arrays)
        update, moved = adam.update(slope, state)
        after = (optax.apply_updates(arrays, update), moved)
        is_in = one.inside[0, 0]
        return jax.tree.map(lambda new, old: jnp.where(is_in, new, old), after, carry), value

    def one_pass(carry, _):
        return jax.lax.scan(one_arm, carry, jnp.arange(batch.state.shape[1]))

    (arrays, state), values = jax.lax.scan(one_pass, (arrays, state), None, length=passes)
    last = mean_over(batch.inside[:1], values[-1:])
    return cast(T, eqx.combine(arrays, fixed)), state, last


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
    >>> from prefermab.recipes.ppo import advantages
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
    """Mean of the values where the mask is true."""
    return jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


def clipped_gain(
    ratio: Float[Array, "round arm"], advantage: Float[Array, "round arm"], clip: float
) -> Float[Array, "round arm"]:
    """PPO's surrogate: min(ratio·A, clip(ratio, 1 - clip, 1 + clip)·A).

    >>> import jax.numpy as jnp
    >>> from prefermab.recipes.ppo import clipped_gain
    >>> clipped_gain(jnp.array([[1.5, 0.5]]), jnp.array([[1.0, -1.0]]), 0.2)
    Array([[ 1.2, -0.8]], dtype=float32)
    """
    return jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def entropy(logits: Float[Array, "round arm act"]) -> Float[Array, "round arm"]:
    """-Σ p log p."""
    log_p = jax.nn.log_softmax(logits)
    return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


def descend(
    loss: Callable[[T], Float[Array, ""]], part: T, state: PyTree, rate: float, passes: int
) -> tuple[T, PyTree, Float[Array, ""]]:
    """Takes `passes` steps of Adam on a loss; returns the changed part of the network, Adam's state
    and the last loss."""
    adam = optax.adam(rate)
    arrays, fixed = eqx.partition(part, eqx.is_array)

    def one_pass(carry, _):
        arrays, state = carry
        value, slope = jax.value_and_grad(lambda a: loss(eqx.combine(a, fixed)))(arrays)
        update, state = adam.update(slope, state)
        return (optax.apply_updates(arrays, update), state), value

    (arrays, state), values = jax.lax.scan(one_pass, (arrays, state), None, length=passes)
    return cast(T, eqx.combine(arrays, fixed)), state, values[-1]


def standardised(gain: Float[Array, "round arm"]) -> Float[Array, "round arm"]:
    """Advantages of each arm with mean 0 and spread 1."""
    spread = jnp.std(gain, axis=0)
    return (gain - jnp.mean(gain, axis=0)) / jnp.maximum(spread, 1e-8)


def cooled_to_a_part(at: Int[Array, ""], size: int) -> Float[Array, ""]:
    """1 in the first epoch of a block of `size` epochs, 1/size in its last."""
    return 1 - at / size


def cooled_to_nothing(at: Int[Array, ""], size: int) -> Float[Array, ""]:
    """1 in the first epoch of a block of `size` epochs, 0 in its last."""
    return 1 - at / max(size - 1, 1)


ADVANTAGES: dict[str, Callable[[Array], Array]] = {
    "plain": lambda gain: gain,
    "standardised": standardised,
}
COOLINGS = {"part": cooled_to_a_part, "whole": cooled_to_nothing}
DESCENTS = {"batch": descend_on_all, "arm": descend_arm_by_arm}
"""What the recipe's choices `advantage`, `cooling` and `step_on` name."""


def measure_epoch(seen: Trajectory, loss: Float[Array, ""]) -> Metrics:
    """Metrics of an epoch, over opted-in arms."""
    inside = jnp.broadcast_to(seen.opt_in, seen.reward.shape)
    spending = jnp.mean(jnp.sum(jnp.where(inside, seen.cost, 0.0), axis=1))
    acted = mean_over(inside, (seen.action > 0).astype(jnp.float32))
    return Metrics(mean_over(inside, seen.reward), spending, seen.price, acted, loss)


def running_mean(mean: eqx.nn.MLP, new: eqx.nn.MLP, epochs: Int[Array, ""]) -> eqx.nn.MLP:
    """The mean of a network over the last `epochs` epochs; `new` itself if they are below 2."""
    many = jnp.maximum(epochs, 1)
    return jax.tree.map(
        lambda old, now: old + (now - old) / many if eqx.is_array(now) else now, mean, new
    )
