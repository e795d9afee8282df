"""How well a fit predicts states that were seen later, and what that says about the log.

A sighting is predicted from the one before, the rounds since, what was done and the features.
People are held back and predicted from the others. What is assumed: who is seen when depends on
what was known, not on the state itself. Where it does depend on the state, what is seen after few
rounds and after many may not fit together; that can be checked.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import polars as pl

from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.reading import Log
from prefermab.programme.logs.unseen.hidden import fit_hidden
from prefermab.programme.logs.unseen.histories import Histories
from prefermab.programme.logs.unseen.likelihood import predict
from prefermab.programme.logs.warnings import FEWEST_SEEN, SURE, LogWarning

HELD_OUT_PEOPLE, HELD_OUT_DRAWS = 0.2, 16
"""Share of the people who are held back, and posterior draws of the fit to the others."""

GAPS = ((1, 1), (2, 3), (4, 7), (8, 10**6))
"""Rounds since the sighting before that are told together, first and last."""

PREDICTORS = ("the fit", "as last seen", "average")

UNEVEN_SIGHTINGS_RATIO = 1.5
"""How many times as often states are seen in some rows as in others that is worth a warning."""


@dataclasses.dataclass(frozen=True, eq=False)
class Visits:
    """`predicted`, on people who were held back: where (all, or after so many rounds, or first),
    predictor, n, loss (mean negative log-probability of the state that was seen) and right (share
    of the sightings whose likeliest state it was). None where too few people could be held back.
    `apart`, on everybody: rounds, state, n, predicted and seen shares, and by how many standard
    errors these differ."""

    people: int
    """People who were held back."""
    predicted: pl.DataFrame | None
    apart: pl.DataFrame
    warnings: tuple[LogWarning, ...]


def check_visits(log: Log, fit: Fit, seed: int = 0) -> Visits:
    """Predictions of the sightings of a log, and warnings where they do not fit.

    >>> from prefermab.programme.logs.reading import read_log
    >>> from prefermab.programme.logs.simulated import example_tables, keep_seen
    >>> from prefermab.programme.logs.unseen.hidden import fit_hidden
    >>> from prefermab.programme.logs.unseen.visits import check_visits
    >>> frame = keep_seen(example_tables(people=60, weeks=10)[1], "none")
    >>> log = read_log(frame, time="week", passive="none", seen=None,
    ...     rewards={"engaged": 1, "drifting": 0.5, "silent": 0})
    >>> found = check_visits(log, fit_hidden(log, draws=8))
    >>> found.apart.columns
    ['rounds', 'state', 'n', 'predicted', 'seen', 'errors']
    """
    several = log.histories
    assert several is not None
    people = np.unique(several.person[(several.since >= 0).any(axis=1)])
    held = np.random.default_rng(seed).permutation(people)[: round(HELD_OUT_PEOPLE * len(people))]
    mask = np.isin(np.arange(len(log.latest)), held)
    others = several.of(~mask)
    predicted = None
    if min(_sightings(several.of(mask)), _sightings(others)) >= FEWEST_SEEN:
        predicted = _predictions(
            log, fit_hidden(log, HELD_OUT_DRAWS, seed, others), others, several.of(mask)
        )
    beliefs = _beliefs(log, fit, several)
    apart = _apart(log, beliefs, several)
    found = [
        *_unlike_predicted(apart, log.found.unit),
        *_seen_by_action(several),
        *_seen_by_state(beliefs, several, log),
    ]
    return Visits(len(held), predicted, apart, tuple(found))


def _sightings(several: Histories) -> int:
    return int(((several.state >= 0) & (several.since >= 0)).sum())


def _beliefs(log: Log, fit: Fit, several: Histories) -> np.ndarray:
    return predict(several, fit.chances(log.profiles), fit.first_states(log.profiles))


def _predictions(log: Log, fit: Fit, others: Histories, held: Histories) -> pl.DataFrame:
    """Errors of three predictors, each learned from the others, on those held back."""
    n_states = log.shape[0]
    seen = (held.state >= 0) & ((held.since >= 0) | held.new[:, None])
    came, since = held.state[seen], held.since[seen]
    known = (others.state >= 0) & (others.since >= 0)
    average = _shares(others.state[others.state >= 0], n_states)
    stayed = (others.state[known] == others.last_seen[known]).mean()
    last = np.eye(n_states)[held.last_seen[seen]]
    # Nobody is surely as last seen: how often that holds is learned, and the rest is the average.
    same = np.where(since[:, None] >= 0, stayed * last + (1 - stayed) * average, average)
    several = (_beliefs(log, fit, held)[seen], same, np.broadcast_to(average, same.shape))
    rows = []
    for where, chosen in _places(since):
        n = int(chosen.sum())
        if not n:
            continue
        for name, chances in zip(PREDICTORS, several, strict=True):
            own = np.maximum(chances[chosen], 1e-12)
            loss = -np.log(own[np.arange(n), came[chosen]]).mean()
            guess = last if name == PREDICTORS[1] and where != "first" else chances
            right = (guess[chosen].argmax(axis=1) == came[chosen]).mean()
            rows.append((where, name, n, float(loss), float(right)))
    schema = ["where", "predictor", "n", "loss", "right"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _places(since: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Sightings by the rounds since the one before, each with its name."""
    each = [(_gap_name(*gap), (since >= gap[0]) & (since <= gap[1])) for gap in GAPS]
    return [("all", since >= 0), *each, ("first", since < 0)]


