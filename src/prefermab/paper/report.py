"""The report: published figures beside ours, the paper's claims, and both as data."""

import dataclasses
import math
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

import prefermab
from prefermab.common.pages import Block, Bullets, Cell, Grid, Heading, Text
from prefermab.paper import claims, verdicts
from prefermab.paper.cells import CellComparison, Lift, Noise, NoiseFit, compare_cells, fit_noise
from prefermab.paper.claims import Trend, interquartile_mean
from prefermab.paper.parts import claim_grid, noise_grid, part_blocks, report_table
from prefermab.paper.results import Results
from prefermab.paper.runner import EVALUATION_SEED, PAPER_RECIPES, Task
from prefermab.paper.tables import PAPER_EXCEPTIONS

REPORT_PARTS = (*(f"table{i}" for i in range(1, 17)), *(f"figure{i}" for i in range(1, 5)))
REPORT_PARTS = (*REPORT_PARTS, "prop1", "pools", "prop3")
TITLE = "PreFeRMAB: published figures and ours"
RECIPE_GROUPS = {
    "both": ("paper", "sweep"),
    "papers": PAPER_RECIPES,
    "all": ("paper", "sweep", "exact"),
    "every": (*PAPER_RECIPES, "sweep", "exact"),
}
MARK_LABELS = {
    "better": "better ▲",
    "same": "within noise ●",
    "worse": "worse ▼",
    "beyond": "below a figure above the bound ◇",
}
LIFT_MARK_LABELS = {mark: MARK_LABELS[mark] for mark in ("better", "same", "worse")}


def tasks_of(parts: Sequence[str], results: Results) -> list[Task]:
    """All tasks that these parts need."""
    found: list[Task] = []
    for part in parts:
        if part in ("figure1", "figure3"):
            found += results.tuning_tasks()
        elif part == "prop3":
            found += results.price_tasks()
        elif (table := report_table(part, results)) is not None:
            found += results.tasks_of(table)
    return found


@dataclasses.dataclass(frozen=True)
class PaperFindings:
    """All comparisons with published cells, the tested claims of each part, the noise of published
    figures, and the samples that fine-tuning needs."""

    judged: list[CellComparison]
    trends: dict[str, list[Trend]]
    noise: Noise
    samples: dict[str, dict[str, np.ndarray]]

    @property
    def models(self) -> list[CellComparison]:
        """The cells of PreFeRMAB."""
        return [cell for cell in self.judged if cell.policy == "prefermab"]


def collect_findings(parts: Sequence[str], results: Results) -> PaperFindings:
    """Reads the results that these parts need and compares them with the published ones."""
    shown = [table for part in parts if (table := report_table(part, results)) is not None]
    noise = fit_noise(shown, results)
    judged = [cell for table in shown for cell in compare_cells(table, results, noise)]
    trends = {table.name: verdicts.trends_of(results, table) for table in shown}
    samples = {}
    if {"figure1", "figure3"} & set(parts):
        trends["figure1"] = verdicts.tuning_trends(results)
        samples = verdicts.samples_needed(results)
    if "prop3" in parts:
        trends["prop3"] = claims.price_trends(results)
    return PaperFindings(judged, trends, noise, samples)


def paper_report_blocks(
    parts: Sequence[str], results: Results, findings: PaperFindings, command: str
) -> list[Block]:
    """The whole report."""
    blocks = summary_blocks(parts, results, command, findings)
    for part in parts:
        own = [cell for cell in findings.judged if cell.table.name == part]
        blocks += part_blocks(part, results, own, findings.trends, findings.noise)
    return blocks


LEGEND = (
    "▲ better than published, ● within noise (two standard errors of the difference), ▼ "
    "worse, ◇ worse than a published figure above the bound, which no policy can reach in "
    "expectation. Published figures rest on one trained model and 50 trials that share about 130 "
    "arms; their standard error is the printed deviation over √50 times a factor that is fitted to "
    "the baselines of each domain ([below](#noise)). Where a printed figure was divided by fewer "
    "arms than were in, the corrected one stands in brackets and ours is compared with it. After ± "
    "stands a standard error over seeds and trials, or the published standard deviation over "
    "trials. *Over No Action* is what is earned more than No Action earns in the same column. "
    "Whittle and Lagrangian know everyone's true dynamics, the models see features only."
)

NOISE = (
    "No Action and Random learn nothing, so what they earn here and in the paper differs by noise "
    "only, and by what we may have read differently. For each domain the printed error of a "
    "published figure is multiplied by the factor at which the differences of its baselines, in "
    "standard errors, have a mean square of one (at least 1). The same for what is earned over No "
    "Action, by Random. A model adds the luck of one training, which no factor here includes."
)


