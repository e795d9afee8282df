"""The labels of a log: its states with their rewards, and its actions with their costs."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from prefermab.errors import InputError, amount, unknown
from prefermab.programme.tables.columns import as_labels
from prefermab.programme.tables.table import row_in

FAILED = re.compile(
    r"\b(no (answer|reply|response|contact|show)|not (reached|answered|home)|(not|n t) answer|"
    r"unanswered|unreach\w*|unsuccessful|missed|busy|fail(ed|ure)?|voice ?mail|switched off|"
    r"hung up)\b"
)
"""Matches labels of attempts that did not reach the person."""

WRITE_ATTEMPT = "write the action that was tried, and false in a column 'reached'"


@dataclasses.dataclass(frozen=True, eq=False)
class Labels:
    """States with their rewards, and actions with their costs, the passive one first."""

    states: tuple[str, ...]
    rewards: np.ndarray
    actions: tuple[str, ...]
    costs: np.ndarray


def as_label(value: Any) -> str:
    """A label as text, whatever its type.

    >>> from prefermab.programme.logs.labels import as_label
    >>> [as_label(value) for value in ("call ", 1, 1.0, True)]
    ['call', '1', '1', 'true']
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating) and value == int(value):
        return str(int(value))
    return str(value).strip()


def sort_labels(names: Sequence[str]) -> list[str]:
    """Sorts labels: numbers by size, then texts in alphabetical order.

    >>> from prefermab.programme.logs.labels import sort_labels
    >>> sort_labels(["call", "10", "9"])
    ['9', '10', 'call']
    """

    def key(name: str) -> tuple[bool, float, str]:
        try:
            return False, float(name), name
        except ValueError:
            return True, 0.0, name

    return sorted(names, key=key)


def distinct_labels(values: pl.Series, role: str, where: str) -> dict[str, int]:
    """The distinct labels of a column in order, each with the first row that has it. Raises an
    error if two of them differ only in upper and lower case."""
    places = pl.DataFrame({"label": as_labels(values)}).with_row_index("row").drop_nulls()
    each = places.group_by("label").agg(pl.col("row").min(), pl.len().alias("n"))
    first, often = (dict(zip(each["label"], each[name], strict=True)) for name in ("row", "n"))
    rows = {name: int(first[name]) for name in sort_labels(list(first))}
    spellings: dict[str, str] = {}
    for name in rows:
        other = spellings.setdefault(name.lower(), name)
        if other != name:
            few, many = sorted((other, name), key=lambda label: often[label])
            raise InputError(
                f"{where}: the {role} '{few}' of {row_in(where, rows[few])} in the column "
                f"'{values.name}' differs from '{many}' in upper and lower case only; expected one "
                "spelling."
            )
    return rows


def read_labels(
    states: Mapping[str, int],
    actions: Mapping[str, int],
    costs: Mapping[Any, Any] | Sequence[Any] | None,
    rewards: Mapping[Any, Any] | None,
    passive: Any,
    where: str,
) -> Labels:
    """Joins the labels of a log, each with its first row, with the given rewards and costs.

    >>> from prefermab.programme.logs.labels import read_labels
    >>> labels = read_labels({"bad": 0, "good": 1}, {"call": 1, "none": 0},
    ...     {"none": 0, "call": 2}, {"bad": 0, "good": 1}, None, "the log")
    >>> labels.actions
    ('none', 'call')
    """
    if not states:
        raise InputError(f"{where}: no row has a state: nothing can be learned.")
    if len(states) < 2:
        raise InputError(
            f"{where}: there is only the state '{_first(states)}'; expected at least two states."
        )
    if len(actions) < 2:
        raise InputError(
            f"{where}: there is only the action '{_first(actions)}': nothing can be learned about "
            f"{_absent_actions(actions, costs)}."
        )
    reward = _check_rewards(rewards, states, where)
    cost = _check_costs(costs, actions, passive, where)
    ordered = _passive_first(cost, passive)
    return Labels(
        tuple(reward),
        np.array(list(reward.values())),
        ordered,
        np.array([cost[action] for action in ordered]),
    )


def is_failed_attempt(action: str) -> bool:
    """Whether a label seems to mean that an action was tried but did not reach the person.

    >>> from prefermab.programme.logs.labels import is_failed_attempt
    >>> [is_failed_attempt(label) for label in ("No_answer", "call failed", "call", "none")]
    [True, True, False, False]
    """
    return bool(FAILED.search(re.sub(r"[\W_]+", " ", action.lower())))


