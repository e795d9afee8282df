"""Makes a round's plan: turns a table of people and a budget into a list of actions with reasons.

`plan` reads the table, applies the rules, scores people by the model, chooses actions, explains and
summarises them.
"""

import dataclasses
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from prefermab.arms.amounts import DecimalUnits, add_up, remaining, total
from prefermab.errors import InputError, amount, count
from prefermab.models.model import Model
from prefermab.programme.planning.constrained import Selection, check_locks, choose_under_rules
from prefermab.programme.planning.increments import Increments, ask_one, find_cut
from prefermab.programme.planning.lots import DealtLots, check_lots, draw_lots, find_cells
from prefermab.programme.planning.printed import write_list
from prefermab.programme.planning.reasons import reasons
from prefermab.programme.planning.roster import Roster, read_roster
from prefermab.programme.planning.rules import OUT, Cooldown, Exclude, Rules
from prefermab.programme.planning.rules.limits import (
    Limits,
    apply_rules,
    check_columns,
    reasons_out,
)
from prefermab.programme.planning.scoring import (
    RoundScores,
    best_actions,
    by_increments,
    gains_at,
    highest_prices,
    locked_actions,
    score,
    settle,
)
from prefermab.programme.planning.summary import Summary, gain_bound, unusual_share
from prefermab.programme.tables.columns import column
from prefermab.programme.tables.naming import name_key
from prefermab.programme.tables.table import as_frame


@dataclasses.dataclass(frozen=True)
class Plan:
    """A round's plan: the action of each person, and a summary.

    `frame` has a row for each person, in the order of the table. Its column `rank` orders people:
    first those who are chosen, then those who would be next. `score` is the gain of the action at
    the present price; for people who are not chosen, the gain of their best action. `price` is the
    highest price at which the person would be chosen. `list` is "chosen", "waiting" or empty. A
    plan with lots also has `probability`: the chance with which this person got this action.
    """

    frame: pl.DataFrame
    summary: Summary

    @property
    def waiting(self) -> pl.DataFrame:
        """Who comes next if somebody drops out."""
        return self.frame.filter(pl.col("list") == "waiting").sort("rank")

    def write(self, path: str | Path) -> None:
        """Writes the list as CSV, Parquet or Excel; the file is complete or not written at all.

        A workbook has sheets for the list, the waiting list, the summary and everybody.

        Args:
            path: A file whose name ends in .csv, .parquet, .pq or .xlsx.
        """
        write_list(self.frame, dataclasses.asdict(self.summary), Path(path))

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
    explore: float = 0.0,
    seed: int | None = None,
    rounds_left: int | None = None,
) -> Plan:
    """Makes a round's plan; see `Model.plan`. `where` names the table in messages."""
    limit, waiting = amount(budget, "budget"), count(waiting, "waiting", at_least=0)
    explore, seed = check_lots(explore, seed)
    model = model_for_rounds_left(model, rounds_left)
    table = as_frame(frame)
    draft = prepare(model, table, rules or Rules(), limit, where)
    actions = choose(draft)
    left = model.rounds_left if rounds_left is None else rounds_left
    summary = dataclasses.replace(summarise(draft, actions), rounds_left=left)
    if not explore:
        return Plan(with_given_columns(explain(draft, actions, waiting), table), summary)
    seed = secrets.randbits(32) if seed is None else seed
    cells = find_cells(draft.roster.costs, draft.limits, draft.locked)
    lots = draw_lots(actions, cells, len(model.action_names), explore, seed)
    listed = with_lots(explain(draft, lots.actions, waiting), actions, lots)
    summary = dataclasses.replace(
        summary, explore=explore, seed=seed, could_change=int(lots.dealt.sum()),
        **cost_of_lots(draft, actions, lots, summary.gain),
    )  # fmt: skip
    return Plan(with_given_columns(listed, table), summary)


def what_if(
    model: Model,
    frame: Any,
    budgets: Sequence[float],
    rules: Rules | None = None,
    where: str = "the table",
    rounds_left: int | None = None,
    valued_at: float | None = None,
) -> pl.DataFrame:
    """Compares several budgets; see `Model.what_if`. All gains are those at the price of the budget
    `valued_at`; by default, of the training's budget per person."""
    model = model_for_rounds_left(model, rounds_left)
    limits = [amount(budget, "budget") for budget in budgets]
    if not limits:
        raise InputError("budgets must name at least one budget.")
    draft = prepare(model, as_frame(frame), rules or Rules(), limits[0], where)
    # Another price means another future, so gains at different prices cannot be compared.
    if valued_at is None:
        valued_at = model.budget * draft.roster.size / model.n_arms
    usual = draft.at_budget(valued_at)
    rows = []
    for budget in limits:
        draft = draft.at_budget(budget)
        actions = choose(draft)
        rows.append(
            {
                "budget": budget,
                "spent": total(draft.paid(actions)),
                "chosen": int((actions > 0).sum()),
                "price": draft.scored.price,
                "gain": usual.gained(actions),
            }
        )
    return pl.DataFrame(rows, schema_overrides={"gain": pl.Float64})


