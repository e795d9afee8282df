"""Checks of a fit to a log in which most states are empty: how well it predicts sightings, and
whether sightings depend on the state.

A sighting is predicted from the sighting before, the rounds since, the actions and the features.
Prediction errors are measured on people who were held out of the fit.

The fit assumes that sightings are missing at random: whether a person is seen depends on what is in
the log, not on the unseen state itself. If it does depend on the state, the shares of states that
are seen after few and after many rounds may contradict the fit. That can be checked.
"""

import dataclasses
from collections.abc import Iterator

import numpy as np
import polars as pl

from prefermab.programme.logs.fitting import Fit
from prefermab.programme.logs.hidden import fit_hidden
from prefermab.programme.logs.histories import Histories
from prefermab.programme.logs.likelihood import predict
from prefermab.programme.logs.log_warnings import FEWEST_SEEN, SURE, LogWarning
from prefermab.programme.logs.reading import Log

HELD_OUT_PEOPLE, HELD_OUT_DRAWS = 0.2, 16
"""Share of the people who are held out, and posterior draws of the fit to the others."""

GAPS = ((1, 1), (2, 3), (4, 7), (8, 10**6))
"""Groups of the rounds since the sighting before: the first and the last of each."""

PREDICTORS = ("the fit", "as last seen", "average")

UNEVEN_SIGHTINGS_RATIO = 1.5
"""Ratio between the shares of rows with a state, with and without an action, above which there is a
warning."""


@dataclasses.dataclass(frozen=True, eq=False)
class Visits:
    """The checks.

    `predicted` has the prediction errors on people who were held out: where (all, a group of rounds
    since the sighting before, or first), predictor, n, loss (mean negative log-probability of the
    state that was seen) and right (share of sightings whose most probable state was seen). None
    where too few people can be held out. `apart` compares shares on all people: rounds, state, n,
    predicted and seen shares, and their difference in standard errors, clustered by person.
    """

    people: int
    """The number of people who were held out."""
    predicted: pl.DataFrame | None
    apart: pl.DataFrame
    warnings: tuple[LogWarning, ...]


def check_visits(log: Log, fit: Fit, seed: int = 0) -> Visits:
    """Predicts the sightings of a log, and warns where they contradict the fit.

    >>> from prefermab.programme.logs.reading import read_log
    >>> from prefermab.programme.logs.simulated import example_tables, keep_seen
    >>> from prefermab.programme.logs.hidden import fit_hidden
    >>> from prefermab.programme.learning.visits import check_visits
    >>> frame = keep_seen(example_tables(people=60, weeks=10)[1], "none")
    >>> log = read_log(frame, time="week", passive="none", seen=None,
    ...     rewards={"engaged": 1, "drifting": 0.5, "silent": 0})
    >>> found = check_visits(log, fit_hidden(log, draws=8))
    >>> found.apart.columns
    ['rounds', 'state', 'n', 'predicted', 'seen', 'errors']
    """
    histories = log.histories
    assert histories is not None
    people = np.unique(histories.person[(histories.since >= 0).any(axis=1)])
    held = np.random.default_rng(seed).permutation(people)[: round(HELD_OUT_PEOPLE * len(people))]
    mask = np.isin(np.arange(len(log.latest)), held)
    others = histories.for_people(~mask)
    predicted = None
    if min(_sightings(histories.for_people(mask)), _sightings(others)) >= FEWEST_SEEN:
        predicted = _predictions(
            log, fit_hidden(log, HELD_OUT_DRAWS, seed, others), others, histories.for_people(mask)
        )
    beliefs = _beliefs(log, fit, histories)
    apart = _apart(log, beliefs, histories)
    found = [
        *_unlike_predicted(apart, log.found.unit),
        *_seen_by_action(histories),
        *_seen_by_state(beliefs, histories, log),
    ]
    return Visits(len(held), predicted, apart, tuple(found))


def _sightings(histories: Histories) -> int:
    return int(((histories.state >= 0) & (histories.since >= 0)).sum())


def _beliefs(log: Log, fit: Fit, histories: Histories) -> np.ndarray:
    return predict(histories, fit.chances(log.profiles), fit.first_states(log.profiles))


