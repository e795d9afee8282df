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
and action than the log did (`scores`). Where the fit is wrong this corrects it; where the
estimated propensities of the log are wrong the fit is right. One of both has to hold. The weights
are halfway between these and the nearest that are smooth, linear in the predicted effect: few
transitions carry the first, so that they are noisy; the second do not see every error of the fit.

**Averaging.** The estimate is the mean over several random orders. The variance of one order's
estimate is known from its people; the part of it that comes from who happened to be measured is
reduced by averaging (`_corrected`). The rules that were learned on the way are not quite the rule
that all people teach: the variance of their values, by the fit to everybody, is added.

**How much to correct.** Where the log says that acting matters, the fit's own prediction is less
noisy than the corrected one. So the correction is taken in half there, and in full where it is
large or where the fit sees no effect (`_interval`). The standard errors of both count accordingly.

**Hidden causes.** `allocation.hidden_cause_odds` says how strong a hidden cause would have to be to
explain the gain away. `allocation` looks for traces of one, and `verdict` puts everything together.
"""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

from prefermab.programme.intervals import LEVEL, Interval
from prefermab.programme.logs.allocation import hidden_cause_odds
from prefermab.programme.logs.fitting import Fit, fit_log, transition_tables
from prefermab.programme.logs.population import Population, Units, evaluate_rule
from prefermab.programme.logs.reading import Log, LogTransitions
from prefermab.programme.logs.scores import (
    GAIN_DRAWS,
    MeasuredPeople,
    compared_rules,
    join_parts,
    measure_part,
)

PARTS_OF_PEOPLE, FIRST_PARTS = 10, 5
"""Parts that people are cut into, and how many of them are only learned from."""

ORDERS, MOST_TRANSITIONS = 10, 2_000_000
"""Random orders that are averaged, and about how many transitions all of them may read together."""

MOST_BETWEEN, PRIOR_ORDERS = 0.9, 3
"""Limit on the share of an order's variance that averaging may remove; and how many orders the
share counts for that a random sample of people would have, beside what is seen, where the log says
that acting matters. Where it does not, every order learns another rule by chance, and only what is
seen counts."""

PREDICTIONS = 32
"""Posterior draws that say how certain the fit is of the gain that it predicts."""

POWER = 0.8
"""The probability with which a detectable gain is shown."""


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
    gains: Mapping[str, Interval]
    earned: Mapping[str, float]
    unseen: float
    hidden: float | None

    @property
    def gain(self) -> Interval:
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
    transitions: LogTransitions | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> Comparison:
    """What is gained by choosing as a model learned from this log would, with `budget` for a person
    and round on average; `transitions` replace those of the log."""
    units = Units.from_transitions(log, log.transitions if transitions is None else transitions)
    orders = int(np.clip(MOST_TRANSITIONS // max(len(units.transitions), 1), 1, orders))
    people = np.unique(units.person)
    parts = min(PARTS_OF_PEOPLE, len(people))
    fit = fit_log(log, GAIN_DRAWS, seed, units.transitions)
    everybody = units.population(fit.chances(log.profiles), budget)
    doubt = _prediction_errors(units, everybody, fit, rounds, seed)
    found = []
    for order in range(orders):
        rng = np.random.default_rng([seed, order])
        part = np.full(len(log.latest), -1)
        part[rng.permutation(people)] = np.arange(len(people)) % parts
        scores = []
        for last in range(min(FIRST_PARTS, parts - 1), parts):
            scores.append(measure_part(units, everybody, part, last, rounds, seed))
            if progress is not None:
                done = order + (last + 1 - FIRST_PARTS) / (parts - FIRST_PARTS)
                progress(done / orders, "judging")
        found.append(join_parts(scores))
    return _average(found, doubt, fit.acts, len(people), rounds, budget)


def _prediction_errors(
    units: Units, everybody: Population, fit: Fit, rounds: int, seed: int
) -> dict[str, float]:
    """By the other rule: the posterior standard deviation of the gain that the fit predicts."""
    rules, known = compared_rules(units, fit, seed), fit.terms(units.log.profiles)
    earned: dict[str, list[float]] = {name: [] for name in rules}
    for draw in fit.draws[:PREDICTIONS]:
        chances = transition_tables(draw, known)[units.profile]
        population = dataclasses.replace(everybody, chances=chances)
        for name, rule in rules.items():
            value = population.mean(evaluate_rule(population, rule, rounds).earned())
            earned[name].append(float(value))
    gains = {name: np.subtract(earned["model"], each) for name, each in earned.items()}
    return {name: float(gain.std()) for name, gain in gains.items()}


def _average(
    found: list[MeasuredPeople],
    doubt: Mapping[str, float],
    acts: float,
    people: int,
    rounds: int,
    budget: float,
) -> Comparison:
    """The gains over all orders."""
    measured = len(found[0].weight)
    gains = {
        name: _interval(found, name, measured / people, doubt[name], acts)
        for name in ("before", "random", "none")
    }
    model = float(np.mean([one.scores["model"].sum() / one.weight.sum() for one in found]))
    earned = {"model": model, **{name: model - gain.estimate for name, gain in gains.items()}}
    spent, unseen = (sum(getattr(one, name) for one in found) for name in ("spent", "unseen"))
    first, gain = found[0], gains["before"].estimate
    odds = hidden_cause_odds(first.ratio, first.residual, first.weight.sum(), gain)
    return Comparison(
        rounds, budget, measured, gains, earned, unseen / spent if spent else 0.0, odds
    )


def _interval(
    found: list[MeasuredPeople], over: str, share: float, doubt: float, acts: float
) -> Interval:
    """The gain over a rule, and its interval, where each order measures a `share` of all people,
    the fit predicts the gain with the standard error `doubt` and says that acting matters with the
    probability `acts`."""
    predicted = np.mean(
        [(one.predicted["model"] - one.predicted[over]).sum() / one.weight.sum() for one in found]
    )
    corrected, variance = _corrected(found, over, share, PRIOR_ORDERS * acts)
    choosing = float(np.var([value for one in found for value in one.values]))
    error, doubt = np.sqrt(variance + choosing), np.sqrt(doubt**2 + choosing)
    correction = corrected - predicted
    # Half of a correction that is small beside its error, all of one that is large.
    kept = 1 - acts * error**2 / max(2 * error**2 + correction**2, 1e-12)
    estimate, stderr = float(predicted + kept * correction), kept * error + (1 - kept) * doubt
    # Kish's effective number of people: a few of those acted on carry most of the weight.
    effective = [one.acted.sum() ** 2 / max((one.acted**2).sum(), 1e-12) for one in found]
    degrees = max(float(np.mean(effective)) - 1, 1)
    reach = float(student.ppf((1 + LEVEL) / 2, degrees) * stderr)
    return Interval(estimate, estimate - reach, estimate + reach, float(stderr))


def _corrected(
    found: list[MeasuredPeople], over: str, share: float, prior: float
) -> tuple[float, float]:
    """The mean gain over orders with the whole correction, and its variance. The share of it that a
    random sample of people would have counts for `prior` orders."""
    means, variances = [], []
    for one in found:
        scores, weight = one.scores["model"] - one.scores[over], one.weight
        mean, n = scores.sum() / weight.sum(), len(scores)
        apart = scores - mean * weight
        means.append(mean)
        variances.append((apart**2).sum() * n / max(n - 1, 1) / weight.sum() ** 2)
    people, between = float(np.mean(variances)), 1 - share
    # Of the variance of an order's estimate, as much comes from who was drawn as in any sample
    # without replacement, and more where orders learn different rules: what is seen between them.
    if len(means) > 1 and people > 0:
        seen, orders = float(np.var(means, ddof=1)) / people, len(means) - 1
        between = (prior * between + orders * seen) / (prior + orders)
        between = min(between, MOST_BETWEEN)
    return float(np.mean(means)), people * (1 - between * (1 - 1 / len(means)))
