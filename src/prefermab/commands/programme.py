"""Verbs for a programme in a file: who is in, this round's list, and what was done."""

import json
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.table import Table

from prefermab.commands.plan import in_order, rules_of, shown, warn_of_unused
from prefermab.compiled import use_compilation_cache
from prefermab.errors import InputError
from prefermab.programme.columns import column
from prefermab.programme.store import Programme
from prefermab.programme.store.identity import model_of
from prefermab.programme.store.people import SINCE_ACTION, SINCE_SEEN, spelled
from prefermab.programme.tables import (
    check_table_path,
    people,
    plain,
    read_table,
    source_of,
    write_table,
)
from prefermab.storage import load
from prefermab.verbs import rounds as verbs


def begin(options: verbs.Begin) -> None:
    """Begins a programme, or goes on with it, and notes where its model is."""
    model = load(options.model)
    with Programme(options.file, model, change_model=options.change_model) as programme:
        programme.keep_place(options.model)
        print(f"{options.file}: round {programme.round} is on, run by the model {options.model}")


def join(options: verbs.Join) -> None:
    """Takes people in."""
    with opened(options.file) as programme:
        table, where = table_of(programme, options.people), source_of(options.people)
        taken = programme.join(table, where=where)
        print(f"{people(taken)} joined; {programme.roster().height:,} in")


def leave(options: verbs.Leave) -> None:
    """Lets people go."""
    with opened(options.file) as programme:
        ids: list[str] | list[int] = list(options.ids)
        if programme.ids != "text":
            ids = [whole(one) for one in options.ids]
        gone = programme.leave(ids)
        print(f"{people(gone)} left; {programme.roster().height:,} in")


def observe(options: verbs.Observe) -> None:
    """Notes states; what the programme counts by itself is left aside and said."""
    with opened(options.file) as programme:
        table, where = table_of(programme, options.seen), source_of(options.seen)
        names = spelled(table, (), where)
        own = [
            given
            for given, name in zip(table.columns, names, strict=True)
            if name in (SINCE_ACTION, SINCE_SEEN)
        ]
        seen = programme.observe(table.drop(own), where=where)
        for name in own:
            print(f"the column '{name}' is left aside: the programme counts it by itself")
        inside = programme.roster()
        unseen = int((inside[SINCE_SEEN] > 0).fill_null(True).sum())
        print(f"{seen:,} states noted; {unseen:,} of {people(inside.height)} not seen this round")


def plan(options: verbs.Plan) -> None:
    """Plans the round that is on, writes the list and prints its summary."""
    check_table_path(options.out)
    use_compilation_cache()
    with opened(options.file) as programme:
        rules = rules_of(options.rules)
        made = programme.plan(
            options.budget, rules, waiting=options.waiting, round=options.round, again=options.again
        )
        warn_of_unused(programme.model, rules, made.inputs.drop(SINCE_SEEN).columns)
    write_table(in_order(made.frame), options.out)
    if options.json:
        print(json.dumps({"round": made.round, "attempt": made.attempt, **made.facts}, indent=2))
        return
    shown(made.frame)
    print(f"\nround {made.round}: {made.summary}\nwritten to {options.out}")


def record(options: verbs.Record) -> None:
    """Notes what was done, or puts right what was noted."""
    if options.correct is not None and options.round not in (None, options.correct):
        raise InputError(f"--round {options.round} and --correct {options.correct} differ.")
    with opened(options.file) as programme:
        table, where = None, "record"
        if options.done is not None:
            table, where = table_of(programme, options.done), source_of(options.done)
        which = programme.record(
            table,
            round=options.round if options.correct is None else options.correct,
            correct=options.correct is not None,
            over_budget=options.over_budget,
            where=where,
        )
        row = rounds_of(programme).row(by_predicate=pl.col("round") == which, named=True)
        not_all = row["reached"] < row["acted_on"]
        reached = f" ({row['reached']:,} of them reached)" if not_all else ""
        print(
            f"round {which}: {people(row['acted_on'])} acted on{reached}, {plain(row['spent'])} "
            f"spent of {plain(row['budget'])}; round {programme.round} is on"
        )


def status(options: verbs.Status) -> None:
    """Says where the programme stands."""
    with opened(options.file) as programme:
        past, now, inside = rounds_of(programme), programme.round, programme.roster()
    on = past.filter(pl.col("round") == now)
    past = past.filter(pl.col("round") < now)
    unseen = int((inside[SINCE_SEEN] > 0).fill_null(True).sum())
    if options.json:
        told = {"round": now, "planned": on.height > 0, "people": inside.height, "unseen": unseen}
        print(json.dumps({**told, "past": past.to_dicts()}, indent=2))
        return
    if past.height:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for heading in past.drop("reached").columns:
            table.add_column(heading.replace("_", " "), justify="right")
        for row in past.iter_rows(named=True):
            table.add_row(
                str(row["round"]), plain(row["budget"]), plain(row["spent"]),
                f"{row['acted_on']:,}", row["closed"],
            )  # fmt: skip
        Console().print(table)
        print(attempts_of(past.row(-1, named=True)), end="")
    stands = "planned" if on.height else "not planned yet"
    print(
        f"round {now} is on, {stands}; {people(inside.height)} in, {unseen:,} of them not seen in "
        "this round"
    )


def attempts_of(row: dict[str, Any]) -> str:
    """A line on a round of which some actions reached nobody; nothing where all did."""
    if row["reached"] == row["acted_on"]:
        return ""
    tried = "1 action was" if row["acted_on"] == 1 else f"{row['acted_on']:,} actions were"
    return f"round {row['round']}: {tried} tried, {row['reached']:,} of them reached somebody\n"


def log(options: verbs.Log) -> None:
    """Writes the programme as a log."""
    check_table_path(options.out)
    with opened(options.file) as programme:
        found = programme.history().log
    write_table(found, options.out)
    print(f"{found.height:,} rows written to {options.out}")


def opened(file: str) -> Programme:
    """The programme in a file, with the model that runs it."""
    return Programme.open(file, model_of(file))


def rounds_of(programme: Programme) -> pl.DataFrame:
    """Each round's plan that holds: budget, and what was done."""
    plans = programme.plans().filter(pl.col("status") != "superseded")
    return plans.select("round", "budget", "spent", "acted_on", "reached", "closed")


def table_of(programme: Programme, path: Path) -> pl.DataFrame:
    """A table whose ids are text where the programme's are."""
    table = read_table(path)
    if not table.height:
        return table
    ids = column(table, "id", source_of(path))
    if programme.ids == "text" and ids.dtype.is_integer():
        table = table.with_columns(ids.cast(pl.String))
    return table


def whole(text: str) -> int:
    """An id that was typed, in a programme whose ids are whole numbers."""
    try:
        return int(text)
    except ValueError:
        raise InputError(f"leave: ids are whole numbers in this programme, not '{text}'.") from None
