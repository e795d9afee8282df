"""Doubly robust scores of a rule, for each person that it was not learned from. `gain` explains the
method."""

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

LEAST_PROPENSITY = 0.01
"""Lower limit of propensities; the ratio of action probabilities is then at most 100."""

MOST_STATE_RATIO = 5.0
"""Upper limit of the probability of a state under a rule, divided by that in the log."""


@dataclasses.dataclass(frozen=True, eq=False)
class MeasuredPeople:
    """Scores of the measured people. Arrays are (person,), except for the last two."""

    scores: Mapping[str, np.ndarray]
    """For each rule: the predicted reward plus the weighted residuals."""
    predicted: Mapping[str, np.ndarray]
    """For each rule: the predicted reward."""
    weight: np.ndarray
    """The number of transitions of the person."""
    values: list[float]
    """The values of the learned rules, by the fit to all people."""
    acted: np.ndarray
    """The sum of the weights of transitions under an action."""
    spent: float
    """What the model spends."""
    untried: float
    """What it spends on people and states in which the log almost never acted."""
    ratio: np.ndarray
    """(transition,): the weight of each transition under an action."""
    residual: np.ndarray
    """(transition,): its weighted mean residual over rounds."""


def measure_part(
    units: Units, everybody: Population, part: np.ndarray, last: int, rounds: int, seed: int
) -> MeasuredPeople:
    """Learns a rule from the parts before `last`, and scores it on the people of the part
    `last`."""
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
    """The rule learned from a fit, and the rules that it is compared with."""
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
    rare = units.propensity[chosen] < LEAST_PROPENSITY
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
    """(round, unit, state, action): importance weights, averaged with their least-squares
    projection.

    A weight is the probability of a state and action under a rule divided by that in the log. The
    projection of each round is a constant for each state and action plus, for each action, a slope
    in the predicted effect.
    """
    propensity = np.maximum(units.propensity, LEAST_PROPENSITY)
    state_ratio = np.clip(rule.visits / np.maximum(logged.visits, 1e-9), 0, MOST_STATE_RATIO)
    weights = state_ratio[..., None] * rule.choices / propensity
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
    """(round, transition): the weight of each transition, and its residual: the reward plus the
    value of the next state, less the predicted value of the action."""
    at, rewards = (unit, moves.state), units.log.labels.rewards
    observed = rewards[moves.following] + rule.value[1:][:, unit, moves.following]
    predicted = rule.action_value[:, *at, moves.action]
    return weights[:, *at, moves.action], observed - predicted


def join_parts(parts: list[MeasuredPeople]) -> MeasuredPeople:
    """Joins the parts of an order."""

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
        sum(part.untried for part in parts),
        together("ratio"),
        together("residual"),
    )
