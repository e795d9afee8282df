"""Commands for a table of people: `plan` makes this round's list, `what-if` compares budgets."""

import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from prefermab.cli.options import (
    Explore,
    JsonFlag,
    KeyFile,
    LotSeed,
    ModelName,
    Names,
    PlotFile,
    RequiredAmount,
    RoundsLeft,
    RuleFields,
    Whole,
    hide_ids,
    hide_people,
    load_key,
    no_rules,
)
from prefermab.errors import InputError, brief, check_exact, list_names, visible

if TYPE_CHECKING:
    import polars as pl

    from prefermab.models.model import Model
    from prefermab.programme.planning.rules import Rules

MOST_BUDGETS, MOST_COLUMNS_CHECKED = 1000, 1000
NO_CONTACT = re.compile(
    r"opt(ed)?.?out|do.?not|dont|dnc|consent|unsubscri|withdr|refus|exclu", re.IGNORECASE
)
"""Names of columns that may say that a person does not want to be contacted."""


@dataclasses.dataclass(frozen=True)
class PlanCommand:
    """Choose whom to act on in this round, from a table.

    The list says who gets which action and why, and who is on the waiting list.
    """

    model: ModelName
    arms: Annotated[str, arg(metavar="TABLE")]
    """Table of people: a text file, Excel, Parquet or database; or a folder of Parquet files."""
    budget: RequiredAmount
    """Budget of this round."""
    out: Path
    """File to write the list to (.csv, .xlsx or .parquet); a new folder if --arms is a folder."""
    waiting: int = 20
    """Length of the waiting list."""
    rounds_left: RoundsLeft = None
    explore: Explore = 0.0
    seed: LotSeed = None
    engine: str = "local"
    """For a folder: local, or ray to use a Ray cluster."""
    workers: Whole = None
    """With --engine ray: number of cores to use. Default: all."""
    reasons: bool = True
    """For a folder: give a reason for each person. Without reasons, planning is faster."""
    pseudonymise: KeyFile = None
    keep_text: Names = ()
    """With --pseudonymise: columns of free text to keep in the list. Default: none."""
    rules: RuleFields = dataclasses.field(default_factory=no_rules)
    """Rules that the plan must follow."""
    json: JsonFlag = False

    def run(self) -> None:
        """Writes the list and prints its summary."""
        from prefermab.common.files import use_compilation_cache

        use_compilation_cache()
        if Path(self.arms).is_dir():
            self.plan_folder()
        else:
            self.plan_table()

    def plan_table(self) -> None:
        """Plans for one table."""
        from prefermab.models.loading import load
        from prefermab.programme.planning.plan import plan
        from prefermab.programme.planning.printed import write_list
        from prefermab.programme.planning.rules.limits import unused_columns
        from prefermab.programme.tables.address import parse_address
        from prefermab.programme.tables.table import check_table_path, read_table, source_of

        if (self.engine, self.workers) != ("local", None) or not self.reasons:
            raise InputError(
                f"{self.arms}: --engine, --workers and --no-reasons are for a folder of Parquet "
                "files, but this is not a folder."
            )
        check_table_path(self.out)
        if self.out.resolve() == parse_address(self.arms).path.resolve():
            raise InputError(f"--out {self.out} is the table of people itself: give another name.")
        model, rules = load(self.model), self.rules.rules()
        table, where = read_table(self.arms), source_of(self.arms)
        if self.pseudonymise is not None:
            key = load_key(self.pseudonymise)
            unused = unused_columns(model, rules, table.columns)
            table = hide_people(table, where, key, unused, self.keep_text)
            rules = hide_ids(rules, key)
        made = plan(
            model, table, self.budget, rules, self.waiting, where, self.explore, self.seed,
            self.rounds_left,
        )  # fmt: skip
        write_list(made.frame, dataclasses.asdict(made.summary), self.out)
        warn_of_unused(model, rules, table.columns)
        if self.json:
            print(made.as_json())
            return
        print_list(made.frame)
        print(f"\n{made.summary}\nwritten to {self.out}")

    def plan_folder(self) -> None:
        """Plans for a folder of tables, into another folder."""
        if self.pseudonymise is not None:
            raise InputError(f"{self.arms}: --pseudonymise needs a table, but this is a folder.")
        if self.explore or self.seed is not None:
            raise InputError(
                f"{self.arms}: --explore and --seed need a table, but this is a folder."
            )
        import polars as pl

        from prefermab.cli.terminal import progress
        from prefermab.models.loading import load
        from prefermab.programme.bulk.chunks import count_rows, parquet_files
        from prefermab.programme.bulk.driver import plan_folder

        rules = self.rules.rules()
        first = parquet_files(Path(self.arms))[0]
        count_rows(first)  # raises an error if the file cannot be read
        columns = list(pl.read_parquet_schema(first))
        warn_of_unused(load(self.model), rules, columns)
        target = self.out / "summary.json"
        existed = target.exists()
        try:
            with progress() as report:
                summary = plan_folder(
                    self.model, Path(self.arms), self.out, self.budget, rules, waiting=self.waiting,
                    engine=self.engine, workers=self.workers, reasons=self.reasons,
                    rounds_left=self.rounds_left, progress=report,
                )  # fmt: skip
        except KeyboardInterrupt:
            print(
                f"Finished parts are kept in {self.out}: run the same command again to continue.",
                file=sys.stderr,
            )
            raise
        if self.json:
            print(target.read_text(), end="")
        else:
            result = f"{self.out} holds this plan already" if existed else f"written to {self.out}"
            print(f"{summary}\n{result}")


