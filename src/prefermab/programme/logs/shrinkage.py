"""Transition probabilities: a multinomial logistic regression with shrinkage (partial pooling).

**From population to group.** For each state s the logits of the next states are linear in the terms
x of a person's features:

    logits[s, a] = C (base[s] x + [a > 0] effect[s, a] x)

C (Helmert contrasts) has one column fewer than there are states, so that no state is a reference
category. Coefficients have a normal prior with mean 0 and one of four standard deviations (scales):
for the constant and for the other terms, of `base` and of `effect`. The scales are estimated by
empirical Bayes, with the fixed-point updates of MacKay's evidence framework (1992), under a weak
prior that expects small effects. So estimates for few people are shrunk towards those for many, and
effects of actions towards 0, as far as this makes the log more likely.

Three models of `effect` are averaged (Bayesian model averaging, with Laplace's approximation of the
evidence): acting has no effect; it has the same effect on everybody in a state; the effect also
depends on the features. Where a log shows no effect, the first has most of the weight.

**From group to person.** A person's own transition probabilities in a state under an action have a
Dirichlet(κ p) prior, where p is the prediction from the features; given the person's own
transitions, they are Dirichlet(κ p + counts). A large κ means that people with the same features
are alike. The posterior of κ is computed on a grid.
"""

import dataclasses
import functools

import numpy as np
from scipy.linalg import cho_solve, helmert, solve_triangular
from scipy.special import gammaln, log_softmax, softmax

from prefermab.errors import InputError, PrefermabError

MOST_STATE_COEFFICIENTS = 4000
"""Largest number of coefficients of one state, so that their covariance matrix is not too large."""

EXPECTED_SCALES = np.array([1.5, 0.5, 1.0, 0.35])
PRIOR_STRENGTH = 4.0
"""The prior of the scales (constant and other terms of base, then of effect), and its weight as a
number of coefficients."""

EFFECT_MODELS = (2, 3, 4)
"""How many of the four scales each model uses: no effect, constant effect, effect by features."""

MOST_SHRINKAGE_TURNS = 50
"""Most alternations between fitting coefficients and scales."""

MOST_STEPS = 200
"""Most steps of Newton's method; the loss is convex, and fits take about ten."""

CONVERGED = 1e-8
STEP_SIZES = 0.5 ** np.arange(14)
"""Expected decrease of the loss at which Newton's method stops; and the step sizes that its line
search tries, the largest first."""

MOST_PRODUCTS = 1 << 22
"""Most numbers that are in memory at once while derivatives are computed."""

KAPPAS = 2.0 ** np.arange(0, 13)
"""The grid of κ."""

LEAST_PROBABILITY = 1e-6
"""Least mean probability of a Dirichlet distribution."""


@dataclasses.dataclass(frozen=True)
class Cells:
    """Counts of next states (row, next state) from one state, with a row for each person, profile
    and action."""

    terms: np.ndarray
    action: np.ndarray
    counts: np.ndarray


