"""The commands of `programme`: participants, plans and records, round by round, in one file."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg, subcommand

from prefermab.cli.options import (
    Explore,
    Flag,
    JsonFlag,
    KeyFile,
    LotSeed,
    Names,
    RequiredAmount,
    RuleFields,
    TableFile,
    hide_ids,
    no_rules,
    option,
    typed_pseudonyms,
)
from prefermab.cli.status import (
    ProgrammeFile,
    StatusCommand,
    count_unseen,
    deviations_text,
    old_states,
    open_programme,
    parse_id,
    planned_rounds,
    print_skipped,
    programme_key,
    read_programme_table,
)
from prefermab.errors import InputError

Why = Annotated[str | None, option("TEXT", "The reason, for the audit log.")]
RoundNumber = Annotated[
    int | None,
    option("N", "Number of the current round. With it, running the same command twice is safe."),
]


@dataclasses.dataclass(frozen=True)
class BeginCommand:
    """Start a programme in a new file, or set its model and last round."""

    file: ProgrammeFile
    model: Annotated[str, arg(metavar="MODEL")]
    """Name of a model in the package, or folder of a model; later commands use it."""
    change_model: Flag = False
    """Replace the programme's model from this round on."""
    last_round: Annotated[int | None, option("N")] = None
    """Number of the last round of the programme, which plans then consider. 0: no known end."""
    why: Why = None

    def run(self) -> None:
        """Starts or continues a programme, and stores where its model is."""
        from prefermab.models.loading import load
        from prefermab.programme.store import Programme

        more = {"change_model": self.change_model, "why": self.why}
        with Programme(self.file, load(self.model), **more) as programme:
            programme.keep_place(self.model)
            if self.last_round is not None:
                programme.last_round = self.last_round or None
            last = "" if programme.last_round is None else f" of {programme.last_round}"
            shown = programme.database.shown
            print(f"{shown}: current round {programme.round}{last}, model {self.model}")


@dataclasses.dataclass(frozen=True)
class JoinCommand:
    """Add people."""

    file: ProgrammeFile
    people: TableFile
    """Table with id, the model's features, the state if known, and other columns to keep.
    It is a text file, Excel, Parquet or a database."""
    pseudonymise: KeyFile = None
    keep_text: Names = ()
    """With --pseudonymise: columns of free text to store. Default: none is stored."""
    why: Why = None

    def run(self) -> None:
        """Adds the people of a table."""
        from prefermab.programme.tables.table import format_people, source_of

        with open_programme(self.file) as programme:
            table = read_programme_table(programme, self.people, self.pseudonymise, self.keep_text)
            joined = programme.join(table, why=self.why, where=source_of(self.people))
            print(f"{format_people(joined)} joined; {programme.roster().height:,} take part")


@dataclasses.dataclass(frozen=True)
class LeaveCommand:
    """Remove people; they may join again."""

    file: ProgrammeFile
    ids: Annotated[tuple[str, ...], option("ID ...")]
    """Ids of the people who leave."""
    pseudonymise: KeyFile = None
    why: Why = None

    def run(self) -> None:
        """Removes people by their ids."""
        from prefermab.programme.tables.table import format_people

        with open_programme(self.file) as programme:
            key = programme_key(programme, self.pseudonymise)
            ids: list[str] | list[int] = list(self.ids)
            if key is not None:
                ids = typed_pseudonyms(self.ids, key)
            elif programme.ids != "text":
                ids = [parse_id(one) for one in self.ids]
            left = programme.leave(ids, why=self.why)
            print(f"{format_people(left)} left; {programme.roster().height:,} take part")


@dataclasses.dataclass(frozen=True)
class ObserveCommand:
    """Store the states that were observed in this round."""

    file: ProgrammeFile
    seen: TableFile
    """Table with id and state; other columns replace what was stored before."""
    skip_unknown: Flag = False
    """Skip people who do not take part; without this option they are an error."""
    pseudonymise: KeyFile = None
    keep_text: Names = ()
    """With --pseudonymise: columns of free text to store. Default: none is stored."""
    why: Why = None

    def run(self) -> None:
        """Stores states; ignores columns that the programme itself counts."""
        from prefermab.programme.planning.roster import SINCE_ACTION, SINCE_SEEN
        from prefermab.programme.tables.naming import match_names
        from prefermab.programme.tables.table import format_people, source_of

        with open_programme(self.file) as programme:
            table = read_programme_table(programme, self.seen, self.pseudonymise, self.keep_text)
            where = source_of(self.seen)
            ignored = match_names(table.columns, (SINCE_ACTION, SINCE_SEEN), where).values()
            more = {"skip_unknown": self.skip_unknown, "why": self.why, "where": where}
            seen = programme.observe(table.drop(ignored), **more)
            for name in ignored:
                print(f"the column '{name}' is ignored: the programme itself counts it")
            roster = programme.roster()
        unseen = count_unseen(roster)
        print_skipped(table, roster, where)
        print(
            f"{seen:,} states stored; {unseen:,} of {format_people(roster.height)} not observed in "
            "this round"
        )


