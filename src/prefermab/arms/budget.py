"""Budgeted selection: from a score for each arm and action to actions that fit the budget.

`greedy` is the paper's GreedyProba. It takes pairs of arm and action by descending score, at most
one action for each arm, and skips pairs that no longer fit. `by_price` finds the lowest price at
which the actions that the arms prefer fit the budget, and spends the rest by gain per cost.

Costs are added up in exact decimal numbers (`prefermab.arms.amounts`): no total is above the
budget.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from prefermab.arms.amounts import Amounts, Digits, as_single, read_amounts
from prefermab.arms.observation import Actions, Costs, OptIn

Scores = Float[Array, "arm act"]

MOST_ARMS_SORTED, BEST_ARMS_SORTED = 1 << 16, 1024
"""With more than `MOST_ARMS_SORTED` arms, only the best `BEST_ARMS_SORTED` are sorted to spend the
rest of the budget: the price has settled all others."""

PRICE_ROUNDING = 1e-6
"""The search for a price adds up in single precision, so its sums may exceed the budget by this
share of it, at most by 0.001. What is bought is counted exactly afterwards."""


def cost_of(actions: Actions, costs: Costs) -> Float[Array, ""]:
    """What a set of actions costs together, in single precision."""
    taken = actions[:, None] == jnp.arange(costs.shape[1])
    return jnp.sum(jnp.where(taken, costs, 0.0))


def greedy(
    scores: Scores,
    costs: Costs,
    budget: Float[Array, ""] | float,
    opt_in: OptIn,
    amounts: Amounts | None = None,
) -> Actions:
    """The paper's GreedyProba (Algorithm 3, line 7): highest scores first until nothing more fits.

    Column 0 of `scores`, the passive action, is not read: the whole budget is spent if it can be.
    Ties go to the arm, then the action, that comes first. The order of pairs is decided by one
    sort; each further pass costs O(N), and there are about as many as there are different costs.

    Args:
        scores: For each arm and action; -inf or NaN forbids.
        costs: For each arm and action, in single precision.
        budget: What may be spent.
        opt_in: Arms that may be acted on.
        amounts: Costs and budget in exact units, as `Observation.amounts` has them; read from
            `costs` and `budget` if left out.

    Returns:
        An action for each arm, 0 for none.

    >>> import jax.numpy as jnp
    >>> from prefermab.budget import greedy
    >>> scores = jnp.array([[0.0, 0.9, 0.8], [0.0, 0.7, 0.1], [0.0, 0.6, 0.95]])
    >>> costs = jnp.tile(jnp.array([0.0, 1.0, 2.0]), (3, 1))
    >>> greedy(scores, costs, 3.0, jnp.array([True, True, True]))
    Array([1, 0, 2], dtype=int32)
    """
    return _greedy(scores, costs, _as_array(budget), opt_in, amounts)


@jax.jit
def _greedy(
    scores: Scores,
    costs: Costs,
    budget: Float[Array, ""],
    opt_in: OptIn,
    amounts: Amounts | None,
) -> Actions:
    amounts = read_amounts(costs, budget) if amounts is None else amounts
    return _buy(scores[:, 1:], amounts.costs[:, 1:], amounts.budget, opt_in)


def _as_array(budget: Float[Array, ""] | float) -> Float[Array, ""]:
    """A budget as an array, so that code is compiled once for all budgets."""
    return as_single(budget) if isinstance(budget, int | float) else budget


def _buy(scores: Scores, costs: Digits, budget: Digits, opt_in: OptIn) -> Actions:
    """Takes pairs of arm and action by descending score while they fit. Returns for each arm a
    column of `scores`, counted from 1, or 0 for none."""
    n_arms, n_columns = scores.shape
    value = jnp.where(jnp.isnan(scores), -jnp.inf, scores).ravel()
    allowed = jnp.repeat(opt_in, n_columns) & (value > -jnp.inf)
    order = jnp.argsort(jnp.where(allowed, -value, jnp.inf), stable=True)
    here = jnp.arange(order.size)
    place = jnp.zeros_like(order).at[order].set(here).reshape(n_arms, n_columns)
    arm = jax.lax.div(order, n_columns)
    cost = jax.tree.map(lambda part: part.ravel()[order], costs)

    def one_pass(carry):
        open, left, taken = carry
        first = jnp.min(jnp.where(open[place], place, order.size), axis=1)
        candidate = open & (here == first[arm])
        spent = cost.where(candidate).cumsum()
        over = candidate & ~(spent <= left)
        stop = jnp.where(jnp.any(over), jnp.argmax(over), order.size)
        take = candidate & (here < stop)
        served = jnp.any(take[place], axis=1)
        left = left - spent[jnp.maximum(stop - 1, 0)].where(stop > 0)
        open = open & ~served[arm] & (here != stop) & (cost <= left)
        return open, left, taken | take

    start = (allowed[order] & (cost <= budget), budget, jnp.zeros(order.size, bool))
    _, _, taken = jax.lax.while_loop(lambda carry: jnp.any(carry[0]), one_pass, start)
    chosen = taken[place]
    return jnp.where(jnp.any(chosen, axis=1), jnp.argmax(chosen, axis=1) + 1, 0).astype(jnp.int32)


def preferred(gains: Scores, costs: Costs, price: Float[Array, ""], opt_in: OptIn) -> Actions:
    """The action that each arm prefers at a price: the largest gain less price times cost, and of
    equal ones the cheapest."""
    worth = jnp.where(opt_in[:, None], gains - price * costs, -jnp.inf).at[:, 0].set(0.0)
    best = worth >= jnp.max(worth, axis=1, keepdims=True)
    return jnp.argmin(jnp.where(best, costs, jnp.inf), axis=1).astype(jnp.int32)


def spending_at(
    gains: Scores, costs: Costs, opt_in: OptIn
) -> Callable[[Float[Array, ""]], Float[Array, ""]]:
    """A function from a price to the spending of all arms, each on the action it prefers there.

    >>> import jax.numpy as jnp
    >>> from prefermab.budget import spending_at
    >>> spending = spending_at(jnp.array([[0.0, 3.0], [0.0, 1.0]]), jnp.ones((2, 2)),
    ...                        jnp.array([True, True]))
    >>> float(spending(jnp.array(2.0)))
    1.0
    """
    # A loop over actions compiles to a single pass without arrays in between.
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
    """The lowest price at which the actions that arms prefer fit the budget.

    >>> import jax.numpy as jnp
    >>> from prefermab.budget import clearing_price
    >>> gains = jnp.array([[0.0, 3.0], [0.0, 1.0]])
    >>> costs = jnp.tile(jnp.array([0.0, 1.0]), (2, 1))
    >>> round(float(clearing_price(gains, costs, 1.0, jnp.array([True, True]))), 3)
    1.0
    """
    highest = price_ceiling(gains, costs, opt_in)
    return lowest_price(spending_at(gains, costs, opt_in), budget, highest, halvings)


def price_ceiling(gains: Scores, costs: Costs, opt_in: OptIn) -> Float[Array, ""]:
    """A price above which no arm prefers any action that costs something."""
    paid = (costs > 0) & opt_in[:, None]
    return jnp.max(jnp.where(paid, gains / jnp.where(paid, costs, 1.0), 0.0)) * 1.01 + 1e-6


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
    limit = budget + jnp.minimum(budget * PRICE_ROUNDING, 1e-3)

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
    gains: Scores,
    costs: Costs,
    budget: Float[Array, ""] | float,
    opt_in: OptIn,
    amounts: Amounts | None = None,
) -> Actions:
    """Actions with nearly the largest total gain that the budget allows: those that arms prefer at
    the lowest price that fits, then the best further gains per cost while budget remains.

    With two actions this is the exact order by gain per cost.

    Args:
        gains: Gain over the passive action, for each arm and action. An action whose gain is not
            positive is never bought, even if budget remains.
        costs: For each arm and action, in single precision.
        budget: What may be spent.
        opt_in: Arms that may be acted on.
        amounts: As for `greedy`.

    Returns:
        An action for each arm, 0 for none.

    >>> import jax.numpy as jnp
    >>> from prefermab.budget import by_price
    >>> gains = jnp.array([[0.0, 3.0, 5.0], [0.0, 2.0, 2.5], [0.0, -1.0, -2.0]])
    >>> costs = jnp.tile(jnp.array([0.0, 1.0, 2.0]), (3, 1))
    >>> by_price(gains, costs, 3.0, jnp.array([True, True, True]))
    Array([2, 1, 0], dtype=int32)
    """
    return _by_price(gains, costs, _as_array(budget), opt_in, amounts)


@jax.jit
def _by_price(
    gains: Scores,
    costs: Costs,
    budget: Float[Array, ""],
    opt_in: OptIn,
    amounts: Amounts | None,
) -> Actions:
    amounts = read_amounts(costs, budget) if amounts is None else amounts
    gains = jnp.where(jnp.isnan(gains), -jnp.inf, gains - gains[:, :1])
    highest = price_ceiling(gains, costs, opt_in)
    low, high = price_bracket(spending_at(gains, costs, opt_in), budget, highest)
    actions = preferred(gains, costs, high, opt_in)
    if len(gains) > MOST_ARMS_SORTED:
        actions = _first_that_fit(actions, amounts)
        actions = _take_tied(actions, preferred(gains, costs, low, opt_in), amounts)
    else:
        # If rounding let in too much, `upgrade` buys everything by gain per cost.
        fits = _cost_of_each(actions, amounts).sum() <= amounts.budget
        actions = jnp.where(fits, actions, 0)

    def upgrade(_, actions):
        return _upgrade(actions, gains, costs, amounts, opt_in)

    return jax.lax.fori_loop(0, costs.shape[1] - 1, upgrade, actions)


def _cost_of_each(actions: Actions, amounts: Amounts) -> Digits:
    """The cost of each arm's action."""
    return jax.tree.map(
        lambda part: jnp.take_along_axis(part, actions[:, None], axis=1)[:, 0], amounts.costs
    )


