"""What was done in a round, checked against what was planned."""

from typing import Any

import polars as pl

from prefermab.budget import limit_of
from prefermab.errors import InputError, unknown
from prefermab.programme.people import read_ids
from prefermab.programme.queries import Planned
from prefermab.tables import as_frame, column, first_row, row_in


def done_of(model: Any, actions: Any, plan: Planned, over_budget: bool) -> pl.DataFrame:
    """Who was acted on: id, action and cost, in the order of the plan."""
    passive, where = model.action_names[0], "record"
    if actions is None:
        done = plan.frame
    else:
        given = as_frame(actions, "actions")
        ids = read_ids(given, where)
        names = read_actions(model, given, ids, where)
        strange = ~ids.is_in(plan.frame["id"].cast(ids.dtype, strict=False).implode())
        if strange.any() or ids.dtype != plan.frame["id"].dtype:
            row = first_row(strange)
            raise InputError(
                f"{where}: {row_in(where, row)}: {ids[row]} is not in the plan of round "
                f"{plan.round}."
            )
        done = _costed(model, plan, pl.DataFrame([ids, names]))
    done = done.filter(pl.col("action") != passive)
    done = done.select("id", "action", pl.col("cost").cast(pl.Float64))
    spent, budget = done["cost"].sum(), plan.asked["budget"]
    if spent > limit_of(budget) and not over_budget:
        raise InputError(
            f"{where}: these actions cost {spent:g}, more than the budget of {budget:g} of round "
            f"{plan.round}; add over_budget=True if that is what happened."
        )
    return done


def read_actions(model: Any, frame: pl.DataFrame, ids: pl.Series, where: str) -> pl.Series:
    """The action of each row, by its name as the model spells it."""
    given = column(frame, "action", where).cast(pl.String)
    spelled = {name.lower(): name for name in model.action_names}
    plain = given.str.strip_chars().str.to_lowercase()
    names = plain.replace_strict(spelled, default=None, return_dtype=pl.String)
    if names.null_count():
        row = first_row(names.is_null())
        at = f"{where}: {row_in(where, row)}, id {ids[row]}"
        if given[row] is None:
            raise InputError(f"{at}, has no action; expected one of {', '.join(spelled)}.")
        raise InputError(f"{at}: {unknown('action', given[row], model.action_names)}")
    return names.alias("action")


def _costed(model: Any, plan: Planned, done: pl.DataFrame) -> pl.DataFrame:
    """The cost of each action: as planned, from the person's own columns, or the model's."""
    planned = plan.frame.select("id", planned="action", then="cost")
    rows = planned.join(done, on="id", how="inner", maintain_order="left")
    rows = rows.join(plan.inputs, on="id", how="left", maintain_order="left", suffix="_known")
    cost = pl.when(pl.col("action") == pl.col("planned")).then(pl.col("then").cast(pl.Float64))
    for place, name in enumerate(model.action_names):
        own, usual = f"cost_{name}", 0.0 if model.costs is None else float(model.costs[place])
        here = pl.col(own).cast(pl.Float64) if own in plan.inputs.columns else pl.lit(usual)
        cost = cost.when(pl.col("action") == name).then(here)
    return rows.with_columns(cost=cost)
