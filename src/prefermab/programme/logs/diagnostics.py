"""Statistics of the rows of a log that show whether it may not mean what it seems to mean.

They are computed while a log is read, so that it does not have to keep its rows. `warnings` turns
them into sentences.
"""

import dataclasses
import re

import numpy as np
import polars as pl

from prefermab.programme.logs.features import Column, Profiles, changing_columns
from prefermab.programme.logs.labels import Labels

SENTINEL = re.compile(r"-1|-9|-?(9{2,}|8{2,}|7{2,})")
"""Numbers that stand for unknown in many tables."""

FEWEST_TO_CONCLUDE = 30
"""Fewest rows or people for any conclusion."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference in an outcome between some rows and comparable others, and its z statistic.
    The standard error is clustered by person."""

    effect: float = 0.0
    z: float = 0.0


@dataclasses.dataclass(frozen=True)
class Sentinel:
    """A number that seems to stand for unknown."""

    column: str
    value: str
    rows: int


@dataclasses.dataclass(frozen=True, eq=False)
class Diagnostics:
    """Statistics of rows, in addition to transitions."""

    changing: dict[str, int]
    """Columns that change within a person, with the number of such people."""
    state_correlation: dict[str, float]
    """For these columns: the correlation of their changes from row to row with changes of the
    reward."""
    same_row: Difference
    """Difference in the reward of a row's state with an action in that row, given the row
    before."""
    next_row: Difference
    """Difference in the reward of the next row's state with an action, given the state."""
    previous_row: Difference
    """Difference in the reward of the row before, in rows with an action, given their state."""
    stops: np.ndarray
    """(state, 2): the number of rows after which another row was possible, and of those that were
    the person's last row."""
    stops_by_action: Difference
    """Difference in the share of last rows after an action, given the state."""
    sentinels: tuple[Sentinel, ...]
    like_ids: tuple[str, ...]
    """Columns that seem to be an id."""


def diagnose(
    rows: pl.DataFrame,
    known: pl.DataFrame,
    columns: list[Column],
    profiles: Profiles,
    labels: Labels,
    state_column: str,
) -> Diagnostics:
    """The diagnostics of rows that are sorted by person and time."""
    changing, rewards = changing_columns(known, rows["person"]), labels.rewards
    rows = rows.with_columns(
        reward=pl.lit(pl.Series("reward", rewards)).gather("state"),
        before=pl.col("state").shift().over("person"),
        done=pl.col("action").shift().over("person"),
        following=pl.col("state").shift(-1).over("person"),
        ahead=pl.col("steps").shift(-1).over("person"),
    )
    stops, by_action = _stops(rows, len(rewards))
    same, previous = _same_and_previous_row(rows, rewards)
    return Diagnostics(
        changing=changing,
        state_correlation={name: _state_correlation(rows, known[name]) for name in changing},
        same_row=same,
        next_row=_next_row(rows, rewards),
        previous_row=previous,
        stops=stops,
        stops_by_action=by_action,
        sentinels=(*_number_sentinels(known), *_state_sentinels(rows, state_column, labels.states)),
        like_ids=tuple(_like_ids(rows, columns, profiles, changing)),
    )


def adjusted_difference(
    outcome: np.ndarray, treated: np.ndarray, stratum: np.ndarray, person: np.ndarray
) -> Difference:
    """The mean difference in the outcome between treated and other rows, adjusted for the stratum
    by linear regression with stratum fixed effects; standard errors clustered by person.

    >>> import numpy as np
    >>> from prefermab.programme.logs.diagnostics import adjusted_difference
    >>> treated = np.tile([0, 1], 40)
    >>> found = adjusted_difference(2.0 * treated, treated, np.zeros(80, int), np.arange(80))
    >>> round(found.effect, 2)
    2.0
    """
    if treated.sum() < FEWEST_TO_CONCLUDE:
        return Difference()
    given, own = (
        values - _stratum_means(values, stratum) for values in (treated.astype(float), outcome)
    )
    size = float((given**2).sum())
    if size < 1:
        return Difference()
    effect = float((given * own).sum()) / size
    score = np.bincount(person, weights=given * (own - effect * given))
    error = np.sqrt((score**2).sum()) / size
    return Difference(effect, float(effect / max(error, 1e-9)))


def _stratum_means(values: np.ndarray, stratum: np.ndarray) -> np.ndarray:
    """For each row the mean over its stratum."""
    return (np.bincount(stratum, weights=values) / np.maximum(np.bincount(stratum), 1))[stratum]


def _same_and_previous_row(
    rows: pl.DataFrame, rewards: np.ndarray
) -> tuple[Difference, Difference]:
    """Differences with an action, in the reward of the same row and of the row before."""
    pairs = rows.filter(
        (pl.col("steps") == 1)
        & pl.col("available")
        & pl.all_horizontal(pl.col("state", "action", "before", "done").is_not_null())
    )
    state, before, done, person = (
        pairs[name].to_numpy() for name in ("state", "before", "done", "person")
    )
    acted, n_actions = pairs["action"].to_numpy() > 0, int(done.max(initial=0)) + 1
    return (
        adjusted_difference(rewards[state], acted, before * n_actions + done, person),
        adjusted_difference(rewards[before], acted, state * n_actions + done, person),
    )


def _next_row(rows: pl.DataFrame, rewards: np.ndarray) -> Difference:
    pairs = rows.filter(
        (pl.col("ahead") == 1)
        & pl.col("available")
        & pl.all_horizontal(pl.col("state", "action", "following").is_not_null())
    )
    state, person = pairs["state"].to_numpy(), pairs["person"].to_numpy()
    acted = pairs["action"].to_numpy() > 0
    return adjusted_difference(rewards[pairs["following"].to_numpy()], acted, state, person)


