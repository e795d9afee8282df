"""What a network says of people: the price of a round, and what each action would gain.

Everyone goes through the network in pieces of a few sizes, so that any number of people needs
little memory and little compiling.
"""

from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from prefermab.arms import Observation, hide_opted_out
from prefermab.model import Model
from prefermab.policies.learned import CHUNK, Judged, Learned, sample
from prefermab.programme.planning.roster import Roster
from prefermab.programme.planning.rules import ANY

PROBES = 4
"""Prices that are tried in search of a person's own."""


@eqx.filter_jit
def judge(policy: Learned, seen: Observation) -> Judged:
    """The price of a round, and what each action would gain."""
    return policy.judge(seen)


def observation(policy: Learned, roster: Roster, may: np.ndarray, budget: float) -> Observation:
    """The round as a policy sees it. Where others do not matter to a person's gain, people who are
    out fill it up to one of a few sizes, so that little is compiled."""
    arrays = [roster.states, roster.features, may, roster.costs]
    if policy.gains_are_rewards and roster.size <= CHUNK:
        arrays = [padded(array) for array in arrays]
    return _observation(*arrays, budget)


def some_of(roster: Roster, may: np.ndarray) -> list[np.ndarray]:
    """States, features, who may be acted on and costs, of a sample."""
    rows = sample(roster.size)
    return [given[rows] for given in (roster.states, roster.features, may, roster.costs)]


def price_of(
    model: Model,
    states: np.ndarray,
    features: np.ndarray,
    may: np.ndarray,
    costs: np.ndarray,
    budget: float,
    people: int,
) -> float:
    """The price at which a sample of so many `people` spends its part of the budget."""
    part = budget * (len(states) / people)
    return float(judge(model.policy, _observation(states, features, may, costs, part)).price)


def gains_of(
    model: Model,
    states: np.ndarray,
    features: np.ndarray,
    prices: np.ndarray | float,
    wide: bool | None = None,
) -> np.ndarray:
    """What each action would gain, for every person at a price of their own.

    A piece of another size may round otherwise. `wide` keeps to one size, so that people may be
    cut into pieces anyhow and get the same numbers; more than `CHUNK` people do unless told.
    """
    size = len(states)
    least = CHUNK if (size > CHUNK if wide is None else wide) else 0
    prices = np.broadcast_to(np.asarray(prices, np.float32), (size,))
    found = np.empty((size, len(model.action_names)), np.float32)
    for rows in pieces(size):
        part = [padded(array[rows], least) for array in (states, features, prices)]
        found[rows] = np.asarray(_gains(model.policy, *part))[: rows.stop - rows.start]
    return found


def pieces(size: int) -> Iterator[slice]:
    """Rows in pieces of at most `CHUNK`.

    >>> from prefermab.programme.planning.scoring import pieces
    >>> list(pieces(70000))
    [slice(0, 65536, None), slice(65536, 70000, None)]
    """
    for start in range(0, size, CHUNK):
        yield slice(start, min(start + CHUNK, size))


def padded(array: np.ndarray, least: int = 0) -> np.ndarray:
    """The rows and zeros up to the next of a few sizes, at least `least`.

    >>> import numpy as np
    >>> from prefermab.programme.planning.scoring import padded
    >>> padded(np.ones((3, 2))).shape
    (64, 2)
    """
    size = next(s for s in (64, 1024, 8192, CHUNK) if s >= max(len(array), least))
    fill = [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, fill)


def useful_gains(
    model: Model, states: np.ndarray, features: np.ndarray, price: float
) -> np.ndarray:
    """What each action would gain, -inf where it is worth nothing at all."""
    gains = gains_of(model, states, features, price)
    if model.policy.gains_are_rewards:
        gains = np.where(gains_of(model, states, features, 0.0) > 0, gains, -np.inf)
    gains[:, 0] = 0.0
    return gains


