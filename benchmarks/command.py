"""The command `bench`: measures speed, and compares it with an earlier measurement."""

import dataclasses
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from prefermab.cli.options import JsonFlag, Names, option
from prefermab.errors import InputError, count, number, unknown

if TYPE_CHECKING:
    from benchmarks.measuring import Machine, Measured

CASE_GROUPS = ("start", "train", "evaluate", "act", "plan", "whittle", "bound")
HEADINGS = ("", "case", "first run", "then", "spread", "a second", "of limit")


@dataclasses.dataclass(frozen=True)
class BenchCommand:
    """Measure how fast prefermab runs here.

    It times training, evaluation, decisions and plans, beside what this machine can do at most.
    """

    only: Names = ()
    """Groups to measure: start, train, evaluate, act, plan, whittle, bound. Default: all."""
    largest: int = 10_000_000
    """Leave out cases with more arms than this."""
    out: Annotated[Path | None, option("PATH")] = None
    """File to write the results to, as JSON."""
    compare: Annotated[Path | None, option("PATH")] = None
    """File of an earlier run (--out) to compare with."""
    threshold: float = 1.5
    """Fail if a case takes more than this many times as long as in the file of --compare."""
    json: JsonFlag = False

    def run(self) -> None:
        """Measures, prints, writes and compares."""
        from benchmarks.cases import cases
        from benchmarks.measuring import Measured, machine, time_case
        from prefermab.cli.terminal import progress
        from prefermab.common.files import write_atomically

        for group in self.only:
            if group not in CASE_GROUPS:
                raise unknown("group of measurements", group, CASE_GROUPS)
        number(self.threshold, "threshold", at_least=1.0)
        before = None if self.compare is None else read_seconds(self.compare)
        limit = machine()
        largest, groups = count(self.largest, "largest"), self.only or CASE_GROUPS
        wanted = [case for case in cases(largest) if case.group in groups]
        found: list[Measured] = []
        with progress() as report:
            for done, case in enumerate(wanted):
                report(done / len(wanted), case.name)
                found.append(time_case(case, limit))
                if self.out is not None:  # after every case: an interrupted run keeps what it has
                    text = as_json(found, limit)
                    write_atomically(self.out, lambda draft, text=text: draft.write_text(text))
        if self.json:
            print(as_json(found, limit))
        else:
            print_measured(found, limit)
        if before is not None:
            compare(before, found, self.threshold, quiet=self.json)


def as_json(found: "list[Measured]", limit: "Machine") -> str:
    """The measurements as JSON, with the machine and the versions of Python and packages."""
    import jax

    import prefermab

    machine = {
        "python": platform.python_version(),
        "jax": jax.__version__,
        "platform": platform.platform(),
        "device": jax.devices()[0].device_kind,
        "backend": jax.default_backend(),
        "cores": os.cpu_count(),
    }
    facts = {
        "package": prefermab.__version__,
        "machine": dataclasses.asdict(limit) | machine,
        "cases": [dataclasses.asdict(one) for one in found],
    }
    return json.dumps(facts, indent=2) + "\n"


def table_rows(found: "list[Measured]") -> list[list[str]]:
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


def limit_sentence(limit: "Machine") -> str:
    """What the machine can do at most, in a sentence."""
    return (
        f"limit: {limit.multiplications / 1e9:,.0f} billion operations a second in multiplying "
        f"matrices, {limit.memory / 1e9:,.0f} GB a second in copying, in the same run"
    )


def print_measured(found: "list[Measured]", limit: "Machine") -> None:
    """Prints the measurements."""
    from rich.console import Console

    from prefermab.cli.terminal import plain_table

    table = plain_table(*HEADINGS, left=("", "case"))
    for row in table_rows(found):
        table.add_row(*row)
    Console().print(table)
    print(limit_sentence(limit))


def markdown_table(path: Path) -> str:
    """The measurements of a file as a table in Markdown, for docs/performance.md."""
    from benchmarks.measuring import Machine, Measured
    from prefermab.common.pages import Cell, Grid, Text, blocks_as_markdown

    facts = json.loads(path.read_text())
    found = [Measured(**one) for one in facts["cases"]]
    grid = Grid(HEADINGS, [[Cell(text) for text in row] for row in table_rows(found)])
    limit = Machine(facts["machine"]["multiplications"], facts["machine"]["memory"])
    return blocks_as_markdown([grid, Text(limit_sentence(limit))]).strip()


def compare(
    before: dict[str, float], found: "list[Measured]", threshold: float, quiet: bool
) -> None:
    """Prints how much longer each case takes than before; raises an error above the threshold."""
    ratios = {
        f"{one.group}: {one.name}": one.seconds / before[f"{one.group}: {one.name}"]
        for one in found
        if f"{one.group}: {one.name}" in before
    }
    if not ratios:
        raise InputError("--compare: the file has none of the cases that were measured now.")
    if not quiet:
        for name, ratio in ratios.items():
            print(f"{ratio:6.2f} times as long as before: {name}")
    worst = max(ratios, key=lambda name: ratios[name])
    if ratios[worst] > threshold:
        raise InputError(
            f"{worst} takes {ratios[worst]:.2f} times as long as before, more than {threshold:g}."
        )


def read_seconds(path: Path) -> dict[str, float]:
    """Seconds by case, from a file that an earlier run wrote."""
    try:
        facts = json.loads(path.read_text())
        return {f"{one['group']}: {one['name']}": float(one["seconds"]) for one in facts["cases"]}
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}.") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path}: expected the JSON that prefermab bench --out writes.") from None
