"""The commands of `trial`: how large it must be, who is in which arm, a rehearsal, the analysis."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg, subcommand

from prefermab.cli.options import (
    Amount,
    ColumnName,
    JsonFlag,
    ModelName,
    Names,
    RuleOptions,
    option,
)
from prefermab.cli.options import parse_named_numbers as parse_pairs
from prefermab.errors import InputError

if TYPE_CHECKING:
    from prefermab.domains.base import Domain
    from prefermab.model import Model
    from prefermab.programme.evidence.designs import Design
    from prefermab.programme.evidence.programmes import TrialProgramme

DesignName = Annotated[
    str,
    option("NAME", "individual, stratified, cluster, switchback or stepped-wedge."),
]
TrialFolder = Annotated[Positional[Path], arg(metavar="FOLDER")]
RewardsOption = Annotated[
    tuple[str, ...], option("STATE=REWARD ...", "The reward of each state, as for `learn`.")
]
Control = Annotated[
    str, option("NAME", "What the other arm gets: none, or as many actions at random (random).")
]


@dataclasses.dataclass(frozen=True)
class DesignOptions:
    """The design of the trial."""

    design: DesignName = "individual"
    rounds: int = 12
    """Number of rounds, such as weeks."""
    block: int = 4
    """For a switchback: rounds until the arm may change."""
    washout: int = 1
    """For a switchback or stepped wedge: rounds after each change that do not count."""

    def make(self) -> "Design":
        """The design as the package takes it."""
        from prefermab.programme.evidence.designs import Design

        return Design(self.design.replace("-", " "), self.rounds, self.block, self.washout)


@dataclasses.dataclass(frozen=True)
class LogOptions:
    """The log that people of a simulation are drawn from."""

    log: Annotated[str | None, option("LOG")] = None
    """Log that the model was learned from. Default: the model's own domain, if it ships."""
    time: str = "time"
    """Column of the log that says when."""
    rewards: RewardsOption = ()
    passive: Annotated[str, option("ACTION")] = "none"
    """The action that means doing nothing."""

    def domain(self) -> "Domain | None":
        """Where people come from; None for the model's own domain."""
        if self.log is None:
            return None
        import warnings

        from prefermab.programme.logs.domain import from_log
        from prefermab.programme.logs.warnings import LogWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LogWarning)
            return from_log(
                self.log, time=self.time, passive=self.passive,
                rewards=parse_pairs(self.rewards, "--rewards"),
            )  # fmt: skip


ShareOption = Annotated[
    float | None,
    option(
        "SHARE",
        "Share of the people who can be acted on in a round; where costs differ, with their "
        "cheapest action, and above 1 if all can have a dearer one. Default: the model's usual "
        "budget.",
    ),
]


