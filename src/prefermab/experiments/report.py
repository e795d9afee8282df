"""The report: published figures and ours, cell by cell, what they say, how to get them again."""

import dataclasses
import platform
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import prefermab
from prefermab.config import PAPER_EXCEPTIONS, Paper
from prefermab.experiments import claims, figures
from prefermab.experiments.lab import EVALUATION_SEED, Task
from prefermab.experiments.pages import Block, Bullets, Cell, Grid, Heading, Picture, Text
from prefermab.experiments.results import LEARN_BY_SAMPLES, Mean, Results, quick_table
from prefermab.experiments.tables import Figure, Row, Section, Table, hyperparameters, tables
from prefermab.experiments.trends import FAILS, HOLDS, OPEN, Trend

PARTS = (*(f"table{i}" for i in range(1, 17)), *(f"figure{i}" for i in range(1, 5)), "prop1")
TITLE = "PreFeRMAB: published figures and ours"
RECIPES = {"both": ("paper", "sweep"), "all": ("paper", "sweep", "exact")}
MARKED = {HOLDS: "better", FAILS: "worse"}


@dataclasses.dataclass(frozen=True)
class Judged:
    """One PreFeRMAB cell: what was published, and how a recipe stands to it."""

    table: Table
    where: str
    recipe: str
    published: Figure
    ours: Mean
    mark: str
    of_bound: float
    of_informed: float
    bound: float

    @property
    def reaches(self) -> bool:
        """At least the published figure; where that is above the bound, 99 % of the informed."""
        if self.published.corrected > self.bound:
            return self.of_informed >= 0.99
        return self.ours.value >= self.published.corrected


def tasks_of(parts: Sequence[str], results: Results) -> list[Task]:
    """Everything that has to be worked out for these parts."""
    found: list[Task] = []
    for part in parts:
        if part in ("figure1", "figure3"):
            found += results.tuning_tasks()
        elif (table := table_of(part, results)) is not None:
            found += results.tasks_of(table)
    return found


def table_of(part: str, results: Results) -> Table | None:
    """The table behind a part of the report, small where everything is."""
    table = tables().get(part)
    return quick_table(table) if table is not None and results.scale.quick else table


def blocks_of(parts: Sequence[str], results: Results, command: str) -> list[Block]:
    """The whole report."""
    shown = [table for part in parts if (table := table_of(part, results)) is not None]
    judged = [cell for table in shown for cell in judge(table, results)]
    trends = {table.name: claims.trends_of(results, table) for table in shown}
    if {"figure1", "figure3"} & set(parts):
        trends["figure1"] = claims.tuning_trends(results)
    blocks = head(parts, results, command, judged, trends)
    for part in parts:
        blocks += part_blocks(part, results, [c for c in judged if c.table.name == part], trends)
    return blocks


def head(
    parts: Sequence[str],
    results: Results,
    command: str,
    judged: list[Judged],
    trends: dict[str, list[Trend]],
) -> list[Block]:
    """What a reader sees in the first minute."""
    scale = results.scale
    small = " **Everything is made small here: figures mean nothing.**" if scale.quick else ""
    blocks: list[Block] = [
        Text(
            f"Every table and figure of the paper, worked out again with {scale.seeds} training "
            f"seeds and {scale.trials:,} paired trials a cell (epidemics {scale.trials // 5:,}): "
            "every policy meets the same new arms, starts and luck. Figures are rewards per "
            f"opted-in arm over nine rounds.{small}"
        ),
        Text(
            "▲ better than published, ● within noise (two standard errors of the difference), ▼ "
            "worse. Published figures rest on one trained model and 50 trials; where a printed one "
            "was divided by fewer arms than were in, the corrected one stands in brackets and is "
            "what ours is held against. After ± stands a standard error over seeds and trials. The "
            "bound is what no policy can pass; Whittle and Lagrangian know everyone's true "
            "dynamics, the models see features only."
        ),
        Heading("In a minute", name="summary"),
        Grid(
            ["recipe", "cells", "better", "within noise", "worse", "share of the bound"],
            [summary_row(recipe, judged) for recipe in results.recipes],
        ),
    ]
    for recipe in results.recipes:
        below = [cell for cell in judged if cell.recipe == recipe and cell.mark == "worse"]
        if below:
            listed = "; ".join(f"[{c.table.name}](#{c.table.name}) {c.where}" for c in below)
            blocks.append(Text(f"Worse than published, `{recipe}`: {listed}."))
        short = [c for c in judged if c.recipe == recipe and not c.reaches and c.mark != "worse"]
        if short and recipe != "paper":
            listed = "; ".join(
                f"[{c.table.name}](#{c.table.name}) {c.where} ({c.ours.value:.3f} of "
                f"{c.published.corrected:.3f})"
                for c in short
            )
            blocks.append(Text(f"Below the published figure, within noise, `{recipe}`: {listed}."))
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
    return [*blocks, Text(f"Parts: {links}, [how it was made](#made)."), *made(results, command)]


