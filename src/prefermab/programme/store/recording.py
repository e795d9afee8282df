"""Records a round: reads what was done from a table, checks it against the plan, and stores it."""

import warnings
from typing import Any

import polars as pl
import sqlalchemy as sa
from sqlalchemy import Connection

from prefermab.arms.amounts import fits, total
from prefermab.errors import InputError, InputWarning, list_names, unknown
from prefermab.programme.store import queries
from prefermab.programme.store.comparing import check_stored
from prefermab.programme.store.frames import read_ids
from prefermab.programme.store.models import Planner
from prefermab.programme.store.plans import Planned, close_round, get_plan
from prefermab.programme.store.request import PlanRequest
from prefermab.programme.store.rows import fetch, put_rows, select, timestamp
from prefermab.programme.store.schema import ACTIONS, DEVIATIONS
from prefermab.programme.tables.columns import (
    as_flags,
    as_labels,
    check_plain,
    column,
    optional_column,
    state_numbers,
)
from prefermab.programme.tables.naming import find_name, refuse_similar_names
from prefermab.programme.tables.table import as_frame, first_row, format_people, row_in

REACHED, WHY = "reached", "why"
NOT_REACHED = (
    r"\b(no ?(answer|reply|response|contact|show)|(not|un|never) ?(answer|reach|home|at home)|"
    r"(missed|busy|failed|voice ?mail)\b)"
)
"""Texts that staff write in place of an action that did not reach the person."""


def store_states(
    sql: Connection, model: Planner, frame: pl.DataFrame, ids: pl.Series, now: int, where: str
) -> pl.Series:
    """Stores the states of a frame, and returns them as numbers."""
    states = state_numbers(model, column(frame, "state", where), ids, where)
    queries.put_states(sql, ids, states, now)
    return states


def record(
    sql: Connection,
    model: Planner,
    actions: Any,
    which: int,
    *,
    correct: bool,
    partial: bool,
    yes: bool,
    over_budget: bool,
    where: str,
) -> str | None:
    """Stores what was done in the round `which`, and closes it if it is the current one.

    A recorded round may be recorded again with the same actions, or corrected with others. Returns
    "record" or "correct", or None if nothing changed.
    """
    check_stored(sql, "meta actions deviations")
    now, plan = queries.current_round(sql), get_plan(sql, which)
    if plan is None or which > now:
        raise InputError(f"record: round {which} is not planned yet{_earlier(which, now)}.")
    if which == now:
        if correct:
            raise InputError(f"record: round {which} is not recorded yet: nothing to correct.")
        done = read_done(model, actions, plan, where)
        _check_budget(done, plan, over_budget, where)
        _store(sql, model, plan, done)
        close_round(sql, plan)
        return "record"
    done, stored = read_done(model, actions, plan, where), get_actions(sql, which)
    if partial:
        done = _with_uncorrected_people(sql, model, plan, done, stored)
    differs = _difference(done.filter(pl.col("action") != model.action_names[0]), stored)
    if differs is None:
        return None
    if not correct:
        raise InputError(
            f"record: round {which} is recorded already, with {differs}; add correct=True "
            "(--correct) to replace them by these."
        )
    _check_budget(done, plan, over_budget, where)
    left_out = [who for who in stored if who not in set(done["id"].to_list())]
    if left_out and actions is not None and not yes:
        raise InputError(
            f"{where}: {format_people(len(left_out))} recorded as acted on in round {which} "
            f"({list_names(map(str, left_out))}) would count as not acted on, because they have no "
            "row; add partial=True (--partial) to change only people in the table, or yes=True "
            "(--yes) if that is what happened."
        )
    keep_old_actions(sql, which)
    _store(sql, model, plan, done)
    return "correct"


