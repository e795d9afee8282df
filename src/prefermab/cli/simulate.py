"""The command `simulate`: a programme over many rounds."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from prefermab.cli.options import (
    Amount,
    JsonFlag,
    KnownEnd,
    ModelOrDomain,
    Names,
    OtherDomain,
    PlotFile,
    SettingsOption,
    Whole,
    parse_settings,
)

if TYPE_CHECKING:
    from rich.table import Table

    from prefermab.domains import Domain
    from prefermab.evaluation.simulation import Tally
    from prefermab.policies import Policy

BARS = "▁▂▃▄▅▆▇█"
NARROW, WIDE, REST = 8, 26, 70
"""Smallest and largest width of the chart in a line, and the width of the other columns."""


@dataclasses.dataclass(frozen=True)
class SimulateCommand:
    """Simulate a programme over many rounds.

    People join and leave, their states change, and policies decide whom to act on.
    """

    model: ModelOrDomain
    against: Names = ()
    """Policies to compare with: none, random, lottery, round-robin, myopic, whittle, lagrangian.
    Default: none, lottery, round-robin and, with two actions, whittle."""
    rounds: int = 52
    """Number of rounds."""
    known_end: KnownEnd = False
    n_arms: Whole = None
    """Number of places. Default: the model's number of arms, or as in the paper for a domain."""
    budget: Amount = None
    """Budget of each round. Default: the model's budget, or as in the paper for a domain."""
    stay: float = 0.9
    """Probability that a participant stays for the next round."""
    newcomers: float = 3.0
    """Mean number of people who ask to join in a round."""
    trials: int = 200
    """Number of programmes that are simulated."""
    seed: int = 0
    """Random seed; the same seed gives the same figures."""
    domain: OtherDomain = None
    settings: SettingsOption = ()
    json: JsonFlag = False
    plot: PlotFile = None

    def run(self) -> None:
        """Simulates and updates a table meanwhile; draws a figure on request."""
        from prefermab.arms.opt_in import Streaming
        from prefermab.cli.evaluate import model_and_domain, usual_size, with_known_end
        from prefermab.cli.terminal import plural
        from prefermab.common import plots
        from prefermab.common.files import use_compilation_cache
        from prefermab.evaluation.simulation import simulate_batches

        use_compilation_cache()
        if self.plot is not None:
            plots.check_target(self.plot)
        model, domain = model_and_domain(self.model, parse_settings(self.settings), self.domain)
        n_arms, budget = usual_size(model, domain, self.n_arms, self.budget)
        others: dict[str, Any] = {**policies_to_simulate(self.against, domain)}
        if model is not None:
            others = with_known_end("prefermab", model, self.known_end) | others
            others.pop("prefermab")
        runs = simulate_batches(
            model, domain, policies=others, n_arms=n_arms, budget=budget, rounds=self.rounds,
            opt_in=Streaming(self.stay, self.newcomers), trials=self.trials, seed=self.seed,
        )  # fmt: skip
        title = (
            f"{domain.name}: {plural(n_arms, 'place')}, budget {budget:g}, {self.rounds} rounds; "
            f"{self.stay:.0%} stay for the next, {self.newcomers:g} ask to join"
        )
        tally = watch(runs, title, shown=not self.json)
        if self.json:
            facts = {"domain": domain.name, "n_arms": n_arms, "budget": budget, "seed": self.seed}
            facts |= {"stay": self.stay, "newcomers": self.newcomers}
            frames = {"policies": tally.summary().to_dicts(), "rows": tally.frame().to_dicts()}
            print(json.dumps({**facts, **frames}, indent=2))
        if self.plot is not None:
            trials = f"{title}; {tally.trials} programmes"
            plots.save_figure(plots.programme(tally.frame(), trials, budget), self.plot)


def policies_to_simulate(names: tuple[str, ...], domain: "Domain") -> "dict[str, Policy]":
    """The named policies, or the default ones."""
    from prefermab import policies
    from prefermab.cli.evaluate import check_policies
    from prefermab.evaluation.simulation import usual_policies

    check_policies(names)
    usual = (*usual_policies(), *(["whittle"] if domain.n_actions == 2 else []))
    return {name: policies.BY_NAME[name]() for name in names or usual}


def watch(runs: "Iterable[Tally]", title: str, shown: bool) -> "Tally":
    """Runs all simulations and prints the table; on a terminal, updates it after each run."""
    from rich.console import Console
    from rich.live import Live

    tally, console = None, Console(highlight=False)
    live = Live("compiling", console=console, auto_refresh=False, transient=True)
    with live if shown and sys.stdout.isatty() else contextlib.nullcontext():
        for tally in runs:
            if live.is_started:
                live.update(simulation_table(tally, title, console.width), refresh=True)
    assert tally is not None
    if shown:
        console.print(simulation_table(tally, title, console.width))
    return tally


def simulation_table(tally: "Tally", title: str, width: int = 80) -> "Table":
    """A table of policies, best first: mean engagement per round and a chart of it over time,
    spending per round, number of different people reached, and their share of all who joined."""
    from prefermab.cli.terminal import plain_table

    table = plain_table(
        "policy", "engagement", "difference", "course", "spent", "reached", "of all",
        title=f"{title}\n{tally.trials} of {tally.wanted} programmes", left=("policy", "course"),
    )  # fmt: skip
    for column in table.columns:
        column.no_wrap = True
    columns = min(max(width - REST, NARROW), WIDE)
    courses = {name: course(found["engagement"], columns) for name, found in tally.found.items()}
    every = np.concatenate(list(courses.values()))
    low, high = float(np.nanmin(every)), float(np.nanmax(every))
    for row in tally.summary().iter_rows(named=True):
        table.add_row(
            row["policy"],
            f"{row['engagement']:.3f} ± {row['engagement_stderr']:.3f}",
            f"{row['difference']:.3f} ± {row['difference_stderr']:.3f}",
            text_chart(courses[row["policy"]], low, high),
            f"{row['spent']:.2f}",
            f"{row['reached']:.1f}",
            f"{row['reached_share']:.1%}",
        )
    return table


def course(engagement: np.ndarray, columns: int) -> np.ndarray:
    """Mean engagement over time; the rounds are divided into at most `columns` parts."""
    pieces = np.array_split(engagement, min(columns, engagement.shape[1]), axis=1)
    return np.array([np.nanmean(p) if (~np.isnan(p)).any() else np.nan for p in pieces])


def text_chart(values: np.ndarray, low: float, high: float) -> str:
    """A small chart in one line of text.

    >>> from prefermab.cli.simulate import text_chart
    >>> import numpy as np
    >>> text_chart(np.array([0.0, 0.5, 1.0]), 0.0, 1.0)
    '▁▅█'
    """
    top = len(BARS) - 1
    places = np.nan_to_num((values - low) / max(high - low, 1e-9)) * top
    return "".join(
        " " if np.isnan(value) else BARS[round(place)]
        for value, place in zip(values, places.tolist(), strict=True)
    )
