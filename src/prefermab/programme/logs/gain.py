"""What a model gains over what was done before, measured on people it did not learn from.

This is the whole method; `estimate_gain` is its entry.

**The problem.** A way of choosing that was fitted to a log looks good in that log by luck alone: it
takes what happened to go well for what helps. So nobody is used to measure a rule that was learned
from them.

**Parts.** People are put in a random order and cut into ten parts. The rule learned from the first
five parts is measured on the sixth, the rule learned from the first six on the seventh, and so on.
The error of each part is independent of all parts before it, so that errors add up as those of
independent people do. (Cross-fitting, in which parts teach and measure each other, gives correlated
errors where there is no effect, and intervals that are a third too short; see docs/decisions.md.)
What is measured is the rule that the recipe `exact` teaches a network (`population.learned_rule`).

**The estimate for a part** is doubly robust. The fit predicts what the rule earns
(`population.evaluate_rule`). For every transition of the log, the difference between what came and
what the fit predicted is added, times a weight: how many times likelier the rule makes that state
and action than the log did (`_residuals`). Where the fit is wrong this corrects it; where the
estimated propensities of the log are wrong the fit is right. One of both has to hold.

**Averaging.** The estimate is the mean over several random orders. The variance of one order's
estimate is known from its people; the part of it that comes from who happened to be measured is
reduced by averaging (`_interval`). The rules that were learned on the way are not quite the rule
that all people teach: the variance of their values, by the fit to everybody, is added.

**Hidden causes.** `_hidden_cause_odds` says how strong a hidden cause would have to be to explain
the gain away (the Γ of Tan's sensitivity model). `allocation` looks for traces of one, and
`verdict` puts everything together.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

from prefermab.programme.logs.fitting import fit_log
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
from prefermab.programme.logs.reading import Log, Transitions

PARTS, FIRST = 10, 5
"""Parts that people are cut into, and how many of them are only learned from."""

ORDERS, MOST_TRANSITIONS = 10, 2_000_000
"""Random orders that are averaged, and about how many transitions all of them may read together."""

DRAWS = 64
"""Posterior draws of each fit."""

RAREST = 0.01
"""Lower limit of the log's propensities, so that no transition counts for more than a hundred."""

MOST_LIKELIER = 5.0
"""Limit on how many times likelier a rule makes a state than the log did."""

MOST_BETWEEN = 0.9
"""Limit on the share of an order's variance that averaging may remove."""

LEVEL = 0.90
POWER = 0.8
"""Level of the interval, and the probability with which a detectable gain is shown."""


