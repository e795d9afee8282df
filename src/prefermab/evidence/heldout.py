"""How well a fit foretells weeks it has not seen: the last of the log, held out."""

import dataclasses

import numpy as np
import polars as pl

from prefermab.logs.fitting import Fit, fit_log
from prefermab.logs.people import LEAST
from prefermab.logs.reading import Log, Transitions

SHARE = 0.2
"""Of the rounds that have transitions, the last that are held out."""

BINS = 10


@dataclasses.dataclass(frozen=True, eq=False)
class HeldOut:
    """Losses of three ways to foretell, each with and without what the next one knows, and how
    often what was foretold came. Without features there are two ways.

    `losses`: predictor, where (all transitions, or those under an action), n, loss (mean minus
    log-probability of what came), better (than the row above it) and stderr of that, people taken
    as independent of each other. `calibration`: predicted, observed, low, high, n, for tenths of
    all predictions by their size.
    """

    rounds: int
    losses: pl.DataFrame
    calibration: pl.DataFrame


def hold_out(log: Log, draws: int = 64, seed: int = 0) -> HeldOut | None:
    """Fits all but the last rounds and foretells those; None where the log is too short."""
    times = np.unique(log.transitions.round)
    n_out = max(1, round(SHARE * len(times)))
    late = log.transitions.round >= times[-n_out]
    before, after = log.transitions.where(~late), log.transitions.where(late)
    if len(times) < 3:
        return None
    fit = fit_log(log, draws, seed, before)
    foretold = {"state and action": _pooled(log, before, after)}
    if log.columns:
        foretold["and features"] = _by_features(fit, log, after, None)
    foretold["and own past"] = _by_features(fit, log, after, before)
    return HeldOut(n_out, _losses(foretold, after), _calibration(foretold["and own past"], after))


def verdict(held: HeldOut) -> str:
    """Whether features helped to foretell the weeks held out, and what follows."""
    if "and features" not in held.losses["predictor"]:
        return "The log has no features: weeks are foretold by state, action and own past alone."
    places = {"all": "for all transitions", "under an action": "for those under an action"}
    told, found = [], set()
    for row in held.losses.filter(pl.col("predictor") == "and features").iter_rows(named=True):
        # Without a second person nothing says how far chance goes.
        if not row["stderr"]:
            continue
        low, high = (row["better"] + z * row["stderr"] for z in (-1.645, 1.645))
        place = 0 if low > 0 else 2 if high < 0 else 1
        words = ("features helped", "it is open whether features help", "features made it worse")
        change = f"{-row['better']:+.4f}, 90 % interval {-high:+.4f} to {-low:+.4f}"
        told.append(f"{places[row['where']]} {words[place]} (loss {change})")
        found.add(place)
    if not found:
        return "Too little was held out to say whether features help: collect more."
    follows = (
        "They are worth keeping.",
        "Keep the few that matter (`--features` names them), or collect more.",
        "Leave features out (`--features` names those to keep), or collect more.",
    )
    return f"In foretelling the weeks held out, {'; '.join(told)}. {follows[max(found)]}"


def _pooled(log: Log, before: Transitions, after: Transitions) -> np.ndarray:
    """What followed a state and action, whoever it was; one transition's worth to each alike."""
    counts = np.zeros(log.shape)
    np.add.at(counts, (before.state, before.action, before.following), 1.0)
    chances = (counts + 1 / log.shape[0]) / (counts.sum(axis=-1, keepdims=True) + 1)
    return chances[after.state, after.action]


def _by_features(fit: Fit, log: Log, after: Transitions, before: Transitions | None) -> np.ndarray:
    """The mean over draws of what the features say and, where given, each person's own past."""
    known, own = fit.terms(log.profiles)[after.profile], 0.0
    if before is not None:
        own = _own_counts(log, before, after)
    total = np.zeros((len(after), log.shape[0]))
    for coefficients, kappa in zip(fit.draws, fit.kappas, strict=True):
        here = coefficients[after.state, after.action]
        logits = np.einsum("itx,ix->it", here, known)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        shape = kappa * np.maximum(odds / odds.sum(axis=1, keepdims=True), LEAST) + own
        total += shape / shape.sum(axis=1, keepdims=True)
    return total / len(fit.draws)


def _own_counts(log: Log, before: Transitions, after: Transitions) -> np.ndarray:
    """(transition, next state): what followed before for the same person, state and action."""
    n_states, n_actions, _ = log.shape
    cell = lambda it: (it.person * n_states + it.state) * n_actions + it.action  # noqa: E731
    known, place = np.unique(cell(before), return_inverse=True)
    counts = np.zeros((len(known) + 1, n_states))
    np.add.at(counts, (place, before.following), 1.0)
    asked = np.minimum(np.searchsorted(known, cell(after)), len(known) - 1)
    return counts[np.where(known[asked] == cell(after), asked, len(known))]


def _losses(foretold: dict[str, np.ndarray], after: Transitions) -> pl.DataFrame:
    rows, came = [], (np.arange(len(after)), after.following)
    loss = {name: -np.log(chances[came]) for name, chances in foretold.items()}
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
    """A mean, and its standard error when only people are independent."""
    mean = float(values.mean())
    _, place = np.unique(person, return_inverse=True)
    sums = np.bincount(place, weights=values - mean)
    n = len(sums)
    return mean, float(np.sqrt((sums**2).sum() * n / max(n - 1, 1)) / len(values))


def _calibration(chances: np.ndarray, after: Transitions) -> pl.DataFrame:
    """Every next state of every transition is one prediction; tenths of them by size."""
    came = after.following[:, None] == np.arange(chances.shape[1])
    order = np.argsort(chances, axis=None, kind="stable")
    rows = []
    for part in np.array_split(order, BINS):
        if not len(part):
            continue
        hits, n = came.ravel()[part].sum(), len(part)
        low, high = wilson(int(hits), n)
        rows.append((float(chances.ravel()[part].mean()), float(hits / n), low, high, n))
    return pl.DataFrame(rows, schema=["predicted", "observed", "low", "high", "n"], orient="row")


def wilson(hits: int, n: int) -> tuple[float, float]:
    """A 95 % interval for a share, by Wilson's score.

    >>> from prefermab.evidence.heldout import wilson
    >>> [round(end, 3) for end in wilson(5, 10)]
    [0.237, 0.763]
    """
    z = 1.96
    middle, spread = hits + z**2 / 2, z * np.sqrt(hits * (n - hits) / n + z**2 / 4)
    return float((middle - spread) / (n + z**2)), float((middle + spread) / (n + z**2))
