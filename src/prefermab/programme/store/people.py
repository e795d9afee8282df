"""What frames say of people: ids, states, and everything else that is known of them.

What is known beyond the state is kept as JSON, a text for each person; every column has a kind
that it keeps from its first appearance on, so that frames come out as they went in.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import polars as pl

from prefermab.errors import InputError
from prefermab.programme.columns import as_flags, as_numbers, check_ids, column, is_whole
from prefermab.programme.tables import as_frame, first_row, row_in

KINDS = {"whole": pl.Int64, "number": pl.Float64, "truth": pl.Boolean, "text": pl.String}
SINCE_ACTION, SINCE_SEEN = "rounds_since_action", "rounds_since_seen"
"""Columns that the programme counts itself."""
BEFORE = "last_action_before"
"""The round of the last action before somebody joined, 0 or less where the programme had not begun;
kept because people came with `rounds_since_action`."""


def read_ids(frame: pl.DataFrame, where: str) -> pl.Series:
    """Ids as whole numbers or text: none missing, none blank, none twice."""
    ids = column(frame, "id", where).alias("id")
    if ids.dtype.is_integer() or is_whole(ids) or not len(ids):
        whole = ids.cast(pl.Int64, strict=False)
        if whole.null_count() > ids.null_count():
            row = first_row(whole.is_null() & ids.is_not_null())
            raise InputError(f"{where}: {row_in(where, row)}: the id {ids[row]} is too large.")
        ids = whole
    elif isinstance(ids.dtype, pl.Categorical | pl.Enum):
        ids = ids.cast(pl.String)
    if ids.dtype not in (pl.Int64, pl.String, pl.Null):
        raise InputError(f"{where}: an id must be a whole number or text, not {ids.dtype}.")
    if ids.dtype == pl.String:
        ids = ids.set(ids.str.strip_chars() == "", None)
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


def read_details(
    model: Any, frame: pl.DataFrame, ids: pl.Series, where: str, known: Iterable[str] = ()
) -> pl.DataFrame:
    """Every other column as one of the kinds that are kept: features as numbers, opt_in as truth,
    dates as text. A column that is `known`, or that the model knows, is so in any case of letters.
    """
    costs = [f"cost_{action}" for action in model.action_names[1:]]
    heads = [name.partition("=")[0] for name in model.feature_names]
    numbers = {name for name in model.feature_names if "=" not in name}
    names = spelled(frame, ["id", "state", "opt_in", *costs, *heads, *known], where)
    found = []
    for name, values in zip(names, frame.get_columns(), strict=True):
        if name in ("id", "state"):
            continue
        if name in (SINCE_ACTION, SINCE_SEEN, BEFORE):
            raise InputError(f"{where}: leave out the column '{name}', the programme counts it.")
        if name == "opt_in":
            values = as_flags(values, where, unknown=False)
        elif name in costs:
            values = _costs(values, ids, where)
        else:
            values = _kept(values, name in numbers, where)
        found.append(values.alias(name))
    return pl.DataFrame(found)


def spelled(frame: pl.DataFrame, known: Iterable[str], where: str) -> list[str]:
    """The names of a frame's columns, as they are spelled elsewhere; none stands twice.

    >>> import polars as pl
    >>> from prefermab.programme.store.people import spelled
    >>> spelled(pl.DataFrame({"ID": [1], "Age ": [30], "Town": [""]}), ["id", "age"], "join")
    ['id', 'age', 'Town']
    """
    plain = {name.strip().lower(): name for name in (SINCE_ACTION, SINCE_SEEN, BEFORE, *known)}
    names = [plain.get(name.strip().lower(), name) for name in frame.columns]
    for place, name in enumerate(names):
        if name in names[:place]:
            first = frame.columns[names.index(name)]
            raise InputError(
                f"{where}: the columns '{first}' and '{frame.columns[place]}' are the same one."
            )
    return names


def acted_before(
    frame: pl.DataFrame, ids: pl.Series, now: int, where: str
) -> tuple[pl.DataFrame, list[pl.Series]]:
    """The frame without the rounds since the last action, and the round of it where they stood."""
    names = spelled(frame, (), where)
    if SINCE_ACTION not in names:
        return frame, []
    given = frame[:, names.index(SINCE_ACTION)]
    since = as_numbers(given, where)
    wrong = (since < 0) | (since != since.round())
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: {row_in(where, row)}, id {ids[row]}: the column '{given.name}' must hold "
            f"whole numbers of at least 0, not {given[row]}."
        )
    return frame.drop(given.name), [(now - since.cast(pl.Int64)).alias(BEFORE)]


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


def _costs(values: pl.Series, ids: pl.Series, where: str) -> pl.Series:
    """Costs of at least 0; an empty one is the model's."""
    costs = values.cast(pl.Float64, strict=False).fill_nan(None)
    wrong = (values.is_not_null() & costs.is_null()) | (costs < 0) | costs.is_infinite()
    if values.dtype.is_float():
        wrong &= values.is_not_nan()
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: {row_in(where, row)}, id {ids[row]}: the column '{values.name}' must hold "
            f"costs of at least 0, not '{values[row]}'."
        )
    return costs


def _kept(values: pl.Series, is_number: bool, where: str) -> pl.Series:
    """A column as one of the kinds that are kept."""
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


def _told(kind: str) -> str:
    return {"truth": "true and false", "text": "text"}.get(kind, "numbers")
