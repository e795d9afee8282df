"""Verbs for a programme's own people: from a log and a table to this round's list."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import FlagCreatePairsOff, Positional

from prefermab.config import Exact


@dataclasses.dataclass(frozen=True)
class Example:
    """Write the tables of a made-up programme, to try things on."""

    out: Positional[Path]
    """Folder to write people.csv and log.csv to."""
    people: int = 400
    """How many people there are."""
    weeks: int = 26
    """How many weeks the log tells of."""
    seed: int = 0
    """Where all randomness starts."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.example import write_example

        write_example(self.out, self.people, self.weeks, self.seed)
        print(f"wrote {self.out / 'people.csv'} and {self.out / 'log.csv'}")


@dataclasses.dataclass(frozen=True)
class Learn:
    """Learn a model from a log of what was done and what came of it, with a report on both."""

    log: Positional[Path]
    """CSV or Parquet file with one row for each person and week."""
    out: Path
    """Folder to write the model to."""
    rewards: Annotated[tuple[str, ...], tyro.conf.arg(metavar="STATE=REWARD")]
    """The reward of each state."""
    costs: Annotated[tuple[str, ...], tyro.conf.arg(metavar="ACTION=COST")] = ()
    """The cost of each action, 0 for the passive one; 1 for all others if left out."""
    passive: str | None = None
    """The action that means doing nothing, where the costs do not say so."""
    id: str = "id"
    """Column that says who a row is about."""
    time: str = "time"
    """Column of whole numbers or dates that says when."""
    state: str = "state"
    """Column of the state in that week."""
    action: str = "action"
    """Column of the action in that week; it leads to the next week's state."""
    features: tuple[str, ...] | None = None
    """Columns that people are told apart by; all other columns if left out."""
    n_arms: int | None = None
    """Number of arms the model is meant for; people in a round of the log if left out."""
    budget: float | None = None
    """What may be spent in each round; what a round of the log cost if left out."""
    report: Path | None = None
    """Folder for the report; `report` in the model's folder if left out."""
    seed: int = 0
    """Where all randomness starts; the same seed gives the same model."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Print JSON and nothing else on standard output."""
    exact: Exact = dataclasses.field(default_factory=Exact)
    """Hyperparameters of the recipe exact."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.learn import learn

        learn(self)


@dataclasses.dataclass(frozen=True)
class RuleOptions:
    """Rules that the plan must keep."""

    exclude: str | None = None
    """Column of true and false: these are not acted on."""
    exclude_ids: tuple[str, ...] = ()
    """Ids of more people who are not acted on."""
    lock: str | None = None
    """Column of true and false, or of actions: these are acted on first."""
    lock_ids: tuple[str, ...] = ()
    """Ids of more people who are acted on first."""
    cooldown: int = 0
    """Rounds that must pass after an action before the next."""
    last: str = "rounds_since_action"
    """Column with the rounds since the last action."""
    group: str | None = None
    """Column of groups for the shares."""
    min_share: Annotated[tuple[str, ...], tyro.conf.arg(metavar="GROUP=SHARE")] = ()
    """Least share of the people acted on, such as north=0.3."""
    max_share: Annotated[tuple[str, ...], tyro.conf.arg(metavar="GROUP=SHARE")] = ()
    """Largest share of the people acted on."""
    worker: str | None = None
    """Column of workers or regions with budgets of their own."""
    budgets: Annotated[
        tuple[str, ...], tyro.conf.arg(name="worker-budgets", metavar="WORKER=BUDGET")
    ] = ()
    """What each may spend, such as Ana=5."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """This round's list for a table of people: who gets what, and why."""

    model: Positional[str]
    """A model that ships, or a model's folder."""
    arms: Path
    """Table of people, CSV or Parquet: id, state, the model's features by name, opt_in if any; or
    a folder of Parquet files, for more people than fit into memory."""
    budget: float
    """What may be spent in this round."""
    out: Path
    """Where the list goes (.csv or .parquet); a new folder if --arms is one."""
    waiting: int = 20
    """How many are named to step in."""
    engine: str = "local"
    """For a folder: local, or ray to use a Ray cluster."""
    workers: int | None = None
    """For the engine ray: cores to use; all if left out."""
    reasons: bool = True
    """For a folder: say why; a plan without is made sooner."""
    rules: Annotated[RuleOptions, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=RuleOptions
    )
    """Rules that the plan must keep."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Print JSON and nothing else on standard output."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.plan import plan

        plan(self)


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """What other budgets would do for a table of people."""

    model: Positional[str]
    """A model that ships, or a model's folder."""
    arms: Path
    """Table of people, CSV or Parquet."""
    budgets: str
    """First:last:step, such as 100:2000:100, or budgets with commas between them."""
    rules: Annotated[RuleOptions, tyro.conf.arg(name="")] = dataclasses.field(
        default_factory=RuleOptions
    )
    """Rules that the plan must keep."""
    plot: Path | None = None
    """Also draw it to this file (.png, .svg or .pdf)."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Print JSON and nothing else on standard output."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.plan import what_if

        what_if(self)


@dataclasses.dataclass(frozen=True)
class Simulate:
    """Run a programme for many rounds: people join and leave, states move, policies decide."""

    model: Positional[str]
    """A model that ships, a model's folder, or a domain (then only policies are compared)."""
    against: tuple[str, ...] = ()
    """none, random, round-robin, myopic, whittle, lagrangian; the first three and, of two actions,
    whittle if left out."""
    rounds: int = 52
    """How long a programme runs."""
    n_arms: int | None = None
    """Places in the programme; the model's or the paper's number of arms if left out."""
    budget: float | None = None
    """What may be spent in each round; the model's or the paper's if left out."""
    stay: float = 0.9
    """Probability that somebody who is in stays for the next round."""
    newcomers: float = 3.0
    """Mean number of people who ask to join in a round."""
    trials: int = 200
    """How many programmes are drawn and played."""
    seed: int = 0
    """Where all randomness starts; the same seed gives the same figures."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE")] = ()
    """Settings of the domain, such as population=50 or mix=0.4,0.2,0.4."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Print JSON and nothing else on standard output."""
    plot: Path | None = None
    """Also draw how the programme goes to this file (.png, .svg or .pdf)."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.simulate import simulate

        simulate(self)
