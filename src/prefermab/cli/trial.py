"""The commands of `trial`: power, randomisation, rehearsal and analysis."""

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
    RuleFields,
    no_rules,
    option,
    parse_named_numbers,
)
from prefermab.errors import InputError

if TYPE_CHECKING:
    from prefermab.domains.base import Domain
    from prefermab.models.model import Model
    from prefermab.programme.evidence.designs import Design
    from prefermab.programme.evidence.simulated_trials import TrialProgramme

DesignName = Annotated[
    str,
    option(
        "NAME",
        "individual, stratified, cluster, switchback or stepped-wedge. Default: individual.",
    ),
]
TrialFolder = Annotated[Positional[Path], arg(metavar="FOLDER")]
RewardsOption = Annotated[
    tuple[str, ...], option("STATE=REWARD ...", "The reward of each state, as for `learn`.")
]
Control = Annotated[
    str,
    option(
        "NAME", "Control arm: none (no actions) or random (random, same budget). Default: none."
    ),
]


@dataclasses.dataclass(frozen=True)
class DesignOptions:
    """The design of the trial."""

    design: DesignName = "individual"
    rounds: int = 12
    """Number of rounds, such as weeks."""
    block: int = 4
    """For a switchback: number of rounds before the arm may change."""
    washout: int = 1
    """For a switchback or stepped wedge: number of rounds after a change that do not count."""

    def make(self) -> "Design":
        """The design as the package takes it."""
        from prefermab.programme.evidence.designs import Design

        return Design(self.design.replace("-", " "), self.rounds, self.block, self.washout)


@dataclasses.dataclass(frozen=True)
class LogOptions:
    """The log from which simulated people are drawn."""

    log: Annotated[str | None, option("LOG")] = None
    """Log from which the model was learned; simulated people are drawn from it.
    Default: the model's domain, if it is one of the package."""
    time: str = "time"
    """Column of the log with the time of a row."""
    rewards: RewardsOption = ()
    passive: Annotated[str, option("ACTION")] = "none"
    """Action that means doing nothing. Default: none."""

    def domain(self) -> "Domain | None":
        """The domain of the log; None for the model's own domain."""
        if self.log is None:
            return None
        import warnings

        from prefermab.programme.logs.domain import from_log
        from prefermab.programme.logs.log_warnings import LogWarning

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LogWarning)
            return from_log(
                self.log, time=self.time, passive=self.passive,
                rewards=parse_named_numbers(self.rewards, "--rewards"),
            )  # fmt: skip


ShareOption = Annotated[
    float | None,
    option(
        "SHARE",
        "Budget of a round: the share of people who can get their cheapest action, such as 0.1. "
        "It is above 1 if the budget pays for dearer actions for all. Default: the model's usual "
        "budget.",
    ),
]