@dataclasses.dataclass(frozen=True)
class Gain:
    """More reward per person over some rounds, with a 90 % interval."""

    estimate: float
    low: float
    high: float
    stderr: float

    @property
    def shown(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A rule that was learned from a log, compared with others of the same budget.

    `gains` are by name of the other: `before` (as chosen in the log), `random` and `none`; `earned`
    is the reward per person by each and by the `model`. `people` is how many were measured.
    `unseen` is the share of the model's spending that goes where the log almost never acted.
    `hidden` is by how many times a hidden cause, which also decides all that follows, would have to
    change the odds of being acted on to bring the gain over `before` to 0.
    """

    rounds: int
    budget: float
    people: int
    gains: Mapping[str, Gain]
    earned: Mapping[str, float]
    unseen: float
    hidden: float | None

    @property
    def gain(self) -> Gain:
        """Over what was done before."""
        return self.gains["before"]

    @property
    def detectable(self) -> float:
        """The smallest gain that a log like this would show in four of five cases."""
        half_width = (self.gain.high - self.gain.low) / 2
        return half_width + float(norm.ppf(POWER)) * self.gain.stderr


@threadpool_limits.wrap(limits=1, user_api="blas")
def estimate_gain(
    log: Log,
    budget: float,
    rounds: int,
    seed: int = 0,
    orders: int = ORDERS,
    transitions: Transitions | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Comparison:
    """What is gained by choosing as a model learned from this log would, with `budget` for a person
    and round on average; `transitions` replace those of the log."""
    units = Units.from_transitions(log, log.transitions if transitions is None else transitions)
    orders = int(np.clip(MOST_TRANSITIONS // max(len(units.transitions), 1), 1, orders))
    people = np.unique(units.person)
    parts = min(PARTS, len(people))
    fit = fit_log(log, DRAWS, seed, units.transitions)
    everybody = units.population(fit.chances(log.profiles), budget)
    found = []
    for order in range(orders):
        rng = np.random.default_rng([seed, order])
        part = np.full(len(log.latest), -1)
        part[rng.permutation(people)] = np.arange(len(people)) % parts
        scores = []
        for last in range(min(FIRST, parts - 1), parts):
            scores.append(_measure_part(units, everybody, part, last, rounds, seed))
            if progress is not None:
                done = order + (last + 1 - FIRST) / (parts - FIRST)
                progress(done / orders, "judging")
        found.append(_join(scores))
    return _average(found, len(people), rounds, budget)


@dataclasses.dataclass(frozen=True, eq=False)
class Scores:
    """Measured people: `scores` by rule, one for each person, and the weight of each; `values` of
    the learned rules by the fit to everybody; how many were acted on; what the model spends, in all
    and where the log almost never acted; and for each transition under an action its weight
    (`ratio`) and what came beyond the prediction (`residual`)."""

    scores: Mapping[str, np.ndarray]
    weight: np.ndarray
    values: list[float]
    acted: int
    spent: float
    unseen: float
    ratio: np.ndarray
    residual: np.ndarray


def _measure_part(
    units: Units, everybody: Population, part: np.ndarray, last: int, rounds: int, seed: int
) -> Scores:
    """The rule learned from the parts before `last`, measured on the people of that part."""
    log, moves = units.log, units.transitions
    fit = fit_log(log, DRAWS, seed, moves.where(part[moves.person] < last))
    chances, labels = fit.chances(log.profiles), log.labels
    model = learned_rule(fit, log.profiles, labels.rewards, labels.costs, seed)
    model.action = model.action[units.profile]
    shares = np.bincount(moves.action, minlength=log.shape[1]) / max(len(moves), 1)
    rules: dict[str, Rule] = {
        "model": model,
        "before": RandomRule(units.propensity),
        "random": RandomRule(np.broadcast_to(shares, units.propensity.shape)),
        "none": PassiveRule(),
    }
    population = dataclasses.replace(everybody, chances=chances[units.profile])
    values = {name: evaluate_rule(population, rule, rounds) for name, rule in rules.items()}
    spent = float(labels.costs[moves.action].mean())
    logged = evaluate_rule(dataclasses.replace(population, budget=spent), rules["before"], rounds)
    scores = _score(units, values, logged, np.flatnonzero(part[units.person] == last))
    value = float(everybody.mean(evaluate_rule(everybody, model, rounds).earned()))
    return dataclasses.replace(scores, values=[value])


def _score(
    units: Units, values: Mapping[str, RuleValue], logged: RuleValue, chosen: np.ndarray
) -> Scores:
    """The scores of the people of these units."""
    in_part = np.isin(units.unit, chosen)
    moves, unit = units.transitions.where(in_part), units.unit[in_part]
    people, place = np.unique(units.person[chosen], return_inverse=True)
    where = np.full(len(units.person), -1)
    where[chosen] = place
    scores, residuals = {}, {}
    for name, rule in values.items():
        ratio, residual = residuals[name] = _residuals(rule, logged, units, moves, unit)
        own = np.bincount(where[unit], (ratio * residual).sum(axis=0), len(people))
        own += np.bincount(place, (units.weight * rule.earned())[chosen], len(people))
        scores[name] = own
    ratio, residual = residuals["model"]
    costs, model = units.log.labels.costs, values["model"]
    spending = (model.visits[..., None] * model.choices * costs)[:, chosen]
    spending = spending.sum(axis=0) * units.weight[chosen, None, None]
    rare = units.propensity[chosen] < RAREST
    acted, total = moves.action > 0, ratio.sum(axis=0)
    return Scores(
        scores,
        np.bincount(place, units.weight[chosen], len(people)),
        [],
        len(np.unique(moves.person[acted])),
        float(spending.sum()),
        float(spending[rare].sum()),
        total[acted],
        ((ratio * residual).sum(axis=0) / np.maximum(total, 1e-12))[acted],
    )


def _residuals(
    rule: RuleValue, logged: RuleValue, units: Units, moves: Transitions, unit: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(round, transition): how many times likelier a rule makes a transition's state and action
    than the log did, and what came beyond the prediction."""
    at, rewards = (unit, moves.state), units.log.labels.rewards
    propensity = np.maximum(units.propensity, RAREST)
    likelier = rule.visits / np.maximum(logged.visits, 1e-9)
    likelier = np.clip(likelier, 0, MOST_LIKELIER)[:, *at]
    ratio = likelier * rule.choices[:, *at, moves.action] / propensity[*at, moves.action]
    came = rewards[moves.following] + rule.value[1:][:, unit, moves.following]
    return ratio, came - rule.action_value[:, *at, moves.action]


def _join(parts: list[Scores]) -> Scores:
    """All parts of an order."""
    together = lambda name: np.concatenate([getattr(part, name) for part in parts])  # noqa: E731
    return Scores(
        {name: np.concatenate([part.scores[name] for part in parts]) for name in parts[0].scores},
        together("weight"),
        [value for part in parts for value in part.values],
        sum(part.acted for part in parts),
        sum(part.spent for part in parts),
        sum(part.unseen for part in parts),
        together("ratio"),
        together("residual"),
    )


def _average(found: list[Scores], people: int, rounds: int, budget: float) -> Comparison:
    """The gains over all orders."""
    share = len(found[0].weight) / people
    gains = {
        name: _interval([one.scores["model"] - one.scores[name] for one in found], found, share)
        for name in ("before", "random", "none")
    }
    earned = {
        name: float(np.mean([one.scores[name].sum() / one.weight.sum() for one in found]))
        for name in found[0].scores
    }
    spent, unseen = (sum(getattr(one, name) for one in found) for name in ("spent", "unseen"))
    return Comparison(
        rounds,
        budget,
        len(found[0].weight),
        gains,
        earned,
        unseen / spent if spent else 0.0,
        _hidden_cause_odds(found[0], gains["before"].estimate),
    )


def _interval(differences: list[np.ndarray], found: list[Scores], share: float) -> Gain:
    """The mean over orders, each of which measures a `share` of all people, and its interval."""
    means, variances = [], []
    for scores, weight in zip(differences, (one.weight for one in found), strict=True):
        mean = scores.sum() / weight.sum()
        apart, n = scores - mean * weight, len(scores)
        means.append(mean)
        variances.append((apart**2).sum() * n / max(n - 1, 1) / weight.sum() ** 2)
    people, between = float(np.mean(variances)), 1 - share
    # An order measures a random share of all people: of the variance of its estimate, as much comes
    # from who was drawn as in any sample without replacement, and more where orders learn different
    # rules. What is seen between few orders is noisy: the mean of both.
    if len(means) > 1 and people > 0:
        between = min((between + float(np.var(means, ddof=1)) / people) / 2, MOST_BETWEEN)
    variance = people * (1 - between * (1 - 1 / len(means)))
    variance += float(np.var([value for one in found for value in one.values]))
    stderr, estimate = float(np.sqrt(variance)), float(np.mean(means))
    degrees = max(int(np.mean([one.acted for one in found])) - 1, 1)
    reach = float(student.ppf((1 + LEVEL) / 2, degrees)) * stderr
    return Gain(estimate, estimate - reach, estimate + reach, stderr)


def _hidden_cause_odds(scores: Scores, gain: float) -> float | None:
    """By how many times a hidden cause must change the odds of being acted on to undo a gain: the
    least Γ of Tan's sensitivity model (2006) at which weights that may be Γ times larger or
    smaller, put on the worst, remove it."""
    whole = scores.weight.sum()
    if gain <= 0 or not scores.ratio.sum():
        return None
    order = np.argsort(scores.residual)
    ratio, residual = scores.ratio[order], scores.residual[order]
    mean = ratio @ residual / ratio.sum()

    def lost(gamma: float) -> float:
        # The worst weights are large up to some place in the order and small beyond it.
        large, small = np.cumsum(ratio) * gamma, (ratio.sum() - np.cumsum(ratio)) / gamma
        up, down = np.cumsum(ratio * residual) * gamma, np.cumsum((ratio * residual)[::-1])[::-1]
        down = np.append(down[1:], 0.0) / gamma
        return (mean - ((up + down) / (large + small)).min()) * ratio.sum() / whole

    low, high = 1.0, 100.0
    if lost(high) < gain:
        return high
    for _ in range(30):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if lost(middle) > gain else (middle, high)
    return float(high)
