"""Scores people by the network: the price of a round, and the gain of each action.

People go through the network in batches of a few fixed sizes, so that any number of people needs
little memory and few compilations.
"""

import dataclasses
from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from prefermab.arms.amounts import DecimalUnits, exact_amounts
from prefermab.arms.observation import Observation, hide_opted_out
from prefermab.models.model import Model
from prefermab.policies.learned import CHUNK, JudgedRound, Learned, sample_rows
from prefermab.programme.planning.roster import Roster
from prefermab.programme.planning.rules import ANY

PRICE_PROBES = 4
"""Prices that are tried in the search for the highest one at which a person is acted on."""


@dataclasses.dataclass(frozen=True)
class RoundScores:
    """The price of a round, and each action's gain for each person at this price; the gain is -inf
    for an action that must not be taken."""

    price: float
    gains: np.ndarray


def score(
    model: Model, roster: Roster, may: np.ndarray, budget: float, everyone: bool = False
) -> RoundScores:
    """Finds the price and the gains; with `everyone`, also gains of who may not be acted on."""
    if by_increments(model, roster.size):
        price = sample_price(model, *sampled_people(roster, may), budget=budget, people=roster.size)
        gains = gains_at(model, roster.states, roster.features, price)
        return RoundScores(price, positive_gains(model, gains))
    judged = _judge(model.policy, observation(model.policy, roster, may, budget))
    gains, price = np.array(judged.gains)[: roster.size], float(judged.price)
    if everyone and not may.all():
        out = ~may
        gains[out] = useful_gains(model, roster.states[out], roster.features[out], price)
    return RoundScores(price, gains)


def by_increments(model: Model, people: int) -> bool:
    """Whether a table has so many people that it is planned by increments, as a folder is."""
    return model.policy.gains_are_rewards and people > CHUNK


def settle(
    model: Model, roster: Roster, scores: RoundScores, may: np.ndarray, budget: float, paid: int
) -> np.ndarray:
    """Chooses actions as the policy does, after `paid` units of the budget were spent."""
    seen = observation(model.policy, roster, may, budget, paid)
    gains = np.zeros((seen.n_arms, scores.gains.shape[1]), np.float32)
    gains[: roster.size] = scores.gains
    judged = JudgedRound(jnp.asarray(scores.price, jnp.float32), jnp.asarray(gains))
    return np.asarray(_settle(model.policy, judged, seen))[: roster.size]


def observation(
    policy: Learned, roster: Roster, may: np.ndarray, budget: float, paid: int = 0
) -> Observation:
    """The round as a policy sees it, after `paid` units of the budget were spent. If a person's
    gain does not depend on others, people who are out are added up to one of a few sizes, so that
    little is compiled."""
    arrays = [roster.states, roster.features, may, roster.costs]
    if policy.gains_are_rewards and roster.size <= CHUNK:
        arrays = [pad_rows(array) for array in arrays]
    return _observation(*arrays, budget, paid)


def sampled_people(roster: Roster, may: np.ndarray) -> list[np.ndarray]:
    """The states, features, permission to act and costs of a sample of people."""
    rows = sample_rows(roster.size)
    return [given[rows] for given in (roster.states, roster.features, may, roster.costs)]


def sample_price(
    model: Model,
    states: np.ndarray,
    features: np.ndarray,
    may: np.ndarray,
    costs: np.ndarray,
    budget: float,
    people: int,
) -> float:
    """The price at which a sample of `people` people spends its part of the budget."""
    part = budget * (len(states) / people)
    return float(_judge(model.policy, _observation(states, features, may, costs, part)).price)


def gains_at(
    model: Model,
    states: np.ndarray,
    features: np.ndarray,
    prices: np.ndarray | float,
    wide: bool | None = None,
) -> np.ndarray:
    """The gain of each action for every person, at one price or at each person's own price.

    Batches of different sizes may round differently. With `wide` all batches have one size, so that
    people get the same numbers however they are divided; the default is True above `CHUNK` people.
    """
    size = len(states)
    least = CHUNK if (size > CHUNK if wide is None else wide) else 0
    prices = np.broadcast_to(np.asarray(prices, np.float32), (size,))
    found = np.empty((size, len(model.action_names)), np.float32)
    for rows in batches(size):
        part = [pad_rows(array[rows], least) for array in (states, features, prices)]
        found[rows] = np.asarray(_gains(model.policy, *part))[: rows.stop - rows.start]
    return found


def batches(size: int) -> Iterator[slice]:
    """Slices of at most `CHUNK` rows.

    >>> from prefermab.programme.planning.scoring import batches
    >>> list(batches(70000))
    [slice(0, 65536, None), slice(65536, 70000, None)]
    """
    for start in range(0, size, CHUNK):
        yield slice(start, min(start + CHUNK, size))