def summary_blocks(
    parts: Sequence[str], results: Results, command: str, findings: PaperFindings
) -> list[Block]:
    """The summary at the top of the report."""
    scale, models = results.scale, findings.models
    small = " **Everything is made small here: figures mean nothing.**" if scale.quick else ""
    blocks: list[Block] = [
        Text(
            f"Every table and figure of the paper, computed again with {scale.seeds} training "
            f"seeds and {scale.trials:,} paired trials a cell (epidemics {scale.trials // 5:,}): "
            "every policy meets the same new arms, starts and luck. Figures are rewards per "
            f"opted-in arm over nine rounds.{small}"
        ),
        Text(LEGEND),
        Heading("Summary", name="summary"),
        Grid(
            ["recipe", "cells", *MARK_LABELS.values(), "share of the bound"],
            [summary_row(recipe, models) for recipe in results.recipes],
        ),
        Heading("By what is earned over No Action", 3),
        Grid(
            ["recipe", "cells", *LIFT_MARK_LABELS.values(), "below, noise or not"],
            [lift_row(recipe, models) for recipe in results.recipes],
        ),
        *above_bound_blocks(models),
        *topline_blocks(findings.judged),
    ]
    for recipe in results.recipes:
        blocks += shortfalls(recipe, [cell for cell in models if cell.who == recipe])
    if findings.noise.level:
        title = Heading("The noise of published figures", 3, "noise")
        blocks += [title, Text(NOISE), noise_grid(findings.noise)]
    every = [(name, trend) for name, found in findings.trends.items() for trend in found]
    if every:
        blocks += [
            Heading("The paper's claims", 3),
            Text(
                "How often each held where it was tested. It holds if the whole 95 % interval over "
                "seeds is on its side, fails if all of it is on the other, and is open if the "
                "interval reaches across; the intervals stand with the tables."
            ),
            claim_grid(every),
        ]
    links = ", ".join(f"[{part}](#{part})" for part in parts)
    return [
        *blocks,
        Text(f"Parts: {links}, [how it was made](#made)."),
        *method_blocks(results, command),
    ]


def shortfalls(recipe: str, cells: list[CellComparison]) -> list[Block]:
    """The cells in which a recipe earns less than published, or less than our target for it."""
    blocks: list[Block] = []
    below = [cell for cell in cells if cell.mark == "worse"]
    if below:
        listed = "; ".join(f"[{c.table.name}](#{c.table.name}) {c.where}" for c in below)
        blocks.append(Text(f"Worse than published, `{recipe}`: {listed}."))
    if recipe not in PAPER_RECIPES and cells:
        short = [cell for cell in cells if not cell.reaches]
        blocks.append(
            Text(
                f"`{recipe}` is to earn the published figure everywhere, or 99 % of "
                "the informed policy where that figure is above the bound. "
                + (shortfall_sentence(short) if short else "It does.")
            )
        )
    return blocks


def shortfall_sentence(cells: list[CellComparison]) -> str:
    """A sentence that lists the cells in which a recipe earns less than its target."""
    listed = "; ".join(
        f"[{c.table.name}](#{c.table.name}) {c.where} ({c.ours.value:.3f} ± {c.ours.stderr:.3f} of "
        f"{c.published.corrected:.3f}, {c.of_informed:.1%} of the informed policy)"
        for c in cells
    )
    return f"It does not in: {listed}."


def summary_row(recipe: str, models: list[CellComparison]) -> list[Cell]:
    """Numbers of cells in which a recipe is better, within noise and worse."""
    own = [cell for cell in models if cell.who == recipe]
    counts = [sum(cell.mark == mark for cell in own) for mark in MARK_LABELS]
    shares = [cell.of_bound for cell in own]
    span = f"{min(shares):.1%} to {max(shares):.1%}" if shares else ""
    return [Cell(f"`{recipe}`"), Cell(str(len(own))), *(Cell(str(c)) for c in counts), Cell(span)]


def lift_row(recipe: str, models: list[CellComparison]) -> list[Cell]:
    """The same numbers for the reward over No Action, and how often it is less than published."""
    own = [cell.lift for cell in models if cell.who == recipe and cell.lift is not None]
    counts = [sum(lift.mark == mark for lift in own) for mark in LIFT_MARK_LABELS]
    below = sum(lift.pair.ours < lift.pair.published for lift in own)
    return [Cell(f"`{recipe}`"), *(Cell(str(c)) for c in (len(own), *counts, below))]


