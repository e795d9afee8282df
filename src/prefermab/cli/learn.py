"""Commands about logs: `learn` makes a model from one, `example` writes one to try it on."""

import dataclasses
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from prefermab.cli.options import Amount, JsonFlag, Whole, option, parse_numbers
from prefermab.errors import InputError, count, number

if TYPE_CHECKING:
    from prefermab.programme.logs.learned import Learned
    from prefermab.programme.logs.reading import Log

ALL = ("*",)
"""All columns that have no other role."""


@dataclasses.dataclass(frozen=True)
class ExampleCommand:
    """Write the tables of a made-up programme to try."""

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
        from prefermab.programme.logs.example import write_example

        replaced = write_example(self.out, self.people, self.weeks, self.seed)
        was = ", replacing what was there" if replaced else ""
        print(f"wrote {self.out / 'people.csv'} and {self.out / 'log.csv'}{was}")


@dataclasses.dataclass(frozen=True)
class LearnCommand:
    """Learn a model from a log of past actions.

    A report says what the log shows: what the actions do, and what the model would gain.
    """

    # Options that hold a name or a label are texts, empty by default: a log may have the label
    # None, and tyro would read it as no value.
    log: Annotated[Positional[Path], arg(metavar="LOG")]
    """CSV or Parquet file with one row for each person and week."""
    out: Path
    """Folder to write the model to."""
    rewards: Annotated[tuple[str, ...], option("STATE=REWARD ...")]
    """The reward of each state."""
    costs: Annotated[tuple[str, ...], option("ACTION=COST ...")] = ()
    """The cost of each action, 0 for doing nothing. Default: 1 for each other action."""
    passive: Annotated[str, option("ACTION")] = ""
    """The action that means doing nothing, if --costs does not say so."""
    id: str = "id"
    """Column that says whom a row is about."""
    time: str = "time"
    """Column of whole numbers or dates that says when."""
    state: str = "state"
    """Column of the state in that week."""
    action: str = "action"
    """Column of the action in that week; it affects the next week's state."""
    features: Annotated[tuple[str, ...], option("COLUMN ...")] = ALL
    """Columns that describe people. Default: all other columns; give the option without a name to
    use none."""
    available: Annotated[str, option("COLUMN")] = ""
    """Column of true and false: who could be acted on. Default: `available` if there is one."""
    reached: Annotated[str, option("COLUMN")] = ""
    """Column of true and false: whom an action reached. Default: `reached` if there is one."""
    every: Annotated[str, option("LENGTH")] = ""
    """Length of a round, such as 7d, 2w, 1m or a number. Default: found in the log."""
    n_arms: Whole = None
    """Number of people the model is meant for. Default: people in a round of the log."""
    budget: Amount = None
    """Budget of each round. Default: what a round of the log cost."""
    rounds: Whole = None
    """Number of rounds that the gain is counted over. Default: half of the log's, at most 12."""
    report: Annotated[Path | None, option("PATH")] = None
    """Folder for the report. Default: `report` in the model's folder."""
    seed: int = 0
    """Random seed; the same seed gives the same model."""
    steps: int = 6000
    """Steps of the training; fewer give a first look sooner."""
    json: JsonFlag = False

    def run(self) -> None:
        """Reads, fits, trains, compares; then writes the model and the report."""
        from prefermab.files import use_compilation_cache
        from prefermab.programme.logs.learned import as_data, first_page
        from prefermab.programme.logs.shapes import cautions
        from prefermab.storage import save

        use_compilation_cache()
        folder = self.report or self.out / "report"
        try:
            log = checked_log(self, folder)
            for caution in cautions(log):
                print(f"prefermab: warning: {caution.sentence}", file=sys.stderr)
            learned = learned_from(log, self)
        except KeyboardInterrupt:
            print("prefermab: nothing was written.", file=sys.stderr)
            raise
        replaced = (self.out / "config.json").exists()
        save(learned.model, self.out)
        write_report(learned, folder)
        if self.json:
            facts = {"model": str(self.out), "report": str(folder), **as_data(learned)}
            print(json.dumps(facts, indent=2))
            return
        print("\n\n".join(part.replace("**", "") for part in first_page(learned)) + "\n")
        was = " (replaced the model that was there)" if replaced else ""
        print(f"The model is in {self.out}{was}, the report in {folder / 'index.html'}.")


