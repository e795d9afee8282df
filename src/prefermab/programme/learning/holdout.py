"""Out-of-sample prediction errors of the fit: on the last rounds of a log, and on held-out
people."""

import dataclasses

import numpy as np
import polars as pl
from scipy.special import softmax

from prefermab.common.intervals import STANDARD_ERRORS
from prefermab.programme.logs.fitting import Fit, fit_log
from prefermab.programme.logs.reading import Log, LogTransitions
from prefermab.programme.logs.shrinkage import LEAST_PROBABILITY

HELD_OUT_SHARE, FEWEST_ON_EITHER_SIDE = 0.2, 30
"""Share of transitions (or people) that is held out, and the fewest transitions on either side."""

CALIBRATION_BINS = 10
"""Number of groups of predictions, of equal size, in the calibration table."""


@dataclasses.dataclass(frozen=True, eq=False)
class HeldOut:
    """Prediction errors on one held-out part of a log.

    `losses`: predictor, where (all transitions, or those under an action), n, loss (mean negative
    log-probability of the next state), better (decrease of the loss from the predictor above, which
    knows less) and its standard error `stderr`, clustered by person. `calibration`, of the last
    predictor: predicted, observed, low, high, n, for tenths of all predicted probabilities.
    """

    name: str
    held: str
    """What was held out, in words."""
    losses: pl.DataFrame
    calibration: pl.DataFrame


def hold_out(log: Log, draws: int = 64, seed: int = 0) -> list[HeldOut]:
    """Fits most of a log and predicts the rest, in two splits: the last rounds, and people who were
    left out of the fit. A split with too few transitions on either side is skipped."""
    moves, found = log.transitions, []
    late = _is_late(moves)
    if _large_enough(late):
        n = len(np.unique(moves.round[late]))
        words = "The last round" if n == 1 else f"The last {n} rounds"
        found.append(_predict_held(log, late, "rounds", words, draws, seed))
    people = np.unique(moves.person)
    chosen = np.random.default_rng(seed).permutation(people)[
        : max(1, round(HELD_OUT_SHARE * len(people)))
    ]
    others = np.isin(moves.person, chosen)
    if _large_enough(others):
        words = f"{len(chosen):,} other people"
        found.append(_predict_held(log, others, "people", words, draws, seed))
    return found


def _is_late(moves: LogTransitions) -> np.ndarray:
    """(transition,): whether it is in the last rounds; these have at least a fifth of all
    transitions."""
    times, sizes = np.unique(moves.round, return_counts=True)
    after = np.cumsum(sizes[::-1])[::-1]
    first = np.flatnonzero(after >= HELD_OUT_SHARE * len(moves))[-1]
    return moves.round >= times[first]


def _large_enough(held: np.ndarray) -> bool:
    return bool(min(held.sum(), (~held).sum()) >= FEWEST_ON_EITHER_SIDE)


def _predict_held(
    log: Log, held: np.ndarray, name: str, words: str, draws: int, seed: int
) -> HeldOut:
    before, after = log.transitions.where(~held), log.transitions.where(held)
    fit = fit_log(log, draws, seed, before)
    predicted = {"state and action": _pooled_shares(log, before, after)}
    if log.columns:
        predicted["and features"] = _by_features(fit, log, after, None)
    if name == "rounds":
        predicted["and own past"] = _by_features(fit, log, after, before)
    best = list(predicted.values())[-1]
    return HeldOut(name, words, _losses(predicted, after), _calibration(best, after))


def features_verdict(held: HeldOut) -> str:
    """A sentence that says whether features improved the predictions, and what to do."""
    if "and features" not in held.losses["predictor"]:
        return "The log has no features: it predicts by state, action and own past alone."
    places = {"all": "for all transitions", "under an action": "for those under an action"}
    sentences, found = [], set()
    for row in held.losses.filter(pl.col("predictor") == "and features").iter_rows(named=True):
        # With one person only there is no standard error.
        if not row["stderr"]:
            continue
        low, high = (row["better"] + z * row["stderr"] for z in (-STANDARD_ERRORS, STANDARD_ERRORS))
        place = 0 if low > 0 else 2 if high < 0 else 1
        words = ("features helped", "it is open whether features help", "features made it worse")
        change = f"{-row['better']:+.4f}, 90 % interval {-high:+.4f} to {-low:+.4f}"
        sentences.append(f"{places[row['where']]} {words[place]} (error {change})")
        found.add(place)
    if not found:
        return "Too little was held out to say whether features help: collect more."
    advice = (
        "They are worth keeping.",
        "Keep the few that matter (`--features` names them), or collect more.",
        "Leave features out (`--features` names those to keep, or none), or collect more.",
    )
    return f"In predicting what was held out, {'; '.join(sentences)}. {advice[max(found)]}"