def pad_rows(array: np.ndarray, least: int = 0) -> np.ndarray:
    """The rows, with zeros added up to the next of a few sizes, which is at least `least`.

    >>> import numpy as np
    >>> from prefermab.programme.planning.scoring import pad_rows
    >>> pad_rows(np.ones((3, 2))).shape
    (64, 2)
    """
    size = next(s for s in (64, 1024, 8192, CHUNK) if s >= max(len(array), least))
    fill = [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, fill)


def useful_gains(
    model: Model, states: np.ndarray, features: np.ndarray, price: float
) -> np.ndarray:
    """The gain of each action; -inf for actions that gain nothing even at the price 0."""
    gains = gains_at(model, states, features, price)
    if model.policy.gains_are_rewards:
        least = float(model.policy.least_gain)
        gains = np.where(gains_at(model, states, features, 0.0) > least, gains, -np.inf)
    gains[:, 0] = 0.0
    return gains


def positive_gains(model: Model, gains: np.ndarray) -> np.ndarray:
    """The gains, with -inf for actions that gain nothing at the present price."""
    found = np.where(gains > np.float32(model.policy.least_gain), gains, np.float32(-np.inf))
    found[:, 0] = 0.0
    return found


def locked_actions(scores: RoundScores, costs: np.ndarray, locked: np.ndarray) -> np.ndarray:
    """The actions of those who are locked in; for `ANY`, the best one at the present price."""
    net = (scores.gains - scores.price * costs)[:, 1:]
    cheapest = costs[:, 1:].argmin(axis=1)
    best = np.where(np.isneginf(net).all(axis=1), cheapest, net.argmax(axis=1)) + 1
    return np.where(locked == ANY, best, locked)


def best_actions(scores: RoundScores, costs: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Each person's action; for those who get nothing, the one that would be best for them."""
    net = (scores.gains - scores.price * costs)[:, 1:]
    return np.where(actions > 0, actions, net.argmax(axis=1) + 1)


def highest_prices(
    model: Model, roster: Roster, price: float, gains: np.ndarray
) -> np.ndarray | None:
    """The highest price at which each person would still be acted on; 0 if there is none.

    The search starts from the `gains` at the present `price`. The result is None for a recipe whose
    gains are not rewards.
    """
    if not model.policy.gains_are_rewards:
        return None
    highest = float(model.policy.price_ceiling)
    costs = np.maximum(roster.costs[:, 1:], 1e-9)

    def net(prices: np.ndarray) -> np.ndarray:
        found = gains_at(model, roster.states, roster.features, prices)[:, 1:]
        return (found - prices[:, None] * costs).max(axis=1)

    first = (gains[:, 1:] - price * costs).max(axis=1)
    steepest = costs.max(axis=1)
    return find_crossings(net, np.full(roster.size, price), first, -steepest, highest)


def find_crossings(
    net: Callable[[np.ndarray], np.ndarray],
    start: np.ndarray,
    at_start: np.ndarray,
    slope: np.ndarray,
    highest: float,
) -> np.ndarray:
    """The points in [0, highest] at which falling functions cross 0, by the secant method for all
    at once. `slope` is a guess that is used if two points are too close to each other.

    >>> import numpy as np
    >>> from prefermab.programme.planning.scoring import find_crossings
    >>> line = lambda x: np.array([4.0, -1.0]) - 2 * x
    >>> find_crossings(line, np.ones(2), line(np.ones(2)), -np.ones(2), 10.0).round(3)
    array([2., 0.])
    """
    before, value_before = start.astype(float), at_start.astype(float)
    here = np.clip(before - value_before / slope, 0.0, highest)
    for _ in range(PRICE_PROBES):
        value = net(here)
        step, change = here - before, value - value_before
        steep = np.where(np.abs(step) > 1e-6, change / np.where(step == 0, 1.0, step), slope)
        steep = np.where(steep < slope * 0.05, steep, slope)
        before, value_before = here, value
        here = np.clip(here - value / steep, 0.0, highest)
    return here


def _observation(
    states: np.ndarray,
    features: np.ndarray,
    may: np.ndarray,
    costs: np.ndarray,
    budget: float,
    paid: int = 0,
) -> Observation:
    present, amounts = jnp.asarray(may), exact_amounts(costs, budget, paid)
    state, seen = hide_opted_out(present, jnp.asarray(states), jnp.asarray(features))
    left = budget - DecimalUnits.of(budget).amount(paid)
    return Observation(
        state, seen, present, jnp.asarray(costs, jnp.float32), jnp.asarray(left, jnp.float32),
        jnp.zeros((), int), amounts,
    )  # fmt: skip


@eqx.filter_jit
def _judge(policy: Learned, seen: Observation) -> JudgedRound:
    return policy.judge(seen)


@eqx.filter_jit
def _settle(policy: Learned, judged: JudgedRound, seen: Observation):
    return policy.choose_actions(judged, seen)


@eqx.filter_jit
def _gains(policy: Learned, state, features, price):
    return jax.vmap(policy.gain)(state, features, price)
