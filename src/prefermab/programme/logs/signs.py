"""Signs in the rows of a log that it may not be what it seems, as figures.

They are worked out while the rows are at hand, so that a log need not keep them. What they mean,
and from which size on, is said in `shapes`.
"""

import dataclasses
import re

import numpy as np
import polars as pl

from prefermab.programme.logs.columns import Column
from prefermab.programme.logs.profiles import Profiles, changing

SENTINEL = re.compile(r"-1|-9|-?(9{2,}|8{2,}|7{2,})")
"""Numbers that stand for unknown in many tables."""

FEW = 30
"""Rows or people below which nothing is said of them."""


@dataclasses.dataclass(frozen=True)
class Lean:
    """How much higher an outcome is in some rows than in others of the same kind, and how many
    standard errors that is, when only people are independent of each other."""

    effect: float = 0.0
    z: float = 0.0


@dataclasses.dataclass(frozen=True)
class Odd:
    """A number that seems to stand for unknown."""

    column: str
    value: str
    rows: int


@dataclasses.dataclass(frozen=True, eq=False)
class Signs:
    """What rows show beside transitions."""

    changing: dict[str, int]
    """Columns that change within somebody, and within how many people."""
    follows: dict[str, float]
    """The correlation of their changes with those of the state's reward from row to row."""
    same_row: Lean
    """The reward of a row's state with an action in that row, people's row before being alike."""
    next_row: Lean
    """The reward of the next row's state with an action, the states being alike."""
    came_from: Lean
    """The reward of the row before in rows with an action, their states being alike."""
    stops: np.ndarray
    """(state, 2): rows that others could have followed, and those that none did."""
    stops_by_action: Lean
    """How much more often rows stop after an action, the states being alike."""
    odd: tuple[Odd, ...]
    like_ids: tuple[str, ...]
    """Columns that number people."""


def signs_of(
    rows: pl.DataFrame,
    known: pl.DataFrame,
    columns: list[Column],
    profiles: Profiles,
    rewards: np.ndarray,
    states: tuple[str, tuple[str, ...]],
) -> Signs:
    """Signs of rows in the order of people and time; `states` are the name of their column and
    their labels."""
    moves = changing(known, rows["person"])
    earned = pl.lit(pl.Series("reward", rewards)).gather("state")
    rows = rows.with_columns(
        reward=earned,
        before=pl.col("state").shift().over("person"),
        done=pl.col("action").shift().over("person"),
        following=pl.col("state").shift(-1).over("person"),
        ahead=pl.col("steps").shift(-1).over("person"),
    )
    stops, by_action = _stops(rows, len(rewards))
    same, came = _around(rows, rewards)
    return Signs(
        changing=moves,
        follows={name: _follows(rows, known[name]) for name in moves},
        same_row=same,
        next_row=_next_row(rows, rewards),
        came_from=came,
        stops=stops,
        stops_by_action=by_action,
        odd=(*_odd_numbers(known), *_odd_states(rows, *states)),
        like_ids=tuple(_like_ids(rows, columns, profiles, moves)),
    )


def lean(outcome: np.ndarray, treated: np.ndarray, alike: np.ndarray, person: np.ndarray) -> Lean:
    """How much the outcome differs where `treated`, among rows that are `alike`.

    >>> import numpy as np
    >>> from prefermab.programme.logs.signs import lean
    >>> often = np.tile([0, 1], 40)
    >>> round(lean(2.0 * often, often, np.zeros(80, int), np.arange(80)).effect, 2)
    2.0
    """
    if treated.sum() < FEW:
        return Lean()
    given, own = (values - _means(values, alike) for values in (treated.astype(float), outcome))
    size = float((given**2).sum())
    if size < 1:
        return Lean()
    effect = float((given * own).sum()) / size
    score = np.bincount(person, weights=given * (own - effect * given))
    error = np.sqrt((score**2).sum()) / size
    return Lean(effect, float(effect / max(error, 1e-9)))


def _means(values: np.ndarray, alike: np.ndarray) -> np.ndarray:
    """The mean of the rows that are alike, by a small number, for each row."""
    return (np.bincount(alike, weights=values) / np.maximum(np.bincount(alike), 1))[alike]


def _around(rows: pl.DataFrame, rewards: np.ndarray) -> tuple[Lean, Lean]:
    """What goes with an action in the row itself, and in the row before."""
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
        lean(rewards[state], acted, before * n_actions + done, person),
        lean(rewards[before], acted, state * n_actions + done, person),
    )


def _next_row(rows: pl.DataFrame, rewards: np.ndarray) -> Lean:
    pairs = rows.filter(
        (pl.col("ahead") == 1)
        & pl.col("available")
        & pl.all_horizontal(pl.col("state", "action", "following").is_not_null())
    )
    state, person = pairs["state"].to_numpy(), pairs["person"].to_numpy()
    acted = pairs["action"].to_numpy() > 0
    return lean(rewards[pairs["following"].to_numpy()], acted, state, person)


