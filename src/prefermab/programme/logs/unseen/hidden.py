"""The fit of a log in which most states are empty: the model of `shrinkage`, by the likelihood of
what was seen over all that may have happened in the hidden rounds.

Coefficients, their four scales and the three models of the effect are those of `shrinkage`, with
one more set of coefficients for a person's first state, so that somebody never seen starts from
what people like them are. States are no longer apart: what a table does in one state changes what
is likely to be seen after another. So the posterior is one normal distribution of all coefficients,
by the curvature of the likelihood at its mode. That has the rounds nobody looked at in it: the
longer between two looks, the less is known.

How alike people with the same features are (κ) is weighed by how likely tables drawn for each
person make what was seen of that person.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from threadpoolctl import threadpool_limits

from prefermab.errors import InputError, count
from prefermab.programme.logs.fitting import (
    POSTERIOR_DRAWS,
    Fit,
    Terms,
    by_action,
    draw_models,
    transition_tables,
)
from prefermab.programme.logs.reading import Log
from prefermab.programme.logs.shrinkage import (
    EFFECT_MODELS,
    EXPECTED,
    KAPPAS,
    LEAST_PROBABILITY,
    STRENGTH,
    EffectModel,
    Normal,
    contrasts,
    dirichlet,
    scale_index,
)
from prefermab.programme.logs.unseen.histories import Histories
from prefermab.programme.logs.unseen.likelihood import (
    Batches,
    curvature,
    likelihood_and_slope,
    likelihood_by_table,
)

MOST_COEFFICIENTS = 1500
"""Coefficients of all states together above which their curvature takes too long."""

MOST_FITTING_TURNS = 8
"""Of fitting coefficients and scales in turn."""

STEEPEST = 3e-3
"""Slope at which a fit is done, where the curvature is about 1 in every direction."""

CURVED = 1 << 22
"""Rounds times coefficients that a curvature is worked out from. Where a log has more, it is that
of some of its people, as if the others were like them."""

TABLES_TO_WEIGH, PEOPLE_TO_WEIGH = 64, 1500
"""Tables drawn for each person to weigh κ, and the people that are asked."""


@dataclasses.dataclass(frozen=True, eq=False)
class FittingProblem:
    """What coefficients are fitted to; `some` histories stand for all where the curvature is
    worked out."""

    shape: tuple[int, int, int]
    group: np.ndarray
    """(origin, contrast, input): which scale, -1 where a coefficient means nothing."""
    batches: Batches
    some: Batches

    @classmethod
    def from_log(cls, log: Log, terms: Terms, several: Histories) -> "FittingProblem":
        """The problem that these histories of a log pose."""
        n_states, n_actions, _ = log.shape
        known = terms(log.profiles)
        inputs = scale_index(known.shape[1], n_actions)
        size = (n_states + 1, n_states - 1, len(inputs))
        if np.prod(size) > MOST_COEFFICIENTS:
            raise InputError(
                f"{n_states} states, {n_actions} actions and {known.shape[1] - 1} features need "
                f"{np.prod(size):,} coefficients, more than the {MOST_COEFFICIENTS:,} that can be "
                "learned where most states are empty: join labels or leave out features."
            )
        group = np.broadcast_to(inputs, size).copy()
        group[-1, :, inputs >= 2] = -1
        batches = Batches.from_histories(several, known, n_states)
        most = max(1, CURVED // int(np.prod(size) * several.state.shape[1]))
        some = batches
        if len(several.person) > most:
            chosen = np.random.default_rng(0).permutation(len(several.person))[:most]
            some = Batches.from_histories(several.at(chosen), known, n_states)
        return cls(size, group, batches, some)


@threadpool_limits.wrap(limits=1, user_api="blas")
def fit_hidden(
    log: Log, draws: int = POSTERIOR_DRAWS, seed: int = 0, several: Histories | None = None
) -> Fit:
    """The fit to the histories of a log, or to some of them.

    >>> from prefermab.programme.logs.reading import read_log
    >>> from prefermab.programme.logs.simulated import example_tables, keep_seen
    >>> from prefermab.programme.logs.unseen.hidden import fit_hidden
    >>> frame = keep_seen(example_tables(people=60, weeks=10)[1], "none")
    >>> log = read_log(frame, time="week", passive="none", seen=None,
    ...     rewards={"engaged": 1, "drifting": 0.5, "silent": 0})
    >>> fit_hidden(log, draws=8).draws.shape  # (draw, state, action, next state, term)
    (8, 3, 2, 3, 7)
    """
    number = count(draws, "draws")
    if several is None:
        assert log.histories is not None
        several = log.histories
    terms = Terms.from_features(log.columns, log.features, log.profiles)
    problem = FittingProblem.from_log(log, terms, several)
    whole, scales = _fit_scales(problem)
    models = _effect_models(problem, whole, scales)
    rng = np.random.default_rng(count(seed, "seed", at_least=0))
    n_actions = len(log.labels.actions)
    mean = np.sum([each.weight * each.mean() for each in models], axis=0).reshape(problem.shape)
    drawn = draw_models(models, rng, number).reshape(number, *problem.shape)
    starts = contrasts(log.shape[0]) @ mean[-1, :, : problem.shape[2] // n_actions]
    fit = Fit(
        terms,
        by_action(mean[:-1], n_actions),
        by_action(drawn[:, :-1], n_actions),
        np.ones(number),
        scales,
        1 - models[0].weight,
        starts,
    )
    likely = _kappa_weights(log, fit, several, rng)
    return dataclasses.replace(fit, kappas=rng.choice(KAPPAS, size=number, p=likely))


def _fit_scales(problem: FittingProblem) -> tuple[Normal, np.ndarray]:
    """All coefficients and the scales, fitted in turn."""
    used, scales = problem.group.ravel() >= 0, EXPECTED
    group = problem.group.ravel()[used]
    found = _mode(problem, used, scales[group] ** -2.0, np.zeros(len(group)))
    for _ in range(MOST_FITTING_TURNS):
        size = found.mean.ravel() ** 2
        known = 1 - found.variance().ravel() / scales[group] ** 2
        total, number = (np.bincount(group, each, minlength=4) for each in (size, known))
        last, scales = scales, np.sqrt((total + STRENGTH * EXPECTED**2) / (number + STRENGTH))
        found = _mode(problem, used, scales[group] ** -2.0, found.mean.ravel(), found.factor)
        if np.abs(np.log(scales / last)).max() < 0.05:
            break
    return found, scales


def _effect_models(problem: FittingProblem, whole: Normal, scales: np.ndarray) -> list[EffectModel]:
    """The models of the effect of acting with their posterior weights; prior weights are equal."""
    group, found, scores = problem.group.ravel(), [], []
    at = np.zeros(len(group))
    at[group >= 0] = whole.mean.ravel()
    for n_scales in EFFECT_MODELS:
        used = (group >= 0) & (group < n_scales)
        if found and used.sum() == found[-1][1].sum():
            continue
        precision = scales[group[used]] ** -2.0
        every = used.sum() == len(whole.factor)
        within = used[group >= 0]
        near = cholesky((whole.factor @ whole.factor.T)[np.ix_(within, within)], lower=True)
        own = whole if every else _mode(problem, used, precision, at[used], near)
        narrower = np.log(np.diag(own.factor)).sum() - np.log(precision).sum() / 2
        loss = _loss(problem, used, precision, own.mean.ravel())[0]
        found.append((own, used))
        scores.append(-loss - narrower)
    return [
        EffectModel([own], used, float(weight))
        for (own, used), weight in zip(found, softmax(scores), strict=True)
    ]


def _mode(
    problem: FittingProblem,
    used: np.ndarray,
    precision: np.ndarray,
    start: np.ndarray,
    factor: np.ndarray | None = None,
) -> Normal:
    """The most likely coefficients among those in use, and the curvature there. They are sought in
    directions in which the curvature is about 1: by that of the prior first, then by what is found
    on the way."""
    begun = factor is not None
    factor = factor if begun else np.diag(np.sqrt(precision))
    at = start
    for _ in range(1 if begun else 2):
        back = solve_triangular(factor, np.eye(len(factor)), lower=True, trans=1)

        def sought(along: np.ndarray, at=at, back=back) -> tuple[float, np.ndarray]:
            loss, slope = _loss(problem, used, precision, at + back @ along)
            return loss, back.T @ slope

        options = {"gtol": STEEPEST, "ftol": 1e-9, "maxiter": 300}
        found = minimize(sought, np.zeros(len(at)), jac=True, method="L-BFGS-B", options=options)
        at = at + back @ found.x
        factor = _factor(problem, used, precision, at)
    return Normal(at[None], factor)


def _loss(
    problem: FittingProblem, used: np.ndarray, precision: np.ndarray, at: np.ndarray
) -> tuple[float, np.ndarray]:
    """Minus the log-posterior up to a constant, and its slope."""
    value, slope = likelihood_and_slope(problem.batches, _whole(problem, used, at))
    prior = (precision * at**2).sum() / 2
    return prior - value, precision * at - slope.ravel()[used]


def _factor(
    problem: FittingProblem, used: np.ndarray, precision: np.ndarray, at: np.ndarray
) -> np.ndarray:
    """The Cholesky factor of the precision of all coefficients in use. Where the likelihood is
    hollow, which hidden rounds can make it, the prior's precision remains."""
    whole = curvature(problem.some, _whole(problem, used, at))[np.ix_(used, used)]
    whole *= problem.batches.number / problem.some.number
    scale = np.sqrt(precision)
    sizes, directions = np.linalg.eigh((whole + whole.T) / 2 / np.outer(scale, scale))
    sound = (directions * (1 + np.maximum(sizes, 0))) @ directions.T
    return cholesky(sound * np.outer(scale, scale), lower=True)


