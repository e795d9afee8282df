"""A log, checked: one row for each person and round, with the state and the action of that round.

A transition goes from a row's state under its action to the state of the same person's row one
round later. Rounds are as far apart as two rows of a person mostly are. Where a row is missing
there is a gap: nothing is made up for it.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.logs.columns import Column, encode, feature_columns, known_labels, times
from prefermab.logs.meaning import Meaning, meaning_of
from prefermab.tables import as_frame, as_labels, column, first_row, row_in


@dataclasses.dataclass(frozen=True)
class Found:
    """What a log holds, and what of it cannot be used."""

    rows: int
    people: int
    rounds: int
    apart: int
    """How far apart rounds are, in the time's own unit, days where it is a date."""
    unit: str
    """What a round is called: day, week or month where the times say so, else round."""
    dates: bool
    first: str
    last: str
    present: float
    """People with a row, in a round, on average."""
    gaps: int
    missing_rounds: int
    single: int
    """People with one row only: they give features and no transitions."""
    unknown_states: int
    unknown_actions: int
    joined_later: int
    left_earlier: int


@dataclasses.dataclass(frozen=True)
class Transitions:
    """Who went from which state under which action to which, and in which round of the log."""

    person: np.ndarray
    round: np.ndarray
    state: np.ndarray
    action: np.ndarray
    following: np.ndarray

    def __len__(self) -> int:
        return len(self.person)

    def where(self, chosen: np.ndarray) -> "Transitions":
        """Some of them."""
        return Transitions(*(getattr(self, f.name)[chosen] for f in dataclasses.fields(self)))


@dataclasses.dataclass(frozen=True, eq=False)
class Log:
    """A log that has passed every check. States of a person are -1 where none is known.

    >>> import polars as pl
    >>> from prefermab.logs.reading import read_log
    >>> frame = pl.DataFrame({"id": [1, 1, 1, 2, 2], "time": [1, 2, 4, 1, 2],
    ...     "state": ["bad", "good", "bad", "good", "good"], "action": [1, 0, 0, 0, 1],
    ...     "age": [30, 30, 30, 41, 41]})
    >>> log = read_log(frame, costs={0: 0, 1: 2.5}, rewards={"bad": 0, "good": 1})
    >>> log.transitions.following.tolist(), log.found.gaps
    ([1, 1], 1)
    """

    where: str
    meaning: Meaning
    columns: tuple[Column, ...]
    features: np.ndarray
    first_state: np.ndarray
    last_state: np.ndarray
    transitions: Transitions
    spent: float
    """What a round's actions cost, on average."""
    earned: float
    """The reward of a row's state, on average."""
    found: Found

    @property
    def feature_names(self) -> tuple[str, ...]:
        """All features, column by column."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(state, action, next state), as a table of transitions has it."""
        n_states, n_actions = len(self.meaning.states), len(self.meaning.actions)
        return n_states, n_actions, n_states


def read_log(
    frame: Any,
    id: str = "id",
    time: str = "time",
    state: str = "state",
    action: str = "action",
    features: Sequence[str] | None = None,
    costs: Mapping[Any, Any] | Sequence[Any] | None = None,
    rewards: Mapping[Any, Any] | None = None,
    passive: Any = None,
    where: str = "the log",
) -> Log:
    """The log in a frame, or the first thing that is wrong with it in one sentence."""
    given = as_frame(frame, where)
    _check_width(given, where)
    roles = {"id": id, "time": time, "state": state, "action": action}
    main = pl.DataFrame({role: _role(given, role, name, where) for role, name in roles.items()})
    _check_roles(roles, where)
    if given.height == 0:
        raise InputError(f"{where}: there are no rows; expected one for each person and week.")
    others = _features_frame(given, roles, features, where)
    columns = feature_columns(others, where)
    rows = _rows(main, roles, where)
    meaning = meaning_of(
        known_labels(main["state"].alias(state), "state", where),
        known_labels(main["action"].alias(action), "action", where),
        costs, rewards, passive, where,
    )  # fmt: skip
    rows = _placed(rows, meaning)
    transitions = _transitions(rows)
    _check_learnable(transitions, meaning, where)
    return Log(
        where=where,
        meaning=meaning,
        columns=tuple(columns),
        features=_latest_features(others, rows, columns, where),
        first_state=_known(rows, "state", last=False),
        last_state=_known(rows, "state", last=True),
        transitions=transitions,
        spent=float(meaning.costs[rows["action"].drop_nulls().to_numpy()].sum())
        / rows["round"].n_unique(),
        earned=float(meaning.rewards[rows["state"].drop_nulls().to_numpy()].mean()),
        found=_found(rows, main["time"].alias(time)),
    )


def _role(given: pl.DataFrame, role: str, name: str, where: str) -> pl.Series:
    try:
        return column(given, name, where)
    except InputError as error:
        hint = f"name yours with {role}=... (--{role} on the command line)"
        raise InputError(f"{str(error).removesuffix('.')}: {hint}.") from None


def _check_width(given: pl.DataFrame, where: str) -> None:
    if given.width == 1:
        raise InputError(
            f"{where}: only one column was found, '{given.columns[0]}'; the separator may be "
            "wrong: expected commas."
        )


def _check_roles(roles: dict[str, str], where: str) -> None:
    for role, name in roles.items():
        for other, same in roles.items():
            if role < other and name == same:
                raise InputError(f"{where}: {role} and {other} are both the column '{name}'.")