def _predictions(log: Log, fit: Fit, others: Histories, held: Histories) -> pl.DataFrame:
    """Prediction errors of three predictors on the held-out people; all learn from the others."""
    n_states = log.shape[0]
    seen = (held.state >= 0) & ((held.since >= 0) | held.new[:, None])
    observed, since = held.state[seen], held.since[seen]
    known = (others.state >= 0) & (others.since >= 0)
    average = _shares(others.state[others.state >= 0], n_states)
    stayed = (others.state[known] == others.last_seen[known]).mean()
    last = np.eye(n_states)[held.last_seen[seen]]
    # The state last seen gets the share of sightings that repeat it; the rest is the average.
    same = np.where(since[:, None] >= 0, stayed * last + (1 - stayed) * average, average)
    predicted = (_beliefs(log, fit, held)[seen], same, np.broadcast_to(average, same.shape))
    rows = []
    for where, chosen in _places(since):
        n = int(chosen.sum())
        if not n:
            continue
        for name, chances in zip(PREDICTORS, predicted, strict=True):
            own = np.maximum(chances[chosen], 1e-12)
            loss = -np.log(own[np.arange(n), observed[chosen]]).mean()
            guess = last if name == PREDICTORS[1] and where != "first" else chances
            right = (guess[chosen].argmax(axis=1) == observed[chosen]).mean()
            rows.append((where, name, n, float(loss), float(right)))
    schema = ["where", "predictor", "n", "loss", "right"]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _places(since: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """Masks of sightings by the rounds since the sighting before, each with its name."""
    each = [(_gap_name(*gap), (since >= gap[0]) & (since <= gap[1])) for gap in GAPS]
    return [("all", since >= 0), *each, ("first", since < 0)]


def _gap_name(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} or more" if last > 999 else f"{first}-{last}"


def _shares(states: np.ndarray, n_states: int) -> np.ndarray:
    """Shares of states; a prior counts as one sighting."""
    counts = np.bincount(states, minlength=n_states) + 1 / n_states
    return counts / counts.sum()


def _apart(log: Log, beliefs: np.ndarray, histories: Histories) -> pl.DataFrame:
    """Predicted and seen shares of each state, by the rounds since the sighting before."""
    seen = (histories.state >= 0) & (histories.since >= 0)
    person = np.broadcast_to(histories.person[:, None], seen.shape)[seen]
    observed, since, expected = histories.state[seen], histories.since[seen], beliefs[seen]
    rows = []
    for where, chosen in _places(since)[1:-1]:
        n = int(chosen.sum())
        for place, name in enumerate(log.labels.states):
            if n < FEWEST_SEEN:
                continue
            own, chance = observed[chosen] == place, expected[chosen, place]
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
            "feature shows; what the model believes about people who were not seen lately is wrong "
            "by as much.",
        )
    ]


def _seen_by_action(histories: Histories) -> Iterator[LogWarning]:
    """For logs of the way `some`: whether sightings depend on the action."""
    if histories.way != "some":
        return
    # A person's first row is left out: joining often shows the state.
    rows = histories.has_round[:, 1:]
    for which, acted in (
        ("with", histories.action[:, 1:] > 0),
        ("after", histories.action[:, :-1] > 0),
    ):
        one, other = (_rate(histories.state[:, 1:], rows & own) for own in (acted, ~acted))
        if _differ(*one, *other):
            yield LogWarning(
                "seen_by_action",
                f"states were seen in {one[0]:.0%} of the rows {which} an action and in "
                f"{other[0]:.0%} of the others, but the model assumes the same chance for both: it "
                "does not count that acting also shows states.",
            )


def _seen_by_state(beliefs: np.ndarray, histories: Histories, log: Log) -> list[LogWarning]:
    """Whether sightings depend on how well off people are predicted to be."""
    rounds = histories.has_round & (histories.since >= 1)
    if rounds.sum() < FEWEST_SEEN:
        return []
    likely, seen = (beliefs @ log.labels.rewards)[rounds], (histories.state >= 0)[rounds]
    person = np.broadcast_to(histories.person[:, None], rounds.shape)[rounds]
    each = np.bincount(person, (likely - likely.mean()) * (seen - seen.mean()))
    if abs(each.sum()) <= SURE * max(float(np.sqrt((each**2).sum())), 1e-9):
        return []
    low, high = np.quantile(likely, [1 / 3, 2 / 3])
    found = (
        f"people who were likely to be worse off were seen in {seen[likely <= low].mean():.1%} of "
        f"the {log.found.unit}s after a first look, and those likely to be better off in "
        f"{seen[likely >= high].mean():.1%} (lowest and highest third)"
    )
    if histories.way == "acted":
        why = "the fit accounts for it if people were chosen by the state last seen or the features"
    else:
        why = "the fit accounts for it if people were chosen by the features alone"
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
    """Whether two rates differ by a large factor and significantly; False if there are few rows."""
    if min(n, m) < FEWEST_SEEN:
        return False
    both = (one * n + other * m) / (n + m)
    error = np.sqrt(max(both * (1 - both), 1e-12) * (1 / n + 1 / m))
    apart = max(one, other) > UNEVEN_SIGHTINGS_RATIO * min(one, other)
    return bool(apart and abs(one - other) > SURE * error)
