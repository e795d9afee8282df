"""Logs of trials: reading them into arrays of rewards, actions and index by person and round, and
simulating them, to test the analysis before the trial starts."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from prefermab.errors import InputError
from prefermab.models.model import Model
from prefermab.programme.evidence.designs import Layout
from prefermab.programme.evidence.effects import TrialArm
from prefermab.programme.evidence.power import play_layouts
from prefermab.programme.evidence.protocol import Protocol
from prefermab.programme.evidence.simulated_trials import TrialProgramme, draw_pool
from prefermab.programme.planning.roster import read_roster
from prefermab.programme.planning.scoring import gains_at, highest_prices
from prefermab.programme.tables.cleaning import clean_ids
from prefermab.programme.tables.columns import (
    as_amounts,
    as_flags,
    as_labels,
    as_numbers,
    column,
    optional_column,
)
from prefermab.programme.tables.naming import OPT_IN, match_names, refuse_similar_names

READ_COLUMNS = ("id", "time", "state", "action", "index", "available", "cost")
"""The columns of a trial's log that its analysis reads."""


def rehearse(
    protocol: Protocol,
    model: Model,
    programme: TrialProgramme,
    *,
    domain: Any = None,
    seed: int = 0,
) -> pl.DataFrame:
    """Simulates the log of a trial: the assignment of its protocol, with people drawn from a
    domain.

    Args:
        protocol: The protocol of the trial.
        model: The model that the trial tests.
        programme: Share of people acted on, control and rules.
        domain: The domain that people are drawn from; the model's own if None.
        seed: Random seed.

    Returns:
        A log with `id`, `time`, `state`, `action` and the model's `index`, the `cost` of actions
        where costs differ, and the states after the last round.

    Example::

        tried = pm.evidence.TrialProgramme(share=0.1)
        log = pm.evidence.rehearse(pm.evidence.read_protocol("trial"), pm.load("mine"), tried)
    """
    programme.check_design(protocol.design)
    pool = draw_pool(model, domain, seed=seed, programme=programme)
    rng = np.random.default_rng([seed, 2])
    people, design, layout = protocol.facts["people"], protocol.design, protocol.layout
    who = rng.integers(0, pool.size, (1, people))
    played = play_layouts(pool, design, programme, who, [layout], rng)
    if "id" in protocol.assignment.columns:
        ids = protocol.assignment["id"]
    else:
        ids = pl.Series("id", np.arange(people))
    names = np.array(model.state_names, object)
    actions = np.array(model.action_names, object)
    rows = []
    for now in range(design.rounds + 1):
        done: dict[str, Any] = {
            "action": actions[played.action[0, :, min(now, design.rounds - 1)]],
            "index": played.index[0, :, min(now, design.rounds - 1)],
        }
        if pool.steps is not None:
            done["cost"] = played.spent[0, :, min(now, design.rounds - 1)]
        if now == design.rounds:
            done = {name: [None] * people for name in done}
        kinds = {"state": pl.String, "action": pl.String, "index": pl.Float64, "cost": pl.Float64}
        found = {
            "id": ids, "time": np.full(people, now + 1), "state": names[played.state[0, :, now]],
            **done,
        }  # fmt: skip
        rows.append(
            pl.DataFrame(found, schema_overrides={k: kinds[k] for k in kinds if k in found})
        )
    return pl.concat(rows)


def read_outcomes(
    protocol: Protocol, table: pl.DataFrame, rewards: Mapping[str, float], passive: str,
    model: Model | None, where: str,
) -> tuple[pl.DataFrame, int]:  # fmt: skip
    """Reads the rows of a trial's log.

    Returns a frame with id, round, reward, action, acted, index and spent, for people who were
    assigned; and the number of people in the log who were not.
    """
    state = as_labels(column(table, "state", where))
    strange = set(state.drop_nulls().unique()) - set(rewards)
    if strange:
        raise InputError(f"{where}: the state '{min(strange)}' has no reward.")
    time = as_numbers(column(table, "time", where), where)
    refuse_similar_names(table.columns, READ_COLUMNS, where, "give it another name")
    index = pl.Series("index", np.full(table.height, np.nan))
    if (own := optional_column(table, "index", where)) is not None:
        index = as_numbers(own, where).alias("index").fill_null(float("nan"))
    elif model is not None:
        index = pl.Series("index", model_index(model, table, where))
    if (available := optional_column(table, "available", where)) is not None:
        free = as_flags(available, where, unknown=True)
        index = index.set(~free & index.is_not_nan(), 0.0)
    action = as_labels(column(table, "action", where)).fill_null(passive)
    rows = pl.DataFrame(
        {
            "id": as_labels(clean_ids(column(table, "id", where))),
            "round": time.rank("dense").cast(pl.Int64) - 1,
            "reward": state.replace_strict(dict(rewards), default=None, return_dtype=pl.Float64),
            "action": action,
            "acted": action != passive,
            "index": index,
            "spent": _spent(table, action, passive, model, where),
        }
    )
    twice = rows.select(pl.struct("id", "round").is_duplicated()).to_series()
    if twice.any():
        raise InputError(f"{where}: {rows['id'][twice.arg_max() or 0]} has two rows in one round.")
    needed, seen = protocol.design.rounds + 1, int(time.n_unique())
    if seen < needed:
        raise InputError(
            f"{where}: the trial has {needed - 1} rounds, so that the log must have {needed} "
            f"times, the last one for the states after the last round, but it has {seen}."
        )
    if protocol.design.name == "switchback":
        return rows, 0
    assigned = as_labels(protocol.assignment["id"])
    inside = rows["id"].is_in(assigned.implode())
    return rows.filter(inside), int(rows.filter(~inside)["id"].n_unique())