def positive(gains: np.ndarray) -> np.ndarray:
    """Gains, -inf where an action is worth nothing at the going price."""
    found = np.where(gains > 0, gains, np.float32(-np.inf))
    found[:, 0] = 0.0
    return found


def own_prices(model: Model, roster: Roster, price: float, gains: np.ndarray) -> np.ndarray | None:
    """The highest price at which each person would still be acted on, 0 where at none, found from
    what their actions gain at the going price.

    None for a recipe whose network has no such price.
    """
    if not model.policy.gains_are_rewards:
        return None
    highest = float(model.policy.price_ceiling)
    costs = np.maximum(roster.costs[:, 1:], 1e-9)

    def net(prices: np.ndarray) -> np.ndarray:
        found = gains_of(model, roster.states, roster.features, prices)[:, 1:]
        return (found - prices[:, None] * costs).max(axis=1)

    first = (gains[:, 1:] - price * costs).max(axis=1)
    steepest = costs.max(axis=1)
    return crossing(net, np.full(roster.size, price), first, -steepest, highest)


def crossing(
    net: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    at_start: np.ndarray,
    slope: np.ndarray,
    highest: float,
) -> np.ndarray:
    """Where several falling functions cross 0 in [0, highest], by secants, all at once. `slope` is
    a guess that is used where two points are too close to tell.

    >>> import numpy as np
    >>> from prefermab.programme.planning.scoring import crossing
    >>> line = lambda x: np.array([4.0, -1.0]) - 2 * x
    >>> crossing(line, np.ones(2), line(np.ones(2)), -np.ones(2), 10.0).round(3)
    array([2., 0.])
    """
    before, value_before = start.astype(float), at_start.astype(float)
    here = np.clip(before - value_before / slope, 0.0, highest)
    for _ in range(PROBES):
        value = net(here)
        step, change = here - before, value - value_before
        steep = np.where(np.abs(step) > 1e-6, change / np.where(step == 0, 1.0, step), slope)
        steep = np.where(steep < slope * 0.05, steep, slope)
        before, value_before = here, value
        here = np.clip(here - value / steep, 0.0, highest)
    return here


def _observation(
    states: np.ndarray, features: np.ndarray, may: np.ndarray, costs: np.ndarray, budget: float
) -> Observation:
    present, paid = jnp.asarray(may), jnp.asarray(costs)
    state, seen = hide_opted_out(present, jnp.asarray(states), jnp.asarray(features))
    limit = jnp.asarray(budget, jnp.float32)
    return Observation(state, seen, present, paid, limit, jnp.zeros((), int))


@eqx.filter_jit
def _gains(policy: Learned, state, features, price):
    return jax.vmap(policy.gain)(state, features, price)


def locked_actions(
    gains: np.ndarray, costs: np.ndarray, price: float, locked: np.ndarray
) -> np.ndarray:
    """The actions of those who are locked in: the best at the going price where it is open."""
    net = (gains - price * costs)[:, 1:]
    cheapest = costs[:, 1:].argmin(axis=1)
    best = np.where(np.isneginf(net).all(axis=1), cheapest, net.argmax(axis=1)) + 1
    return np.where(locked == ANY, best, locked)


def best_actions(
    gains: np.ndarray, costs: np.ndarray, price: float, actions: np.ndarray
) -> np.ndarray:
    """What somebody gets, or, of those who get nothing, what would be best for them."""
    return np.where(actions > 0, actions, (gains - price * costs)[:, 1:].argmax(axis=1) + 1)


def paid(actions: np.ndarray, costs: np.ndarray) -> float:
    """What a choice costs."""
    return float(costs[np.arange(len(actions)), actions].astype(float).sum())


def units(actions: np.ndarray, costs: np.ndarray, unit: float) -> float:
    """What a choice costs, each in whole units, so that the sum does not depend on its order."""
    cost = costs[np.arange(len(actions)), actions].astype(float)
    return float((np.round(cost / unit) * unit).sum())
