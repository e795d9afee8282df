"""Proposes a first map for a table of events: guesses, each with its reason as a comment."""

import json
import re
from typing import NamedTuple

import polars as pl

from prefermab.errors import InputError, list_names, visible
from prefermab.programme.tables.columns import FALSE, TRUE, as_labels
from prefermab.programme.tables.values import parse_dates

WHO = re.compile(
    r"person|patient|client|participant|member|mother|user|case|record|licen|(^|[_. ])id$|^id", re.I
)
WHEN = re.compile(r"date|when|time|day|_on$|_at$", re.I)
ACTION = re.compile(
    r"\baction|_action|type|kind|service|interven|treat|call|visit|sms|message|\bsen[dt]\b", re.I
)
STATE = re.compile(r"state|status|result|outcome|score|level|second|duration|response|value", re.I)

MOST_LABELS = 12
"""The most different values of a column that may name actions or states."""

ROWS_TRIED_AS_DATES = 2000
WEAK = 0.2
"""The score of a column whose name gives no hint."""

TECHNICAL_COLUMNS = re.compile(r"^redcap_|_complete$|instance|latitude|longitude|version", re.I)
"""Names of columns that programs write for their own use."""


class Guess(NamedTuple):
    """A column that may be the one that is looked for, with a score and the reason."""

    name: str
    score: float
    why: str


def propose_map(frame: pl.DataFrame, where: str) -> str:
    """The text of a first map.

    Args:
        frame: The table of events.
        where: The name of the table in messages.

    Returns:
        A map in TOML; each guess has a comment.
    """
    when = _best([_when(values) for values in frame], where, "a column of dates")
    rest = [values for values in frame if values.name != when.name]
    who = _best(
        [_who(values) for values in rest], where, "a column of people, with several rows each"
    )
    rest = [values for values in rest if values.name != who.name]
    actions = [_labels(values, ACTION) for values in rest]
    action = max(actions, key=lambda guess: guess.score, default=None)
    if action is not None and action.score <= WEAK:
        action = None
    rest = [values for values in rest if action is None or values.name != action.name]
    states = [guess for values in rest if (guess := _state(values)).score > 0]
    length, gap = _round(frame, who.name, when.name, where)
    lines = [
        visible(f"# A first map for {where}: check every line."),
        visible(f"# who: {who.why}"),
        f"who = {_quoted(who.name)}",
        visible(f"# when: {when.why}"),
        f"when = {_quoted(when.name)}",
        f"# round: {gap}",
        f"round = {_quoted(length)}",
        'week_starts = "monday"',
        "# rows: events, between (a person's first and last event), or all",
        'rows = "between"',
        '# keep = "..."   # a condition: which events count',
        "# once = [...]    # columns: events in which these are equal count once",
    ]
    lines += _action_lines(frame, action)
    lines += ["", "[state]"]
    if states:
        state = _best(states, where, "a column for the state")
        lines += _state_lines(frame[state.name], state)
    else:
        lines += ["# no column for the state was found: name it here", 'value = "..."']
    return "\n".join(lines) + "\n"


def _best(guesses: list[Guess], where: str, what: str) -> Guess:
    best = max(guesses, key=lambda guess: guess.score, default=Guess("", 0, ""))
    if best.score <= 0:
        raise InputError(f"{where}: {what} was not found; write the map by hand (docs/events.md).")
    others = sorted(
        (guess for guess in guesses if guess.score >= 1.2 and guess != best), key=lambda g: -g.score
    )
    also = f"; also possible: {list_names(guess.name for guess in others[:3])}" if others else ""
    return best._replace(why=best.why + also)


def _named(name: str, pattern: re.Pattern[str]) -> float:
    return 1.0 if pattern.search(name) else 0.0


def _when(values: pl.Series) -> Guess:
    known = values.drop_nulls()
    filled = len(known) / max(len(values), 1)
    dates = values.dtype in (pl.Date, pl.Datetime)
    if not dates and values.dtype == pl.String and len(known):
        try:
            dates = len(parse_dates(known.head(ROWS_TRIED_AS_DATES), "")) > 0
        except InputError as error:
            dates = "which may be day" in str(error)
    score = (filled + _named(values.name, WHEN)) if dates else 0.0
    return Guess(values.name, score, f"dates in {len(known):,} of {len(values):,} rows")


def _who(values: pl.Series) -> Guess:
    known = as_labels(values).drop_nulls() if not values.dtype.is_nested() else values.clear()
    people = known.n_unique()
    each = len(known) / people if people else 0.0
    possible = people >= 2 and each > 1.2 and not values.dtype.is_float()
    score = (
        (_named(values.name, WHO) + len(known) / len(values) + (people > 20) * 0.5)
        if possible
        else 0.0
    )
    return Guess(
        values.name, score, f"{people:,} different values, {each:.1f} rows of each on average"
    )


