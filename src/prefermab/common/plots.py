"""Figures, made with matplotlib (extra `plot`)."""

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from prefermab.common.files import write_atomically
from prefermab.errors import InputError, optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
INK, BLUE, GREY = "#1b1f24", "#2563a8", "#9aa3ad"
POLICY_COLOURS = ("#c8642c", "#3d8b63", "#e3b23c", "#8560a8", "#4f9bb0", "#a34a5e")


class NoPlotsError(InputError):
    """Matplotlib is not installed."""


def check_target(path: Path) -> Path:
    """Raises an error, before the work, unless a figure can be written to this file."""
    if path.suffix.lstrip(".").lower() not in FORMATS:
        raise InputError(f"the picture '{path}' must end in .{', .'.join(FORMATS)}.")
    _figure_class()
    return path


def save_figure(figure: "Figure", path: Path) -> None:
    """Writes a figure to a file atomically."""
    kind = path.suffix.lstrip(".").lower()
    write_atomically(path, lambda draft: figure.savefig(draft, format=kind, dpi=160))


def svg_of(figure, name: str) -> str:
    """A figure as SVG text; the same data give the same text."""
    import matplotlib as mpl

    target = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    # The page does not need Matplotlib's metadata, which has addresses of other sites.
    return re.sub(r"\s*<metadata>.*?</metadata>", "", target.getvalue(), flags=re.DOTALL)


def comparison(frame: pl.DataFrame, title: str) -> "Figure":
    """Reward per arm of each policy, plus or minus two standard errors, and the upper bound.

    Args:
        frame: The result of `prefermab.evaluate`; each opt-in rate gets a panel.
        title: Title of the figure.

    Returns:
        A matplotlib figure.

    >>> import prefermab as pm
    >>> from prefermab.common import plots
    >>> frame = pm.evaluate(pm.domains.Synthetic(), {"none": pm.policies.NoAction()}, trials=50)
    >>> figure = plots.comparison(frame, "Synthetic")
    """
    rates = frame["opt_in"].unique(maintain_order=True).to_list()
    policies = frame["policy"].n_unique()
    figure = blank(2.2 + 4.2 * len(rates), 1.5 + 0.42 * policies)
    panels = figure.subplots(1, len(rates), squeeze=False, sharex=True)[0]
    for panel, rate in zip(panels, rates, strict=True):
        _panel(panel, frame.filter(pl.col("opt_in") == rate))
        if len(rates) > 1:
            shown = f"{rate:.0%} opted in" if isinstance(rate, float) else str(rate)
            panel.set_title(shown, fontsize=10, color=INK)
    figure.suptitle(title, fontsize=12, color=INK, x=0.01, ha="left")
    figure.supxlabel("reward per arm over a trial", fontsize=10, color=INK)
    return figure


def curves(history: pl.DataFrame) -> "Figure":
    """The metrics of a training over its steps, one panel for each metric.

    Args:
        history: `Model.history`.

    Returns:
        A matplotlib figure.

    >>> import prefermab as pm
    >>> from prefermab.common import plots
    >>> model = pm.pretrain(pm.domains.Synthetic(), steps=20)
    >>> figure = plots.curves(model.history)
    """
    along, *metrics = [n for n in history.columns if n not in ("seed", "samples_per_arm")]
    figure = blank(7, 1.1 + 1.3 * len(metrics))
    panels = figure.subplots(len(metrics), 1, squeeze=False, sharex=True)[:, 0]
    for panel, name in zip(panels, metrics, strict=True):
        panel.plot(history[along], history[name], color=BLUE, lw=1.4, marker=".", ms=3)
        panel.set_ylabel(name, fontsize=9, color=INK)
        tidy_panel(panel)
    panels[-1].set_xlabel(along.replace("_", " "), fontsize=9, color=INK)
    figure.align_ylabels()
    return figure


def programme(frame: pl.DataFrame, title: str, budget: float) -> "Figure":
    """A programme over its rounds under each policy, plus or minus two standard errors.

    Args:
        frame: The result of `prefermab.simulate`.
        title: Title of the figure.
        budget: Budget of a round, drawn as a line.

    Returns:
        A matplotlib figure.

    >>> import prefermab as pm
    >>> from prefermab.common import plots
    >>> frame = pm.simulate(domain=pm.domains.Armman(), rounds=5, trials=20)
    >>> figure = plots.programme(frame, "Armman", budget=7)
    """
    figure = blank(9, 5.8)
    (engaged, there), (spent, reached) = figure.subplots(2, 2, sharex=True)
    others = iter(POLICY_COLOURS * frame.height)
    for place, name in enumerate(frame["policy"].unique(maintain_order=True)):
        rows = frame.filter(pl.col("policy") == name)
        color = GREY if name == "none" else BLUE if place == 0 else next(others)
        # The first line is wide and at the back: another line on top of it stays visible.
        style = {"color": color, "lw": 3.2 if place == 0 else 1.3}
        for panel, what in ((engaged, "engagement"), (spent, "spent"), (reached, "reached_share")):
            _band(panel, rows, what, {**style, "label": name})
    one = frame.filter(pl.col("policy") == frame["policy"][0])
    there.fill_between(one["round"], one["opted_in"], color=INK, alpha=0.12, lw=0)
    there.plot(one["round"], one["opted_in"], color=INK, lw=1.4)
    spent.axhline(budget, color=INK, ls=":", lw=1)
    reached.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    for panel, heading in (
        (engaged, "Engagement: reward of the round, per person in"),
        (there, "People in the programme"),
        (spent, "Spent in the round (dotted: the budget)"),
        (reached, "Acted on at least once, of all who ever joined"),
    ):
        panel.set_title(heading, fontsize=9.5, color=INK, loc="left")
        tidy_panel(panel)
        panel.margins(x=0.01)
        if panel is not engaged:
            panel.set_ylim(bottom=-0.02 * panel.get_ylim()[1])
    for panel in (spent, reached):
        panel.set_xlabel("round", fontsize=9, color=INK)
    lines = engaged.get_legend_handles_labels()
    figure.legend(
        *lines, loc="outside lower center", ncols=7, frameon=False, fontsize=9, labelcolor=INK
    )
    figure.suptitle(title, fontsize=12, color=INK, x=0.01, ha="left")
    return figure


