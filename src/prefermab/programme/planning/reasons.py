"""Reasons: a few words that say why a person stands where they do on the list."""

import numpy as np
import polars as pl

from prefermab.models.model import Model
from prefermab.programme.planning.roster import Roster, place_texts
from prefermab.programme.planning.rules.limits import reasons_out
from prefermab.programme.planning.scoring import gains_at
from prefermab.programme.tables.columns import named_column, source_columns

WORTH_SAYING = 0.1
"""A second cause is named if its effect is at least this share of the first one's."""

SAMPLED_STATES = 12
"""The most states over which the mean for the state's effect is taken."""


def reasons(
    model: Model,
    roster: Roster,
    standing: np.ndarray,
    table: pl.DataFrame,
    price: float,
    action: np.ndarray,
    gains: np.ndarray,
    locked: np.ndarray,
    wide: bool | None = None,
) -> pl.Series:
    """For each person, what in their state and features moves them up most, and down most."""
    found = effects(model, roster, price, action, gains, wide)
    names = list(found)
    sizes = np.stack([found[name] for name in names])
    texts = [cell_texts(model, table, roster, name) for name in names]
    order = np.argsort(-sizes, axis=0, kind="stable")
    most, least = np.take_along_axis(sizes, order, axis=0)[[0, -1]]
    raised, lowered = pick_cells(texts, order[0], most > 0), pick_cells(texts, order[-1], least < 0)
    also = pick_cells(texts, order[0], np.zeros(roster.size, bool))
    if len(names) > 1:
        second = np.take_along_axis(sizes, order[1:2], axis=0)[0]
        also = pick_cells(texts, order[1], second > WORTH_SAYING * most)
    text = pl.select(
        pl.concat_str(
            "moved up by " + pl.lit(raised) + (" and " + pl.lit(also)).fill_null(""),
            "moved down by " + pl.lit(lowered),
            separator="; ",
            ignore_nulls=True,
        )
    ).to_series()
    out = reasons_out()
    standing_text = np.select([standing == why for why in out], list(out.values()), "")
    first = pl.Series(np.where(locked, "locked in", standing_text).astype(object), dtype=pl.String)
    return pl.select(
        pl.when(first == "")
        .then(text)
        .when(first == "locked in")
        .then("locked in; " + text)
        .otherwise(first)
    ).to_series()


def effects(
    model: Model,
    roster: Roster,
    price: float,
    action: np.ndarray,
    gains: np.ndarray,
    wide: bool | None = None,
) -> dict[str, np.ndarray]:
    """How much the state and each known column of features change the gain of `action`: the state
    compared with the mean over states, a column compared with not knowing it."""
    each = np.arange(roster.size)
    gain = gains[each, action]
    points = np.asarray(model.network.perception.points)
    if not model.network.perception.continuous:
        points = np.arange(len(points))
    if len(points) > SAMPLED_STATES:
        points = points[np.linspace(0, len(points) - 1, SAMPLED_STATES).astype(int)]
    elsewhere = np.zeros(roster.size)
    for point in points:
        states = np.full(roster.size, point, roster.states.dtype)
        elsewhere += gains_at(model, states, roster.features, price, wide)[each, action]
    found = {"state": gain - elsewhere / len(points)}
    for name in source_columns(model.feature_names):
        columns = [
            i
            for i, feature in enumerate(model.feature_names)
            if feature == name or feature.startswith(f"{name}=")
        ]
        hidden = roster.features.copy()
        hidden[:, columns] = np.nan
        if np.isnan(roster.features[:, columns]).all():
            continue
        found[name] = gain - gains_at(model, roster.states, hidden, price, wide)[each, action]
    return found


def cell_texts(model: Model, table: pl.DataFrame, roster: Roster, name: str) -> pl.Series:
    """The value of a column for each person, as text."""
    if name == "state" and not model.network.perception.continuous:
        texts = [f"state {name}" for name in model.state_names]
        if model.sightings is not None:
            texts = place_texts(model, model.sightings)
        return pl.Series(texts, dtype=pl.String).gather(roster.states)
    values = named_column(table, name, "the table")
    if values.dtype.is_float():
        values = values.round_sig_figs(3)
    return f"{name} " + values.cast(pl.String).fill_null("unknown")


def pick_cells(texts: list[pl.Series], which: np.ndarray, where: np.ndarray) -> pl.Series:
    """One cell of each row, from the column number `which`; null unless `where` is true."""
    found = np.full(len(which), None, object)
    for place, column in enumerate(texts):
        rows = np.flatnonzero((which == place) & where)
        found[rows] = column.gather(rows).to_numpy()
    return pl.Series(found.tolist(), dtype=pl.String)
