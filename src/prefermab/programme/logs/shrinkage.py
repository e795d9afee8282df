"""Transitions as a multinomial logistic model whose coefficients are shrunk.

For each state s the log-odds of the next states are linear in the terms x of a person's features:

    logits[s, a] = C (base[s] x + [a > 0] effect[s, a] x)

C spreads one coordinate fewer than there are states over all of them, evenly, so that no label is
special. Coefficients are normal around 0. There are four scales, for the constant and for the
other terms, of `base` and of `effect`; they are found by empirical Bayes, by the fixed point of
MacKay's evidence framework, under a weak prior that expects effects to be small. So what is known
of few is pulled towards what is known of many, and what acting does towards nothing, as far as the
log says that this predicts better.

Three accounts of `effect` are weighed against each other by how likely each makes the log: acting
does nothing; it does the same for everybody in a state; it depends on the features as well. Where
a log shows no effect, most of the weight is on nothing.
"""

import dataclasses

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import softmax

from prefermab.errors import InputError

LARGEST = 4000
"""Coefficients of one state beyond which their covariance is too large to work with."""

EXPECTED = np.array([1.5, 0.5, 1.0, 0.35])
STRENGTH = 4.0
"""The scales that are expected before the log is seen (constant and other terms of base, then of
effect), and how many coefficients' worth of evidence that counts for."""

ACCOUNTS = (2, 3, 4)
"""How many of the four scales each account of what acting does has use for."""

MOST_TURNS = 50
NUMBERS = 1 << 22
"""Of the products of inputs that are held at once."""


@dataclasses.dataclass(frozen=True)
class Cells:
    """Counts of what followed, from one state, for each person and action that there is."""

    terms: np.ndarray
    action: np.ndarray
    counts: np.ndarray


@dataclasses.dataclass(frozen=True)
class Normal:
    """A normal approximation: coefficients (contrast, input), and the Cholesky factor of their
    precision."""

    mean: np.ndarray
    factor: np.ndarray

    def variance(self) -> np.ndarray:
        """Of each coefficient."""
        return (np.linalg.inv(self.factor) ** 2).sum(axis=0).reshape(self.mean.shape)

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Coefficients (draw, contrast, input), two and two on opposite sides of the mean, which
        they then have whatever their number."""
        half = rng.standard_normal((len(self.factor), -(-n // 2)))
        noise = np.stack([half, -half], axis=2).reshape(len(self.factor), -1)[:, :n]
        away = np.linalg.solve(self.factor.T, noise)
        return self.mean + away.T.reshape(n, *self.mean.shape)


def contrasts(n_states: int) -> np.ndarray:
    """(state, state - 1): orthonormal columns that add up to 0.

    >>> from prefermab.programme.logs.shrinkage import contrasts
    >>> contrasts(2).round(3).tolist()
    [[0.707], [-0.707]]
    """
    steps = np.arange(1, n_states)
    columns = np.tri(n_states, n_states - 1, -1) * 0.0
    for place, size in enumerate(steps):
        columns[: place + 1, place] = 1.0
        columns[place + 1, place] = -size
    return columns / np.sqrt(steps * (steps + 1))


def inputs(terms: np.ndarray, action: np.ndarray, n_actions: int) -> np.ndarray:
    """Terms for `base`, then again for the `effect` of each action, 0 where it was not taken."""
    taken = action[:, None] == np.arange(1, n_actions)
    effects = (taken[:, :, None] * terms[:, None, :]).reshape(
        len(terms), (n_actions - 1) * terms.shape[1]
    )
    return np.concatenate([terms, effects], axis=1)


def groups(n_terms: int, n_actions: int) -> np.ndarray:
    """Which of the four scales each input has."""
    constant = np.arange(n_terms) > 0
    return np.concatenate([constant, np.tile(2 + constant, n_actions - 1)]).astype(int)


def check_size(n_states: int, n_actions: int, n_terms: int) -> None:
    """The coefficients of a state must not be too many."""
    size = (n_states - 1) * n_actions * n_terms
    if size > LARGEST:
        raise InputError(
            f"{n_states} states, {n_actions} actions and {n_terms - 1} features need {size:,} "
            f"coefficients for each state, more than {LARGEST:,}: join labels or leave out "
            "features."
        )


Shrunk = tuple[list[Normal], np.ndarray]
"""The coefficients of every state, and the four scales they share."""


def shrink(
    cells: list[Cells],
    weights: list[np.ndarray],
    n_actions: int,
    before: Shrunk | None = None,
) -> Shrunk:
    """Coefficients and scales, found in turn, from where they were `before`."""
    n_states, n_terms = cells[0].counts.shape[1], cells[0].terms.shape[1]
    check_size(n_states, n_actions, n_terms)
    designs = [inputs(cell.terms, cell.action, n_actions) for cell in cells]
    counts = [cell.counts * weight[:, None] for cell, weight in zip(cells, weights, strict=True)]
    group = groups(n_terms, n_actions)
    if before is None:
        at, scales = [np.zeros((n_states - 1, len(group)))] * n_states, EXPECTED
    else:
        at, scales = [fit.mean for fit in before[0]], before[1]

    def fitted(at: list[np.ndarray], scales: np.ndarray) -> list[Normal]:
        precision = scales[group] ** -2.0
        each = zip(designs, counts, at, strict=True)
        return [likeliest(design, seen, precision, start) for design, seen, start in each]

    fits = fitted(at, scales)
    for _ in range(MOST_TURNS):
        last, scales = scales, _scales(fits, group, scales)
        if np.abs(np.log(scales / last)).max() < 0.02:
            break
        fits = fitted([fit.mean for fit in fits], scales)
    return fits, scales


@dataclasses.dataclass(frozen=True)
class Account:
    """One account of what acting does: the coefficients of every state, which inputs they are of,
    and how likely the log makes it beside the other accounts."""

    fits: list[Normal]
    used: np.ndarray
    weight: float

    def mean(self) -> np.ndarray:
        """The likeliest coefficients (state, contrast, input)."""
        return self._of_all(np.stack([fit.mean for fit in self.fits]))

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Coefficients (draw, state, contrast, input)."""
        return self._of_all(np.stack([fit.draw(rng, n) for fit in self.fits], axis=1))

    def _of_all(self, coefficients: np.ndarray) -> np.ndarray:
        """With 0 for the inputs that this account has no use for."""
        whole = np.zeros((*coefficients.shape[:-1], len(self.used)))
        whole[..., self.used] = coefficients
        return whole