def shaping(
    states: np.ndarray, rewards: np.ndarray, cells: np.ndarray, abstract: np.ndarray
) -> "Figure":
    """StateShaping in three panels: rewards by raw state, abstract state by raw state, and rewards
    by abstract state."""
    figure = blank(8, 3)
    left, middle, right = figure.subplots(1, 3)
    dots = {"s": 4, "color": GREY, "alpha": 0.6, "lw": 0}
    left.scatter(states, rewards, **dots)
    left.set_xlabel("raw state")
    left.set_ylabel("reward seen")
    middle.plot(cells, abstract, color=BLUE, lw=1.8)
    middle.set_xlabel("raw state")
    middle.set_ylabel("abstract state")
    right.scatter(np.interp(states, cells, abstract), rewards, **dots)
    right.set_xlabel("abstract state")
    right.set_ylabel("reward seen")
    for panel in (left, middle, right):
        tidy_panel(panel)
    return figure


def budgets(found: pl.DataFrame) -> "Figure":
    """Expected gain, spending and price at several budgets.

    Args:
        found: The result of `Model.what_if`.

    Returns:
        A matplotlib figure.

    >>> import polars as pl
    >>> from prefermab.common import plots
    >>> found = pl.DataFrame({"budget": [1.0, 2.0], "spent": [1.0, 2.0], "price": [0.5, 0.4],
    ...                       "gain": [0.6, 1.0]})
    >>> figure = plots.budgets(found)
    """
    titles = {"gain": "expected gain in reward", "spent": "spent", "price": "price"}
    shown = [name for name in titles if found[name].null_count() < found.height]
    figure = blank(1.2 + 2.8 * len(shown), 2.9)
    for panel, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        panel.plot(found["budget"], found[name], color=BLUE, lw=1.6, marker=".", ms=4)
        panel.set_xlabel("budget", fontsize=9, color=INK)
        panel.set_title(titles[name], fontsize=10, color=INK, loc="left")
        panel.set_ylim(bottom=0)
        tidy_panel(panel)
    return figure


def blank(width: float, height: float) -> "Figure":
    """An empty figure, in inches.

    >>> from prefermab.common import plots
    >>> panel = plots.blank(4, 3).subplots()
    """
    return _figure_class()(figsize=(width, height), layout="constrained")


def tidy_panel(panel: Any) -> None:
    """Removes the upper and right lines of a panel's frame."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["bottom", "left"]].set_color(GREY)
    panel.tick_params(labelsize=8, colors=INK)


def _band(panel: Any, rows: pl.DataFrame, what: str, style: dict[str, Any]) -> None:
    """A line over the rounds, and a band of two standard errors on each side."""
    rounds, mean = rows["round"].to_numpy(), rows[what].to_numpy()
    width = 2 * rows[f"{what}_stderr"].to_numpy()
    panel.plot(rounds, mean, **style)
    panel.fill_between(rounds, mean - width, mean + width, color=style["color"], alpha=0.18, lw=0)


def _panel(panel: Any, rows: pl.DataFrame) -> None:
    rows = rows.reverse()
    places = range(len(rows))
    panel.barh(places, rows["mean"], height=0.62, color=BLUE, alpha=0.9)
    panel.errorbar(
        rows["mean"], places, xerr=2 * rows["stderr"], fmt="none", ecolor=INK, capsize=2, lw=1
    )
    bound = rows["bound"][0]
    if bound is not None:
        panel.axvline(bound, color=INK, ls="--", lw=1)
        panel.annotate(
            "bound", (bound, 1), xycoords=("data", "axes fraction"), xytext=(0, 2),
            textcoords="offset points", ha="center", fontsize=8, color=INK,
        )  # fmt: skip
    for place, mean in zip(places, rows["mean"], strict=True):
        panel.annotate(
            f"{mean:.2f}", (0, place), xytext=(6, 0), textcoords="offset points",
            va="center", color="white", fontsize=9,
        )  # fmt: skip
    panel.margins(x=0.1)
    panel.set_yticks(places, rows["policy"].to_list())
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(GREY)
    panel.tick_params(axis="y", length=0)


def _figure_class() -> type["Figure"]:
    try:
        return optional("matplotlib.figure", "plot", "a picture").Figure
    except InputError as error:
        raise NoPlotsError(str(error)) from None