@dataclasses.dataclass(frozen=True)
class PlanRoundCommand:
    """Choose whom to act on in this round, among all participants."""

    file: ProgrammeFile
    budget: RequiredAmount
    """Budget of this round."""
    out: Path
    """File to write the list to (.csv, .xlsx or .parquet)."""
    waiting: int = 20
    """Length of the waiting list."""
    pseudonymise: KeyFile = None
    explore: Explore = 0.0
    seed: LotSeed = None
    again: Flag = False
    """Replace the existing plan of this round."""
    why: Why = None
    round: RoundNumber = None
    rules: RuleFields = dataclasses.field(default_factory=no_rules)
    """Rules that the plan must follow."""
    json: JsonFlag = False

    def run(self) -> None:
        """Plans the current round, writes the list and prints its summary."""
        from prefermab.cli.plan import print_list, warn_of_unused
        from prefermab.common.files import use_compilation_cache
        from prefermab.models.model import Model
        from prefermab.programme.planning.printed import write_list
        from prefermab.programme.planning.roster import SINCE_SEEN
        from prefermab.programme.tables.table import check_table_path, format_people

        check_table_path(self.out)
        use_compilation_cache()
        with open_programme(self.file) as programme:
            rules, more = self.rules.rules(), {"explore": self.explore, "seed": self.seed}
            if self.pseudonymise is not None or rules.exclude_ids or rules.lock_ids:
                key = programme_key(programme, self.pseudonymise)
                rules = rules if key is None else hide_ids(rules, key)
            made = programme.plan(
                self.budget, rules, waiting=self.waiting, round=self.round, again=self.again,
                why=self.why, **more,
            )  # fmt: skip
            assert isinstance(programme.model, Model)
            warn_of_unused(programme.model, rules, made.inputs.drop(SINCE_SEEN).columns)
        write_list(made.frame, made.facts, self.out)
        old = old_states(made.inputs)
        if self.json:
            facts = {"round": made.round, "attempt": made.attempt, **made.facts, **old}
            print(json.dumps(facts, indent=2))
            return
        print_list(made.frame)
        print(f"\nround {made.round}: {made.summary}")
        if old["states_from_earlier"]:
            rounds = "1 round" if old["oldest_state"] == 1 else f"{old['oldest_state']} rounds"
            print(
                f"{format_people(old['states_from_earlier'])} planned with a state of an earlier "
                f"round, the oldest from {rounds} ago"
            )
        print(f"written to {self.out}")


@dataclasses.dataclass(frozen=True)
class RecordCommand:
    """Store the actions that were done in this round, and start the next round."""

    file: ProgrammeFile
    done: Annotated[Positional[str | None], option("[TABLE]")] = None
    """Table with id and action of everyone who was acted on. Default: as planned.
    Optional column `reached`: false if the action was tried, but did not reach the person.
    Optional column `why`: the reason why the plan was not followed."""
    round: RoundNumber = None
    correct: Annotated[int | None, option("ROUND")] = None
    """Number of a past round whose record is wrong: replace the record by the table."""
    partial: Flag = False
    """Correct only the people in the table; all others stay as recorded."""
    yes: Flag = False
    """Accept a correction without rows for people who were recorded as acted on."""
    over_budget: Flag = False
    """Accept a record that exceeds the budget."""
    pseudonymise: KeyFile = None
    why: Why = None

    def run(self) -> None:
        """Stores what was done, or corrects what was stored."""
        import polars as pl

        from prefermab.programme.tables.table import format_number, format_people, source_of

        if self.correct is not None and self.round not in (None, self.correct):
            raise InputError(f"--round {self.round} and --correct {self.correct} differ.")
        with open_programme(self.file) as programme:
            table, where = None, "record"
            if self.done is not None:
                table = read_programme_table(programme, self.done, self.pseudonymise, None)
                where = source_of(self.done)
            recorded = programme.record(
                table,
                round=self.round if self.correct is None else self.correct,
                correct=self.correct is not None,
                partial=self.partial,
                yes=self.yes,
                over_budget=self.over_budget,
                why=self.why,
                where=where,
            )
            rounds, now = planned_rounds(programme), programme.round
            deviations, passive = programme.deviations(recorded), programme.model.action_names[0]
        row = rounds.row(by_predicate=pl.col("round") == recorded, named=True)
        not_all = row["reached"] < row["acted_on"]
        reached = f" ({row['reached']:,} of them reached)" if not_all else ""
        print(
            f"round {recorded}: {format_people(row['acted_on'])} acted on{reached}, "
            f"{format_number(row['spent'])} spent of {format_number(row['budget'])}; "
            f"current round: {now}"
        )
        if deviations.height:
            print(deviations_text(deviations, passive))


@dataclasses.dataclass(frozen=True)
class LogCommand:
    """Write the programme as a log, from which `learn` can make the next model."""

    file: ProgrammeFile
    out: Path
    """File to write the log to (.csv, .parquet or .xlsx)."""

    def run(self) -> None:
        """Writes the log."""
        from prefermab.programme.tables.table import check_table_path, write_table

        check_table_path(self.out)
        with open_programme(self.file) as programme:
            log = programme.history().log
        write_table(log, self.out)
        print(f"{log.height:,} rows written to {self.out}")


@dataclasses.dataclass(frozen=True)
class ProgrammeCommand:
    """Run a programme round after round.

    Participants, plans and records are kept in one file.
    """

    action: Annotated[
        Annotated[BeginCommand, subcommand("begin")]
        | Annotated[JoinCommand, subcommand("join")]
        | Annotated[LeaveCommand, subcommand("leave")]
        | Annotated[ObserveCommand, subcommand("observe")]
        | Annotated[PlanRoundCommand, subcommand("plan")]
        | Annotated[RecordCommand, subcommand("record")]
        | Annotated[StatusCommand, subcommand("status")]
        | Annotated[LogCommand, subcommand("log")],
        arg(name=""),
    ]
    """What to do."""

    def run(self) -> None:
        """Runs the command within `programme`."""
        self.action.run()
