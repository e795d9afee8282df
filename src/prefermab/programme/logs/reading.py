"""Reading a log: one row for each person and round, with the state and the action of that round.

A transition goes from a row's state, under its action, to the state of the same person's row one
round later. The length of a round is the most common time between two rows of a person, unless
`every` gives it. A missing row is a gap: there is no transition across it. Transitions that start
in a row in which the person was not available are kept apart, in `Log.unavailable`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.programme.logs.diagnostics import Diagnostics, diagnose
from prefermab.programme.logs.features import Column, cast_columns, feature_columns, find_profiles
from prefermab.programme.logs.histories import Histories, find_histories
from prefermab.programme.logs.labels import Labels, distinct_labels, read_labels
from prefermab.programme.logs.rows import Rows, features_frame, role_columns, sort_rows
from prefermab.programme.tables.table import as_frame, read_table, row_in, source_of


@dataclasses.dataclass(frozen=True)
class LogCounts:
    """Counts of what a log contains, and of what cannot be used."""

    rows: int
    people: int
    rounds: int
    apart: int
    """The length of a round in the time's own unit, days where times are dates."""
    unit: str
    """The name of a round: day, week or month where the times show it, else round."""
    dates: bool
    first: str
    last: str
    present: float
    """People with a row in a round, on average."""
    gaps: int
    missing_rounds: int
    single: int
    """People with one row only; they have features and no transitions."""
    unknown_states: int
    unknown_actions: int
    joined_later: int
    left_earlier: int
    unavailable: int
    """Transitions left out because the person was not available in their first row."""
    tried: int
    """Rows with an action other than the passive one."""
    not_reached: int
    """The number of `tried` rows in which the action did not reach the person."""


@dataclasses.dataclass(frozen=True)
class LogTransitions:
    """Transitions, as arrays (transition,): person, round of the log, state, action, next state
    (`following`), and the person's features at that time, as a position in the log's profiles."""

    person: np.ndarray
    round: np.ndarray
    state: np.ndarray
    action: np.ndarray
    following: np.ndarray
    profile: np.ndarray
    probability: np.ndarray
    """The probability with which the log took the action; NaN where it is unknown."""

    @classmethod
    def from_rows(cls, rows: pl.DataFrame) -> "LogTransitions":
        """From a frame with columns of these names."""
        return cls(*(rows[field.name].to_numpy() for field in dataclasses.fields(cls)))

    def __len__(self) -> int:
        return len(self.person)

    def where(self, chosen: np.ndarray) -> "LogTransitions":
        """The transitions at which `chosen` is true."""
        return LogTransitions(*(getattr(self, f.name)[chosen] for f in dataclasses.fields(self)))