def above_bound_blocks(models: list[CellComparison]) -> list[Block]:
    """The published cells that no policy can reach in expectation."""
    cells = {(cell.table.name, cell.where): cell for cell in models}
    above = [f"[{t}](#{t}) {where}" for (t, where), cell in cells.items() if cell.above_bound]
    if not above:
        return []
    text = (
        f"Published cells above the bound, which no policy can reach in expectation: {len(above)}"
    )
    return [Text(f"{text} of {len(cells)} ({'; '.join(above)}).")]


def topline_blocks(judged: list[CellComparison]) -> list[Block]:
    """How often our topline is below the published one; both are without features."""
    own = [c for c in judged if c.policy == "ddlpo" and c.who == "without features, best epoch"]
    if not own:
        return []
    below = [cell for cell in own if cell.ours.value < cell.published.corrected]
    worse = sum(cell.mark == "worse" for cell in below)
    text = f"DDLPO without features, best epoch, is below the published figure in {len(below)} of "
    text += f"{len(own)} cells, beyond noise in {worse}. It has arms of its own for each seed."
    return [Text(text)]


def method_blocks(results: Results, command: str) -> list[Block]:
    """How to compute the same report again."""
    exceptions = "; ".join(f"{name}: {values}" for name, values in PAPER_EXCEPTIONS.items())
    return [
        Heading("How it was made", 3, "made"),
        Bullets(
            [
                f"Command: `{command}`. A single part: `--only table13`.",
                f"prefermab {prefermab.__version__}, Python {platform.python_version()}, JAX "
                f"{jax.__version__} on {jax.default_backend()}, NumPy {np.__version__}, "
                f"{platform.system()} {platform.machine()}.",
                f"Training seeds 0 to {results.scale.seeds - 1}, evaluation seed "
                f"{EVALUATION_SEED}; recipes {', '.join(results.recipes)} with their own settings; "
                f"the paper's exceptions for `paper` ({exceptions}).",
                "Bounds and informed policies: on all trials where states are few, on a fifth of "
                "them elsewhere; shares compare the same trials.",
            ]
        ),
    ]


def findings_as_data(findings: PaperFindings) -> dict[str, Any]:
    """The findings as JSON data: cells, claims, noise and samples of fine-tuning."""
    return {
        "cells": [cell_as_data(cell) for cell in findings.judged],
        "claims": [
            {"part": part, **{k: _known(v) for k, v in dataclasses.asdict(trend).items()}}
            for part, trends in findings.trends.items()
            for trend in trends
        ],
        "noise": [
            *_fits("reward", findings.noise.level),
            *_fits("over No Action", findings.noise.lift),
        ],
        "samples": [
            {"where": where, "who": who, "mean": _known(interquartile_mean(values)),
             "seeds": len(values), "never": int(sum(math.isinf(value) for value in values))}
            for where, each in findings.samples.items()
            for who, values in each.items()
        ],
    }  # fmt: skip


def cell_as_data(cell: CellComparison) -> dict[str, Any]:
    """One cell. A field that does not apply is None; `recipe` may also be a baseline."""
    plain = {
        "table": cell.table.name,
        "cell": cell.where,
        "policy": cell.policy,
        "recipe": cell.who,
        "published": cell.published.mean,
        "corrected": cell.published.corrected,
        "published_sd": cell.published.sd,
        "mean": cell.ours.value,
        "stderr": cell.ours.stderr,
        "mark": cell.mark,
        "of_bound": cell.of_bound,
        "of_informed": cell.of_informed,
        "bound": cell.bound,
        "above_bound": cell.above_bound,
    }
    return {name: _known(value) for name, value in (plain | _lift(cell.lift)).items()}


def _lift(lift: Lift | None) -> dict[str, Any]:
    if lift is None:
        return dict.fromkeys(("lift", "lift_stderr", "published_lift", "lift_mark"))
    pair = lift.pair
    return {
        "lift": pair.ours,
        "lift_stderr": pair.stderr,
        "published_lift": pair.published,
        "lift_mark": lift.mark,
    }


def _fits(what: str, fits: Mapping[str, NoiseFit]) -> list[dict[str, Any]]:
    return [{"domain": name, "what": what, **dataclasses.asdict(it)} for name, it in fits.items()]


def _known(value: Any) -> Any:
    """The value, or None for a number that is not finite, which JSON cannot represent."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
