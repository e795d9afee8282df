"""The parts of the report: each table with our figures under the published ones, each figure."""

from prefermab.pages import Block, Cell, Grid, Heading, Picture, Text
from prefermab.paper import figures, verdicts
from prefermab.paper.cells import CellComparison, Noise
from prefermab.paper.claims import HOLDS, Trend, gaps_of, paper_recipes
from prefermab.paper.grids import gap_grid, grid, reached_grid, trend_grid
from prefermab.paper.results import Results, quick_table
from prefermab.paper.tables import Table, published_hyperparameters, published_tables
from prefermab.recipes import BY_NAME

COUNTED_ARMS = {"prop1": "arms of an instance", "pools": "different training arms"}


def report_table(part: str, results: Results) -> Table | None:
    """The table behind a part of the report, in its small version for a quick report."""
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
    """Gaps to Whittle against the number of arms, as a picture and in figures."""
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
    """What a table shows, in a sentence or two."""
    told, models = [], [cell for cell in judged if cell.policy == "prefermab"]
    for recipe in dict.fromkeys(cell.who for cell in models):
        own = [cell for cell in models if cell.who == recipe]
        fine = sum(cell.mark in ("better", "same") for cell in own)
        beyond = sum(cell.mark == "beyond" for cell in own)
        low, high = min(c.of_bound for c in own), max(c.of_bound for c in own)
        level = "all" if fine == len(own) else f"{fine} of"
        told.append(
            f"`{recipe}` is level with the published figures or better in {level} {len(own)} cells"
            + (f" ({beyond} are below a figure above the bound)" if beyond else "")
            + f" and earns {low:.1%} to {high:.1%} of the bound"
        )
    said = "; ".join(told) + "." if told else ""
    verdicts = [trend.verdict for trend in trends]
    if verdicts:
        held = sum(verdict == HOLDS for verdict in verdicts)
        said += f" Of {len(verdicts)} claims tested here {held} hold."
    return said.strip()


def hyperparameter_blocks(results: Results) -> list[Block]:
    """The paper's hyperparameters beside those of the recipes that follow it."""
    recipes = paper_recipes(results) or ["paper"]
    rows = []
    for entry in published_hyperparameters()["settings"]:
        ours = [getattr(BY_NAME[name](), entry["field"]) for name in recipes]
        marks = ["same" if own == entry["published"] else "worse" for own in ours]
        cells = [Cell(f"{own:g}", mark) for own, mark in zip(ours, marks, strict=True)]
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
