"""What the labels of a log mean: which states there are and earn what, which actions cost what."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prefermab.errors import InputError, number, unknown
from prefermab.programme.logs.columns import label_of
from prefermab.programme.tables import row_in

FAILED = re.compile(
    r"\b(no (answer|reply|response|contact|show)|not (reached|answered|home)|(not|n t) answer|"
    r"unanswered|unreach\w*|unsuccessful|missed|busy|fail(ed|ure)?|voice ?mail|switched off|"
    r"hung up)\b"
)
"""What an attempt that came to nothing is called."""


@dataclasses.dataclass(frozen=True, eq=False)
class Meaning:
    """States with their rewards, and actions with their costs, the passive one first."""

    states: tuple[str, ...]
    rewards: np.ndarray
    actions: tuple[str, ...]
    costs: np.ndarray


def meaning_of(
    states: Mapping[str, int],
    actions: Mapping[str, int],
    costs: Mapping[Any, Any] | Sequence[Any] | None,
    rewards: Mapping[Any, Any] | None,
    passive: Any,
    where: str,
) -> Meaning:
    """Labels that were found, each with its first row, put together with what was said of them.

    >>> from prefermab.programme.logs.meaning import meaning_of
    >>> found = meaning_of({"bad": 0, "good": 1}, {"call": 1, "none": 0}, {"none": 0, "call": 2},
    ...                    {"bad": 0, "good": 1}, None, "the log")
    >>> found.actions
    ('none', 'call')
    """
    if len(states) < 2:
        raise InputError(
            f"{where}: there is only the state '{_only(states)}'; expected at least two, so that "
            "something can change."
        )
    if len(actions) < 2:
        raise InputError(
            f"{where}: there is only the action '{_only(actions)}': nothing can be learned about "
            f"{_others(actions, costs)}."
        )
    earned = _rewards(rewards, states, where)
    paid = _costs(costs, actions, passive, where)
    ordered = _passive_first(paid, passive)
    return Meaning(
        tuple(earned),
        np.array(list(earned.values())),
        ordered,
        np.array([paid[action] for action in ordered]),
    )


def failed(action: str) -> bool:
    """Whether a label seems to say that an action was tried and did not reach anybody.

    >>> from prefermab.programme.logs.meaning import failed
    >>> [failed(label) for label in ("No_answer", "call failed", "call", "none")]
    [True, True, False, False]
    """
    return bool(FAILED.search(re.sub(r"[\W_]+", " ", action.lower())))


TRIED = "write the action that was tried, and false in a column 'reached'"


def _rewards(
    rewards: Mapping[Any, Any] | None, states: Mapping[str, int], where: str
) -> dict[str, float]:
    if not isinstance(rewards, Mapping):
        raise InputError(f"rewards must give a number for each state: {', '.join(states)}.")
    earned = {label_of(name): _finite(value, name) for name, value in rewards.items()}
    _check_labels("rewards", "state", earned, states, where)
    if len(set(earned.values())) == 1:
        raise InputError("rewards are the same for every state: no action can be worth anything.")
    return earned


def _costs(
    costs: Mapping[Any, Any] | Sequence[Any] | None,
    actions: Mapping[str, int],
    passive: Any,
    where: str,
) -> dict[str, float]:
    """A cost for each action; left out, the passive one is free and the others cost 1."""
    if passive is not None and label_of(passive) not in actions:
        name = label_of(passive)
        raise InputError(
            f"passive is '{name}', which is no action of {where}: {_hint(name, actions)}"
        )
    if costs is None:
        free = label_of(passive) if passive is not None else "0"
        if free not in actions:
            raise InputError(
                f"costs or passive must say which action costs nothing: {', '.join(actions)}."
            )
        for action, row in actions.items():
            if action != free and failed(action):
                raise InputError(
                    f"the action '{action}' of {where}, first in {row_in(where, row)}, looks like "
                    f"an attempt that failed: {TRIED}; if it is an action of its own, give it a "
                    "cost."
                )
        return {action: float(action != free) for action in actions}
    if not isinstance(costs, Mapping):
        values = list(costs)
        if len(values) != len(actions):
            raise InputError(
                f"costs must have a number for each of {', '.join(actions)}, in this order, "
                f"not {len(values)}."
            )
        costs = dict(zip(actions, values, strict=True))
    paid = {label_of(name): number(cost, f"the cost of '{name}'") for name, cost in costs.items()}
    _check_labels("costs", "action", paid, actions, where)
    return paid


def _passive_first(paid: dict[str, float], passive: Any) -> tuple[str, ...]:
    free = [action for action, cost in paid.items() if cost == 0]
    if passive is not None:
        name = label_of(passive)
        if paid[name] != 0:
            raise InputError(f"the passive action '{name}' must cost 0, not {paid[name]:g}.")
        free = [name]
    if len(free) != 1:
        told = f"not {' and '.join(free)}: name it with passive" if free else "but none does"
        raise InputError(f"exactly one action, the passive one, must cost 0, {told}.")
    return (free[0], *(action for action in paid if action != free[0]))


def _check_labels(
    name: str, kind: str, given: Mapping[str, float], known: Mapping[str, int], where: str
) -> None:
    for label in given:
        if label not in known:
            raise InputError(
                f"{name} name the {kind} '{label}', which {where} never has, so that nothing can "
                f"be learned about it: {_hint(label, known)}"
            )
    for label, row in known.items():
        if label not in given:
            advice = "; leave the cell empty if it is unknown"
            if kind == "action" and failed(label):
                advice = f": if it is an attempt that failed, {TRIED}"
            raise InputError(
                f"{name} must give a number for the {kind} '{label}' of {where}, first in "
                f"{row_in(where, row)}{advice}."
            )


def _hint(name: str, known: Mapping[str, int]) -> str:
    """What may be meant by a name that is not known."""
    return str(unknown("label", name, known)).removeprefix(f"unknown label '{name}': ")


def _finite(value: Any, name: Any) -> float:
    try:
        real = float(value)
    except (TypeError, ValueError):
        real = math.nan
    if not math.isfinite(real):
        raise InputError(f"the reward of '{name}' must be a finite number, not {value!r}.")
    return real


def _only(names: Mapping[str, int]) -> str:
    return next(iter(names), "unknown")


def _others(actions: Mapping[str, int], costs: Any) -> str:
    named = [label_of(name) for name in costs] if isinstance(costs, Mapping) else []
    other = [f"'{name}'" for name in named if name not in actions]
    return " and ".join(other) or "any other"
