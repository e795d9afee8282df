"""The Lagrangian relaxation of the finite-horizon problem: an upper bound and prices to act by.

The budget holds on average in each round instead of surely, with a price for each round
(Eq. 2 of the paper with a finite horizon; Whittle 1988). The arms then come apart, and

    bound(prices) = Σ_t price_t·B + Σ_i V_i(start_i; prices)

is at least what any policy can earn, for all prices ≥ 0. The lowest such bound is the value of the
linear program over occupation measures. The bound is convex in the prices, and a subgradient in
price_t is B minus the expected spending in round t of arms that take their best actions (the
finite-horizon form of Proposition 2).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from prefermab.arms.observation import Costs
from prefermab.arms.opt_in import joins
from prefermab.domains.tabular import check_costs, check_rewards, check_transitions
from prefermab.errors import InputError, amount, count
from prefermab.oracles.dynamic_programming import Rewards, Transitions, arms_last, expectation

Prices = Float[Array, "round"]


def relax(
    transitions: Transitions,
    rewards: Rewards,
    costs: Costs,
    budget: Float[Array, ""] | float,
    start: Int[Array, "arm"],
    opt_in: Bool[Array, "round arm"],
    steps: int = 100,
) -> tuple[Float[Array, ""], Prices]:
    """The lowest bound found and its prices, for one instance; works under jit and vmap.

    Adam on the prices, with a step size that falls a thousandfold: the bound is piecewise linear
    in them, so steps must shrink to settle. Every price vector gives a valid bound, so stopping
    early only makes it looser.
    """
    n_rounds = opt_in.shape[0]
    arriving = joins(opt_in)
    at_start = jax.nn.one_hot(start, rewards.shape[1], axis=0)
    per_arm = 1.0 / jnp.maximum(jnp.sum(arriving), 1)
    scale = price_scale(rewards, costs)

    def dual(unit: Prices) -> tuple[Float[Array, ""], Float[Array, "round state act arm"]]:
        q = arms_last(transitions, rewards, costs, unit * scale, opt_in)
        values = jnp.sum(jnp.max(q, axis=2) * at_start, axis=1)
        earned = jnp.sum(jnp.where(arriving, values, 0.0))
        return (jnp.sum(unit) * scale * budget + earned) * per_arm, q

    # Not jax.grad of `dual`: it compares values with their maximum, computed again, for equality,
    # and how these are rounded depends on how the code is compiled.
    def subgradient(q: Float[Array, "round state act arm"]) -> Prices:
        spent = spending(jnp.argmax(q, axis=2), transitions, costs, at_start, opt_in)
        return (budget - spent) * scale * per_arm

    optimiser = optax.adam(optax.exponential_decay(0.1, steps, 1e-3), b1=0.8, b2=0.9)

    def descend(carry, _):
        unit, state, best, best_unit = carry
        value, q = dual(unit)
        better = value < best
        best, best_unit = jnp.where(better, value, best), jnp.where(better, unit, best_unit)
        update, state = optimiser.update(subgradient(q), state)
        return (jnp.maximum(unit + update, 0.0), state, best, best_unit), None

    # Start at the best of a few prices that are the same in every round; 0 is the first of them.
    trials = jnp.concatenate([jnp.zeros(1), 2.0 ** jnp.arange(-4.0, 5.0)])
    values = jax.lax.map(lambda u: dual(jnp.full(n_rounds, u))[0], trials)
    unit = jnp.full(n_rounds, trials[jnp.argmin(values)])
    start_carry = (unit, optimiser.init(unit), jnp.min(values), unit)
    (_, _, best, best_unit), _ = jax.lax.scan(descend, start_carry, None, length=steps)
    return best / per_arm, best_unit * scale


def price_scale(rewards: Rewards, costs: Costs) -> Float[Array, ""]:
    """The unit in which prices are searched: at `price_ceiling` no action pays by the reward of the
    next state alone. 1 where no action costs anything or all rewards are equal."""
    spread = jnp.max(rewards) - jnp.min(rewards)
    price_ceiling = spread / jnp.min(jnp.where(costs > 0, costs, jnp.inf))
    return jnp.where(jnp.isfinite(price_ceiling) & (price_ceiling > 0), price_ceiling, 1.0)


def spending(
    actions: Int[Array, "round state arm"],
    transitions: Transitions,
    costs: Costs,
    at_start: Float[Array, "state arm"],
    opt_in: Bool[Array, "round arm"],
) -> Prices:
    """Expected spending in each round of arms that join in their first state and take `actions`."""
    # Probabilities of states move by the transpose of what takes expectations of values.
    move = jax.linear_transpose(expectation(transitions), at_start)

    def one_round(occupied, at):
        chosen, present, arrives = at
        occupied = jnp.where(arrives, at_start, occupied) * present
        acting = occupied[:, None] * jax.nn.one_hot(chosen, costs.shape[1], axis=1)
        return move(acting)[0], jnp.sum(acting * costs.T)

    _, spent = jax.lax.scan(one_round, jnp.zeros_like(at_start), (actions, opt_in, joins(opt_in)))
    return spent


_relax_compiled = jax.jit(relax, static_argnames="steps")


class Bound(float):
    """An upper bound on the total reward: a number, with the `prices` (one a round) that give it.

    Arithmetic gives plain floats.

    >>> from prefermab.oracles import Bound
    >>> bound = Bound(4.5, [0.1, 0.2])
    >>> bound
    Bound(value=4.5, prices=array([0.1, 0.2]))
    >>> bound.value, bound + 1, bound > 4
    (4.5, 5.5, True)
    """

    prices: np.ndarray

    def __new__(cls, value: float, prices: Any) -> "Bound":
        bound = super().__new__(cls, value)
        bound.prices = np.asarray(prices)
        return bound

    def __reduce__(self) -> tuple[type["Bound"], tuple[float, np.ndarray]]:
        # Copying and pickling a float would leave the prices out.
        return Bound, (self.value, self.prices)

    @property
    def value(self) -> float:
        """The bound as a plain float."""
        return float(self)

    def __repr__(self) -> str:
        return f"Bound(value={self.value!r}, prices={self.prices!r})"

    __str__ = float.__repr__


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
    """An upper bound on the expected total reward of any policy, summed over arms and rounds.

    The reward of a decision is that of the next state, undiscounted. The bound is that of the
    Lagrangian relaxation with a price for each round (Eq. 2 of the paper, with a finite horizon).

    Args:
        transitions: Probabilities, (arm, state, action, next state).
        rewards: Reward of each state, (state,) or (arm, state).
        costs: Cost of each action, (action,) or (arm, action); action 0 is passive and costs 0.
        budget: What the actions of one round may cost together.
        start: The first state of each arm, (arm,).
        horizon: Number of rounds.
        opt_in: Who is in, (arm,), or (round, arm) where arms come and go; `start` is then the state
            in which an arm joins. Everyone by default.

    Returns:
        The bound, a float that also has the `prices` of the rounds.

    >>> import prefermab as pm
    >>> arm = [[[0.9, 0.1], [0.2, 0.8]], [[0.9, 0.1], [0.2, 0.8]]]
    >>> bound = pm.oracles.lagrangian_bound([arm] * 4, [0, 1], [0, 1], budget=1,
    ...                                     start=[0, 0, 0, 0], horizon=2)
    >>> round(bound, 3)                        # a round: one arm at 0.8 and three at 0.1
    2.2
    >>> bound.prices.shape
    (2,)
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
        np.asarray(table, np.float32),
        np.asarray(check_rewards(rewards, n_arms, n_states), np.float32),
        np.asarray(check_costs(costs, n_arms, n_actions), np.float32),
        np.float32(amount(budget, "budget")),
        first,
        np.broadcast_to(present, (rounds, n_arms)),
    )
    return Bound(float(value), prices)
