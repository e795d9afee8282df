"""The rows of a log: the roles of its columns, and the person and the round of each row."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from prefermab.errors import EXACT, InputError, brief
from prefermab.programme.tables.cleaning import clean_ids
from prefermab.programme.tables.columns import (
    as_flags,
    as_labels,
    as_numbers,
    check_plain,
    column,
    named_column,
)
from prefermab.programme.tables.naming import match_names, refuse_similar_names
from prefermab.programme.tables.table import first_row, row_in
from prefermab.programme.tables.values import parse_dates

FLAGS = ("available", "reached")
"""Optional columns of true and false; columns with these names are used if no other is given."""

UNITS = {"d": 1, "w": 7, "m": 30}
"""Days in a unit of `every`. Months differ by a day or two, which is less than half a round."""


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a log, sorted by person and time.

    Columns of `frame`: row (position in the file), id, person, time, since (time since the person's
    row before), shown (the time as written), steps (rounds since the person's row before), round,
    state, action, available, reached and probability.
    """

    frame: pl.DataFrame
    apart: int
    """The length of a round in the time's own unit, days where times are dates."""
    dates: bool


def role_columns(
    given: pl.DataFrame, roles: Mapping[str, str], flags: Mapping[str, str | None], where: str
) -> dict[str, pl.Series]:
    """The columns that have a role, by role. `flags` are optional columns: one may be missing if it
    was not named."""
    if given.width == 1:
        raise InputError(
            f"{where}: only one column was found, '{given.columns[0]}'; the separator may be "
            "wrong: expected commas."
        )
    there = match_names(given.columns, flags, where)
    wanted = dict(roles) | {r: name or r for r, name in flags.items() if name or r in there}
    found = {role: _role_column(given, role, name, where) for role, name in wanted.items()}
    for role, values in found.items():
        for other, same in found.items():
            if role < other and values.name == same.name:
                raise InputError(
                    f"{where}: {role} and {other} are both the column '{values.name}'."
                )
    return found


def _role_column(given: pl.DataFrame, role: str, name: str, where: str) -> pl.Series:
    try:
        return (column if name == role else named_column)(given, name, where)
    except InputError as error:
        hint = f"name yours with {role}=... (--{role} on the command line)"
        raise InputError(f"{str(error).removesuffix('.')}: {hint}.") from None


def features_frame(
    given: pl.DataFrame,
    roles: Mapping[str, pl.Series],
    features: Sequence[str] | None,
    where: str,
) -> pl.DataFrame:
    """The columns of features: the named ones, or all columns without another role."""
    used = {values.name: role for role, values in roles.items()}
    if features is None:
        missing = [role for role in (*FLAGS, "probability") if role not in roles]
        refuse_similar_names(
            given.columns, missing, where, "name all features with features=... (--features)", used
        )
        return given.select(name for name in given.columns if name not in used)
    names = [named_column(given, str(name), where).name for name in features]
    if len(set(names)) < len(names):
        raise InputError(f"{where}: features must be different columns, not {', '.join(names)}.")
    for name in names:
        role = used.get(name)
        if role in FLAGS or role == "probability":
            what = f"says who was {role}" if role in FLAGS else "holds probabilities of actions"
            raise InputError(
                f"{where}: the column '{name}' {what} and cannot be a feature too; leave it out of "
                "the features."
            )
    return given.select(names)


def sort_rows(roles: Mapping[str, pl.Series], every: Any, where: str) -> Rows:
    """Sorts the rows by person and time, and computes their rounds."""
    ids, time = roles["id"], roles["time"]
    for values in roles.values():
        check_plain(values, where)
    who = as_labels(clean_ids(ids))
    if who.null_count():
        row = first_row(who.is_null())
        raise InputError(f"{where}: {row_in(where, row)} has no id in the column '{ids.name}'.")
    when, dates = read_times(time, where)
    frame = pl.DataFrame(
        {
            "row": np.arange(len(ids)),
            "id": who,
            "person": who.rank("dense").cast(pl.Int64) - 1,
            "time": when,
            "state": as_labels(roles["state"]),
            "action": as_labels(roles["action"]),
            **{flag: _read_flag(roles.get(flag), len(ids), where) for flag in FLAGS},
            "probability": _read_probability(roles.get("probability"), len(ids), where),
        }
    ).sort("person", "time", "row")
    shown = (time.cast(pl.Date) if time.dtype.is_temporal() else time).cast(pl.String)
    frame = frame.with_columns(
        since=pl.col("time").diff().over("person"), shown=shown.gather(frame["row"])
    )
    gaps = frame["since"].drop_nulls()
    if gaps.is_empty():
        raise InputError(f"{where}: no person has two rows; expected one for each week.")
    usual = int(gaps.filter(gaps > 0).mode().min() or 1)  # pyright: ignore[reportArgumentType]
    apart = usual if every is None else round_length(every, dates=dates, where=where)
    # A row up to half a round early or late counts for its round: intervals between rows vary.
    frame = frame.with_columns(
        steps=(2 * pl.col("since") + apart) // (2 * apart),
        round=(pl.col("time") - pl.col("time").min()) // apart,
    )
    _check_one_per_round(frame, apart, where)
    return Rows(frame, apart, dates)


