"""The fit of a log in which most states are empty: the model of `shrinkage`, with the likelihood of
the states that were seen, marginalised over the states that were not.

Coefficients, their four scales and the three models of the effect are those of `shrinkage`. Another
set of coefficients predicts a person's first state from features. States cannot be fitted one by
one, because each sighting depends on the transitions from all states since the sighting before. So
the posterior is a single normal distribution of all coefficients, from the curvature of the
marginal likelihood at its mode (Laplace's approximation). It accounts for hidden rounds: the more
rounds between two sightings, the more uncertain it is.

The posterior of κ, which says how alike people with the same features are, is estimated by Monte
Carlo: from the mean likelihood of each person's sightings under tables drawn for this person.
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
from prefermab.programme.logs.histories import Histories
from prefermab.programme.logs.likelihood import (
    Batches,
    curvature,
    log_likelihood_and_gradient,
    log_likelihoods_by_table,
)
from prefermab.programme.logs.reading import Log
from prefermab.programme.logs.shrinkage import (
    EFFECT_MODELS,
    EXPECTED_SCALES,
    KAPPAS,
    LEAST_PROBABILITY,
    PRIOR_STRENGTH,
    EffectModel,
    Normal,
    contrasts,
    dirichlet,
    scale_index,
)

MOST_COEFFICIENTS = 1500
"""Largest number of coefficients of all states together, so that the curvature does not take too
long."""

MOST_FITTING_TURNS = 8
"""Most alternations between fitting coefficients and scales."""

LARGEST_GRADIENT = 3e-3
"""Largest gradient at which a fit has converged, in coordinates with a curvature of about 1."""

CURVATURE_SIZE = 1 << 22
"""Most rounds times coefficients from which a curvature is computed. In larger logs it is computed
from a random sample of histories and scaled up."""

TABLES_TO_WEIGH, PEOPLE_TO_WEIGH = 64, 1500
"""Tables drawn for each person, and people in the sample, for the posterior of κ."""


@dataclasses.dataclass(frozen=True, eq=False)
class FittingProblem:
    """The data and the shape of the coefficients of a fit. `sample` is the random sample of the
    histories from which the curvature is computed."""

    shape: tuple[int, int, int]
    group: np.ndarray
    """(origin, contrast, input): which of the four scales, -1 for coefficients that are not
    used."""
    batches: Batches
    sample: Batches

    @classmethod
    def from_log(cls, log: Log, terms: Terms, histories: Histories) -> "FittingProblem":
        """The problem for these histories of a log."""
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
        batches = Batches.from_histories(histories, known, n_states)
        most = max(1, CURVATURE_SIZE // int(np.prod(size) * histories.state.shape[1]))
        sample = batches
        if len(histories.person) > most:
            chosen = np.random.default_rng(0).permutation(len(histories.person))[:most]
            sample = Batches.from_histories(histories.select(chosen), known, n_states)
        return cls(size, group, batches, sample)


@threadpool_limits.wrap(limits=1, user_api="blas")
def fit_hidden(
    log: Log, draws: int = POSTERIOR_DRAWS, seed: int = 0, histories: Histories | None = None
) -> Fit:
    """Fits the histories of a log, or the given ones.

    >>> from prefermab.programme.logs.reading import read_log
    >>> from prefermab.programme.logs.simulated import example_tables, keep_seen
    >>> from prefermab.programme.logs.hidden import fit_hidden
    >>> frame = keep_seen(example_tables(people=60, weeks=10)[1], "none")
    >>> log = read_log(frame, time="week", passive="none", seen=None,
    ...     rewards={"engaged": 1, "drifting": 0.5, "silent": 0})
    >>> fit_hidden(log, draws=8).draws.shape  # (draw, state, action, next state, term)
    (8, 3, 2, 3, 7)
    """
    number = count(draws, "draws")
    if histories is None:
        assert log.histories is not None
        histories = log.histories
    terms = Terms.from_features(log.columns, log.features, log.profiles)
    problem = FittingProblem.from_log(log, terms, histories)
    fitted, scales = _fit_scales(problem)
    models = _effect_models(problem, fitted, scales)
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
    likely = _kappa_weights(log, fit, histories, rng)
    return dataclasses.replace(fit, kappas=rng.choice(KAPPAS, size=number, p=likely))


def _fit_scales(problem: FittingProblem) -> tuple[Normal, np.ndarray]:
    """Fits all coefficients and the scales alternately."""
    used, scales = problem.group.ravel() >= 0, EXPECTED_SCALES
    group = problem.group.ravel()[used]
    found = _posterior_mode(problem, used, scales[group] ** -2.0, np.zeros(len(group)))
    for _ in range(MOST_FITTING_TURNS):
        size = found.mean.ravel() ** 2
        known = 1 - found.variance().ravel() / scales[group] ** 2
        total, number = (np.bincount(group, each, minlength=4) for each in (size, known))
        last, scales = (
            scales,
            np.sqrt((total + PRIOR_STRENGTH * EXPECTED_SCALES**2) / (number + PRIOR_STRENGTH)),
        )
        found = _posterior_mode(
            problem, used, scales[group] ** -2.0, found.mean.ravel(), found.factor
        )
        if np.abs(np.log(scales / last)).max() < 0.05:
            break
    return found, scales


def _effect_models(
    problem: FittingProblem, fitted: Normal, scales: np.ndarray
) -> list[EffectModel]:
    """The models of the effect of acting with their posterior weights, from equal prior weights."""
    group, found, scores = problem.group.ravel(), [], []
    at = np.zeros(len(group))
    at[group >= 0] = fitted.mean.ravel()
    for n_scales in EFFECT_MODELS:
        used = (group >= 0) & (group < n_scales)
        if found and used.sum() == found[-1][1].sum():
            continue
        precision = scales[group[used]] ** -2.0
        every = used.sum() == len(fitted.factor)
        within = used[group >= 0]
        near = cholesky((fitted.factor @ fitted.factor.T)[np.ix_(within, within)], lower=True)
        own = fitted if every else _posterior_mode(problem, used, precision, at[used], near)
        penalty = np.log(np.diag(own.factor)).sum() - np.log(precision).sum() / 2
        loss = _loss(problem, used, precision, own.mean.ravel())[0]
        found.append((own, used))
        scores.append(-loss - penalty)
    return [
        EffectModel([own], used, float(weight))
        for (own, used), weight in zip(found, softmax(scores), strict=True)
    ]


def _posterior_mode(
    problem: FittingProblem,
    used: np.ndarray,
    precision: np.ndarray,
    start: np.ndarray,
    factor: np.ndarray | None = None,
) -> Normal:
    """The posterior mode of the coefficients in use, and the curvature at the mode, by L-BFGS. It
    is preconditioned: coordinates are scaled by the Cholesky factor of a curvature, at first that
    of the prior, then that of the first solution. `factor` is a better one to start with."""
    has_factor = factor is not None
    factor = factor if has_factor else np.diag(np.sqrt(precision))
    at = start
    for _ in range(1 if has_factor else 2):
        back = solve_triangular(factor, np.eye(len(factor)), lower=True, trans=1)

        def objective(along: np.ndarray, at=at, back=back) -> tuple[float, np.ndarray]:
            loss, slope = _loss(problem, used, precision, at + back @ along)
            return loss, back.T @ slope

        options = {"gtol": LARGEST_GRADIENT, "ftol": 1e-9, "maxiter": 300}
        found = minimize(objective, np.zeros(len(at)), jac=True, method="L-BFGS-B", options=options)
        at = at + back @ found.x
        factor = _factor(problem, used, precision, at)
    return Normal(at[None], factor)


def _loss(
    problem: FittingProblem, used: np.ndarray, precision: np.ndarray, at: np.ndarray
) -> tuple[float, np.ndarray]:
    """The negative log-posterior up to a constant, and its gradient."""
    value, slope = log_likelihood_and_gradient(
        problem.batches, _all_coefficients(problem, used, at)
    )
    prior = (precision * at**2).sum() / 2
    return prior - value, precision * at - slope.ravel()[used]


def _factor(
    problem: FittingProblem, used: np.ndarray, precision: np.ndarray, at: np.ndarray
) -> np.ndarray:
    """The Cholesky factor of the posterior precision of all coefficients in use. In directions in
    which the log-likelihood is not concave, which hidden rounds can cause, the precision is that of
    the prior."""
    information = curvature(problem.sample, _all_coefficients(problem, used, at))[
        np.ix_(used, used)
    ]
    information *= problem.batches.number / problem.sample.number
    scale = np.sqrt(precision)
    sizes, directions = np.linalg.eigh((information + information.T) / 2 / np.outer(scale, scale))
    sound = (directions * (1 + np.maximum(sizes, 0))) @ directions.T
    return cholesky(sound * np.outer(scale, scale), lower=True)


def _all_coefficients(problem: FittingProblem, used: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(origin, contrast, input): all coefficients, 0 for those not in use."""
    coefficients = np.zeros(len(used))
    coefficients[used] = at
    return coefficients.reshape(problem.shape)


