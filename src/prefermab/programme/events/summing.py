"""What several events in a round add up to: its state, what was done, and what was known."""

import polars as pl

from prefermab.errors import InputError, brief
from prefermab.programme.columns import as_flags, as_labels, as_numbers
from prefermab.programme.events.mapping import EventMap, StateMap, evaluate

PAIR = ["person", "round"]
"""What a row of a log is about."""

FLAGS = ("available", "reached")


def read_flags(
    frame: pl.DataFrame, text: str, where: str, name: str, *, unknown: bool = False
) -> pl.Series:
    """A condition as true and false; a column may write them as yes and no."""
    return as_flags(evaluate(frame, text, where, name).alias(name), where, unknown=unknown)


def event_columns(frame: pl.DataFrame, mapping: EventMap, where: str) -> list[pl.Series]:
    """What the map looks at in each event: its value, what was done, flags and features."""
    columns = [
        _values(frame, mapping.state, where),
        _actions(frame, mapping.action.labels, where),
    ]
    if mapping.action.unknown is not None:
        unknown = read_flags(frame, mapping.action.unknown, where, "action.unknown")
        columns.append(unknown.alias("unknown"))
    for name in FLAGS:
        if (text := getattr(mapping, name)) is not None:
            columns.append(read_flags(frame, text, where, name))
    for name, text in mapping.features.items():
        columns.append(evaluate(frame, text, where, f"features.{name}").alias(name))
    return columns


def sum_up(events: pl.DataFrame, mapping: EventMap, where: str) -> pl.DataFrame:
    """A row for each person and round with an event; events are in the order of time.

    Columns: events (how many), action (its place among the labels), state, unlabelled, and the
    flags and features of the map.
    """
    known = pl.col("value").drop_nulls()
    values: dict[str, pl.Expr] = {
        "last": known.last(), "first": known.first(), "worst": known.min(), "max": known.max(),
        "min": known.min(), "mean": known.mean(), "count": known.len(), "any": known.any(),
        "sum": pl.when(known.len() > 0).then(known.sum()),
    }  # fmt: skip
    flags = [name for name in ("unknown", *FLAGS) if name in events.columns]
    found = events.group_by(PAIR).agg(
        pl.len().alias("events"),
        values[mapping.state.several].alias("value"),
        pl.col("action").min(),
        *(pl.col(name).any() for name in flags),
        *(pl.col(name).drop_nulls().last() for name in mapping.features),
    )
    return _with_states(found, mapping.state, where)


def _values(frame: pl.DataFrame, state: StateMap, where: str) -> pl.Series:
    """What the state is made of, as `several` needs it."""
    value = evaluate(frame, state.value, where, "state.value").alias("value")
    if state.several in ("max", "min", "sum", "mean"):
        return as_numbers(value, where)
    if state.several == "any":
        return as_flags(value, where, unknown=False)
    if state.several != "worst":
        return value
    labels, places = as_labels(value), {label: place for place, label in enumerate(state.order)}
    strange = labels.drop_nulls().unique().sort()
    strange = strange.filter(~strange.is_in(state.order))
    if len(strange):
        raise InputError(
            f"{where}: the value '{brief(strange[0])}' is not in state.order; list all values "
            "there, or leave such events out by keep."
        )
    return labels.replace_strict(places, return_dtype=pl.Int64)


def _actions(frame: pl.DataFrame, labels: dict[str, str], where: str) -> pl.Series:
    """The place of the first label whose condition an event meets."""
    chosen = pl.repeat(None, frame.height, dtype=pl.Int64, eager=True)
    for place, (label, condition) in enumerate(labels.items()):
        holds = read_flags(frame, condition, where, f"action.labels.{label}")
        chosen = chosen.set(holds & chosen.is_null(), place)
    return chosen.alias("action")


def _with_states(found: pl.DataFrame, state: StateMap, where: str) -> pl.DataFrame:
    """The value of each round as a label; where it meets no condition, the state is unknown."""
    if state.several == "worst":
        names = dict(enumerate(state.order))
        value = found["value"].replace_strict(names, return_dtype=pl.String)
        found = found.with_columns(value.alias("value"))
    if not state.labels:
        return found.with_columns(state=as_labels(found["value"]), unlabelled=pl.lit(False))
    label = pl.repeat(None, found.height, dtype=pl.String, eager=True)
    for name, condition in state.labels.items():
        holds = read_flags(found, condition, where, f"state.labels.{name}")
        label = label.set(holds & found["value"].is_not_null() & label.is_null(), name)
    unlabelled = found["value"].is_not_null() & label.is_null()
    return found.with_columns(label.alias("state"), unlabelled.alias("unlabelled"))