def summary_row(recipe: str, judged: list[Judged]) -> list[Cell]:
    """How often a recipe is better, level and worse."""
    own = [cell for cell in judged if cell.recipe == recipe]
    counts = [sum(cell.mark == mark for cell in own) for mark in ("better", "same", "worse")]
    shares = [cell.of_bound for cell in own]
    span = f"{min(shares):.1%} to {max(shares):.1%}" if shares else ""
    return [Cell(f"`{recipe}`"), Cell(str(len(own))), *(Cell(str(c)) for c in counts), Cell(span)]


def made(results: Results, command: str) -> list[Block]:
    """What it takes to get the same again."""
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


def part_blocks(
    part: str, results: Results, judged: list[Judged], trends: dict[str, list[Trend]]
) -> list[Block]:
    """One table or figure."""
    if part == "table8":
        return hyperparameter_blocks()
    if part.startswith("figure"):
        return figure_blocks(part, results, trends)
    table = table_of(part, results)
    assert table is not None
    heading = f"Table {part[5:]}: {table.title}" if part != "prop1" else table.title
    blocks: list[Block] = [Heading(heading, name=part), Text(reading(judged, trends[part]))]
    if table.note:
        blocks.append(Text(table.note))
    blocks.append(grid(table, results))
    if part == "prop1":
        sizes, errors = claims.generalization_errors(results, table)
        caption = (
            "How far below Whittle a model stays on arms it has never seen, against the number of "
            "different arms it was trained on: mean and quartiles over seeds, each with arms of "
            "its own. Proposition 1 promises a bound that falls as 1/√(n·N)."
        )
        blocks.append(Picture("prop1", figures.generalization(sizes, errors), caption))
    if trends[part]:
        blocks.append(trend_grid([(part, trend) for trend in trends[part]]))
    return blocks


def reading(judged: list[Judged], trends: list[Trend]) -> str:
    """A table in a sentence or two."""
    told = []
    for recipe in dict.fromkeys(cell.recipe for cell in judged):
        own = [cell for cell in judged if cell.recipe == recipe]
        fine = sum(cell.mark != "worse" for cell in own)
        low, high = min(c.of_bound for c in own), max(c.of_bound for c in own)
        level = "all" if fine == len(own) else f"{fine} of"
        told.append(
            f"`{recipe}` is level with the published figures or better in {level} {len(own)} cells "
            f"and earns {low:.1%} to {high:.1%} of the bound"
        )
    said = "; ".join(told) + "." if told else ""
    verdicts = [trend.verdict for trend in trends]
    if verdicts:
        held = sum(verdict == HOLDS for verdict in verdicts)
        said += f" Of {len(verdicts)} claims tested here {held} hold."
    return said.strip()


def claim_grid(trends: Sequence[tuple[str, Trend]]) -> Grid:
    """Each claim once, with how often it held, was open and failed."""
    rows = []
    for claim in dict.fromkeys(trend.claim for _, trend in trends):
        own = [(part, trend) for part, trend in trends if trend.claim == claim]
        counts = [sum(it.verdict == verdict for _, it in own) for verdict in (HOLDS, OPEN, FAILS)]
        where = ", ".join(f"[{part}](#{part})" for part in dict.fromkeys(part for part, _ in own))
        mark = "worse" if counts[2] else "same" if counts[1] else "better"
        cells = [Cell(f"{counts[0]} of {len(own)}", mark), *(Cell(str(n)) for n in counts[1:])]
        rows.append([Cell(claim), *cells, Cell(where)])
    return Grid(["claim", "holds", "open", "fails", "where"], rows)


