"""Simulated trials of a programme, many at once: people are drawn from its domain, and its model or
the control decides about them.

The index of a person is the highest price at which the model would act on them in their state. The
people with the highest index are acted on, within the budget (`choosing`).
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
import polars as pl
from scipy.spatial import KDTree

from prefermab.domains.base import FiniteDomain
from prefermab.errors import InputError, count, number, share, unknown
from prefermab.models.model import Model
from prefermab.programme.evidence.choosing import ActionSteps, Quotas, choose_people
from prefermab.programme.evidence.designs import BY_CLUSTER, Design
from prefermab.programme.evidence.effects import TrialArm
from prefermab.programme.planning.roster import Roster, read_roster
from prefermab.programme.planning.rules import Rules
from prefermab.programme.planning.rules.limits import apply_rules
from prefermab.programme.planning.scoring import gains_at, highest_prices
from prefermab.programme.tables.table import as_frame

POOL = 2000
"""Number of people that simulated trials draw from."""

CONTROLS = ("none", "random")
"""Controls: no actions, or as many actions as in the model's arm on random people."""


@dataclasses.dataclass(frozen=True)
class TrialProgramme:
    """The programme that a trial tests, as it is simulated.

    `share` is the budget: the share of people who can be acted on in a round. Where costs differ
    between actions or people, it is the share that could get their cheapest action; it may be above
    1, if the budget pays more expensive actions for everybody. `control` is what happens in the
    other arm (`none` or `random`). `cooldown` is the number of rounds that must pass between two
    actions on a person. `rules` are other rules of a plan, and `table` is a table of people with
    the columns of these rules, or with costs.

    >>> import prefermab as pm
    >>> pm.evidence.TrialProgramme(share=0.1).control
    'none'
    """

    share: float
    control: str = "none"
    cooldown: int = 0
    rules: Rules = dataclasses.field(default_factory=Rules)
    table: Any = None

    def __post_init__(self) -> None:
        number(self.share, "share")
        count(self.cooldown, "cooldown", at_least=0)
        if self.control not in CONTROLS:
            raise unknown("control", self.control, CONTROLS)
        named = set(self.rules.named())
        if "cooldown" in named:
            raise InputError("give cooldown itself, not within rules.")
        if "lock" in named:
            raise InputError(
                "a trial cannot be simulated with people who are locked in (lock): both arms act "
                "on them, so leave them out of the trial."
            )
        tying = [name for rule in self.rules.tying if (name := ", ".join(rule.parts()))]
        if len(tying) > 1:
            raise InputError(
                f"a trial is simulated with one rule by which people share limits, not with "
                f"{len(tying)} ({'; '.join(tying)}): leave out those that bind less."
            )
        if named and self.table is None:
            raise InputError(
                f"the rule {min(named)} needs a table of people with its column (table)."
            )

    def check_design(self, design: Design) -> None:
        """Raises an error if the rules cannot be simulated in this design.

        Args:
            design: The design.
        """
        if design.name in BY_CLUSTER and self.rules.about_groups:
            named = [part for rule in self.rules.tying for part in rule.parts()]
            raise InputError(
                f"a {design.name} is simulated with a budget for each cluster, too small for the "
                f"rule {named[0]}: leave it out, or take another design."
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """People that simulated trials draw from: transition probabilities (person, state, action, next
    state), probabilities of the first state (person, state), rewards (person, state), the model's
    index (person, state), 0 for people who may not be acted on, `may` (person,), who may be acted
    on, and rules about several people together."""

    chances: np.ndarray
    start: np.ndarray
    rewards: np.ndarray
    index: np.ndarray
    may: np.ndarray | None = None
    quotas: Quotas | None = None
    steps: ActionSteps | None = None
    """Only with several actions, or costs that differ between people."""

    @property
    def size(self) -> int:
        """The number of people."""
        return len(self.chances)

    def budget(self, part: float, people: int) -> float:
        """The budget of a round for this number of people: a number of actions or, with `steps`, an
        amount."""
        if self.steps is None:
            return people_budget(part, people)
        return part * people * self.steps.cheapest


@dataclasses.dataclass(frozen=True, eq=False)
class TrialHistories:
    """What happened in several trials. Arrays are (trial, person, round): the reward of the next
    state, the number of the action, the model's index before the action, and its cost. `state` has
    one round more."""

    reward: np.ndarray
    action: np.ndarray
    index: np.ndarray
    spent: np.ndarray
    state: np.ndarray

    @property
    def acted(self) -> np.ndarray:
        """(trial, person, round): who was acted on."""
        return self.action > 0

    def arm(self, trial: int) -> TrialArm:
        """One trial, in the form that the estimators of `effects` take."""
        return TrialArm(self.reward[trial], self.acted[trial], self.index[trial], self.spent[trial])


def draw_pool(
    model: Model,
    domain: Any = None,
    size: int = POOL,
    seed: int = 0,
    programme: TrialProgramme | None = None,
) -> Pool:
    """People of a domain with the model's index for each of their states.

    Args:
        model: The model that decides.
        domain: Where people come from, such as `prefermab.from_log(log)`; the model's own domain if
            left out.
        size: The number of people.
        seed: Random seed.
        programme: Its rules and table. Each simulated person gets the group, worker, exclusion and
            costs of the person of the table whose features are nearest.

    Returns:
        The people.
    """
    world = model.domain if domain is None else domain
    if not isinstance(world, FiniteDomain):
        raise InputError(
            "a trial is simulated on people with finitely many states: give a log of the programme "
            "(--log), or a model whose domain is known."
        )
    if not model.policy.gains_are_rewards:
        raise InputError("a trial is simulated for the recipes exact and sweep, not for paper.")
    key_arms, key_start = jax.random.split(jax.random.key(seed))
    arms = world.draw_arms(key_arms, size)
    chances, features, rewards, first, costs = (
        np.asarray(x) for x in _describe(world, arms, jax.random.split(key_start, 64))
    )
    if chances.shape[2] != len(model.action_names):
        raise InputError(
            f"the log has {chances.shape[2]} actions, but the model has "
            f"{', '.join(model.action_names)}."
        )
    names = {name: place for place, name in enumerate(world.feature_names)}
    missing = [name for name in model.feature_names if name not in names]
    if missing:
        raise InputError(f"the model's feature '{missing[0]}' is not one of the log's.")
    seen = features[:, [names[name] for name in model.feature_names]]
    n_states = chances.shape[1]
    start = (first[:, :, None] == np.arange(n_states)).mean(axis=1)
    costs = np.tile(model.costs, (size, 1)) if model.costs is not None else costs.astype(float)
    may, quotas = np.ones(size, bool), None
    if programme is not None and programme.table is not None:
        costs, may, quotas = _match_table(model, seen, costs, programme)
    steps = None
    if costs.shape[1] > 2 or np.ptp(costs[:, 1]) > 0:
        if quotas is not None:
            raise InputError(
                "shares of groups and budgets of workers are simulated for one action that costs "
                "the same for everybody: leave them out."
            )
        steps = ActionSteps.from_model(
            model, model.judge_cautiously(seen).features, costs, may, n_states
        )
        index = steps.price[:, :, 0]
    else:
        if programme is not None:
            share(programme.share, "share")
        index = np.stack([_index(model, seen, state) for state in range(n_states)], axis=1)
        index = np.where(may[:, None], index, 0.0)
    return Pool(
        chances.astype(float), start, rewards.astype(float), index, may, quotas, steps
    )  # fmt: skip


def _match_table(
    model: Model, features: np.ndarray, costs: np.ndarray, programme: TrialProgramme
) -> tuple[np.ndarray, np.ndarray, Quotas | None]:
    """Costs, who may be acted on, and rules about several people together. Each person gets them
    from the person of the table whose features are nearest."""
    where, table = "the table", as_frame(programme.table)
    roster = read_roster(model, table, where)
    limits = apply_rules(programme.rules, model, roster, table, where)
    middle, spread = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-9)
    known = np.where(np.isnan(roster.features), middle, roster.features)
    near = KDTree((known - middle) / spread).query((features - middle) / spread)[1]
    costs, may = roster.costs[near].astype(float), limits.may[near]
    if not programme.rules.about_groups:
        return costs, may, None
    tying = zip(programme.rules.tying, limits.shared, strict=True)
    shared = next(shared for rule, shared in tying if rule.parts())
    label = np.where(shared.label < 0, len(shared.names), shared.label)
    sizes = np.bincount(label, minlength=len(shared.names) + 1)
    room = np.minimum(shared.budget / max(roster.costs[0, 1], 1e-9), shared.people)
    least, largest = np.append(shared.least, 0.0), np.append(shared.largest, 1.0)
    each = np.append(room, np.inf) / sizes.clip(1)
    return costs, may, Quotas(label[near], least, largest, each)


