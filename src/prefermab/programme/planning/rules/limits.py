"""What all rules together mean for each person of a table."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.models.model import Model
from prefermab.programme.planning.roster import Participants, model_columns
from prefermab.programme.planning.rules.base import IN, OUT, RULES, Bars, Rules
from prefermab.programme.planning.rules.people import People
from prefermab.programme.planning.rules.shared import SharedLimits
from prefermab.programme.tables.naming import OPT_IN, is_opt_out, name_key, refuse_similar_names
from prefermab.programme.tables.table import row_in


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits that the rules set for each person, and those that people share."""

    standing: np.ndarray
    """`IN`, `OUT`, or the number of the rule that bars the person."""
    locked: np.ndarray
    """The action that a person must get: 0 if none, `ANY` if whichever is best."""
    shared: tuple[SharedLimits, ...] = ()

    @property
    def may(self) -> np.ndarray:
        """Who may be acted on."""
        return self.standing == IN


def apply_rules(
    rules: Rules, model: Model, roster: Participants, table: pl.DataFrame, where: str
) -> Limits:
    """Reads the columns that rules name; raises an error if two rules contradict for a person."""
    people = People(table, roster.ids, roster.opt_in, model.action_names, where)
    shared = shared_limits(rules, labels_of(rules, people))
    return dataclasses.replace(limits_alone(rules, people), shared=shared)


Labels = tuple[np.ndarray, tuple[str, ...]]
"""Everyone's label as a number, -1 for none, and the names of the labels."""


def labels_of(rules: Rules, people: People) -> list[Labels]:
    """The labels by which each rule ties people together."""
    return [people.labels(rule.label_column or "") for rule in rules.tying]


def shared_limits(rules: Rules, labels: Sequence[Labels]) -> tuple[SharedLimits, ...]:
    """The limits that people with the same label share."""
    return tuple(rule.limits(*each) for rule, each in zip(rules.tying, labels, strict=True))


def limits_alone(rules: Rules, people: People) -> Limits:
    """The limits of each person alone; raises an error if two rules contradict for a person."""
    standing, locked, where = standing_of(rules, people), np.zeros(people.size, int), people.where
    for rule in rules.forcing:
        asked = rule.forced(people)
        locked = np.where(asked != 0, asked, locked)
    against = np.flatnonzero((locked != 0) & (standing != IN))
    if against.size:
        row = int(against[0])
        raise InputError(
            f"{where}: {row_in(where, row)} (id {people.ids[row]}) is locked in but "
            f"{reasons_out('has opted out', 'is ')[int(standing[row])]}: remove one of the two "
            "rules."
        )
    return Limits(standing, locked)


def standing_of(rules: Rules, people: People) -> np.ndarray:
    """`IN`, `OUT` or the number of a rule for each person: who may be acted on, and why others may
    not. The first reason counts."""
    reasons = [~people.opt_in, *(rule.barred(people) for rule in rules.barring)]
    return np.select(reasons, [OUT, *(rule.standing for rule in rules.barring)], IN)


def reasons_out(opted_out: str = "opted out", before: str = "") -> dict[int, str]:
    """Why people are kept out, by the number of their standing.

    >>> from prefermab.programme.planning.rules.limits import reasons_out
    >>> list(reasons_out().items())[:3]
    [(1, 'opted out'), (2, 'excluded'), (3, 'in cooldown')]
    """
    barring = [rule for rule in RULES.values() if issubclass(rule, Bars)]
    return {OUT: opted_out, **{rule.standing: f"{before}{rule.kept_out}" for rule in barring}}


def check_columns(model: Model, rules: Rules, columns: Sequence[str], where: str) -> None:
    """Raises an error if a column may be one that decides who is acted on, but is not read."""
    named = [*rules.columns(), *rules.ignore_columns]
    used = {name_key(name) for name in named}
    for name in columns:
        if is_opt_out(name) and name_key(name) not in used:
            raise InputError(
                f"{where}: the column '{name}' is not read, only '{OPT_IN}' is: if people with "
                f"true in it must not be acted on, name it in exclude_column (--exclude {name}), "
                f"else in ignore_columns (--ignore {name})."
            )
    refuse_similar_names(
        columns, model_columns(model), where, "name it in ignore_columns (--ignore)", named
    )


def unused_columns(model: Model, rules: Rules, columns: Sequence[str]) -> list[str]:
    """Columns of a table that neither the model nor a rule uses or ignores."""
    named = (*rules.columns(), *rules.ignore_columns)
    used = {name_key(name) for name in (*model_columns(model), *named)}
    return [name for name in columns if name_key(name) not in used]
