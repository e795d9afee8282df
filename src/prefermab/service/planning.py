"""Plans made from requests, and the form for a plan, which turns typed texts into arguments."""

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from prefermab.errors import InputError, OutdatedError, count, number
from prefermab.model import Model
from prefermab.programme.planning.rules import Rules
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
    """The form for a plan, with every field as text.

    >>> from prefermab.service.planning import PlanForm
    >>> form = PlanForm("12", cooldown="2", group_column="region", min_share="north 30%")
    >>> form.asked()["rules"]["min_share"]
    {'north': 0.3}
    """

    budget: str = ""
    waiting: str = "20"
    cooldown: str = "0"
    exclude_column: str = ""
    lock_column: str = ""
    group_column: str = ""
    min_share: str = ""
    max_share: str = ""
    worker_column: str = ""
    budgets: str = ""
    explore: str = ""
    by_hand: int = 0
    """How many people are on or off the list by hand."""

    @classmethod
    def from_asked(cls, stored: str | None) -> "PlanForm":
        """The form with the arguments of a stored plan (JSON); empty without one."""
        if stored is None:
            return cls()
        asked = json.loads(stored)
        rules = rules_of(asked) or Rules()
        explore = asked.get("explore")
        return cls(
            budget=f"{asked['budget']:g}", waiting=str(asked["waiting"]),
            cooldown=str(rules.cooldown), exclude_column=rules.exclude_column or "",
            lock_column=rules.lock_column or "", group_column=rules.group_column or "",
            min_share=_shares_text(rules.min_share), max_share=_shares_text(rules.max_share),
            worker_column=rules.worker_column or "",
            budgets=", ".join(f"{name} {value:g}" for name, value in rules.budgets.items()),
            explore=f"{100 * explore:g}%" if explore else "",
            by_hand=len(rules.exclude_ids) + len(rules.lock_ids),
        )  # fmt: skip

    def asked(self) -> dict[str, Any]:
        """The arguments of a plan; raises if a field cannot be read."""
        rules = Rules(
            exclude_column=self.exclude_column or None,
            lock_column=self.lock_column or None,
            cooldown=count(self.cooldown or 0, "cooldown", at_least=0),
            group_column=self.group_column or None,
            min_share=read_pairs(self.min_share, "least shares"),
            max_share=read_pairs(self.max_share, "largest shares"),
            worker_column=self.worker_column or None,
            budgets=read_pairs(self.budgets, "budgets of workers"),
        )
        explore = read_number(self.explore, "share dealt by lot") if self.explore.strip() else 0.0
        plain = rules == Rules()
        return {
            "budget": number(self.budget, "budget"),
            "waiting": count(self.waiting or 0, "waiting", at_least=0),
            "rules": None if plain else dataclasses.asdict(rules),
            **({"explore": explore} if explore else {}),
        }


def read_pairs(text: str, what: str) -> dict[str, float]:
    """Reads pairs of a name and a number, separated by commas, semicolons or line breaks.

    >>> from prefermab.service.planning import read_pairs
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
        found[parts[1]] = read_number(parts[2], f"{what}: {parts[1]}")
    return found


def read_number(text: str, what: str) -> float:
    """A number; 30% is 0.3."""
    text = text.strip()
    if text.endswith("%"):
        return number(text[:-1], what) / 100
    return number(text, what)


def _shares_text(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * value:g}%" for name, value in shares.items())
