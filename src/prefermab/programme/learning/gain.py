"""The gain of a learned model over what was done before: a doubly robust estimate with sample
splitting.

`estimate_gain` is the entry point; this text describes the whole method.

**Estimand.** The expected reward per person over some rounds under the rule that a model learned
from this log follows, less that under the log's own way of choosing, for the same budget per person
and round. People start in the states in which the log shows them. The rule is the one that the
recipe `exact` teaches a network (`population.learned_rule`).

**Assumptions.** There is no unmeasured confounding: given states and features, actions do not
depend on anything else that also moves the state. The next state depends on the present state, the
action and the features only. People do not influence each other.

**Sample splitting.** A rule looks too good on the data that it was learned from. So no rule is
measured on people whom it was learned from. People are put in a random order and cut into ten
parts. The rule learned from the first five parts is measured on the sixth, the rule learned from
the first six on the seventh, and so on. Given the parts before it, the error of each part has mean
0, so that the variances of the parts add up like those of independent people. Cross-fitting, in
which each part is measured with all others, gave correlated errors where there is no effect, and
intervals a third too short (docs/decisions/logs.md).

**The estimate for a part** is doubly robust. The fit predicts the reward of the rule
(`population.evaluate_rule`). The residuals of all transitions are added, each times an importance
weight: the probability of its state and action under the rule, divided by that in the log
(`scores`). Propensities are estimated by logistic regression. With these weights the estimate is
consistent if either the fit or the propensities are correct. Few transitions have most of the
weight, which makes it noisy. So weights are averaged with their least-squares projection on
functions that are linear in the predicted effect; these are smoother, but do not correct every
error of the fit.

**Averaging.** The estimate is the mean over several random orders. The variance of one order's
estimate follows from its people. Averaging reduces the part of the variance that comes from the
choice of the measured people (`_corrected`). The rules learned from fewer people differ from the
rule learned from all people: the variance of their values, by the fit to all people, is added.

**Shrinking the correction.** Where the log shows an effect of acting, the prediction of the fit has
a smaller error than the corrected estimate. There, only half of a small correction is applied. All
of it is applied where it is large compared with its standard error, or where the fit sees no effect
(`_interval`). The standard error is averaged with the same shares.

**Hidden causes.** `allocation.hidden_cause_odds` is a sensitivity analysis: how strong a hidden
cause would have to be to remove the gain. `allocation` tests for traces of one, and `verdict`
combines everything.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

from prefermab.common.intervals import LEVEL, Interval
from prefermab.programme.learning.scores import (
    GAIN_DRAWS,
    MeasuredPeople,
    compared_rules,
    join_parts,
    measure_part,
)
from prefermab.programme.logs.allocation import hidden_cause_odds
from prefermab.programme.logs.fitting import Fit, fit_log, transition_tables
from prefermab.programme.logs.population import Population, Units, evaluate_rule
from prefermab.programme.logs.reading import Log, LogTransitions

PARTS_OF_PEOPLE, FIRST_PARTS = 10, 5
"""Number of parts of the people, and how many of them are used for learning only."""

ORDERS, MOST_TRANSITIONS = 10, 2_000_000
"""Number of random orders that are averaged, and about how many transitions they may read in total:
large logs have fewer orders."""

MOST_BETWEEN, PRIOR_ORDERS = 0.9, 3
"""Largest share of an order's variance that averaging may remove; and the weight, in orders, of the
prior for this share. The prior is the share for a random sample of people without replacement. Its
weight is multiplied by the probability that acting has an effect: without an effect every order
learns a different rule by chance, and only the observed variance between orders counts."""

PREDICTION_DRAWS = 32
"""Posterior draws for the standard error of the gain that the fit predicts."""

POWER = 0.8
"""The power for which `Comparison.detectable` is computed."""


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A rule that was learned from a log, compared with other rules of the same budget.

    `gains` has the gain over each of the others: `before` (as chosen in the log), `random` and
    `none`. `earned` is the reward per person under each of them and under the `model`. `people` is
    the number of people measured in one order. `untried` is the share of the model's spending on
    people and states in which the log almost never acted. `hidden_cause` is the factor by which a
    hidden cause would have to change the odds of being acted on to bring the gain over `before` to
    0, if it also determined the outcome.
    """

    rounds: int
    budget: float
    people: int
    gains: Mapping[str, Interval]
    earned: Mapping[str, float]
    untried: float
    hidden_cause: float | None

    @property
    def gain(self) -> Interval:
        """The gain over what was done before."""
        return self.gains["before"]

    @property
    def detectable(self) -> float:
        """The minimum detectable gain: a log like this shows it with a power of 80 %."""
        half_width = (self.gain.high - self.gain.low) / 2
        return half_width + float(norm.ppf(POWER)) * self.gain.stderr


