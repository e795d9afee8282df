"""The figures of the report, as SVG."""

from collections.abc import Mapping, Sequence

import numpy as np

from prefermab.common import plots
from prefermab.common.plots import BLUE, GREY, INK, svg_of
from prefermab.paper.claims import Gaps, interquartile_mean
from prefermab.recipes.shaping import abstract_states

COLOURS = {
    "paper": "#b0622a",
    "paper-literal": "#7a4fa3",
    "sweep": BLUE,
    "exact": "#1a7f37",
    "DDLPO": GREY,
    "DDLPO with features": "#3d4650",
}


def draw_samples_needed(needed: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """Samples of each arm until DDLPO's best reward is reached, by environment, then by recipe or
    DDLPO, with one value for each seed."""
    figure = plots.blank(7.5, 1.2 + 0.9 * len(needed))
    panel = figure.subplots()
    who = list(next(iter(needed.values())))
    height = 0.8 / len(who)
    most = max(v[np.isfinite(v)].max(initial=1) for each in needed.values() for v in each.values())
    for place, each in enumerate(needed.values()):
        for i, name in enumerate(who):
            mean = interquartile_mean(each[name])
            at = place + (i - (len(who) - 1) / 2) * height
            shown = mean if np.isfinite(mean) else most
            panel.barh(
                at, shown, height * 0.9, color=COLOURS[name], label=name if not place else ""
            )
            text = f"{mean:,.0f}" if np.isfinite(mean) else "not reached by most"
            panel.annotate(text, (shown, at), xytext=(4, 0), textcoords="offset points",
                           va="center", fontsize=8, color=INK)  # fmt: skip
    panel.set_yticks(range(len(needed)), list(needed))
    panel.invert_yaxis()
    panel.margins(x=0.15)
    panel.set_xlabel("samples of each arm (interquartile mean over seeds)", fontsize=9)
    plots.tidy_panel(panel)
    figure.legend(loc="outside upper right", ncols=len(who), fontsize=8, frameon=False)
    return svg_of(figure, "samples")


def draw_tuning_curves(curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> str:
    """Share of DDLPO's final reward by samples of each arm. `curves` has, for each recipe or DDLPO,
    the samples (point) and the shares (seed, point)."""
    figure = plots.blank(7.5, 3.4)
    panel = figure.subplots()
    for name, (samples, shares) in curves.items():
        middle = np.array([interquartile_mean(column) for column in shares.T])
        low, high = np.quantile(shares, [0.25, 0.75], axis=0)
        panel.plot(samples, middle, color=COLOURS[name], label=name, lw=1.6)
        panel.fill_between(samples, low, high, color=COLOURS[name], alpha=0.15, lw=0)
    panel.axhline(1.0, color=INK, lw=0.8, ls="--")
    panel.set_xscale("symlog", linthresh=20)
    panel.set_xlim(left=0)
    panel.set_xlabel("samples of each arm", fontsize=9)
    panel.set_ylabel("share of DDLPO's final reward", fontsize=9)
    panel.yaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    plots.tidy_panel(panel)
    panel.legend(fontsize=8, frameon=False)
    return svg_of(figure, "curves")


def draw_gaps(gaps: Sequence[Gaps], counted: str) -> str:
    """Gap to Whittle by the number of arms, beside 1/√arms. Gaps that are not above noise are
    hollow points."""
    figure = plots.blank(6.5, 3.6)
    panel = figure.subplots()
    for it in gaps:
        mean, colour = it.by_seed.mean(axis=0), COLOURS[it.recipe]
        panel.errorbar(it.sizes, mean, 2 * it.stderr, color=colour, lw=1.4, label=it.recipe)
        clear = it.above_noise
        panel.plot(it.sizes[clear], mean[clear], "o", color=colour, ms=5)
        panel.plot(it.sizes[~clear], mean[~clear], "o", color=colour, ms=5, mfc="white")
    sizes, start = gaps[0].sizes, max(it.by_seed.mean(axis=0)[0] for it in gaps)
    falling = start * np.sqrt(sizes[0] / sizes)
    panel.plot(sizes, falling, color=INK, ls="--", lw=1, label="1/√arms")
    panel.axhline(0, color=INK, lw=0.8)
    panel.set_xscale("log")
    panel.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
    panel.minorticks_off()
    panel.set_xlabel(counted, fontsize=9)
    panel.set_ylabel("reward per arm below Whittle", fontsize=9)
    plots.tidy_panel(panel)
    panel.legend(fontsize=8, frameon=False)
    return svg_of(figure, "gaps")


def draw_prices(traces: Mapping[str, Mapping[str, np.ndarray]], best: Mapping[str, float]) -> str:
    """The price in each epoch of training, beside the best price. `traces` has the prices (seed,
    epoch) for each setting and recipe."""
    figure = plots.blank(3.2 * len(traces), 3.0)
    panels = figure.subplots(1, len(traces), squeeze=False)[0]
    for panel, (where, each) in zip(panels, traces.items(), strict=True):
        for recipe, prices in each.items():
            epochs, colour = 1 + np.arange(prices.shape[1]), COLOURS[recipe]
            low, high = prices.min(axis=0), prices.max(axis=0)
            panel.plot(epochs, prices.mean(axis=0), color=colour, lw=1.4, label=recipe)
            panel.fill_between(epochs, low, high, color=colour, alpha=0.15, lw=0)
        panel.axhline(best[where], color=INK, lw=1, ls="--", label="best price")
        panel.set_title(where, fontsize=8)
        panel.set_xlabel("epoch", fontsize=9)
        plots.tidy_panel(panel)
    panels[0].set_ylabel("price", fontsize=9)
    panels[0].legend(fontsize=8, frameon=False)
    return svg_of(figure, "prices")


def draw_state_shaping() -> str:
    """The paper's example: a reward that is constant for states above 0.5, observed with noise."""
    rng = np.random.default_rng(0)
    states = rng.random(300)
    rewards = np.minimum(2 * states, 1.0) + rng.normal(0, 0.03, 300)
    cells = np.linspace(0, 1, 101)
    abstract = abstract_states(cells, states, rewards, "isotonic")
    return svg_of(plots.shaping(states, rewards, cells, abstract), "shaping")


def draw_overview() -> str:
    """How PreFeRMAB trains: the parts of Algorithm 1 and the data that pass between them."""
    boxes = {
        "requests": (0, 2, "requests to join or leave", "who is in, newcomers' features"),
        "shaping": (1, 2, "StateShaping", "raw state to abstract state"),
        "price": (0, 1, "price network", "everyone's states and features to a price"),
        "actor": (1, 1, "actor, for each arm alone", "state, features, price to action odds"),
        "domain": (2, 1, "arms move", "next states, rewards, costs"),
        "update": (0, 0, "price update", "every few epochs, by spending - budget"),
        "learn": (1, 0, "actor and critic learn", "PPO on reward - price x cost"),
        "buffer": (2, 0, "buffer", "what the epoch saw"),
    }
    arrows = (
        ("requests", "price"), ("requests", "actor"), ("shaping", "actor"), ("price", "actor"),
        ("actor", "domain"), ("domain", "buffer"), ("buffer", "learn"), ("learn", "actor"),
        ("learn", "update"), ("update", "price"), ("domain", "shaping"),
    )  # fmt: skip
    figure = plots.blank(9, 3.9)
    panel = figure.subplots()
    panel.set(xlim=(-0.5, 2.5), ylim=(-0.4, 2.4))
    panel.axis("off")
    drawn = {}
    for name, (x, y, title, text) in boxes.items():
        frame = {"boxstyle": "round,pad=0.5", "fc": "#f3f5f7", "ec": BLUE}
        words = f"$\\bf{{{title.replace(' ', chr(92) + ' ')}}}$\n{text}"
        drawn[name] = panel.text(
            x, y, words, ha="center", va="center", fontsize=8, color=INK, bbox=frame,
            linespacing=1.6,
        )  # fmt: skip
    for start, end in arrows:
        panel.annotate(
            "", boxes[end][:2], boxes[start][:2], zorder=0,
            arrowprops={"arrowstyle": "-|>", "color": INK, "lw": 1, "shrinkA": 0, "shrinkB": 0,
                        "patchA": drawn[start].get_bbox_patch(),
                        "patchB": drawn[end].get_bbox_patch()},
        )  # fmt: skip
    return svg_of(figure, "overview")
