"""Verbs for a programme's own people: from a log and a table to this round's list."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from prefermab.verbs.options import (
    Column,
    Json,
    Many,
    Model,
    ModelOrDomain,
    Money,
    Names,
    Own,
    Plot,
    Settings,
    shown,
)

ALL = ("*",)
"""All columns that have no other role. Options of `learn` that hold a name or a label are texts,
empty if left out: `None` is a label that a log may have."""


@dataclasses.dataclass(frozen=True)
class Example:
    """Write the tables of a made-up programme, to try things on."""

    out: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """Folder to write people.csv and log.csv to."""
    people: int = 400
    """How many people there are."""
    weeks: int = 26
    """How many weeks the log tells of."""
    seed: int = 0
    """Where all randomness starts."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.programme.logs.example import write_example

        replaced = write_example(self.out, self.people, self.weeks, self.seed)
        was = ", replacing what was there" if replaced else ""
        print(f"wrote {self.out / 'people.csv'} and {self.out / 'log.csv'}{was}")


@dataclasses.dataclass(frozen=True)
class Learn:
    """Learn a model from a log of what was done and what came of it, with a report on both."""

    log: Annotated[Positional[Path], arg(metavar="LOG")]
    """CSV or Parquet file with one row for each person and week."""
    out: Path
    """Folder to write the model to."""
    rewards: Annotated[tuple[str, ...], shown("STATE=REWARD ...")]
    """The reward of each state."""
    costs: Annotated[tuple[str, ...], shown("ACTION=COST ...")] = ()
    """The cost of each action, 0 for the passive one; 1 for all others if left out."""
    passive: Annotated[str, shown("ACTION")] = ""
    """The action that means doing nothing, where the costs do not say so."""
    id: str = "id"
    """Column that says who a row is about."""
    time: str = "time"
    """Column of whole numbers or dates that says when."""
    state: str = "state"
    """Column of the state in that week."""
    action: str = "action"
    """Column of the action in that week; it leads to the next week's state."""
    features: Annotated[tuple[str, ...], shown("COLUMN ...")] = ALL
    """Columns that people are told apart by; all other columns if left out, none if none is
    named."""
    available: Annotated[str, shown("COLUMN")] = ""
    """Column of true and false, who could be acted on; `available` if there is one."""
    reached: Annotated[str, shown("COLUMN")] = ""
    """Column of true and false, whom an action reached; `reached` if there is one."""
    every: Annotated[str, shown("LENGTH")] = ""
    """Length of a round, such as 7d, 2w, 1m or a number; found in the log if left out."""
    n_arms: Many = None
    """Number of arms the model is meant for; people in a round of the log if left out."""
    budget: Money = None
    """What may be spent in each round; what a round of the log cost if left out."""
    rounds: Many = None
    """Rounds that the gain is counted over; half as many as the log has, at most 12, if left
    out."""
    report: Annotated[Path | None, shown("PATH")] = None
    """Folder for the report; `report` in the model's folder if left out."""
    seed: int = 0
    """Where all randomness starts; the same seed gives the same model."""
    steps: int = 6000
    """Steps of the training; fewer give a first look sooner."""
    json: Json = False

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.learn import learn

        learn(self)


@dataclasses.dataclass(frozen=True)
class RuleOptions:
    """Rules that the plan must keep."""

    exclude: Column = None
    """Column of true and false: these are not acted on."""
    exclude_ids: Annotated[tuple[str, ...], shown("ID ...")] = ()
    """Ids of more people who are not acted on."""
    lock: Column = None
    """Column of true and false, or of actions: these are acted on first."""
    lock_ids: Annotated[tuple[str, ...], shown("ID ...")] = ()
    """Ids of more people who are acted on first."""
    cooldown: int = 0
    """Rounds that must pass after an action before the next."""
    last: str = "rounds_since_action"
    """Column with the rounds since the last action."""
    group: Column = None
    """Column of groups for the shares."""
    min_share: Annotated[tuple[str, ...], shown("GROUP=SHARE ...")] = ()
    """Least share of the people acted on, such as north=0.3."""
    max_share: Annotated[tuple[str, ...], shown("GROUP=SHARE ...")] = ()
    """Largest share of the people acted on."""
    worker: Column = None
    """Column of workers or regions with budgets of their own."""
    budgets: Annotated[tuple[str, ...], shown("WORKER=BUDGET ...", name="worker-budgets")] = ()
    """What each may spend, such as Ana=5."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """This round's list for a table of people: who gets what, and why."""

    model: Model
    arms: Path
    """Table of people, CSV or Parquet, or a folder of Parquet files if they are very many."""
    budget: float
    """What may be spent in this round."""
    out: Path
    """Where the list goes (.csv or .parquet); a new folder if --arms is one."""
    waiting: int = 20
    """How many are named to step in."""
    engine: str = "local"
    """For a folder: local, or ray to use a Ray cluster."""
    workers: Many = None
    """For the engine ray: cores to use; all if left out."""
    reasons: bool = True
    """For a folder: say why; a plan without is made sooner."""
    rules: Annotated[RuleOptions, arg(name="")] = dataclasses.field(default_factory=RuleOptions)
    """Rules that the plan must keep."""
    json: Json = False

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.plan import plan

        plan(self)


@dataclasses.dataclass(frozen=True)
class WhatIf:
    """What other budgets would do for a table of people."""

    model: Model
    arms: Path
    """Table of people, CSV or Parquet."""
    budgets: str
    """First:last:step, such as 100:2000:100, or budgets with commas between them."""
    rules: Annotated[RuleOptions, arg(name="")] = dataclasses.field(default_factory=RuleOptions)
    """Rules that the plan must keep."""
    plot: Plot = None
    json: Json = False

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.plan import what_if

        what_if(self)


@dataclasses.dataclass(frozen=True)
class Simulate:
    """Run a programme for many rounds: people join and leave, states move, policies decide."""

    model: ModelOrDomain
    against: Names = ()
    """Of none, random, round-robin, myopic, whittle, lagrangian; the usual ones if left out."""
    rounds: int = 52
    """How long a programme runs."""
    n_arms: Many = None
    """Places in the programme; the model's or the paper's number of arms if left out."""
    budget: Money = None
    """What may be spent in each round; the model's or the paper's if left out."""
    stay: float = 0.9
    """Probability that somebody who is in stays for the next round."""
    newcomers: float = 3.0
    """Mean number of people who ask to join in a round."""
    trials: int = 200
    """How many programmes are drawn and played."""
    seed: int = 0
    """Where all randomness starts; the same seed gives the same figures."""
    domain: Own = None
    settings: Settings = ()
    json: Json = False
    plot: Plot = None

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.simulate import simulate

        simulate(self)