def trend_grid(trends: Sequence[tuple[str, Trend]]) -> Grid:
    """Claims with their intervals."""
    rows = []
    for name, it in trends:
        interval = f"{it.estimate:.3f} ({it.low:.3f} to {it.high:.3f})"
        verdict = Cell(it.verdict, MARKED.get(it.verdict, "same"))
        where = Cell(f"[{name}](#{name})")
        rows.append([Cell(it.claim), Cell(it.measured), Cell(interval), verdict, where])
    return Grid(["claim", "measured", "estimate (95 %)", "verdict", "part"], rows)


def judge(table: Table, results: Results) -> list[Judged]:
    """Every PreFeRMAB cell of a table, for every recipe."""
    found = []
    for section in table.sections:
        for row in [row for row in section.rows if row.policy == "prefermab"]:
            cells = zip(table.columns, row.settings, row.published, strict=True)
            for column, setting, published in cells:
                if published is None:
                    continue
                bound, informed = results.bound(setting), results.informed(setting)
                for recipe in results.recipes:
                    ours = Mean.of(results.rewards(recipe, setting))
                    named = "" if row.title == "PreFeRMAB" else f", {row.title[11:]}"
                    found.append(
                        Judged(
                            table,
                            f"{section.title}{named}, {column}",
                            recipe,
                            published,
                            ours,
                            ours.against(published),
                            results.share(recipe, setting, bound),
                            results.share(recipe, setting, informed),
                            float(bound.mean()),
                        )
                    )
    return found


def grid(table: Table, results: Results) -> Grid:
    """A table of the paper with our figures under the published ones."""
    rows: list[list[Cell]] = []
    for section in table.sections:
        rows.append([Cell(section.title)])
        for row in section.rows:
            rows += row_cells(row, results)
        rows += limit_cells(section, results)
    return Grid(["", *table.columns], rows)


def row_cells(row: Row, results: Results) -> list[list[Cell]]:
    """The published figures of a row, then ours."""
    rows = []
    if any(row.published):
        rows.append(
            [Cell(f"{row.title}, published", strong=True), *map(published_cell, row.published)]
        )
    if row.policy == "ddlpo":
        for which in ("best", "last"):
            rewards = [results.topline(at)[which] if shown else None
                       for at, shown in zip(row.settings, row.published, strict=True)]  # fmt: skip
            rows.append([Cell(f"here, {which} epoch"), *our_cells(rewards, row.published)])
        return rows
    if row.policy != "prefermab":
        rewards = [results.rewards(row.policy, setting) for setting in row.settings]
        return [*rows, [Cell("here"), *our_cells(rewards, row.published)]]
    for recipe in results.recipes:
        rewards = [results.rewards(recipe, setting) for setting in row.settings]
        shares = [results.share(recipe, s, results.bound(s)) for s in row.settings]
        rows.append([Cell(f"here, `{recipe}`"), *our_cells(rewards, row.published)])
        rows.append(
            [Cell(f"`{recipe}`, of the bound"), *(Cell(f"{share:.1%}") for share in shares)]
        )
    return rows


def limit_cells(section: Section, results: Results) -> list[list[Cell]]:
    """What knowing the dynamics earns, and the bound."""
    models = [row for row in section.rows if row.policy == "prefermab"]
    if not models:
        return []
    settings = models[-1].settings
    knows = settings[0].knows.capitalize()
    informed = [Mean.of(results.informed(at)[None]) for at in settings]
    bounds = [float(results.bound(at).mean()) for at in settings]
    return [
        [Cell(f"{knows}, knows the dynamics"), *(Cell(shown(it)) for it in informed)],
        [Cell("bound"), *(Cell(f"{bound:.3f}") for bound in bounds)],
    ]


def our_cells(
    rewards: Sequence[np.ndarray | None], published: Sequence[Figure | None]
) -> list[Cell]:
    """Our means, marked where something was published."""
    cells = []
    for own, figure in zip(rewards, published, strict=True):
        if own is None:
            cells.append(Cell(""))
            continue
        mean = Mean.of(own)
        cells.append(Cell(shown(mean), mean.against(figure) if figure else ""))
    return cells


def published_cell(figure: Figure | None) -> Cell:
    """A published figure as printed, and corrected where that differs."""
    if figure is None:
        return Cell("n/a")
    printed = f"{figure.mean:.2f} ± {figure.sd:.2f}"
    corrected = f" ({figure.corrected:.2f})" if figure.inflation != 1 else ""
    return Cell(printed + corrected)