def _stops(rows: pl.DataFrame, n_states: int) -> tuple[np.ndarray, Lean]:
    """Rows after which a person has no more, long enough before the log's end to tell."""
    ended = int(rows["round"].max())  # pyright: ignore[reportArgumentType]
    at_risk = rows.with_columns(stopped=pl.col("ahead").is_null()).filter(
        (pl.col("round") < ended - 1) & pl.col("state").is_not_null()
    )
    state, stopped = at_risk["state"].to_numpy(), at_risk["stopped"].to_numpy()
    counts = [np.bincount(each, minlength=n_states) for each in (state, state[stopped])]
    told = at_risk.filter(pl.col("action").is_not_null())
    by_action = lean(
        told["stopped"].to_numpy().astype(float), told["action"].to_numpy() > 0,
        told["state"].to_numpy(), told["person"].to_numpy(),
    )  # fmt: skip
    return np.stack(counts, axis=1), by_action


def _follows(rows: pl.DataFrame, values: pl.Series) -> float:
    """The largest correlation, over levels of a category, of changes from row to row."""
    now = np.flatnonzero((rows["steps"] == 1).fill_null(False).to_numpy())
    earned = _change(rows["reward"], now)
    if values.dtype.is_numeric():
        return _correlation(_change(values, now), earned)
    levels = values.drop_nulls().unique().sort()
    found = (_correlation(_change(values == level, now), earned) for level in levels)
    return max(found, key=abs)


def _change(values: pl.Series, now: np.ndarray) -> np.ndarray:
    """By how much values differ from those of the row before, NaN where one is unknown."""
    real = values.cast(pl.Float64).to_numpy()
    return real[now] - real[now - 1]


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Of what is known of both; 0 where that is too little."""
    known = ~np.isnan(one + other)
    pairs = np.stack([one[known], other[known]])
    if pairs.shape[1] < FEW or not pairs.std(axis=1).all():
        return 0.0
    return float(np.corrcoef(pairs)[0, 1])


def _odd_numbers(known: pl.DataFrame) -> list[Odd]:
    """Values of numeric columns that stand for unknown, by how they look and where they stand."""
    found = []
    for values in known.select(pl.selectors.numeric()).get_columns():
        counts = values.drop_nulls().value_counts()
        often = dict(zip(counts[values.name], counts["count"], strict=True))
        n = len(values) - values.null_count()
        for value in far_out(np.array(sorted(often))):
            if often[value] >= 2 or often[value] >= 0.005 * n:
                found.append(Odd(values.name, f"{value:g}", int(often[value])))
    return found


def far_out(values: np.ndarray) -> list[float]:
    """Of different numbers in order those that look like a word for unknown and stand apart: the
    only negative one, or further from all others than these are from each other.

    >>> import numpy as np
    >>> from prefermab.programme.logs.signs import far_out
    >>> far_out(np.array([-9.0, 18.0, 30.0, 45.0, 999.0])), far_out(np.array([-1.0, 0.0, 1.0]))
    ([-9.0, 999.0], [])
    """
    looks = np.array([bool(SENTINEL.fullmatch(f"{value:.15g}")) for value in values], bool)
    rest = values[~looks]
    if len(rest) < 2:
        return []
    low, high = rest[0], rest[-1]
    away = np.maximum(low - values, values - high)
    alone = (values < 0) & (low >= 0) & (len(rest) > 2)
    return values[looks & ((away > high - low) | alone)].tolist()


def _odd_states(rows: pl.DataFrame, column: str, labels: tuple[str, ...]) -> list[Odd]:
    """Labels of states that are a number for unknown, among numbers or words."""
    numbers = {label: _number(label) for label in labels}
    real = sorted(value for value in numbers.values() if value is not None)
    odd = far_out(np.array(real))
    often = np.bincount(rows["state"].drop_nulls().to_numpy(), minlength=len(labels))
    words = len(labels) - len(real)
    return [
        Odd(column, label, int(often[place]))
        for place, (label, value) in enumerate(numbers.items())
        if value in odd or (value is not None and words > 1 and SENTINEL.fullmatch(label))
    ]


def _number(label: str) -> float | None:
    try:
        return float(label)
    except ValueError:
        return None


def _like_ids(
    rows: pl.DataFrame, columns: list[Column], profiles: Profiles, moves: dict[str, int]
) -> list[str]:
    """Columns with another value for everybody: texts, or whole numbers without large gaps or in
    the order of the ids."""
    ids = rows["id"].unique(maintain_order=True)
    numbers = ids.cast(pl.Float64, strict=False)
    order = (ids if numbers.null_count() else numbers).arg_sort().to_numpy()
    now, start, found = profiles.values[profiles.latest], 0, []
    for column in columns:
        values = now[:, start]
        start += len(column.feature_names)
        if len(ids) < FEW or column.name in moves or np.isnan(values).any():
            continue
        if column.levels is not None:
            alike = len(column.levels) == len(ids)
        else:
            alike = len(np.unique(values)) == len(ids) and _numbering(values[order])
        if alike:
            found.append(column.name)
    return found


def _numbering(values: np.ndarray) -> bool:
    """Whether different numbers, in the order of ids, count people."""
    steps = np.diff(values)
    in_order = (steps > 0).all() or (steps < 0).all()
    whole = bool((values == values.round()).all())
    return whole and bool(in_order or np.ptp(values) < 3 * len(values))
