"""Verbs for a programme that goes on, round by round, in a file of its own."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from prefermab.verbs.options import Flag, Json, shown
from prefermab.verbs.programmes import RuleOptions

File = Annotated[
    Positional[str], arg(metavar="FILE", help="The programme's file, such as calls.db.")
]
Table = Annotated[Positional[Path], arg(metavar="TABLE")]
Round = Annotated[
    int | None,
    shown("N", "The round that is meant, so that the same command may be run twice."),
]


@dataclasses.dataclass(frozen=True)
class Begin:
    """Begin a programme in a new file, or say where the model of one is now."""

    file: File
    model: Annotated[str, arg(metavar="MODEL")]
    """A model that ships, or a model's folder; later commands find it by themselves."""
    change_model: Flag = False
    """Go on with another model than the one that has run the programme so far."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.programme import begin

        begin(self)


@dataclasses.dataclass(frozen=True)
class Join:
    """Take people in."""

    file: File
    people: Table
    """CSV or Parquet: id, the model's features, state if known, and any column to be kept."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.programme import join

        join(self)


@dataclasses.dataclass(frozen=True)
class Leave:
    """Let people go; they may join again."""

    file: File
    ids: Annotated[tuple[str, ...], shown("ID ...")]
    """Who leaves."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.programme import leave

        leave(self)


@dataclasses.dataclass(frozen=True)
class Observe:
    """Note the states that were seen in this round."""

    file: File
    seen: Table
    """CSV or Parquet: id and state; other columns replace what was known."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.programme import observe

        observe(self)


@dataclasses.dataclass(frozen=True)
class Plan:
    """This round's list for everyone who is in: who gets what, and why."""

    file: File
    budget: float
    """What may be spent in this round."""
    out: Path
    """Where the list goes (.csv or .parquet)."""
    waiting: int = 20
    """How many are named to step in."""
    again: Flag = False
    """Put a new plan in the place of one that was made for this round."""
    round: Round = None
    rules: Annotated[RuleOptions, arg(name="")] = dataclasses.field(default_factory=RuleOptions)
    """Rules that the plan must keep."""
    json: Json = False

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.programme import plan

        plan(self)


@dataclasses.dataclass(frozen=True)
class Record:
    """Note what was done in this round, and close it: the next one is on."""

    file: File
    done: Annotated[Positional[Path | None], shown("[TABLE]")] = None
    """CSV or Parquet: id and action of all who were acted on, as planned if left out; `reached`, if
    there is such a column, is false where an action was tried and reached nobody."""
    round: Round = None
    correct: Annotated[int | None, shown("ROUND")] = None
    """A round that was recorded wrongly: what the table says takes the place of it."""
    over_budget: Flag = False
    """What was done cost more than the budget, and that is so."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.programme import record

        record(self)


@dataclasses.dataclass(frozen=True)
class Status:
    """The round that is on, who is in, and what past rounds cost."""

    file: File
    json: Json = False

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.programme import status

        status(self)


@dataclasses.dataclass(frozen=True)
class Log:
    """Write the programme as a log, to learn the next model from."""

    file: File
    out: Path
    """Where the log goes (.csv or .parquet)."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.programme import log

        log(self)


@dataclasses.dataclass(frozen=True)
class Programme:
    """A programme that goes on round by round, kept in one file."""

    action: Annotated[Begin | Join | Leave | Observe | Plan | Record | Status | Log, arg(name="")]
    """What to do."""

    def run(self) -> None:
        """Runs the verb."""
        self.action.run()