@dataclasses.dataclass(frozen=True)
class WhatIfCommand:
    """Compare what different budgets would achieve."""

    model: ModelName
    arms: Annotated[str, arg(metavar="TABLE")]
    """Table of people: a text file, Excel, Parquet or database."""
    budgets: Annotated[str, arg(metavar="AMOUNTS")]
    """Budgets to compare: first:last:step, such as 100:2000:100, or a list such as 100,200."""
    rounds_left: RoundsLeft = None
    rules: RuleFields = dataclasses.field(default_factory=no_rules)
    """Rules that the plan must follow."""
    plot: PlotFile = None
    json: JsonFlag = False

    def run(self) -> None:
        """Prints the result of each budget, and draws a figure on request."""
        from prefermab.common import plots
        from prefermab.common.files import use_compilation_cache
        from prefermab.models.loading import load
        from prefermab.programme.planning.plan import what_if
        from prefermab.programme.tables.table import read_table, source_of

        use_compilation_cache()
        if self.plot is not None:
            plots.check_target(self.plot)
        found = what_if(
            load(self.model), read_table(self.arms), parse_budgets(self.budgets),
            self.rules.rules(), source_of(self.arms), self.rounds_left,
        )  # fmt: skip
        if self.json:
            print(json.dumps(found.to_dicts(), indent=2))
        else:
            print_budgets(found)
        if self.plot is not None:
            plots.save_figure(plots.budgets(found), self.plot)


def print_budgets(found: "pl.DataFrame") -> None:
    """Prints the result of `what_if`, one row for each budget."""
    from rich.console import Console

    from prefermab.cli.terminal import plain_table
    from prefermab.programme.tables.table import format_number

    table = plain_table("budget", "spent", "chosen", "price", "expected gain")
    for row in found.iter_rows(named=True):
        gain = "" if row["gain"] is None else format_number(row["gain"])
        table.add_row(
            format_number(row["budget"]), format_number(row["spent"]), f"{row['chosen']:,}",
            f"{row['price']:.3g}", gain,
        )  # fmt: skip
    Console().print(table)
    print(
        "Expected gain: additional reward, now and later, compared with no action in this round. "
        "Later rounds are assumed to have the model's usual budget."
    )


def print_list(frame: "pl.DataFrame", rows: int = 10) -> None:
    """Prints the first rows of the list."""
    import polars as pl
    from rich.console import Console

    from prefermab.cli.terminal import plain, plain_table

    headings = ("rank", "id", "action", "price", "reason")
    table = plain_table(*headings, left=headings)
    for column in table.columns:
        column.overflow = "fold"
    chosen = frame.filter(pl.col("list") == "chosen").sort("rank")
    for row in chosen.head(rows).iter_rows(named=True):
        price = "" if row["price"] is None else f"{row['price']:.3f}"
        cells = (str(row["rank"]), str(row["id"]), row["action"], price, row["reason"])
        table.add_row(*map(plain, cells))
    Console().print(table)
    if chosen.height > rows:
        print(f"and {chosen.height - rows:,} more")


def warn_of_unused(model: "Model", rules: "Rules", columns: Sequence[str]) -> None:
    """Prints the columns that are not used. A name that suggests a wish not to be contacted gets a
    line with advice."""
    from prefermab.programme.planning.rules.limits import unused_columns

    unused = unused_columns(model, rules, columns)
    for name in filter(NO_CONTACT.search, unused[:MOST_COLUMNS_CHECKED]):
        shown = visible(brief(name))
        print(
            f"prefermab: the column '{shown}' is not used; if it says who must not be acted on, "
            f"add --exclude {shown}.",
            file=sys.stderr,
        )
    others = [name for name in unused if not NO_CONTACT.search(name)]
    if others:
        print(f"prefermab: columns not used: {visible(list_names(others))}.", file=sys.stderr)


def parse_budgets(text: str) -> list[float]:
    """Budgets from first:last:step, or from numbers separated by commas.

    >>> from prefermab.cli.plan import parse_budgets
    >>> parse_budgets("100:300:100"), parse_budgets("5,7.5")
    ([100.0, 200.0, 300.0], [5.0, 7.5])
    """
    parts = text.split(":") if ":" in text else text.split(",")
    try:
        given = [float(part) for part in parts]
    except ValueError:
        given = []
    for part, value in zip(parts, given, strict=False):
        check_exact(part, value, "--budgets")
    if ":" not in text and given:
        return given
    if len(given) != 3 or not given[0] <= given[1] or not given[2] > 0:
        raise InputError(
            f"--budgets takes first:last:step, such as 100:2000:100, or 100,200, not '{text}'."
        )
    first, last, step = given
    n_steps = (last - first) / step
    if not n_steps < MOST_BUDGETS:
        raise InputError(f"--budgets {text}: expected at most {MOST_BUDGETS} budgets.")
    return [first + step * i for i in range(int(n_steps + 1e-9) + 1)]
