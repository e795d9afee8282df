"""Requests for plans: checks their arguments, makes the plans, and replays stored plans."""

import dataclasses
import inspect
import json
import secrets
from typing import Any

import numpy as np
import polars as pl
from sqlalchemy import Connection

from prefermab.errors import InputError, amount, count, unknown
from prefermab.models.model import Model
from prefermab.programme.planning.roster import SINCE_ACTION, Participants
from prefermab.programme.planning.rules import IN, Rules
from prefermab.programme.planning.rules.limits import apply_rules, check_columns, standing_of
from prefermab.programme.planning.rules.people import People
from prefermab.programme.store import queries
from prefermab.programme.store.frames import first_difference, pack, unpack
from prefermab.programme.store.models import Planner, is_earlier_model, software_versions
from prefermab.programme.store.plans import Planned, count_attempts, get_plan
from prefermab.programme.tables.columns import as_flags, optional_column
from prefermab.programme.tables.naming import OPT_IN

PLAIN = ("budget", "rules", "waiting")
"""The arguments of every plan; others are those of the model's `plan`."""

LAST_ROUND = "last_round"
"""The key of the table `meta` under which the programme's last round is stored."""


@dataclasses.dataclass(frozen=True)
class PlanRequest:
    """The arguments of a plan as plain values for JSON: budget, rules, waiting and others."""

    asked: dict[str, Any]

    @classmethod
    def from_call(
        cls, model: Planner, budget: float, rules: Any, waiting: int, more: dict[str, Any]
    ) -> "PlanRequest":
        """Checks the arguments of a call; `more` has other arguments of the model's `plan`."""
        if rules is not None and not isinstance(rules, Rules):
            raise InputError(f"rules must be pm.Rules(...), not {type(rules).__name__}.")
        # Without lots, their arguments are left out, as in files of earlier versions.
        without = {"explore": 0, "seed": None}
        more = {name: value for name, value in more.items() if without.get(name, ...) != value}
        taken = inspect.signature(model.plan).parameters
        if not any(one.kind is one.VAR_KEYWORD for one in taken.values()):
            for name in more:
                if name not in taken:
                    raise unknown("argument of plan", name, [*list(taken)[1:], "round", "again"])
        asked = {
            "budget": amount(budget, "budget"),
            "rules": None if rules is None else dataclasses.asdict(rules),
            "waiting": count(waiting, "waiting", at_least=0),
            **more,
        }
        try:
            return cls(json.loads(json.dumps(asked)))
        except TypeError:
            raise InputError("rules and other arguments must be plain values.") from None

    @classmethod
    def from_asked(cls, model: Planner, asked: dict[str, Any]) -> "PlanRequest":
        """Checks arguments as they are stored with a plan."""
        for name in PLAIN:
            if name not in asked:
                raise InputError(f"the arguments of a list need '{name}'.")
        budget, rules, waiting = (asked[name] for name in PLAIN)
        rules = cls(asked).rules if isinstance(rules, dict) else rules
        more = {name: value for name, value in asked.items() if name not in PLAIN}
        return cls.from_call(model, budget, rules, waiting, more)

    def with_seed(self, old: Planned | None) -> "PlanRequest":
        """The request with a seed if it has lots: the given seed, or that of the `old` plan of the
        round, so that planning again gives the same lots, or a new one."""
        if not self.asked.get("explore") or "seed" in self.asked:
            return self
        known = None if old is None else old.asked.get("seed")
        return PlanRequest({**self.asked, "seed": secrets.randbits(32) if known is None else known})

    @property
    def rules(self) -> Rules | None:
        """The rules as an object; None if there are none."""
        if self.asked["rules"] is None:
            return None
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.asked["rules"].items()
        }
        return Rules(**given)

    @property
    def since_column(self) -> str:
        """The column with the rounds since the last action that the rules read."""
        return SINCE_ACTION if self.rules is None else self.rules.last_column

    def check_rules(self, model: Planner, people: pl.DataFrame, where: str) -> None:
        """Raises an error if rules name columns, ids or groups that do not exist.

        A model of your own reads and checks the rules itself.
        """
        if self.rules is not None and isinstance(model, Model):
            apply_rules(self.rules, model, _participants(people), people, where)

    def selectable(self, people: pl.DataFrame, where: str) -> pl.Series:
        """Who can be chosen by a plan: everyone who is not opted out, excluded or in cooldown.

        Rules that cannot be read belong to a model of your own; then only opt-out counts.
        """
        listed = _participants(people)
        try:
            seen = People(people, listed.ids, listed.opt_in, (), where)
            return pl.Series(standing_of(self.rules or Rules(), seen) == IN)
        except InputError:
            return pl.Series(listed.opt_in)

    def make(self, model: Planner, people: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, Any]]:
        """The model's plan: its frame, and its summary as plain values.

        The people are packed and unpacked first, so that a replay starts from the same bits.
        """
        rules = self.rules
        if isinstance(model, Model):
            # Names of columns are checked when a plan is asked for: old plans can be made again.
            rules = dataclasses.replace(rules or Rules(), ignore_columns=tuple(people.columns))
        plan = model.plan(unpack(pack(people)), **{**self.asked, "rules": rules})
        facts = json.dumps(dataclasses.asdict(plan.summary), default=lambda value: value.item())
        return plan.frame, json.loads(facts)

    def changed_from(self, old: "PlanRequest") -> str | None:
        """The first argument that differs from an old request, in words; None if none does.

        >>> from prefermab.programme.store.request import PlanRequest
        >>> PlanRequest({"rules": {"cooldown": 2}}).changed_from(PlanRequest({"rules": None}))
        'the rule cooldown changed from 0 to 2'
        """
        before, after = old._flat(), self._flat()
        for name in {**before, **after}:
            one, other = before.get(name), after.get(name)
            if one != other:
                return f"{name} changed from {_value_text(one)} to {_value_text(other)}"
        return None

    def _flat(self) -> dict[str, Any]:
        """Arguments and rules side by side; a rule that was not given has its default."""
        rules = json.loads(json.dumps(dataclasses.asdict(self.rules or Rules())))
        rest = {name: value for name, value in self.asked.items() if name != "rules"}
        return {**rest, **{f"the rule {name}": value for name, value in rules.items()}}


