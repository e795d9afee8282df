"""Decision rules in the limit of a very large population: the expected states, actions and rewards
of each round.

With very many people, the budget connects them through a price only. So a rule gives a probability
to each action for each person and state, and its expected reward is an exact sum instead of a
simulation.
"""

import dataclasses
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.optimize import root_scalar

from prefermab.programme.logs.fitting import Fit, Terms, transition_tables
from prefermab.programme.logs.reading import Log, LogTransitions
from prefermab.programme.logs.shrinkage import (
    LEAST_PROBABILITY,
    dirichlet,
    log_probabilities,
    posterior_mode,
)
from prefermab.recipes import Exact

TABLES_PER_PERSON = 12
"""Number of posterior transition tables per person over which the value of acting is averaged."""

PRICE_SHARES = np.concatenate([[0.0], np.geomspace(0.02, 1.0, 11)])
"""Prices at which the value of acting is computed, as shares of the highest price."""

FINER = 8
"""Number of interpolation steps between two of these prices."""

FIRST_LOG_ODDS, MOST_LOG_ODDS = 0.5, 12.0
"""Shifts of the log-odds of acting: the range that is searched first, and the largest range."""

TABLES_AT_ONCE = 1 << 15
"""About how many transition tables are computed together."""


@dataclasses.dataclass(frozen=True, eq=False)
class Population:
    """A population: transition probabilities (person, state, action, next state), probabilities of
    the first state (person, state), the weight of each person, rewards, costs, and the mean budget
    per person and round."""

    chances: np.ndarray
    start: np.ndarray
    weight: np.ndarray
    rewards: np.ndarray
    costs: np.ndarray
    budget: float

    def mean(self, each: np.ndarray) -> np.ndarray:
        """The weighted mean over people, the first axis."""
        return np.asarray(np.tensordot(self.weight, each, axes=(0, 0)) / self.weight.sum())


@runtime_checkable
class Rule(Protocol):
    """A decision rule."""

    def choices(self, population: Population, visits: np.ndarray) -> np.ndarray:
        """(person, state, action): the probability of each action, if people are in the states with
        the probabilities `visits` (person, state)."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class RuleValue:
    """Some rounds under a rule: `visits` (round, person, state) and `choices` (round, person,
    state, action) are probabilities of states and actions. `action_value` (round, person, state,
    action) is the expected reward of an action and all later rounds, `value` (round, person, state)
    that of a state. `value` has one more round at the end, which is 0."""

    visits: np.ndarray
    choices: np.ndarray
    action_value: np.ndarray
    value: np.ndarray

    def earned(self) -> np.ndarray:
        """(person,): the expected reward over all rounds."""
        return (self.visits[0] * self.value[0]).sum(axis=1)


def evaluate_rule(population: Population, rule: Rule, rounds: int) -> RuleValue:
    """Evaluates a rule: states and actions by forward recursion, values by backward recursion."""
    visits, choices, here = [], [], population.start
    for _ in range(rounds):
        chosen = rule.choices(population, here)
        visits.append(here)
        choices.append(chosen)
        here = np.einsum("psa,psat->pt", here[..., None] * chosen, population.chances)
    value, action_value = [np.zeros_like(population.start)], []
    for chosen in reversed(choices):
        ahead = population.rewards + value[-1]
        action_value.append(np.einsum("psat,pt->psa", population.chances, ahead))
        value.append((chosen * action_value[-1]).sum(axis=2))
    parts = (visits, choices, action_value[::-1], value[::-1])
    return RuleValue(*(np.stack(part) for part in parts))


class PriceRule:
    """The rule of a model: the action with the largest gain less price times cost, at the lowest
    price at which the budget suffices. Actions without a gain at price 0 are never taken.

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

    def choices(self, population: Population, visits: np.ndarray) -> np.ndarray:
        spent = population.mean(np.einsum("ps,pqs->pq", visits, self.costs[self.action]))
        within = spent <= population.budget
        first = int(within.argmax()) if within.any() else len(spent) - 1
        each = np.eye(len(self.costs))
        if first == 0:
            return each[self.action[:, 0]]
        # Mix the last price that is too low with the first that is not, so that the budget is
        # spent.
        low, high = spent[first], spent[first - 1]
        share = np.clip((population.budget - low) / max(high - low, 1e-12), 0, 1)
        return share * each[self.action[:, first - 1]] + (1 - share) * each[self.action[:, first]]


@dataclasses.dataclass(frozen=True, eq=False)
class RandomRule:
    """Random choice with the probabilities (person, state, action) of a log. The log-odds of acting
    are shifted by the same number for everybody, so that the budget is spent."""

    chances: np.ndarray

    def choices(self, population: Population, visits: np.ndarray) -> np.ndarray:
        def shifted(by: float) -> np.ndarray:
            odds = self.chances.copy()
            odds[..., 1:] *= np.exp(by)
            return odds / odds.sum(axis=-1, keepdims=True)

        def overspent(by: float) -> float:
            spent = np.einsum("ps,psa,a->p", visits, shifted(by), population.costs)
            return float(population.mean(spent)) - population.budget

        for most in (FIRST_LOG_ODDS, MOST_LOG_ODDS):
            if overspent(-most) < 0 < overspent(most):
                return shifted(root_scalar(overspent, bracket=(-most, most), xtol=1e-6).root)
        return shifted(MOST_LOG_ODDS if overspent(MOST_LOG_ODDS) <= 0 else -MOST_LOG_ODDS)


