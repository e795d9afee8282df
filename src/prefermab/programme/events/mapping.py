"""The map: a small text file that says what the columns of a table of events mean.

Conditions and values are SQL expressions, as polars reads them: a column's name (in double quotes
if it holds blanks), `=`, `>=`, `AND`, `IN (...)`, `LIKE`, `CASE WHEN ... THEN ... END`. They can
only use the columns of the table.
"""

import datetime
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import polars as pl

from prefermab.common.files import check_file
from prefermab.errors import InputError, brief, list_names
from prefermab.programme.tables.columns import named_column

LARGEST_MAP = 1 << 20
"""The largest size of a map, in bytes."""

NonEmptyText = Annotated[str, msgspec.Meta(min_length=1)]
Several = Literal["last", "first", "worst", "max", "min", "sum", "mean", "count", "any"]


class Part(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A part of a map; a field that it does not have is an error."""


class StateMap(Part):
    """How the state of a person in a round follows from the events in it."""

    value: NonEmptyText
    """The value of each event: a column or an expression."""
    several: Several = "last"
    """How the values of several events in a round are combined."""
    order: list[str] = []
    """For `worst`: all values from the worst to the best."""
    labels: dict[str, str] = {}
    """Labels with their conditions on `value`; the first label whose condition holds is taken."""
    no_event: str | None = None
    """The label of a round without any event; the state is unknown there if this is left out."""
    carry: bool = False
    """Whether a person's last known state fills later rounds with an unknown state. Then a state
    says what is known of a person, and not how they are."""
    of: Literal["this round", "next round"] = "this round"
    """`next round` means that the value is the outcome of the action in the same event, so that it
    is the state of the next round."""


class ActionMap(Part):
    """What was done in a round."""

    nothing: NonEmptyText
    """The label of a round in which nothing was done."""
    labels: dict[str, str]
    """Labels with their conditions; a round gets the first label whose condition holds for any of
    its events."""
    unknown: str | None = None
    """A condition: it holds for events of which it is not known what was done."""


class PeopleMap(Part):
    """Features of people, from another table or from the events themselves."""

    features: dict[str, str]
    """Names of features, each with its column or expression."""
    table: str | None = None
    """The path of the table, relative to the map; the table of events if left out."""
    who: str | None = None
    """The column with the person, if its name differs from that in the events."""
    keep: str | None = None
    """A condition: only rows in which it holds are used."""


class JoinMap(Part):
    """Another table, whose columns are added to each event."""

    table: NonEmptyText
    """The path of the table, relative to the map."""
    on: dict[str, str]
    """Columns of the events, each with the column of the other table that must be equal to it."""
    prefix: str = ""
    """A prefix for the names of the other table's columns."""


class WideMap(Part):
    """How a table with a row for each answer gets a column for each answer."""

    by: list[str]
    """Columns that identify the event to which a row belongs."""
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
    """The format of dates, such as %d/%m/%Y; excel, unix or unix_ms for numbers."""
    week_starts: Literal["monday", "sunday", "saturday", "friday"] = "monday"
    first: datetime.date | int | None = None
    """The first day or number that is used; rounds are counted from it."""
    last: datetime.date | int | None = None
    """The last day or number that is used."""
    rows: Literal["events", "between", "all"] = "between"
    """Rounds that get a row: those with an event, all from a person's first to their last event, or
    all from the first to the last event of anybody."""
    keep: str | None = None
    """A condition: only events for which it holds are used."""
    unknown: list[str] = []
    """Texts that mean an unknown value, such as ---; empty cells are always unknown."""
    once: list[str] = []
    """Columns: of all events that are equal in them, only the last is used."""
    available: str | None = None
    """A condition: it holds if the person could be acted on."""
    reached: str | None = None
    """A condition: it holds if the action reached the person."""
    features: dict[str, str] = {}
    """Features of a person in a round, each with its last known value: names with expressions."""
    people: PeopleMap | None = None
    join: list[JoinMap] = []
    wide: WideMap | None = None
    dictionary: str | None = None
    """The path of REDCap's data dictionary, by which codes become labels."""


def read_map(given: Any) -> tuple[EventMap, str, Path]:
    """Reads a map from a file or a dictionary.

    Args:
        given: The path of a TOML file, or a dictionary.

    Returns:
        The map, its name in messages, and the folder to which its paths are relative.

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
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: it is not a map in TOML: {brief(error, 160)}.") from None
    return _convert(found, str(path)), str(path), path.parent


def _convert(found: dict[str, Any], where: str) -> EventMap:
    try:
        made = msgspec.convert(found, EventMap)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {brief(error, 200)}.") from None
    if made.state.several == "worst" and not made.state.order:
        raise InputError(f"{where}: state.several is worst, so state.order must list all values.")
    if made.action.nothing in made.action.labels:
        raise InputError(
            f"{where}: action.nothing, '{made.action.nothing}', must not be one of action.labels."
        )
    return made


def column_or_expression(
    frame: pl.DataFrame, text: str, source: str, where: str, name: str
) -> pl.Series:
    """A column, which must exist, or the value of an expression: a text with brackets is one.

    Args:
        frame: The table.
        text: The name of a column, or an expression such as COALESCE(a, b).
        source: The name of the table in messages.
        where: The name of the map in messages.
        name: The name of the expression in messages, such as who.

    Returns:
        A value for each row; the values of an expression get the name `name`.

    >>> import polars as pl
    >>> from prefermab.programme.events.mapping import column_or_expression
    >>> wells = pl.DataFrame({"deep": ["d1", None], "shallow": [None, "s7"]})
    >>> column_or_expression(wells, "COALESCE(deep, shallow)", "a.csv", "the map", "who").to_list()
    ['d1', 's7']
    """
    if "(" in text and text not in frame.columns:
        return evaluate_expression(frame, text, where, name).alias(name)
    return named_column(frame, text, source)


def evaluate_expression(frame: pl.DataFrame, text: str, where: str, name: str) -> pl.Series:
    """A column of the table, or the value of an expression in each row.

    Args:
        frame: The table.
        text: The name of a column, or an expression in SQL.
        where: The name of the map in messages.
        name: The name of the expression in messages, such as state.value.

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
        raise InputError(f"{where}: {name} cannot be evaluated: {brief(why, 160)}.") from None
    return made if len(made) == frame.height else made.new_from_index(0, frame.height)
