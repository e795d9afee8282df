"""What frames say of people: ids, states, and everything else that is known of them.

What is known beyond the state is kept as JSON, a text for each person; every column has a kind
that it keeps from its first appearance on, so that frames come out as they went in.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from prefermab.errors import InputError
from prefermab.tables import as_flags, as_frame, as_numbers, check_ids, column, is_whole

KINDS = {"whole": pl.Int64, "number": pl.Float64, "truth": pl.Boolean, "text": pl.String}
SINCE_ACTION, SINCE_SEEN = "rounds_since_action", "rounds_since_seen"
"""Columns that the programme counts itself."""


def read_ids(frame: pl.DataFrame, where: str) -> pl.Series:
    """Ids as whole numbers or text: none missing, none twice."""
    ids = column(frame, "id", where).alias("id")
    if ids.dtype.is_integer() or is_whole(ids) or not len(ids):
        ids = ids.cast(pl.Int64)
    elif isinstance(ids.dtype, pl.Categorical | pl.Enum):
        ids = ids.cast(pl.String)
    if ids.dtype not in (pl.Int64, pl.String, pl.Null):
        raise InputError(f"{where}: an id must be a whole number or text, not {ids.dtype}.")
    check_ids(ids, where)
    return ids


def ids_of(given: Any, where: str) -> pl.Series:
    """Ids as a list, as the column of a frame, or a single one."""
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


def read_details(model: Any, frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """Every other column as one of the kinds that are kept: features as numbers, opt_in as truth,
    dates as text."""
    found = []
    for name in frame.columns:
        if name.strip().lower() in ("id", "state"):
            continue
        values = frame[name]
        if name in (SINCE_ACTION, SINCE_SEEN):
            raise InputError(f"{where}: leave out the column '{name}', the programme counts it.")
        if name == "opt_in":
            values = as_flags(values, where, unknown=False)
        elif name in model.feature_names or values.dtype.is_float() or values.dtype.is_decimal():
            values = as_numbers(values, where)
        elif values.dtype.is_integer():
            values = values.cast(pl.Int64)
        elif values.dtype.is_temporal() or isinstance(values.dtype, pl.Categorical | pl.Enum):
            values = values.cast(pl.String)
        elif values.dtype not in (pl.Boolean, pl.String, pl.Null):
            raise InputError(
                f"{where}: the column '{name}' must hold numbers, text or true and false, "
                f"not {values.dtype}."
            )
        found.append(values.alias(name))
    return pl.DataFrame(found)


def kinds_of(details: pl.DataFrame, known: dict[str, str], where: str) -> dict[str, str]:
    """The kind of each column, those known before first; one that changes is an error."""
    kinds = dict(known)
    by_type = {kind: name for name, kind in KINDS.items()}
    for name, values in zip(details.columns, details.get_columns(), strict=True):
        if values.dtype == pl.Null:
            continue
        new, old = by_type[type(values.dtype)], known.get(name)
        numbers = {"whole", "number"}
        if old is not None and new != old and not {new, old} <= numbers:
            raise InputError(
                f"{where}: the column '{name}' holds {_told(new)}, but held {_told(old)} before."
            )
        kinds[name] = new if old is None or old == "whole" else old
    return kinds


def to_json(details: pl.DataFrame, height: int) -> list[str]:
    """A text for each person."""
    if not details.width:
        return ["{}"] * height
    return details.select(pl.struct(pl.all()).struct.json_encode()).to_series().to_list()


def from_json(texts: Sequence[str], kinds: dict[str, str]) -> pl.DataFrame:
    """The columns that were kept, null where nothing is known."""
    if not kinds:
        return pl.DataFrame(height=len(texts))
    fields = pl.Struct({name: KINDS[kind] for name, kind in kinds.items()})
    return pl.Series(texts, dtype=pl.String).str.json_decode(fields).struct.unnest()


def _told(kind: str) -> str:
    return {"truth": "true and false", "text": "text"}.get(kind, "numbers")
