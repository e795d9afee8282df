"""The report: published figures beside ours, the paper's claims, and how the report was made."""

import dataclasses
import platform
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import prefermab
from prefermab.pages import Block, Bullets, Cell, Grid, Heading, Text
from prefermab.paper import claims
from prefermab.paper.claims import Trend
from prefermab.paper.parts import (
    CellComparison,
    claim_grid,
    compare_cells,
    part_blocks,
    report_table,
)
from prefermab.paper.results import Results
from prefermab.paper.runner import EVALUATION_SEED, PAPER_RECIPES, Task
from prefermab.paper.tables import PAPER_EXCEPTIONS

REPORT_PARTS = (*(f"table{i}" for i in range(1, 17)), *(f"figure{i}" for i in range(1, 5)), "prop1")
TITLE = "PreFeRMAB: published figures and ours"
RECIPE_GROUPS = {
    "both": ("paper", "sweep"),
    "papers": PAPER_RECIPES,
    "all": ("paper", "sweep", "exact"),
    "every": (*PAPER_RECIPES, "sweep", "exact"),
}
COUNTED = {
    "better": "better ▲",
    "same": "within noise ●",
    "worse": "worse ▼",
    "beyond": "published above the bound ◇",
}


def tasks_of(parts: Sequence[str], results: Results) -> list[Task]:
    """All tasks that these parts need."""
    found: list[Task] = []
    for part in parts:
        if part in ("figure1", "figure3"):
            found += results.tuning_tasks()
        elif (table := report_table(part, results)) is not None:
            found += results.tasks_of(table)
    return found


@dataclasses.dataclass(frozen=True)
class PaperFindings:
    """Every cell compared with the published one, and the claims of each part."""

    judged: list[CellComparison]
    trends: dict[str, list[Trend]]


def collect_findings(parts: Sequence[str], results: Results) -> PaperFindings:
    """Reads the results that these parts need."""
    shown = [table for part in parts if (table := report_table(part, results)) is not None]
    judged = [cell for table in shown for cell in compare_cells(table, results)]
    trends = {table.name: claims.trends_of(results, table) for table in shown}
    if {"figure1", "figure3"} & set(parts):
        trends["figure1"] = claims.tuning_trends(results)
    return PaperFindings(judged, trends)


def paper_report_blocks(
    parts: Sequence[str], results: Results, findings: PaperFindings, command: str
) -> list[Block]:
    """The whole report."""
    judged, trends = findings.judged, findings.trends
    blocks = summary_blocks(parts, results, command, judged, trends)
    for part in parts:
        blocks += part_blocks(part, results, [c for c in judged if c.table.name == part], trends)
    return blocks


LEGEND = (
    "▲ better than published, ● within noise (two standard errors of the difference), ▼ "
    "worse, ◇ worse than a published figure above the bound, which no policy can reach in "
    "expectation: its test arms were lucky. Published figures rest on one trained model and 50 "
    "trials; where a printed one was divided by fewer arms than were in, the corrected one "
    "stands in brackets and ours is compared with it. After ± stands a standard error "
    "over seeds and trials, or the published standard deviation over trials. No policy "
    "earns more than the bound in expectation; Whittle and Lagrangian know everyone's true "
    "dynamics, the models see features only."
)


def summary_blocks(
    parts: Sequence[str],
    results: Results,
    command: str,
    judged: list[CellComparison],
    trends: dict[str, list[Trend]],
) -> list[Block]:
    """The summary at the top of the report."""
    scale = results.scale
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
            ["recipe", "cells", *COUNTED.values(), "share of the bound"],
            [summary_row(recipe, judged) for recipe in results.recipes],
        ),
    ]
    for recipe in results.recipes:
        blocks += shortfalls(recipe, [cell for cell in judged if cell.recipe == recipe])
    every = [(name, trend) for name, found in trends.items() for trend in found]
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
    """Where a recipe earns less than was published, or less than ours are meant to."""
    said: list[Block] = []
    below = [cell for cell in cells if cell.mark == "worse"]
    if below:
        listed = "; ".join(f"[{c.table.name}](#{c.table.name}) {c.where}" for c in below)
        said.append(Text(f"Worse than published, `{recipe}`: {listed}."))
    if recipe not in PAPER_RECIPES and cells:
        short = [cell for cell in cells if not cell.reaches]
        said.append(
            Text(
                f"`{recipe}` is to earn the published figure everywhere, or 99 % of "
                "the informed policy where that figure is above the bound. "
                + (shortfall_sentence(short) if short else "It does.")
            )
        )
    return said


def shortfall_sentence(cells: list[CellComparison]) -> str:
    """The cells in which a recipe earns less than it is meant to."""
    listed = "; ".join(
        f"[{c.table.name}](#{c.table.name}) {c.where} ({c.ours.value:.3f} ± {c.ours.stderr:.3f} of "
        f"{c.published.corrected:.3f}, {c.of_informed:.1%} of the informed policy)"
        for c in cells
    )
    return f"It does not in: {listed}."


def summary_row(recipe: str, judged: list[CellComparison]) -> list[Cell]:
    """How often a recipe is better, within noise and worse."""
    own = [cell for cell in judged if cell.recipe == recipe]
    counts = [sum(cell.mark == mark for cell in own) for mark in COUNTED]
    shares = [cell.of_bound for cell in own]
    span = f"{min(shares):.1%} to {max(shares):.1%}" if shares else ""
    return [Cell(f"`{recipe}`"), Cell(str(len(own))), *(Cell(str(c)) for c in counts), Cell(span)]


def method_blocks(results: Results, command: str) -> list[Block]:
    """What is needed to compute the same report again."""
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
    """Every cell and every claim, for other programs."""
    cells = [
        {
            "table": cell.table.name,
            "cell": cell.where,
            "recipe": cell.recipe,
            "published": cell.published.mean,
            "corrected": cell.published.corrected,
            "published_sd": cell.published.sd,
            "mean": cell.ours.value,
            "stderr": cell.ours.stderr,
            "mark": cell.mark,
            "of_bound": cell.of_bound,
            "of_informed": cell.of_informed,
            "bound": cell.bound,
        }
        for cell in findings.judged
    ]
    found = [
        {"part": part, **dataclasses.asdict(trend)}
        for part, trends in findings.trends.items()
        for trend in trends
    ]
    return {"cells": cells, "claims": found}
