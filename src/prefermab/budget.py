"""Budgeted selection: from a score for each arm and action to actions that fit the budget.

`greedy` is the paper's GreedyProba: pairs of arm and action by descending score, one action an
arm, a pair that no longer fits is skipped for the next that does. `by_price` finds the lowest
price at which what every arm prefers fits, and spends what is left by gain per cost.

Spending counts as within the budget up to one part in a million, and a thousandth of a unit, so
that seven times 0.1 fits into 0.7 although no binary fraction is 0.1.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from prefermab.arms import Actions, Costs, OptIn

Scores = Float[Array, "arm act"]
SLACK, HAIR = 1e-6, 1e-3

LARGE, FEW = 1 << 16, 1024
"""Of more arms than `LARGE` only the best `FEW` are sorted for what is left of the budget: the
price has settled all others."""


def limit_of(budget: Any) -> Any:
    """What may be spent, rounding allowed for: a number, or an array of NumPy or JAX.

    >>> from prefermab.budget import limit_of
    >>> print(round(limit_of(0.7), 8), limit_of(10_000_000))
    0.7000007 10000000.001
    """
    smaller = jnp.minimum if isinstance(budget, jax.Array) else np.minimum
    return budget + smaller(budget * SLACK, HAIR)


def cost_of(actions: Actions, costs: Costs) -> Float[Array, ""]:
    """What a set of actions costs together."""
    taken = actions[:, None] == jnp.arange(costs.shape[1])
    return jnp.sum(jnp.where(taken, costs, 0.0))


def greedy(
    scores: Scores, costs: Costs, budget: Float[Array, ""] | float, opt_in: OptIn
) -> Actions:
    """The paper's GreedyProba (Algorithm 3, line 7): highest scores first until nothing more fits.

    Column 0 of `scores`, the passive action, is not read: the whole budget is spent if it can be.
    Ties go to the arm, then the action, that comes first. A score of -inf or NaN forbids. The
    order of pairs is decided by one sort; each further pass costs O(N), and there are about as
    many as there are different costs.

    >>> import jax.numpy as jnp
    >>> from prefermab.budget import greedy
    >>> scores = jnp.array([[0.0, 0.9, 0.8], [0.0, 0.7, 0.1], [0.0, 0.6, 0.95]])
    >>> costs = jnp.tile(jnp.array([0.0, 1.0, 2.0]), (3, 1))
    >>> greedy(scores, costs, 3.0, jnp.array([True, True, True]))
    Array([1, 0, 2], dtype=int32)
    """
    n_arms, n_active = scores.shape[0], scores.shape[1] - 1
    value = jnp.where(jnp.isnan(scores[:, 1:]), -jnp.inf, scores[:, 1:]).ravel()
    allowed = jnp.repeat(opt_in, n_active) & (value > -jnp.inf)
    order = jnp.argsort(jnp.where(allowed, -value, jnp.inf), stable=True)
    here = jnp.arange(order.size)
    place = jnp.zeros_like(order).at[order].set(here).reshape(n_arms, n_active)
    arm = order // n_active
    cost = costs[:, 1:].ravel()[order]
    limit = limit_of(budget)

    def fitting(open: Bool[Array, "pair"], spent: Float[Array, ""]) -> Bool[Array, "pair"]:
        return open & (spent + cost <= limit)

    def one_pass(carry):
        open, spent, taken = carry
        fits = fitting(open, spent)
        first = jnp.min(jnp.where(fits[place], place, order.size), axis=1)
        candidate = fits & (here == first[arm])
        over = candidate & (spent + jnp.cumsum(jnp.where(candidate, cost, 0.0)) > limit)
        stop = jnp.where(jnp.any(over), jnp.argmax(over), order.size)
        take = candidate & (here < stop)
        served = jnp.any(take[place], axis=1)
        open = fits & ~served[arm] & (here != stop)
        return open, spent + jnp.sum(jnp.where(take, cost, 0.0)), taken | take

    def unfinished(carry):
        open, spent, _ = carry
        return jnp.any(fitting(open, spent))

    nothing = jnp.zeros(order.size, bool)
    start = (allowed[order], jnp.zeros((), cost.dtype), nothing)
    _, _, taken = jax.lax.while_loop(unfinished, one_pass, start)
    chosen = taken[place]
    return jnp.where(jnp.any(chosen, axis=1), jnp.argmax(chosen, axis=1) + 1, 0).astype(jnp.int32)


def preferred(gains: Scores, costs: Costs, price: Float[Array, ""], opt_in: OptIn) -> Actions:
    """What each arm would do at a price: the largest gain less price times cost, cheapest first."""
    worth = jnp.where(opt_in[:, None], gains - price * costs, -jnp.inf).at[:, 0].set(0.0)
    best = worth >= jnp.max(worth, axis=1, keepdims=True)
    return jnp.argmin(jnp.where(best, costs, jnp.inf), axis=1).astype(jnp.int32)


def spending_at(
    gains: Scores, costs: Costs, opt_in: OptIn
) -> Callable[[Float[Array, ""]], Float[Array, ""]]:
    """What all arms spend together at a price, each on what it prefers there.

    >>> import jax.numpy as jnp
    >>> from prefermab.budget import spending_at
    >>> spending = spending_at(jnp.array([[0.0, 3.0], [0.0, 1.0]]), jnp.ones((2, 2)),
    ...                        jnp.array([True, True]))
    >>> float(spending(jnp.array(2.0)))
    1.0
    """
    # Written out over actions, which lets the whole be one pass without arrays in between.
    gain = jnp.where(opt_in[:, None], gains, -jnp.inf).T
    cost = costs.T

    def spending(price: Float[Array, ""]) -> Float[Array, ""]:
        most = paid = jnp.zeros(gain.shape[1])
        for action in range(1, gain.shape[0]):
            net = gain[action] - price * cost[action]
            better = (net > most) | ((net == most) & (cost[action] < paid))
            most, paid = jnp.maximum(net, most), jnp.where(better, cost[action], paid)
        return jnp.sum(paid)

    return spending


def clearing_price(
    gains: Scores,
    costs: Costs,
    budget: Float[Array, ""] | float,
    opt_in: OptIn,
    halvings: int = 30,
) -> Float[Array, ""]:
    """The lowest price at which what every arm prefers fits the budget.

    >>> import jax.numpy as jnp
    >>> from prefermab.budget import clearing_price
    >>> gains = jnp.array([[0.0, 3.0], [0.0, 1.0]])
    >>> costs = jnp.tile(jnp.array([0.0, 1.0]), (2, 1))
    >>> round(float(clearing_price(gains, costs, 1.0, jnp.array([True, True]))), 3)
    1.0
    """
    highest = dearest(gains, costs, opt_in)
    return lowest_price(spending_at(gains, costs, opt_in), budget, highest, halvings)


def dearest(gains: Scores, costs: Costs, opt_in: OptIn) -> Float[Array, ""]:
    """A price at which nobody would pay for anything."""
    dear = (costs > 0) & opt_in[:, None]
    return jnp.max(jnp.where(dear, gains / jnp.where(dear, costs, 1.0), 0.0)) * 1.01 + 1e-6


def lowest_price(
    spending: Callable[[Float[Array, ""]], Float[Array, ""]],
    budget: Float[Array, ""] | float,
    highest: Float[Array, ""] | float,
    halvings: int = 30,
) -> Float[Array, ""]:
    """The lowest price in [0, highest] at which `spending(price)`, which falls, fits the budget.

    >>> from prefermab.budget import lowest_price
    >>> round(float(lowest_price(lambda price: 10.0 - price, 4.0, 100.0)), 3)
    6.0
    """
    return price_bracket(spending, budget, highest, halvings)[1]


def price_bracket(
    spending: Callable[[Float[Array, ""]], Float[Array, ""]],
    budget: Float[Array, ""] | float,
    highest: Float[Array, ""] | float,
    halvings: int = 30,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Two prices close to each other: too low for the budget, and high enough (both 0 where
    everything fits).

    >>> from prefermab.budget import price_bracket
    >>> low, high = price_bracket(lambda price: 10.0 - price, 4.0, 100.0)
    >>> bool(low < high), round(float(low), 3), round(float(high), 3)
    (True, 6.0, 6.0)
    """
    limit = limit_of(budget)

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        fits = spending(middle) <= limit
        return jnp.where(fits, low, middle), jnp.where(fits, middle, high)

    low, high = jnp.zeros(()), jnp.asarray(highest, jnp.float32)
    free = spending(low) <= limit
    low, high = jax.lax.fori_loop(0, halvings, halve, (low, high))
    return jnp.where(free, 0.0, low), jnp.where(free, 0.0, high)


