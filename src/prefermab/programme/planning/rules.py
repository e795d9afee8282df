"""Rules that a plan must keep, and what they mean for each row of a table of people."""

import dataclasses
import functools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import polars as pl

from prefermab.errors import InputError, amount, count, share, unknown
from prefermab.model import Model
from prefermab.programme.columns import (
    FALSE,
    TRUE,
    as_flags,
    as_labels,
    as_numbers,
    column,
    source_columns,
)
from prefermab.programme.planning.roster import Participants, sighting_columns
from prefermab.programme.sources.cleaning import clean_ids
from prefermab.programme.tables import first_row, row_in

Class = TypeVar("Class", bound=type)

OLD_NAMES = {name: f"{name}_column" for name in ("exclude", "lock", "last", "group", "worker")}
"""Names of fields of `Rules` before 0.2.0, which are still accepted, and their present names."""


def accept_old_names(cls: Class) -> Class:
    """A class decorator: the fields can also be given and read by their old names."""
    init = cls.__init__

    @functools.wraps(init)
    def init_with_old_names(self: Any, *args: Any, **given: Any) -> None:
        for old, new in OLD_NAMES.items():
            if old in given and new in given:
                raise InputError(f"give {new} only: {old} is its old name.")
        init(self, *args, **{OLD_NAMES.get(name, name): value for name, value in given.items()})

    cls.__init__ = init_with_old_names
    for old, new in OLD_NAMES.items():
        setattr(cls, old, property(operator.attrgetter(new)))
    return cls


@accept_old_names
@dataclasses.dataclass(frozen=True)
class Rules:
    """Rules that a plan must keep. All columns are columns of the table of people.

    Before 0.2.0 the fields that name columns were called exclude, lock, last, group and worker;
    these names are still accepted.

    Args:
        exclude_column: Column of true and false; people with true are not acted on.
        exclude_ids: Ids of more people who are not acted on, or one id.
        lock_column: Column of true and false, or of actions by name; people with true must get some
            action, and people with the name of an action must get that one.
        lock_ids: Ids of more people who must get some action, or one id.
        cooldown: Number of rounds after an action in which the same person is not acted on again.
        last_column: Column with the rounds since a person's last action; empty if there was none.
        group_column: Column with the group of each person, for `min_share` and `max_share`.
        min_share: The smallest share of all people acted on that each group must have.
        max_share: The largest share of all people acted on that each group may have.
        worker_column: Column with the worker, or the region, of each person, for `budgets`.
        budgets: The budget of each worker; workers who are not named have no limit of their own.

    >>> import prefermab as pm
    >>> rules = pm.Rules(exclude_column="do_not_call", cooldown=2, group_column="region",
    ...                  min_share={"north": 0.3}, worker_column="nurse", budgets={"Ana": 5})
    >>> rules.last_column
    'rounds_since_action'
    """

    exclude_column: str | None = None
    exclude_ids: Sequence[str | int] = ()
    lock_column: str | None = None
    lock_ids: Sequence[str | int] = ()
    cooldown: int = 0
    last_column: str = "rounds_since_action"
    group_column: str | None = None
    min_share: Mapping[str, float] = dataclasses.field(default_factory=dict)
    max_share: Mapping[str, float] = dataclasses.field(default_factory=dict)
    worker_column: str | None = None
    budgets: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        count(self.cooldown, "cooldown", at_least=0)
        for name in ("exclude_ids", "lock_ids"):
            given = getattr(self, name)
            ids = (given,) if isinstance(given, str | int) else tuple(given)
            object.__setattr__(self, name, ids)
        for name in ("min_share", "max_share"):
            for group, value in getattr(self, name).items():
                share(value, f"{name} of the group '{group}'")
        for worker, value in self.budgets.items():
            amount(value, f"the budget of '{worker}'")
        if (self.min_share or self.max_share) and self.group_column is None:
            raise InputError("min_share and max_share need `group_column`.")
        if self.budgets and self.worker_column is None:
            raise InputError("budgets need `worker_column`, the column of the workers or regions.")
        least = sum(self.min_share.values())
        if least > 1 + 1e-9:
            raise InputError(
                f"the least shares of the groups ({_in_words(self.min_share)}) add up to "
                f"{least:.0%}, more than 100%."
            )
        for group in self.min_share.keys() & self.max_share.keys():
            if self.min_share[group] > self.max_share[group]:
                raise InputError(
                    f"the group '{group}' must get at least {self.min_share[group]:.0%} and at "
                    f"most {self.max_share[group]:.0%} of the actions: no plan can do both."
                )

    def columns(self) -> tuple[str | None, ...]:
        """The columns that the rules name."""
        return tuple(getattr(self, name) for name in OLD_NAMES.values())

    @property
    def about_groups(self) -> bool:
        """Whether people share limits beyond the budget: shares of groups, budgets of workers."""
        return bool(self.min_share or self.max_share or self.budgets)

    def named(self) -> dict[str, "Rules"]:
        """Each rule in force by name, with the rules that remain if it is removed."""
        without = {
            "exclude": {"exclude_column": None, "exclude_ids": ()},
            "lock": {"lock_column": None, "lock_ids": ()},
            "cooldown": {"cooldown": 0},
            "min_share": {"min_share": {}},
            "max_share": {"max_share": {}},
            "budgets": {"budgets": {}},
        }
        return {
            name: dataclasses.replace(self, **change)
            for name, change in without.items()
            if any(getattr(self, field) for field in change)
        }