@threadpool_limits.wrap(limits=1, user_api="blas")
def estimate_gain(
    log: Log,
    budget: float,
    rounds: int,
    seed: int = 0,
    orders: int = ORDERS,
    transitions: LogTransitions | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Comparison:
    """Estimates the gain of a model learned from this log, with intervals.

    Args:
        log: The log.
        budget: The mean budget per person and round.
        rounds: The rounds over which rewards are summed.
        seed: Random seed.
        orders: The number of random orders that are averaged; fewer for large logs.
        transitions: Transitions that replace those of the log, for the placebo.
        progress: Called with the share that is done, and a text that says what is being done.

    Returns:
        The gains over the log's own way of choosing, over random choice and over no actions.
    """
    units = Units.from_transitions(log, log.transitions if transitions is None else transitions)
    orders = int(np.clip(MOST_TRANSITIONS // max(len(units.transitions), 1), 1, orders))
    people = np.unique(units.person)
    parts = min(PARTS_OF_PEOPLE, len(people))
    first = min(FIRST_PARTS, parts - 1)
    fit = fit_log(log, GAIN_DRAWS, seed, units.transitions)
    everybody = units.population(fit.chances(log.profiles), budget)
    errors = _prediction_errors(units, everybody, fit, rounds, seed)
    found = []
    for order in range(orders):
        rng = np.random.default_rng([seed, order])
        part = np.full(len(log.latest), -1)
        part[rng.permutation(people)] = np.arange(len(people)) % parts
        scores = []
        for last in range(first, parts):
            scores.append(measure_part(units, everybody, part, last, rounds, seed))
            if progress is not None:
                done = order + (last + 1 - first) / (parts - first)
                progress(done / orders, "judging")
        found.append(join_parts(scores))
    return _average(found, errors, fit.effect_probability, len(people), rounds, budget)


def _prediction_errors(
    units: Units, everybody: Population, fit: Fit, rounds: int, seed: int
) -> dict[str, float]:
    """For each rule: the posterior standard deviation of the model's predicted gain over it."""
    rules, known = compared_rules(units, fit, seed), fit.terms(units.log.profiles)
    earned: dict[str, list[float]] = {name: [] for name in rules}
    for draw in fit.draws[:PREDICTION_DRAWS]:
        chances = transition_tables(draw, known)[units.profile]
        population = dataclasses.replace(everybody, chances=chances)
        for name, rule in rules.items():
            value = population.mean(evaluate_rule(population, rule, rounds).earned())
            earned[name].append(float(value))
    gains = {name: np.subtract(earned["model"], each) for name, each in earned.items()}
    return {name: float(gain.std()) for name, gain in gains.items()}


def _average(
    found: list[MeasuredPeople],
    prediction_errors: Mapping[str, float],
    effect_probability: float,
    people: int,
    rounds: int,
    budget: float,
) -> Comparison:
    """The comparison from all orders."""
    measured = len(found[0].weight)
    gains = {
        name: _interval(found, name, measured / people, prediction_errors[name], effect_probability)
        for name in ("before", "random", "none")
    }
    model = float(np.mean([one.scores["model"].sum() / one.weight.sum() for one in found]))
    earned = {"model": model, **{name: model - gain.estimate for name, gain in gains.items()}}
    spent, untried = (sum(getattr(one, name) for one in found) for name in ("spent", "untried"))
    first, gain = found[0], gains["before"].estimate
    odds = hidden_cause_odds(first.ratio, first.residual, first.weight.sum(), gain)
    return Comparison(
        rounds, budget, measured, gains, earned, untried / spent if spent else 0.0, odds
    )


def _interval(
    found: list[MeasuredPeople],
    over: str,
    share: float,
    prediction_error: float,
    effect_probability: float,
) -> Interval:
    """The gain over a rule, with its interval. Each order measures a `share` of all people.
    `prediction_error` is the standard error of the gain that the fit predicts."""
    predicted = np.mean(
        [(one.predicted["model"] - one.predicted[over]).sum() / one.weight.sum() for one in found]
    )
    corrected, variance = _corrected(found, over, share, PRIOR_ORDERS * effect_probability)
    choosing = float(np.var([value for one in found for value in one.values]))
    error = np.sqrt(variance + choosing)
    prediction_error = np.sqrt(prediction_error**2 + choosing)
    correction = corrected - predicted
    # Half of a correction that is small compared with its error, all of one that is large.
    kept = 1 - effect_probability * error**2 / max(2 * error**2 + correction**2, 1e-12)
    estimate = float(predicted + kept * correction)
    stderr = kept * error + (1 - kept) * prediction_error
    # Degrees of freedom from Kish's effective number of people: a few have most of the weight.
    effective = [one.acted.sum() ** 2 / max((one.acted**2).sum(), 1e-12) for one in found]
    degrees = max(float(np.mean(effective)) - 1, 1)
    reach = float(student.ppf((1 + LEVEL) / 2, degrees) * stderr)
    return Interval(estimate, estimate - reach, estimate + reach, float(stderr))


def _corrected(
    found: list[MeasuredPeople], over: str, share: float, prior: float
) -> tuple[float, float]:
    """The mean gain over orders with the whole correction, and its variance. `prior` is the weight,
    in orders, of the prior for the share of the variance that lies between orders."""
    means, variances = [], []
    for one in found:
        scores, weight = one.scores["model"] - one.scores[over], one.weight
        mean, n = scores.sum() / weight.sum(), len(scores)
        apart = scores - mean * weight
        means.append(mean)
        variances.append((apart**2).sum() * n / max(n - 1, 1) / weight.sum() ** 2)
    people, between = float(np.mean(variances)), 1 - share
    # `between` is the share of the variance that lies between orders: 1 - share for a sample
    # without replacement, more where orders learn different rules. Only this share is averaged.
    if len(means) > 1 and people > 0:
        seen, orders = float(np.var(means, ddof=1)) / people, len(means) - 1
        between = (prior * between + orders * seen) / (prior + orders)
        between = min(between, MOST_BETWEEN)
    return float(np.mean(means)), people * (1 - between * (1 - 1 / len(means)))