def _kappa_weights(
    log: Log, fit: Fit, histories: Histories, rng: np.random.Generator
) -> np.ndarray:
    """The posterior probability of each κ, from equal prior probabilities."""
    everybody = np.unique(histories.person)
    people = rng.permutation(everybody)[:PEOPLE_TO_WEIGH]
    chosen = np.isin(np.arange(len(log.latest)), people)
    own = histories.for_people(chosen)
    place = np.searchsorted(np.sort(people), own.person)
    chances = transition_tables(fit.mean, fit.terms(log.features[np.sort(people)]))
    starts = fit.first_states(log.profiles)[own.profile[:, 0]]
    scores = []
    for kappa in KAPPAS:
        concentration = kappa * np.maximum(chances, LEAST_PROBABILITY)
        drawn = dirichlet(rng, np.broadcast_to(concentration, (TABLES_TO_WEIGH, *chances.shape)))
        each = log_likelihoods_by_table(own, jnp.asarray(drawn, jnp.float32), place, starts)
        by_person = np.zeros((len(people), TABLES_TO_WEIGH))
        np.add.at(by_person, place, each.T)
        scores.append(_log_mean(by_person.T).sum() * len(everybody) / len(people))
    return softmax(scores)


def _log_mean(values: np.ndarray) -> np.ndarray:
    """The logarithm of the mean over the first axis, with a first-order correction of the bias from
    few draws."""
    n = len(values)
    mean = logsumexp(values, axis=0) - np.log(n)
    spread = np.exp(values - mean).var(axis=0, ddof=1)
    return mean + np.minimum(spread / (2 * n), 0.5)