def _pooled_shares(log: Log, before: LogTransitions, after: LogTransitions) -> np.ndarray:
    """(transition, next state): shares of next states by state and action, with a uniform prior
    that has the weight of one transition."""
    counts = np.zeros(log.shape)
    np.add.at(counts, (before.state, before.action, before.following), 1.0)
    chances = (counts + 1 / log.shape[0]) / (counts.sum(axis=-1, keepdims=True) + 1)
    return chances[after.state, after.action]


def _by_features(
    fit: Fit, log: Log, after: LogTransitions, before: LogTransitions | None
) -> np.ndarray:
    """(transition, next state): posterior mean predictions from the features and, if `before` is
    given, from each person's own past."""
    known, own = fit.terms(log.profiles)[after.profile], 0.0
    if before is not None:
        own = _own_counts(log, before, after)
    total = np.zeros((len(after), log.shape[0]))
    for coefficients, kappa in zip(fit.draws, fit.kappas, strict=True):
        here = coefficients[after.state, after.action]
        chances = softmax(np.einsum("itx,ix->it", here, known), axis=1)
        concentration = kappa * np.maximum(chances, LEAST_PROBABILITY) + own
        total += concentration / concentration.sum(axis=1, keepdims=True)
    return total / len(fit.draws)


def _own_counts(log: Log, before: LogTransitions, after: LogTransitions) -> np.ndarray:
    """(transition, next state): earlier counts for the same person, state and action."""
    n_states, n_actions, _ = log.shape
    cell = lambda it: (it.person * n_states + it.state) * n_actions + it.action  # noqa: E731
    known, place = np.unique(cell(before), return_inverse=True)
    counts = np.zeros((len(known) + 1, n_states))
    np.add.at(counts, (place, before.following), 1.0)
    cells = np.minimum(np.searchsorted(known, cell(after)), len(known) - 1)
    return counts[np.where(known[cells] == cell(after), cells, len(known))]


def _losses(predicted: dict[str, np.ndarray], after: LogTransitions) -> pl.DataFrame:
    rows, observed = [], (np.arange(len(after)), after.following)
    loss = {name: -np.log(chances[observed]) for name, chances in predicted.items()}
    for where, chosen in (("all", after.action >= 0), ("under an action", after.action > 0)):
        last = None
        for name, each in loss.items():
            own, person = each[chosen], after.person[chosen]
            better, stderr = None, None
            if last is not None and len(own):
                better, stderr = _mean_by_person(last - own, person)
            mean = float(own.mean()) if len(own) else None
            rows.append((name, where, len(own), mean, better, stderr))
            last = own
    schema = ["predictor", "where", "n", "loss", "better", "stderr"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _mean_by_person(values: np.ndarray, person: np.ndarray) -> tuple[float, float]:
    """A mean, and its standard error clustered by person."""
    mean = float(values.mean())
    _, place = np.unique(person, return_inverse=True)
    sums = np.bincount(place, weights=values - mean)
    n = len(sums)
    return mean, float(np.sqrt((sums**2).sum() * n / max(n - 1, 1)) / len(values))


def _calibration(chances: np.ndarray, after: LogTransitions) -> pl.DataFrame:
    """Predicted and observed shares; every next state of every transition is one prediction."""
    observed = after.following[:, None] == np.arange(chances.shape[1])
    order = np.argsort(chances, axis=None, kind="stable")
    rows = []
    for part in np.array_split(order, CALIBRATION_BINS):
        if not len(part):
            continue
        hits, n = observed.ravel()[part].sum(), len(part)
        low, high = wilson_interval(int(hits), n)
        rows.append((float(chances.ravel()[part].mean()), float(hits / n), low, high, n))
    return pl.DataFrame(rows, schema=["predicted", "observed", "low", "high", "n"], orient="row")


def wilson_interval(hits: int, n: int) -> tuple[float, float]:
    """The 95 % score interval for a share (Wilson 1927).

    >>> from prefermab.programme.learning.holdout import wilson_interval
    >>> [round(end, 3) for end in wilson_interval(5, 10)]
    [0.237, 0.763]
    """
    z = 1.96
    middle, spread = hits + z**2 / 2, z * np.sqrt(hits * (n - hits) / n + z**2 / 4)
    return float((middle - spread) / (n + z**2)), float((middle + spread) / (n + z**2))