def shown(mean: Mean) -> str:
    """A mean with its standard error."""
    return f"{mean.value:.3f} ± {mean.stderr:.3f}"


def hyperparameter_blocks() -> list[Block]:
    """The paper's hyperparameters beside those of recipe `paper`."""
    table, own = hyperparameters(), Paper()
    rows = []
    for entry in table["settings"]:
        ours = getattr(own, entry["field"])
        mark = "same" if ours == entry["published"] else "worse"
        rows.append(
            [Cell(entry["title"]), Cell(f"{entry['published']:g}"), Cell(f"{ours:g}", mark)]
        )
    return [
        Heading("Table 8: hyperparameters", name="table8"),
        Text("Recipe `paper` uses the published value of each."),
        Grid(["hyperparameter", "published", "recipe `paper`"], rows),
    ]


def figure_blocks(part: str, results: Results, trends: dict[str, list[Trend]]) -> list[Block]:
    """One of the paper's figures."""
    if part == "figure2":
        caption = "One epoch of PreFeRMAB's training: what each part sees, and what it passes on."
        return _pictured(part, "Figure 2: overview of training", figures.overview(), caption)
    if part == "figure4":
        caption = (
            "A reward that is flat above half (left) is estimated from what was seen; the estimate "
            "takes the state's place (middle), and against it the reward is a line (right)."
        )
        return _pictured(part, "Figure 4: StateShaping", figures.state_shaping(), caption)
    if part == "figure1":
        needed = claims.samples_needed(results)
        caption = (
            "Samples of each arm until DDLPO's best reward is reached, by DDLPO from scratch and "
            "by fine-tuning a pretrained model: interquartile means over seeds, each with arms of "
            "its own. Zero where the pretrained model earns as much before it is tuned."
        )
        title = "Figure 1: samples to reach the topline's best"
        blocks = _pictured(part, title, figures.samples_needed(needed), caption)
        return [*blocks, reached_grid(needed), trend_grid([(part, t) for t in trends["figure1"]])]
    title, setting = results.where()[0]
    caption = (
        f"{title}: share of DDLPO's final reward on the same arms and trials, against samples of "
        "each arm. Lines are interquartile means over seeds, bands quartiles."
    )
    svg = figures.tuning_curves(tuning_shares(results, setting))
    return _pictured(part, "Figure 3: fine-tuning curves", svg, caption)


def reached_grid(needed: dict[str, dict[str, np.ndarray]]) -> Grid:
    """Samples needed, seed by seed."""
    rows = []
    for where, each in needed.items():
        rows.append([Cell(where)])
        for who, values in each.items():
            texts = [f"{v:,.0f}" if np.isfinite(v) else "never" for v in values]
            rows.append([Cell(who), *map(Cell, texts)])
    seeds = len(next(iter(next(iter(needed.values())).values())))
    return Grid(["samples of each arm", *(f"seed {seed}" for seed in range(seeds))], rows)


def tuning_shares(results: Results, setting: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Curves as shares of DDLPO's last reward."""
    own = results.curve(None, setting)
    final = own["reward"][:, -1:]
    curves = {"DDLPO": (own["samples"][1:], own["reward"][:, 1:] / final)}
    for recipe in [r for r in results.recipes if r in LEARN_BY_SAMPLES]:
        curve = results.curve(recipe, setting)
        curves[recipe] = (curve["samples"], curve["reward"] / final)
    return curves


def _pictured(part: str, title: str, svg: str, caption: str) -> list[Block]:
    return [Heading(title, name=part), Picture(part, svg, caption)]


def as_data(parts: Sequence[str], results: Results) -> dict[str, Any]:
    """Every cell and every claim, for other programs."""
    cells, trends = [], []
    for part in parts:
        table = table_of(part, results)
        if table is None:
            continue
        for cell in judge(table, results):
            cells.append(
                {
                    "table": part,
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
            )
        found = claims.trends_of(results, table)
        trends += [{"part": part, **dataclasses.asdict(trend)} for trend in found]
    if {"figure1", "figure3"} & set(parts):
        found = claims.tuning_trends(results)
        trends += [{"part": "figure1", **dataclasses.asdict(trend)} for trend in found]
    return {"cells": cells, "claims": trends}
