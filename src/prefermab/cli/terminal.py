"""Output in a terminal: progress, and the table of a comparison."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from prefermab.errors import visible
from prefermab.evaluation.compare import Progress as Report

SECONDS_BETWEEN_LINES = 10
"""Time between two lines of progress if standard error is not a terminal."""

BAR = 24
"""Width of the progress bar in characters."""


def plural(number: int, what: str) -> str:
    """A number and a noun, in the plural unless the number is 1.

    >>> from prefermab.cli.terminal import plural
    >>> plural(1, "arm"), plural(25, "arm")
    ('1 arm', '25 arms')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def plain(text: str) -> Text:
    """A text from a file, with its control characters escaped and without Rich markup.

    >>> from prefermab.cli.terminal import plain
    >>> plain("[red]Ana\\x1b[0m").plain
    '[red]Ana\\\\x1b[0m'
    """
    return Text(visible(text))


def plain_table(*headings: str, title: str | None = None, left: tuple[str, ...] = ()) -> Table:
    """A table without lines; its columns are aligned to the right, except those named in `left`."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right")
    return table


def comparison_table(frame: pl.DataFrame, title: str = "") -> Table:
    """The frame that `evaluate` returns, as a table."""
    meaning = "mean: reward of a trial per opted-in arm; difference: to the best policy"
    table = plain_table(
        "policy", "opt-in", "mean ± stderr", "of bound", "of best", "difference", "spent",
        title=f"{title}\n{meaning}" if title else meaning, left=("policy",),
    )  # fmt: skip
    before = None
    for row in frame.iter_rows(named=True):
        if before not in (None, row["opt_in"]):
            table.add_section()
        before = row["opt_in"]
        table.add_row(
            row["policy"],
            f"{row['opt_in']:.0%}" if isinstance(row["opt_in"], float) else row["opt_in"],
            f"{row['mean']:.3f} ± {row['stderr']:.3f}",
            "" if row["of_bound"] is None else f"{row['of_bound']:.1%}",
            "" if row["of_best"] is None else f"{row['of_best']:.1%}",
            f"{row['difference']:.3f} ± {row['difference_stderr']:.3f}",
            f"{row['spent']:.2f}",
        )
    return table


@contextlib.contextmanager
def progress(clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """Shows progress on standard error: on a terminal a bar with the remaining time, otherwise a
    line every few seconds."""
    if not sys.stderr.isatty():
        yield lines_of_progress(clock)
        return
    with progress_bar(Console(stderr=True)) as bar:
        task = bar.add_task("compiling", total=1.0)
        yield lambda done, what: bar.update(
            task, completed=done, description=shortened(what, bar.console.width)
        )


def progress_bar(console: Console) -> Progress:
    """A bar, the remaining time, and a description of the current work."""
    columns = BarColumn(BAR), TimeRemainingColumn(), TextColumn("{task.description}", markup=False)
    return Progress(*columns, console=console, transient=True)


def shortened(what: str, width: int) -> str:
    """The beginning of a text that fits beside the bar and the time."""
    room = max(width - BAR - len("-:--:--") - 4, 1)
    return what if len(what) <= room else what[: room - 1] + "…"


def lines_of_progress(clock: Callable[[], float]) -> Report:
    """Reports progress in plain lines, the first after some seconds: short work prints none."""
    last = clock()

    def report(done: float, what: str) -> None:
        nonlocal last
        if clock() - last >= SECONDS_BETWEEN_LINES:
            last = clock()
            with contextlib.suppress(OSError):
                print(f"{done:4.0%}  {what}", file=sys.stderr, flush=True)

    return report
