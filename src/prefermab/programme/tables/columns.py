"""Reads columns of a table as numbers, labels, flags, ids or states; errors name table and row."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import polars as pl

from prefermab.errors import (
    EXACT,
    MOST_NAMED,
    SMALLEST_AMOUNT,
    InputError,
    amount,
    brief,
    list_names,
)
from prefermab.programme.tables.cleaning import clean_ids
from prefermab.programme.tables.naming import find_name, find_named, match_names
from prefermab.programme.tables.table import first_row, row_in
from prefermab.programme.tables.values import is_number_text, parse_numbers

TRUE = (
    "true", "yes", "y", "1", "1.0", "t", "x", "✓",
    "oui", "vrai", "sí", "si", "verdadero", "sim", "verdadeiro", "ja", "wahr", "ndiyo",
)  # fmt: skip
FALSE = (
    "false", "no", "n", "0", "0.0", "f",
    "non", "faux", "falso", "não", "nao", "nein", "falsch", "hapana",
)  # fmt: skip
"""Words for true and false in English, French, Spanish, Portuguese, German and Swahili."""

LONGEST_ID = 1000
"""The most characters that an id may have."""

LARGEST_NUMBER = 1e30
"""Larger numbers are refused: they are mistakes, and may not fit into single precision."""


@runtime_checkable
class HasStates(Protocol):
    """The part of a model that is needed to read states."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the states in order."""
        ...

    @property
    def network(self) -> Any:
        """Its `perception.continuous` is true if states are numbers from 0 to 1."""
        ...


def column(frame: pl.DataFrame, name: str, where: str) -> pl.Series:
    """The column with this name, as `naming` matches names; an error if there is none, or two."""
    return _column(frame, name, find_name(frame.columns, name, where), where)


def named_column(frame: pl.DataFrame, name: str, where: str) -> pl.Series:
    """The column that a user named: the one that is spelled exactly so, or else as `column`."""
    return _column(frame, name, find_named(frame.columns, name, where), where)


def _column(frame: pl.DataFrame, name: str, found: str | None, where: str) -> pl.Series:
    if found is None:
        raise InputError(
            f"{where}: the column '{name}' is missing; found {list_names(frame.columns) or 'none'}."
        )
    return frame[found]


def optional_column(frame: pl.DataFrame, name: str, where: str) -> pl.Series | None:
    """The column with this name, or None; an error if there are two."""
    found = find_name(frame.columns, name, where)
    return None if found is None else frame[found]


def rename_known(frame: pl.DataFrame, known: Iterable[str], where: str) -> pl.DataFrame:
    """The table with known columns spelled as in `known`; an error if two are the same one.

    >>> import polars as pl
    >>> from prefermab.programme.tables.columns import rename_known
    >>> rename_known(pl.DataFrame({"ID": [1], "Opt-in": [True]}), ["id", "opt_in"], "join").columns
    ['id', 'opt_in']
    """
    return frame.rename({old: new for new, old in match_names(frame.columns, known, where).items()})


def check_plain(values: pl.Series, where: str) -> None:
    """Raises an error if a column holds lists, records or bytes instead of single values."""
    kind = values.dtype
    if kind.is_nested() or kind in (pl.Binary, pl.Object):
        raise InputError(
            f"{where}: the column '{values.name}' holds {kind} values; expected text, numbers or "
            "dates."
        )


