"""Prepares the table of events: answers become columns, tables are joined, codes become labels."""

from pathlib import Path
from typing import Any

import polars as pl

from prefermab.errors import InputError, list_names
from prefermab.programme.events.mapping import (
    EventMap,
    JoinMap,
    WideMap,
    column_or_expression,
    evaluate_expression,
)
from prefermab.programme.events.rounds import read_flags
from prefermab.programme.tables.address import parse_address
from prefermab.programme.tables.cleaning import clean_ids, plain_numbers
from prefermab.programme.tables.columns import as_labels, named_column
from prefermab.programme.tables.table import as_frame, first_row, read_table, row_in, source_of

FIELD_NAME, FIELD_TYPE, FIELD_CHOICES = (
    "Variable / Field Name",
    "Field Type",
    "Choices, Calculations, OR Slider Labels",
)
"""Columns of REDCap's data dictionary."""

API_NAMES = {
    "field_name": FIELD_NAME,
    "field_type": FIELD_TYPE,
    "select_choices_or_calculations": FIELD_CHOICES,
}
"""Names of the same columns in REDCap's API."""


def read_events(events: Any, mapping: EventMap, folder: Path) -> tuple[pl.DataFrame, str]:
    """The table of events with everything that the map adds, and its name in messages."""
    source: str = "the events"
    if isinstance(events, str | Path):
        source, events = source_of(events), read_table(events)
    frame = _without_unknown(as_frame(events, source), mapping.unknown)
    if frame.height == 0:
        raise InputError(f"{source}: there are no rows; expected one for each event.")
    if mapping.wide is not None:
        frame, source = _widen(frame, mapping.wide, source), str(source)
    if mapping.dictionary is not None:
        dictionary = read_table(table_path(folder, mapping.dictionary), as_text=True)
        frame = use_labels(frame, dictionary, mapping.dictionary)
    for join in mapping.join:
        place = table_path(folder, join.table)
        other = _without_unknown(read_table(place), mapping.unknown)
        frame = _join(frame, join, other, source, source_of(place))
    return frame, source


def _without_unknown(frame: pl.DataFrame, unknown: list[str]) -> pl.DataFrame:
    """The table with null instead of NaN and of the texts that mean an unknown value."""
    frame = frame.with_columns(pl.selectors.float().fill_nan(None))
    if not unknown:
        return frame
    texts = pl.selectors.string()
    return plain_numbers(frame.with_columns(pl.when(~texts.is_in(unknown)).then(texts)))


def table_path(folder: Path, table: str) -> str:
    """The path of a table that a map names relative to the map's folder."""
    if parse_address(table).is_url or Path(table).is_absolute():
        return table
    return str(folder / table)


def _widen(frame: pl.DataFrame, wide: WideMap, source: str) -> pl.DataFrame:
    by = [named_column(frame, name, source).name for name in wide.by]
    names, values = (named_column(frame, name, source).name for name in (wide.names, wide.values))
    known = frame.filter(pl.col(names).is_not_null())
    twice = known.select(*by, names).is_duplicated()
    if twice.any():
        row = first_row(twice)
        raise InputError(
            f"{source}: the answer '{known[names][row]}' of {known.select(by).row(row)} occurs "
            "more than once; expected one answer of each name."
        )
    rest = [name for name in frame.columns if name not in (*by, names, values)]
    fixed = frame.group_by(by, maintain_order=True).agg(pl.col(rest).drop_nulls().first())
    answers = known.pivot(names, index=by, values=values)
    answers = answers.select(by).hstack(plain_numbers(answers.drop(by)))
    clash = set(answers.columns) & set(rest)
    return fixed.join(
        answers.rename({name: f"{name} (answer)" for name in clash}), on=by, how="left",
        maintain_order="left",
    )  # fmt: skip


