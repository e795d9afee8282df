"""The map: a small text file that says what the columns of a table of events mean.

Conditions and values are written in SQL, as polars reads it: a column's name (in double quotes if
it holds blanks), `=`, `>=`, `AND`, `IN (...)`, `LIKE`, `CASE WHEN ... THEN ... END`. They can only
look at the columns of the table.
"""

import datetime
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import polars as pl

from prefermab.errors import InputError, brief, list_names
from prefermab.files import check_file
from prefermab.programme.columns import column

LARGEST_MAP = 1 << 20
"""Bytes of the largest map."""

NonEmptyText = Annotated[str, msgspec.Meta(min_length=1)]
Several = Literal["last", "first", "worst", "max", "min", "sum", "mean", "count", "any"]


class Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A part of a map: fields that are not known are mistakes."""


class StateMap(Part):
    """How the state of a person in a round follows from the events in it."""

    value: NonEmptyText
    """What is looked at in each event: a column or an expression."""
    several: Several = "last"
    """What counts where a round has several events."""
    order: list[str] = []
    """For `worst`: all values from the worst to the best."""
    labels: dict[str, str] = {}
    """Labels with their conditions on `value`; the first that holds counts."""
    no_event: str | None = None
    """The label of a round without any event; without one, the state is unknown."""
    carry: bool = False
    """Whether a person's last known state holds where none is known: then a state says what is
    known of a person, and not how they are."""
    of: Literal["this round", "next round"] = "this round"
    """`next round`: the value is the outcome of the action beside it, seen a round later."""


class ActionMap(Part):
    """What was done in a round."""

    nothing: NonEmptyText
    """The label of a round in which nothing was done."""
    labels: dict[str, str]
    """Labels with their conditions on an event; the first that holds for any event counts."""
    unknown: str | None = None
    """A condition: of such an event it is not known what was done."""


class PeopleMap(Part):
    """What is known of people: a table of its own, or those events that `keep` says."""

    features: dict[str, str]
    """Names of features, each with its column or expression."""
    table: str | None = None
    """The table; its place is relative to the map. Without one, it is the table of events."""
    who: str | None = None
    """The column with the person, if its name differs from that in the events."""
    keep: str | None = None
    """A condition: which rows count."""


class JoinMap(Part):
    """Another table whose columns are put beside each event."""

    table: NonEmptyText
    """The table; its place is relative to the map."""
    on: dict[str, str]
    """Columns of the events, each with the column of the other table that must be equal to it."""
    prefix: str = ""
    """What is put before the names of the other table's columns."""


class WideMap(Part):
    """Tables with a row for each answer: answers become columns."""

    by: list[str]
    """Columns that say which event a row belongs to."""
    names: NonEmptyText
    """The column with the name of the answer."""
    values: NonEmptyText
    """The column with the answer."""


class EventMap(Part):
    """A whole map."""

    who: NonEmptyText
    """The column with the person, or an expression where several columns hold it."""
    when: NonEmptyText
    """The column with the date, or a whole number; or an expression."""
    round: str | int
    """The length of a round: 7d, 1w, 1m, 1q, 1y, or a whole number if `when` holds numbers."""
    state: StateMap
    action: ActionMap
    form: str | None = None
    """How dates are written, such as %d/%m/%Y; excel, unix or unix_ms for numbers."""
    week_starts: Literal["monday", "sunday", "saturday", "friday"] = "monday"
    first: datetime.date | int | None = None
    """The first day or number that counts; rounds are counted from it."""
    last: datetime.date | int | None = None
    """The last day or number that counts."""
    rows: Literal["events", "between", "all"] = "between"
    """Rounds that get a row: those with an event, all between a person's first and last event, or
    all between the first and the last event of anybody."""
    keep: str | None = None
    """A condition: which events count."""
    unknown: list[str] = []
    """Cells that mean that a value is unknown, such as ---; empty ones always do."""
    once: list[str] = []
    """Columns; of events in which all of them are equal only the last one counts."""
    available: str | None = None
    """A condition: who could be acted on."""
    reached: str | None = None
    """A condition: whom the action reached."""
    features: dict[str, str] = {}
    """What is known of a person in a round, from its last event: names with expressions."""
    people: PeopleMap | None = None
    join: list[JoinMap] = []
    wide: WideMap | None = None
    dictionary: str | None = None
    """REDCap's data dictionary: codes become labels."""


def read_map(given: Any) -> tuple[EventMap, str, Path]:
    """A map from a file or a dictionary.

    Args:
        given: The path of a TOML file, the name of a map that ships, or a dictionary.

    Returns:
        The map, what messages call it, and the folder that tables in it are relative to.

    >>> from prefermab.programme.events.mapping import read_map
    >>> read_map({"who": "id", "when": "day", "round": "1w"})
    Traceback (most recent call last):
        ...
    prefermab.errors.InputError: the map: Object missing required field `state`.
    """
    if isinstance(given, Mapping):
        return _convert(dict(given), "the map"), "the map", Path()
    path = Path(given)
    check_file(path, most=LARGEST_MAP)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: it is not a map in TOML: {brief(error, 160)}.") from None
    return _convert(found, str(path)), str(path), path.parent


def _convert(found: dict[str, Any], where: str) -> EventMap:
    try:
        made = msgspec.convert(found, EventMap)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {brief(error, 200)}.") from None
    if made.state.several == "worst" and not made.state.order:
        raise InputError(f"{where}: state.several is worst: state.order must list all values.")
    if made.action.nothing in made.action.labels:
        raise InputError(
            f"{where}: action.nothing, '{made.action.nothing}', is among action.labels too."
        )
    return made


def named(frame: pl.DataFrame, text: str, source: str, where: str, name: str) -> pl.Series:
    """A column that must be there, or what an expression makes of several: one with brackets.

    Args:
        frame: The table.
        text: The name of a column, or an expression such as COALESCE(a, b).
        source: What a message calls the table.
        where: What a message calls the map.
        name: What a message calls the expression, such as who.

    Returns:
        A value for each row; an expression is called by `name`.

    >>> import polars as pl
    >>> from prefermab.programme.events.mapping import named
    >>> wells = pl.DataFrame({"deep": ["d1", None], "shallow": [None, "s7"]})
    >>> named(wells, "COALESCE(deep, shallow)", "wells.csv", "the map", "who").to_list()
    ['d1', 's7']
    """
    if "(" in text and text not in frame.columns:
        return evaluate_expression(frame, text, where, name).alias(name)
    return column(frame, text, source)


def evaluate_expression(frame: pl.DataFrame, text: str, where: str, name: str) -> pl.Series:
    """A column of the table, or what an expression makes of its columns.

    Args:
        frame: The table.
        text: The name of a column, or an expression in SQL.
        where: What a message calls the map.
        name: What a message calls the expression, such as state.value.

    Returns:
        A value for each row.
    """
    if text in frame.columns:
        return frame[text]
    try:
        expression = pl.sql_expr(text)
        missing = [one for one in expression.meta.root_names() if one not in frame.columns]
        if missing:
            raise InputError(
                f"{where}: {name} uses the column '{missing[0]}', which is missing; found "
                f"{list_names(frame.columns)}."
            )
        made = frame.select(expression.alias("value")).to_series()
    except pl.exceptions.PolarsError as error:
        why = " ".join(str(error).split())
        raise InputError(f"{where}: {name} cannot be worked out: {brief(why, 160)}.") from None
    return made if len(made) == frame.height else made.new_from_index(0, frame.height)
