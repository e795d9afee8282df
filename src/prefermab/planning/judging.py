"""What a network says of people, and what follows for each of them alone."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from prefermab.arms import Observation, hide_opted_out
from prefermab.model import Model
from prefermab.planning.limits import ANY
from prefermab.planning.roster import Roster
from prefermab.planning.scores import gains_of, padded
from prefermab.policies.learned import CHUNK, BySweep, Judged, Learned, sample


@eqx.filter_jit
def judge(policy: Learned, seen: Observation) -> Judged:
    """The price of a round, and what each action would gain."""
    return policy.judge(seen)


def observation(policy: Learned, roster: Roster, may: np.ndarray, budget: float) -> Observation:
    """The round as a policy sees it. Where others do not matter to a person's gain, people who are
    out fill it up to one of a few sizes, so that little is compiled."""
    arrays = [roster.states, roster.features, may, roster.costs]
    if isinstance(policy, BySweep) and roster.size <= CHUNK:
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


def useful_gains(
    model: Model, states: np.ndarray, features: np.ndarray, price: float
) -> np.ndarray:
    """What each action would gain, -inf where it is worth nothing at all."""
    gains = gains_of(model, states, features, price)
    if isinstance(model.policy, BySweep):
        gains = np.where(gains_of(model, states, features, 0.0) > 0, gains, -np.inf)
    gains[:, 0] = 0.0
    return gains


def positive(gains: np.ndarray) -> np.ndarray:
    """Gains, -inf where an action is worth nothing at the going price."""
    found = np.where(gains > 0, gains, np.float32(-np.inf))
    found[:, 0] = 0.0
    return found


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


def _observation(
    states: np.ndarray, features: np.ndarray, may: np.ndarray, costs: np.ndarray, budget: float
) -> Observation:
    present, paid = jnp.asarray(may), jnp.asarray(costs)
    state, seen = hide_opted_out(present, jnp.asarray(states), jnp.asarray(features))
    limit = jnp.asarray(budget, jnp.float32)
    return Observation(state, seen, present, paid, limit, jnp.zeros((), int))
