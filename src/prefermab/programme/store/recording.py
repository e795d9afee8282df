"""What was done in a round: read from a table, checked against the plan, and stored."""

from sqlite3 import Connection
from typing import Any

import polars as pl

from prefermab.amounts import fits, total
from prefermab.errors import InputError, unknown
from prefermab.programme.columns import as_flags, as_labels, column
from prefermab.programme.store import queries
from prefermab.programme.store.frames import read_ids
from prefermab.programme.store.models import Planner
from prefermab.programme.store.queries import Planned
from prefermab.programme.tables import as_frame, first_row, row_in

REACHED = "reached"
NOT_REACHED = (
    r"\b(no ?(answer|reply|response|contact|show)|(not|un|never) ?(answer|reach|home|at home)|"
    r"(missed|busy|failed|voice ?mail)\b)"
)
"""Texts that staff write instead of an action when it did not reach the person."""


def record(
    sql: Connection,
    model: Planner,
    actions: Any,
    which: int,
    *,
    correct: bool,
    over_budget: bool,
    where: str,
) -> None:
    """Stores what was done in round `which` and closes it if it is the current one.

    A recorded round may be recorded again with the same actions, or corrected with others.
    """
    now, plan = queries.current_round(sql), queries.get_plan(sql, which)
    if plan is None or which > now:
        raise InputError(f"record: round {which} is not planned yet{_earlier(which, now)}.")
    if which == now:
        if correct:
            raise InputError(f"record: round {which} is not recorded yet: nothing to correct.")
        queries.put_actions(sql, plan, read_done(model, actions, plan, over_budget, where))
        queries.close_round(sql, plan)
        return
    done = read_done(model, actions, plan, over_budget or not correct, where)
    differs = _difference(done, queries.get_actions(sql, which))
    if differs is None:
        return
    if not correct:
        raise InputError(
            f"record: round {which} is recorded already, with {differs}; add correct=True "
            "(--correct) to put these in their place."
        )
    queries.keep_old_actions(sql, which)
    queries.put_actions(sql, plan, done)


def _difference(done: pl.DataFrame, stored: dict[Any, tuple[str, bool]]) -> str | None:
    """How stored actions differ from these, in words; None if they are the same."""
    if dict(done.select("id", "action").rows()) != {who: stored[who][0] for who in stored}:
        return "other actions"
    if dict(done.select("id", REACHED).rows()) != {who: stored[who][1] for who in stored}:
        return f"the same actions but another `{REACHED}`"
    return None


def _earlier(which: int, now: int) -> str:
    if which != now or now == 1:
        return ""
    return f"; name round={now - 1} (--round {now - 1}) if that one is meant"


def read_done(
    model: Planner, actions: Any, plan: Planned, over_budget: bool, where: str = "record"
) -> pl.DataFrame:
    """Who was acted on: id, action, cost and `reached`, in the order of the plan."""
    passive = model.action_names[0]
    if actions is None:
        done = plan.frame.with_columns(pl.lit(True).alias(REACHED))
    else:
        given = as_frame(actions, "actions")
        ids = read_ids(given, where)
        names = read_actions(model, given, ids, where)
        reached = read_reached(given, names, passive, ids, where)
        strange = ~ids.is_in(plan.frame["id"].cast(ids.dtype, strict=False).implode())
        if len(ids) and (strange.any() or ids.dtype != plan.frame["id"].dtype):
            row = first_row(strange)
            raise InputError(
                f"{where}: {row_in(where, row)}: {ids[row]} is not in the plan of round "
                f"{plan.round}."
            )
        ids = ids.cast(plan.frame["id"].dtype)
        done = _with_costs(model, plan, pl.DataFrame([ids, names, reached]))
    done = done.filter(pl.col("action") != passive)
    done = done.select("id", "action", pl.col("cost").cast(pl.Float64), REACHED)
    budget = plan.asked["budget"]
    if not fits(done["cost"], budget) and not over_budget:
        spent = total(done["cost"])
        raise InputError(
            f"{where}: these actions cost {spent:g}, more than the budget of {budget:g} of round "
            f"{plan.round}; add over_budget=True (--over-budget) if that is what happened."
        )
    return done


def read_actions(model: Planner, frame: pl.DataFrame, ids: pl.Series, where: str) -> pl.Series:
    """The action of each row, spelled as the model does."""
    given = column(frame, "action", where).cast(pl.String)
    spelled = {name.lower(): name for name in model.action_names}
    plain = given.str.strip_chars().str.to_lowercase()
    names = plain.replace_strict(spelled, default=None, return_dtype=pl.String)
    if names.null_count():
        row = first_row(names.is_null())
        at = f"{where}: {row_in(where, row)}, id {ids[row]}"
        if given[row] is None:
            raise InputError(f"{at}, has no action; expected one of {', '.join(spelled)}.")
        if plain.str.replace_all("[_-]", " ").str.contains(NOT_REACHED)[row]:
            raise InputError(
                f"{at}: '{given[row]}' is not an action: write the action that was tried, and "
                f"false in the column '{REACHED}'."
            )
        raise InputError(f"{at}: {unknown('action', given[row], model.action_names)}")
    return names.alias("action")


def read_reached(
    frame: pl.DataFrame, actions: pl.Series, passive: str, ids: pl.Series, where: str
) -> pl.Series:
    """Whether each action reached its person: true if the cell is empty or there is no column.

    Beside the passive action the cell must be empty: otherwise staff may have tried an action
    without naming it, and it would be lost.
    """
    if not any(name.strip().lower() == REACHED for name in frame.columns):
        return pl.repeat(True, frame.height, eager=True).alias(REACHED)
    given = as_labels(column(frame, REACHED, where))
    reached = as_flags(given, where, unknown=True)
    odd = given.is_not_null() & (actions == passive)
    if odd.any():
        row = first_row(odd)
        raise InputError(
            f"{where}: {row_in(where, row)}, id {ids[row]}: the column '{given.name}' holds "
            f"'{given[row]}' beside the action '{passive}', but it belongs to an action that was "
            "tried: write the action that was tried, or leave the cell empty."
        )
    return reached.alias(REACHED)


def _with_costs(model: Planner, plan: Planned, done: pl.DataFrame) -> pl.DataFrame:
    """Adds the cost of each action: as planned, from the person's own columns, or the model's."""
    planned = plan.frame.select("id", planned="action", then="cost")
    rows = planned.join(done, on="id", how="inner", maintain_order="left")
    rows = rows.join(plan.inputs, on="id", how="left", maintain_order="left", suffix="_known")
    cost = pl.when(pl.col("action") == pl.col("planned")).then(pl.col("then").cast(pl.Float64))
    for place, name in enumerate(model.action_names):
        own, usual = f"cost_{name}", 0.0 if model.costs is None else float(model.costs[place])
        here = pl.lit(usual)
        if own in plan.inputs.columns:
            here = pl.col(own).cast(pl.Float64).fill_null(usual)
        cost = cost.when(pl.col("action") == name).then(here)
    return rows.with_columns(cost=cost)