@dataclasses.dataclass(frozen=True)
class TriedOptions:
    """The programme that the trial tests."""

    share: ShareOption = None
    control: Control = "none"
    table: Annotated[str | None, option("TABLE")] = None
    """Table of people as for `plan`, with the columns that rules and costs need.
    Simulated people get group, worker, exclusion and costs of the person with the nearest
    features."""
    rules: RuleFields = dataclasses.field(default_factory=no_rules)
    """Rules that the plans of the trial follow."""

    def programme(self, model: "Model") -> "TrialProgramme":
        """The programme as the package takes it."""
        from prefermab.programme.evidence.simulated_trials import TrialProgramme
        from prefermab.programme.tables.table import read_table

        rules = self.rules.rules()
        return TrialProgramme(
            usual_share(model) if self.share is None else self.share, self.control, rules.cooldown,
            dataclasses.replace(rules, cooldown=0),
            None if self.table is None else read_table(self.table),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PowerCommand:
    """Compute how many people or rounds a trial needs, by simulating it."""

    model: ModelName
    gain: Amount = None
    """Gain per person and round that the trial has to show. Default: the simulated gain."""
    power: float = 0.8
    """Probability with which the trial has to show a gain of this size."""
    people: int = 200
    """For a switchback: number of people. For other designs: first number that is tried."""
    cluster_size: int = 30
    """For a cluster design or stepped wedge: number of people in a cluster."""
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
        """Searches for the size, and prints it."""
        from prefermab.cli.terminal import progress
        from prefermab.common.files import use_compilation_cache
        from prefermab.models.loading import load
        from prefermab.programme.evidence.power import needed

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
    """Assign people to the arms of a trial at random, and write its protocol."""

    people: Annotated[Positional[str], arg(metavar="TABLE")]
    """Table of people with id and the columns of the other options."""
    out: Annotated[Path, arg(metavar="FOLDER")]
    """New folder for the protocol, the assignment and the tables of both arms."""
    balance: Names = ()
    """Columns whose values should be alike in both arms; for trials of people or of clusters."""
    groups: Names = ()
    """Columns of groups for which the analysis shows effects separately."""
    cluster: ColumnName = None
    """Column of the clusters."""
    control: Control = "none"
    rewards: RewardsOption = ()
    seed: Annotated[int | None, option("N", "Random seed. Default: a new one.")] = None
    design: Annotated[DesignOptions, arg(name="")] = dataclasses.field(
        default_factory=DesignOptions
    )
    """The design of the trial."""
    json: JsonFlag = False

    def run(self) -> None:
        """Draws the assignment and writes the folder."""
        from prefermab.programme.evidence.protocol import PROTOCOL, randomise
        from prefermab.programme.tables.table import read_table, source_of, write_table

        if (self.out / PROTOCOL).exists():
            raise InputError(f"{self.out} holds a protocol already: a trial is randomised once.")
        table = read_table(self.people)
        made = randomise(
            table, self.design.make(), balance=self.balance, groups=self.groups,
            cluster=self.cluster, control=self.control, seed=self.seed,
            rewards=parse_named_numbers(self.rewards, "--rewards"), where=source_of(self.people),
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
    """Simulate the trial with made-up people, to try the analysis before the trial begins."""

    folder: TrialFolder
    """Folder of the trial."""
    model: Annotated[str, arg(metavar="MODEL")]
    """Model that the trial tests."""
    out: Path
    """File to write the made-up log to (.csv, .parquet or .xlsx)."""
    seed: int = 0
    """Random seed."""
    log: Annotated[LogOptions, arg(name="")] = dataclasses.field(default_factory=LogOptions)
    """Where people come from."""
    tried: Annotated[TriedOptions, arg(name="")] = dataclasses.field(default_factory=TriedOptions)
    """What is tried."""

    def run(self) -> None:
        """Simulates the trial once and writes the log."""
        from prefermab.common.files import use_compilation_cache
        from prefermab.models.loading import load
        from prefermab.programme.evidence.protocol import read_protocol
        from prefermab.programme.evidence.trial_logs import rehearse
        from prefermab.programme.tables.table import check_table_path, write_table

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
    """Model that the trial tested, to compute people's indices.
    Default: the column `index` of the logs, if there is one."""
    rewards: RewardsOption = ()
    passive: Annotated[str, option("ACTION")] = "none"
    """Action that means doing nothing. Default: none."""
    json: JsonFlag = False

    def run(self) -> None:
        """Analyses the trial and writes the report."""
        import polars as pl

        from prefermab.models.loading import load
        from prefermab.programme.evidence.analysis import analyse
        from prefermab.programme.evidence.protocol import read_protocol
        from prefermab.programme.tables.table import read_table, source_of

        protocol = read_protocol(self.folder)
        table = pl.concat([read_table(one) for one in self.log], how="diagonal_relaxed")
        where: Any = source_of(self.log[0]) if len(self.log) == 1 else "the logs"
        found = analyse(
            protocol, table, model=None if self.model is None else load(self.model),
            rewards=parse_named_numbers(self.rewards, "--rewards"), passive=self.passive,
            where=where,
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
