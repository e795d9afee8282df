"""Pictures of the report on a log; none without a plotting library."""

import contextlib
from collections.abc import Sequence

import numpy as np
import polars as pl

from prefermab import plots
from prefermab.pages import Picture
from prefermab.plots import svg_of
from prefermab.programme.logs.verdict import Assessment


def calibration_picture(bins: pl.DataFrame, name: str) -> Sequence[Picture]:
    """Predicted against observed; none without a plotting library."""
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
        caption = "Probabilities predicted for what was held back, and how often it came."
        return [Picture(f"calibration-{name}", svg_of(figure, f"calibration-{name}"), caption)]
    return []


def gain_picture(assessment: Assessment) -> Sequence[Picture]:
    """The gain with its interval, and below it those of the placebo."""
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
            "What a person gains compared with what was done so far, with 90 % intervals: in this "
            "log, and in copies of it with shuffled actions, in which nothing can be gained."
        )
        return [Picture("gain", svg_of(figure, "gain"), caption)]
    return []