def _labels(values: pl.Series, pattern: re.Pattern[str]) -> Guess:
    if values.dtype.is_nested() or values.dtype.is_float() or values.dtype.is_temporal():
        return Guess(values.name, 0, "")
    labels = as_labels(values).drop_nulls().n_unique()
    possible = 1 <= labels <= MOST_LABELS and not TECHNICAL_COLUMNS.search(values.name)
    # Texts are more often labels than numbers are.
    score = _named(values.name, pattern) + (0.1 if values.dtype.is_numeric() else WEAK)
    score = score if possible else 0.0
    return Guess(values.name, score, f"{labels} different values")


def _state(values: pl.Series) -> Guess:
    labels = _labels(values, STATE)
    if _is_measured(values):
        return Guess(values.name, _named(values.name, STATE) + 0.1, "numbers")
    return labels


def _is_measured(values: pl.Series) -> bool:
    """Whether the numbers of a column are measurements rather than codes."""
    many = values.drop_nulls().n_unique() > MOST_LABELS
    return values.dtype.is_float() or (values.dtype.is_numeric() and many)


def _round(frame: pl.DataFrame, who: str, when: str, where: str) -> tuple[str, str]:
    """A length of rounds that is close to the usual gap between two events of a person, and why."""
    times = frame[when]
    try:
        days = (parse_dates(times, where) if times.dtype == pl.String else times).cast(pl.Date)
    except InputError:
        return "1w", 'how dates are written is not clear: give form = "%d/%m/%Y" or another'
    placed = pl.DataFrame({"who": frame[who], "day": days}).drop_nulls().sort("who", "day")
    gaps = placed.select(pl.col("day").diff().over("who").dt.total_days()).to_series()
    gaps = gaps.filter(gaps > 0)
    usual = float(gaps.median() or 7)  # type: ignore[arg-type]
    limits = {"1d": 2, "1w": 10, "1m": 45, "1q": 140}
    length = next((name for name, most in limits.items() if usual <= most), "1y")
    return length, f"half of the gaps between events of a person are {usual:.0f} days or less"


def _action_lines(frame: pl.DataFrame, action: Guess | None) -> list[str]:
    lines = [
        "",
        "[action]",
        "# the round's action where no label holds",
        'nothing = "none"',
        "",
        "[action.labels]",
        "# a label and its condition; in a round the first that holds for any event counts",
    ]
    if action is None:
        lines.append("# no column for actions was found: every event counts as one")
        return [*lines, 'visit = "TRUE"']
    values = frame[action.name]
    lines.append(visible(f"# found: {action.name}, {action.why}"))
    counted = as_labels(values).drop_nulls().value_counts(sort=True)
    if set(counted[values.name].str.to_lowercase()) <= {*TRUE, *FALSE}:
        return [*lines, f"{_quoted(action.name)} = {_quoted(action.name)}"]
    for label, number in counted.iter_rows():
        lines += [f"# {number:,} events", f"{_quoted(label)} = {_quoted(_equals(values, label))}"]
    return lines


def _state_lines(values: pl.Series, state: Guess) -> list[str]:
    lines = [visible(f"# value: {state.why}"), f"value = {_quoted(values.name)}"]
    known = as_labels(values).drop_nulls().value_counts(sort=True)
    if _is_measured(values):
        middle = values.drop_nulls().median()
        return [
            *lines,
            "# several: last, first, max, min, sum, mean, count or any",
            'several = "max"',
            "",
            "[state.labels]",
            "# the middle of all values; put your own limits here",
            f'high = "value >= {middle:g}"',
            'low = "TRUE"',
        ]
    found = ", ".join(f"{label} ({number:,})" for label, number in known.iter_rows())
    return [
        *lines,
        visible(f"# found: {found}"),
        "# several: last, first, or worst with order = [...] from the worst to the best",
        'several = "last"',
    ]


def _equals(values: pl.Series, label: str) -> str:
    name = '"' + values.name.replace('"', '""') + '"'
    if values.dtype == pl.Boolean:
        return name if label == "true" else f"NOT {name}"
    if values.dtype.is_numeric():
        return f"{name} = {label}"
    return f"{name} = '" + label.replace("'", "''") + "'"


def _quoted(text: str) -> str:
    """A text in quotes for TOML, which are the same as for JSON."""
    return json.dumps(text, ensure_ascii=False)