def _gap_name(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} or more" if last > 999 else f"{first}-{last}"


def _shares(states: np.ndarray, n_states: int) -> np.ndarray:
    """Shares of states; a prior counts as one sighting."""
    counts = np.bincount(states, minlength=n_states) + 1 / n_states
    return counts / counts.sum()


def _apart(log: Log, beliefs: np.ndarray, several: Histories) -> pl.DataFrame:
    """Predicted and seen shares of each state, after few rounds and after many."""
    seen = (several.state >= 0) & (several.since >= 0)
    person = np.broadcast_to(several.person[:, None], seen.shape)[seen]
    came, since, expected = several.state[seen], several.since[seen], beliefs[seen]
    rows = []
    for where, chosen in _places(since)[1:-1]:
        n = int(chosen.sum())
        for place, name in enumerate(log.labels.states):
            if n < FEWEST_SEEN:
                continue
            own, chance = came[chosen] == place, expected[chosen, place]
            each = np.bincount(person[chosen], own - chance, len(log.latest))
            error = max(float(np.sqrt((each**2).sum())), 1e-9)
            rows.append((where, name, n, chance.mean(), own.mean(), float(each.sum() / error)))
    schema = {"rounds": pl.String, "state": pl.String, "n": pl.Int64, "predicted": pl.Float64,
              "seen": pl.Float64, "errors": pl.Float64}  # fmt: skip
    return pl.DataFrame(rows, schema=schema, orient="row")


def _unlike_predicted(apart: pl.DataFrame, unit: str) -> list[LogWarning]:
    wrong = apart.filter(pl.col("errors").abs() > SURE)
    if wrong.is_empty():
        return []
    worst = wrong.row(int(wrong["errors"].abs().arg_max() or 0), named=True)
    return [
        LogWarning(
            "unlike_predicted",
            f"{worst['rounds']} {unit}s after a state was seen, {worst['seen']:.0%} of people were "
            f"found {worst['state']} where the fit predicts {worst['predicted']:.0%}: either "
            "people are seen because of the state they are in, or they differ in ways that no "
            "feature tells; what the model believes of people not seen lately is off by as much.",
        )
    ]


def _seen_by_action(several: Histories) -> Iterator[LogWarning]:
    """Where states are seen now and then: whether that goes by what is done."""
    if several.way != "some":
        return
    # A person's first row is left out: joining often shows the state.
    rows = several.there[:, 1:]
    for which, acted in (
        ("with", several.action[:, 1:] > 0),
        ("after", several.action[:, :-1] > 0),
    ):
        one, other = (_rate(several.state[:, 1:], rows & own) for own in (acted, ~acted))
        if _differ(*one, *other):
            yield LogWarning(
                "seen_by_action",
                f"states were seen in {one[0]:.0%} of the rows {which} an action and in "
                f"{other[0]:.0%} of the others, and the model counts with the same chance for "
                "both: it does not know what a look by acting is worth.",
            )


def _seen_by_state(beliefs: np.ndarray, several: Histories, log: Log) -> list[LogWarning]:
    """Whether people are seen more often where they are likely to be better or worse off."""
    rounds = several.there & (several.since >= 1)
    if rounds.sum() < FEWEST_SEEN:
        return []
    likely, seen = (beliefs @ log.labels.rewards)[rounds], (several.state >= 0)[rounds]
    person = np.broadcast_to(several.person[:, None], rounds.shape)[rounds]
    each = np.bincount(person, (likely - likely.mean()) * (seen - seen.mean()))
    if abs(each.sum()) <= SURE * max(float(np.sqrt((each**2).sum())), 1e-9):
        return []
    low, high = np.quantile(likely, [1 / 3, 2 / 3])
    found = (
        f"people who were likely to be worse off were seen in {seen[likely <= low].mean():.1%} of "
        f"the {log.found.unit}s after a first look, and those likely to be better off in "
        f"{seen[likely >= high].mean():.1%} (lowest and highest third)"
    )
    if several.way == "acted":
        why = "that is allowed for if people were chosen by the state last seen or the features"
    else:
        why = "that is allowed for in the chances if it went by the features alone"
    return [
        LogWarning(
            "seen_by_state",
            f"{found}: {why}; if they were seen because of the state they were in, which is in no "
            "row, all chances are wrong: look at some people chosen at random.",
        )
    ]


def _rate(state: np.ndarray, rows: np.ndarray) -> tuple[float, int]:
    """The share of rows with a state, and how many rows there are."""
    n = int(rows.sum())
    return (float((state[rows] >= 0).mean()) if n else 0.0), n


def _differ(one: float, n: int, other: float, m: int) -> bool:
    """Whether two rates differ much, and surely; not where there are few rows."""
    if min(n, m) < FEWEST_SEEN:
        return False
    both = (one * n + other * m) / (n + m)
    error = np.sqrt(max(both * (1 - both), 1e-12) * (1 / n + 1 / m))
    apart = max(one, other) > UNEVEN_SIGHTINGS_RATIO * min(one, other)
    return bool(apart and abs(one - other) > SURE * error)
