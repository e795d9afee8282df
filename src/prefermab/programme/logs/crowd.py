"""Ways of choosing in a crowd so large that luck evens out: where people are in each round, what is
done with them, and what that earns.

With very many people a budget ties them together through a price alone. So what a way of choosing
does is a chance of each action for each person and state, and what it earns is a sum, not a
simulation.
"""

import dataclasses
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import root_scalar

from prefermab.config import Exact
from prefermab.programme.logs.fitting import Fit, tables
from prefermab.programme.logs.people import LEAST
from prefermab.programme.logs.pool import dirichlet
from prefermab.recipes.exact import worths

TABLES = 12
"""Tables that are drawn of a person to find what acting is worth on average."""

PRICES = np.concatenate([[0.0], np.geomspace(0.02, 1.0, 11)])
"""At which that is worked out, as shares of the highest."""

FINER = 8
"""Prices that are tried between two of them."""

MOST = 12.0
"""By how much log-odds of acting are raised or lowered."""

AT_ONCE = 1 << 15
"""Tables that are worked on together."""


@dataclasses.dataclass(frozen=True, eq=False)
class Crowd:
    """People: chances (person, state, action, next state) of moving, shares (person, state) of
    where they start, how much each counts, and what may be spent on one in a round on average."""

    chances: np.ndarray
    start: np.ndarray
    weight: np.ndarray
    rewards: np.ndarray
    costs: np.ndarray
    budget: float

    def mean(self, each: np.ndarray) -> np.ndarray:
        """Over people, the first axis."""
        return np.asarray(np.tensordot(self.weight, each, axes=(0, 0)) / self.weight.sum())


@runtime_checkable
class Rule(Protocol):
    """A way of choosing."""

    def choices(self, crowd: Crowd, visits: np.ndarray) -> np.ndarray:
        """Chances (person, state, action) of each action, where people are in states by these
        shares (person, state)."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Played:
    """Some rounds by a rule: `visits` (round, person, state), `choices` (round, person, state,
    action), `worth` (round, person, state, action) of an action with what follows, and `value`
    (round, person, state), which has one round more, in which all is 0."""

    visits: np.ndarray
    choices: np.ndarray
    worth: np.ndarray
    value: np.ndarray

    def earned(self) -> np.ndarray:
        """By each person in all rounds."""
        return (self.visits[0] * self.value[0]).sum(axis=1)


def play(crowd: Crowd, rule: Rule, rounds: int) -> Played:
    """Forward: who is where and what is done. Backward: what that is worth."""
    visits, choices, here = [], [], crowd.start
    for _ in range(rounds):
        chosen = rule.choices(crowd, here)
        visits.append(here)
        choices.append(chosen)
        here = np.einsum("ps,psa,psat->pt", here, chosen, crowd.chances, optimize=True)
    value, worth = [np.zeros_like(crowd.start)], []
    for chosen in reversed(choices):
        ahead = crowd.rewards + value[-1]
        worth.append(np.einsum("psat,pt->psa", crowd.chances, ahead, optimize=True))
        value.append((chosen * worth[-1]).sum(axis=2))
    return Played(*(np.stack(part) for part in (visits, choices, worth[::-1], value[::-1])))


class ByWorth:
    """As a model chooses: what an action is worth beyond its cost at a price, and the price at
    which the budget is just spent. What is worth nothing when it is free is never done.

    `gains` are (person, price, state, action).
    """

    def __init__(self, gains: np.ndarray, prices: np.ndarray, costs: np.ndarray):
        at = np.linspace(0, len(prices) - 1, FINER * (len(prices) - 1) + 1)
        low = np.minimum(at.astype(int), len(prices) - 2)
        share = (at - low)[:, None, None]
        between = gains[:, low] * (1 - share) + gains[:, low + 1] * share
        price = np.interp(at, np.arange(len(prices)), prices)
        net = between - price[:, None, None] * costs
        net = np.where(gains[:, :1] > 0, net, -np.inf)
        net[..., 0] = 0.0
        self.action = net.argmax(axis=-1)
        self.costs = costs

    def choices(self, crowd: Crowd, visits: np.ndarray) -> np.ndarray:
        spent = crowd.mean(np.einsum("ps,pqs->pq", visits, self.costs[self.action]))
        within = spent <= crowd.budget
        first = int(within.argmax()) if within.any() else len(spent) - 1
        each = np.eye(len(self.costs))
        if first == 0:
            return each[self.action[:, 0]]
        # Between the last price that is too low and the first that is not, some of each.
        low, high = spent[first], spent[first - 1]
        share = np.clip((crowd.budget - low) / max(high - low, 1e-12), 0, 1)
        return share * each[self.action[:, first - 1]] + (1 - share) * each[self.action[:, first]]


@dataclasses.dataclass(frozen=True, eq=False)
class InShares:
    """By chance: every action by its chances (person, state, action), the odds of acting raised or
    lowered for all alike so that the budget is spent."""

    chances: np.ndarray

    def choices(self, crowd: Crowd, visits: np.ndarray) -> np.ndarray:
        def raised(by: float) -> np.ndarray:
            odds = self.chances.copy()
            odds[..., 1:] *= np.exp(by)
            return odds / odds.sum(axis=-1, keepdims=True)

        def missing(by: float) -> float:
            spent = np.einsum("ps,psa,a->p", visits, raised(by), crowd.costs)
            return float(crowd.mean(spent)) - crowd.budget

        if missing(MOST) <= 0:
            return raised(MOST)
        if missing(-MOST) >= 0:
            return raised(-MOST)
        return raised(root_scalar(missing, bracket=(-MOST, MOST), xtol=1e-6).root)


@dataclasses.dataclass(frozen=True)
class Never:
    """Nothing is done."""

    def choices(self, crowd: Crowd, visits: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.eye(len(crowd.costs))[0], crowd.chances.shape[:3])


def by_worth(
    fit: Fit, features: np.ndarray, rewards: np.ndarray, costs: np.ndarray, seed: int
) -> ByWorth:
    """The rule that the recipe `exact` learns, for people with these features: what acting is
    worth by backward induction, the mean over tables that the fit allows."""
    config, rng = Exact(), np.random.default_rng(seed)
    ahead = (1 - config.discount**config.horizon) / (1 - config.discount)
    prices = PRICES * np.ptp(rewards) * ahead / costs[costs > 0].min()
    known, fixed = fit.terms(features), [jnp.asarray(x, jnp.float32) for x in (rewards, costs)]
    fixed.append(jnp.asarray(prices, jnp.float32))
    drawn = np.linspace(0, len(fit.draws) - 1, TABLES).astype(int)
    parts = []
    for first in range(0, len(known), AT_ONCE // TABLES):
        part = known[first : first + AT_ONCE // TABLES]
        shape = [fit.kappas[d] * np.maximum(tables(fit.draws[d], part), LEAST) for d in drawn]
        table = jnp.asarray(dirichlet(rng, np.stack(shape)), jnp.float32)
        parts.append(np.asarray(_mean_gains(table, *fixed), float))
    return ByWorth(np.concatenate(parts), prices, costs)


@jax.jit
def _mean_gains(
    table: Float[Array, "draw arm state act state"],
    rewards: Float[Array, "state"],
    costs: Float[Array, "act"],
    prices: Float[Array, "price"],
) -> Float[Array, "arm price state act"]:
    config = Exact()
    one = lambda table: worths(config, table, rewards, costs, prices)  # noqa: E731
    worth = jax.vmap(jax.vmap(one))(table).mean(axis=0)
    return worth - worth[..., :1]