def _whole(problem: FittingProblem, used: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Coefficients (origin, contrast, input), 0 for those not in use."""
    whole = np.zeros(len(used))
    whole[used] = at
    return whole.reshape(problem.shape)


def _kappa_weights(log: Log, fit: Fit, several: Histories, rng: np.random.Generator) -> np.ndarray:
    """The posterior probability of each κ, under equal prior probabilities."""
    everybody = np.unique(several.person)
    people = rng.permutation(everybody)[:PEOPLE_TO_WEIGH]
    chosen = np.isin(np.arange(len(log.latest)), people)
    own = several.of(chosen)
    place = np.searchsorted(np.sort(people), own.person)
    chances = transition_tables(fit.mean, fit.terms(log.features[np.sort(people)]))
    starts = fit.first_states(log.profiles)[own.profile[:, 0]]
    scores = []
    for kappa in KAPPAS:
        concentration = kappa * np.maximum(chances, LEAST_PROBABILITY)
        drawn = dirichlet(rng, np.broadcast_to(concentration, (TABLES_TO_WEIGH, *chances.shape)))
        each = likelihood_by_table(own, jnp.asarray(drawn, jnp.float32), place, starts)
        by_person = np.zeros((len(people), TABLES_TO_WEIGH))
        np.add.at(by_person, place, each.T)
        scores.append(_log_mean(by_person.T).sum() * len(everybody) / len(people))
    return softmax(scores)


def _log_mean(values: np.ndarray) -> np.ndarray:
    """The logarithm of the mean over the first axis, without the bias that few draws give it."""
    n = len(values)
    mean = logsumexp(values, axis=0) - np.log(n)
    spread = np.exp(values - mean).var(axis=0, ddof=1)
    return mean + np.minimum(spread / (2 * n), 0.5)
