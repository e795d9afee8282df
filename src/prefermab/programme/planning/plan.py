"""A round's plan: from a table of people and a budget to a list with its reasons."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import polars as pl

from prefermab.arms import Observation
from prefermab.errors import InputError, count, number
from prefermab.model import Model
from prefermab.policies.learned import CHUNK, Judged, Learned
from prefermab.programme.planning.bound import gain_bound
from prefermab.programme.planning.constrained import Task, check_locks, choose
from prefermab.programme.planning.increments import Steps, alone, cut_of, unit_of
from prefermab.programme.planning.reasons import reasons
from prefermab.programme.planning.roster import Roster, read_roster
from prefermab.programme.planning.rules import EXCLUDED, OUT, RESTING, Limits, Rules, apply
from prefermab.programme.planning.scoring import (
    best_actions,
    gains_of,
    judge,
    locked_actions,
    observation,
    own_prices,
    paid,
    positive,
    price_of,
    some_of,
    units,
    useful_gains,
)
from prefermab.programme.tables import as_frame, people, plain, write_table


@dataclasses.dataclass(frozen=True)
class Summary:
    """What a plan does, in numbers. Gains are in expected reward, None where a recipe has none."""

    people: int
    chosen: int
    by_action: Mapping[str, int]
    budget: float
    spent: float
    left: float
    price: float
    gain: float | None
    bound: float | None
    """No plan that keeps the budget and the rules gains more."""
    one_more: float | None
    """What one more unit of budget would gain."""
    opted_out: int
    excluded: int
    resting: int
    locked: int
    incomplete: int
    """People of whom some feature is unknown."""
    unknown: Mapping[str, int]
    """How many cells of each column are missing or say what the model does not know."""
    rules: Mapping[str, float | None]
    """What each rule costs: what would be gained more without it, all others kept."""

    def __str__(self) -> str:
        told = (
            ", ".join(f"{number:,} {name}" for name, number in self.by_action.items()) or "nobody"
        )
        lines = [
            f"{self.chosen:,} of {people(self.people)} ({told}); {plain(self.spent)} spent, "
            f"{plain(self.left)} left of {plain(self.budget)}; price {self.price:.3g}"
        ]
        if self.gain is not None and self.one_more is not None:
            lines.append(
                f"expected gain {plain(self.gain)}, at best {plain(self.bound)} under the same "
                f"rules; one more unit of budget would gain {self.one_more:.3g}"
            )
        apart = {
            "opted out": self.opted_out,
            "excluded": self.excluded,
            "in cooldown": self.resting,
            "locked in": self.locked,
            "with unknown features": self.incomplete,
        }
        lines.append(", ".join(f"{number:,} {what}" for what, number in apart.items()))
        nowhere = [name for name, number in self.unknown.items() if number == self.people]
        some = {name: number for name, number in self.unknown.items() if number < self.people}
        if some:
            cells = ", ".join(f"{name} of {number:,}" for name, number in some.items())
            lines.append(f"unknown: {cells}")
        if nowhere:
            lines.append(
                f"the model uses {' and '.join(nowhere)}, unknown of everyone here: is the column "
                "there, and spelt so?"
            )
        for rule, cost in self.rules.items():
            lines.append(f"the rule {rule} costs {'?' if cost is None else plain(cost)}")
        return "\n".join(lines)

    def as_json(self) -> str:
        """The numbers as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Who gets what: `frame` has a row for each person, in the order of the table.

    `rank` orders those who are chosen, then those who would be next; `score` is what the action
    gains (for those not chosen, their best action would gain) at the going price, `price` the
    highest at which they would be chosen, and `list` is chosen, waiting or empty.
    """

    frame: pl.DataFrame
    summary: Summary

    @property
    def waiting(self) -> pl.DataFrame:
        """The next ones, should somebody drop out."""
        return self.frame.filter(pl.col("list") == "waiting").sort("rank")

    def write(self, path: str | Path) -> None:
        """Writes the list as CSV or Parquet, whole or not at all."""
        write_table(self.frame, Path(path))

    def as_json(self) -> str:
        """The summary as JSON."""
        return self.summary.as_json()


def plan(
    model: Model,
    frame: Any,
    budget: float,
    rules: Rules | None = None,
    waiting: int = 20,
    where: str = "the table",
) -> Plan:
    """A round's plan; see `Model.plan`."""
    limit, waiting = number(budget, "budget"), count(waiting, "waiting", at_least=0)
    table = as_frame(frame)
    draft = Draft.of(model, table, rules or Rules(), limit, where)
    actions = draft.choose()
    return Plan(carried(laid_out(draft, actions, waiting), table), summary(draft, actions))


