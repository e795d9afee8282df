"""Converts frames of people to what is stored, and back.

Details of people (every column except id and state) are stored as one JSON text for each person. A
column keeps the kind of its first values, so that frames are read as they were stored. The inputs
and the output of a plan are stored as bytes.
"""

import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.programme.planning.roster import SINCE_ACTION, SINCE_SEEN
from prefermab.programme.store.models import Planner
from prefermab.programme.tables.cleaning import clean_ids
from prefermab.programme.tables.columns import (
    as_amounts,
    as_counts,
    as_flags,
    as_numbers,
    check_ids,
    column,
    is_whole,
    optional_column,
    rename_known,
    source_columns,
)
from prefermab.programme.tables.naming import OPT_IN, is_opt_out, refuse_similar_names
from prefermab.programme.tables.table import as_frame, first_row, row_in

TYPES_BY_KIND = {"whole": pl.Int64, "number": pl.Float64, "truth": pl.Boolean, "text": pl.String}
MOST_DETAILS = 5_000
"""The most columns about people that a programme takes; planning becomes slow with more."""

BEFORE = "last_action_before"
"""The stored round of a person's last action before they joined, from `rounds_since_action` in the
table of new people; 0 or less if that was before the programme began."""


def read_ids(frame: pl.DataFrame, where: str) -> pl.Series:
    """The ids of a frame as whole numbers or text; an error if one is missing or not unique."""
    ids = clean_ids(column(frame, "id", where)).alias("id")
    if ids.dtype.is_integer() or is_whole(ids) or not len(ids):
        whole = ids.cast(pl.Int64, strict=False)
        if whole.null_count() > ids.null_count():
            row = first_row(whole.is_null() & ids.is_not_null())
            raise InputError(f"{where}: {row_in(where, row)}: the id {ids[row]} is too large.")
        ids = whole
    if ids.dtype not in (pl.Int64, pl.String, pl.Null):
        raise InputError(f"{where}: an id must be a whole number or text, not {ids.dtype}.")
    check_ids(ids, where)
    return ids


def as_ids(given: Any, where: str) -> pl.Series:
    """Ids from a list, a series, the column of a frame, or a single id."""
    if isinstance(given, str | int):
        given = [given]
    if isinstance(given, pl.Series):
        return read_ids(given.alias("id").to_frame(), where)
    if isinstance(given, pl.DataFrame | pl.LazyFrame) or hasattr(given, "columns"):
        return read_ids(as_frame(given, where), where)
    if not isinstance(given, Iterable):
        raise InputError(f"{where}: expected ids, not {type(given).__name__}.")
    try:
        return read_ids(pl.Series("id", list(given)).to_frame(), where)
    except (TypeError, pl.exceptions.PolarsError):
        raise InputError(f"{where}: ids must be all whole numbers or all text.") from None


def read_details(
    model: Planner, frame: pl.DataFrame, where: str, known: Iterable[str] = ()
) -> pl.DataFrame:
    """All columns except id and state, with types that can be stored: features as numbers, opt_in
    as true and false, dates as text. Names in `known` and those of the model get that spelling. A
    column `opt_out` may be stored, since a rule can name it.
    """
    costs = [f"cost_{action}" for action in model.action_names[1:]]
    columns = source_columns(model.feature_names)
    numbers = {name for name, levels in columns.items() if levels is None}
    read = ["id", "state", OPT_IN, SINCE_ACTION, SINCE_SEEN, BEFORE, *costs, *columns]
    refuse_similar_names(
        [name for name in frame.columns if not is_opt_out(name)], read, where,
        "give it another name", known,
    )  # fmt: skip
    found = []
    for values in rename_known(frame, [*read, *known], where).get_columns():
        name = values.name
        if name in ("id", "state"):
            continue
        if name in (SINCE_ACTION, SINCE_SEEN, BEFORE):
            raise InputError(
                f"{where}: leave out the column '{name}': the programme computes it itself."
            )
        if name == OPT_IN:
            values = as_flags(values, where, unknown=False)
        elif name in costs:
            values = as_amounts(values, where)
        else:
            values = _storable(values, name in numbers, where)
        found.append(values.alias(name))
    return pl.DataFrame(found)


def split_last_action(
    frame: pl.DataFrame, now: int, where: str
) -> tuple[pl.DataFrame, list[pl.Series]]:
    """The frame without `rounds_since_action`, and that column converted to rounds of actions."""
    given = optional_column(frame, SINCE_ACTION, where)
    if given is None:
        return frame, []
    since = as_counts(given, where)
    return frame.drop(given.name), [(now - since.cast(pl.Int64)).alias(BEFORE)]