def _in_words(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{group} {value:.0%}" for group, value in shares.items())


IN, OUT, EXCLUDED, RESTING = range(4)
"""The person may be acted on (IN), has opted out, is excluded, or is in cooldown."""

ANY = -1
"""The person is locked in, with whichever action is best."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits that the rules set for each row, group and worker."""

    standing: np.ndarray
    locked: np.ndarray
    """The action that a person must get: 0 if none, `ANY` if whichever is best."""
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


def apply_rules(
    rules: Rules, model: Model, roster: Participants, frame: pl.DataFrame, where: str
) -> Limits:
    """Reads the columns that rules name; raises an error if two rules contradict for a person."""
    stands = standing(rules, roster, frame, where)
    locked = locked_rows(rules, model, roster, frame, where)
    against = np.flatnonzero((locked != 0) & (stands != IN))
    if against.size:
        row = int(against[0])
        why = {OUT: "has opted out", EXCLUDED: "is excluded", RESTING: "is in cooldown"}
        raise InputError(
            f"{where}: {row_in(where, row)} (id {roster.ids[row]}) is locked in but "
            f"{why[int(stands[row])]}: remove one of the two rules."
        )
    group, groups = label_codes(frame, rules.group_column, where)
    worker, workers = label_codes(frame, rules.worker_column, where)
    return Limits(
        standing=stands,
        locked=locked,
        group=group,
        worker=worker,
        group_names=groups,
        worker_names=workers,
        **limits_by_label(rules, groups, workers),
    )


def limits_by_label(
    rules: Rules, groups: tuple[str, ...], workers: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """The shares of each group and the budget of each worker, as `Limits` has them."""
    by_group, by_worker = ("group", rules.group_column), ("worker", rules.worker_column)
    return {
        "min_share": _per_label(rules.min_share, groups, 0.0, *by_group),
        "max_share": _per_label(rules.max_share, groups, 1.0, *by_group),
        "budgets": _per_label(rules.budgets, workers, np.inf, *by_worker),
    }


def standing(rules: Rules, roster: Participants, frame: pl.DataFrame, where: str) -> np.ndarray:
    """IN, OUT, EXCLUDED or RESTING for each row: who may be acted on, and why others may not."""
    excluded = rows_with_ids(roster, rules.exclude_ids, "exclude_ids", where)
    if rules.exclude_column is not None:
        given = column(frame, rules.exclude_column, where)
        excluded |= as_flags(given, where, unknown=False).to_numpy()
    resting = np.zeros(roster.size, bool)
    if rules.cooldown:
        since = as_numbers(column(frame, rules.last_column, where), where)
        if (since < 0).any():
            row = first_row(since < 0)
            raise InputError(
                f"{where}: the column '{rules.last_column}' must hold rounds since the last "
                f"action, but {row_in(where, row)} holds {since[row]:g}."
            )
        resting = (since <= rules.cooldown).fill_null(False).to_numpy()
    return np.select([~roster.opt_in, excluded, resting], [OUT, EXCLUDED, RESTING], IN)


def locked_rows(
    rules: Rules, model: Model, roster: Participants, frame: pl.DataFrame, where: str
) -> np.ndarray:
    """The action that each person must get: 0 if none, `ANY` if whichever is best."""
    locked = np.where(rows_with_ids(roster, rules.lock_ids, "lock_ids", where), ANY, 0)
    if rules.lock_column is None:
        return locked
    given = column(frame, rules.lock_column, where)
    text = as_labels(given).str.to_lowercase()
    actions = {name.lower(): place for place, name in enumerate(model.action_names)}
    words = {**dict.fromkeys(TRUE, ANY), **dict.fromkeys(FALSE, 0), "": 0, **actions}
    strange = text.is_not_null() & ~text.is_in(list(words))
    if strange.any():
        row = first_row(strange)
        raise InputError(
            f"{where}: the column '{rules.lock_column}' must hold true, false or an action (one of "
            f"{', '.join(model.action_names)}), but {row_in(where, row)} holds '{given[row]}'."
        )
    given = text.replace_strict(words, default=0, return_dtype=pl.Int32).fill_null(0).to_numpy()
    return np.where(given != 0, given, locked)


def rows_with_ids(
    roster: Participants, ids: Iterable[str | int], rule: str, where: str
) -> np.ndarray:
    """Which rows have one of these ids."""
    wanted = clean_ids(pl.Series([str(one) for one in ids], dtype=pl.String)).to_list()
    if not wanted:
        return np.zeros(roster.size, bool)
    text = as_labels(roster.ids)
    strange = set(map(str, wanted)) - set(text.to_list())
    if strange:
        raise InputError(f"{where}: nobody has the id '{min(strange)}' that {rule} names.")
    return text.is_in(wanted).to_numpy()


def label_codes(
    frame: pl.DataFrame, name: str | None, where: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """A column of labels as numbers, and the labels; -1 for people without a label."""
    if name is None:
        return np.full(frame.height, -1), ()
    text = column(frame, name, where).cast(pl.String).str.strip_chars()
    labels = tuple(sorted(text.drop_nulls().unique().to_list()))
    places = {label: place for place, label in enumerate(labels)}
    found = text.replace_strict(places, default=-1, return_dtype=pl.Int32).fill_null(-1)
    return found.to_numpy(), labels


def _per_label(
    given: Mapping[str, float],
    labels: tuple[str, ...],
    default: float,
    kind: str,
    column_name: str | None,
) -> np.ndarray:
    """A number for each label."""
    numbers = {str(label): value for label, value in given.items()}
    for label in numbers:
        if label not in labels:
            raise unknown(f"{kind} of the column '{column_name}'", label, labels)
    return np.array([numbers.get(label, default) for label in labels], float)


def unused_columns(model: Model, rules: Rules, columns: Sequence[str]) -> list[str]:
    """Columns of a table that neither the model nor a rule uses."""
    used = {"id", "state", "opt_in", *source_columns(model.feature_names)}
    used |= {f"cost_{action}" for action in model.action_names} | sighting_columns(model)
    used |= {name.strip().lower() for name in rules.columns() if name}
    return [name for name in columns if name not in used and name.lower() not in used]
