"""Time and memory of a plan, from ten thousand people to a hundred million."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cases import people_tables
from prefermab.common import plots
from prefermab.common.files import write_atomically
from prefermab.common.pages import Cell, Grid, Picture, Text, blocks_as_markdown
from prefermab.common.plots import svg_of

STUDY_SIZES = tuple(10**power for power in range(4, 9))
SHARE = 0.1
"""Share of all people for whom the budget pays an action."""

PLANNING = """
import sys
from pathlib import Path
from prefermab.cli import main
main()
(peak,) = [line for line in Path("/proc/self/status").open() if line.startswith("VmHWM")]
print(peak, file=sys.stderr)
"""
"""A program that plans, then prints the peak memory of its own process. The operating
system's figure for child processes would include memory of the parent."""

PICTURE = Path("docs/results/figures/scale.svg")
HEAD = [
    "people", "parts, MB", "plan, MB", "seconds", "people a second", "peak memory, MB", "called",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PlanRun:
    """Time and memory of one plan."""

    people: int
    given: int
    written: int
    seconds: float
    memory: int
    """Peak bytes of the process that planned."""
    chosen: int


def scale(sizes: Sequence[int] = STUDY_SIZES) -> str:
    """Seconds and memory of a plan, by the number of people."""
    runs = []
    for size in sizes:
        runs.append(time_plan(size))
        print(runs[-1], flush=True)
    return scale_page(runs)


def time_plan(size: int) -> PlanRun:
    """Plans for `size` people in a separate process; the input files are deleted afterwards."""
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".scale-") as folder:
        arms, out = Path(folder) / "arms", Path(folder) / "plan"
        arms.mkdir()
        for place, part in enumerate(people_tables(size)):
            part.write_parquet(arms / f"part-{place:05}.parquet")
        arguments = ["plan", "armman", "--arms", arms, "--budget", int(size * SHARE), "--out", out]
        command = [sys.executable, "-c", PLANNING, *map(str, arguments), "--no-reasons", "--json"]
        begun = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - begun
        return PlanRun(
            people=size,
            given=sum(file.stat().st_size for file in arms.iterdir()),
            written=sum(file.stat().st_size for file in out.iterdir()),
            seconds=seconds,
            memory=1024 * int(done.stderr.split()[-2]),
            chosen=json.loads(done.stdout)["chosen"],
        )


def scale_page(runs: Sequence[PlanRun]) -> str:
    """The page: a table and a picture."""
    figure = plots.blank(6, 3.2)
    panel, other = figure.subplots(1, 2)
    people = [run.people for run in runs]
    for where, values, name in (
        (panel, [run.seconds for run in runs], "seconds"),
        (other, [run.memory / 1e9 for run in runs], "peak memory, GB"),
    ):
        where.plot(people, values, color=plots.BLUE, marker="o", ms=4)
        where.set_xscale("log")
        where.set_xlabel("people", fontsize=9)
        where.set_ylabel(name, fontsize=9)
        plots.tidy_panel(where)
    panel.set_yscale("log")
    other.set_ylim(bottom=0)
    svg = svg_of(figure, "scale")
    write_atomically(PICTURE, lambda draft: draft.write_text(svg))
    words = (
        "`prefermab plan armman --arms FOLDER --engine local --no-reasons`, a process of its own "
        f"for each size, start and compilation included, on {os.cpu_count()} shared cores. People "
        "are drawn as ARMMAN draws them (an id, a state, six features of 32 bits), in parts of "
        f"about a million; {SHARE:.0%} of them can be called. The process reads every part three "
        "times and writes the plan."
    )
    rows = [
        [
            f"{run.people:,}", f"{run.given / 1e6:,.1f}", f"{run.written / 1e6:,.1f}",
            f"{run.seconds:,.1f}", f"{run.people / run.seconds:,.0f}", f"{run.memory / 1e6:,.0f}",
            f"{run.chosen:,}",
        ]
        for run in runs
    ]  # fmt: skip
    grid = Grid(HEAD, [[Cell(text) for text in row] for row in rows])
    caption = "Seconds and peak memory of a plan by the number of people."
    return blocks_as_markdown([Text(words), grid, Picture("scale", svg, caption)])
