"""Verbs for a table of people: this round's list, and what other budgets would do."""

import json
import re
import sys
from collections.abc import Sequence

import polars as pl
from rich.console import Console
from rich.table import Table

from prefermab import plots
from prefermab.commands.shared import numbers, progress
from prefermab.compiled import use_compilation_cache
from prefermab.errors import InputError
from prefermab.model import Model
from prefermab.programme.bulk.chunks import parts
from prefermab.programme.bulk.driver import plan_folder
from prefermab.programme.planning.plan import plan as make_plan
from prefermab.programme.planning.plan import what_if as compare
from prefermab.programme.planning.rules import Rules, unused_columns
from prefermab.programme.tables import check_table_path, plain, read_table, source_of, write_table
from prefermab.storage import load
from prefermab.verbs import programmes as verbs

MOST_BUDGETS = 1000
LEFT_ALONE = re.compile(
    r"opt(ed)?.?out|do.?not|dont|dnc|consent|unsubscri|withdr|refus|exclu", re.IGNORECASE
)
"""Names of columns that may hold a wish not to be contacted."""


def plan(options: verbs.Plan) -> None:
    """Writes the list and prints its summary."""
    use_compilation_cache()
    if options.arms.is_dir():
        of_folder(options)
        return
    if (options.engine, options.workers) != ("local", None) or not options.reasons:
        raise InputError(
            f"{options.arms}: --engine, --workers and --no-reasons are for a folder of Parquet "
            "files, but it is none."
        )
    check_table_path(options.out)
    if options.out.resolve() == options.arms.resolve():
        raise InputError(f"--out {options.out} is the table of people itself: take another name.")
    model, rules = load(options.model), rules_of(options.rules)
    table, where = read_table(options.arms), source_of(options.arms)
    made = make_plan(model, table, options.budget, rules, options.waiting, where)
    write_table(in_order(made.frame), options.out)
    warn_of_unused(model, rules, table.columns)
    if options.json:
        print(made.as_json())
        return
    shown(made.frame)
    print(f"\n{made.summary}\nwritten to {options.out}")


def of_folder(options: verbs.Plan) -> None:
    """Writes the list of a folder of people to another folder and prints its summary."""
    rules = rules_of(options.rules)
    warn_of_unused(load(options.model), rules, list(pl.read_parquet_schema(parts(options.arms)[0])))
    target = options.out / "summary.json"
    there = target.exists()
    try:
        with progress() as report:
            made = plan_folder(
                options.model, options.arms, options.out, options.budget, rules,
                options.waiting, options.engine, options.workers, options.reasons, report,
            )  # fmt: skip
    except KeyboardInterrupt:
        print(f"What is done is kept in {options.out}: the same command goes on.", file=sys.stderr)
        raise
    if options.json:
        print(target.read_text(), end="")
    else:
        ended = f"{options.out} holds this plan already" if there else f"written to {options.out}"
        print(f"{made}\n{ended}")


def what_if(options: verbs.WhatIf) -> None:
    """Prints and draws what each budget would do."""
    use_compilation_cache()
    if options.plot is not None:
        plots.check_target(options.plot)
    model = load(options.model)
    found = compare(
        model, read_table(options.arms), budgets_of(options.budgets), rules_of(options.rules),
        source_of(options.arms),
    )  # fmt: skip
    if options.json:
        print(json.dumps(found.to_dicts(), indent=2))
    else:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in ("budget", "spent", "chosen", "price", "expected gain"):
            table.add_column(heading, justify="right")
        for row in found.iter_rows(named=True):
            gain = "" if row["gain"] is None else plain(row["gain"])
            table.add_row(
                plain(row["budget"]), plain(row["spent"]), f"{row['chosen']:,}",
                f"{row['price']:.3g}", gain,
            )  # fmt: skip
        Console().print(table)
        print(
            "Expected gain: reward, then and later, over doing nothing in this round, where later "
            "rounds have the model's usual budget."
        )
    if options.plot is not None:
        plots.save(plots.budgets(found), options.plot)


def shown(frame: pl.DataFrame, rows: int = 10) -> None:
    """The first of the list, in the terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("rank", "id", "action", "price", "reason"):
        table.add_column(heading, overflow="fold")
    chosen = frame.filter(pl.col("list") == "chosen").sort("rank")
    for row in chosen.head(rows).iter_rows(named=True):
        price = "" if row["price"] is None else f"{row['price']:.3f}"
        table.add_row(str(row["rank"]), str(row["id"]), row["action"], price, row["reason"])
    Console().print(table)
    if chosen.height > rows:
        print(f"and {chosen.height - rows:,} more")


def in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """The list as it is worked through: chosen, waiting, then all others; figures cut short."""
    short = pl.col("score", "price").round_sig_figs(4)
    return frame.sort("rank", nulls_last=True, maintain_order=True).with_columns(short)


def warn_of_unused(model: Model, rules: Rules, columns: Sequence[str]) -> None:
    """Says which columns nothing looks at, louder where one sounds like a wish to be left alone."""
    unused = unused_columns(model, rules, columns)
    for name in filter(LEFT_ALONE.search, unused):
        print(
            f"prefermab: the column '{name}' is not used: if it says who must not be acted on, add "
            f"--exclude {name}.",
            file=sys.stderr,
        )
    others = [name for name in unused if not LEFT_ALONE.search(name)]
    if others:
        print(f"prefermab: not used: {', '.join(others)}.", file=sys.stderr)


def rules_of(options: verbs.RuleOptions) -> Rules:
    """The rules as they were typed."""
    return Rules(
        exclude=options.exclude,
        exclude_ids=options.exclude_ids,
        lock=options.lock,
        lock_ids=options.lock_ids,
        cooldown=options.cooldown,
        last=options.last,
        group=options.group,
        min_share=numbers(options.min_share, "--min-share"),
        max_share=numbers(options.max_share, "--max-share"),
        worker=options.worker,
        budgets=numbers(options.budgets, "--worker-budgets"),
    )


def budgets_of(text: str) -> list[float]:
    """first:last:step, or numbers with commas between them.

    >>> from prefermab.commands.plan import budgets_of
    >>> budgets_of("100:300:100"), budgets_of("5,7.5")
    ([100.0, 200.0, 300.0], [5.0, 7.5])
    """
    parts = text.split(":") if ":" in text else text.split(",")
    try:
        given = [float(part) for part in parts]
    except ValueError:
        given = []
    if ":" not in text and given:
        return given
    if len(given) != 3 or not given[0] <= given[1] or not given[2] > 0:
        raise InputError(
            f"--budgets takes first:last:step, such as 100:2000:100, or 100,200, not '{text}'."
        )
    first, last, step = given
    steps = (last - first) / step
    if not steps < MOST_BUDGETS:
        raise InputError(f"--budgets {text} are more than {MOST_BUDGETS} budgets.")
    return [first + step * i for i in range(int(steps + 1e-9) + 1)]
