"""The parts of the report: each table with our figures under the published ones, each figure."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from prefermab.pages import Block, Cell, Grid, Heading, Picture, Text
from prefermab.paper import claims, figures
from prefermab.paper.claims import FAILS, HOLDS, OPEN, Trend
from prefermab.paper.results import LEARN_BY_SAMPLES, Mean, Results, quick_table
from prefermab.paper.tables import (
    Figure,
    Row,
    Section,
    Setting,
    Table,
    published_hyperparameters,
    published_tables,
)
from prefermab.recipes import Paper

MARKED = {HOLDS: "better", FAILS: "worse"}


@dataclasses.dataclass(frozen=True)
class CellComparison:
    """One PreFeRMAB cell: the published figure, and how a recipe compares with it."""

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
        """Whether ours is at least the published figure or, where that is above the bound, 99 % of
        what the informed policy earns."""
        if self.published.corrected > self.bound:
            return self.of_informed >= 0.99
        return self.ours.value >= self.published.corrected


def compare_cells(table: Table, results: Results) -> list[CellComparison]:
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
                    variant = row.title.removeprefix("PreFeRMAB").removeprefix(", ")
                    named = f", {variant}" if variant else ""
                    found.append(
                        CellComparison(
                            table,
                            f"{section.title}{named}, {column}",
                            recipe,
                            published,
                            ours,
                            ours.against(published, float(bound.mean())),
                            results.share(recipe, setting, bound),
                            results.share(recipe, setting, informed),
                            float(bound.mean()),
                        )
                    )
    return found


def report_table(part: str, results: Results) -> Table | None:
    """The table behind a part of the report, in its small version for a quick report."""
    table = published_tables().get(part)
    return quick_table(table) if table is not None and results.scale.quick else table


def part_blocks(
    part: str, results: Results, judged: list[CellComparison], trends: dict[str, list[Trend]]
) -> list[Block]:
    """The blocks of one table or figure."""
    if part == "table8":
        return hyperparameter_blocks()
    if part.startswith("figure"):
        return figure_blocks(part, results, trends)
    table = report_table(part, results)
    assert table is not None
    number = part.removeprefix("table")
    heading = f"Table {number}: {table.title}" if number != part else table.title
    blocks: list[Block] = [
        Heading(heading, name=part),
        Text(summary_sentence(judged, trends[part])),
    ]
    if table.note:
        blocks.append(Text(table.note))
    blocks.append(grid(table, results))
    if part == "prop1":
        sizes, errors = claims.generalization_errors(results, table)
        caption = (
            "Reward per arm below Whittle on arms that a model has never seen, against the number "
            "of different arms it was trained on: mean and quartiles over seeds, each with arms of "
            "its own. Proposition 1 gives a bound that falls as 1/√(n·N)."
        )
        blocks.append(Picture("prop1", figures.draw_generalization(sizes, errors), caption))
    if trends[part]:
        blocks.append(trend_grid([(part, trend) for trend in trends[part]]))
    return blocks


def summary_sentence(judged: list[CellComparison], trends: list[Trend]) -> str:
    """What a table shows, in a sentence or two."""
    told = []
    for recipe in dict.fromkeys(cell.recipe for cell in judged):
        own = [cell for cell in judged if cell.recipe == recipe]
        fine = sum(cell.mark in ("better", "same") for cell in own)
        beyond = sum(cell.mark == "beyond" for cell in own)
        low, high = min(c.of_bound for c in own), max(c.of_bound for c in own)
        level = "all" if fine == len(own) else f"{fine} of"
        told.append(
            f"`{recipe}` is level with the published figures or better in {level} {len(own)} cells"
            + (f" ({beyond} published above the bound)" if beyond else "")
            + f" and earns {low:.1%} to {high:.1%} of the bound"
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


def grid(table: Table, results: Results) -> Grid:
    """A table of the paper with our figures under the published ones."""
    rows: list[list[Cell]] = []
    for section in table.sections:
        rows.append([Cell(section.title)])
        for row in section.rows:
            rows += row_cells(row, results)
        rows += reference_cells(section, results)
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
        limits = [float(results.bound(setting).mean()) for setting in row.settings]
        rows.append([Cell(f"here, `{recipe}`"), *our_cells(rewards, row.published, limits)])
        rows.append(
            [Cell(f"`{recipe}`, of the bound"), *(Cell(f"{share:.1%}") for share in shares)]
        )
    return rows


def reference_cells(section: Section, results: Results) -> list[list[Cell]]:
    """Two rows to compare with: the policy that knows the dynamics, and the bound."""
    models = [row for row in section.rows if row.policy == "prefermab"]
    if not models:
        return []
    settings = models[-1].settings
    knows = settings[0].knows.capitalize()
    informed = [Mean.of(results.informed(at)[None]) for at in settings]
    bounds = [float(results.bound(at).mean()) for at in settings]
    return [
        [Cell(f"{knows}, knows the dynamics"), *(Cell(mean_text(it)) for it in informed)],
        [Cell("bound"), *(Cell(f"{bound:.3f}") for bound in bounds)],
    ]


def our_cells(
    rewards: Sequence[np.ndarray | None],
    published: Sequence[Figure | None],
    bounds: Sequence[float] | None = None,
) -> list[Cell]:
    """Our means, marked where something was published."""
    cells, bounds = [], bounds or [np.inf] * len(rewards)
    for own, figure, bound in zip(rewards, published, bounds, strict=True):
        if own is None:
            cells.append(Cell(""))
            continue
        mean = Mean.of(own)
        cells.append(Cell(mean_text(mean), mean.against(figure, bound) if figure else ""))
    return cells


def published_cell(figure: Figure | None) -> Cell:
    """A published figure as printed, and corrected where that differs."""
    if figure is None:
        return Cell("n/a")
    printed = f"{figure.mean:.2f} ± {figure.sd:.2f}"
    corrected = f" ({figure.corrected:.2f})" if figure.inflation != 1 else ""
    return Cell(printed + corrected)


def mean_text(mean: Mean) -> str:
    """A mean with its standard error."""
    return f"{mean.value:.3f} ± {mean.stderr:.3f}"


def hyperparameter_blocks() -> list[Block]:
    """The paper's hyperparameters beside those of recipe `paper`."""
    table, own = published_hyperparameters(), Paper()
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
    """The blocks of one of the paper's figures."""
    if part == "figure2":
        caption = "One epoch of PreFeRMAB's training: what each part sees, and what it passes on."
        return _pictured(part, "Figure 2: overview of training", figures.draw_overview(), caption)
    if part == "figure4":
        caption = (
            "A reward that is flat above half (left) is estimated from what was seen; the estimate "
            "takes the state's place (middle), and against it the reward is a line (right)."
        )
        return _pictured(part, "Figure 4: StateShaping", figures.draw_state_shaping(), caption)
    if part == "figure1":
        needed = claims.samples_needed(results)
        caption = (
            "Samples of each arm until DDLPO's best reward is reached, by DDLPO from scratch and "
            "by fine-tuning a pretrained model: interquartile means over seeds, each with arms of "
            "its own. Zero where the pretrained model earns as much before it is tuned."
        )
        title = "Figure 1: samples to reach the topline's best"
        blocks = _pictured(part, title, figures.draw_samples_needed(needed), caption)
        tested = [(part, trend) for trend in trends["figure1"]]
        return [*blocks, reached_grid(needed), *([trend_grid(tested)] if tested else [])]
    title, setting = results.where()[0]
    caption = (
        f"{title}: share of DDLPO's final reward on the same arms and trials, against samples of "
        "each arm. Lines are interquartile means over seeds, bands quartiles."
    )
    svg = figures.draw_tuning_curves(tuning_shares(results, setting))
    return _pictured(part, "Figure 3: fine-tuning curves", svg, caption)


def reached_grid(needed: dict[str, dict[str, np.ndarray]]) -> Grid:
    """The samples needed, for each seed."""
    rows = []
    for where, each in needed.items():
        rows.append([Cell(where)])
        for who, values in each.items():
            texts = [f"{v:,.0f}" if np.isfinite(v) else "never" for v in values]
            rows.append([Cell(who), *map(Cell, texts)])
    seeds = len(next(iter(next(iter(needed.values())).values())))
    return Grid(["samples of each arm", *(f"seed {seed}" for seed in range(seeds))], rows)


def tuning_shares(results: Results, setting: Setting) -> dict[str, tuple[np.ndarray, np.ndarray]]:
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