def set_last_round(sql: Connection, model: Planner, last: int | None) -> bool:
    """Stores the last round of a programme; None if it goes on without an end. Returns whether this
    changed it."""
    if last is not None:
        now = queries.current_round(sql)
        if count(last, "last_round") < now:
            raise InputError(f"last_round {last} is over: the current round is {now}.")
        if isinstance(model, Model):
            model.with_rounds_left(last)
    return queries.set_meta(sql, LAST_ROUND, last)


def rounds_to_end(sql: Connection, round: int | None) -> dict[str, int]:
    """The argument `rounds_left` for a plan of this round (by default the current one), which is
    counted too; no argument if the programme has no last round."""
    last, now = queries.get_meta(sql, LAST_ROUND), round or queries.current_round(sql)
    if last is None:
        return {}
    if now > last:
        raise InputError(
            f"the programme ended with round {last}: set another last round "
            "(`programme begin` with --last-round) to go on."
        )
    return {"rounds_left": last - now + 1}


@dataclasses.dataclass(frozen=True, eq=False)
class PendingPlan:
    """A plan that is still to be made: its request, round, number within the round and people."""

    request: PlanRequest
    round: int
    attempt: int
    people: pl.DataFrame

    def make(self, model: Planner, model_hash: str) -> Planned:
        """Makes the plan, which may take long, and does not store it."""
        frame, facts = self.request.make(model, self.people)
        asked, versions = self.request.asked, software_versions()
        return Planned(
            self.round, self.attempt, "planned", model_hash, asked, versions, facts, self.people,
            frame,
        )  # fmt: skip

    def can_be_stored(self, sql: Connection, model_hash: str) -> bool:
        """Whether the plan can still be stored: meanwhile no round was closed, no other plan was
        stored and no other model took over."""
        return (
            queries.current_round(sql) == self.round
            and count_attempts(sql, self.round) + 1 == self.attempt
            and queries.current_model(sql) == model_hash
        )


def plan_round(
    sql: Connection,
    model: Planner,
    model_hash: str,
    request: PlanRequest,
    round: int | None,
    *,
    again: bool,
) -> Planned | PendingPlan:
    """The stored plan of a round if the request is the same, else the plan that is to be made."""
    now = queries.current_round(sql)
    if round is not None and round != now:
        return _recorded_plan(sql, model, request, round, now)
    people = _people(sql, model, model_hash, request, now)
    request.check_rules(model, people, f"round {now}")
    if isinstance(model, Model):
        check_columns(model, request.rules or Rules(), people.columns, f"round {now}")
    old = get_plan(sql, now)
    request = request.with_seed(old)
    if old is not None:
        change = _change_since(old, request, people, model, model_hash)
        if change is None:
            return old
        if not again:
            raise InputError(
                f"round {now} is planned already, and {change} since: record the round, or plan "
                "with again=True (--again) to replace its plan."
            )
    return PendingPlan(request, now, count_attempts(sql, now) + 1, people)