def _first_that_fit(actions: Actions, amounts: Amounts) -> Actions:
    """The actions of the first arms, as far as the budget reaches."""
    return jnp.where(_cost_of_each(actions, amounts).cumsum() <= amounts.budget, actions, 0)


def _take_tied(actions: Actions, more: Actions, amounts: Amounts) -> Actions:
    """Takes actions preferred just below the clearing price, in arm order while they fit."""
    now, then = _cost_of_each(actions, amounts), _cost_of_each(more, amounts)
    further = (then - now).where(now <= then)
    return jnp.where(further.cumsum() <= amounts.budget - now.sum(), more, actions)


def _upgrade(
    actions: Actions, gains: Scores, costs: Costs, amounts: Amounts, opt_in: OptIn
) -> Actions:
    """Spends what `actions` leave of the budget on better actions, by further gain per cost."""
    gain_now, cost_now = (jnp.take_along_axis(t, actions[:, None], axis=1) for t in (gains, costs))
    more, extra = gains - gain_now, costs - cost_now
    per_cost = jnp.where(extra > 0, more / jnp.where(extra > 0, extra, 1.0), jnp.inf)
    paid = _cost_of_each(actions, amounts)
    further = amounts.costs - paid[:, None]
    # Differences in single precision may vanish; exact ones decide what costs more.
    scores = jnp.where((more > 0) & (paid[:, None] <= amounts.costs), per_cost, -jnp.inf)
    arms = jnp.arange(len(actions))
    if len(actions) > MOST_ARMS_SORTED:
        arms = jax.lax.top_k(jnp.where(opt_in, scores.max(axis=1), -jnp.inf), BEST_ARMS_SORTED)[1]
    better = _buy(scores[arms], further[arms], amounts.budget - paid.sum(), opt_in[arms])
    return actions.at[arms].set(jnp.where(better > 0, better - 1, actions[arms]))
