"""`from_events` makes a log from a table of events and a map, and counts used and dropped events.

The counts, and ten people as an example, can be shown in words.
"""

import dataclasses
import datetime
from typing import Any

import polars as pl

from prefermab.errors import InputError
from prefermab.programme.events.mapping import EventMap, column_or_expression, read_map
from prefermab.programme.events.preparing import read_events, read_people
from prefermab.programme.events.rounds import (
    LOG_FLAGS,
    PAIR,
    Rounds,
    combine_events,
    event_columns,
    read_event_times,
    read_flags,
)
from prefermab.programme.tables.cleaning import clean_ids
from prefermab.programme.tables.columns import as_labels, check_plain, named_column

MOST_LOG_ROWS = 50_000_000
"""The most rows of a log."""


@dataclasses.dataclass(frozen=True)
class Counts:
    """How many events were used and dropped, and what the log holds."""

    read: int
    """Events in the table."""
    dropped: dict[str, int]
    """The number of dropped events for each reason."""
    used: int
    """Events in the log: all that were read without those that were dropped."""
    people: int
    rounds: int
    """Rounds from the first to the last."""
    rows: int
    """Rows of the log, one for each person and round."""
    with_events: int
    """Rows with at least one event in their round."""
    several: int
    """Rows with more than one event in their round."""
    unknown_states: int
    unlabelled: int
    """Rows whose value meets no label's condition; their state is unknown."""
    actions: dict[str, int]
    """The number of rows for each action; `unknown` counts rows whose action is not known."""


@dataclasses.dataclass(frozen=True)
class EventLog:
    """A log made of events: `log` has a row for each person and round."""

    log: pl.DataFrame
    counts: Counts


def from_events(events: Any, map: Any) -> EventLog:
    """Makes a log of a table of events, such as visits, calls or forms.

    Args:
        events: A frame, a file, or the URL of a database; see `read_table`.
        map: A map, which says what the columns mean: its path (docs/events.md), or a dictionary.

    Returns:
        The log, ready for `prefermab.learn`, and counts of what was used and dropped, and why.

    >>> import polars as pl
    >>> import prefermab as pm
    >>> calls = pl.DataFrame({"mother": [7, 7, 8], "seconds": [45, 0, 31],
    ...     "day": ["2026-01-05", "2026-01-20", "2026-01-06"]})
    >>> made = pm.tables.from_events(calls, {"who": "mother", "when": "day", "round": "1w",
    ...     "rows": "all", "action": {"nothing": "none", "labels": {"call": "TRUE"}},
    ...     "state": {"value": "seconds", "several": "max",
    ...               "labels": {"listens": "value >= 30", "silent": "TRUE"}}})
    >>> made.log.filter(id="7").select("time", "state", "action").rows()
    [(datetime.date(2026, 1, 5), 'listens', 'call'), (datetime.date(2026, 1, 12), None, 'none'),
     (datetime.date(2026, 1, 19), 'silent', 'call')]
    """
    mapping, where, folder = read_map(map)
    frame, source = read_events(events, mapping, folder)
    placed, rounds, dropped = _place(frame, mapping, source, where)
    counted = frame[placed["row"]] if placed.height < frame.height else frame
    names = placed["person"].unique().sort()
    # Numbers in the order of the names are sorted and joined much faster than the names.
    numbers = placed["person"].cast(pl.Enum(names)).to_physical().cast(pl.Int64)
    events = placed.select(numbers, "when", "round").with_columns(
        event_columns(counted, placed["row"], mapping, source, where)
    )
    made, unlabelled = _assemble(events, mapping, source, where)
    made = made.with_columns(
        names.gather(made["person"]), rounds.times(made["round"]).alias("time")
    )
    if mapping.people is not None:
        people = read_people(frame, mapping, source, where, folder)
        made = made.join(people, on="person", how="left", maintain_order="left")
    counts = _count(made, mapping, dropped, placed.height, unlabelled)
    rest = [name for name in made.columns if name not in ("person", "round", "time", "events")]
    return EventLog(made.select(pl.col("person").alias("id"), "time", *rest), counts)


