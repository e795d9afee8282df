"""A log, checked: one row for each person and round, with the state and the action of that round.

A transition goes from a row's state under its action to the state of the same person's row one
round later. Rounds are as far apart as two rows of a person mostly are, or as they were said to be.
Where a row is missing there is a gap: nothing is made up for it. A row in which nobody could be
acted on is compared with nothing: its transition is left out.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.programme.logs.columns import Column, feature_columns, known_labels
from prefermab.programme.logs.meaning import Meaning, meaning_of
from prefermab.programme.logs.profiles import profiles_of, typed
from prefermab.programme.logs.rows import are_dates, features_frame, role_columns, rows_of
from prefermab.programme.logs.signs import Signs, signs_of
from prefermab.programme.tables import as_frame, row_in


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
    unavailable: int
    """Transitions left out because nobody could be acted on in the row they start from."""
    tried: int
    """Rows with another action than the passive one."""
    not_reached: int
    """Those of them in which the action did not reach the person."""


@dataclasses.dataclass(frozen=True)
class Transitions:
    """Who went from which state under which action to which, in which round of the log, and what
    was known of them then, by place in the log's profiles."""

    person: np.ndarray
    round: np.ndarray
    state: np.ndarray
    action: np.ndarray
    following: np.ndarray
    profile: np.ndarray

    @classmethod
    def of(cls, rows: pl.DataFrame) -> "Transitions":
        """Those of rows that have them in columns of these names."""
        return cls(*(rows[field.name].to_numpy() for field in dataclasses.fields(cls)))

    def __len__(self) -> int:
        return len(self.person)

    def where(self, chosen: np.ndarray) -> "Transitions":
        """Some of them."""
        return Transitions(*(getattr(self, f.name)[chosen] for f in dataclasses.fields(self)))


@dataclasses.dataclass(frozen=True, eq=False)
class Log:
    """A log that has passed every check. States of a person are -1 where none is known.

    `profiles` (profile, feature) are all combinations of values that were known of somebody at
    some time, and `latest` (person,) is what is known of each person now, by place among them.

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
    meaning: Meaning
    columns: tuple[Column, ...]
    profiles: np.ndarray
    latest: np.ndarray
    first_state: np.ndarray
    last_state: np.ndarray
    transitions: Transitions
    spent: float
    """What a round's actions cost, on average."""
    earned: float
    """The reward of a row's state, on average."""
    found: Found
    signs: Signs

    @property
    def features(self) -> np.ndarray:
        """(person, feature): what is known of each person now."""
        return self.profiles[self.latest]

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
    available: str | None = None,
    reached: str | None = None,
    every: Any = None,
) -> Log:
    """The log in a frame, or the first thing that is wrong with it in one sentence.

    `available` and `reached` name columns of true and false, else those of that name are used if
    there are any. `every` is the length of a round: 7d, 2w, 1m or a number in the time's own unit.
    """
    given = as_frame(frame, where)
    named = {"id": id, "time": time, "state": state, "action": action}
    roles = role_columns(given, named, {"available": available, "reached": reached}, where)
    if given.height == 0:
        raise InputError(f"{where}: there are no rows; expected one for each person and week.")
    others = features_frame(given, roles, features, where)
    columns = feature_columns(others, where)
    rows = rows_of(roles, every, where)
    meaning = meaning_of(
        known_labels(roles["state"], "state", where),
        known_labels(roles["action"], "action", where),
        costs, rewards, passive, where,
    )  # fmt: skip
    rows = _placed(rows, meaning)
    _check_available(rows, meaning, where)
    known = typed(others, columns, rows["row"], where)
    profiles = profiles_of(known, rows["person"], columns)
    rows = rows.with_columns(profile=profiles.of_row)
    seen = _transitions(rows)
    transitions = Transitions.of(seen.filter("available"))
    _check_learnable(transitions, meaning, where)
    return Log(
        where=where,
        meaning=meaning,
        columns=tuple(columns),
        profiles=profiles.values,
        latest=profiles.latest,
        first_state=_known(rows, "state", last=False),
        last_state=_known(rows, "state", last=True),
        transitions=transitions,
        spent=_spent(rows, meaning),
        earned=float(meaning.rewards[rows["state"].drop_nulls().to_numpy()].mean()),
        found=_found(rows, roles["time"], len(seen) - len(transitions)),
        signs=signs_of(
            rows, known, columns, profiles, meaning.rewards, (roles["state"].name, meaning.states)
        ),
    )


def _placed(rows: pl.DataFrame, meaning: Meaning) -> pl.DataFrame:
    """States and actions as numbers."""
    return rows.with_columns(
        pl.col(name).replace_strict(
            {label: place for place, label in enumerate(known)}, return_dtype=pl.Int64
        )
        for name, known in (("state", meaning.states), ("action", meaning.actions))
    )


def _check_available(rows: pl.DataFrame, meaning: Meaning, where: str) -> None:
    wrong = rows.filter(~pl.col("available") & (pl.col("action") > 0)).sort("row")
    if wrong.height:
        first = wrong.row(0, named=True)
        raise InputError(
            f"{where}: {row_in(where, first['row'])} has the action "
            f"'{meaning.actions[first['action']]}' although the person was not available; correct "
            "the one or the other."
        )


def _transitions(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows with a known state and action whose next row is one round later and has a state."""
    return rows.with_columns(
        following=pl.col("state").shift(-1).over("person"),
        ahead=pl.col("steps").shift(-1).over("person"),
    ).filter(
        (pl.col("ahead") == 1)
        & pl.all_horizontal(pl.col("state", "action", "following").is_not_null())
    )


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


def _spent(rows: pl.DataFrame, meaning: Meaning) -> float:
    """What a round's actions cost, on average over the rounds in which any action is known."""
    done = rows.filter(pl.col("action").is_not_null())
    return float(meaning.costs[done["action"].to_numpy()].sum()) / max(done["round"].n_unique(), 1)


def _known(rows: pl.DataFrame, name: str, *, last: bool) -> np.ndarray:
    found = pl.col(name).drop_nulls()
    each = rows.group_by("person", maintain_order=True).agg(found.last() if last else found.first())
    return each[name].fill_null(-1).to_numpy()


def _found(rows: pl.DataFrame, time: pl.Series, unavailable: int) -> Found:
    people = rows.group_by("person").agg(
        rows=pl.len(), first=pl.col("round").min(), last=pl.col("round").max()
    )
    begun, ended = rows["round"].min(), rows["round"].max()
    rounds, shown = rows["round"].n_unique(), rows.sort("time")["shown"]
    missing = rows.filter(pl.col("steps") > 1)["steps"]
    dates, apart = are_dates(time, rows), int(rows["apart"][0])
    acted = (rows["action"] > 0).fill_null(False)
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
        unavailable=unavailable,
        tried=int(acted.sum()),
        not_reached=int((acted & ~rows["reached"]).sum()),
    )


def _unit(name: str, dates: bool, apart: int) -> str:
    """By how far apart dates are, or by the name of a column that counts rounds."""
    if dates:
        return {1: "day", 7: "week"}.get(apart, "month" if 28 <= apart <= 31 else "round")
    said = [unit for unit in ("day", "week", "month") if unit in name.lower()]
    return said[0] if said and apart == 1 else "round"
