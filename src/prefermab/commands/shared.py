"""What several verbs need: settings, models by name, tables, progress, the compilation cache."""

import ast
import contextlib
import sys
from collections.abc import Iterator
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
from prefermab.storage import domain_settings, load, shipped_models


def model_and_domain(name: str, changes: dict[str, Any]) -> tuple[Model | None, Domain]:
    """The model of that name or folder and the domain to meet it on, or a domain alone."""
    known = {**dict.fromkeys(domains.BY_NAME), **shipped_models()}
    if name not in known and not Path(name).exists():
        raise unknown("model or domain", name, known)
    if known.get(name, name) is None:
        return None, domains.get(name, **changes)
    model = load(name)
    if model.domain is None:
        raise InputError(
            f"the model {name} was trained on a domain of your own: evaluate it from Python, with "
            "pm.load(folder, domain=...)."
        )
    own = domain_settings(model.domain) or {}
    kept = {key: value for key, value in own.items() if key != "feature_map"}
    merged = {**kept, "feature_map": model.domain.feature_map, **changes}
    return model, domains.get(model.domain.name, **merged)


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


def table(frame: pl.DataFrame, title: str | None = None) -> Table:
    """A comparison as a table for the terminal."""
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    headings = (
        "policy",
        "opted in",
        "reward per arm",
        "of bound",
        "of best",
        "behind best",
        "spent",
    )
    for heading in headings:
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
def progress() -> Iterator[Report]:
    """A bar with the time left, on standard error and only where somebody watches."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(
        *columns, console=console, transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task("compiling", total=1.0)

        def report(done: float, what: str) -> None:
            bar.update(task, completed=done, description=what)

        yield report
