"""What is asked of a model for a plan, kept so that the same can be asked again."""

import dataclasses
import json
from typing import Any

import polars as pl

from prefermab.errors import InputError, count, number
from prefermab.planning.rules import Rules
from prefermab.programme.identity import versions
from prefermab.programme.packing import difference, pack, unpack
from prefermab.programme.people import SINCE_ACTION
from prefermab.programme.queries import Planned


def question(budget: float, rules: Any, waiting: int, more: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a plan, as JSON holds them."""
    if rules is not None and not dataclasses.is_dataclass(rules):
        raise InputError(f"rules must be pm.Rules(...), not {type(rules).__name__}.")
    asked = {
        "budget": number(budget, "budget"),
        "rules": None if rules is None else dataclasses.asdict(rules),  # pyright: ignore[reportArgumentType]
        "waiting": count(waiting, "waiting", at_least=0),
        **more,
    }
    try:
        return json.loads(json.dumps(asked))
    except TypeError:
        raise InputError("rules and other arguments must be plain values.") from None


def since_column(asked: dict[str, Any]) -> str:
    """The column in which the rules look for the rounds since the last action."""
    return (asked["rules"] or {}).get("last") or SINCE_ACTION


def ask(
    model: Any, inputs: pl.DataFrame, asked: dict[str, Any]
) -> tuple[pl.DataFrame, dict[str, Any]]:
    """A plan's frame and the facts of its summary, from exactly what is stored of the question."""
    rules = asked["rules"]
    if rules is not None:
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in rules.items()
        }
        rules = Rules(**given)
    plan = model.plan(unpack(pack(inputs)), **{**asked, "rules": rules})
    facts = json.dumps(dataclasses.asdict(plan.summary), default=lambda value: value.item())
    return plan.frame, json.loads(facts)


def change(old: Planned, asked: dict[str, Any], inputs: pl.DataFrame, model: str) -> str | None:
    """What is asked differently from a plan that was made, in words; None if nothing is."""
    if old.model != model:
        return "the model changed"
    for name, value in asked.items():
        if old.asked.get(name) != value:
            from_to = "" if name == "rules" else f" from {old.asked.get(name)} to {value}"
            return f"{name} changed{from_to}"
    told = difference(old.inputs, inputs)
    return None if told is None else f"what is known of people changed ({told})"


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
