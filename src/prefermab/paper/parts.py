"""The parts of the report: each table with our figures under the published ones, each figure, and
their grids of rewards, claims, samples and gaps."""

import math
from collections.abc import Sequence

import numpy as np

from prefermab.common.pages import Block, Cell, Grid, Heading, Picture, Text
from prefermab.paper import figures, verdicts
from prefermab.paper.cells import CellComparison, Noise, NoiseFit, lift_of, pair_of, rewards_of
from prefermab.paper.claims import FAILS, HOLDS, OPEN, Gaps, Trend, gaps_of, paper_recipes
from prefermab.paper.results import Mean, Results, quick_table
from prefermab.paper.tables import (
    Figure,
    Row,
    Section,
    Table,
    published_hyperparameters,
    published_tables,
)
from prefermab.recipes import BY_NAME

COUNTED_ARMS = {"prop1": "arms of an instance", "pools": "different training arms"}
VERDICT_MARKS = {HOLDS: "better", FAILS: "worse"}


def report_table(part: str, results: Results) -> Table | None:
    """The table of a part of the report, if it has one; the small version for a quick report."""
    table = published_tables().get(part)
    return quick_table(table) if table is not None and results.scale.quick else table


def part_blocks(
    part: str,
    results: Results,
    judged: list[CellComparison],
    trends: dict[str, list[Trend]],
    noise: Noise,
) -> list[Block]:
    """The blocks of one table or figure."""
    if part == "table8":
        return hyperparameter_blocks(results)
    if part == "prop3":
        return price_blocks(results, trends[part])
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
    blocks.append(grid(table, results, noise))
    if part in COUNTED_ARMS:
        blocks += gap_blocks(part, results, table)
    if trends[part]:
        blocks.append(trend_grid([(part, trend) for trend in trends[part]]))
    return blocks


def gap_blocks(part: str, results: Results, table: Table) -> list[Block]:
    """Gaps to Whittle by the number of arms, as a picture and as a grid."""
    gaps = gaps_of(results, table.sections[0])
    if not gaps:
        return []
    counted = COUNTED_ARMS[part]
    caption = (
        f"Reward per arm below Whittle on arms that a model has never seen, against the number of "
        f"{counted}: means over seeds and two standard errors, hollow where a gap is not above "
        "noise. Proposition 1 gives a bound that falls as 1/√(n·N)."
    )
    return [Picture(part, figures.draw_gaps(gaps, counted), caption), gap_grid(gaps)]


def price_blocks(results: Results, trends: list[Trend]) -> list[Block]:
    """The price in training beside the best one (Prop. 3)."""
    heading: Block = Heading("Proposition 3: convergence of the price", name="prop3")
    recipes = paper_recipes(results)
    if not recipes:
        return [heading, Text("Only recipes of the paper learn a price.")]
    where = results.where()
    traces = {title: {it: results.prices(it, at) for it in recipes} for title, at in where}
    best = {title: float(results.best_prices(at).mean()) for title, at in where}
    caption = (
        "The price in each epoch of training, mean and range over seeds, beside the price at which "
        "the relaxation is tightest for arms whose dynamics are known, with as many in as in "
        "training. The proposition is about training without end; this is training as published."
    )
    picture: Block = Picture("prop3", figures.draw_prices(traces, best), caption)
    return [heading, picture, trend_grid([("prop3", trend) for trend in trends])]


def summary_sentence(judged: list[CellComparison], trends: list[Trend]) -> str:
    """What a table shows, in one or two sentences."""
    clauses, models = [], [cell for cell in judged if cell.policy == "prefermab"]
    for recipe in dict.fromkeys(cell.who for cell in models):
        own = [cell for cell in models if cell.who == recipe]
        fine = sum(cell.mark in ("better", "same") for cell in own)
        beyond = sum(cell.mark == "beyond" for cell in own)
        low, high = min(c.of_bound for c in own), max(c.of_bound for c in own)
        level = "all" if fine == len(own) else f"{fine} of"
        clauses.append(
            f"`{recipe}` is level with the published figures or better in {level} {len(own)} cells"
            + (f" ({beyond} are below a figure above the bound)" if beyond else "")
            + f" and earns {low:.1%} to {high:.1%} of the bound"
        )
    text = "; ".join(clauses) + "." if clauses else ""
    verdicts = [trend.verdict for trend in trends]
    if verdicts:
        held = sum(verdict == HOLDS for verdict in verdicts)
        text += f" Of {len(verdicts)} claims tested here {held} hold."
    return text.strip()