@dataclasses.dataclass(frozen=True, eq=False)
class Log:
    """A log that has passed every check. Numbers of states are -1 where no state is known.

    `profiles` (profile, feature) are all combinations of feature values that were known of a person
    at some time. `latest` (person,) is the position of each person's last profile.

    >>> import polars as pl
    >>> from prefermab.programme.logs.reading import read_log
    >>> frame = pl.DataFrame({"id": [1, 1, 1, 2, 2], "time": [1, 2, 4, 1, 2],
    ...     "state": ["bad", "good", "bad", "good", "good"], "action": [1, 0, 0, 0, 1],
    ...     "age": [30, 30, 30, 41, 41]})
    >>> log = read_log(frame, costs={0: 0, 1: 2.5}, rewards={"bad": 0, "good": 1})
    >>> log.transitions.following.tolist(), log.found.gaps
    ([1, 1], 1)
    """

    where: str
    labels: Labels
    columns: tuple[Column, ...]
    profiles: np.ndarray
    latest: np.ndarray
    first_state: np.ndarray
    last_state: np.ndarray
    transitions: LogTransitions
    unavailable: LogTransitions
    """Transitions that start while the person was not available."""
    spent: float
    """The mean cost of a round's actions."""
    earned: float
    """The mean reward of a row's state."""
    found: LogCounts
    diagnostics: Diagnostics
    histories: Histories | None = None
    """None where states are always seen."""

    @property
    def features(self) -> np.ndarray:
        """(person, feature): the features of each person at the end of the log."""
        return self.profiles[self.latest]

    @property
    def sighted(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Person, state and action of every transition; if states are not always seen, of every
        row with a state."""
        if self.histories is None:
            return self.transitions.person, self.transitions.state, self.transitions.action
        return self.histories.sighted

    @property
    def feature_names(self) -> tuple[str, ...]:
        """All features, column by column."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The numbers of states, actions and next states."""
        n_states, n_actions = len(self.labels.states), len(self.labels.actions)
        return n_states, n_actions, n_states


def read_log(
    log: Any,
    *,
    id: str = "id",
    time: str = "time",
    state: str = "state",
    action: str = "action",
    features: Sequence[str] | None = None,
    costs: Mapping[Any, Any] | Sequence[Any] | None = None,
    rewards: Mapping[Any, Any] | None = None,
    passive: Any = None,
    available: str | None = None,
    reached: str | None = None,
    probability: str | None = None,
    every: Any = None,
    seen: str | None = "always",
) -> Log:
    """Reads a log from a frame, a file or a database, and checks it.

    The arguments are those of `prefermab.learn`, except that `seen` is `always` if left out; None
    finds it from the log. The first mistake raises an `InputError` of one sentence.
    """
    where = "the log"
    if isinstance(log, str | Path):
        where, log = source_of(log), read_table(log)
    given = as_frame(log, where)
    named = {"id": id, "time": time, "state": state, "action": action}
    optional = {"available": available, "reached": reached, "probability": probability}
    roles = role_columns(given, named, optional, where)
    if given.height == 0:
        raise InputError(f"{where}: there are no rows; expected one for each person and week.")
    others = features_frame(given, roles, features, where)
    columns = feature_columns(others, where)
    rows = sort_rows(roles, every, where)
    labels = read_labels(
        distinct_labels(roles["state"], "state", where),
        distinct_labels(roles["action"], "action", where),
        costs, rewards, passive, where,
    )  # fmt: skip
    rows = _number_labels(rows, labels)
    _check_available(rows.frame, labels, where)
    known = cast_columns(others, columns, rows.frame["row"], where)
    return _assemble(where, labels, rows, known, columns, roles, seen)


def _assemble(
    where: str,
    labels: Labels,
    rows: Rows,
    known: pl.DataFrame,
    columns: list[Column],
    roles: Mapping[str, pl.Series],
    seen: str | None,
) -> Log:
    """Builds the log from checked rows. `known` are the feature columns, in the order of the
    rows."""
    profiles = find_profiles(known, rows.frame["person"], columns)
    frame = rows.frame.with_columns(profile=profiles.by_row)
    moves = _find_transitions(frame)
    transitions = LogTransitions.from_rows(moves.filter("available"))
    histories = find_histories(frame, labels, seen, where, has_reached="reached" in roles)
    _check_learnable(transitions, histories, labels, where)
    return Log(
        where=where,
        labels=labels,
        columns=tuple(columns),
        profiles=profiles.values,
        latest=profiles.latest,
        first_state=_known_state(frame, last=False),
        last_state=_known_state(frame, last=True),
        transitions=transitions,
        unavailable=LogTransitions.from_rows(moves.filter(~pl.col("available"))),
        spent=_mean_spending(frame, labels),
        earned=float(labels.rewards[frame["state"].drop_nulls().to_numpy()].mean()),
        found=_count(rows, roles["time"].name, len(moves) - len(transitions)),
        diagnostics=diagnose(frame, known, columns, profiles, labels, roles["state"].name),
        histories=histories,
    )


def _number_labels(rows: Rows, labels: Labels) -> Rows:
    """Replaces states and actions by their positions among the labels."""
    frame = rows.frame.with_columns(
        pl.col(name).replace_strict(
            {label: place for place, label in enumerate(known)}, return_dtype=pl.Int64
        )
        for name, known in (("state", labels.states), ("action", labels.actions))
    )
    return dataclasses.replace(rows, frame=frame)


def _check_available(frame: pl.DataFrame, labels: Labels, where: str) -> None:
    wrong = frame.filter(~pl.col("available") & (pl.col("action") > 0)).sort("row")
    if wrong.height:
        first = wrong.row(0, named=True)
        raise InputError(
            f"{where}: {row_in(where, first['row'])} has the action "
            f"'{labels.actions[first['action']]}' although the person was not available; correct "
            "one of the two."
        )


def _find_transitions(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with a known state and action whose next row is one round later and has a state."""
    return frame.with_columns(
        following=pl.col("state").shift(-1).over("person"),
        ahead=pl.col("steps").shift(-1).over("person"),
    ).filter(
        (pl.col("ahead") == 1)
        & pl.all_horizontal(pl.col("state", "action", "following").is_not_null())
    )


def _check_learnable(
    transitions: LogTransitions, histories: Histories | None, labels: Labels, where: str
) -> None:
    if histories is not None:
        histories.check(labels, where)
        return
    if not len(transitions):
        raise InputError(
            f"{where}: no person has known states in two weeks that follow each other, with a "
            "known action in the first."
        )
    for place, name in enumerate(labels.actions):
        if not (transitions.action == place).any():
            raise InputError(
                f"{where}: no transition under the action '{name}' can be used: nothing can be "
                "learned about it."
            )


def _mean_spending(frame: pl.DataFrame, labels: Labels) -> float:
    """The mean cost of a round's actions, over the rounds in which any action is known."""
    done = frame.filter(pl.col("action").is_not_null())
    return float(labels.costs[done["action"].to_numpy()].sum()) / max(done["round"].n_unique(), 1)


def _known_state(frame: pl.DataFrame, *, last: bool) -> np.ndarray:
    """The first or last known state of each person, -1 where none is."""
    known = pl.col("state").drop_nulls()
    people = frame.group_by("person", maintain_order=True)
    each = people.agg(known.last() if last else known.first())
    return each["state"].fill_null(-1).to_numpy()


def _count(rows: Rows, time_column: str, unavailable: int) -> LogCounts:
    frame = rows.frame
    people = frame.group_by("person").agg(
        rows=pl.len(), first=pl.col("round").min(), last=pl.col("round").max()
    )
    begun, ended = frame["round"].min(), frame["round"].max()
    rounds, shown = frame["round"].n_unique(), frame.sort("time")["shown"]
    missing = frame.filter(pl.col("steps") > 1)["steps"]
    acted = (frame["action"] > 0).fill_null(False)
    return LogCounts(
        rows=frame.height,
        people=people.height,
        rounds=rounds,
        apart=rows.apart,
        unit=_round_name(time_column, rows),
        dates=rows.dates,
        first=str(shown[0]),
        last=str(shown[-1]),
        present=frame.height / rounds,
        gaps=len(missing),
        missing_rounds=int((missing - 1).sum()),
        single=int((people["rows"] == 1).sum()),
        unknown_states=frame["state"].null_count(),
        unknown_actions=frame["action"].null_count(),
        joined_later=int((people["first"] > begun).sum()),
        left_earlier=int((people["last"] < ended).sum()),
        unavailable=unavailable,
        tried=int(acted.sum()),
        not_reached=int((acted & ~frame["reached"]).sum()),
    )


def _round_name(time_column: str, rows: Rows) -> str:
    """The name of a round, from its length in days, or from the name of a column that counts
    rounds."""
    if rows.dates:
        return {1: "day", 7: "week"}.get(rows.apart, "month" if 28 <= rows.apart <= 31 else "round")
    names = [unit for unit in ("day", "week", "month") if unit in time_column.lower()]
    return names[0] if names and rows.apart == 1 else "round"