def by_price(
    gains: Scores, costs: Costs, budget: Float[Array, ""] | float, opt_in: OptIn
) -> Actions:
    """The most gain the budget buys, but for rounding: what is preferred at the lowest price that
    fits, then the rest of the budget on the best further gains per cost.

    `gains` are over the passive action; one that is not positive is never taken, though budget be
    left. With two actions this is the exact order by gain per cost.

    >>> import jax.numpy as jnp
    >>> from prefermab.budget import by_price
    >>> gains = jnp.array([[0.0, 3.0, 5.0], [0.0, 2.0, 2.5], [0.0, -1.0, -2.0]])
    >>> costs = jnp.tile(jnp.array([0.0, 1.0, 2.0]), (3, 1))
    >>> by_price(gains, costs, 3.0, jnp.array([True, True, True]))
    Array([2, 1, 0], dtype=int32)
    """
    gains = jnp.where(jnp.isnan(gains), -jnp.inf, gains - gains[:, :1])
    highest = dearest(gains, costs, opt_in)
    low, high = price_bracket(spending_at(gains, costs, opt_in), budget, highest)
    actions = preferred(gains, costs, high, opt_in)
    if len(gains) > LARGE:
        actions = take_tied(actions, preferred(gains, costs, low, opt_in), costs, budget)
    for _ in range(costs.shape[1] - 1):
        actions = upgrade(actions, gains, costs, budget, opt_in)
    return actions


