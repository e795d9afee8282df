"""Value iteration and backward induction: what arms are worth when their dynamics are known.

Both take many arms at once, at given prices of spending (the Q-function of Eq. 2 of the paper).
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from prefermab.arms.observation import Costs
from prefermab.domains.base import Targets, scatter_chances


class Sparse(eqx.Module):
    """Transitions to few of many states: probabilities (`chances`) of going to each of `targets`,
    which are the same states for all arms.

    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> from prefermab.oracles.dynamic_programming import Sparse
    >>> stay = Sparse(jnp.ones((1, 2, 1, 1)), np.array([[[0]], [[1]]]))
    >>> stay.dense()[0, :, 0]
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """

    chances: Float[Array, "arm state act next"]
    targets: Targets

    def dense(self) -> Float[Array, "arm state act state"]:
        """The same with a probability for every next state."""
        return jax.vmap(scatter_chances, in_axes=(0, None))(self.chances, self.targets)


Transitions = Float[Array, "arm state act state"] | Sparse
Rewards = Float[Array, "arm state"]

FEW_STATES = 8
"""With at most this many states an expectation is written out as a sum over arms-last arrays,
which is about twice as fast on a CPU as a batch of tiny matrix products; with more, a product is
faster."""


def expectation(
    transitions: Transitions,
) -> Callable[[Float[Array, "state arm"]], Float[Array, "state act arm"]]:
    """A linear function from values of states to expected values of the next state."""
    if isinstance(transitions, Sparse):
        return expectation_of_few(jnp.moveaxis(transitions.chances, 0, -1), transitions.targets)
    n_states = transitions.shape[1]
    if n_states > FEW_STATES:
        return lambda values: jnp.moveaxis(jnp.einsum("isat,it->isa", transitions, values.T), 0, 2)
    table = jnp.moveaxis(transitions, 0, -1)
    return lambda values: sum(
        (table[:, :, t] * values[t] for t in range(1, n_states)), table[:, :, 0] * values[0]
    )


def expectation_of_few(
    chances: Float[Array, "state act next *rest"], targets: Targets
) -> Callable[[Float[Array, "state *rest"]], Float[Array, "state act *rest"]]:
    """`expectation` where there are few next states."""

    def reached(values: Array, at: Int[np.ndarray, "state"]) -> Array:
        # One state that all lead to needs no gathering, which is slow on a CPU.
        return values[at[:1]] if (at == at[0]).all() else values[at]

    def expected(values: Array) -> Array:
        _, n_actions, n_next = targets.shape
        each = [
            sum(chances[:, a, k] * reached(values, targets[:, a, k]) for k in range(n_next))
            for a in range(n_actions)
        ]
        return jnp.stack(each, axis=1)

    return expected


def value_iteration(
    transitions: Transitions,
    rewards: Rewards,
    costs: Costs,
    price: Float[Array, ""] | Float[Array, "arm"] | float,
    discount: float = 0.9,
    tolerance: float = 1e-6,
) -> Float[Array, "arm state act"]:
    """Q(s,a) = R(s) - price·cost(a) + discount·Σ P(s'|s,a) max Q(s',·).

    Args:
        transitions: Probabilities, (arm, state, action, next state).
        rewards: Reward of each state, (arm, state).
        costs: Cost of each action, (arm, action).
        price: One price for all arms, or one for each.
        discount: Discount factor per round, below 1.
        tolerance: The largest error, or what single precision allows where that is more.

    Returns:
        Q, (arm, state, action).

    >>> import jax.numpy as jnp
    >>> from prefermab import oracles
    >>> stay = jnp.eye(2)[None, :, None, :]                    # one action, nothing ever moves
    >>> q = oracles.value_iteration(stay, jnp.array([[0.0, 1.0]]), jnp.array([[0.0]]), 0.0)
    >>> round(float(q[0, 1, 0]), 3)                            # 1 / (1 - 0.9)
    10.0
    """
    paid = rewards.T[:, None] - price * costs.T
    expect = expectation(transitions)

    def unsettled(carry):
        # A sweep shrinks the error by the discount, until only rounding errors are left.
        values, change, sweeps = carry
        digit = 2 * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values))
        return (change > jnp.maximum(tolerance * (1 - discount), digit)) & (sweeps < 100_000)

    def sweep(carry):
        values, _, sweeps = carry
        improved = jnp.max(paid + discount * expect(values), axis=1)
        return improved, jnp.max(jnp.abs(improved - values)), sweeps + 1

    start = (jnp.max(paid, axis=1), jnp.asarray(jnp.inf, paid.dtype), 0)
    values, _, _ = jax.lax.while_loop(unsettled, sweep, start)
    return jnp.moveaxis(paid + discount * expect(values), -1, 0)


def backward_induction(
    transitions: Transitions,
    rewards: Rewards,
    costs: Costs,
    prices: Float[Array, "round"],
    opt_in: Bool[Array, "round arm"],
) -> Float[Array, "round arm state act"]:
    """Q_t(s,a) = Σ P(s'|s,a) (R(s') + V_{t+1}(s')) - price_t·cost(a), with V = 0 after the last
    round.

    The reward of a decision is that of the next state. In a round in which an arm is opted out
    Q is 0, so that earlier rounds do not count what comes after.

    Args:
        transitions: Probabilities, (arm, state, action, next state).
        rewards: Reward of each state, (arm, state).
        costs: Cost of each action, (arm, action).
        prices: Price of spending in each round, (round,).
        opt_in: Who is in, (round, arm).

    Returns:
        Q, (round, arm, state, action).

    >>> import jax.numpy as jnp
    >>> from prefermab import oracles
    >>> rise = jnp.array([[[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]]])
    >>> q = oracles.backward_induction(rise, jnp.array([[0.0, 1.0]]), jnp.array([[0.0, 1.0]]),
    ...                                jnp.array([0.5, 0.5]), jnp.array([[True], [True]]))
    >>> q[0, 0, 0]               # from state 0: wait and act in the last round, or act now
    Array([0.5, 1.5], dtype=float32)
    """
    return jnp.moveaxis(arms_last(transitions, rewards, costs, prices, opt_in), -1, 1)


def arms_last(
    transitions: Transitions,
    rewards: Rewards,
    costs: Costs,
    prices: Float[Array, "round"],
    opt_in: Bool[Array, "round arm"],
) -> Float[Array, "round state act arm"]:
    """`backward_induction` with arms on the last axis, which is how it is computed."""
    expect = expectation(transitions)

    def earlier(later, at):
        price, present = at
        q = (expect(rewards.T + later) - price * costs.T) * present
        return jnp.max(q, axis=1), q

    _, q = jax.lax.scan(earlier, jnp.zeros_like(rewards.T), (prices, opt_in), reverse=True)
    return q