def hyperparameter_blocks(results: Results) -> list[Block]:
    """The paper's hyperparameters beside those of the recipes that follow it."""
    recipes = paper_recipes(results) or ["paper"]
    rows = []
    for entry in published_hyperparameters()["settings"]:
        ours = [getattr(BY_NAME[name](), entry["field"]) for name in recipes]
        marks = ["same" if value == entry["published"] else "worse" for value in ours]
        cells = [Cell(f"{value:g}", mark) for value, mark in zip(ours, marks, strict=True)]
        rows.append([Cell(entry["title"]), Cell(f"{entry['published']:g}"), *cells])
    return [
        Heading("Table 8: hyperparameters", name="table8"),
        Text("The published value of each, and ours."),
        Grid(["hyperparameter", "published", *(f"recipe `{name}`" for name in recipes)], rows),
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
        needed = verdicts.samples_needed(results)
        caption = (
            "Samples of each arm until DDLPO's best reward is reached, by DDLPO from scratch "
            "(without features, as in the paper, and with them) and by fine-tuning a pretrained "
            "model with 1,000 samples or a few more: interquartile means over seeds, each with "
            "arms of its own. Zero where the pretrained model earns as much before it is tuned."
        )
        title = "Figure 1: samples to reach the topline's best"
        blocks = _pictured(part, title, figures.draw_samples_needed(needed), caption)
        tested = [(part, trend) for trend in trends["figure1"]]
        return [*blocks, reached_grid(needed), *([trend_grid(tested)] if tested else [])]
    title, setting = results.where()[0]
    caption = (
        f"{title}: share of the final reward of DDLPO without features on the same arms and "
        "trials, against samples of each arm. Lines are interquartile means over seeds, "
        "bands quartiles."
    )
    svg = figures.draw_tuning_curves(verdicts.tuning_shares(results, setting))
    return _pictured(part, "Figure 3: fine-tuning curves", svg, caption)


def _pictured(part: str, title: str, svg: str, caption: str) -> list[Block]:
    return [Heading(title, name=part), Picture(part, svg, caption)]


def claim_grid(trends: Sequence[tuple[str, Trend]]) -> Grid:
    """Each claim once, with the number of tests in which it holds, is open and fails."""
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
        verdict = Cell(it.verdict, VERDICT_MARKS.get(it.verdict, "same"))
        where = Cell(f"[{name}](#{name})")
        rows.append([Cell(it.claim), Cell(it.measured), Cell(interval), verdict, where])
    return Grid(["claim", "measured", "estimate (95 %)", "verdict", "part"], rows)


def grid(table: Table, results: Results, noise: Noise) -> Grid:
    """A table of the paper with our figures under the published ones."""
    rows: list[list[Cell]] = []
    for section in table.sections:
        rows.append([Cell(section.title)])
        for row in section.rows:
            rows += row_cells(section, row, results, noise)
        rows += reference_cells(section, results)
    return Grid(["", *table.columns], rows)


def row_cells(section: Section, row: Row, results: Results, noise: Noise) -> list[list[Cell]]:
    """The published figures of a row, then ours, with the rewards over No Action."""
    rows = []
    if any(row.published):
        rows.append(
            [Cell(f"{row.title}, published", strong=True), *map(published_cell, row.published)]
        )
    earned = [
        rewards_of(row, at, results) if shown or row.policy != "ddlpo" else {}
        for at, shown in zip(row.settings, row.published, strict=True)
    ]
    for who in dict.fromkeys(name for each in earned for name in each):
        own = [each.get(who) for each in earned]
        named = "here" if who == row.policy else f"here, {who}"
        named = f"here, `{who}`" if row.policy == "prefermab" else named
        bounded = row.policy == "prefermab"
        rows.append([Cell(named), *our_cells(row, own, results if bounded else None, noise)])
        if row.policy in ("random", "prefermab"):
            rows += lift_rows(section, row, who, own, results, noise)
        if bounded:
            shares = [results.share(who, at, results.bound(at)) for at in row.settings]
            texts = (Cell(f"{share:.1%}") for share in shares)
            rows.append([Cell(f"`{who}`, of the bound"), *texts])
    return rows


def lift_rows(
    section: Section,
    row: Row,
    who: str,
    rewards: Sequence[np.ndarray | None],
    results: Results,
    noise: Noise,
) -> list[list[Cell]]:
    """The rewards over No Action, published and ours."""
    cells = []
    for i, (figure, own) in enumerate(zip(row.published, rewards, strict=True)):
        lift = None
        if figure is not None and own is not None:
            lift = lift_of(results, section, i, figure, own, noise)
        pair = None if lift is None else lift.pair
        text = f"{pair.ours:+.3f} (published {pair.published:+.2f})" if pair else ""
        cells.append(Cell(text, lift.mark if lift else ""))
    named = f"`{who}`" if row.policy == "prefermab" else row.title
    return [[Cell(f"{named}, over No Action"), *cells]] if any(c.text for c in cells) else []


def reference_cells(section: Section, results: Results) -> list[list[Cell]]:
    """Two rows for comparison: the policy that knows the dynamics, and the bound."""
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
    row: Row, rewards: Sequence[np.ndarray | None], bounded: Results | None, noise: Noise
) -> list[Cell]:
    """Our means, marked where there is a published figure; `bounded` has the bounds for models."""
    cells = []
    for setting, own, figure in zip(row.settings, rewards, row.published, strict=True):
        if own is None:
            cells.append(Cell(""))
            continue
        mean, mark = Mean.of(own), ""
        if figure is not None:
            bound = float(bounded.bound(setting).mean()) if bounded else math.inf
            mark = pair_of(figure, mean).mark(noise.of_level(setting.domain), bound)
        cells.append(Cell(mean_text(mean), mark))
    return cells