def _join(
    frame: pl.DataFrame, join: JoinMap, other: pl.DataFrame, source: str, where: str
) -> pl.DataFrame:
    """Adds the columns of another table, in which a key may occur only once, to each event."""
    left = [as_labels(named_column(frame, name, source)) for name in join.on]
    right = [as_labels(named_column(other, name, where)) for name in join.on.values()]
    keys = [f"\0{place}" for place in range(len(left))]
    partner = pl.DataFrame([key.alias(name) for key, name in zip(right, keys, strict=True)])
    whole = partner.select(pl.all_horizontal(pl.all().is_not_null())).to_series()
    twice = partner.is_duplicated() & whole
    if twice.any():
        rows = twice.arg_true()
        raise InputError(
            f"{where}: {', '.join(join.on.values())} must be different in each row, but "
            f"{row_in(where, rows[0])} has {list_names(map(str, partner.row(rows[0])))} and so has "
            "another row."
        )
    taken = {name: f"{join.prefix}{name}" for name in other.columns}
    beside_it = other.rename(taken).with_columns(partner)
    events = frame.with_columns(key.alias(name) for key, name in zip(left, keys, strict=True))
    joined = events.join(beside_it, on=keys, how="left", suffix="_right", maintain_order="left")
    return joined.drop(keys)


def read_people(
    frame: pl.DataFrame, mapping: EventMap, source: str, where: str, folder: Path
) -> pl.DataFrame:
    """A row for each person with their features: the last known value of each."""
    people = mapping.people
    assert people is not None
    if people.table is not None:
        place = table_path(folder, people.table)
        frame, source = _without_unknown(read_table(place), mapping.unknown), source_of(place)
    person = column_or_expression(frame, people.who or mapping.who, source, where, "who")
    who = as_labels(clean_ids(person)).alias("person")
    if people.table is not None and who.drop_nulls().is_duplicated().any():
        twice = who.is_duplicated() & who.is_not_null()
        rows = twice.arg_true()
        raise InputError(
            f"{source}: {who[rows[0]]} is in {row_in(source, rows[0])} and in another row; "
            "expected one row for each person."
        )
    known = pl.DataFrame(
        [who, *(evaluate_expression(frame, text, where, f"people.features.{name}").alias(name)
                for name, text in people.features.items())]
    )  # fmt: skip
    if people.keep is not None:
        known = known.filter(read_flags(frame, people.keep, where, "people.keep"))
    return known.group_by("person").agg(pl.all().drop_nulls().last())


def use_labels(frame: pl.DataFrame, dictionary: pl.DataFrame, where: str) -> pl.DataFrame:
    """Replaces codes of REDCap's fields by labels; a checkbox `meds___2` is named `meds: label`.

    Args:
        frame: An export with raw codes.
        dictionary: The data dictionary of the project.
        where: The name of the dictionary in messages.

    Returns:
        The same rows with labels.
    """
    dictionary = dictionary.rename({k: v for k, v in API_NAMES.items() if k in dictionary.columns})
    fields = (
        named_column(dictionary, name, where) for name in (FIELD_NAME, FIELD_TYPE, FIELD_CHOICES)
    )
    changes, names = [], {}
    for field, kind, choices in zip(*fields, strict=True):
        labels = _choices(kind, choices)
        for code, label in labels.items():
            box = f"{field}___{code.lower().replace('-', '_')}"
            if kind == "checkbox" and box in frame.columns:
                names[box] = f"{field}: {label}"
        if kind != "checkbox" and labels and field in frame.columns:
            text = as_labels(frame[field])
            changes.append(text.replace_strict(labels, default=text).alias(field))
    return frame.with_columns(changes).rename(names)


def _choices(kind: str | None, choices: str | None) -> dict[str, str]:
    """Codes with their labels, from `1, Yes | 0, No`."""
    if kind in ("yesno", "truefalse"):
        return {"1": "Yes", "0": "No"} if kind == "yesno" else {"1": "True", "0": "False"}
    if kind not in ("radio", "dropdown", "checkbox") or not choices:
        return {}
    pairs = [one.partition(",") for one in choices.split("|")]
    return {code.strip(): label.strip() for code, comma, label in pairs if comma}