def as_numbers(values: pl.Series, where: str) -> pl.Series:
    """Finite numbers, null where the value is unknown; texts such as 1 234,5 or 45% are numbers."""
    check_plain(values, where)
    if values.dtype == pl.Boolean:
        return values.cast(pl.Float64)
    if values.dtype.is_temporal():
        raise InputError(
            f"{where}: the column '{values.name}' must hold numbers, but it holds dates or times."
        )
    cast = values.cast(pl.Float64, strict=False)
    wrong = values.is_not_null() & cast.is_null()
    if wrong.any() and values.dtype == pl.String and is_number_text(values):
        cast = parse_numbers(values, where, first=getattr(where, "first_row", 1))
        wrong = values.is_not_null() & cast.is_null()
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' must hold numbers, but {row_in(where, row)} "
            f"holds '{brief(values[row])}'."
        )
    infinite = cast.is_infinite().fill_null(False)
    if infinite.any():
        row = first_row(infinite)
        raise InputError(
            f"{where}: the column '{values.name}' must hold finite numbers, but "
            f"{row_in(where, row)} holds {brief(values[row])}."
        )
    return cast.fill_nan(None)


def as_measures(values: pl.Series, where: str) -> pl.Series:
    """Numbers that a model can compute with, null where the value is unknown."""
    numbers = as_numbers(values, where)
    large = (numbers.abs() > LARGEST_NUMBER).fill_null(False)
    if large.any():
        row = first_row(large)
        raise InputError(
            f"{where}: the column '{values.name}' must hold numbers of at most {LARGEST_NUMBER:g}, "
            f"but {row_in(where, row)} holds {brief(values[row])}."
        )
    return numbers


def as_amounts(values: pl.Series, where: str) -> pl.Series:
    """Costs exactly as they are given, null where the value is unknown."""
    numbers = as_numbers(values, where)
    negative = (numbers < 0).fill_null(False)
    if negative.any():
        row = first_row(negative)
        raise InputError(
            f"{where}: the column '{values.name}' must hold costs of at least 0, but "
            f"{row_in(where, row)} holds {brief(values[row])}."
        )
    usual = (numbers == 0) | numbers.is_between(SMALLEST_AMOUNT, EXACT - 1)
    odd = ~usual.fill_null(True)
    # Texts with marks of thousands or decimals are checked where they are parsed.
    texts = values.dtype == pl.String
    plain = not texts or values.cast(pl.Float64, strict=False).fill_nan(None).equals(numbers)
    given = values if plain else numbers
    for value in given.filter(odd).unique(maintain_order=True):
        row = first_row(odd & (given == value))
        amount(value, f"{where}: the column '{values.name}' in {row_in(where, row)}")
    return numbers


def as_counts(values: pl.Series, where: str) -> pl.Series:
    """Whole numbers of at least 0, null where the value is unknown."""
    numbers = as_numbers(values, where).cast(pl.Float64)
    wrong = ((numbers < 0) | (numbers != numbers.round()) | (numbers >= EXACT)).fill_null(False)
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' must hold whole numbers of at least 0, but "
            f"{row_in(where, row)} holds {brief(values[row])}."
        )
    return numbers


def as_labels(values: pl.Series) -> pl.Series:
    """Text without outer blanks, null where a cell is empty; the number 3.0 is the label 3.

    >>> import polars as pl
    >>> from prefermab.programme.tables.columns import as_labels
    >>> as_labels(pl.Series([3.0, None])).to_list()
    ['3', None]
    """
    check_plain(values, "a table")
    text = values.cast(pl.String).str.strip_chars()
    if values.dtype.is_float():
        whole = (values == values.round()) & (values.abs() < 2**53)
        as_whole = values.cast(pl.Int64, strict=False).cast(pl.String)
        text = as_whole.zip_with(whole.fill_null(False), text).set(values.is_nan(), None)
    return text.set(text == "", None)


def as_flags(values: pl.Series, where: str, *, unknown: bool) -> pl.Series:
    """True and false, also written as yes and no or 1 and 0; `unknown` where a cell is empty."""
    check_plain(values, where)
    if values.dtype == pl.Boolean:
        return values.fill_null(unknown)
    text = as_labels(values).str.to_lowercase()
    wrong = text.is_not_null() & ~text.is_in((*TRUE, *FALSE))
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: the column '{values.name}' must hold true or false, but "
            f"{row_in(where, row)} holds '{brief(values[row])}'."
        )
    return text.is_in(TRUE).fill_null(unknown)


