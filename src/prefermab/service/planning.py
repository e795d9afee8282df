"""Plans as requests ask for them: the same calls, whoever makes them."""

from typing import Any

import polars as pl

from prefermab.errors import InputError
from prefermab.model import Model
from prefermab.programme.planning.rules import Rules
from prefermab.programme.store import Planned, Programme


def rules_of(asked: dict[str, Any]) -> Rules | None:
    """The rules of a request; None if it has none."""
    given = asked.get("rules")
    return None if given is None else Rules(**given)


def make_plan(programme: Programme, asked: dict[str, Any]) -> Planned:
    """Plans the current round as a request asks for it.

    Args:
        programme: The programme.
        asked: The arguments of `Programme.plan`; rules as a mapping.

    Returns:
        The plan as it is stored.
    """
    given = {name: value for name, value in asked.items() if name not in ("budget", "rules")}
    return programme.plan(asked["budget"], rules_of(asked), **given)


def what_if(programme: Programme, budgets: list[float], rules: Rules | None) -> pl.DataFrame:
    """What each of several budgets would do for everyone in the programme now.

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
    return model.what_if(programme.roster(), budgets, rules, rounds_left=left)


def facts_of(plan: Planned) -> dict[str, Any]:
    """A plan without its people, as plain values."""
    names = ("round", "attempt", "status", "model", "asked", "facts", "versions")
    return {name: getattr(plan, name) for name in names}
