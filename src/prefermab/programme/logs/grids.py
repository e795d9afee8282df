"""Tables of the reports on logs, and what all of them assume."""

from collections.abc import Mapping, Sequence

import polars as pl

from prefermab.pages import Block, Cell, Grid, Text
from prefermab.programme.logs.effects import Effects

MOST_ROWS = 40
"""Rows of a table in the report; the rest is in the data beside it."""

MARKOV = (
    "Where people go next depends on the present state, the action and the features only, and "
    "stays so over time.",
    "People do not influence each other.",
    "The budget is shared by many people, so that no single one changes what is left for others.",
)
"""What every fit assumes."""


def estimate_tables(effects: Effects, told: Sequence[Block] = ()) -> list[Block]:
    """What actions change, what is `told` about it, and the chances of next states."""
    shown = effects.transitions.filter(pl.col("chance") >= 0.001)
    chances = {
        "from, under → to": "{state}, {action} → {next}", "seen": "{n:,}",
        "chance": "{chance:.3f}", "90 % interval": "{low:.3f} to {high:.3f}",
    }  # fmt: skip
    changes = {
        "state and action": "{state}, {action}", "seen": "{n:,}", "effect": "{effect:+.3f}",
        "90 % interval": "{low:+.3f} to {high:+.3f}",
    }  # fmt: skip
    return [
        Text("What an action changes in the reward of the next state:"),
        frame_grid(effects.effects, changes),
        *told,
        Text(
            "Chances of the next state, those of at least 0.001"
            + (f", the first {MOST_ROWS}:" if len(shown) > MOST_ROWS else ":")
        ),
        frame_grid(shown, chances),
    ]


def cells(*texts: str) -> list[Cell]:
    """A row of a grid."""
    return [Cell(text) for text in texts]


def frame_grid(frame: pl.DataFrame, columns: Mapping[str, str]) -> Grid:
    """The first rows of a frame; `columns` are formats of a row's values by heading."""
    rows = frame.head(MOST_ROWS).iter_rows(named=True)
    return Grid(list(columns), [cells(*(c.format(**r) for c in columns.values())) for r in rows])
