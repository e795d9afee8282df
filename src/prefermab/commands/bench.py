"""The verb that measures speed, and compares it with an earlier measurement."""

import dataclasses
import json
import os
import platform
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

import prefermab
from prefermab.bench.cases import cases
from prefermab.bench.measuring import Machine, Measured, machine, measure
from prefermab.commands.shared import progress
from prefermab.errors import InputError, count, number, unknown
from prefermab.files import write_atomically
from prefermab.pages import Cell, Grid, Text, as_markdown
from prefermab.verbs import studies as verbs

GROUPS = ("start", "train", "evaluate", "act", "plan", "whittle", "bound")


def bench(options: verbs.Bench) -> None:
    """Measures, prints, writes and compares."""
    for group in options.only:
        if group not in GROUPS:
            raise unknown("group of measurements", group, GROUPS)
    number(options.threshold, "threshold", at_least=1.0)
    before = None if options.compare is None else read(options.compare)
    limit = machine()
    wanted = [
        case
        for case in cases(count(options.largest, "largest"))
        if case.group in (options.only or GROUPS)
    ]
    found: list[Measured] = []
    with progress() as report:
        for done, case in enumerate(wanted):
            report(done / len(wanted), case.name)
            found.append(measure(case, limit))
            if options.out is not None:  # after every case: an interrupted run keeps what it has
                text = as_data(found, limit)
                write_atomically(options.out, lambda draft, text=text: draft.write_text(text))
    if options.json:
        print(as_data(found, limit))
    else:
        show(found, limit)
    if before is not None:
        compare(before, found, options.threshold, quiet=options.json)


def as_data(found: list[Measured], limit: Machine) -> str:
    """The measurements as JSON, with what they were got on."""
    told = {
        "package": prefermab.__version__,
        "machine": dataclasses.asdict(limit) | hardware(),
        "cases": [dataclasses.asdict(one) for one in found],
    }
    return json.dumps(told, indent=2) + "\n"


def hardware() -> dict[str, Any]:
    """What the figures were got on."""
    return {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "platform": platform.platform(),
        "device": jax.devices()[0].device_kind,
        "backend": jax.default_backend(),
        "cores": os.cpu_count(),
    }


HEAD = ("", "case", "first run", "then", "spread", "a second", "of limit")


def rows_of(found: list[Measured]) -> list[list[str]]:
    """The measurements as the cells of a table."""
    rows, before = [], None
    for one in found:
        rows.append([
            one.group if one.group != before else "", one.name, f"{one.first:.2f} s",
            f"{one.seconds:.3g} s", f"{one.spread:.0%}", f"{one.rate:,.0f} {one.unit}",
            "" if one.of_limit is None else f"{one.of_limit:.1%}",
        ])  # fmt: skip
        before = one.group
    return rows


def most_of(limit: Machine) -> str:
    """What the machine could do."""
    return (
        f"limit: {limit.multiplications / 1e9:,.0f} billion operations a second in multiplying "
        f"matrices, {limit.memory / 1e9:,.0f} GB a second in copying, in the same run"
    )


def show(found: list[Measured], limit: Machine) -> None:
    """The measurements in the terminal."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in HEAD:
        shown.add_column(heading, justify="left" if heading in ("", "case") else "right")
    for row in rows_of(found):
        shown.add_row(*row)
    Console().print(shown)
    print(most_of(limit))


def as_page(path: Path) -> str:
    """The measurements of a file as a table in Markdown."""
    told = json.loads(path.read_text())
    found = [Measured(**one) for one in told["cases"]]
    grid = Grid(HEAD, [[Cell(text) for text in row] for row in rows_of(found)])
    limit = Machine(told["machine"]["multiplications"], told["machine"]["memory"])
    return as_markdown("", [grid, Text(most_of(limit))])[4:].strip()


def compare(before: dict[str, float], found: list[Measured], threshold: float, quiet: bool) -> None:
    """How much longer each case takes than before; past the threshold it is an error."""
    ratios = {
        f"{one.group}: {one.name}": one.seconds / before[f"{one.group}: {one.name}"]
        for one in found
        if f"{one.group}: {one.name}" in before
    }
    if not ratios:
        raise InputError("nothing that was measured before was measured now.")
    if not quiet:
        for name, ratio in ratios.items():
            print(f"{ratio:6.2f} times the seconds of before: {name}")
    worst = max(ratios, key=lambda name: ratios[name])
    if ratios[worst] > threshold:
        raise InputError(
            f"{worst} takes {ratios[worst]:.2f} times as long as before, more than {threshold:g}."
        )


def read(path: Path) -> dict[str, float]:
    """Seconds by case, from a file that an earlier run wrote."""
    try:
        told = json.loads(path.read_text())
        return {f"{one['group']}: {one['name']}": float(one["seconds"]) for one in told["cases"]}
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: expected the JSON that prefermab bench --out writes.") from None
