"""Why somebody is where they are on the list, in a few words."""

import numpy as np
import polars as pl

from prefermab.model import Model
from prefermab.planning.limits import EXCLUDED, OUT, RESTING, Limits
from prefermab.planning.roster import Roster
from prefermab.planning.scores import effects

KEPT_OUT = {OUT: "opted out", EXCLUDED: "excluded", RESTING: "in cooldown"}


def reasons(
    model: Model,
    roster: Roster,
    limits: Limits,
    table: pl.DataFrame,
    price: float,
    action: np.ndarray,
    gains: np.ndarray,
    locked: np.ndarray,
) -> pl.Series:
    """What in their state or features moves each person most up, and most down."""
    found = effects(model, roster, price, action, gains)
    names = list(found)
    sizes = np.stack([found[name] for name in names])
    up, down = sizes.argmax(axis=0), sizes.argmin(axis=0)
    rises, falls = sizes.max(axis=0) > 0, sizes.min(axis=0) < 0
    told = [shown(model, table, roster, name) for name in names]
    raised = picked(told, up)
    lowered = picked(told, down)
    text = pl.select(
        pl.concat_str(
            pl.when(pl.lit(pl.Series(rises))).then("moved up by " + pl.lit(raised)),
            pl.when(pl.lit(pl.Series(falls))).then("moved down by " + pl.lit(lowered)),
            separator="; ",
            ignore_nulls=True,
        )
    ).to_series()
    apart = np.select([limits.standing == why for why in KEPT_OUT], list(KEPT_OUT.values()), "")
    first = pl.Series(np.where(locked, "locked in", apart).astype(object), dtype=pl.String)
    return pl.select(
        pl.when(first == "")
        .then(text)
        .when(first == "locked in")
        .then("locked in; " + text)
        .otherwise(first)
    ).to_series()


def shown(model: Model, table: pl.DataFrame, roster: Roster, name: str) -> pl.Series:
    """What a column says of each person, as text."""
    if name == "state" and not model.network.perception.continuous:
        labels = pl.Series(np.array(model.state_names, object), dtype=pl.String)
        return "state " + labels.gather(roster.states)
    values = table[name]
    if values.dtype.is_float():
        values = values.round_sig_figs(3)
    return f"{name} " + values.cast(pl.String).fill_null("unknown")


def picked(told: list[pl.Series], which: np.ndarray) -> pl.Series:
    """From several columns of text, one cell of each row."""
    found = np.empty(len(which), object)
    for place, column in enumerate(told):
        rows = np.flatnonzero(which == place)
        found[rows] = column.gather(rows).to_numpy()
    return pl.Series(found, dtype=pl.String)
