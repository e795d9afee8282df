"""Assigns events to rounds, and combines the events of a person in one round into one row."""

import datetime
import re
from typing import Any

import polars as pl

from prefermab.errors import EXACT, InputError, brief
from prefermab.programme.events.mapping import EventMap, StateMap, evaluate_expression
from prefermab.programme.tables.columns import as_flags, as_labels, as_numbers
from prefermab.programme.tables.values import parse_dates

ROUND_UNITS = {"d": ("days", 1), "w": ("days", 7), "m": ("months", 1), "q": ("months", 3),
         "y": ("months", 12)}  # fmt: skip
WEEKDAYS = {"monday": 0, "friday": 4, "saturday": 5, "sunday": 6}

EXCEL_DAYS = (20_000, 80_000)
"""Excel's day numbers from 1954 to 2119: whole numbers in this range may be dates."""


def read_event_times(values: pl.Series, mapping: EventMap, source: str, where: str) -> pl.Series:
    """Reads the times of events: dates, or whole numbers if the length of a round is a number."""
    form, kind = mapping.form, values.dtype
    if isinstance(mapping.round, int):
        return _whole(values, source, where)
    if kind in (pl.Date, pl.Datetime):
        return values.cast(pl.Datetime("us")) if kind == pl.Date else _naive(values)
    if form in ("excel", "unix", "unix_ms"):
        return _from_numbers(values, form, source)
    if kind == pl.String:
        return parse_dates(values, source, getattr(source, "first_row", 1), form)
    known = values.drop_nulls()
    if kind.is_integer() and len(known) and known.is_between(19000101, 21001231).all():
        return parse_dates(values.cast(pl.String), source, getattr(source, "first_row", 1))
    if kind.is_numeric() and len(known) and known.is_between(*EXCEL_DAYS).all():
        day = datetime.date(1899, 12, 30) + datetime.timedelta(days=int(known[0]))
        raise InputError(
            f"{source}: the column '{values.name}' holds numbers such as {known[0]}, which may be "
            f'days of Excel ({day}) or counts; in {where}, write form = "excel" for days, or round '
            "as a whole number for counts."
        )
    raise InputError(
        f"{source}: the column '{values.name}' must hold dates, not {kind}; if it holds counts, "
        f"write round in {where} as a whole number, and if it holds seconds since 1970, write "
        'form = "unix" there.'
    )


def _naive(values: pl.Series) -> pl.Series:
    """Drops the time zone and keeps the local time, so that an evening stays on its own day."""
    return values.dt.replace_time_zone(None).cast(pl.Datetime("us"))


def _whole(values: pl.Series, source: str, where: str) -> pl.Series:
    if not values.dtype.is_numeric():
        raise InputError(
            f"{source}: the column '{values.name}' must hold whole numbers, not {values.dtype}, "
            f"because round in {where} is a whole number."
        )
    numbers = as_numbers(values, source)
    wrong = ((numbers != numbers.round()) | (numbers.abs() >= EXACT)).fill_null(False)
    if wrong.any():
        row = int(wrong.arg_max() or 0) + getattr(source, "first_row", 1)
        raise InputError(
            f"{source}: the column '{values.name}' must hold whole numbers, but row {row} does not."
        )
    return numbers.cast(pl.Int64)


def _from_numbers(values: pl.Series, form: str, source: str) -> pl.Series:
    numbers = values.cast(pl.Float64, strict=False)
    if (numbers.is_null() & values.is_not_null()).any():
        row = int((numbers.is_null() & values.is_not_null()).arg_max() or 0)
        raise InputError(
            f"{source}: the column '{values.name}' must hold numbers, but row "
            f"{row + getattr(source, 'first_row', 1)} holds '{values[row]}'."
        )
    scale = {"excel": 86_400e6, "unix": 1e6, "unix_ms": 1e3}[form]
    micros = (numbers * scale).round().cast(pl.Int64, strict=False)
    if form == "excel":
        micros -= 25_569 * 86_400_000_000  # days from 1899-12-30 to 1970-01-01
    return micros.cast(pl.Datetime("us"))