def accounts(
    cells: list[Cells], weights: list[np.ndarray], n_actions: int, shrunk: Shrunk
) -> list[Account]:
    """The accounts of what acting does, each as likely as the others before the log is seen."""
    group = groups(cells[0].terms.shape[1], n_actions)
    precision = shrunk[1][group] ** -2.0
    found, scores = [], []
    for known in ACCOUNTS:
        used = group < known
        if found and used.sum() == found[-1][1].sum():
            continue
        fits, score = [], 0.0
        for cell, weight, fit in zip(cells, weights, shrunk[0], strict=True):
            design = inputs(cell.terms, cell.action, n_actions)[:, used]
            counts = cell.counts * weight[:, None]
            own = likeliest(design, counts, precision[used], fit.mean[:, used])
            fits.append(own)
            score += _evidence(design, counts, precision[used], own)
        found.append((fits, used))
        scores.append(score)
    chances = softmax(scores)
    return [
        Account(fits, used, float(chance))
        for (fits, used), chance in zip(found, chances, strict=True)
    ]


def _evidence(design: np.ndarray, counts: np.ndarray, precision: np.ndarray, fit: Normal) -> float:
    """Log-probability of the counts by Laplace's approximation, but for what all accounts share."""
    loss = _loss(design, counts, precision, fit.mean)
    narrower = np.log(np.diag(fit.factor)).sum() - len(fit.mean) * np.log(precision).sum() / 2
    return -loss - float(narrower)


def _scales(fits: list[Normal], group: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Better scales: the size of the coefficients over how many of them the log determines."""
    size = np.sum([(fit.mean**2).sum(axis=0) for fit in fits], axis=0)
    known = np.sum([1 - fit.variance() / scales[group] ** 2 for fit in fits], axis=(0, 1))
    total, number = (np.bincount(group, weights=each, minlength=4) for each in (size, known))
    return np.sqrt((total + STRENGTH * EXPECTED**2) / (number + STRENGTH))


def likeliest(
    design: np.ndarray, counts: np.ndarray, precision: np.ndarray, start: np.ndarray
) -> Normal:
    """The likeliest coefficients by Newton's method, and the curvature there."""
    at, value = start, _loss(design, counts, precision, start)
    while True:
        slope, curvature = _derivatives(design, counts, precision, at)
        factor = np.linalg.cholesky(curvature)
        step = cho_solve((factor, True), slope.ravel()).reshape(at.shape)
        gain = float((slope * step).sum())
        size = 1.0
        while size > 1e-4 and gain > 1e-8:
            tried = _loss(design, counts, precision, at - size * step)
            if tried <= value - 1e-4 * size * gain:
                break
            size /= 2
        else:
            return Normal(at, factor)
        at, value = at - size * step, tried


def log_chances(design: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Log-probabilities (row, next state)."""
    logits = design @ coefficients.T @ contrasts(coefficients.shape[0] + 1).T
    logits = logits - logits.max(axis=1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def _loss(design: np.ndarray, counts: np.ndarray, precision: np.ndarray, at: np.ndarray) -> float:
    return float(-(counts * log_chances(design, at)).sum() + (precision * at**2).sum() / 2)


def _derivatives(
    design: np.ndarray, counts: np.ndarray, precision: np.ndarray, at: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    spread = contrasts(counts.shape[1])
    chance, total = np.exp(log_chances(design, at)), counts.sum(axis=1)
    slope = ((total[:, None] * chance - counts) @ spread).T @ design + precision * at
    n, size = at.shape
    flat = np.zeros((n * n, size * size))
    rows = max(1, NUMBERS // (n * n + size * size))
    for first in range(0, len(design), rows):
        part = slice(first, first + rows)
        centred = chance[part] @ spread
        covariance = np.einsum("rt,ti,tj->rij", chance[part], spread, spread, optimize=True)
        covariance -= centred[:, :, None] * centred[:, None, :]
        covariance *= total[part, None, None]
        products = design[part, :, None] * design[part, None, :]
        flat += covariance.reshape(-1, n * n).T @ products.reshape(-1, size * size)
    curvature = flat.reshape(n, n, size, size).swapaxes(1, 2).reshape(n * size, n * size)
    return slope, curvature + np.diag(np.tile(precision, n))