def _store(sql: Connection, model: Planner, plan: Planned, done: pl.DataFrame) -> None:
    """Stores what was done, and the deviations from the plan."""
    passive = model.action_names[0]
    put_actions(sql, plan, done.filter(pl.col("action") != passive))
    rows = plan.frame.select("id", planned="action")
    allowed = PlanRequest(plan.asked).selectable(plan.inputs, f"round {plan.round}")
    may = pl.DataFrame([plan.inputs["id"], allowed.cast(pl.Int64).alias("allowed")])
    rows = rows.join(done.select("id", "action", WHY), on="id", how="left").join(may, on="id")
    rows = rows.with_columns(done=pl.col("action").fill_null(passive))
    rows = rows.filter(pl.col("done") != pl.col("planned"))
    put_deviations(sql, plan.round, rows.select("id", "planned", "done", "allowed", WHY))


def _with_uncorrected_people(
    sql: Connection,
    model: Planner,
    plan: Planned,
    done: pl.DataFrame,
    stored: dict[Any, tuple[str, bool]],
) -> pl.DataFrame:
    """Adds to a correction of some people all others as they were recorded, also those who got no
    action and have a reason for that."""
    whys, nothing = get_whys(sql, plan.round), (model.action_names[0], True)
    corrected = set(done["id"].to_list())
    known = {**dict.fromkeys(whys, nothing), **stored}
    rest = {who: known[who] for who in known if who not in corrected}
    kept = pl.DataFrame(
        [
            pl.Series("id", list(rest), dtype=plan.frame["id"].dtype),
            pl.Series("action", [action for action, _ in rest.values()], dtype=pl.String),
            pl.Series(REACHED, [reached for _, reached in rest.values()], dtype=pl.Boolean),
            pl.Series(WHY, [whys.get(who) for who in rest], dtype=pl.String),
        ]
    )
    return pl.concat([done, _with_costs(model, plan, kept).select(done.columns)])


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


def read_done(model: Planner, actions: Any, plan: Planned, where: str = "record") -> pl.DataFrame:
    """Reads what was done from a table: id, action, cost, `reached` and `why`, in the order of the
    plan. Without a table, everybody was treated as planned."""
    if actions is None:
        done = plan.frame.with_columns(
            pl.lit(True).alias(REACHED), pl.lit(None, pl.String).alias(WHY)
        )
        return _record_columns(done)
    given = as_frame(actions, "actions")
    refuse_similar_names(
        given.columns, ("id", "action", REACHED, WHY), where, "give it another name"
    )
    ids = read_ids(given, where)
    names = read_actions(model, given, ids, where)
    reached = read_reached(given, names, model.action_names[0], ids, where)
    strange = ~ids.is_in(plan.frame["id"].cast(ids.dtype, strict=False).implode())
    if len(ids) and ids.dtype != plan.frame["id"].dtype:
        strange = pl.repeat(True, len(ids), eager=True)
    if strange.any():
        raise InputError(
            f"{where}: {queries.name_rows(ids, strange, where)} not in the plan of round "
            f"{plan.round}."
        )
    ids = ids.cast(plan.frame["id"].dtype)
    return _record_columns(
        _with_costs(model, plan, pl.DataFrame([ids, names, reached, _whys(given, where)]))
    )


def _record_columns(done: pl.DataFrame) -> pl.DataFrame:
    return done.select("id", "action", pl.col("cost").cast(pl.Float64), REACHED, WHY)


def _whys(frame: pl.DataFrame, where: str) -> pl.Series:
    """The reasons that staff give in the column `why`; null without such a column."""
    given = optional_column(frame, WHY, where)
    if given is None:
        return pl.repeat(None, frame.height, dtype=pl.String, eager=True).alias(WHY)
    check_plain(given, where)
    return given.cast(pl.String).str.strip_chars().alias(WHY)


def _check_budget(done: pl.DataFrame, plan: Planned, over_budget: bool, where: str) -> None:
    """Raises an error if what was done exceeds the budget, unless `over_budget` is true."""
    budget = plan.asked["budget"]
    if not over_budget and not fits(done["cost"], budget):
        raise InputError(
            f"{where}: these actions cost {total(done['cost']):g}, more than the budget of "
            f"{budget:g} of round {plan.round}; add over_budget=True (--over-budget) if that is "
            "what happened."
        )


