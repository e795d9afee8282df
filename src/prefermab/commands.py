"""What the verbs of the command line do."""

import ast
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import platformdirs
import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from prefermab import cli, domains, plots, policies
from prefermab.domains import Domain
from prefermab.errors import InputError, unknown
from prefermab.evaluation import Progress as Report
from prefermab.evaluation import evaluate as compare


def demo(options: cli.Demo) -> None:
    """Compares the baselines on ARMMAN and draws the picture."""
    use_compilation_cache()
    picture = plots.check_target(options.out)
    domain = domains.Armman()
    console = Console()
    console.print(
        "25 mothers hear health messages each week and drift in and out of listening.\n"
        "There is time for 7 calls a week: whom to call? Every policy meets the same\n"
        "people and the same luck.\n"
    )
    with progress() as report:
        frame = compare(
            domain,
            {name: policy() for name, policy in policies.BY_NAME.items()},
            n_arms=25,
            budget=7,
            opt_in=(0.8, 1.0),
            trials=options.trials,
            seed=options.seed,
            progress=report,
        )
    console.print(table(frame))
    plots.save(plots.comparison(frame, "Whom to call: 25 mothers, 7 calls a week"), picture)
    console.print(
        f"\nThe picture is in {picture}.\nNext, on another domain: prefermab evaluate sis"
    )


def evaluate(options: cli.Evaluate) -> None:
    """Compares policies on a domain; prints a table or JSON, and draws on request."""
    use_compilation_cache()
    if options.plot is not None:
        plots.check_target(options.plot)
    domain = domains.get(options.domain, **settings(options.settings))
    chosen = chosen_policies(options.against, domain)
    with progress() as report:
        frame = compare(
            domain,
            chosen,
            n_arms=options.n_arms,
            budget=options.budget,
            opt_in=options.opt_in,
            trials=options.trials,
            seed=options.seed,
            rounds=options.rounds,
            bound=options.bound,
            progress=report,
        )
    n_arms = domain.usual_arms if options.n_arms is None else options.n_arms
    budget = domain.usual_budget if options.budget is None else options.budget
    if options.json:
        told = {"domain": domain.name, "n_arms": n_arms, "budget": budget, "seed": options.seed}
        print(json.dumps({**told, "rows": frame.to_dicts()}, indent=2))
    else:
        title = f"{domain.name}: {n_arms} arms, budget {budget:g}"
        Console().print(table(frame, title))
    if options.plot is not None:
        title = f"{domain.name}: {n_arms} arms, budget {budget:g}, {options.trials} trials"
        plots.save(plots.comparison(frame, title), options.plot)


def chosen_policies(names: tuple[str, ...], domain: Domain) -> dict[str, policies.Policy]:
    """The policies that were named, or all that fit the domain."""
    for name in names:
        if name not in policies.BY_NAME:
            raise unknown("policy", name, policies.BY_NAME)
    fits = [name for name in policies.BY_NAME if name != "whittle" or domain.n_actions == 2]
    return {name: policies.BY_NAME[name]() for name in names or fits}


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


def use_compilation_cache() -> None:
    """Keeps compiled code between runs in the user's cache folder, unless JAX was told another."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    folder = Path(platformdirs.user_cache_dir("prefermab")) / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