@dataclasses.dataclass(frozen=True)
class TriedOptions:
    """What is tried."""

    share: ShareOption = None
    control: Control = "none"
    table: Annotated[str | None, option("TABLE")] = None
    """Table of people as for `plan`, with the columns of the rules and of costs: simulated people
    have the group, worker, exclusion and costs of the person with the nearest features."""
    rules: Annotated[RuleOptions, arg(name="")] = dataclasses.field(default_factory=RuleOptions)
    """Rules that the plans of the trial follow."""

    def programme(self, model: "Model") -> "TrialProgramme":
        """As the package takes it."""
        from prefermab.programme.evidence.programmes import TrialProgramme
        from prefermab.programme.tables import read_table

        rules = self.rules.rules()
        return TrialProgramme(
            usual_share(model) if self.share is None else self.share, self.control, rules.cooldown,
            dataclasses.replace(rules, cooldown=0),
            None if self.table is None else read_table(self.table),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PowerCommand:
    """Say how many people or rounds a trial needs, by simulating it."""

    model: ModelName
    gain: Amount = None
    """Gain per person and round that is to be shown. Default: what the model gains in the
    simulation."""
    power: float = 0.8
    """How often a gain of this size is to be shown."""
    people: int = 200
    """For a switchback: number of people; else where the search begins."""
    cluster_size: int = 30
    """For clusters: people in each."""
    trials: int = 1000
    """Number of simulated trials."""
    seed: int = 0
    """Random seed."""
    design: Annotated[DesignOptions, arg(name="")] = dataclasses.field(
        default_factory=DesignOptions
    )
    """The design of the trial."""
    log: Annotated[LogOptions, arg(name="")] = dataclasses.field(default_factory=LogOptions)
    """Where people come from."""
    tried: Annotated[TriedOptions, arg(name="")] = dataclasses.field(default_factory=TriedOptions)
    """What is tried."""
    json: JsonFlag = False

    def run(self) -> None:
        """Searches, and prints what is needed."""
        from prefermab.cli.terminal import progress
        from prefermab.files import use_compilation_cache
        from prefermab.programme.evidence.power import needed
        from prefermab.storage import load

        use_compilation_cache()
        model = load(self.model)
        tried = self.tried.programme(model)
        with progress() as report:
            found = needed(
                model, self.design.make(), tried, domain=self.log.domain(), gain=self.gain,
                power=self.power, people=self.people, cluster_size=self.cluster_size,
                trials=self.trials, seed=self.seed, progress=report,
            )  # fmt: skip
        print(json.dumps(dataclasses.asdict(found), indent=2) if self.json else found)


@dataclasses.dataclass(frozen=True)
class RandomiseCommand:
    """Draw the arms of a trial by lot, and fix its protocol."""

    people: Annotated[Positional[str], arg(metavar="TABLE")]
    """Table of people with id and the columns that are named."""
    out: Annotated[Path, arg(metavar="FOLDER")]
    """New folder for the protocol, the assignment and the tables of both arms."""
    balance: Names = ()
    """Columns in which the arms are to be alike, for designs of people and of clusters."""
    groups: Names = ()
    """Columns for which effects will be shown by group."""
    cluster: ColumnName = None
    """Column of the clusters."""
    control: Control = "none"
    rewards: RewardsOption = ()
    seed: Annotated[int | None, option("N", "Seed of the lots. Default: a new one.")] = None
    design: Annotated[DesignOptions, arg(name="")] = dataclasses.field(
        default_factory=DesignOptions
    )
    """The design of the trial."""
    json: JsonFlag = False

    def run(self) -> None:
        """Draws the lots and writes the folder."""
        from prefermab.programme.evidence.protocol import PROTOCOL, randomise
        from prefermab.programme.tables import read_table, source_of, write_table

        if (self.out / PROTOCOL).exists():
            raise InputError(f"{self.out} holds a protocol already: a trial is randomised once.")
        table = read_table(self.people)
        made = randomise(
            table, self.design.make(), balance=self.balance, groups=self.groups,
            cluster=self.cluster, control=self.control, seed=self.seed,
            rewards=parse_pairs(self.rewards, "--rewards"), where=source_of(self.people),
        )  # fmt: skip
        made.write(self.out)
        if "arm" in made.assignment.columns and "id" in made.assignment.columns:
            for arm, rows in table.with_columns(made.assignment["arm"].alias(" arm")).group_by(
                " arm"
            ):
                write_table(rows.drop(" arm"), self.out / f"{arm[0]}.csv")
        if self.json:
            print(json.dumps(made.facts, indent=2))
            return
        for row in made.facts["balance"]:
            print("  ".join(str(cell) for cell in row))
        print(f"protocol {made.facts['checksum'][:16]} written to {self.out / 'index.html'}")


@dataclasses.dataclass(frozen=True)
class RehearseCommand:
    """Play the trial with made-up people, to try the analysis before it begins."""

    folder: TrialFolder
    """Folder of the trial."""
    model: Annotated[str, arg(metavar="MODEL")]
    """The model that is tried."""
    out: Path
    """File to write the made-up log to (.csv, .parquet or .xlsx)."""
    seed: int = 0
    """Random seed."""
    log: Annotated[LogOptions, arg(name="")] = dataclasses.field(default_factory=LogOptions)
    """Where people come from."""
    tried: Annotated[TriedOptions, arg(name="")] = dataclasses.field(default_factory=TriedOptions)
    """What is tried."""

    def run(self) -> None:
        """Plays it once and writes the log."""
        from prefermab.files import use_compilation_cache
        from prefermab.programme.evidence.protocol import read_protocol
        from prefermab.programme.evidence.trial_logs import rehearse
        from prefermab.programme.tables import check_table_path, write_table
        from prefermab.storage import load

        check_table_path(self.out)
        use_compilation_cache()
        protocol, model = read_protocol(self.folder), load(self.model)
        tried = self.tried.programme(model)
        log = rehearse(protocol, model, tried, domain=self.log.domain(), seed=self.seed)
        write_table(log, self.out)
        print(f"{log.height:,} rows of made-up people written to {self.out}")


@dataclasses.dataclass(frozen=True)
class AnalyseCommand:
    """Analyse a trial as its protocol says."""

    folder: TrialFolder
    """Folder of the trial."""
    log: Annotated[tuple[str, ...], option("LOG ...")]
    """Logs of the trial, all arms: id, time, state, action, and the states after the last round."""
    out: Annotated[Path, arg(metavar="FOLDER")]
    """Folder for the report."""
    model: Annotated[str | None, option("MODEL")] = None
    """The model that was tried, for the index of everyone. Default: the column `index`, if any."""
    rewards: RewardsOption = ()
    passive: Annotated[str, option("ACTION")] = "none"
    """The action that means doing nothing."""
    json: JsonFlag = False

    def run(self) -> None:
        """Analyses the trial and writes the report."""
        import polars as pl

        from prefermab.programme.evidence.analysis import analyse
        from prefermab.programme.evidence.protocol import read_protocol
        from prefermab.programme.tables import read_table, source_of
        from prefermab.storage import load

        protocol = read_protocol(self.folder)
        table = pl.concat([read_table(one) for one in self.log], how="diagonal_relaxed")
        where: Any = source_of(self.log[0]) if len(self.log) == 1 else "the logs"
        found = analyse(
            protocol, table, model=None if self.model is None else load(self.model),
            rewards=parse_pairs(self.rewards, "--rewards"), passive=self.passive, where=where,
        )  # fmt: skip
        found.report(self.out)
        if self.json:
            print(json.dumps(found.as_data(), indent=2))
            return
        print(f"{found}\nThe report is in {self.out / 'index.html'}.")


@dataclasses.dataclass(frozen=True)
class TrialCommand:
    """Plan, randomise and analyse a trial."""

    action: Annotated[
        Annotated[PowerCommand, subcommand("power")]
        | Annotated[RandomiseCommand, subcommand("randomise")]
        | Annotated[RehearseCommand, subcommand("rehearse")]
        | Annotated[AnalyseCommand, subcommand("analyse")],
        arg(name=""),
    ]
    """What to do."""

    def run(self) -> None:
        """Runs the command within `trial`."""
        self.action.run()


def usual_share(model: "Model") -> float:
    """The share of people whom the model's usual budget reaches with their cheapest action."""
    if model.costs is None:
        raise InputError("give --share: costs differ between the people of this model.")
    return model.budget / model.n_arms / max(min(model.costs[1:]), 1e-9)
