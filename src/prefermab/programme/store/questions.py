"""What is asked of a model for a plan, kept so that the same can be asked again."""

import dataclasses
import inspect
import json
from typing import Any

import numpy as np
import polars as pl

from prefermab.errors import InputError, count, number, unknown
from prefermab.model import Model
from prefermab.programme.planning.roster import Roster
from prefermab.programme.planning.rules import IN, Rules, apply, standing
from prefermab.programme.store.identity import versions
from prefermab.programme.store.packing import difference, pack, unpack
from prefermab.programme.store.people import SINCE_ACTION
from prefermab.programme.store.queries import Planned


def question(
    model: Any, budget: float, rules: Any, waiting: int, more: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a plan, as JSON holds them."""
    if rules is not None and not isinstance(rules, Rules):
        raise InputError(f"rules must be pm.Rules(...), not {type(rules).__name__}.")
    taken = inspect.signature(model.plan).parameters
    if not any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        for name in more:
            if name not in taken:
                raise unknown("argument of plan", name, [*list(taken)[1:], "round", "again"])
    asked = {
        "budget": number(budget, "budget"),
        "rules": None if rules is None else dataclasses.asdict(rules),
        "waiting": count(waiting, "waiting", at_least=0),
        **more,
    }
    try:
        return json.loads(json.dumps(asked))
    except TypeError:
        raise InputError("rules and other arguments must be plain values.") from None


def check_rules(model: Any, asked: dict[str, Any], inputs: pl.DataFrame, where: str) -> None:
    """Rules that speak of columns, ids or groups that are not there are wrong, whatever was
    planned before. What is no Model of ours reads rules in its own way, and checks them itself."""
    rules = _rules(asked)
    if rules is not None and isinstance(model, Model):
        apply(rules, model, _people(inputs), inputs, where)


def can_be_chosen(asked: dict[str, Any], inputs: pl.DataFrame, where: str) -> pl.Series:
    """Whom a plan could choose at all: not those who opted out, are excluded or in cooldown.

    Where the rules cannot be read, a model that is no Model of ours read them in its own way: then
    only opting out is known.
    """
    people = _people(inputs)
    try:
        return pl.Series(standing(_rules(asked) or Rules(), people, inputs, where) == IN)
    except InputError:
        return pl.Series(people.opt_in)


def _people(inputs: pl.DataFrame) -> Roster:
    """As much of the people as rules look at beside the table: their ids, and who is in."""
    nothing, here = np.zeros(0), np.ones(inputs.height, bool)
    if "opt_in" in inputs.columns:
        here = inputs["opt_in"].fill_null(False).to_numpy()
    return Roster(inputs["id"], nothing, nothing, here, nothing, {})


def since_column(asked: dict[str, Any]) -> str:
    """The column in which the rules look for the rounds since the last action."""
    return (asked["rules"] or {}).get("last") or SINCE_ACTION


def ask(
    model: Any, inputs: pl.DataFrame, asked: dict[str, Any]
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """A plan's frame and the facts of its summary, from exactly what is stored of the question."""
    plan = model.plan(unpack(pack(inputs)), **{**asked, "rules": _rules(asked)})
    facts = json.dumps(dataclasses.asdict(plan.summary), default=lambda value: value.item())
    return plan.frame, json.loads(facts)


def change(old: Planned, asked: dict[str, Any], inputs: pl.DataFrame, model: str) -> str | None:
    """What is asked differently from a plan that was made, in words; None if nothing is."""
    if old.model != model:
        return "the model changed"
    return asked_otherwise(old.asked, asked) or _others(old.inputs, inputs)


def asked_otherwise(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """The first argument that differs, a rule by its name; None if all are the same.

    >>> from prefermab.programme.store.questions import asked_otherwise
    >>> asked_otherwise({"rules": None}, {"rules": {"cooldown": 2}})
    'the rule cooldown changed from 0 to 2'
    """
    before, after = _flat(old), _flat(new)
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            return f"{name} changed from {_told(before.get(name))} to {_told(after.get(name))}"
    return None


def _flat(asked: dict[str, Any]) -> dict[str, Any]:
    """All arguments side by side; a rule that was not given is as it is without one."""
    usual = json.loads(json.dumps(dataclasses.asdict(Rules())))
    rules = {**usual, **(asked["rules"] or {})}
    rest = {name: value for name, value in asked.items() if name != "rules"}
    return {**rest, **{f"the rule {name}": value for name, value in rules.items()}}


def _told(value: Any) -> str:
    return "nothing" if value is None or value in ([], {}, "") else str(value)


def _others(old: pl.DataFrame, new: pl.DataFrame) -> str | None:
    """Who left or joined, or what else is known of whom."""
    moved = []
    for one, other, did in ((old, new, "left"), (new, old, "joined")):
        who = one["id"].filter(~one["id"].is_in(other["id"].implode()))
        if len(who):
            moved.append(f"{who[0]}{f' and {len(who) - 1} more' if len(who) > 1 else ''} {did}")
    if moved:
        return " and ".join(moved)
    added = [name for name in new.columns if name not in old.columns]
    if added:
        return f"the column '{added[0]}' came in"
    told = difference(old, new)
    return None if told is None else f"what is known of people changed ({told})"


def _rules(asked: dict[str, Any]) -> Rules | None:
    """The rules, from what JSON made of them."""
    if asked["rules"] is None:
        return None
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in asked["rules"].items()
    }
    return Rules(**given)


def check_replay(old: Planned, frame: pl.DataFrame, facts: dict[str, Any]) -> None:
    """A plan that was made again must be the stored one, to the last bit."""
    differs = difference(old.frame, frame)
    if differs is None and json.dumps(facts) != json.dumps(old.facts):
        differs = "its summary is another"
    if differs is None:
        return
    now = versions()
    other = [f"{name} {was}" for name, was in old.versions.items() if now.get(name) != was]
    hint = f"; it was made with {', '.join(other)}" if other else ""
    raise InputError(
        f"the plan of round {old.round} does not come out as it was stored (then and now): "
        f"{differs}{hint}."
    )
