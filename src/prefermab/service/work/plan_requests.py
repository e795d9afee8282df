"""Plans made from requests, and the form for a plan, which turns typed texts into arguments."""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from prefermab.errors import InputError, OutdatedError, amount, count, number
from prefermab.models.model import Model
from prefermab.programme.planning.rules import Rules
from prefermab.programme.planning.rules.base import holds_names, holds_numbers, setting_of
from prefermab.programme.store import Planned, Programme


def rules_of(asked: dict[str, Any]) -> Rules | None:
    """The rules in the arguments of a plan; None if there are none."""
    given = asked.get("rules")
    return None if given is None else Rules(**given)


def make_plan(programme: Programme, asked: dict[str, Any]) -> Planned:
    """Plans the current round.

    Args:
        programme: The programme.
        asked: The arguments of `Programme.plan`, with rules as a mapping. `attempt` is the number
            of the list that this one replaces: an error if that is not the valid one any more.
            Without it no list is replaced.

    Returns:
        The plan as it is stored.
    """
    if asked.get("attempt") is None:
        apart = ("budget", "rules", "attempt", "again")
        given = {name: value for name, value in asked.items() if name not in apart}
        return programme.plan(asked["budget"], rules_of(asked), **given)

    def replace(newest: int, _: dict[str, Any]) -> dict[str, Any]:
        if newest != asked["attempt"]:
            raise OutdatedError("somebody changed the list meanwhile: look at it again.")
        apart = ("attempt", "round", "again", "why")
        return {"rules": None} | {one: value for one, value in asked.items() if one not in apart}

    return programme.replan(replace, round=asked["round"], why=asked.get("why"))


def compare_budgets(
    programme: Programme, budgets: list[float], rules: Rules | None
) -> pl.DataFrame:
    """What each of several budgets would gain and spend in the current round.

    Args:
        programme: The programme.
        budgets: The budgets.
        rules: Rules that plans must keep.

    Returns:
        A row for each budget, as `Model.what_if` gives it.
    """
    model, last = programme.model, programme.last_round
    if not isinstance(model, Model):
        raise InputError("the model of this programme cannot tell what other budgets would do.")
    left = None if last is None else last - programme.round + 1
    return model.what_if(programme.roster(), budgets, rules=rules, rounds_left=left)


def facts_of(plan: Planned) -> dict[str, Any]:
    """A plan without its people, as a dictionary for JSON."""
    names = ("round", "attempt", "status", "model", "asked", "facts", "versions")
    return {name: getattr(plan, name) for name in names}


@dataclasses.dataclass(frozen=True)
class PlanForm:
    """The form for a plan, with every field as text; `rules` has the settings of rules by name.

    >>> from prefermab.service.work.plan_requests import PlanForm
    >>> form = PlanForm("12", rules={"group_column": "region", "min_share": "north 30%"})
    >>> form.asked()["rules"]["min_share"]
    {'north': 0.3}
    """

    budget: str = ""
    waiting: str = "20"
    explore: str = ""
    rules: Mapping[str, str] = dataclasses.field(default_factory=dict)
    by_hand: int = 0
    """How many people are on or off the list by hand."""

    @classmethod
    def from_asked(cls, stored: str | None) -> "PlanForm":
        """The form with the arguments of a stored plan (JSON); empty without one."""
        if stored is None:
            return cls(rules={field.name: _as_text(field, Rules()) for field in form_fields()})
        asked = json.loads(stored)
        rules = rules_of(asked) or Rules()
        explore = asked.get("explore")
        return cls(
            budget=_typed(asked["budget"]), waiting=str(asked["waiting"]),
            explore=_typed(explore, percent=True) if explore else "",
            rules={field.name: _as_text(field, rules) for field in form_fields()},
            by_hand=sum(len(ids) for ids in rules.ids().values()),
        )  # fmt: skip

    def asked(self) -> dict[str, Any]:
        """The arguments of a plan; raises if a field cannot be read."""
        given = {field.name: self.rules.get(field.name, "").strip() for field in form_fields()}
        rules = Rules(
            **{
                field.name: _from_text(field, given[field.name])
                for field in form_fields()
                if given[field.name]
            }
        )
        explore = read_number(self.explore, "share dealt by lot") if self.explore.strip() else 0.0
        plain = rules == Rules()
        return {
            "budget": amount(self.budget, "budget"),
            "waiting": count(self.waiting or 0, "waiting", at_least=0),
            "rules": None if plain else dataclasses.asdict(rules),
            **({"explore": explore} if explore else {}),
        }


def form_fields() -> list[dataclasses.Field]:
    """The settings of rules that stand in the form for a plan."""
    return [field for field in dataclasses.fields(Rules) if setting_of(field).label]


def _from_text(field: dataclasses.Field, text: str) -> Any:
    """A setting of a rule from the text that was typed."""
    what = setting_of(field).label.lower()
    if holds_numbers(field):
        return read_pairs(text, what)
    if holds_names(field):
        return [name.strip() for name in text.split(",") if name.strip()]
    if field.type is bool:
        return text == "yes"
    if field.type is int:
        return count(text, what, at_least=0)
    return read_number(text, what) if field.type is float else text


def _as_text(field: dataclasses.Field, rules: Rules) -> str:
    """A setting of a rule as it is typed; empty if there is none."""
    value = getattr(rules, field.name)
    if field.type is bool:
        return "yes" if value else ""
    if holds_names(field):
        return ", ".join(value)
    if not holds_numbers(field):
        return "" if value is None else _typed(value) if field.type is float else str(value)
    percent = setting_of(field).percent
    return ", ".join(f"{name} {_typed(each, percent)}" for name, each in value.items())


def _typed(value: float, percent: bool = False) -> str:
    """A number with all its digits, so that a form that is sent as it is changes none."""
    whole = f"{100 * value:g}%"
    if percent and read_number(whole, "share") == value:
        return whole
    return repr(value).removesuffix(".0")


def read_pairs(text: str, what: str) -> dict[str, float]:
    """Reads pairs of a name and a number, separated by commas, semicolons or line breaks.

    >>> from prefermab.service.work.plan_requests import read_pairs
    >>> read_pairs("Ana 5, Bea=3", "budgets of workers")
    {'Ana': 5.0, 'Bea': 3.0}
    """
    found = {}
    for pair in re.split(r"[,;\n]", text):
        if not pair.strip():
            continue
        parts = re.fullmatch(r"\s*(.*?\S)\s*[=:\s]\s*(\S+)\s*", pair)
        if parts is None:
            raise InputError(
                f"{what}: expected a name and a number, such as north 30%, not '{pair.strip()}'."
            )
        if parts[1] in found:
            raise InputError(f"{what}: {parts[1]} stands there twice.")
        found[parts[1]] = read_number(parts[2], f"{what}: {parts[1]}")
    return found


def read_number(text: str, what: str) -> float:
    """A number; 30% is 0.3."""
    text = text.strip()
    if text.endswith("%"):
        return number(text[:-1], what) / 100
    return number(text, what)