def _place(
    frame: pl.DataFrame, mapping: EventMap, source: str, where: str
) -> tuple[pl.DataFrame, Rounds, dict[str, int]]:
    """The rows that are used, with person, time and round; and how many were dropped, by reason."""
    person = column_or_expression(frame, mapping.who, source, where, "who")
    check_plain(person, source)
    who = as_labels(clean_ids(person))
    times = column_or_expression(frame, mapping.when, source, where, "when")
    when = read_event_times(times, mapping, source, where)
    rows = pl.DataFrame({"row": pl.arange(frame.height, eager=True), "person": who, "when": when})
    dropped: dict[str, int] = {}

    def keep(what: str, condition: Any) -> None:
        nonlocal rows
        before = rows.height
        rows = rows.filter(condition)
        dropped[what] = before - rows.height

    if mapping.keep is not None:
        kept = read_flags(frame, mapping.keep, where, "keep")
        keep("not meant by keep", kept)
    keep(f"without a person ({who.name})", pl.col("person").is_not_null())
    keep(f"without a time ({times.name})", pl.col("when").is_not_null())
    if mapping.once:
        same = frame.select(named_column(frame, name, source) for name in mapping.once)[rows["row"]]
        last = same.select(pl.struct(pl.all()).is_last_distinct()).to_series()
        keep(f"repeated ({', '.join(mapping.once)})", last)
    _check_limits(mapping, when, where)
    if mapping.first is not None:
        keep(f"before {mapping.first}", pl.col("when") >= mapping.first)
    if mapping.last is not None:
        day = pl.duration(days=1) if isinstance(mapping.last, datetime.date) else 1
        keep(f"after {mapping.last}", pl.col("when") < pl.lit(mapping.last) + day)
    if not rows.height:
        reasons = ", ".join(f"{number:,} {what}" for what, number in dropped.items() if number)
        raise InputError(f"{source}: no event is left ({reasons}).")
    rounds = Rounds(mapping, rows["when"], where)
    rows = rows.with_columns(rounds.numbers(rows["when"]).cast(pl.Int64).alias("round"))
    return rows, rounds, dropped


def _check_limits(mapping: EventMap, when: pl.Series, where: str) -> None:
    """Raises an error unless `first` and `last` are dates or numbers, as `when` is."""
    for name in ("first", "last"):
        limit = getattr(mapping, name)
        if limit is not None and isinstance(limit, int) != when.dtype.is_integer():
            kind = "a whole number" if when.dtype.is_integer() else "a date such as 2026-01-31"
            raise InputError(f"{where}: {name} must be {kind}, like the values of {mapping.when}.")


def _assemble(
    events: pl.DataFrame, mapping: EventMap, source: str, where: str
) -> tuple[pl.DataFrame, int]:
    """The log with rounds and numbers of events, and the number of values without a label."""
    if not events["when"].is_sorted():
        events = events.sort("when", maintain_order=True)
    found = combine_events(events, mapping, where)
    unlabelled = int(found["unlabelled"].sum())
    states = found.select(*PAIR, "state")
    if mapping.state.of == "next round":
        states = states.with_columns(pl.col("round") + 1)
        log = _grid(pl.concat([found.select(PAIR), states.select(PAIR)]).unique(), mapping, source)
        log = log.join(found.drop("state"), on=PAIR, how="left", maintain_order="left")
        log = log.join(states, on=PAIR, how="left", maintain_order="left")
    else:
        log = _grid(found.select(PAIR), mapping, source)
        log = log.join(found, on=PAIR, how="left", maintain_order="left")
    names = [name for name in (*LOG_FLAGS, *mapping.features) if name in log.columns]
    return _fill(log, mapping).select(*PAIR, "state", "action", *names, "events"), unlabelled


def _grid(seen: pl.DataFrame, mapping: EventMap, source: str) -> pl.DataFrame:
    """The rows of the log: person and round, sorted."""
    if mapping.rows == "events":
        return seen.sort(PAIR)
    people = seen.group_by("person").agg(first=pl.col("round").min(), last=pl.col("round").max())
    if mapping.rows == "all":
        people = people.with_columns(pl.col("first").min(), pl.col("last").max())
    rows = int((people["last"] - people["first"] + 1).sum())
    if rows > MOST_LOG_ROWS:
        raise InputError(
            f"{source}: the log would have {rows:,} rows, and at most {MOST_LOG_ROWS:,} are made: "
            "use longer rounds, or look for a wrong date that is far from all others."
        )
    ranges = people.select("person", round=pl.int_ranges("first", pl.col("last") + 1))
    return ranges.explode("round").sort(PAIR)