def _stops(rows: pl.DataFrame, n_states: int) -> tuple[np.ndarray, Difference]:
    """Counts of last rows by state, without the last two rounds of the log; and the difference in
    their share after an action."""
    ended = int(rows["round"].max())  # pyright: ignore[reportArgumentType]
    at_risk = rows.with_columns(stopped=pl.col("ahead").is_null()).filter(
        (pl.col("round") < ended - 1) & pl.col("state").is_not_null()
    )
    state, stopped = at_risk["state"].to_numpy(), at_risk["stopped"].to_numpy()
    counts = [np.bincount(each, minlength=n_states) for each in (state, state[stopped])]
    known = at_risk.filter(pl.col("action").is_not_null())
    by_action = adjusted_difference(
        known["stopped"].to_numpy().astype(float), known["action"].to_numpy() > 0,
        known["state"].to_numpy(), known["person"].to_numpy(),
    )  # fmt: skip
    return np.stack(counts, axis=1), by_action


def _state_correlation(rows: pl.DataFrame, values: pl.Series) -> float:
    """The correlation of changes from row to row with changes of the reward; for a category, the
    largest of its levels."""
    now = np.flatnonzero((rows["steps"] == 1).fill_null(False).to_numpy())
    earned = _change(rows["reward"], now)
    if values.dtype.is_numeric():
        return _correlation(_change(values, now), earned)
    levels = values.drop_nulls().unique().sort()
    found = (_correlation(_change(values == level, now), earned) for level in levels)
    return max(found, key=abs)


def _change(values: pl.Series, now: np.ndarray) -> np.ndarray:
    """How much values differ from those of the row before, NaN where one is unknown."""
    real = values.cast(pl.Float64).to_numpy()
    return real[now] - real[now - 1]


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    """The correlation over rows in which both are known; 0 if these are too few."""
    known = ~np.isnan(one + other)
    pairs = np.stack([one[known], other[known]])
    if pairs.shape[1] < FEWEST_TO_CONCLUDE or not pairs.std(axis=1).all():
        return 0.0
    return float(np.corrcoef(pairs)[0, 1])


def _number_sentinels(known: pl.DataFrame) -> list[Sentinel]:
    """Values of numeric columns that seem to stand for unknown."""
    found = []
    for values in known.select(pl.selectors.numeric()).get_columns():
        counts = values.drop_nulls().value_counts()
        often = dict(zip(counts[values.name], counts["count"], strict=True))
        n = len(values) - values.null_count()
        for value in find_sentinels(np.array(sorted(often))):
            if often[value] >= 2 or often[value] >= 0.005 * n:
                found.append(Sentinel(values.name, f"{value:g}", int(often[value])))
    return found


def find_sentinels(values: np.ndarray) -> list[float]:
    """Finds codes for unknown, such as -9 and 999, among distinct sorted numbers. A code counts if
    it is negative and all other numbers are not, or if its distance from them is larger than their
    range.

    >>> import numpy as np
    >>> from prefermab.programme.logs.diagnostics import find_sentinels
    >>> find_sentinels(np.array([-9.0, 18.0, 30.0, 45.0, 999.0]))
    [-9.0, 999.0]
    >>> find_sentinels(np.array([-1.0, 0.0, 1.0]))
    []
    """
    coded = np.array([bool(SENTINEL.fullmatch(f"{value:.15g}")) for value in values], bool)
    rest = values[~coded]
    if len(rest) < 2:
        return []
    low, high = rest[0], rest[-1]
    away = np.maximum(low - values, values - high)
    alone = (values < 0) & (low >= 0) & (len(rest) > 2)
    return values[coded & ((away > high - low) | alone)].tolist()


def _state_sentinels(rows: pl.DataFrame, column: str, labels: tuple[str, ...]) -> list[Sentinel]:
    """Labels of states that seem to be a code for unknown, among numbers or words."""
    numbers = {label: _as_number(label) for label in labels}
    real = sorted(value for value in numbers.values() if value is not None)
    sentinels = find_sentinels(np.array(real))
    often = np.bincount(rows["state"].drop_nulls().to_numpy(), minlength=len(labels))
    words = len(labels) - len(real)
    return [
        Sentinel(column, label, int(often[place]))
        for place, (label, value) in enumerate(numbers.items())
        if value in sentinels or (value is not None and words > 1 and SENTINEL.fullmatch(label))
    ]


def _as_number(label: str) -> float | None:
    try:
        return float(label)
    except ValueError:
        return None


def _like_ids(
    rows: pl.DataFrame, columns: list[Column], profiles: Profiles, changing: dict[str, int]
) -> list[str]:
    """Columns with a different value for each person: texts, or whole numbers that are without
    large gaps or sorted like the ids."""
    ids = rows["id"].unique(maintain_order=True)
    numbers = ids.cast(pl.Float64, strict=False)
    order = (ids if numbers.null_count() else numbers).arg_sort().to_numpy()
    now, start, found = profiles.values[profiles.latest], 0, []
    for column in columns:
        values = now[:, start]
        start += len(column.feature_names)
        if len(ids) < FEWEST_TO_CONCLUDE or column.name in changing or np.isnan(values).any():
            continue
        if column.levels is not None:
            like_id = len(column.levels) == len(ids)
        else:
            like_id = len(np.unique(values)) == len(ids) and _numbers_people(values[order])
        if like_id:
            found.append(column.name)
    return found


def _numbers_people(values: np.ndarray) -> bool:
    """Whether distinct values, in the order of the ids, look like numbers of people."""
    steps = np.diff(values)
    sorted_ = (steps > 0).all() or (steps < 0).all()
    whole = bool((values == values.round()).all())
    return whole and bool(sorted_ or np.ptp(values) < 3 * len(values))