def read_actions(model: Planner, frame: pl.DataFrame, ids: pl.Series, where: str) -> pl.Series:
    """The action of each row, spelled as in the model."""
    given = column(frame, "action", where)
    check_plain(given, where)
    given, other = given.cast(pl.String), find_name(frame.columns, "action_given", where)
    if other is not None:
        warnings.warn(
            f"{where}: what was done is read from the column 'action'; '{other}' is not read.",
            InputWarning, stacklevel=2,
        )  # fmt: skip
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

    For the passive action the cell must be empty. Otherwise staff may have tried an action without
    naming it, and that action would be lost.
    """
    given = optional_column(frame, REACHED, where)
    if given is None:
        return pl.repeat(True, frame.height, eager=True).alias(REACHED)
    given = as_labels(given)
    reached = as_flags(given, where, unknown=True)
    misplaced = given.is_not_null() & (actions == passive)
    if misplaced.any():
        row = first_row(misplaced)
        raise InputError(
            f"{where}: {row_in(where, row)}, id {ids[row]}: the column '{given.name}' holds "
            f"'{given[row]}' beside the action '{passive}', but it belongs to an action that was "
            "tried: write the action that was tried, or leave the cell empty."
        )
    return reached.alias(REACHED)


def _with_costs(model: Planner, plan: Planned, done: pl.DataFrame) -> pl.DataFrame:
    """Adds the cost of each action: that of the plan, of the person's column, or of the model."""
    planned = plan.frame.select("id", planned="action", then="cost")
    rows = planned.join(done, on="id", how="inner", maintain_order="left")
    rows = rows.join(plan.inputs, on="id", how="left", maintain_order="left", suffix="_known")
    cost = pl.when(pl.col("action") == pl.col("planned")).then(pl.col("then").cast(pl.Float64))
    for place, name in enumerate(model.action_names):
        cost_column = f"cost_{name}"
        usual = 0.0 if model.costs is None else float(model.costs[place])
        here = pl.lit(usual)
        if cost_column in plan.inputs.columns:
            here = pl.col(cost_column).cast(pl.Float64).fill_null(usual)
        cost = cost.when(pl.col("action") == name).then(here)
    return rows.with_columns(cost=cost)


def get_actions(sql: Connection, round: int) -> dict[Any, tuple[str, bool]]:
    """Who was acted on in a round: the action, and whether it reached the person."""
    columns = select(ACTIONS, "id", "action", "reached")
    rows = fetch(sql, columns.where(ACTIONS.c.round == round))
    return {who: (action, bool(reached)) for who, action, reached in rows}


def put_actions(sql: Connection, plan: Planned, done: pl.DataFrame) -> None:
    """Stores what was done in the round of a plan, and replaces what was stored before."""
    for table in (ACTIONS, DEVIATIONS):
        sql.execute(sa.delete(table).where(table.c.round == plan.round))
    rows = done.select("id", "action", "cost", pl.col("reached").cast(pl.Int64))
    columns = {name: rows[name].to_list() for name in rows.columns}
    columns |= {"round": [plan.round] * done.height, "attempt": [plan.attempt] * done.height}
    put_rows(sql, ACTIONS, columns)


def put_deviations(sql: Connection, round: int, deviations: pl.DataFrame) -> None:
    """Stores the people who were not treated as planned: id, planned, done, allowed and why."""
    columns = {name: deviations[name].to_list() for name in deviations.columns}
    put_rows(sql, DEVIATIONS, {"round": [round] * deviations.height, **columns})


def get_whys(sql: Connection, round: int) -> dict[Any, str]:
    """The reasons that were given for deviations of a round, by person."""
    with_reason = (DEVIATIONS.c.round == round) & (DEVIATIONS.c.why != "")
    return dict(fetch(sql, select(DEVIATIONS, "id", "why").where(with_reason)))


def keep_old_actions(sql: Connection, round: int) -> None:
    """Copies the record of a round to the corrections, before it is replaced."""
    columns = select(ACTIONS, "id", "action", "cost", "reached")
    rows = fetch(sql, columns.where(ACTIONS.c.round == round))
    old = {"round": round, "corrected": timestamp(), "actions": sorted(rows)}
    queries.set_meta(sql, "corrections", [*(queries.get_meta(sql, "corrections") or []), old])