def what_if(
    model: Model,
    frame: Any,
    budgets: Sequence[float],
    rules: Rules | None = None,
    where: str = "the table",
) -> pl.DataFrame:
    """What other budgets would do; see `Model.what_if`."""
    limits = [number(budget, "budget") for budget in budgets]
    if not limits:
        raise InputError("budgets must name at least one budget.")
    draft = Draft.of(model, as_frame(frame), rules or Rules(), limits[0], where)
    # At the price of each budget the future would differ, and with it what an action is worth.
    usual = draft.judged(model.budget * draft.roster.size / model.n_arms)
    rows = []
    for budget in limits:
        draft = draft.judged(budget)
        actions = draft.choose()
        rows.append(
            {
                "budget": budget,
                "spent": paid(actions, draft.roster.costs),
                "chosen": int((actions > 0).sum()),
                "price": draft.price,
                "gain": usual.gained(actions),
            }
        )
    return pl.DataFrame(rows, schema_overrides={"gain": pl.Float64})


@dataclasses.dataclass(frozen=True)
class Draft:
    """All that a choice rests on."""

    model: Model
    table: pl.DataFrame
    where: str
    rules: Rules
    budget: float
    roster: Roster
    limits: Limits
    price: float
    gains: np.ndarray
    """What each action would gain at the price; -inf: not to be taken."""

    @classmethod
    def of(
        cls, model: Model, table: pl.DataFrame, rules: Rules, budget: float, where: str
    ) -> "Draft":
        """Reads the table and asks the model."""
        roster = read_roster(model, table, where)
        limits = apply(rules, model, roster, table, where)
        blank = cls(model, table, where, rules, budget, roster, limits, 0.0, np.zeros((0, 0)))
        return blank.judged(budget)

    def judged(self, budget: float) -> "Draft":
        """The same people at another budget."""
        model, roster, out = self.model, self.roster, ~self.limits.may
        if self.by_steps:
            some = some_of(roster, ~out)
            price = price_of(model, *some, budget=budget, people=roster.size)
            gains = positive(gains_of(model, roster.states, roster.features, price))
            return dataclasses.replace(self, budget=budget, price=price, gains=gains)
        judged = judge(model.policy, observation(model.policy, roster, ~out, budget))
        gains, price = np.array(judged.gains)[: roster.size], float(judged.price)
        if self.rules.named() and out.any():
            # What a rule costs is what those would gain whom it keeps out.
            gains[out] = useful_gains(model, roster.states[out], roster.features[out], price)
        return dataclasses.replace(self, budget=budget, price=price, gains=gains)

    @property
    def per_cost(self) -> bool:
        """Whether gains are rewards, to be weighed against costs; the paper's are odds."""
        return self.model.policy.gains_are_rewards

    @property
    def by_steps(self) -> bool:
        """Whether there are so many people that a choice is made as it is for a folder."""
        return self.per_cost and self.roster.size > CHUNK

    @property
    def locked(self) -> np.ndarray:
        """The actions of those who are locked in: the best at the going price where it is open."""
        return locked_actions(self.gains, self.roster.costs, self.price, self.limits.locked)

    def choose(self) -> np.ndarray:
        """Everyone's action."""
        roster, limits, locked = self.roster, self.limits, self.locked
        if self.rules.about_groups:
            return choose(self._task(locked))
        check_locks(locked, roster.costs, self.budget, limits)
        if self.by_steps:
            return self._in_steps(locked)
        left = self.budget - paid(locked, roster.costs)
        seen = observation(self.model.policy, roster, limits.may & (locked == 0), max(left, 0.0))
        gains = np.zeros((seen.n_arms, self.gains.shape[1]), np.float32)
        gains[: roster.size] = self.gains
        judged = Judged(jnp.asarray(self.price, jnp.float32), jnp.asarray(gains))
        actions = _settle(self.model.policy, judged, seen)
        return np.where(locked > 0, locked, np.asarray(actions)[: roster.size])

    def _in_steps(self, locked: np.ndarray) -> np.ndarray:
        costs, unit = self.roster.costs, unit_of(self.budget)
        steps = Steps.of(self.gains, costs, self.limits.may & (locked == 0), unit)
        cut = cut_of(alone(steps), self.budget, units(locked, costs, unit), waiting=0)
        return np.where(locked > 0, locked, steps.chosen(cut))

    def gained(self, actions: np.ndarray) -> float | None:
        """What a choice gains together."""
        if not self.per_cost:
            return None
        return self._task(actions).gained(actions)

    def _task(self, locked: np.ndarray) -> Task:
        return Task(self.gains, self.roster.costs, self.budget, self.limits, locked, self.per_cost)

    def without(self, rules: Rules) -> "Draft":
        """The same people under other rules."""
        limits = apply(rules, self.model, self.roster, self.table, self.where)
        return dataclasses.replace(self, rules=rules, limits=limits)