def _check_rewards(
    rewards: Mapping[Any, Any] | None, states: Mapping[str, int], where: str
) -> dict[str, float]:
    if not isinstance(rewards, Mapping):
        raise InputError(f"rewards must give a number for each state: {', '.join(states)}.")
    reward = {as_label(name): _finite(value, name) for name, value in rewards.items()}
    _check_complete("rewards", "state", reward, states, where)
    if len(set(reward.values())) == 1:
        raise InputError("rewards are the same for every state: no action can be worth anything.")
    return reward


def _check_costs(
    costs: Mapping[Any, Any] | Sequence[Any] | None,
    actions: Mapping[str, int],
    passive: Any,
    where: str,
) -> dict[str, float]:
    """The cost of each action; if costs are left out, 0 for the passive one and 1 for the
    others."""
    if passive is not None and as_label(passive) not in actions:
        name = as_label(passive)
        raise InputError(
            f"passive is '{name}', which is no action of {where}: {_suggestion(name, actions)}"
        )
    if costs is None:
        return _default_costs(actions, passive, where)
    if not isinstance(costs, Mapping):
        values = list(costs)
        if len(values) != len(actions):
            raise InputError(
                f"costs must have a number for each of {', '.join(actions)}, in this order, "
                f"not {len(values)}."
            )
        costs = dict(zip(actions, values, strict=True))
    cost = {as_label(name): amount(value, f"the cost of '{name}'") for name, value in costs.items()}
    _check_complete("costs", "action", cost, actions, where)
    return cost


def _default_costs(actions: Mapping[str, int], passive: Any, where: str) -> dict[str, float]:
    """0 for the passive action and 1 for the others."""
    free = as_label(passive) if passive is not None else "0"
    if free not in actions:
        raise InputError(
            f"costs or passive must say which action costs nothing: {', '.join(actions)}."
        )
    for action, row in actions.items():
        if action != free and is_failed_attempt(action):
            raise InputError(
                f"the action '{action}' of {where}, first in {row_in(where, row)}, looks like "
                f"an attempt that failed: {WRITE_ATTEMPT}; if it is an action of its own, give it "
                "a cost."
            )
    return {action: float(action != free) for action in actions}


def _passive_first(cost: dict[str, float], passive: Any) -> tuple[str, ...]:
    free = [action for action, value in cost.items() if value == 0]
    if passive is not None:
        name = as_label(passive)
        if cost[name] != 0:
            raise InputError(f"the passive action '{name}' must cost 0, not {cost[name]:g}.")
        free = [name]
    if len(free) != 1:
        but = f"not {' and '.join(free)}: name it with passive" if free else "but none does"
        raise InputError(f"exactly one action, the passive one, must cost 0, {but}.")
    return (free[0], *(action for action in cost if action != free[0]))


def _check_complete(
    argument: str, kind: str, given: Mapping[str, float], known: Mapping[str, int], where: str
) -> None:
    """Raises an error unless the labels with a number are exactly the labels of the log."""
    for label in given:
        if label not in known:
            raise InputError(
                f"{argument} name the {kind} '{label}', which {where} never has, so that nothing "
                f"can be learned about it: {_suggestion(label, known)}"
            )
    for label, row in known.items():
        if label not in given:
            advice = "; leave the cell empty if it is unknown"
            if kind == "action" and is_failed_attempt(label):
                advice = f": if it is an attempt that failed, {WRITE_ATTEMPT}"
            raise InputError(
                f"{argument} must give a number for the {kind} '{label}' of {where}, first in "
                f"{row_in(where, row)}{advice}."
            )


def _suggestion(name: str, known: Mapping[str, int]) -> str:
    """A sentence that suggests the label that an unknown name may mean."""
    return str(unknown("label", name, known)).removeprefix(f"unknown label '{name}': ")


def _finite(value: Any, name: Any) -> float:
    try:
        real = float(value)
    except (TypeError, ValueError):
        real = math.nan
    if not math.isfinite(real):
        raise InputError(f"the reward of '{name}' must be a finite number, not {value!r}.")
    return real


def _first(names: Mapping[str, int]) -> str:
    return next(iter(names), "unknown")


def _absent_actions(actions: Mapping[str, int], costs: Any) -> str:
    named = [as_label(name) for name in costs] if isinstance(costs, Mapping) else []
    absent = [f"'{name}'" for name in named if name not in actions]
    return " and ".join(absent) or "any other"
