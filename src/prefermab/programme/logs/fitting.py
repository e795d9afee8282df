"""The fit of a log: posterior draws of the transition probabilities by state, action and features.
`shrinkage` explains the statistical model."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from prefermab.errors import count
from prefermab.programme.logs.features import Column
from prefermab.programme.logs.reading import Log, LogTransitions
from prefermab.programme.logs.shrinkage import (
    KAPPAS,
    Cells,
    EffectModel,
    Normal,
    contrasts,
    design_matrix,
    fit_effect_models,
    fit_shrunk,
    kappa_weights,
    log_probabilities,
    transition_weight,
)

POSTERIOR_DRAWS, MOST_DRAWN_NUMBERS = 512, 1 << 25
"""Draws of the coefficients, enough for the ends of a 90 % interval; and the most numbers in all
draws together, which gives fewer draws where there are many states."""

FITTING_TURNS = 2
"""How often coefficients and κ are fitted alternately; each depends little on the other."""


@dataclasses.dataclass(frozen=True, eq=False)
class Terms:
    """Converts features (person, feature) to the terms of the regression: 1, the scaled features,
    and an indicator for each column that is unknown for somebody. Numbers have mean 0 and standard
    deviation 1. Categories are only centred, so that a rare one is shrunk like a common one. An
    unknown value is replaced by the mean.

    >>> import numpy as np
    >>> from prefermab.programme.logs.features import Column
    >>> from prefermab.programme.logs.fitting import Terms
    >>> terms = Terms.from_features([Column("age")], np.array([[20.0], [40.0], [np.nan]]))
    >>> terms(np.array([[40.0], [np.nan]])).tolist()
    [[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """

    mean: np.ndarray
    spread: np.ndarray
    numeric: np.ndarray
    flagged: tuple[int, ...]
    """The first feature of each column that is unknown for somebody."""

    @classmethod
    def from_features(
        cls, columns: Sequence[Column], features: np.ndarray, profiles: np.ndarray | None = None
    ) -> "Terms":
        """Takes means and standard deviations from the features of people. A column that is unknown
        in one of the `profiles` has an indicator as well: it was unknown for somebody at some
        time."""
        known = ~np.isnan(features)
        seen = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, features, 0.0).sum(axis=0) / seen
        spread = np.sqrt(np.where(known, (features - mean) ** 2, 0.0).sum(axis=0) / seen)
        sizes = [len(column.feature_names) for column in columns]
        numeric = np.array([c.levels is None for c in columns for _ in c.feature_names], bool)
        useful = numeric & (spread > 1e-9 * np.abs(mean)) & (spread > 0)
        first = np.cumsum([0, *sizes])[:-1]
        ever = ~np.isnan(features if profiles is None else profiles)
        flagged = tuple(int(at) for at in first if not (known[:, at].all() and ever[:, at].all()))
        return cls(mean, np.where(useful, spread, 1.0), useful, flagged)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        unknown = np.isnan(features)
        scaled = np.where(unknown, 0.0, (features - self.mean) / self.spread)
        one = np.ones((len(features), 1))
        return np.concatenate([one, scaled, unknown[:, list(self.flagged)]], axis=1)


@dataclasses.dataclass(frozen=True, eq=False)
class Fit:
    """The posterior of the transition probabilities, given a log.

    `draws` (draw, state, action, next state, term) are posterior draws of the coefficients of the
    logits. `kappas` (draw,) are posterior draws of κ: the larger it is, the more alike are people
    with the same features. `mean` are the posterior modes of the coefficients, averaged over the
    models of the effect. `scales` are the prior standard deviations that they were shrunk by.
    `effect_probability` is the posterior probability that acting has any effect; this is also the
    share of draws with an effect.
    """

    terms: Terms
    mean: np.ndarray
    draws: np.ndarray
    kappas: np.ndarray
    scales: np.ndarray
    effect_probability: float
    starts: np.ndarray | None = None
    """(state, term): coefficients of a person's first state; None unless most states are empty."""

    def first_states(self, features: np.ndarray) -> np.ndarray:
        """(person, state): the probability of the first state, for logs in which most states are
        empty."""
        assert self.starts is not None
        return softmax(self.terms(features) @ self.starts.T, axis=1)

    def chances(self, features: np.ndarray) -> np.ndarray:
        """(person, state, action, next state): posterior means of the transition probabilities."""
        known = self.terms(features)
        return np.mean([transition_tables(draw, known) for draw in self.draws], axis=0)


def transition_tables(coefficients: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(person, state, action, next state): transition probabilities, from coefficients of the
    logits and the terms of people (person, term)."""
    return softmax(np.tensordot(known, coefficients, axes=(1, -1)), axis=-1)


# On matrices as small as these, one thread is faster than several.
@threadpool_limits.wrap(limits=1, user_api="blas")
def fit_log(
    log: Log, draws: int = POSTERIOR_DRAWS, seed: int = 0, transitions: LogTransitions | None = None
) -> Fit:
    """Fits a log, or some of its transitions.

    >>> from prefermab.programme.logs.fitting import fit_log
    >>> from prefermab.programme.logs.reading import read_log
    >>> from prefermab.programme.logs.simulated import example_tables
    >>> frame = example_tables(people=60, weeks=10)[1]
    >>> log = read_log(frame, time="week", passive="none",
    ...     rewards={"engaged": 1, "drifting": 0.5, "silent": 0})
    >>> fit_log(log, draws=8).draws.shape  # (draw, state, action, next state, term)
    (8, 3, 2, 3, 7)
    """
    number = count(draws, "draws")
    terms = Terms.from_features(log.columns, log.features, log.profiles)
    cells = count_cells(log, terms, log.transitions if transitions is None else transitions)
    n_actions = len(log.labels.actions)
    fits, scales = fit_shrunk(cells, [np.ones(len(cell.counts)) for cell in cells], n_actions)
    weights = []
    for _ in range(FITTING_TURNS):
        likely = _kappa_weights(cells, fits, n_actions)
        kappa = float(np.exp(likely @ np.log(KAPPAS)))
        weights = [transition_weight(cell.counts.sum(axis=1), kappa) for cell in cells]
        fits, scales = fit_shrunk(cells, weights, n_actions, (fits, scales))
    likely = _kappa_weights(cells, fits, n_actions)
    rng = np.random.default_rng(count(seed, "seed", at_least=0))
    number = min(number, max(64, MOST_DRAWN_NUMBERS // (fits[0].mean.size * len(fits))))
    models = fit_effect_models(cells, weights, n_actions, (fits, scales))
    return Fit(
        terms,
        by_action(np.sum([each.weight * each.mean() for each in models], axis=0), n_actions),
        by_action(draw_models(models, rng, number), n_actions),
        rng.choice(KAPPAS, size=number, p=likely),
        scales,
        1 - models[0].weight,
    )


def draw_models(models: list[EffectModel], rng: np.random.Generator, number: int) -> np.ndarray:
    """Draws of coefficients from each model in proportion to its weight, in random order."""
    ends = np.round(number * np.cumsum([each.weight for each in models])).astype(int)
    sizes = np.diff(ends, prepend=0)
    drawn = [each.draw(rng, int(n)) for each, n in zip(models, sizes, strict=True)]
    return np.concatenate(drawn)[rng.permutation(number)]


def count_cells(log: Log, terms: Terms, transitions: LogTransitions) -> list[Cells]:
    """Counts of next states by state, person, profile and action."""
    n_states, n_actions, _ = log.shape
    known = terms(log.profiles)
    cells = []
    for state in range(n_states):
        here = transitions.where(transitions.state == state)
        own = here.person * len(known) + here.profile
        which, place = np.unique(own * n_actions + here.action, return_inverse=True)
        counts = np.zeros((len(which), n_states))
        np.add.at(counts, (place, here.following), 1.0)
        own, action = np.divmod(which, n_actions)
        cells.append(Cells(known[own % len(known)], action, counts))
    return cells


def _kappa_weights(cells: list[Cells], fits: list[Normal], n_actions: int) -> np.ndarray:
    chances = [
        np.exp(log_probabilities(design_matrix(cell.terms, cell.action, n_actions), fit.mean))
        for cell, fit in zip(cells, fits, strict=True)
    ]
    return kappa_weights(np.concatenate(chances), np.concatenate([cell.counts for cell in cells]))


def by_action(coefficients: np.ndarray, n_actions: int) -> np.ndarray:
    """Converts coefficients (…, state, contrast, input) to (…, state, action, next state, term)."""
    n = coefficients.shape[-2]
    parts = coefficients.reshape(*coefficients.shape[:-1], n_actions, -1)
    base, effect = parts[..., :1, :], parts[..., 1:, :]
    each = np.concatenate([base, base + effect], axis=-2)
    return np.einsum("tk,...kax->...atx", contrasts(n + 1), each)
