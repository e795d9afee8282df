"""The page about departures from the paper, from the data that `studies.departures` measured."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prefermab.errors import InputError
from prefermab.pages import table_as_markdown
from prefermab.paper.tables import published_tables
from studies.departures import DATA, LENGTHS, PARTS, PASSES, SWITCHED

Entry = dict[str, Any]


def departures(folder: Path = DATA) -> str:
    """Departures from the paper, one by one."""
    found = {part: read_part(folder, part) for part in PARTS}
    if not any(found.values()):
        raise InputError(f"there is no data in {folder}: run python -m studies.departures first.")
    some = next(entry for entries in found.values() for entry in entries)
    effort = some["effort"]
    switched = {name: found[f"switches-{name}"] for name in SWITCHED if found[f"switches-{name}"]}
    parts = [
        f"{'Tiny trainings' if effort['small'] else 'Trained'} on {some['backend']}, "
        f"{effort['seeds']} seeds; {effort['trials']:,} trials that all cases of a domain share (a "
        f"fifth on SIS), everyone in unless said otherwise. Data: `{DATA}`, measured by "
        "`python -m studies.departures`. A lift is the reward per arm less that of No Action on "
        "the same trials; ± is the standard error over seeds. A seed counts as collapsed if at the "
        "end everyone got the same action for certain.\n\n"
        "## Each switch by itself\n\nChange of the lift against recipe `paper`, seed by seed. What "
        "each switch is: docs/decisions.md.\n\n" + effects(switched)
    ]
    parts += [f"\n## {name}\n\n" + cases(entries) for name, entries in switched.items()]
    grids = [
        f"\n### {reward}, {epochs} epochs\n\n" + grid(found[f"table5-{reward}-{epochs}"])
        for reward in ("scaled", "exponential")
        for epochs in LENGTHS
        if found[f"table5-{reward}-{epochs}"]
    ]
    if grids:
        parts.append(
            "\n## Table 5: StateShaping and the number of optimiser steps\n\nContinuous Synthetic "
            f"(21, 7), identity features. Published after 30 epochs: {published()}. Reward "
            "per arm, and the worst seed.\n" + "".join(grids)
        )
    return "".join(parts)


def published() -> str:
    """The figures of the paper's table 5."""
    table = published_tables()["table5"]
    rows = [row for row in table.sections[0].rows if row.policy == "prefermab"]
    told = []
    for place, column in enumerate(table.columns):
        each = [(row.settings[place].shaping != "none", row.published[place]) for row in rows]
        figures = [(shaped, figure.mean) for shaped, figure in each if figure is not None]
        plain, shaped = (f"{mean:.2f}" for _, mean in sorted(figures))
        told.append(f"{column} {shaped} with StateShaping and {plain} without")
    return "; ".join(told)


def read_part(folder: Path, part: str) -> list[Entry]:
    """The cases that were measured of a part."""
    file = folder / f"{part}.json"
    return json.loads(file.read_text()) if file.exists() else []


def lift(entry: Entry, rate: str = "1") -> np.ndarray:
    """Reward over No Action, seed by seed."""
    return np.array(entry["reward"][rate]) - entry["none"][rate]


def mean_and_error(values: np.ndarray, sign: str = "") -> str:
    """A mean with its standard error over seeds."""
    error = values.std(ddof=1) / np.sqrt(values.size) if values.size > 1 else np.nan
    return f"{values.mean():{sign}.3f} ± {error:.3f}"


def effects(switched: dict[str, list[Entry]]) -> str:
    """A row for each switch, a column for each domain."""
    names = list(dict.fromkeys(e["case"] for entries in switched.values() for e in entries))
    rows = []
    for name in names:
        row = [f"`{name}`"]
        for entries in switched.values():
            by_name = {entry["case"]: entry for entry in entries}
            known = name in by_name and "ours" in by_name
            row.append(
                mean_and_error(lift(by_name[name]) - lift(by_name["ours"]), "+") if known else ""
            )
        rows.append(row)
    return table_as_markdown(["switch", *switched], [row for row in rows if row[0] != "`ours`"])


def cases(entries: Sequence[Entry]) -> str:
    """All that was measured on one domain."""
    rows = [
        [
            f"`{entry['case']}`",
            mean_and_error(np.array(entry["reward"]["1"])),
            mean_and_error(lift(entry)),
            f"{min(entry['reward']['1']):.3f}",
            mean_and_error(np.array(entry["reward"]["0.8"])),
            f"{np.mean(entry['price']):.2f}",
            str(sum(entry["collapsed"])),
        ]
        for entry in entries
    ]
    head = ["case", "reward", "lift", "worst seed", "reward, 80 % in", "last price", "collapsed"]
    return table_as_markdown(head, rows)


def grid(entries: Sequence[Entry]) -> str:
    """Kinds of shaping against numbers of steps."""
    by_name = {entry["case"]: np.array(entry["reward"]["1"]) for entry in entries}
    ways = [*(f"{n} passes" for n in PASSES), "20 passes arm by arm", "literal"]
    rows = []
    for shaping in ("isotonic", "knn", "none"):
        each = [by_name.get(f"{shaping}, {way}") for way in ways]
        told = ["" if x is None else f"{mean_and_error(x)} ({x.min():.2f})" for x in each]
        rows.append([shaping, *told])
    return table_as_markdown(["shaping", *ways], rows)
