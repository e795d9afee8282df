"""The command line: each verb is a dataclass whose fields are its options.

JAX is imported by the verb that needs it, so that help is instant.
"""

import dataclasses
import os
import sys
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import FlagCreatePairsOff, Positional

from prefermab.config import Exact, Paper, Sweep, Tuning
from prefermab.errors import InputError


@dataclasses.dataclass(frozen=True)
class Demo:
    """The main job in a minute: ten weeks of a health programme, then the comparison."""

    out: Path = Path("prefermab-demo.png")
    """Where the picture goes (.png, .svg or .pdf)."""
    trials: int = 1000
    """How many programmes are drawn."""
    seed: int = 0
    """Where all randomness starts."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.demo import demo

        demo(self)


@dataclasses.dataclass(frozen=True)
class Models:
    """The models that ship with the package; with a name, that model's card."""

    name: Positional[str | None] = None
    """A model that ships, or a folder."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Print JSON and nothing else on standard output."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.reports import models

        models(self)


@dataclasses.dataclass(frozen=True)
class Pretrain:
    """Train a model on a domain."""

    domain: Positional[str]
    """synthetic, armman, sis, continuous-synthetic or continuous-sis."""
    out: Path
    """Folder to write the model to; with --seeds, one folder in it for each."""
    n_arms: int | None = None
    """Number of arms the model is meant for; the paper's for the domain if left out."""
    budget: float | None = None
    """What may be spent in each round; the paper's for the domain if left out."""
    recipe: str = "exact"
    """How to train: exact, sweep where dynamics can only be sampled, or the paper's Algorithm 1 by
    paper."""
    seed: int = 0
    """Where all randomness starts; the same seed gives the same model."""
    seeds: int = 1
    """Train this many models at once, from `seed` upwards."""
    resume: Annotated[bool, FlagCreatePairsOff] = False
    """Go on with a training that was cut short; it ends in the same weights."""
    tensorboard: Path | None = None
    """Also write TensorBoard event files into this folder."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE")] = ()
    """Settings of the domain, such as population=50 or mix=0.4,0.2,0.4."""
    sweep: Sweep = dataclasses.field(default_factory=Sweep)
    """Hyperparameters of the recipe sweep."""
    exact: Exact = dataclasses.field(default_factory=Exact)
    """Hyperparameters of the recipe exact."""
    paper: Paper = dataclasses.field(default_factory=Paper)
    """Hyperparameters of the recipe paper."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.train import pretrain

        pretrain(self)


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
class Finetune:
    """Let a model learn further from arms of its domain; it never gets worse on them."""

    model: Positional[str]
    """A model that ships, or a model's folder."""
    out: Path
    """Folder to write the model to."""
    n_arms: int | None = None
    """Number of arms to learn from; the model's if left out."""
    arms_seed: int = 0
    """Which arms: those that the domain draws from this seed."""
    budget: float | None = None
    """What may be spent in each round; the model's if left out."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE")] = ()
    """Settings of the domain that the arms come from, such as shift=0.1, where it differs."""
    tuning: Annotated[Tuning, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Tuning)
    """How to learn."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.train import finetune

        finetune(self)


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Compare a model and policies on the same arms, starts, opt-ins and luck."""

    model: Positional[str]
    """A model that ships, a model's folder, or a domain (then only policies are compared)."""
    against: tuple[str, ...] = ()
    """none, random, round-robin, myopic, whittle, lagrangian; all that fit if left out."""
    n_arms: int | None = None
    """Number of arms; the model's or the paper's if left out."""
    budget: float | None = None
    """What may be spent in each round; the model's or the paper's if left out."""
    opt_in: tuple[float, ...] = (1.0,)
    """Shares of the arms that are in, each evaluated."""
    trials: int = 1000
    """How many times new arms are drawn and played."""
    rounds: int = 9
    """Decisions in a trial."""
    seed: int = 0
    """Where all randomness starts; the same seed gives the same figures."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE")] = ()
    """Settings of the domain, such as population=50 or mix=0.4,0.2,0.4."""
    bound: bool = True
    """Compute the upper bound that no policy can pass."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Print JSON and nothing else on standard output."""
    plot: Path | None = None
    """Also draw the comparison to this file (.png, .svg or .pdf)."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.reports import evaluate

        evaluate(self)


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


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Every table and figure of the paper, worked out again and laid beside the published ones."""

    out: Path = Path("report")
    """Folder to write the report to: index.html, README.md, cells.json and the figures."""
    only: tuple[str, ...] = ()
    """Parts of it: table1 to table16, figure1 to figure4, prop1."""
    recipe: str = "all"
    """paper, sweep, exact, both (paper and sweep) or all."""
    seeds: int = 8
    """Training seeds."""
    trials: int = 1000
    """Paired trials of each cell; a fifth of them on epidemics."""
    quick: Annotated[bool, FlagCreatePairsOff] = False
    """A small version of everything, to see that it works."""
    cache: Path | None = None
    """Where what is done is kept, so that a second run goes on; the user's cache if left out."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Print JSON and nothing else on standard output."""

    def run(self) -> None:
        """Runs the verb."""
        if self.quick:
            # Small work is mostly compiling: better code would cost more than it saves.
            os.environ.setdefault(
                "XLA_FLAGS",
                "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
                "--xla_cpu_parallel_codegen_split_count=1",
            )
        from prefermab.commands.reproduce import reproduce

        reproduce(self)


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
    """Table of people, CSV or Parquet: id, state, the model's features by name, opt_in if any."""
    budget: float
    """What may be spent in this round."""
    out: Path
    """Where the list goes (.csv or .parquet)."""
    waiting: int = 20
    """How many are named to step in."""
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
class Bench:
    """Measure how fast this machine trains, decides and plans, beside what it could do at most."""

    only: tuple[str, ...] = ()
    """train, evaluate, act, plan, whittle, bound; all if left out."""
    largest: int = 1_000_000
    """The most arms at once; 10000000 needs about 4 GB."""
    out: Path | None = None
    """Where to write the figures as JSON."""
    compare: Path | None = None
    """Figures of an earlier run to compare with."""
    threshold: float = 1.5
    """How many times the seconds of before are too many."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Print JSON and nothing else on standard output."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.bench import bench

        bench(self)


Verb = (
    Demo
    | Models
    | Example
    | Learn
    | Plan
    | WhatIf
    | Simulate
    | Pretrain
    | Finetune
    | Evaluate
    | Reproduce
    | Bench
)


def main() -> None:
    """Runs the command line; exit status 0, 2 on bad input, 130 on Ctrl-C."""
    try:
        verb = tyro.cli(
            Verb,
            prog="prefermab",
            description="Give a limited resource, round after round, to some of many.",
            args=sys.argv[1:] or ["--help"],
        )
        verb.run()
    except InputError as error:
        print(f"prefermab: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("prefermab: interrupted.", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # JAX may still be computing in threads of its own, which an ordinary end can crash into.
        os._exit(130)
