"""The report's pictures, as SVG."""

import io
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

import numpy as np

from prefermab import plots
from prefermab.experiments.trends import interquartile_mean
from prefermab.plots import BLUE, GREY, INK
from prefermab.shaping import shaped

COLOURS = {"paper": "#b0622a", "sweep": BLUE, "exact": "#1a7f37", "DDLPO": GREY}


def svg_of(figure, name: str) -> str:
    """A figure as SVG, the same for the same data."""
    import matplotlib as mpl

    target = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return target.getvalue()


def samples_needed(needed: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """Samples of each arm until DDLPO's best reward: environment, then who, one value a seed."""
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
    plots.plain(panel)
    figure.legend(loc="outside upper right", ncols=len(who), fontsize=8, frameon=False)
    return svg_of(figure, "samples")


def tuning_curves(curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> str:
    """Share of DDLPO's final reward against samples of each arm: who, (samples, (seed, point))."""
    figure = plots.blank(7.5, 3.4)
    panel = figure.subplots()
    for name, (samples, shares) in curves.items():
        middle = np.array([interquartile_mean(column) for column in shares.T])
        low, high = np.quantile(shares, [0.25, 0.75], axis=0)
        panel.plot(samples, middle, color=COLOURS[name], label=name, lw=1.6)
        panel.fill_between(samples, low, high, color=COLOURS[name], alpha=0.15, lw=0)
    panel.axhline(1.0, color=INK, lw=0.8, ls="--")
    panel.set_xscale("symlog", linthresh=20)
    panel.set_xlabel("samples of each arm", fontsize=9)
    panel.set_ylabel("share of DDLPO's final reward", fontsize=9)
    panel.yaxis.set_major_formatter(lambda x, _: f"{x:.0%}")
    plots.plain(panel)
    panel.legend(fontsize=8, frameon=False)
    return svg_of(figure, "curves")


def generalization(sizes: np.ndarray, errors: Mapping[str, np.ndarray]) -> str:
    """Error against the number of training arms, both on logarithmic scales, beside 1/√arms."""
    figure = plots.blank(6.5, 3.6)
    panel = figure.subplots()
    for name, each in errors.items():
        mean = each.mean(axis=0)
        low, high = np.quantile(each, [0.25, 0.75], axis=0)
        panel.plot(sizes, mean, color=COLOURS[name], marker="o", ms=4, lw=1.6, label=name)
        panel.fill_between(
            sizes, np.maximum(low, 1e-4), np.maximum(high, 1e-4), color=COLOURS[name], alpha=0.15,
            lw=0,
        )  # fmt: skip
    start = max(each.mean(axis=0)[0] for each in errors.values())
    panel.plot(sizes, start * np.sqrt(sizes[0] / sizes), color=INK, ls="--", lw=1, label="1/√arms")
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(sizes, [f"{size:.0f}" for size in sizes])
    panel.minorticks_off()
    panel.set_xlabel("unique training arms", fontsize=9)
    panel.set_ylabel("reward per arm below Whittle", fontsize=9)
    plots.plain(panel)
    panel.legend(fontsize=8, frameon=False)
    return svg_of(figure, "generalization")


def state_shaping() -> str:
    """The paper's example: a reward that is flat above half, seen with some noise."""
    rng = np.random.default_rng(0)
    states = rng.random(300)
    rewards = np.minimum(2 * states, 1.0) + rng.normal(0, 0.03, 300)
    cells = np.linspace(0, 1, 101)
    abstract = shaped(cells, states, rewards, "isotonic")
    return svg_of(plots.shaping(states, rewards, cells, abstract), "shaping")


def overview() -> str:
    """How PreFeRMAB trains: the parts of Algorithm 1 and what passes between them."""
    boxes = {
        "requests": (20, 30, "requests to join or leave", "who is in (ξ), newcomers' features"),
        "price": (20, 150, "price network Λ", "states, features, ξ of all arms → price λ"),
        "shaping": (280, 30, "StateShaping", "raw state → abstract state"),
        "actor": (280, 150, "actor, for each arm alone", "state, features, λ → action odds"),
        "domain": (540, 150, "arms move", "next states, rewards, costs"),
        "buffer": (540, 270, "buffer", "what the epoch saw"),
        "learn": (280, 270, "actor and critic learn", "PPO on reward - λ·cost"),
        "update": (20, 270, "price update", "every few epochs, by spending - budget"),
    }
    arrows = [
        ("requests", "price", ""), ("requests", "actor", ""), ("shaping", "actor", "states"),
        ("price", "actor", "λ"), ("actor", "domain", "actions"), ("domain", "buffer", ""),
        ("buffer", "learn", ""), ("learn", "actor", ""), ("learn", "update", "spending"),
        ("update", "price", ""), ("domain", "shaping", "states"),
    ]  # fmt: skip
    return _diagram(boxes, arrows, 780, 360)


def _diagram(
    boxes: Mapping[str, tuple[int, int, str, str]],
    arrows: Sequence[tuple[str, str, str]],
    width: int,
    height: int,
) -> str:
    wide, tall = 220, 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" font-family="system-ui, sans-serif" fill="{INK}">',
        '<defs><marker id="overview-tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>',
    ]
    for start, end, label in arrows:
        (x0, y0, *_), (x1, y1, *_) = boxes[start], boxes[end]
        a, b = np.array([x0 + wide / 2, y0 + tall / 2]), np.array([x1 + wide / 2, y1 + tall / 2])
        a, b = _edge(a, b, wide, tall), _edge(b, a, wide, tall)
        parts.append(
            f'<line x1="{a[0]:.0f}" y1="{a[1]:.0f}" x2="{b[0]:.0f}" y2="{b[1]:.0f}" '
            f'stroke="{INK}" stroke-width="1.2" marker-end="url(#overview-tip)"/>'
        )
        if label:
            middle = (a + b) / 2
            parts.append(
                f'<text x="{middle[0]:.0f}" y="{middle[1] - 5:.0f}" font-size="11" '
                f'text-anchor="middle">{escape(label)}</text>'
            )
    for x, y, title, text in boxes.values():
        parts.append(
            f'<rect x="{x}" y="{y}" width="{wide}" height="{tall}" rx="6" fill="#f3f5f7" '
            f'stroke="{BLUE}"/><text x="{x + 12}" y="{y + 25}" font-size="14" font-weight="600">'
            f'{escape(title)}</text><text x="{x + 12}" y="{y + 45}" font-size="11">{escape(text)}'
            "</text>"
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _edge(inside: np.ndarray, towards: np.ndarray, wide: int, tall: int) -> np.ndarray:
    """Where the line from a box's middle to a point leaves the box."""
    way = towards - inside
    reach = np.array([wide / 2, tall / 2]) / np.maximum(np.abs(way), 1e-9)
    return inside + way * min(reach)
