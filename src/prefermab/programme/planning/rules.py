"""Rules that a plan must keep, as they are given."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from prefermab.errors import InputError, count, number, share, unknown
from prefermab.model import Model
from prefermab.programme.columns import FALSE, TRUE, as_flags, as_numbers, column, source_columns
from prefermab.programme.planning.roster import Participants
from prefermab.programme.tables import first_row, row_in


@dataclasses.dataclass(frozen=True)
class Rules:
    """Who may, must and must not be acted on. Columns are those of the table of people.

    >>> import prefermab as pm
    >>> rules = pm.Rules(exclude="do_not_call", cooldown=2, group="region",
    ...                  min_share={"north": 0.3}, worker="nurse", budgets={"Ana": 5})
    >>> rules.last
    'rounds_since_action'
    """

    exclude: str | None = None
    """Column of true and false: these are not acted on."""
    exclude_ids: Sequence[str | int] = ()
    """Ids of more people who are not acted on, or one id."""
    lock: str | None = None
    """Column of true and false, or of actions by name: these are acted on first."""
    lock_ids: Sequence[str | int] = ()
    """Ids of more people who are acted on first, or one id."""
    cooldown: int = 0
    """Rounds that must pass after an action before the next."""
    last: str = "rounds_since_action"
    """Column with the rounds since the last action; empty where there was none."""
    group: str | None = None
    """Column of groups, of which the shares speak."""
    min_share: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """For each group, the least share of all people acted on."""
    max_share: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """For each group, the largest share of all people acted on."""
    worker: str | None = None
    """Column of workers or regions that have a budget of their own."""
    budgets: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """What each of them may spend; one that is not named has no limit of its own."""

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
            number(value, f"the budget of '{worker}'")
        if (self.min_share or self.max_share) and self.group is None:
            raise InputError("min_share and max_share need `group`, the column of the groups.")
        if self.budgets and self.worker is None:
            raise InputError("budgets need `worker`, the column of the workers or regions.")
        least = sum(self.min_share.values())
        if least > 1 + 1e-9:
            raise InputError(
                f"the least shares of the groups ({_told(self.min_share)}) add up to {least:.0%}, "
                "more than everyone."
            )
        for group in self.min_share.keys() & self.max_share.keys():
            if self.min_share[group] > self.max_share[group]:
                raise InputError(
                    f"the group '{group}' must get at least {self.min_share[group]:.0%} and at "
                    f"most {self.max_share[group]:.0%} of the actions: no plan can do both."
                )

    @property
    def about_groups(self) -> bool:
        """Whether some rule ties people to each other beyond the budget."""
        return bool(self.min_share or self.max_share or self.budgets)

    def named(self) -> dict[str, "Rules"]:
        """Each rule in force by its name, with the rules that are left without it."""
        without = {
            "exclude": {"exclude": None, "exclude_ids": ()},
            "lock": {"lock": None, "lock_ids": ()},
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


def _told(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{group} {value:.0%}" for group, value in shares.items())


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


def apply(
    rules: Rules, model: Model, roster: Participants, frame: pl.DataFrame, where: str
) -> Limits:
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


def standing(rules: Rules, roster: Participants, frame: pl.DataFrame, where: str) -> np.ndarray:
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
    rules: Rules, model: Model, roster: Participants, frame: pl.DataFrame, where: str
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


def named(roster: Participants, ids: Iterable[str | int], rule: str, where: str) -> np.ndarray:
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


def unused_columns(model: Model, rules: Rules, columns: Sequence[str]) -> list[str]:
    """Columns of a table that neither the model nor a rule looks at."""
    looked_at = {"id", "state", "opt_in", *source_columns(model.feature_names)}
    looked_at |= {f"cost_{action}" for action in model.action_names}
    named = (rules.exclude, rules.lock, rules.group, rules.worker, rules.last)
    looked_at |= {name.strip().lower() for name in named if name}
    return [name for name in columns if name not in looked_at and name.lower() not in looked_at]
