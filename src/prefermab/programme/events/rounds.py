"""The round of each event: weeks, months or numbers, counted from the first one."""

import datetime
import re
from typing import Any

import polars as pl

from prefermab.errors import InputError
from prefermab.programme.events.mapping import EventMap
from prefermab.programme.values import parse_dates

UNITS = {"d": ("days", 1), "w": ("days", 7), "m": ("months", 1), "q": ("months", 3),
         "y": ("months", 12)}  # fmt: skip
WEEKDAYS = {"monday": 0, "friday": 4, "saturday": 5, "sunday": 6}

EXCEL_DAYS = (20_000, 80_000)
"""Days of Excel in 1954 to 2119."""


def read_when(values: pl.Series, mapping: EventMap, source: str, where: str) -> pl.Series:
    """Dates, or whole numbers if the length of a round is a number."""
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
            f'days of Excel ({day}) or counts; say form = "excel" in {where}, or give round as a '
            "number."
        )
    raise InputError(
        f"{source}: the column '{values.name}' must hold dates, not {kind}; if it counts, round in "
        f"{where} must be a whole number."
    )


def _naive(values: pl.Series) -> pl.Series:
    """A zone is kept for the day that it gives: an evening stays on its own day."""
    return values.dt.replace_time_zone(None).cast(pl.Datetime("us"))


def _whole(values: pl.Series, source: str, where: str) -> pl.Series:
    if not values.dtype.is_numeric():
        raise InputError(
            f"{source}: the column '{values.name}' must hold whole numbers, as round in {where} is "
            f"one, not {values.dtype}."
        )
    wrong = (values != values.round() if values.dtype.is_float() else values != values).fill_null(
        False
    )
    if wrong.any():
        row = int(wrong.arg_max() or 0) + getattr(source, "first_row", 1)
        raise InputError(
            f"{source}: the column '{values.name}' must hold whole numbers, but row {row} does not."
        )
    return values.cast(pl.Int64)


def _from_numbers(values: pl.Series, form: str, source: str) -> pl.Series:
    numbers = values.cast(pl.Float64, strict=False)
    if (numbers.is_null() & values.is_not_null()).any():
        row = int((numbers.is_null() & values.is_not_null()).arg_max() or 0)
        raise InputError(
            f"{source}: the column '{values.name}' must hold numbers, but row "
            f"{row + getattr(source, 'first_row', 1)} holds '{values[row]}'."
        )
    scale = {"excel": 86_400e6, "unix": 1e6, "unix_ms": 1e3}[form]
    micros = (numbers * scale).round().cast(pl.Int64)
    if form == "excel":
        micros -= 25_569 * 86_400_000_000  # days from 1899-12-30 to 1970-01-01
    return micros.cast(pl.Datetime("us"))


class Rounds:
    """Rounds of one length: the number of each date, and the first day of each number."""

    def __init__(self, mapping: EventMap, when: pl.Series, where: str) -> None:
        self.kind, self.length = round_length(mapping.round, where)
        earliest: Any = mapping.first if mapping.first is not None else when.min()
        if isinstance(earliest, datetime.datetime):
            earliest = earliest.date()
        if (self.kind == "numbers") == isinstance(earliest, datetime.date):
            raise InputError(f"{where}: first must be a date if rounds are dates, else a number.")
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


def round_length(round: str | int, where: str) -> tuple[str, int]:
    """Days, months or numbers, and how many of them.

    >>> from prefermab.programme.events.rounds import round_length
    >>> round_length("2w", "map.toml"), round_length("1q", "map.toml"), round_length(5, "map.toml")
    (('days', 14), ('months', 3), ('numbers', 5))
    """
    if isinstance(round, int) and round >= 1:
        return "numbers", round
    found = re.fullmatch(r"([1-9][0-9]{0,3})([dwmqy])", str(round))
    if found is None:
        raise InputError(
            f"{where}: round must be a length such as 7d, 1w, 1m, 1q or 1y, or a whole number of "
            f"at least 1, not '{round}'."
        )
    unit, size = UNITS[found[2]]
    return unit, int(found[1]) * size
