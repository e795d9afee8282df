"""What several verbs need: settings, models by name, tables, progress, the compilation cache."""

import ast
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from prefermab import domains
from prefermab.domains import Domain
from prefermab.errors import InputError, unknown
from prefermab.evaluation import Progress as Report
from prefermab.model import Model
from prefermab.programme.logs.logged import Logged
from prefermab.storage import domain_settings, load, shipped_models

SECONDS = 10
"""Between two lines on how far it is, where nobody watches."""

BAR = 24
"""Columns of a bar on a terminal."""


def model_and_domain(
    name: str, changes: dict[str, Any], domain: str | None = None
) -> tuple[Model | None, Domain]:
    """The model of that name or folder and the domain to meet it on, or a domain alone. A model is
    met on its own domain unless another is named."""
    known = {**dict.fromkeys(domains.BY_NAME), **shipped_models()}
    in_a_file = domains.in_a_file(name)
    if name not in known and not in_a_file and not Path(name).exists():
        raise unknown("model or domain", name, known)
    if known.get(name, name) is None or in_a_file:
        if domain is not None:
            raise InputError(f"{name} is a domain itself: --domain goes with a model.")
        return None, domains.get(name, **changes)
    if domain is not None:
        other = domains.get(domain, **changes)
        return load(name, domain=other), other
    model = load(name)
    if model.domain is None:
        raise InputError(where_to_meet(name, model))
    own = domain_settings(model.domain) or {}
    kept = {key: value for key, value in own.items() if key != "feature_map"}
    merged = {**kept, "feature_map": model.domain.feature_map, **changes}
    return model, domains.get(model.domain.name, **merged)


def where_to_meet(name: str, model: Model) -> str:
    """What to do with a model whose domain is not known by its name."""
    if model.domain_name == Logged.name:
        return f"the model {name} was learned from a log: its report says how good it is."
    if model.domain_name == domains.Tabular.name:
        return (
            f"the model {name} was trained on arms given as arrays: evaluate it from Python, with "
            "pm.load(folder, domain=...)."
        )
    return (
        f"the model {name} was trained on a domain of your own, '{model.domain_name}': name it "
        "with --domain FILE.py:CLASS."
    )


def settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """name=value pairs, values as Python would write them or plain words."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--set takes name=value, such as population=50, not '{pair}'.")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def numbers(pairs: tuple[str, ...], option: str) -> dict[str, float]:
    """name=number pairs; a name may itself hold an equals sign.

    >>> from prefermab.commands.shared import numbers
    >>> numbers(("north=0.3", "call=1"), "--costs")
    {'north': 0.3, 'call': 1.0}
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(f"{option} takes name=number, such as call=1, not '{pair}'.")
    return found


def several(number: int, what: str) -> str:
    """A number of things.

    >>> from prefermab.commands.shared import several
    >>> several(1, "arm"), several(25, "arm")
    ('1 arm', '25 arms')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def table(frame: pl.DataFrame, title: str = "") -> Table:
    """A comparison as a table for the terminal, with the words of the frame's columns."""
    meant = "mean: reward of a trial per opted-in arm; difference: to the best policy"
    shown = Table(
        title=f"{title}\n{meant}" if title else meant,
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for heading in (
        "policy",
        "opt-in",
        "mean ± stderr",
        "of bound",
        "of best",
        "difference",
        "spent",
    ):
        shown.add_column(heading, justify="left" if heading == "policy" else "right")
    before = None
    for row in frame.iter_rows(named=True):
        if before not in (None, row["opt_in"]):
            shown.add_section()
        before = row["opt_in"]
        shown.add_row(
            row["policy"],
            f"{row['opt_in']:.0%}" if isinstance(row["opt_in"], float) else row["opt_in"],
            f"{row['mean']:.3f} ± {row['stderr']:.3f}",
            "" if row["of_bound"] is None else f"{row['of_bound']:.1%}",
            "" if row["of_best"] is None else f"{row['of_best']:.1%}",
            f"{row['difference']:.3f} ± {row['difference_stderr']:.3f}",
            f"{row['spent']:.2f}",
        )
    return shown


@contextlib.contextmanager
def progress(clock: Callable[[], float] = time.monotonic) -> Iterator[Report]:
    """How far it is, on standard error: a bar with the time left where somebody watches, else a
    line now and then."""
    if not sys.stderr.isatty():
        yield now_and_then(clock)
        return
    with bar(Console(stderr=True)) as shown:
        task = shown.add_task("compiling", total=1.0)
        yield lambda done, what: shown.update(
            task, completed=done, description=fitting(what, shown.console.width)
        )


def bar(console: Console) -> Progress:
    """A bar, the time left, and words."""
    columns = BarColumn(BAR), TimeRemainingColumn(), TextColumn("{task.description}", markup=False)
    return Progress(*columns, console=console, transient=True)


def fitting(what: str, width: int) -> str:
    """As much of it as there is room for beside the bar and the time."""
    room = max(width - BAR - len("-:--:--") - 4, 1)
    return what if len(what) <= room else what[: room - 1] + "…"


def now_and_then(clock: Callable[[], float]) -> Report:
    """Reports in plain lines, the first after some seconds: short work has none."""
    last = clock()

    def report(done: float, what: str) -> None:
        nonlocal last
        if clock() - last >= SECONDS:
            last = clock()
            with contextlib.suppress(OSError):
                print(f"{done:4.0%}  {what}", file=sys.stderr, flush=True)

    return report