def model_for_rounds_left(model: Model, rounds_left: int | None) -> Model:
    """The model for a programme with so many rounds left; the same model if None."""
    return model if rounds_left is None else model.with_rounds_left(rounds_left)


def prepare(model: Model, table: pl.DataFrame, rules: Rules, budget: float, where: str) -> "Draft":
    """Reads the table, applies the rules and scores people by the model."""
    check_columns(model, rules, table.columns, where)
    roster = read_roster(model, table, where)
    limits = apply_rules(rules, model, roster, table, where)
    # What a rule costs depends on people whom it keeps out, so with rules they are scored too.
    scored = score(model, roster, limits.may, budget, everyone=bool(rules.named()))
    return Draft(model, table, where, rules, budget, roster, limits, scored)


@dataclasses.dataclass(frozen=True)
class Draft:
    """Everything that the choice of actions depends on."""

    model: Model
    table: pl.DataFrame
    where: str
    rules: Rules
    budget: float
    roster: Roster
    limits: Limits
    scored: RoundScores

    def at_budget(self, budget: float) -> "Draft":
        """The same people at another budget, and so at another price."""
        everyone = bool(self.rules.named())
        scored = score(self.model, self.roster, self.limits.may, budget, everyone)
        return dataclasses.replace(self, budget=budget, scored=scored)

    def under(self, rules: Rules) -> "Draft":
        """The same people under other rules, at the same price."""
        limits = apply_rules(rules, self.model, self.roster, self.table, self.where)
        return dataclasses.replace(self, rules=rules, limits=limits)

    @property
    def locked(self) -> np.ndarray:
        """The actions of those who are locked in."""
        return locked_actions(self.scored, self.roster.costs, self.limits.locked)

    def selection(self, locked: np.ndarray) -> Selection:
        """What to choose from, with these actions fixed."""
        return Selection(
            self.scored.gains, self.roster.costs, self.budget, self.limits, locked,
            self.model.policy.gains_are_rewards,
        )  # fmt: skip

    def gained(self, actions: np.ndarray) -> float | None:
        """The total gain of these actions; None if the recipe's gains are not rewards."""
        if not self.model.policy.gains_are_rewards:
            return None
        return self.selection(actions).gained(actions)

    def paid(self, actions: np.ndarray) -> np.ndarray:
        """The cost of each person's action."""
        return self.roster.costs[np.arange(len(actions)), actions]


def choose(draft: Draft) -> np.ndarray:
    """Chooses everyone's action. Limits that people share need a search of their own; more people
    than go through the network at once are chosen by increments, as in a folder."""
    locked, roster = draft.locked, draft.roster
    if draft.rules.about_groups:
        return choose_under_rules(draft.selection(locked))
    check_locks(draft.selection(locked))
    units = DecimalUnits.of(draft.budget)
    paid = add_up(units.of_costs(draft.paid(locked)))
    open = draft.limits.may & (locked == 0)
    if by_increments(draft.model, roster.size):
        increments = Increments.of(draft.scored.gains, roster.costs, open, units)
        room = units.of_budget(draft.budget) - paid
        actions = increments.chosen(find_cut(ask_one(increments), room, waiting=0))
    else:
        actions = settle(draft.model, roster, draft.scored, open, draft.budget, paid)
    return np.where(locked > 0, locked, actions)


