"""What people who were not learned from say about a rule: a doubly robust score for each of them.
`gain` explains the method."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from prefermab.programme.logs.fitting import Fit, fit_log
from prefermab.programme.logs.population import (
    PassiveRule,
    Population,
    RandomRule,
    Rule,
    RuleValue,
    Units,
    evaluate_rule,
    learned_rule,
)
from prefermab.programme.logs.reading import LogTransitions

GAIN_DRAWS = 64
"""Posterior draws of each fit."""

RAREST = 0.01
"""Lower limit of the log's propensities, so that no transition counts for more than a hundred."""

MOST_LIKELIER = 5.0
"""Limit on how many times likelier a rule makes a state than the log did."""


@dataclasses.dataclass(frozen=True, eq=False)
class MeasuredPeople:
    """Measured people, in all arrays but the last two one number for each."""

    scores: Mapping[str, np.ndarray]
    """By rule: what was predicted, corrected by what came."""
    predicted: Mapping[str, np.ndarray]
    weight: np.ndarray
    values: list[float]
    """Of the learned rules, by the fit to everybody."""
    acted: np.ndarray
    """How much what followed actions on this person counts."""
    spent: float
    """What the model spends, in all and where the log almost never acted."""
    unseen: float
    ratio: np.ndarray
    """The weight of each transition under an action, and what came beyond the prediction."""
    residual: np.ndarray


def measure_part(
    units: Units, everybody: Population, part: np.ndarray, last: int, rounds: int, seed: int
) -> MeasuredPeople:
    """The rule learned from the parts before `last`, measured on the people of that part."""
    log, moves = units.log, units.transitions
    fit = fit_log(log, GAIN_DRAWS, seed, moves.where(part[moves.person] < last))
    rules = compared_rules(units, fit, seed)
    population = units.population(fit.chances(log.profiles), everybody.budget)
    values = {name: evaluate_rule(population, rule, rounds) for name, rule in rules.items()}
    spent = float(log.labels.costs[moves.action].mean())
    logged = evaluate_rule(dataclasses.replace(population, budget=spent), rules["before"], rounds)
    scores = _score(units, values, logged, np.flatnonzero(part[units.person] == last))
    value = float(everybody.mean(evaluate_rule(everybody, rules["model"], rounds).earned()))
    return dataclasses.replace(scores, values=[value])


def compared_rules(units: Units, fit: Fit, seed: int) -> dict[str, Rule]:
    """What a fit teaches, and what it is compared with."""
    log, moves, labels = units.log, units.transitions, units.log.labels
    model = learned_rule(fit, log.profiles, labels.rewards, labels.costs, seed)
    model.action = model.action[units.profile]
    shares = np.bincount(moves.action, minlength=log.shape[1]) / max(len(moves), 1)
    return {
        "model": model,
        "before": RandomRule(units.propensity),
        "random": RandomRule(np.broadcast_to(shares, units.propensity.shape)),
        "none": PassiveRule(),
    }


def _score(
    units: Units, values: Mapping[str, RuleValue], logged: RuleValue, chosen: np.ndarray
) -> MeasuredPeople:
    """The scores of the people of these units."""
    in_part = np.isin(units.unit, chosen)
    moves, unit = units.transitions.where(in_part), units.unit[in_part]
    people, place = np.unique(units.person[chosen], return_inverse=True)
    where = np.full(len(units.person), -1)
    where[chosen] = place
    scores, predicted, residuals = {}, {}, {}
    for name, rule in values.items():
        weights = _weights(rule, logged, units, values["model"])
        ratio, residual = residuals[name] = _residuals(rule, weights, units, moves, unit)
        predicted[name] = np.bincount(place, (units.weight * rule.earned())[chosen], len(people))
        correction = np.bincount(where[unit], (ratio * residual).sum(axis=0), len(people))
        scores[name] = predicted[name] + correction
    ratio, residual = residuals["model"]
    costs, model = units.log.labels.costs, values["model"]
    spending = (model.visits[..., None] * model.choices * costs)[:, chosen]
    spending = spending.sum(axis=0) * units.weight[chosen, None, None]
    rare = units.propensity[chosen] < RAREST
    acted, total = moves.action > 0, np.maximum(ratio.sum(axis=0), 0)
    return MeasuredPeople(
        scores,
        predicted,
        np.bincount(place, units.weight[chosen], len(people)),
        [],
        np.bincount(where[unit[acted]], total[acted], len(people)),
        float(spending.sum()),
        float(spending[rare].sum()),
        total[acted],
        np.where(total > 0, (ratio * residual).sum(axis=0) / np.maximum(total, 1e-12), 0)[acted],
    )


def _weights(rule: RuleValue, logged: RuleValue, units: Units, predicted: RuleValue) -> np.ndarray:
    """(round, unit, state, action): how many times likelier a rule makes a state and action than
    the log did, halfway to the nearest weights that are a constant for each state and action plus a
    slope for each action in the effect that is `predicted`."""
    propensity = np.maximum(units.propensity, RAREST)
    likelier = np.clip(rule.visits / np.maximum(logged.visits, 1e-9), 0, MOST_LIKELIER)
    weights = likelier[..., None] * rule.choices / propensity
    effect = predicted.action_value - predicted.action_value[..., :1]
    effect[..., 0] = effect[..., 1:].max(axis=-1)
    seen = np.maximum(logged.visits[..., None] * propensity * units.weight[:, None, None], 1e-12)

    def mean(each: np.ndarray) -> np.ndarray:
        return (seen * each).sum(axis=1, keepdims=True) / seen.sum(axis=1, keepdims=True)

    constant, along = mean(weights), effect - mean(effect)
    size = (seen * along**2).sum(axis=(1, 2), keepdims=True)
    slope = (seen * along * weights).sum(axis=(1, 2), keepdims=True) / np.maximum(size, 1e-12)
    return (weights + constant + slope * along) / 2


def _residuals(
    rule: RuleValue, weights: np.ndarray, units: Units, moves: LogTransitions, unit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(round, transition): the weight of each transition, and what came beyond the prediction."""
    at, rewards = (unit, moves.state), units.log.labels.rewards
    came = rewards[moves.following] + rule.value[1:][:, unit, moves.following]
    predicted = rule.action_value[:, *at, moves.action]
    return weights[:, *at, moves.action], came - predicted


def join_parts(parts: list[MeasuredPeople]) -> MeasuredPeople:
    """All parts of an order."""

    def together(name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in parts])

    def by_rule(each: list[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        return {name: np.concatenate([one[name] for one in each]) for name in each[0]}

    return MeasuredPeople(
        by_rule([part.scores for part in parts]),
        by_rule([part.predicted for part in parts]),
        together("weight"),
        [value for part in parts for value in part.values],
        together("acted"),
        sum(part.spent for part in parts),
        sum(part.unseen for part in parts),
        together("ratio"),
        together("residual"),
    )