def _spent(
    table: pl.DataFrame, action: pl.Series, passive: str, model: Model | None, where: str
) -> pl.Series:
    """The cost of each action: from the column `cost`, else from the model, else 1."""
    acted = (action != passive).cast(pl.Float64)
    if (cost := optional_column(table, "cost", where)) is not None:
        return as_amounts(cost, where).fill_null(0.0) * acted
    if model is None or model.costs is None:
        return acted
    costs = dict(zip(model.action_names, model.costs, strict=True))
    return action.replace_strict(costs, default=1.0, return_dtype=pl.Float64) * acted


def arrange_by_person(
    protocol: Protocol, rows: pl.DataFrame, where: str
) -> tuple[TrialArm, np.ndarray, Layout]:
    """Rewards, actions and index of everyone, whether rewards are known (person, round), and the
    layout.

    The reward of a round is that of the next state. An unknown reward is replaced by the last known
    one of the person (last observation carried forward), or by the mean of all.
    """
    rounds, layout = protocol.design.rounds, protocol.layout
    if protocol.design.name == "switchback":
        ids = rows["id"].unique(maintain_order=True)
        layout = dataclasses.replace(layout, unit=np.zeros(len(ids), int))
    else:
        ids = as_labels(protocol.assignment["id"])
    place = {name: at for at, name in enumerate(ids.to_list())}
    who = np.array([place[name] for name in rows["id"].to_list()], int)
    when = rows["round"].to_numpy()
    inside = when <= rounds
    reward = np.full((len(ids), rounds + 1), np.nan)
    index, acted = np.full((len(ids), rounds + 1), np.nan), np.zeros((len(ids), rounds + 1), bool)
    spent = np.zeros((len(ids), rounds + 1))
    found = {"reward": reward, "index": index, "acted": acted, "spent": spent}
    for name, target in found.items():
        target[who[inside], when[inside]] = rows[name].to_numpy()[inside]
    known = ~np.isnan(reward[:, 1:])
    for now in range(1, rounds + 1):
        reward[:, now] = np.where(np.isnan(reward[:, now]), reward[:, now - 1], reward[:, now])
    filled = np.nan_to_num(reward[:, 1:], nan=float(np.nanmean(reward)))
    if not known.any():
        raise InputError(f"{where}: nobody who was assigned has a state after the first round.")
    indices = index[:, :rounds]
    # People without a row cannot be chosen: their index is 0.
    indices = np.where(np.isnan(indices) & ~np.isnan(index).all(), 0.0, indices)
    return TrialArm(filled, acted[:, :rounds], indices, spent[:, :rounds]), known, layout


def model_index(model: Model, table: pl.DataFrame, where: str) -> np.ndarray:
    """(row,): the model's index, from the states and features of a table; 0 in rows without a
    state."""
    if not model.policy.gains_are_rewards:
        raise InputError("a model of the recipe paper has no index of a single person.")
    names = set(model.state_names)
    known = column(table, "state", where).cast(pl.String).is_in(list(names)).fill_null(False)
    rows = table.filter(known).with_columns(pl.int_range(pl.len()).alias("id"))
    drop = match_names(rows.columns, [OPT_IN], where).values()
    roster = read_roster(model, rows.drop(drop), where)
    gains = gains_at(model, roster.states, roster.features, 0.0)
    found = highest_prices(model, roster, 0.0, gains)
    assert found is not None
    index = np.zeros(table.height)
    index[known.to_numpy()] = np.where(gains[:, 1] > 0, found, 0.0)
    return index