def summary(draft: Draft, actions: np.ndarray) -> Summary:
    """What a choice does, in numbers."""
    roster, standing = draft.roster, draft.limits.standing
    gain, spent = draft.gained(actions), paid(actions, roster.costs)
    names = draft.model.action_names
    one_more = bound = None
    if gain is not None:
        bound = gain_bound(
            draft.gains, roster.costs, draft.budget, draft.limits, draft.locked, draft.price
        )
        more = dataclasses.replace(draft, budget=draft.budget + 1)
        one_more = (more.gained(more.choose()) or 0.0) - gain
    costs = {}
    for rule, others in draft.rules.named().items():
        free = draft.without(others)
        costs[rule] = None if gain is None else (free.gained(free.choose()) or 0.0) - gain
    return Summary(
        people=roster.size,
        chosen=int((actions > 0).sum()),
        by_action={
            name: int((actions == place).sum())
            for place, name in enumerate(names)
            if place and (actions == place).any()
        },
        budget=draft.budget,
        spent=spent,
        left=draft.budget - spent,
        price=draft.price,
        gain=gain,
        bound=bound,
        one_more=one_more,
        opted_out=int((standing == OUT).sum()),
        excluded=int((standing == EXCLUDED).sum()),
        resting=int((standing == RESTING).sum()),
        locked=int((draft.locked > 0).sum()),
        incomplete=roster.incomplete,
        unknown=roster.unknown,
        rules=costs,
    )


def laid_out(draft: Draft, actions: np.ndarray, waiting: int) -> pl.DataFrame:
    """The plan as a table."""
    roster, size = draft.roster, draft.roster.size
    best = best_actions(draft.gains, roster.costs, draft.price, actions)
    raw = gains_of(draft.model, roster.states, roster.features, draft.price)
    scores = raw[np.arange(size), best].astype(float)
    prices = own_prices(draft.model, roster, draft.price, raw)
    may = draft.limits.may
    order = np.lexsort(
        (np.arange(size), -scores, -(scores if prices is None else prices), ~(actions > 0), ~may)
    )
    rank = np.empty(size, int)
    rank[order] = np.arange(1, size + 1)
    useful = may & (draft.gains[:, 1:] > -np.inf).any(axis=1) & (actions == 0)
    next_ones = order[useful[order]][:waiting]
    listed = np.full(size, "", object)
    listed[actions > 0] = "chosen"
    listed[next_ones] = "waiting"
    names = np.array(draft.model.action_names, object)
    return pl.DataFrame(
        {
            "id": roster.ids,
            "action": pl.Series(names[actions], dtype=pl.String),
            "cost": roster.costs[np.arange(size), actions].astype(float),
            "rank": pl.Series(np.where(may, rank, 0)).replace(0, None),
            "score": scores,
            "price": pl.Series([None] * size, dtype=pl.Float64) if prices is None else prices,
            "list": pl.Series(listed, dtype=pl.String),
            "reason": reasons(
                draft.model, roster, draft.limits.standing, draft.table, draft.price, best, raw,
                draft.locked > 0,
            ),
        }
    )  # fmt: skip


def carried(listed: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """The plan with all other columns of the table beside it; a name that is taken gets _given."""
    rest = table.select(pl.exclude("id"))
    taken = {name: f"{name}_given" for name in rest.columns if name in listed.columns}
    return pl.concat([listed, rest.rename(taken)], how="horizontal")


@eqx.filter_jit
def _settle(policy: Learned, judged: Judged, seen: Observation):
    return policy.settle(judged, seen)
