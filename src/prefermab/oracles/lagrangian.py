"""The Lagrangian relaxation of the finite-horizon problem: an upper bound and prices to act by.

Let the budget hold on average in each round instead of surely, with a price for each round. The
arms then come apart, and

    bound(prices) = Σ_t price_t·B + Σ_i V_i(start_i; prices)

is above what any policy can earn, whatever the prices (≥ 0); the lowest is the bound of the linear
program over occupation measures. It is convex in the prices, and its slope in price_t is B less
the spending in round t of arms that take their best actions.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from prefermab.arms import Costs
from prefermab.domains.tabular import check_costs, check_rewards, check_transitions
from prefermab.errors import InputError, count, number
from prefermab.oracles.dynamic_programming import Rewards, Transitions, arms_last

Prices = Float[Array, "round"]


def joins(opt_in: Bool[Array, "round arm"]) -> Bool[Array, "round arm"]:
    """The rounds in which an arm comes in, the first included."""
    return opt_in & ~jnp.pad(opt_in, ((1, 0), (0, 0)))[:-1]


def relax(
    transitions: Transitions,
    rewards: Rewards,
    costs: Costs,
    budget: Float[Array, ""] | float,
    start: Int[Array, "arm"],
    opt_in: Bool[Array, "round arm"],
    steps: int = 100,
) -> tuple[Float[Array, ""], Prices]:
    """The lowest bound found and its prices. jit- and vmap-able; for one instance.

    Adam with a step size that falls a thousandfold: the dual is piecewise linear, so steps must
    shrink to settle. Every price vector gives a valid bound, so stopping early is never wrong.
    """
    n_rounds = opt_in.shape[0]
    arriving = joins(opt_in)
    at_start = jax.nn.one_hot(start, rewards.shape[1], axis=0)
    per_arm = 1.0 / jnp.maximum(jnp.sum(arriving), 1)

    def bound(prices: Prices) -> Float[Array, ""]:
        q = arms_last(transitions, rewards, costs, prices, opt_in)
        values = jnp.sum(jnp.max(q, axis=2) * at_start, axis=1)
        return jnp.sum(prices) * budget + jnp.sum(jnp.where(arriving, values, 0.0))

    spread = jnp.max(rewards) - jnp.min(rewards)
    dearest = spread / jnp.min(jnp.where(costs > 0, costs, jnp.inf))
    scale = jnp.where(jnp.isfinite(dearest) & (dearest > 0), dearest, 1.0)
    optimiser = optax.adam(optax.exponential_decay(0.1, steps, 1e-3), b1=0.8, b2=0.9)

    def descend(carry, _):
        unit, state, best, best_unit = carry
        value, slope = jax.value_and_grad(lambda u: bound(u * scale) * per_arm)(unit)
        better = value < best
        best, best_unit = jnp.where(better, value, best), jnp.where(better, unit, best_unit)
        update, state = optimiser.update(slope, state)
        return (jnp.maximum(unit + update, 0.0), state, best, best_unit), None

    # From the best of a few prices that are the same in every round; 0 is the first of them.
    trials = jnp.concatenate([jnp.zeros(1), 2.0 ** jnp.arange(-4.0, 5.0)])
    values = jax.lax.map(lambda u: bound(jnp.full(n_rounds, u) * scale) * per_arm, trials)
    unit = jnp.full(n_rounds, trials[jnp.argmin(values)])
    start_carry = (unit, optimiser.init(unit), jnp.min(values), unit)
    (_, _, best, best_unit), _ = jax.lax.scan(descend, start_carry, None, length=steps)
    return best / per_arm, best_unit * scale


_relax_compiled = jax.jit(relax, static_argnames="steps")


class Bound(float):
    """An upper bound on the total reward, with the `prices` (one a round) that give it.

    >>> from prefermab.oracles import Bound
    >>> Bound(4.5, [0.1, 0.2]) + 1
    5.5
    """

    prices: np.ndarray

    def __new__(cls, value: Any, prices: Any) -> "Bound":
        bound = super().__new__(cls, value)
        bound.prices = np.asarray(prices)
        return bound


def lagrangian_bound(
    transitions: Any,
    rewards: Any,
    costs: Any,
    budget: float,
    start: Any,
    horizon: int = 9,
    *,
    opt_in: Any = None,
) -> Bound:
    """No policy's expected total reward over `horizon` rounds, summed over arms, is above this.

    The reward of a decision is that of the next state, undiscounted. `start` is each arm's first
    state; `opt_in` is (arm,), or (round, arm) where arms come and go (then `start` is the state in
    which an arm comes in). The result is a float that carries its `prices`.

    >>> import numpy as np
    >>> import prefermab as pm
    >>> arm = [[[0.9, 0.1], [0.2, 0.8]], [[0.9, 0.1], [0.2, 0.8]]]
    >>> bound = pm.oracles.lagrangian_bound([arm] * 4, [0, 1], [0, 1], budget=1,
    ...                                     start=[0, 0, 0, 0], horizon=2)
    >>> round(bound, 3)                        # a round: one arm at 0.8 and three at 0.1
    2.2
    """
    table = check_transitions(transitions)
    n_arms, n_states, n_actions, _ = table.shape
    rounds = count(horizon, "horizon")
    first = np.asarray(start)
    if first.shape != (n_arms,) or first.dtype.kind not in "iu":
        raise InputError(f"start must hold one whole-numbered state for each of {n_arms} arms.")
    if first.min() < 0 or first.max() >= n_states:
        raise InputError(f"start must hold states from 0 to {n_states - 1}, not {first.max()}.")
    present = np.ones((rounds, n_arms), bool) if opt_in is None else np.asarray(opt_in, bool)
    if present.shape not in {(n_arms,), (rounds, n_arms)}:
        raise InputError(
            f"opt_in must have the shape (arm,) = ({n_arms},) or (round, arm) = "
            f"({rounds}, {n_arms}), not {present.shape}."
        )
    value, prices = _relax_compiled(
        jnp.asarray(table, jnp.float32),
        jnp.asarray(check_rewards(rewards, n_arms, n_states), jnp.float32),
        jnp.asarray(check_costs(costs, n_arms, n_actions), jnp.float32),
        jnp.asarray(number(budget, "budget"), jnp.float32),
        jnp.asarray(first),
        jnp.asarray(np.broadcast_to(present, (rounds, n_arms))),
    )
    return Bound(value, prices)