@dataclasses.dataclass(frozen=True)
class PassiveRule:
    """The rule that acts on nobody."""

    def choices(self, population: Population, visits: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.eye(len(population.costs))[0], population.chances.shape[:3])


def learned_rule(
    fit: Fit, features: np.ndarray, rewards: np.ndarray, costs: np.ndarray, seed: int
) -> PriceRule:
    """The rule that the recipe `exact` teaches a network, for people with these features: the value
    of acting by backward induction, averaged over posterior transition tables. It is computed
    directly; no network is trained."""
    config, rng = Exact(), np.random.default_rng(seed)
    ahead = (1 - config.discount**config.horizon) / (1 - config.discount)
    prices = PRICE_SHARES * np.ptp(rewards) * ahead / costs[costs > 0].min()
    known, fixed = fit.terms(features), [jnp.asarray(x, jnp.float32) for x in (rewards, costs)]
    fixed.append(jnp.asarray(prices, jnp.float32))
    drawn = np.linspace(0, len(fit.draws) - 1, TABLES_PER_PERSON).astype(int)
    parts = []
    for first in range(0, len(known), TABLES_AT_ONCE // TABLES_PER_PERSON):
        part = known[first : first + TABLES_AT_ONCE // TABLES_PER_PERSON]
        concentration = [
            fit.kappas[d] * np.maximum(transition_tables(fit.draws[d], part), LEAST_PROBABILITY)
            for d in drawn
        ]
        table = jnp.asarray(dirichlet(rng, np.stack(concentration)), jnp.float32)
        parts.append(np.asarray(_mean_gains(table, *fixed), float))
    return PriceRule(np.concatenate(parts), prices, costs)


@jax.jit
def _mean_gains(
    table: Float[Array, "draw arm state act state"],
    rewards: Float[Array, "state"],
    costs: Float[Array, "act"],
    prices: Float[Array, "price"],
) -> Float[Array, "arm price state act"]:
    lessons = Exact().lessons
    one = lambda table: lessons.worths(table, rewards, costs, prices)  # noqa: E731
    worth = jax.vmap(jax.vmap(one))(table).mean(axis=0)
    return worth - worth[..., :1]


@dataclasses.dataclass(frozen=True, eq=False)
class Units:
    """The people of a log. A unit is a person with one profile, that is, with the same features;
    most people are one unit. `weight` (unit,) is the number of transitions, and `propensity` (unit,
    state, action) the estimated probability with which the log took each action."""

    log: Log
    transitions: LogTransitions
    unit: np.ndarray
    """(transition,): the unit of each transition."""
    person: np.ndarray
    profile: np.ndarray
    start: np.ndarray
    """(unit, state): the shares of the unit's rounds in each state."""
    weight: np.ndarray
    propensity: np.ndarray

    @classmethod
    def from_transitions(cls, log: Log, transitions: LogTransitions) -> "Units":
        """The units of these transitions."""
        n_states = log.shape[0]
        own = transitions.person * len(log.profiles) + transitions.profile
        which, unit = np.unique(own, return_inverse=True)
        person, profile = np.divmod(which, len(log.profiles))
        visits = np.zeros((len(which), n_states))
        np.add.at(visits, (unit, transitions.state), 1.0)
        weight = visits.sum(axis=1)
        propensity = estimate_propensity(log, transitions)[profile]
        start = visits / weight[:, None]
        return cls(log, transitions, unit, person, profile, start, weight, propensity)

    def population(self, chances: np.ndarray, budget: float) -> Population:
        """The units as a population with the transition probabilities `chances` (profile, state,
        action, next state)."""
        labels = self.log.labels
        return Population(
            chances[self.profile], self.start, self.weight, labels.rewards, labels.costs, budget
        )


def estimate_propensity(log: Log, transitions: LogTransitions) -> np.ndarray:
    """(profile, state, action): the probability with which the log took each action, estimated by
    multinomial logistic regression on state and features, with a ridge penalty."""
    n_states, n_actions, _ = log.shape
    known = Terms.from_features(log.columns, log.features, log.profiles)(log.profiles)[:, 1:]

    def design(profile: np.ndarray, state: np.ndarray) -> np.ndarray:
        return np.concatenate([np.eye(n_states)[state], known[profile]], axis=1)

    rows = design(transitions.profile, transitions.state)
    start = np.zeros((n_actions - 1, rows.shape[1]))
    taken = np.eye(n_actions)[transitions.action]
    fit = posterior_mode(rows, taken, np.full(rows.shape[1], 1.0), start)
    everybody = np.arange(len(log.profiles))
    each = [
        np.exp(log_probabilities(design(everybody, np.full(len(known), state)), fit.mean))
        for state in range(n_states)
    ]
    return np.stack(each, axis=1)
