"""The page about departures from the paper, written from the data of `studies.departures`.

`python -m studies.departures_page` writes the effects into the table of docs/decisions/paper.md.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prefermab.common.pages import table_as_markdown
from prefermab.errors import InputError
from prefermab.paper.tables import published_tables
from studies.departures import DATA, LENGTHS, PARTS, PASSES, SWITCHED

Entry = dict[str, Any]
DECISIONS = Path("docs/decisions/paper.md")
HEAD = "| | paper | released code | ours | switch | effect"


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
        "each switch is: docs/decisions/paper.md.\n\n" + effects(switched)
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
    sentences = []
    for place, column in enumerate(table.columns):
        each = [(row.settings[place].shaping != "none", row.published[place]) for row in rows]
        figures = [(shaped, figure.mean) for shaped, figure in each if figure is not None]
        plain, shaped = (f"{mean:.2f}" for _, mean in sorted(figures))
        sentences.append(f"{column} {shaped} with StateShaping and {plain} without")
    return "; ".join(sentences)


def read_part(folder: Path, part: str) -> list[Entry]:
    """The measured cases of a part."""
    file = folder / f"{part}.json"
    return json.loads(file.read_text()) if file.exists() else []


def lift(entry: Entry, rate: str = "1") -> np.ndarray:
    """Reward over No Action, seed by seed."""
    return np.array(entry["reward"][rate]) - entry["none"][rate]


def mean_and_error(values: np.ndarray, sign: str = "") -> str:
    """A mean with its standard error over seeds."""
    return f"{values.mean():{sign}.3f} ± {_error(values):.3f}"


def effects(switched: dict[str, list[Entry]]) -> str:
    """The table of effects: a row for each switch, a column for each domain."""
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
    """The table of all cases on one domain."""
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
    """The table of rewards by kind of shaping and number of steps."""
    by_name = {entry["case"]: np.array(entry["reward"]["1"]) for entry in entries}
    ways = [*(f"{n} passes" for n in PASSES), "20 passes arm by arm", "literal"]
    rows = []
    for shaping in ("isotonic", "knn", "none"):
        each = [by_name.get(f"{shaping}, {way}") for way in ways]
        texts = ["" if x is None else f"{mean_and_error(x)} ({x.min():.2f})" for x in each]
        rows.append([shaping, *texts])
    return table_as_markdown(["shaping", *ways], rows)


def as_rows(folder: Path = DATA) -> list[Entry]:
    """A flat row for each case: its reward, its loss against recipe `paper` on the same domain and,
    for table 5, the gain of shaping over the same training without it."""
    rows = []
    for part in PARTS:
        by_name = {entry["case"]: entry for entry in read_part(folder, part)}
        for name, entry in by_name.items():
            reward = np.array(entry["reward"]["1"])
            row = {"part": part, "case": name, "mean": reward.mean(), "stderr": _error(reward)}
            row["worst"] = reward.min()
            if "ours" in by_name:
                row["loss"] = (lift(by_name["ours"]) - lift(entry)).mean()
            shaping, _, way = name.partition(", ")
            if shaping in ("isotonic", "knn"):
                gain = reward - np.array(by_name[f"none, {way}"]["reward"]["1"])
                clear = abs(gain.mean()) > 2 * _error(gain)
                row |= {"shaping_gain": gain.mean(), "shaping_stderr": _error(gain)}
                row["shaping_clear"] = ("gain" if gain.mean() > 0 else "loss") if clear else "no"
            rows.append(row)
    return rows


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else float("nan")


def with_effects(text: str, folder: Path = DATA) -> str:
    """The text of docs/decisions/paper.md with a new last column in its table of departures.

    The column has, for each switch, the change of the lift on each domain; it is bold beyond two
    standard errors. Rows without a measured switch are not changed.
    """
    switched = [read_part(folder, f"switches-{name}") for name in SWITCHED]
    names = dict.fromkeys(entry["case"] for entries in switched for entry in entries)
    begin, end = text.index(HEAD), text.index("\n\n", text.index(HEAD))
    lines = text[begin:end].split("\n")
    for place, line in enumerate(lines):
        *cells, switch, _ = line.strip("|").split("|")
        own = [name for name in names if re.search(rf"\b{name.partition('=')[0]}\b", switch)]
        if place > 1 and own:
            changes = "; ".join(_effect(name, switched) for name in own)
            lines[place] = "|".join(["", *cells, switch, f" {changes} ", ""])
    return text[:begin] + "\n".join(lines) + text[end:]


def _effect(name: str, switched: Sequence[Sequence[Entry]]) -> str:
    texts = []
    for entries in switched:
        by_name = {entry["case"]: entry for entry in entries}
        if name not in by_name:
            texts.append("–")
            continue
        change = lift(by_name[name]) - lift(by_name["ours"])
        clear = abs(change.mean()) > 2 * _error(change)
        texts.append(f"**{change.mean():+.2f}**" if clear else f"{change.mean():+.2f}")
    return ", ".join(texts)


if __name__ == "__main__":
    DECISIONS.write_text(with_effects(DECISIONS.read_text()))