def checked_log(options: LearnCommand, folder: Path) -> "Log":
    """The log, after all checks of what was typed."""
    from prefermab.programme.logs.reading import read_log
    from prefermab.programme.tables import read_table, source_of
    from prefermab.storage import check_place

    log = read_log(
        read_table(options.log),
        options.id,
        options.time,
        options.state,
        options.action,
        None if options.features == ALL else options.features,
        _by_name(options.costs, "--costs"),
        _by_name(options.rewards, "--rewards"),
        options.passive or None,
        where=source_of(options.log),
        available=options.available or None,
        reached=options.reached or None,
        every=options.every or None,
    )
    _check_budget(log, options.budget)
    for place in (options.out, folder):
        if place.is_file():
            raise InputError(f"cannot write to {place}: it is a file, and a folder was expected.")
    check_place(options.out)
    return log


def _by_name(pairs: tuple[str, ...], option: str) -> dict[str, float] | None:
    for pair in pairs:
        if re.search("=[^=,]*,", pair):
            raise InputError(
                f"{option} takes name=number with spaces between them, such as call=1 visit=4, not "
                f"'{pair}'."
            )
    return parse_numbers(pairs, option) or None


def _check_budget(log: "Log", budget: float | None) -> None:
    """Raises an error if the budget does not pay for any action."""
    costs, actions = log.meaning.costs[1:], log.meaning.actions[1:]
    least = costs.argmin()
    what = "the budget" if budget is not None else "what a round of the log cost"
    may = log.spent if budget is None else number(budget, "budget")
    if may < costs[least]:
        raise InputError(
            f"{what}, {may:g}, is below the cost of the cheapest action, '{actions[least]}' at "
            f"{costs[least]:g}: nothing can be decided; give a larger --budget."
        )


def learned_from(log: "Log", options: LearnCommand) -> "Learned":
    """The fit, the model that was trained on it, and what the log shows of both."""
    from prefermab.cli.terminal import progress
    from prefermab.programme.logs.estimates import estimates
    from prefermab.programme.logs.fitting import fit_log
    from prefermab.programme.logs.groups import whom_it_helps
    from prefermab.programme.logs.heldout import hold_out
    from prefermab.programme.logs.learned import Learned, card
    from prefermab.programme.logs.logged import Logged
    from prefermab.programme.logs.verdict import find, usual_rounds
    from prefermab.training import pretrain

    fit = fit_log(log, seed=options.seed)
    domain = Logged(log, fit, options.seed)
    held_out = hold_out(log, seed=options.seed)
    rounds = usual_rounds(log) if options.rounds is None else count(options.rounds, "rounds")
    with progress() as report:
        model = pretrain(
            domain, options.n_arms, options.budget, "exact", options.seed,
            progress=report, steps=options.steps,
        )  # fmt: skip
        findings = find(log, fit, model.budget / model.n_arms, rounds, options.seed, report)
    transitions, effects = estimates(log, fit)
    groups = whom_it_helps(log, fit)
    learned = Learned(log, fit, model, transitions, effects, groups, held_out, findings)
    return dataclasses.replace(learned, model=dataclasses.replace(model, card=card(learned)))


def write_report(learned: "Learned", folder: Path) -> None:
    """One page that opens from disk, the same in Markdown, and all figures as JSON."""
    from prefermab.pages import write as write_pages
    from prefermab.programme.logs.learned import as_data
    from prefermab.programme.logs.report import blocks_of

    data = json.dumps(as_data(learned), indent=1)
    title = f"Learned from {learned.log.where}"
    write_pages(folder, title, blocks_of(learned), {"learned.json": data})