def take_tied(
    actions: Actions, more: Actions, costs: Costs, budget: Float[Array, ""] | float
) -> Actions:
    """`more` is preferred at a price a hair lower: as much of it as fits, in the order of arms."""
    paid, asked = (jnp.take_along_axis(costs, a[:, None], axis=1)[:, 0] for a in (actions, more))
    limit = limit_of(budget) - jnp.sum(paid)
    fits = jnp.cumsum(jnp.maximum(asked - paid, 0.0)) <= limit
    return jnp.where(fits, more, actions)


def upgrade(
    actions: Actions,
    gains: Scores,
    costs: Costs,
    budget: Float[Array, ""] | float,
    opt_in: OptIn,
) -> Actions:
    """Spends what `actions` leave of the budget on better actions, by further gain per cost."""
    gain_now, cost_now = (jnp.take_along_axis(t, actions[:, None], axis=1) for t in (gains, costs))
    more, extra = gains - gain_now, costs - cost_now
    per_cost = jnp.where(extra > 0, more / jnp.where(extra > 0, extra, 1.0), jnp.inf)
    scores = jnp.where((more > 0) & (extra >= 0), per_cost, -jnp.inf)
    left = jnp.maximum(budget - jnp.sum(cost_now), 0.0)
    # Selection reads active columns only; a column in front lets it reach every action.
    wide = jnp.pad(jnp.stack([scores, extra]), ((0, 0), (0, 0), (1, 0)))
    arms = jnp.arange(len(actions))
    if len(actions) > LARGE:
        arms = jax.lax.top_k(jnp.where(opt_in, scores.max(axis=1), -jnp.inf), FEW)[1]
    better = greedy(wide[0][arms], wide[1][arms], left, opt_in[arms])
    return actions.at[arms].set(jnp.where(better > 0, better - 1, actions[arms]))