def _people(
    sql: Connection, model: Planner, model_hash: str, request: PlanRequest, now: int
) -> pl.DataFrame:
    """Everyone for whom a plan is made. Raises an error if the state of somebody who is opted in is
    not known, unless the model is for states that are not always seen."""
    if queries.current_model(sql) != model_hash:
        raise InputError("another model has taken over this programme since it was opened.")
    people = queries.get_members(sql, model, request.since_column)
    if not people.height:
        raise InputError(f"round {now} cannot be planned: nobody is in the programme.")
    opted_in = pl.Series(_participants(people).opt_in)
    unseen = people.filter(pl.col("state").is_null() & opted_in)["id"]
    if len(unseen) and getattr(model, "sightings", None) is None:
        raise InputError(
            f"round {now} cannot be planned: the state of {unseen[0]} was never observed."
        )
    return people


def _recorded_plan(
    sql: Connection, model: Planner, request: PlanRequest, round: int, now: int
) -> Planned:
    """The plan of a recorded round; raises an error unless the request is the same."""
    old = get_plan(sql, round) if round < now else None
    if old is None:
        raise InputError(f"round {round} cannot be planned: the current round is {now}.")
    request.check_rules(model, old.inputs, f"round {round}")
    change = request.with_seed(old).changed_from(PlanRequest(old.asked))
    if change is not None:
        raise InputError(f"round {round} is recorded already, and {change} since.")
    return old


def _change_since(
    old: Planned, request: PlanRequest, people: pl.DataFrame, model: Planner, model_hash: str
) -> str | None:
    """What changed since a plan was made, in words; None if the same plan would be made again."""
    if old.model != model_hash and not is_earlier_model(model, old.model):
        return "the model changed"
    return request.changed_from(PlanRequest(old.asked)) or _people_change(old.inputs, people)


def check_replay(old: Planned, model: Planner, model_hash: str) -> None:
    """Makes a plan again; raises an error unless it equals the stored one to the last bit. Columns
    and facts that later versions added are not compared."""
    if old.model != model_hash and not is_earlier_model(model, old.model):
        raise InputError(
            f"the plan of round {old.round} was made by the model {old.model[:12]}, but this one "
            f"is {model_hash[:12]}: open the programme with that model to replay it."
        )
    frame, facts = PlanRequest(old.asked).make(model, old.inputs)
    frame = frame.select(name for name in frame.columns if name in old.frame.columns)
    facts = {name: value for name, value in facts.items() if name in old.facts}
    differs = first_difference(old.frame, frame)
    if differs is None and json.dumps(facts) != json.dumps(old.facts):
        differs = "its summary is another"
    if differs is None:
        return
    raise InputError(
        f"the plan of round {old.round} was made again and differs from the stored one (first the "
        f"stored plan, then the new one): {differs}{_made_by(old)}."
    )


def _made_by(old: Planned) -> str:
    """Which other software made a plan, as the end of a message; empty if the same did."""
    now = software_versions()
    other = [f"{name} {was}" for name, was in old.versions.items() if now.get(name) != was]
    if not other:
        return ""
    may = ", and another version may choose otherwise: the stored plan stays valid"
    of_ours = old.versions.get("prefermab") != now.get("prefermab")
    return f"; it was made with {', '.join(other)}{may if of_ours else ''}"


def _participants(people: pl.DataFrame) -> Participants:
    given, opt_in = optional_column(people, OPT_IN, "the programme"), np.ones(people.height, bool)
    if given is not None:
        opt_in = as_flags(given, "the programme", unknown=False).to_numpy()
    return Participants(people["id"], opt_in)


def _people_change(old: pl.DataFrame, new: pl.DataFrame) -> str | None:
    """Who left or joined, or whose details changed, in words; None if nothing changed."""
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
    differs = first_difference(old, new)
    return None if differs is None else f"what is known of people changed ({differs})"


def _value_text(value: Any) -> str:
    return "nothing" if value is None or value in ([], {}, "") else str(value)
