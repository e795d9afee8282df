"""Rules applied to a table of people: who may, who must, and who shares a limit with whom."""

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl

from prefermab.errors import InputError, unknown
from prefermab.model import Model
from prefermab.programme.planning.roster import Roster
from prefermab.programme.planning.rules import Rules
from prefermab.programme.tables import FALSE, TRUE, as_flags, as_numbers, column, first_row, row_in

IN, OUT, EXCLUDED, RESTING = range(4)
"""Why somebody may (IN) or may not be acted on: opted out, excluded, in cooldown."""

ANY = -1
"""Locked in, whatever the action."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What the rules mean for each row."""

    standing: np.ndarray
    locked: np.ndarray
    """The action that a person must get: 0 if none, `ANY` if it is left open."""
    group: np.ndarray
    min_share: np.ndarray
    max_share: np.ndarray
    worker: np.ndarray
    budgets: np.ndarray
    group_names: tuple[str, ...]
    worker_names: tuple[str, ...]

    @property
    def may(self) -> np.ndarray:
        """Who may be acted on."""
        return self.standing == IN


def apply(rules: Rules, model: Model, roster: Roster, frame: pl.DataFrame, where: str) -> Limits:
    """Reads the rules' columns; rules that contradict each other for somebody are refused."""
    stands = standing(rules, roster, frame, where)
    locked = locks(rules, model, roster, frame, where)
    against = np.flatnonzero((locked != 0) & (stands != IN))
    if against.size:
        row = int(against[0])
        why = {OUT: "has opted out", EXCLUDED: "is excluded", RESTING: "is in cooldown"}
        raise InputError(
            f"{where}: {row_in(where, row)} (id {roster.ids[row]}) is locked in but "
            f"{why[int(stands[row])]}: take one of the two rules away."
        )
    group, groups = codes(frame, rules.group, where)
    worker, workers = codes(frame, rules.worker, where)
    return Limits(
        standing=stands,
        locked=locked,
        group=group,
        min_share=table(rules.min_share, groups, 0.0, "group", f"'{rules.group}'"),
        max_share=table(rules.max_share, groups, 1.0, "group", f"'{rules.group}'"),
        worker=worker,
        budgets=table(rules.budgets, workers, np.inf, "worker", f"'{rules.worker}'"),
        group_names=groups,
        worker_names=workers,
    )


def standing(rules: Rules, roster: Roster, frame: pl.DataFrame, where: str) -> np.ndarray:
    """Who may be acted on, and why others may not: IN, OUT, EXCLUDED or RESTING for each row."""
    excluded = named(roster, rules.exclude_ids, "exclude_ids", where)
    if rules.exclude is not None:
        given = column(frame, rules.exclude, where)
        excluded |= as_flags(given, where, unknown=False).to_numpy()
    resting = np.zeros(roster.size, bool)
    if rules.cooldown:
        since = as_numbers(column(frame, rules.last, where), where)
        if (since < 0).any():
            row = first_row(since < 0)
            raise InputError(
                f"{where}: the column '{rules.last}' must hold rounds since the last action, but "
                f"{row_in(where, row)} holds {since[row]:g}."
            )
        resting = (since <= rules.cooldown).fill_null(False).to_numpy()
    return np.select([~roster.opt_in, excluded, resting], [OUT, EXCLUDED, RESTING], IN)


def locks(
    rules: Rules, model: Model, roster: Roster, frame: pl.DataFrame, where: str
) -> np.ndarray:
    """The action that each person must get."""
    locked = np.where(named(roster, rules.lock_ids, "lock_ids", where), ANY, 0)
    if rules.lock is None:
        return locked
    given = column(frame, rules.lock, where)
    text = given.cast(pl.String).str.strip_chars().str.to_lowercase()
    actions = {name.lower(): place for place, name in enumerate(model.action_names)}
    words = {**dict.fromkeys(TRUE, ANY), **dict.fromkeys(FALSE, 0), "": 0, **actions}
    strange = text.is_not_null() & ~text.is_in(list(words))
    if strange.any():
        row = first_row(strange)
        raise InputError(
            f"{where}: the column '{rules.lock}' must hold true, false or an action of "
            f"{', '.join(model.action_names)}, but {row_in(where, row)} holds '{given[row]}'."
        )
    told = text.replace_strict(words, default=0, return_dtype=pl.Int32).fill_null(0).to_numpy()
    return np.where(told != 0, told, locked)


def named(roster: Roster, ids: Iterable[str | int], rule: str, where: str) -> np.ndarray:
    """Which rows have one of these ids."""
    wanted = [str(one) for one in ids]
    if not wanted:
        return np.zeros(roster.size, bool)
    text = roster.ids.cast(pl.String)
    strange = set(wanted) - set(text.to_list())
    if strange:
        raise InputError(f"{where}: nobody has the id '{min(strange)}' that {rule} names.")
    return text.is_in(wanted).to_numpy()


def codes(frame: pl.DataFrame, name: str | None, where: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """A column of labels as numbers, and the labels; somebody without a label is of none."""
    if name is None:
        return np.full(frame.height, -1), ()
    text = column(frame, name, where).cast(pl.String).str.strip_chars()
    labels = tuple(sorted(text.drop_nulls().unique().to_list()))
    places = {label: place for place, label in enumerate(labels)}
    found = text.replace_strict(places, default=-1, return_dtype=pl.Int32).fill_null(-1)
    return found.to_numpy(), labels


def table(
    given: Mapping[str, float], labels: tuple[str, ...], default: float, kind: str, where: str
) -> np.ndarray:
    """A number for each label."""
    for label in given:
        if str(label) not in labels:
            raise unknown(f"{kind} of the column {where}", str(label), labels)
    told = {str(label): value for label, value in given.items()}
    return np.array([told.get(label, default) for label in labels], float)