def column_kinds(details: pl.DataFrame, known: dict[str, str], where: str) -> dict[str, str]:
    """The kind of each column, known ones first; an error if the kind of a column changes."""
    kinds = dict(known)
    by_type = {kind: name for name, kind in TYPES_BY_KIND.items()}
    for name, values in zip(details.columns, details.get_columns(), strict=True):
        if values.dtype == pl.Null:
            continue
        new, old = by_type[type(values.dtype)], known.get(name)
        numbers = {"whole", "number"}
        if old is not None and new != old and not {new, old} <= numbers:
            raise InputError(
                f"{where}: the column '{name}' holds {_kind_name(new)}, but held "
                f"{_kind_name(old)} before."
            )
        kinds[name] = new if old is None or old == "whole" else old
    if len(kinds) > max(len(known), MOST_DETAILS):
        raise InputError(
            f"{where}: with its columns the programme would have {len(kinds):,} columns about "
            f"people, and it can have {MOST_DETAILS:,}; leave out those that it does not need."
        )
    return kinds


def to_json(details: pl.DataFrame, height: int) -> list[str]:
    """A JSON text for each person."""
    if not details.width:
        return ["{}"] * height
    return details.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_list()


def from_json(texts: Sequence[str], kinds: dict[str, str]) -> pl.DataFrame:
    """The columns in JSON texts; null where a value is unknown."""
    if not kinds:
        return pl.DataFrame()
    fields = pl.Struct({name: TYPES_BY_KIND[kind] for name, kind in kinds.items()})
    return pl.Series(texts, dtype=pl.String).str.json_decode(fields).struct.unnest()


def pack(frame: pl.DataFrame) -> bytes:
    """The bytes of a frame as a compressed Arrow file.

    >>> import polars as pl
    >>> from prefermab.programme.store.frames import pack, unpack
    >>> frame = pl.DataFrame({"id": [1, 2], "state": ["good", None]})
    >>> unpack(pack(frame)).equals(frame)
    True
    """
    out = io.BytesIO()
    frame.rechunk().write_ipc(out, compression="zstd")
    return out.getvalue()


def unpack(data: bytes) -> pl.DataFrame:
    """The frame that `pack` turned into these bytes."""
    return pl.read_ipc(io.BytesIO(data))


def first_difference(one: pl.DataFrame, other: pl.DataFrame) -> str | None:
    """The first difference between two frames in words; None if every bit is the same.

    >>> import polars as pl
    >>> from prefermab.programme.store.frames import first_difference
    >>> one = pl.DataFrame({"id": [7], "x": [0.0]})
    >>> first_difference(one, pl.DataFrame({"id": [7], "x": [-0.0]}))
    "'x' of 7 is 0.0 in one and -0.0 in the other"
    """
    if one.height != other.height:
        return f"one has {one.height} rows and the other {other.height}"
    if one.columns != other.columns:
        odd = sorted(set(one.columns) ^ set(other.columns))
        return f"the column '{odd[0]}' is in only one" if odd else "the order of columns differs"
    for name in one.columns:
        left, right = one[name], other[name]
        if left.dtype != right.dtype:
            return f"'{name}' is {left.dtype} in one and {right.dtype} in the other"
        same = _bits(left).eq_missing(_bits(right))
        if not same.all():
            row = first_row(~same)
            who = one["id"][row] if "id" in one.columns else f"row {row + 1}"
            return f"'{name}' of {who} is {left[row]} in one and {right[row]} in the other"
    return None


def _storable(values: pl.Series, is_number: bool, where: str) -> pl.Series:
    """A column as one of the kinds that are stored."""
    if is_number or values.dtype.is_float() or values.dtype.is_decimal():
        return as_numbers(values, where)
    if values.dtype.is_integer():
        return values.cast(pl.Int64)
    if values.dtype.is_temporal() or isinstance(values.dtype, pl.Categorical | pl.Enum):
        return values.cast(pl.String)
    if values.dtype not in (pl.Boolean, pl.String, pl.Null):
        raise InputError(
            f"{where}: the column '{values.name}' must hold numbers, text or true and false, "
            f"not {values.dtype}."
        )
    return values


def _kind_name(kind: str) -> str:
    return {"truth": "true and false", "text": "text"}.get(kind, "numbers")


def _bits(values: pl.Series) -> pl.Series:
    """Floats as their bits, so that 0.0 differs from -0.0; nulls stay null."""
    if not values.dtype.is_float():
        return values
    whole = values.fill_null(0.0).to_numpy().astype(np.float64).view(np.int64)
    return pl.Series(values.name, whole).set(values.is_null(), None)