def level_feature(column: str, level: str) -> str:
    """The feature of one level of a category: 1 where the column holds this level, else 0.

    >>> from prefermab.programme.tables.columns import level_feature
    >>> level_feature("region", "north")
    'region=north'
    """
    return f"{column}={level}"


def source_columns(feature_names: Sequence[str]) -> dict[str, tuple[str, ...] | None]:
    """The columns that features are read from, each with the levels of its category, or None if it
    holds numbers.

    >>> from prefermab.programme.tables.columns import source_columns
    >>> source_columns(["age", "region=north", "region=south"])
    {'age': None, 'region': ('north', 'south')}
    """
    columns: dict[str, tuple[str, ...] | None] = {}
    for name in feature_names:
        column, equals, level = name.partition("=")
        columns[column] = (*(columns.get(column) or ()), level) if equals else None
    return columns


def is_whole(values: pl.Series) -> bool:
    """Whether a column of floats holds whole numbers only: so integers with gaps are often read."""
    if not values.dtype.is_float():
        return False
    whole = (values == values.round()) & (values.abs() < 2**53)
    return bool((values.is_null() | whole).all())


def id_column(frame: pl.DataFrame, where: str) -> pl.Series:
    """The ids of the people of a table, each of them once."""
    ids = clean_ids(column(frame, "id", where)).alias("id")
    check_ids(ids, where)
    return ids


def check_ids(ids: pl.Series, where: str) -> None:
    """Raises an error if an id is missing, too long or not unique."""
    check_plain(ids, where)
    text = as_labels(ids)
    if text.null_count():
        row = first_row(text.is_null())
        raise InputError(f"{where}: {row_in(where, row)} has no id.")
    long = text.str.len_chars() > LONGEST_ID
    if long.any():
        row = first_row(long)
        raise InputError(
            f"{where}: the id in {row_in(where, row)} has {len(text[row]):,} characters; expected "
            f"at most {LONGEST_ID:,}."
        )
    twice = ids.is_duplicated()
    if twice.any():
        rows = (twice & (ids == ids[first_row(twice)])).arg_true()
        raise InputError(
            f"{where}: the id {ids[int(rows[0])]} is in {row_in(where, rows[0])} and again in "
            f"{row_in(where, rows[1])}; expected one row for each person."
        )


def is_continuous(model: HasStates) -> bool:
    """Whether states are numbers from 0 to 1 rather than names."""
    return bool(model.network.perception.continuous)


def state_numbers(
    model: HasStates, given: pl.Series, ids: pl.Series, where: str, needed: pl.Series | None = None
) -> pl.Series:
    """States as numbers, null where a cell is empty.

    A state is given by its name or number. A state that the model does not know is an error, except
    in rows where `needed` is false.
    """
    if is_continuous(model):
        numbers = as_numbers(given, where)
        wrong = (numbers < 0) | (numbers > 1)
    else:
        places = {str(place): place for place in range(len(model.state_names))}
        places |= {name.lower(): place for place, name in enumerate(model.state_names)}
        text = as_labels(given).str.to_lowercase()
        numbers = text.replace_strict(places, default=None, return_dtype=pl.Int64)
        wrong = text.is_not_null() & numbers.is_null()
    if needed is not None:
        wrong &= needed
    if wrong.any():
        row = first_row(wrong)
        raise InputError(
            f"{where}: {row_in(where, row)}, id {brief(ids[row])}, has the state "
            f"'{brief(given[row])}'; expected {expected_state(model)}."
        )
    return numbers.alias("state")


def expected_state(model: HasStates) -> str:
    """The states that a model knows, in words."""
    if is_continuous(model):
        return "a number from 0 to 1"
    names = model.state_names
    return f"one of {', '.join(names if len(names) <= MOST_NAMED else (names[0], '…', names[-1]))}"
