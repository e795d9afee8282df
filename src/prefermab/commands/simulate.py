"""The verb that runs a programme for many rounds."""

import contextlib
import json
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.console import Console
from rich.live import Live
from rich.table import Table

from prefermab import plots, policies
from prefermab.commands.shared import model_and_domain, settings, several
from prefermab.compiled import use_compilation_cache
from prefermab.domains import Domain
from prefermab.errors import unknown
from prefermab.opt_in import Streaming
from prefermab.programme.simulation import Tally, at_random, programmes, usual_policies
from prefermab.verbs import programmes as verbs

BARS = "▁▂▃▄▅▆▇█"
NARROW, WIDE, REST = 8, 26, 70
"""Characters that the course of a programme takes at least and at most, and the rest of a line."""


def simulate(options: verbs.Simulate) -> None:
    """Plays programmes while a table is kept up to date, then draws on request."""
    use_compilation_cache()
    if options.plot is not None:
        plots.check_target(options.plot)
    model, domain = model_and_domain(options.model, settings(options.settings), options.domain)
    n_arms, budget = domain.usual_arms, domain.usual_budget
    if model is not None:
        n_arms, budget = model.n_arms, model.budget
    n_arms = n_arms if options.n_arms is None else options.n_arms
    budget = budget if options.budget is None else options.budget
    process = Streaming(options.stay, options.newcomers)
    chosen = chosen_policies(options.against, domain)
    runs = programmes(
        model, domain, chosen, n_arms, budget, options.rounds, process, options.seed, options.trials
    )
    title = (
        f"{domain.name}: {several(n_arms, 'place')}, budget {budget:g}, {options.rounds} rounds; "
        f"{options.stay:.0%} stay for the next, {options.newcomers:g} ask to join"
    )
    tally = watched(runs, title, shown=not options.json)
    if options.json:
        told = {"domain": domain.name, "n_arms": n_arms, "budget": budget, "seed": options.seed}
        told |= {"stay": options.stay, "newcomers": options.newcomers}
        frames = {"policies": tally.summary().to_dicts(), "rows": tally.frame().to_dicts()}
        print(json.dumps({**told, **frames}, indent=2))
    if options.plot is not None:
        trials = f"{title}; {tally.trials} programmes"
        plots.save(plots.programme(tally.frame(), trials, budget), options.plot)


def watched(runs: Iterable[Tally], title: str, shown: bool) -> Tally:
    """Goes through all runs; where somebody watches, the table follows them."""
    tally, console = None, Console(highlight=False)
    live = Live("compiling", console=console, auto_refresh=False, transient=True)
    with live if shown and sys.stdout.isatty() else contextlib.nullcontext():
        for tally in runs:
            if live.is_started:
                live.update(table(tally, title, console.width), refresh=True)
    assert tally is not None
    if shown:
        console.print(table(tally, title, console.width))
    return tally


def table(tally: Tally, title: str, width: int = 80) -> Table:
    """Policies over all rounds, best first: engagement a round and its course, spending a round,
    how many different people were reached, and their share of all who ever joined."""
    done = f"{tally.trials} of {tally.wanted} programmes"
    shown = Table(
        title=f"{title}\n{done}",
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for heading in ("policy", "engagement", "difference", "course", "spent", "reached", "of all"):
        to_the_left = heading in ("policy", "course")
        shown.add_column(heading, justify="left" if to_the_left else "right", no_wrap=True)
    columns = min(max(width - REST, NARROW), WIDE)
    courses = {name: course(found["engagement"], columns) for name, found in tally.found.items()}
    every = np.concatenate(list(courses.values()))
    low, high = float(np.nanmin(every)), float(np.nanmax(every))
    for row in tally.summary().iter_rows(named=True):
        shown.add_row(
            row["policy"],
            f"{row['engagement']:.3f} ± {row['engagement_stderr']:.3f}",
            f"{row['difference']:.3f} ± {row['difference_stderr']:.3f}",
            bars(courses[row["policy"]], low, high),
            f"{row['spent']:.2f}",
            f"{row['reached']:.1f}",
            f"{row['reached_share']:.1%}",
        )
    return shown


def course(engagement: np.ndarray, columns: int) -> np.ndarray:
    """Mean engagement along the rounds, in at most so many stretches."""
    pieces = np.array_split(engagement, min(columns, engagement.shape[1]), axis=1)
    return np.array([np.nanmean(p) if (~np.isnan(p)).any() else np.nan for p in pieces])


def bars(values: np.ndarray, low: float, high: float) -> str:
    """A small chart in one line of text.

    >>> from prefermab.commands.simulate import bars
    >>> import numpy as np
    >>> bars(np.array([0.0, 0.5, 1.0]), 0.0, 1.0)
    '▁▅█'
    """
    top = len(BARS) - 1
    places = np.nan_to_num((values - low) / max(high - low, 1e-9)) * top
    return "".join(
        " " if np.isnan(value) else BARS[round(place)]
        for value, place in zip(values, places.tolist(), strict=True)
    )


def chosen_policies(names: tuple[str, ...], domain: Domain) -> dict[str, Any]:
    """The policies that were named, or the usual ones; random is among those who are in."""
    for name in names:
        if name not in policies.BY_NAME:
            raise unknown("policy", name, policies.BY_NAME)
    usual = (*usual_policies(), *(["whittle"] if domain.n_actions == 2 else []))
    found: dict[str, Any] = {name: policies.BY_NAME[name]() for name in names or usual}
    return {name: at_random if name == "random" else policy for name, policy in found.items()}