def _features_frame(
    given: pl.DataFrame,
    roles: dict[str, str],
    features: Sequence[str] | None,
    where: str,
) -> pl.DataFrame:
    """The columns that give features: those that were named, or all that have no other role."""
    if features is None:
        used = {column(given, name, where).name for name in roles.values()}
        names = [name for name in given.columns if name not in used]
    else:
        names = [column(given, str(name), where).name for name in features]
    if not names:
        raise InputError(
            f"{where}: there is no feature column; expected at least one, so that people can be "
            "told apart."
        )
    if len(set(names)) < len(names):
        raise InputError(f"{where}: features must be different columns, not {', '.join(names)}.")
    return given.select(names)


def _rows(main: pl.DataFrame, roles: dict[str, str], where: str) -> pl.DataFrame:
    """Rows in the order of people and time, each with its place in the file and its round."""
    if main["id"].null_count():
        row = first_row(main["id"].is_null())
        raise InputError(f"{where}: {row_in(where, row)} has no id in the column '{roles['id']}'.")
    who = as_labels(main["id"])
    rows = pl.DataFrame(
        {
            "row": np.arange(main.height),
            "id": who,
            "person": who.rank("dense").cast(pl.Int64) - 1,
            "time": times(main["time"].alias(roles["time"]), where),
            "state": as_labels(main["state"]),
            "action": as_labels(main["action"]),
        }
    ).sort("person", "time", "row")
    since = pl.col("time").diff().over("person")
    shown = main["time"]
    shown = (shown.cast(pl.Date) if shown.dtype.is_temporal() else shown).cast(pl.String)
    rows = rows.with_columns(since=since, shown=shown.gather(rows["row"]))
    gaps = rows["since"].drop_nulls()
    if gaps.is_empty():
        raise InputError(f"{where}: no person has two rows; expected one for each week.")
    apart = int(gaps.filter(gaps > 0).mode().min() or 1)  # pyright: ignore[reportArgumentType]
    # Half a round early or late is still that round: weeks are not always seven days.
    rows = rows.with_columns(
        steps=(2 * pl.col("since") + apart) // (2 * apart),
        round=(pl.col("time") - pl.col("time").min()) // apart,
        apart=pl.lit(apart),
    )
    _check_twice(rows, where)
    return rows


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


def _placed(rows: pl.DataFrame, meaning: Meaning) -> pl.DataFrame:
    """States and actions as numbers."""
    return rows.with_columns(
        pl.col(name).replace_strict(
            {label: place for place, label in enumerate(known)}, return_dtype=pl.Int64
        )
        for name, known in (("state", meaning.states), ("action", meaning.actions))
    )


def _transitions(rows: pl.DataFrame) -> Transitions:
    after = rows.with_columns(
        following=pl.col("state").shift(-1).over("person"),
        ahead=pl.col("steps").shift(-1).over("person"),
    ).filter(
        (pl.col("ahead") == 1)
        & pl.all_horizontal(pl.col("state", "action", "following").is_not_null())
    )
    names = (field.name for field in dataclasses.fields(Transitions))
    return Transitions(*(after[name].to_numpy() for name in names))


def _check_learnable(transitions: Transitions, meaning: Meaning, where: str) -> None:
    if not len(transitions):
        raise InputError(
            f"{where}: no person has known states in two weeks that follow each other, with a "
            "known action in the first."
        )
    for place, name in enumerate(meaning.actions):
        if not (transitions.action == place).any():
            raise InputError(
                f"{where}: no transition under the action '{name}' can be used: nothing can be "
                "learned about it."
            )


def _latest_features(
    others: pl.DataFrame, rows: pl.DataFrame, columns: Sequence[Column], where: str
) -> np.ndarray:
    """(person, feature): the last known value of each column."""
    ordered = others[rows["row"]].with_columns(person=rows["person"]).fill_nan(None)
    latest = ordered.group_by("person", maintain_order=True).agg(
        pl.col(column.name).drop_nulls().last() for column in columns
    )
    parts = [encode(column, latest[column.name], where) for column in columns]
    return np.concatenate(parts, axis=1)


def _known(rows: pl.DataFrame, name: str, *, last: bool) -> np.ndarray:
    found = pl.col(name).drop_nulls()
    each = rows.group_by("person", maintain_order=True).agg(found.last() if last else found.first())
    return each[name].fill_null(-1).to_numpy()


def _found(rows: pl.DataFrame, time: pl.Series) -> Found:
    people = rows.group_by("person").agg(
        rows=pl.len(), first=pl.col("round").min(), last=pl.col("round").max()
    )
    begun, ended = rows["round"].min(), rows["round"].max()
    rounds, shown = rows["round"].n_unique(), rows.sort("time")["shown"]
    missing = rows.filter(pl.col("steps") > 1)["steps"]
    dates, apart = not time.dtype.is_numeric() and "-" in str(shown[0])[1:], int(rows["apart"][0])
    return Found(
        rows=rows.height,
        people=people.height,
        rounds=rounds,
        apart=apart,
        unit=_unit(time.name, dates, apart),
        dates=dates,
        first=str(shown[0]),
        last=str(shown[-1]),
        present=rows.height / rounds,
        gaps=len(missing),
        missing_rounds=int((missing - 1).sum()),
        single=int((people["rows"] == 1).sum()),
        unknown_states=rows["state"].null_count(),
        unknown_actions=rows["action"].null_count(),
        joined_later=int((people["first"] > begun).sum()),
        left_earlier=int((people["last"] < ended).sum()),
    )


def _unit(name: str, dates: bool, apart: int) -> str:
    """By how far apart dates are, or by the name of a column that counts rounds."""
    if dates:
        return {1: "day", 7: "week"}.get(apart, "month" if 28 <= apart <= 31 else "round")
    said = [unit for unit in ("day", "week", "month") if unit in name.lower()]
    return said[0] if said and apart == 1 else "round"