def published_cell(figure: Figure | None) -> Cell:
    """A published figure as printed, and the corrected one if it differs."""
    if figure is None:
        return Cell("n/a")
    printed = f"{figure.mean:.2f} ± {figure.sd:.2f}"
    corrected = f" ({figure.corrected:.2f})" if figure.inflation != 1 else ""
    return Cell(printed + corrected)


def mean_text(mean: Mean) -> str:
    """A mean with its standard error."""
    return f"{mean.value:.3f} ± {mean.stderr:.3f}"


def reached_grid(needed: dict[str, dict[str, np.ndarray]]) -> Grid:
    """The number of samples needed, for each seed."""
    rows = []
    for where, each in needed.items():
        rows.append([Cell(where)])
        for who, values in each.items():
            texts = [f"{v:,.0f}" if np.isfinite(v) else "never" for v in values]
            rows.append([Cell(who), *map(Cell, texts)])
    seeds = len(next(iter(next(iter(needed.values())).values())))
    return Grid(["samples of each arm", *(f"seed {seed}" for seed in range(seeds))], rows)


def noise_grid(noise: Noise) -> Grid:
    """The factors of published errors, and how many baseline cells agree with and without them."""
    rows = []
    for what, fits in (("reward", noise.level), ("over No Action", noise.lift)):
        for domain, fit in fits.items():
            rows.append([Cell(domain), Cell(what), *map(Cell, fit_texts(fit))])
    head = ["domain", "what", "factor", "baseline cells", "within noise", "with the printed error"]
    return Grid(head, rows)


def fit_texts(fit: NoiseFit) -> tuple[str, ...]:
    """A factor and its counts as text."""
    return f"{fit.factor:.1f}", str(fit.cells), str(fit.within), str(fit.within_as_printed)


def gap_grid(gaps: Sequence[Gaps]) -> Grid:
    """Gaps to Whittle at each number of arms, and the power with which they fall, if it can be
    fitted."""
    rows = []
    for it in gaps:
        pairs = zip(it.by_seed.mean(axis=0), it.stderr, it.above_noise, strict=True)
        texts = [f"{gap:.4f} ± {error:.4f}{'' if clear else ' ~'}" for gap, error, clear in pairs]
        power = it.power()
        fitted = "too few gaps above noise" if power is None else "{:.2f} ({:.2f} to {:.2f})"
        texts.append(fitted if power is None else fitted.format(*power))
        rows.append([Cell(f"`{it.recipe}`"), *map(Cell, texts)])
    sizes = [f"{size:.0f} arms" for size in gaps[0].sizes]
    return Grid(["gap to Whittle (~ not above noise)", *sizes, "power of the number"], rows)
