"""Tables and pictures of the reports on logs, and the assumptions of every fit. Without a plotting
library there are no pictures."""

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from prefermab.common import plots
from prefermab.common.pages import Block, Cell, Grid, Picture, Text
from prefermab.common.plots import svg_of
from prefermab.programme.learning.effects import Effects
from prefermab.programme.learning.verdict import Assessment

MOST_ROWS_SHOWN = 40
"""Most rows of a table in the report; all rows are in the data file beside it."""

MARKOV = (
    "The next state depends on the present state, the action and the features only, in the same "
    "way over time.",
    "People do not influence each other.",
    "The budget is shared by many people, so that no single one changes what is left for others.",
)
"""Assumptions of every fit."""


def estimate_tables(effects: Effects, notes: Sequence[Block] = ()) -> list[Block]:
    """The table of effects, notes on it, and the table of transition probabilities."""
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
        Text("The effect of an action on the reward of the next state:"),
        frame_grid(effects.effects, changes),
        *notes,
        Text(
            "Chances of the next state, those of at least 0.001"
            + (f", the first {MOST_ROWS_SHOWN}:" if len(shown) > MOST_ROWS_SHOWN else ":")
        ),
        frame_grid(shown, chances),
    ]


def text_cells(*texts: str) -> list[Cell]:
    """The cells of a row of a grid."""
    return [Cell(text) for text in texts]


def frame_grid(frame: pl.DataFrame, columns: Mapping[str, str]) -> Grid:
    """The first rows of a frame as a grid; `columns` are format strings by heading."""
    rows = frame.head(MOST_ROWS_SHOWN).iter_rows(named=True)
    return Grid(
        list(columns), [text_cells(*(c.format(**r) for c in columns.values())) for r in rows]
    )


def calibration_picture(bins: pl.DataFrame, name: str) -> Sequence[Picture]:
    """The calibration plot: observed shares against predicted probabilities."""
    with contextlib.suppress(plots.NoPlotsError):
        figure = plots.blank(3.6, 3.4)
        panel = figure.subplots()
        panel.plot([0, 1], [0, 1], color=plots.GREY, lw=1, ls="--")
        reach = [bins["observed"] - bins["low"], bins["high"] - bins["observed"]]
        panel.errorbar(
            bins["predicted"], bins["observed"], yerr=np.clip(reach, 0, None), fmt="o", ms=4,
            color=plots.BLUE, ecolor=plots.INK, lw=1,
        )  # fmt: skip
        panel.set_xlabel("predicted", fontsize=9)
        panel.set_ylabel("observed", fontsize=9)
        plots.tidy_panel(panel)
        caption = (
            "Predicted probabilities of states that were held back, and how often they occurred."
        )
        return [Picture(f"calibration-{name}", svg_of(figure, f"calibration-{name}"), caption)]
    return []


def gain_picture(assessment: Assessment) -> Sequence[Picture]:
    """The gain with its interval, and below it those of the placebo logs."""
    comparison, placebo = assessment.comparison, assessment.placebo
    if comparison is None:
        return []
    with contextlib.suppress(plots.NoPlotsError):
        several = [comparison.gain, *placebo]
        middle = np.array([gain.estimate for gain in several])
        reach = np.array([[g.estimate - g.low, g.high - g.estimate] for g in several]).T
        place = -np.concatenate([[0.0], 1.2 + 0.45 * np.arange(len(placebo))])
        figure = plots.blank(6.4, 2.6)
        panel = figure.subplots()
        panel.axvline(0, color=plots.GREY, lw=1, ls="--")
        own = plots.BLUE if assessment.verdict == "shown" else plots.INK
        for rows, colour, size in ((slice(0, 1), own, 7), (slice(1, None), plots.GREY, 4)):
            panel.errorbar(
                middle[rows], place[rows], xerr=reach[:, rows], fmt="o", ms=size, color=colour,
                ecolor=colour, capsize=3, lw=1.5,
            )  # fmt: skip
        ticks = [0.0, float(place[1:].mean())]
        panel.set_yticks(ticks, ["this log", "actions shuffled:\nno gain possible"])
        panel.set_ylim(float(place.min()) - 0.4, 0.5)
        label = f"gain per person over {comparison.rounds} rounds"
        panel.set_xlabel(label, fontsize=9, color=plots.INK)
        plots.tidy_panel(panel)
        caption = (
            "The gain of a person over what was done so far, with 90 % intervals: in this log, and "
            "in copies of it with shuffled actions, in which there is no gain."
        )
        return [Picture("gain", svg_of(figure, "gain"), caption)]
    return []