@eqx.filter_jit
def _describe(domain: FiniteDomain, arms: Any, keys: Any) -> Any:
    one = lambda arm: jax.vmap(lambda key: domain.start(key, arm))(keys)  # noqa: E731
    return (
        jax.vmap(domain.transitions)(arms), domain.features(arms), jax.vmap(domain.rewards)(arms),
        jax.vmap(one)(arms), jax.vmap(domain.costs)(arms),
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
    found = highest_prices(model, roster, 0.0, gains)
    assert found is not None
    return np.where(gains[:, 1] > 0, found, 0.0)


def play_programme_trials(
    pool: Pool,
    who: np.ndarray,
    by_model: np.ndarray,
    shared: np.ndarray,
    budget: np.ndarray,
    control: str,
    cooldown: int,
    rng: np.random.Generator,
) -> TrialHistories:
    """Simulates all trials at once.

    Args:
        pool: The people that trials draw from.
        who: (trial, person) The positions of people in the pool.
        by_model: (trial, person, round) Whether the model decides, or else the control.
        shared: (trial, person) The number of the budget. People with the same number share a
            budget; numbers start at 0 and differ between trials.
        budget: (number,) The number of actions in a round; with `pool.steps`, their cost.
        control: What decides instead of the model: `none` or `random`.
        cooldown: Rounds that must pass after an action.
        rng: Random numbers.

    Returns:
        The histories of all trials.
    """
    trials, people, rounds = by_model.shape
    flat, group = who.ravel(), shared.ravel()
    state = _draw(pool.start[flat], rng)
    since = np.full(flat.size, rounds + cooldown + 1)
    rewards, indices, spent = np.empty((3, rounds, flat.size))
    actions, states = np.empty((rounds, flat.size), np.int8), [state]
    may = True if pool.may is None else pool.may[flat]
    label = None if pool.quotas is None else pool.quotas.label[flat]
    for now in range(rounds):
        model = by_model[:, :, now].ravel()
        rested = (since > cooldown) & may
        # People who may not be acted on have the index 0.
        index = np.where(rested, pool.index[flat, state], 0.0)
        if pool.steps is not None:
            action = pool.steps.choose(flat, state, rested, model, group, budget, control, rng)
            spent[now] = pool.steps.costs[flat, action]
        else:
            key = np.where(model & (index > 0), index, -np.inf)
            if control == "random":
                key = np.where(model | ~rested, key, rng.random(flat.size))
            acted = choose_people(key, group, budget, rng.random(flat.size), pool.quotas, label)
            action = spent[now] = acted.astype(int)
        state = _draw(pool.chances[flat, state, action], rng)
        since = np.where(action > 0, 1, since + 1)
        rewards[now], indices[now], actions[now] = pool.rewards[flat, state], index, action
        states.append(state.astype(np.int8))
    shape = lambda x: x.T.reshape(trials, people, -1)  # noqa: E731
    found = (rewards, actions, indices, spent, np.stack(states))
    return TrialHistories(*(shape(x) for x in found))


def people_budget(part: float, people: int) -> int:
    """The number of people who are acted on in a round, out of `people`."""
    return round(part * people)


def _draw(chances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    reached = np.cumsum(chances, axis=1)
    return (reached[:, :-1] <= rng.random((len(chances), 1)) * reached[:, -1:]).sum(axis=1)
