"""Pictures of a report, left out where none can be drawn."""

import contextlib
from collections.abc import Sequence

import numpy as np
import polars as pl

from prefermab import plots
from prefermab.pages import Picture
from prefermab.plots import svg_of

SHOWN = {"prefermab": "model", "as logged": "as logged", "random": "random", "none": "no action"}


def calibration(bins: pl.DataFrame) -> Sequence[Picture]:
    """Predicted against observed."""
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
        plots.plain(panel)
        caption = "Chances foretold for the weeks held out, and how often it came so."
        return [Picture("calibration", svg_of(figure, "calibration"), caption)]
    return []


def comparison(frame: pl.DataFrame, rounds: int) -> Sequence[Picture]:
    """What a person earns by each policy."""
    with contextlib.suppress(plots.NoPlotsError):
        rows = {row["policy"]: row for row in frame.iter_rows(named=True)}
        shown = [rows[name] for name in reversed(SHOWN)]
        mean, low, high = (np.array([row[key] for row in shown]) for key in ("mean", "low", "high"))
        figure = plots.blank(6.4, 2.3)
        panel = figure.subplots()
        colors = [plots.BLUE if row["policy"] == "prefermab" else plots.GREY for row in shown]
        panel.barh(range(len(shown)), mean, height=0.62, color=colors)
        panel.errorbar(
            mean, range(len(shown)), xerr=np.clip([mean - low, high - mean], 0, None), fmt="none",
            ecolor=plots.INK, capsize=3, lw=1,
        )  # fmt: skip
        for place, row in enumerate(shown):
            panel.annotate(
                f"{row['mean']:.2f}", (row["high"], place), xytext=(6, 0),
                textcoords="offset points", va="center", color=plots.INK, fontsize=9,
            )  # fmt: skip
        panel.margins(x=0.12)
        panel.set_yticks(range(len(shown)), [SHOWN[row["policy"]] for row in shown])
        panel.set_xlabel(f"reward per person over {rounds} rounds", fontsize=9, color=plots.INK)
        plots.plain(panel)
        caption = (
            "What a person earns by each policy, for the same budget. Lines hold 90 % of the "
            "worlds that the log allows; a good world is good for all policies, so that "
            "differences are surer than the lines look."
        )
        return [Picture("comparison", svg_of(figure, "comparison"), caption)]
    return []