def _read_flag(values: pl.Series | None, size: int, where: str) -> pl.Series:
    """A column of true and false. An empty cell is true; without a column, all rows are true."""
    if values is None:
        return pl.repeat(True, size, eager=True)
    return as_flags(values, where, unknown=True)


def _read_probability(values: pl.Series | None, size: int, where: str) -> pl.Series:
    """Probabilities of the logged actions, null where unknown."""
    if values is None:
        return pl.repeat(None, size, dtype=pl.Float64, eager=True)
    numbers = as_numbers(values, where)
    wrong = (numbers <= 0) | (numbers > 1)
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' must hold probabilities of the actions that were "
            f"taken, above 0 and at most 1, but {row_in(where, row)} holds {numbers[row]:g}."
        )
    return numbers


def read_times(values: pl.Series, where: str) -> tuple[pl.Series, bool]:
    """Times as whole numbers (dates as days), and whether they are dates."""
    kind = values.dtype
    if kind == pl.String:
        values = _parse_times(values, where)
        kind = values.dtype
    if values.null_count():
        row = first_row(values.is_null())
        raise InputError(
            f"{where}: {row_in(where, row)} has no time in the column '{values.name}'."
        )
    if kind.is_integer() and len(values) and values.is_between(19000101, 21001231).all():
        values = parse_dates(values.cast(pl.String), where, _first(where))
        kind = values.dtype
    if kind in (pl.Date, pl.Datetime):
        return values.cast(pl.Date).cast(pl.Int64), True
    if not kind.is_numeric():
        raise InputError(
            f"{where}: the column '{values.name}' must hold whole numbers or dates, not {kind}."
        )
    numbers = as_numbers(values, where)
    wrong = numbers.is_null() | (numbers != numbers.round()) | (numbers.abs() >= EXACT)
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' must hold whole numbers or dates, but "
            f"{row_in(where, row)} holds {values[row]}."
        )
    return numbers.cast(pl.Int64), False


def _parse_times(values: pl.Series, where: str) -> pl.Series:
    """Converts text to whole numbers or dates."""
    text = values.str.strip_chars()
    text = text.set(text == "", None)
    numbers = text.cast(pl.Int64, strict=False)
    if numbers.null_count() <= len(text) // 2 or numbers.null_count() == text.null_count():
        wrong = text.is_not_null() & numbers.is_null()
        if not wrong.any():
            return numbers
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' must hold whole numbers or dates such as "
            f"2026-01-31, but {row_in(where, row)} holds '{brief(values[row])}'."
        )
    return parse_dates(values, where, _first(where))


def _first(where: str) -> int:
    """The number of the first row in messages."""
    return getattr(where, "first_row", 1)


def round_length(every: Any, *, dates: bool, where: str) -> int:
    """The length of a round from what the user wrote, such as 7, 7d, 2w or 1m.

    >>> from prefermab.programme.logs.rows import round_length
    >>> [round_length(text, dates=True, where="the log") for text in (14, "7d", "2w", "1m")]
    [14, 7, 14, 30]
    """
    text = str(every).strip().lower()
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS else (text, "")
    if not number.isascii() or not number.isdigit() or int(number) == 0:
        raise InputError(
            f"every must be the length of a round, such as 7d, 2w, 1m or a whole number, not "
            f"'{every}'."
        )
    if unit and not dates:
        raise InputError(
            f"{where}: every is '{every}', but times are numbers and not dates; give a whole "
            "number in their own unit."
        )
    return int(number) * UNITS.get(unit, 1)


def _check_one_per_round(frame: pl.DataFrame, apart: int, where: str) -> None:
    twice = (frame["steps"] == 0).fill_null(False)
    if twice.any():
        at = first_row(twice)
        before, after = frame.row(at - 1, named=True), frame.row(at, named=True)
        times = before["shown"]
        if before["time"] != after["time"]:
            times = f"{times} and {after['shown']}, where rounds are {apart} apart"
        more = int(twice.sum()) - 1
        also = f", and {more:,} more such {'row' if more == 1 else 'rows'}" if more else ""
        raise InputError(
            f"{where}: {after['id']} has two rows in one week, {row_in(where, before['row'])} "
            f"and {row_in(where, after['row'])} (time {times}){also}; expected one row for each "
            "person and week."
        )