def _fill(log: pl.DataFrame, mapping: EventMap) -> pl.DataFrame:
    """Fills rounds without events: with the passive action, and with the state of `no_event`."""
    action = mapping.action
    names = dict(enumerate(action.labels))
    done = log["action"].replace_strict(names, default=None, return_dtype=pl.String)
    done = done.fill_null(action.nothing)
    if action.unknown is not None:
        done = done.set(log["action"].is_null() & log["unknown"].fill_null(False), None)
    if mapping.state.of == "next round":
        # The row after a person's last event only has a state, and no known action.
        ends = log["events"].is_null() & (log["person"] != log["person"].shift(-1)).fill_null(True)
        done = done.set(ends, None)
    log = log.with_columns(done.alias("action"), pl.col("events").fill_null(0))
    if mapping.state.carry:
        log = log.with_columns(pl.col("state").forward_fill().over("person"))
    if mapping.state.no_event is not None:
        empty = (pl.col("events") == 0) & pl.col("state").is_null()
        log = log.with_columns(
            state=pl.when(empty).then(pl.lit(mapping.state.no_event)).otherwise("state")
        )
    return log


def _count(
    made: pl.DataFrame, mapping: EventMap, dropped: dict[str, int], used: int, unlabelled: int
) -> Counts:
    by_action = made["action"].fill_null("unknown").value_counts()
    actions = dict(by_action.iter_rows())
    order = [mapping.action.nothing, *mapping.action.labels, "unknown"]
    return Counts(
        read=used + sum(dropped.values()),
        dropped=dropped,
        used=used,
        people=made["person"].n_unique(),
        rounds=int(made.select(pl.col("round").max() - pl.col("round").min()).item()) + 1,
        rows=made.height,
        with_events=int((made["events"] > 0).sum()),
        several=int((made["events"] > 1).sum()),
        unknown_states=made["state"].null_count(),
        unlabelled=unlabelled,
        actions={
            label: actions.get(label, 0)
            for label in order
            if label in actions or label in mapping.action.labels
        },
    )


PREVIEW_PEOPLE, PREVIEW_ROUNDS = 10, 8
"""How many people a preview shows, and how many rounds of each."""


def preview_lines(made: EventLog, nothing: str) -> list[str]:
    """Describes ten people by the states and actions of their first rounds.

    Args:
        made: The log.
        nothing: The passive action, which the preview leaves out.

    Returns:
        A line for each person; ? is an unknown state.

    >>> import polars as pl
    >>> import prefermab as pm
    >>> from prefermab.programme.events.convert import preview_lines
    >>> calls = pl.DataFrame({"who": [7, 7], "week": [1, 3], "heard": ["well", "badly"]})
    >>> made = pm.tables.from_events(calls, {"who": "who", "when": "week", "round": 1,
    ...     "action": {"nothing": "none", "labels": {"call": "week = 1"}},
    ...     "state": {"value": "heard"}})
    >>> preview_lines(made, "none")
    ['7  from 1: well + call → ? → badly']
    """
    log = made.log
    ids = log["id"].unique(maintain_order=True)
    chosen = ids.gather_every(max(len(ids) // PREVIEW_PEOPLE, 1)).head(PREVIEW_PEOPLE)
    lines = []
    for (person,), rows in log.filter(pl.col("id").is_in(chosen.to_list())).group_by(
        ["id"], maintain_order=True
    ):
        first = rows.head(PREVIEW_ROUNDS)
        steps = [
            (state or "?") + ("" if action == nothing else f" + {action or '?'}")
            for state, action in first.select("state", "action").iter_rows()
        ]
        more = f" → … ({rows.height - PREVIEW_ROUNDS} more)" if rows.height > PREVIEW_ROUNDS else ""
        lines.append(f"{person}  from {first['time'][0]}: {' → '.join(steps)}{more}")
    return lines


def count_lines(counts: Counts) -> list[str]:
    """Describes how many events were used and dropped, in counts that add up."""
    lines = [f"{counts.read:,} events read"]
    lines += [f"{number:,} dropped: {what}" for what, number in counts.dropped.items() if number]
    without = counts.rows - counts.with_events
    lines += [
        f"{counts.used:,} used",
        f"{counts.people:,} people, {counts.rounds:,} rounds: {counts.rows:,} rows, "
        f"{counts.with_events:,} with an event ({counts.several:,} with several), {without:,} "
        "without",
        f"{counts.unknown_states:,} rows whose state is unknown"
        + (f", {counts.unlabelled:,} of them by a value without a label" * (counts.unlabelled > 0)),
        "actions: " + ", ".join(f"{label} {number:,}" for label, number in counts.actions.items()),
    ]
    return lines