class Rounds:
    """Rounds of one length: converts dates to round numbers, and round numbers to first days."""

    def __init__(self, mapping: EventMap, when: pl.Series, where: str) -> None:
        self.kind, self.length = parse_round_length(mapping.round, where)
        earliest: Any = mapping.first if mapping.first is not None else when.min()
        if isinstance(earliest, datetime.datetime):
            earliest = earliest.date()
        if (self.kind == "numbers") == isinstance(earliest, datetime.date):
            raise InputError(
                f"{where}: first must be a number if round is a number, and otherwise a date."
            )
        self.start = earliest
        if self.kind == "days" and self.length % 7 == 0 and mapping.first is None:
            back = (earliest.weekday() - WEEKDAYS[mapping.week_starts]) % 7
            self.start = earliest - datetime.timedelta(days=back)
        if self.kind == "months" and mapping.first is None:
            month = (earliest.year * 12 + earliest.month - 1) // self.length * self.length
            self.start = datetime.date(month // 12, month % 12 + 1, 1)

    def numbers(self, when: pl.Series) -> pl.Series:
        """The round of each date, from 0; negative before the first one."""
        if self.kind == "numbers":
            return (when - self.start) // self.length
        if self.kind == "days":
            days = when.cast(pl.Date).cast(pl.Int64) - (self.start - datetime.date(1970, 1, 1)).days
            return days // self.length
        months = when.dt.year().cast(pl.Int64) * 12 + when.dt.month().cast(pl.Int64) - 1
        return (months - (self.start.year * 12 + self.start.month - 1)) // self.length

    def times(self, rounds: pl.Series) -> pl.Series:
        """The first day, or number, of each round."""
        if self.kind == "numbers":
            return rounds * self.length + self.start
        if self.kind == "days":
            return (
                (rounds * self.length + (self.start - datetime.date(1970, 1, 1)).days)
                .cast(pl.Int32)
                .cast(pl.Date)
            )
        months = rounds * self.length + self.start.year * 12 + self.start.month - 1
        frame = pl.DataFrame({"year": months // 12, "month": months % 12 + 1})
        return frame.select(pl.date("year", "month", 1)).to_series()


def parse_round_length(round: str | int, where: str) -> tuple[str, int]:
    """The unit of a round (days, months or numbers), and how many of them it has.

    >>> from prefermab.programme.events.rounds import parse_round_length
    >>> [parse_round_length(length, "map.toml") for length in ("2w", "1q", 5)]
    [('days', 14), ('months', 3), ('numbers', 5)]
    """
    if isinstance(round, int) and round >= 1:
        return "numbers", round
    found = re.fullmatch(r"([1-9][0-9]{0,3})([dwmqy])", str(round))
    if found is None:
        raise InputError(
            f"{where}: round must be a length such as 7d, 1w, 1m, 1q or 1y, or a whole number of "
            f"at least 1, not '{round}'."
        )
    unit, size = ROUND_UNITS[found[2]]
    return unit, int(found[1]) * size


PAIR = ["person", "round"]
"""The columns that identify a row of a log."""

LOG_FLAGS = ("available", "reached")


def read_flags(
    frame: pl.DataFrame, text: str, where: str, name: str, *, unknown: bool = False
) -> pl.Series:
    """The value of a condition in each row, true or false; a column may also hold yes and no."""
    return as_flags(
        evaluate_expression(frame, text, where, name).alias(name), where, unknown=unknown
    )


def event_columns(
    frame: pl.DataFrame, rows: pl.Series, mapping: EventMap, source: str, where: str
) -> list[pl.Series]:
    """The columns that the map makes for each event: value, action, flags and features. `rows` has
    the numbers of the events in the table, for messages."""
    columns = [
        _values(frame, rows, mapping.state, source, where),
        _actions(frame, mapping.action.labels, where),
    ]
    if mapping.action.unknown is not None:
        unknown = read_flags(frame, mapping.action.unknown, where, "action.unknown")
        columns.append(unknown.alias("unknown"))
    for name in LOG_FLAGS:
        if (text := getattr(mapping, name)) is not None:
            columns.append(read_flags(frame, text, where, name))
    for name, text in mapping.features.items():
        columns.append(evaluate_expression(frame, text, where, f"features.{name}").alias(name))
    return columns


def combine_events(events: pl.DataFrame, mapping: EventMap, where: str) -> pl.DataFrame:
    """A row for each person and round with an event. The events must be in the order of time.

    Columns: events (how many), action (its number among the labels), state, unlabelled, and the
    flags and features of the map.
    """
    known = pl.col("value").drop_nulls()
    values: dict[str, pl.Expr] = {
        "last": known.last(), "first": known.first(), "worst": known.min(), "max": known.max(),
        "min": known.min(), "mean": known.mean(), "count": known.len(), "any": known.any(),
        "sum": pl.when(known.len() > 0).then(known.sum()),
    }  # fmt: skip
    flags = [name for name in ("unknown", *LOG_FLAGS) if name in events.columns]
    found = events.group_by(PAIR).agg(
        pl.len().alias("events"),
        values[mapping.state.several].alias("value"),
        pl.col("action").min(),
        *(pl.col(name).any() for name in flags),
        *(pl.col(name).drop_nulls().last() for name in mapping.features),
    )
    return _with_states(found, mapping.state, where)


def _values(
    frame: pl.DataFrame, rows: pl.Series, state: StateMap, source: str, where: str
) -> pl.Series:
    """The value that each event gives for the state, with the type that `several` needs."""
    value = evaluate_expression(frame, state.value, where, "state.value")
    if state.several in ("max", "min", "sum", "mean", "any"):
        # Messages count the rows of the whole table, and some of them may have been dropped.
        height = int(rows[-1]) + 1
        if height > len(rows):
            value = (
                pl.Series([None], dtype=value.dtype).new_from_index(0, height).scatter(rows, value)
            )
        value = value.alias(state.value if state.value in frame.columns else "state.value")
        if state.several == "any":
            value = as_flags(value, source, unknown=False)
        else:
            value = as_numbers(value, source)
        return (value.gather(rows) if height > len(rows) else value).alias("value")
    value = value.alias("value")
    if state.several != "worst":
        return value
    labels, places = as_labels(value), {label: place for place, label in enumerate(state.order)}
    strange = labels.drop_nulls().unique().sort()
    strange = strange.filter(~strange.is_in(state.order))
    if len(strange):
        raise InputError(
            f"{where}: the value '{brief(strange[0])}' is not in state.order; list all values "
            "there, or leave such events out with `keep`."
        )
    return labels.replace_strict(places, return_dtype=pl.Int64)


def _actions(frame: pl.DataFrame, labels: dict[str, str], where: str) -> pl.Series:
    """For each event, the number of the first label whose condition holds."""
    chosen = pl.repeat(None, frame.height, dtype=pl.Int64, eager=True)
    for place, (label, condition) in enumerate(labels.items()):
        holds = read_flags(frame, condition, where, f"action.labels.{label}")
        chosen = chosen.set(holds & chosen.is_null(), place)
    return chosen.alias("action")


def _with_states(found: pl.DataFrame, state: StateMap, where: str) -> pl.DataFrame:
    """Adds the state: the label whose condition the value meets, or unknown if there is none."""
    if state.several == "worst":
        names = dict(enumerate(state.order))
        value = found["value"].replace_strict(names, return_dtype=pl.String)
        found = found.with_columns(value.alias("value"))
    if not state.labels:
        return found.with_columns(state=as_labels(found["value"]), unlabelled=pl.lit(False))
    label = pl.repeat(None, found.height, dtype=pl.String, eager=True)
    for name, condition in state.labels.items():
        holds = read_flags(found, condition, where, f"state.labels.{name}")
        label = label.set(holds & found["value"].is_not_null() & label.is_null(), name)
    unlabelled = found["value"].is_not_null() & label.is_null()
    return found.with_columns(label.alias("state"), unlabelled.alias("unlabelled"))
