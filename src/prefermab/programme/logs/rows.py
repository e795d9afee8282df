"""The rows of a log: which column is what, who a row is about and in which round it is."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.programme.columns import as_flags, as_labels, column
from prefermab.programme.logs.columns import times
from prefermab.programme.tables import first_row, row_in

FLAGS = ("available", "reached")
"""Columns of true and false that a log may have; they are read by these names if none is given."""

UNITS = {"d": 1, "w": 7, "m": 30}
"""Days in a unit of `every`. Months differ by a day or two, which is early or late enough."""


def role_columns(
    given: pl.DataFrame, roles: dict[str, str], flags: dict[str, str | None], where: str
) -> dict[str, pl.Series]:
    """The columns that have a role, under their own names. Columns of flags may be missing where
    they were not asked for."""
    if given.width == 1:
        raise InputError(
            f"{where}: only one column was found, '{given.columns[0]}'; the separator may be "
            "wrong: expected commas."
        )
    plain = {name.strip().lower() for name in given.columns}
    asked = {role: name or role for role, name in flags.items() if name or role in plain}
    found = {role: _role(given, role, name, where) for role, name in (roles | asked).items()}
    for role, values in found.items():
        for other, same in found.items():
            if role < other and values.name == same.name:
                raise InputError(
                    f"{where}: {role} and {other} are both the column '{values.name}'."
                )
    return found


def _role(given: pl.DataFrame, role: str, name: str, where: str) -> pl.Series:
    try:
        return column(given, name, where)
    except InputError as error:
        hint = f"name yours with {role}=... (--{role} on the command line)"
        raise InputError(f"{str(error).removesuffix('.')}: {hint}.") from None


def features_frame(
    given: pl.DataFrame,
    roles: dict[str, pl.Series],
    features: Sequence[str] | None,
    where: str,
) -> pl.DataFrame:
    """The columns that give features: those that were named, or all that have no other role."""
    used = {values.name: role for role, values in roles.items()}
    if features is None:
        return given.select(name for name in given.columns if name not in used)
    names = [column(given, str(name), where).name for name in features]
    if len(set(names)) < len(names):
        raise InputError(f"{where}: features must be different columns, not {', '.join(names)}.")
    for name in names:
        if used.get(name) in FLAGS:
            raise InputError(
                f"{where}: the column '{name}' says who was {used[name]} and cannot be a feature "
                "too; leave it out of the features."
            )
    return given.select(names)


def rows_of(roles: dict[str, pl.Series], every: Any, where: str) -> pl.DataFrame:
    """Rows in the order of people and time, each with its place in the file (row), the person, the
    round, the rounds since the row before (steps), the labels of state and action, and whether
    the person was available and reached."""
    ids, time = roles["id"], roles["time"]
    if ids.null_count():
        row = first_row(ids.is_null())
        raise InputError(f"{where}: {row_in(where, row)} has no id in the column '{ids.name}'.")
    who, when = as_labels(ids), times(time, where)
    rows = pl.DataFrame(
        {
            "row": np.arange(len(ids)),
            "id": who,
            "person": who.rank("dense").cast(pl.Int64) - 1,
            "time": when,
            "state": as_labels(roles["state"]),
            "action": as_labels(roles["action"]),
            **{flag: _flag(roles.get(flag), len(ids), where) for flag in FLAGS},
        }
    ).sort("person", "time", "row")
    since = pl.col("time").diff().over("person")
    shown = (time.cast(pl.Date) if time.dtype.is_temporal() else time).cast(pl.String)
    rows = rows.with_columns(since=since, shown=shown.gather(rows["row"]))
    gaps = rows["since"].drop_nulls()
    if gaps.is_empty():
        raise InputError(f"{where}: no person has two rows; expected one for each week.")
    usual = int(gaps.filter(gaps > 0).mode().min() or 1)  # pyright: ignore[reportArgumentType]
    apart = usual if every is None else _length(every, dates=are_dates(time, rows), where=where)
    # Half a round early or late is still that round: weeks are not always seven days.
    rows = rows.with_columns(
        steps=(2 * pl.col("since") + apart) // (2 * apart),
        round=(pl.col("time") - pl.col("time").min()) // apart,
        apart=pl.lit(apart),
    )
    _check_twice(rows, where)
    return rows


def are_dates(time: pl.Series, rows: pl.DataFrame) -> bool:
    """Whether times are dates and not numbers; they may be written as text."""
    return not time.dtype.is_numeric() and "-" in str(rows["shown"][0])[1:]


def _flag(values: pl.Series | None, size: int, where: str) -> pl.Series:
    """True where nothing else is said."""
    return pl.repeat(True, size, eager=True) if values is None else as_flags(
        values, where, unknown=True
    )  # fmt: skip


def _length(every: Any, *, dates: bool, where: str) -> int:
    """The length of a round as somebody wrote it: 7, 7d, 2w or 1m.

    >>> from prefermab.programme.logs.rows import _length
    >>> [_length(text, dates=True, where="the log") for text in (14, "7d", "2w", "1m")]
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


def _check_twice(rows: pl.DataFrame, where: str) -> None:
    twice = (rows["steps"] == 0).fill_null(False)
    if twice.any():
        at = first_row(twice)
        before, after = rows.row(at - 1, named=True), rows.row(at, named=True)
        times_ = before["shown"]
        if before["time"] != after["time"]:
            times_ = f"{times_} and {after['shown']}, where rounds are {rows['apart'][0]} apart"
        more = int(twice.sum()) - 1
        also = f", and {more:,} more such {'row' if more == 1 else 'rows'}" if more else ""
        raise InputError(
            f"{where}: {after['id']} has two rows in one week, {row_in(where, before['row'])} "
            f"and {row_in(where, after['row'])} (time {times_}){also}; expected one row for each "
            "person and week."
        )
