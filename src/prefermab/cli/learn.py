"""The commands `learn`, which makes a model from a log, and `example`, which writes such a log."""

import dataclasses
import json
import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from prefermab.cli.options import Amount, JsonFlag, Whole, option, parse_named_numbers
from prefermab.errors import InputError

if TYPE_CHECKING:
    from prefermab.programme.learning.learn import LearnResult

ALL = ("*",)
"""All columns that have no other role."""


@dataclasses.dataclass(frozen=True)
class ExampleCommand:
    """Write example tables: people and a log.

    They describe a made-up programme and can be used with `learn` and `plan`.
    """

    out: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """Folder to write people.csv and log.csv to."""
    people: int = 400
    """Number of people."""
    weeks: int = 26
    """Number of weeks in the log."""
    seed: int = 0
    """Random seed; the same seed gives the same tables."""

    def run(self) -> None:
        """Writes the tables."""
        from prefermab.programme.logs.simulated import write_example

        replaced = write_example(self.out, self.people, self.weeks, self.seed)
        was = ", replacing what was there" if replaced else ""
        print(f"wrote {self.out / 'people.csv'} and {self.out / 'log.csv'}{was}")


@dataclasses.dataclass(frozen=True)
class LearnCommand:
    """Learn a model from a log of past actions.

    A report says what effect the actions have in the log, and what the model would gain.
    """

    # Options for a name or a label are strings, by default empty. With `str | None`, tyro would
    # parse the label None, which a log may have, as no value.
    log: Annotated[Positional[str], arg(metavar="LOG")]
    """Table with one row for each person and round: a text file, Excel, Parquet or database."""
    out: Path
    """Folder to write the model to."""
    rewards: Annotated[tuple[str, ...], option("STATE=REWARD ...")]
    """Reward of each state, such as engaged=1 silent=0."""
    costs: Annotated[tuple[str, ...], option("ACTION=COST ...")] = ()
    """Cost of each action, 0 for doing nothing. Default: 1 for each action but the passive one."""
    passive: Annotated[str, option("ACTION")] = ""
    """Action that means doing nothing, if --costs does not say which one costs 0."""
    id: str = "id"
    """Column of the person's id."""
    time: str = "time"
    """Column of the time of a row, as whole numbers or dates."""
    state: str = "state"
    """Column of the state in that round."""
    action: str = "action"
    """Column of the action in that round; it affects the state in the next round."""
    features: Annotated[tuple[str, ...], option("COLUMN ...")] = ALL
    """Columns of the features.
    Default: all other columns. To use none, give the option without a name."""
    available: Annotated[str, option("COLUMN")] = ""
    """Column of true and false: whether an action was possible.
    Default: `available` if there is such a column."""
    reached: Annotated[str, option("COLUMN")] = ""
    """Column of true and false: whether the action reached the person.
    Default: `reached` if there is such a column."""
    probability: Annotated[str, option("COLUMN")] = ""
    """Column of the probability with which each row got its action.
    Default: `probability` if there is such a column."""
    every: Annotated[str, option("LENGTH")] = ""
    """Length of a round, such as 7d, 2w, 1m or a number. Default: inferred from the log."""
    seen: Annotated[Literal["acted", "always", "some"] | None, option("{acted,always,some}")] = None
    """When states are seen: acted (only with an action), always, or some (in some rounds).
    Default: inferred from the log."""
    n_arms: Whole = None
    """Number of people to plan for. Default: mean number in a round of the log."""
    budget: Amount = None
    """Budget of each round. Default: mean cost of a round of the log."""
    rounds: Whole = None
    """Number of rounds over which the gain is summed. Default: half of the log's, at most 12."""
    report: Annotated[Path | None, option("PATH")] = None
    """Folder for the report. Default: `report` in the model's folder."""
    seed: int = 0
    """Random seed; the same seed gives the same model."""
    steps: int = 6000
    """Number of training steps; fewer give a rougher model sooner."""
    rounds_left: int = 0
    """For a programme that ends: the largest --rounds-left that plans will use, such as 12."""
    json: JsonFlag = False

    def run(self) -> None:
        """Learns from the log, then writes the model and the report."""
        from prefermab.common.files import use_compilation_cache
        from prefermab.models.saving import check_place

        use_compilation_cache()
        folder = self.report or self.out / "report"
        for place in (self.out, folder):
            if place.is_file():
                raise InputError(f"cannot write to {place}: expected a folder, but it is a file.")
        check_place(self.out)
        try:
            result = self.learn()
        except KeyboardInterrupt:
            print("prefermab: nothing was written.", file=sys.stderr)
            raise
        replaced = (self.out / "config.json").exists()
        result.model.save(self.out)
        result.report(folder)
        if self.json:
            facts = {"model": str(self.out), "report": str(folder), **result.as_data()}
            print(json.dumps(facts, indent=2))
            return
        print("\n\n".join(part.replace("**", "") for part in result.summary) + "\n")
        was = " (replaced the model that was there)" if replaced else ""
        print(f"The model is in {self.out}{was}, the report in {folder / 'index.html'}.")

    def learn(self) -> "LearnResult":
        """Calls `prefermab.learn` with these options; prints warnings before the training."""
        from prefermab.cli.terminal import progress
        from prefermab.programme.learning import learn
        from prefermab.programme.logs.log_warnings import LogWarning

        with warnings.catch_warnings(), progress() as report:
            warnings.simplefilter("always", LogWarning)
            warnings.showwarning = _print_warning
            return learn.learn(
                self.log,
                id=self.id,
                time=self.time,
                state=self.state,
                action=self.action,
                features=None if self.features == ALL else self.features,
                costs=_by_name(self.costs, "--costs"),
                rewards=_by_name(self.rewards, "--rewards"),
                passive=self.passive or None,
                available=self.available or None,
                reached=self.reached or None,
                probability=self.probability or None,
                every=self.every or None,
                seen=self.seen,
                n_arms=self.n_arms,
                budget=self.budget,
                rounds=self.rounds,
                steps=self.steps,
                rounds_left=self.rounds_left,
                seed=self.seed,
                progress=report,
            )


def _print_warning(message: Warning | str, *_: object) -> None:
    print(f"prefermab: warning: {message}", file=sys.stderr)


def _by_name(pairs: tuple[str, ...], option: str) -> dict[str, float] | None:
    for pair in pairs:
        if re.search("=[^=,]*,", pair):
            raise InputError(
                f"{option} takes name=number with spaces between them, such as call=1 visit=4, not "
                f"'{pair}'."
            )
    return parse_named_numbers(pairs, option) or None