def explain(draft: Draft, actions: np.ndarray, waiting: int) -> pl.DataFrame:
    """The plan as a table: actions, ranks, prices and reasons."""
    roster, size, price = draft.roster, draft.roster.size, draft.scored.price
    best = best_actions(draft.scored, roster.costs, actions)
    gains = gains_at(draft.model, roster.states, roster.features, price)
    scores = gains[np.arange(size), best].astype(float)
    prices = highest_prices(draft.model, roster, price, gains)
    may = draft.limits.may
    order = np.lexsort(
        (np.arange(size), -scores, -(scores if prices is None else prices), ~(actions > 0), ~may)
    )
    rank = np.empty(size, int)
    rank[order] = np.arange(1, size + 1)
    useful = may & (draft.scored.gains[:, 1:] > -np.inf).any(axis=1) & (actions == 0)
    listed = np.full(size, "", object)
    listed[actions > 0] = "chosen"
    listed[order[useful[order]][:waiting]] = "waiting"
    names = np.array(draft.model.action_names, object)
    return pl.DataFrame(
        {
            "id": roster.ids,
            "action": pl.Series(names[actions], dtype=pl.String),
            "cost": draft.paid(actions),
            "rank": pl.Series(np.where(may, rank, 0)).replace(0, None),
            "score": scores,
            "price": pl.Series([None] * size, dtype=pl.Float64) if prices is None else prices,
            "list": pl.Series(listed, dtype=pl.String),
            "outside": roster.outside,
            "reason": reasons(
                draft.model, roster, draft.limits.standing, draft.table, price, best, gains,
                draft.locked > 0,
            ),
        }
    )  # fmt: skip


def with_lots(listed: pl.DataFrame, actions: np.ndarray, lots: DealtLots) -> pl.DataFrame:
    """The plan with everyone's probability. If lots changed a person's action from the model's
    `actions`, the reason says so."""
    other = pl.Series(lots.actions != actions)
    reason = pl.when(other).then(pl.lit("by lot; ") + pl.col("reason")).otherwise("reason")
    place = listed.get_column_index("reason")
    return listed.with_columns(reason=reason).insert_column(
        place, pl.Series("probability", lots.chances)
    )


def cost_of_lots(
    draft: Draft, actions: np.ndarray, lots: DealtLots, gain: float | None
) -> dict[str, float | None]:
    """The gain that lots cost on average against the model's `actions`, and what gain is left."""
    if gain is None:
        return {"explore_cost": None}
    roster, each = draft.roster, np.arange(len(actions))
    worth = gains_at(draft.model, roster.states, roster.features, draft.scored.price).astype(float)
    worth[:, 0] = 0.0
    lost = float((worth[each, actions] - (lots.probabilities * worth).sum(axis=1)).sum())
    return {"explore_cost": lost, "gain": gain - lost}


def with_given_columns(listed: pl.DataFrame, table: pl.DataFrame) -> pl.DataFrame:
    """The plan, then all other columns of the table. A name that the plan has gets _given added,
    again until no other column is called so."""
    rest = table.drop(column(table, "id", "the table").name)
    taken = {name_key(name) for name in (*listed.columns, *rest.columns)}
    planned, names = {name_key(name) for name in listed.columns}, {}
    for name in rest.columns:
        if name_key(name) in planned:
            names[name] = f"{name}_given"
            while name_key(names[name]) in taken:
                names[name] += "_given"
            taken.add(name_key(names[name]))
    return pl.concat([listed, rest.rename(names)], how="horizontal")


def summarise(draft: Draft, actions: np.ndarray) -> Summary:
    """The summary of a choice of actions."""
    roster, standing, gain = draft.roster, draft.limits.standing, draft.gained(actions)
    one_more = bound = None
    if gain is not None:
        bound = gain_bound(
            draft.scored.gains, roster.costs, draft.budget, draft.limits, draft.locked,
            draft.scored.price,
        )  # fmt: skip
        richer = dataclasses.replace(draft, budget=draft.budget + 1)
        one_more = (richer.gained(choose(richer)) or 0.0) - gain
    costs = {}
    for rule, others in draft.rules.named().items():
        free = draft.under(others)
        costs[rule] = None if gain is None else (free.gained(choose(free)) or 0.0) - gain
    return Summary(
        people=roster.size,
        chosen=int((actions > 0).sum()),
        by_action={
            name: int((actions == place).sum())
            for place, name in enumerate(draft.model.action_names)
            if place and (actions == place).any()
        },
        budget=draft.budget,
        spent=total(draft.paid(actions)),
        left=remaining(draft.budget, draft.paid(actions)),
        price=draft.scored.price,
        gain=gain,
        bound=bound,
        one_more=one_more,
        opted_out=int((standing == OUT).sum()),
        excluded=int((standing == Exclude.standing).sum()),
        resting=int((standing == Cooldown.standing).sum()),
        kept_out={
            why: int((standing == number).sum())
            for number, why in reasons_out().items()
            if number not in (OUT, Exclude.standing, Cooldown.standing)
        },
        locked=int((draft.locked > 0).sum()),
        incomplete=roster.incomplete,
        unknown=roster.unknown,
        rules=costs,
        outside_training=roster.n_unlike,
        outside=roster.unlike,
        states_read=roster.states_read,
        usual_share=unusual_share(draft.model, draft.budget, roster.size),
    )