@dataclasses.dataclass(frozen=True)
class Normal:
    """The Laplace approximation of a posterior: a normal distribution with its mean (contrast,
    input), the mode, and the Cholesky factor of its precision matrix."""

    mean: np.ndarray
    factor: np.ndarray

    def variance(self) -> np.ndarray:
        """The variance of each coefficient."""
        inverse = solve_triangular(self.factor, np.eye(len(self.factor)), lower=True)
        return (inverse**2).sum(axis=0).reshape(self.mean.shape)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """(draw, contrast, input): antithetic draws, in pairs on opposite sides of the mean, so
        that the mean of an even number of draws is exact."""
        half = rng.standard_normal((len(self.factor), -(-n // 2)))
        noise = np.stack([half, -half], axis=2).reshape(len(self.factor), -1)[:, :n]
        away = solve_triangular(self.factor, noise, lower=True, trans=1)
        return self.mean + away.T.reshape(n, *self.mean.shape)


@functools.cache
def contrasts(n_states: int) -> np.ndarray:
    """(state, state - 1): orthonormal columns, each with the sum 0.

    >>> from prefermab.programme.logs.shrinkage import contrasts
    >>> contrasts(2).round(3).tolist()
    [[0.707], [-0.707]]
    """
    return helmert(n_states).T


def design_matrix(terms: np.ndarray, action: np.ndarray, n_actions: int) -> np.ndarray:
    """(row, input): the terms for `base`, and again for the `effect` of each action, 0 where this
    action was not taken."""
    taken = action[:, None] == np.arange(1, n_actions)
    effects = (taken[:, :, None] * terms[:, None, :]).reshape(
        len(terms), (n_actions - 1) * terms.shape[1]
    )
    return np.concatenate([terms, effects], axis=1)


def scale_index(n_terms: int, n_actions: int) -> np.ndarray:
    """(input,): which of the four scales each input has."""
    constant = np.arange(n_terms) > 0
    return np.concatenate([constant, np.tile(2 + constant, n_actions - 1)]).astype(int)


def check_size(n_states: int, n_actions: int, n_terms: int) -> None:
    """Raises an error if a state has too many coefficients."""
    size = (n_states - 1) * n_actions * n_terms
    if size > MOST_STATE_COEFFICIENTS:
        raise InputError(
            f"{n_states} states, {n_actions} actions and {n_terms - 1} features need {size:,} "
            f"coefficients for each state, more than {MOST_STATE_COEFFICIENTS:,}: join labels or "
            "leave out features."
        )


Shrunk = tuple[list[Normal], np.ndarray]
"""The coefficients of every state, and the four scales that they share."""


def fit_shrunk(
    cells: list[Cells],
    weights: list[np.ndarray],
    n_actions: int,
    before: Shrunk | None = None,
) -> Shrunk:
    """Fits coefficients and scales alternately, starting from those of `before`."""
    n_states, n_terms = cells[0].counts.shape[1], cells[0].terms.shape[1]
    check_size(n_states, n_actions, n_terms)
    designs = [design_matrix(cell.terms, cell.action, n_actions) for cell in cells]
    counts = [cell.counts * weight[:, None] for cell, weight in zip(cells, weights, strict=True)]
    group = scale_index(n_terms, n_actions)
    if before is None:
        at, scales = [np.zeros((n_states - 1, len(group)))] * n_states, EXPECTED_SCALES
    else:
        at, scales = [fit.mean for fit in before[0]], before[1]

    def fitted(at: list[np.ndarray], scales: np.ndarray) -> list[Normal]:
        precision = scales[group] ** -2.0
        each = zip(designs, counts, at, strict=True)
        return [posterior_mode(design, seen, precision, start) for design, seen, start in each]

    fits = fitted(at, scales)
    for _ in range(MOST_SHRINKAGE_TURNS):
        last, scales = scales, _update_scales(fits, group, scales)
        if np.abs(np.log(scales / last)).max() < 0.02:
            break
        fits = fitted([fit.mean for fit in fits], scales)
    return fits, scales


@dataclasses.dataclass(frozen=True)
class EffectModel:
    """One model of the effect of acting: the posterior of its coefficients for every state, which
    inputs it uses, and its posterior weight."""

    fits: list[Normal]
    used: np.ndarray
    weight: float

    def mean(self) -> np.ndarray:
        """(state, contrast, input): the posterior modes of the coefficients."""
        return self._expand(np.stack([fit.mean for fit in self.fits]))

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """(draw, state, contrast, input): posterior draws of the coefficients."""
        return self._expand(np.stack([fit.draw(rng, n) for fit in self.fits], axis=1))

    def _expand(self, coefficients: np.ndarray) -> np.ndarray:
        """Adds 0 for the inputs that this model does not use."""
        whole = np.zeros((*coefficients.shape[:-1], len(self.used)))
        whole[..., self.used] = coefficients
        return whole


def fit_effect_models(
    cells: list[Cells], weights: list[np.ndarray], n_actions: int, shrunk: Shrunk
) -> list[EffectModel]:
    """The models of the effect of acting with their posterior weights, from equal prior weights."""
    group = scale_index(cells[0].terms.shape[1], n_actions)
    precision = shrunk[1][group] ** -2.0
    found, scores = [], []
    for n_scales in EFFECT_MODELS:
        used = group < n_scales
        if found and used.sum() == found[-1][1].sum():
            continue
        fits, score = [], 0.0
        for cell, weight, fit in zip(cells, weights, shrunk[0], strict=True):
            design = design_matrix(cell.terms, cell.action, n_actions)[:, used]
            counts = cell.counts * weight[:, None]
            own = posterior_mode(design, counts, precision[used], fit.mean[:, used])
            fits.append(own)
            score += _evidence(design, counts, precision[used], own)
        found.append((fits, used))
        scores.append(score)
    return [
        EffectModel(fits, used, float(weight))
        for (fits, used), weight in zip(found, softmax(scores), strict=True)
    ]


def _evidence(design: np.ndarray, counts: np.ndarray, precision: np.ndarray, fit: Normal) -> float:
    """The log marginal likelihood of the counts by Laplace's approximation, up to a constant that
    all models share."""
    loss = _loss(design, counts, precision, fit.mean)
    penalty = np.log(np.diag(fit.factor)).sum() - len(fit.mean) * np.log(precision).sum() / 2
    return -loss - float(penalty)


def _update_scales(fits: list[Normal], group: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """MacKay's update of the scales: the squared size of the coefficients, divided by the effective
    number of coefficients that the log determines."""
    size = np.sum([(fit.mean**2).sum(axis=0) for fit in fits], axis=0)
    known = np.sum([1 - fit.variance() / scales[group] ** 2 for fit in fits], axis=(0, 1))
    total, number = (np.bincount(group, weights=each, minlength=4) for each in (size, known))
    return np.sqrt((total + PRIOR_STRENGTH * EXPECTED_SCALES**2) / (number + PRIOR_STRENGTH))


def posterior_mode(
    design: np.ndarray, counts: np.ndarray, precision: np.ndarray, start: np.ndarray
) -> Normal:
    """The posterior mode by Newton's method with step halving, and the curvature at the mode."""
    at, value = start, _loss(design, counts, precision, start)
    for _ in range(MOST_STEPS):
        slope, curvature = _derivatives(design, counts, precision, at)
        factor = np.linalg.cholesky(curvature)
        step = cho_solve((factor, True), slope.ravel()).reshape(at.shape)
        decrease = float((slope * step).sum())
        if decrease <= CONVERGED:
            return Normal(at, factor)
        for size in STEP_SIZES:
            tried = _loss(design, counts, precision, at - size * step)
            if tried <= value - 1e-4 * size * decrease:
                break
        else:  # no step decreases the loss beyond rounding errors
            return Normal(at, factor)
        at, value = at - size * step, tried
    raise PrefermabError(f"the fit has not converged after {MOST_STEPS} Newton steps.")


def log_probabilities(design: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """(row, next state): log-probabilities."""
    logits = design @ coefficients.T @ contrasts(coefficients.shape[0] + 1).T
    return log_softmax(logits, axis=1)


def _loss(design: np.ndarray, counts: np.ndarray, precision: np.ndarray, at: np.ndarray) -> float:
    return float(-(counts * log_probabilities(design, at)).sum() + (precision * at**2).sum() / 2)


def _derivatives(
    design: np.ndarray, counts: np.ndarray, precision: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    spread = contrasts(counts.shape[1])
    chance, total = np.exp(log_probabilities(design, at)), counts.sum(axis=1)
    slope = ((total[:, None] * chance - counts) @ spread).T @ design + precision * at
    n, size = at.shape
    pairs = (spread[:, :, None] * spread[:, None, :]).reshape(-1, n * n)
    flat = np.zeros((n * n, size * size))
    rows = max(1, MOST_PRODUCTS // (n * n + size * size))
    for first in range(0, len(design), rows):
        part = slice(first, first + rows)
        centred = chance[part] @ spread
        covariance = (chance[part] @ pairs).reshape(-1, n, n)
        covariance -= centred[:, :, None] * centred[:, None, :]
        covariance *= total[part, None, None]
        products = design[part, :, None] * design[part, None, :]
        flat += covariance.reshape(-1, n * n).T @ products.reshape(-1, size * size)
    curvature = flat.reshape(n, n, size, size).swapaxes(1, 2).reshape(n * size, n * size)
    return slope, curvature + np.diag(np.tile(precision, n))


def log_evidence(chances: np.ndarray, counts: np.ndarray, kappa: float) -> float:
    """The log-likelihood of κ for counts (cell, state) under the Dirichlet-multinomial
    distribution, up to a constant that does not depend on κ.

    >>> import numpy as np
    >>> from prefermab.programme.logs.shrinkage import log_evidence
    >>> half, twice = np.array([[0.5, 0.5]]), np.array([[2.0, 0.0]])
    >>> round(float(np.exp(log_evidence(half, twice, 1.0))), 4)  # 1/2 · (1/2 + 1)/(1 + 1)
    0.375
    """
    share = kappa * np.maximum(chances, LEAST_PROBABILITY)
    whole = share.sum(axis=1)
    each = (gammaln(share + counts) - gammaln(share)).sum(axis=1)
    return float((each + gammaln(whole) - gammaln(whole + counts.sum(axis=1))).sum())


def kappa_weights(chances: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The posterior probability of each κ of the grid, from equal prior probabilities."""
    # A cell with one transition has no information about how people differ.
    often = counts.sum(axis=1) > 1
    scores = np.array([log_evidence(chances[often], counts[often], kappa) for kappa in KAPPAS])
    return softmax(scores)


def transition_weight(total: np.ndarray, kappa: float) -> np.ndarray:
    """The weight of each transition in a cell with `total` transitions: the variance of a
    multinomial divided by that of a Dirichlet-multinomial. Transitions of one person have less
    information about the population than as many transitions of different people.

    >>> import numpy as np
    >>> from prefermab.programme.logs.shrinkage import transition_weight
    >>> transition_weight(np.array([1.0, 9.0]), 1.0).tolist()
    [1.0, 0.2]
    """
    return (1 + kappa) / (np.maximum(total, 1) + kappa)


def dirichlet(rng: np.random.Generator, shape: np.ndarray) -> np.ndarray:
    """Draws from Dirichlet distributions with the parameters `shape`, along the last axis."""
    drawn = rng.standard_gamma(shape)
    # All draws can underflow to 0, but only where every parameter is tiny.
    drawn = np.where(drawn.sum(axis=-1, keepdims=True) > 0, drawn, shape)
    return drawn / drawn.sum(axis=-1, keepdims=True)
