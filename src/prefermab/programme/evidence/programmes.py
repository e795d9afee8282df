"""Made-up trials of a programme: people drawn from its domain, and chosen by its model or
otherwise, many trials at once.

A model decides by an index: the highest price at which it would act on somebody in a state. Those
with the highest index are acted on while the budget lasts.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
import polars as pl

from prefermab.domains.base import FiniteDomain
from prefermab.errors import InputError, number
from prefermab.model import Model
from prefermab.programme.columns import column
from prefermab.programme.planning.roster import Roster, read_roster
from prefermab.programme.planning.scoring import gains_at, own_prices

POOL = 2000
"""People that trials draw from."""

CONTROLS = ("none", "random")
"""What the other arm does: nothing, or the same number of actions at random."""


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """People: chances (person, state, action, next state) of moving, their first states
    (person, state), rewards (person, state), and the model's index (person, state)."""

    chances: np.ndarray
    start: np.ndarray
    rewards: np.ndarray
    index: np.ndarray

    @property
    def size(self) -> int:
        """The number of people."""
        return len(self.chances)


@dataclasses.dataclass(frozen=True, eq=False)
class Histories:
    """What happened in several trials, each (trial, person, round): the reward that followed, who
    was acted on, and the model's index before it; `state` has one round more."""

    reward: np.ndarray
    acted: np.ndarray
    index: np.ndarray
    state: np.ndarray


def draw_pool(model: Model, domain: Any = None, size: int = POOL, seed: int = 0) -> Pool:
    """People of a domain with the model's index for each of their states.

    Args:
        model: The model that decides.
        domain: Where people come from, such as `prefermab.from_log(log)`; the model's own domain if
            left out.
        size: The number of people.
        seed: Random seed.

    Returns:
        The people.
    """
    world = model.domain if domain is None else domain
    if not isinstance(world, FiniteDomain):
        raise InputError(
            "a trial is simulated on people with finitely many states: give a log of the programme "
            "(--log), or a model whose domain is known."
        )
    if len(model.action_names) != 2:
        raise InputError(
            f"a trial is simulated for one action beside doing nothing, but this model has "
            f"{', '.join(model.action_names)}."
        )
    if not model.policy.gains_are_rewards:
        raise InputError("a trial is simulated for the recipes exact and sweep, not for paper.")
    key_arms, key_start = jax.random.split(jax.random.key(seed))
    arms = world.draw_arms(key_arms, size)
    chances, features, rewards, first = (
        np.asarray(x) for x in _describe(world, arms, jax.random.split(key_start, 64))
    )
    names = {name: place for place, name in enumerate(world.feature_names)}
    missing = [name for name in model.feature_names if name not in names]
    if missing:
        raise InputError(f"the model's feature '{missing[0]}' is not one of the log's.")
    seen = features[:, [names[name] for name in model.feature_names]]
    n_states = chances.shape[1]
    start = (first[:, :, None] == np.arange(n_states)).mean(axis=1)
    index = np.stack([_index(model, seen, state) for state in range(n_states)], axis=1)
    return Pool(chances.astype(float), start, rewards.astype(float), index)


@eqx.filter_jit
def _describe(domain: FiniteDomain, arms: Any, keys: Any) -> Any:
    one = lambda arm: jax.vmap(lambda key: domain.start(key, arm))(keys)  # noqa: E731
    return (
        jax.vmap(domain.transitions)(arms), domain.features(arms), jax.vmap(domain.rewards)(arms),
        jax.vmap(one)(arms),
    )  # fmt: skip


def _index(model: Model, features: np.ndarray, state: int) -> np.ndarray:
    """The highest price at which each person would be acted on in a state."""
    size, costs = len(features), np.asarray(model.costs, float)
    judged = model.judge_cautiously(features)
    roster = Roster(
        pl.Series(np.arange(size)), np.ones(size, bool), np.full(size, state, np.int32),
        judged.features, np.tile(costs, (size, 1)), {}, np.zeros(size), {}, {},
    )  # fmt: skip
    gains = gains_at(model, roster.states, roster.features, 0.0)
    found = own_prices(model, roster, 0.0, gains)
    assert found is not None
    return np.where(gains[:, 1] > 0, found, 0.0)


def index_of(model: Model, table: pl.DataFrame, where: str) -> np.ndarray:
    """The model's index for each row of a table with states and features; 0 without a state."""
    if not model.policy.gains_are_rewards:
        raise InputError("a model of the recipe paper has no index for a single person.")
    names = set(model.state_names)
    known = column(table, "state", where).cast(pl.String).is_in(list(names)).fill_null(False)
    rows = table.filter(known).with_columns(pl.int_range(pl.len()).alias("id"))
    drop = [name for name in rows.columns if name.strip().lower() == "opt_in"]
    roster = read_roster(model, rows.drop(drop), where)
    gains = gains_at(model, roster.states, roster.features, 0.0)
    found = own_prices(model, roster, 0.0, gains)
    assert found is not None
    index = np.zeros(table.height)
    index[known.to_numpy()] = np.where(gains[:, 1] > 0, found, 0.0)
    return index


def play_trials(
    pool: Pool,
    who: np.ndarray,
    by_model: np.ndarray,
    shared: np.ndarray,
    budget: np.ndarray,
    control: str,
    cooldown: int,
    rng: np.random.Generator,
) -> Histories:
    """Plays trials, all at once.

    Args:
        pool: Where people come from.
        who: (trial, person): places in the pool.
        by_model: (trial, person, round): whether the model decides about them then, or the control.
        shared: (trial, person): people with the same number share a budget; numbers are from 0 on
            and differ between trials.
        budget: (number,): people of each number who are acted on in a round.
        control: What else decides: `none` or `random`.
        cooldown: Rounds that must pass after an action.
        rng: Random numbers.

    Returns:
        What happened.
    """
    trials, people, rounds = by_model.shape
    flat, group = who.ravel(), shared.ravel()
    state = _draw(pool.start[flat], rng)
    since = np.full(flat.size, rounds + cooldown + 1)
    rewards, indices = np.empty((2, rounds, flat.size))
    actions, states = np.empty((rounds, flat.size), bool), [state]
    begins = np.searchsorted(np.sort(group), np.arange(group.max() + 1))
    for now in range(rounds):
        model = by_model[:, :, now].ravel()
        rested = since > cooldown
        # Whoever may not be acted on has no index.
        index = np.where(rested, pool.index[flat, state], 0.0)
        key = np.where(model & (index > 0), index, -np.inf)
        if control == "random":
            key = np.where(model | ~rested, key, rng.random(flat.size))
        order = np.lexsort((rng.random(flat.size), -key, group))
        rank = np.empty(flat.size, int)
        rank[order] = np.arange(flat.size)
        acted = (rank - begins[group] < budget[group]) & (key > -np.inf)
        state = _draw(pool.chances[flat, state, acted.astype(int)], rng)
        since = np.where(acted, 1, since + 1)
        rewards[now], indices[now], actions[now] = pool.rewards[flat, state], index, acted
        states.append(state.astype(np.int8))
    shape = lambda x: x.T.reshape(trials, people, -1)  # noqa: E731
    return Histories(*(shape(x) for x in (rewards, actions, indices, np.stack(states))))


def people_budget(share: float, people: int) -> int:
    """How many of so many people are acted on in a round."""
    return max(round(number(share, "share") * people), 0)


def _draw(chances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    reached = np.cumsum(chances, axis=1)
    return (reached[:, :-1] <= rng.random((len(chances), 1)) * reached[:, -1:]).sum(axis=1)
