"""The domain of a log: arms drawn from the posterior of its fit.

A model is trained on arms of many posterior draws, so that it learns the posterior mean of the
value of acting, given what the log shows.
"""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prefermab.arms.features import FeatureMap
from prefermab.arms.observation import Arm, Key, State
from prefermab.domains.base import FiniteDomain
from prefermab.errors import count, share
from prefermab.programme.logs.fitting import Fit, Terms, fit_log, transition_tables
from prefermab.programme.logs.log_warnings import log_warnings
from prefermab.programme.logs.reading import Log, read_log
from prefermab.programme.logs.shrinkage import LEAST_PROBABILITY, dirichlet

ARM_DRAWS = 64
"""Number of posterior draws from which arms are made."""

MOST_ARMS_DRAWN, MOST_TABLE_NUMBERS = 1 << 14, 1 << 24
"""Most arms that are drawn in advance, and most numbers in their tables together."""

STARTS_ANYWHERE = 0.02
"""Share of arms that start in a random state, so that training visits every state."""


class Logged(FiniteDomain):
    """Arms like the people of a log, made by `from_log`.

    An arm is a person of the log, with a transition table drawn from the posterior given this
    person's own past; or, with probability `newcomers`, a new person with similar features and
    without a past. Many arms are drawn in advance, the same number for each posterior draw; `draw`
    resamples them.

    Arms start in the last state that was seen of the person. Newcomers start in a state in which
    people of the log were first seen.
    """

    table: Float[Array, "given state act state"]
    feature_table: Float[Array, "given feat"]
    starts: Float[Array, "given state"]
    reward_table: Float[Array, "state"]
    cost_table: Float[Array, "act"]
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    parameter_names: tuple[str, ...]
    present: Float[Array, ""]
    spent: Float[Array, ""]

    name: ClassVar[str] = "logged"

    def __init__(
        self, log: Log, fit: Fit, seed: int = 0, newcomers: float = 0.5, draws: int = ARM_DRAWS
    ):
        rng = np.random.default_rng(count(seed, "seed", at_least=0))
        draws = min(count(draws, "draws"), len(fit.draws))
        arms = draw_posterior_arms(rng, log, fit, share(newcomers, "newcomers"), draws)
        self.feature_map = FeatureMap("identity")
        self.table = jnp.asarray(arms.table, jnp.float32)
        self.feature_table = jnp.asarray(arms.features, jnp.float32)
        self.starts = jnp.asarray(arms.starts, jnp.float32)
        self.reward_table = jnp.asarray(log.labels.rewards, jnp.float32)
        self.cost_table = jnp.asarray(log.labels.costs, jnp.float32)
        self.state_names, self.action_names = log.labels.states, log.labels.actions
        self.parameter_names = log.feature_names
        # Arrays instead of floats, so that logs that differ only in them share compiled code.
        self.present = jnp.asarray(log.found.present, jnp.float32)
        self.spent = jnp.asarray(log.spent, jnp.float32)

    @property
    def usual_arms(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The mean number of people with a row in a round of the log."""
        return max(1, round(float(self.present)))

    @property
    def usual_budget(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The mean cost of a round of the log."""
        return float(self.spent)

    def draw(self, key: Key) -> Arm:
        return jax.random.randint(key, (), 0, self.table.shape[0])

    def parameters(self, arm: Arm) -> Float[Array, "param"]:
        return self.feature_table[arm]

    def costs(self, arm: Arm) -> Float[Array, "act"]:
        return self.cost_table

    def reward_at(self, arm: Arm, state: State) -> Float[Array, ""]:
        return self.reward_table[state]

    def start(self, key: Key, arm: Arm) -> State:
        reached = jnp.cumsum(self.starts[arm])
        return jnp.sum(reached <= jax.random.uniform(key) * reached[-1])

    def start_chances(self, arm: Arm) -> Float[Array, "state"]:
        return self.starts[arm] / jnp.sum(self.starts[arm])

    def row(self, arm: Arm, cell: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, "state"]:
        return self.table[arm, cell, action]


def from_log(
    log: Any,
    *,
    id: str = "id",
    time: str = "time",
    state: str = "state",
    action: str = "action",
    features: Sequence[str] | None = None,
    costs: Mapping[Any, Any] | Sequence[Any] | None = None,
    rewards: Mapping[Any, Any] | None = None,
    passive: Any = None,
    available: str | None = None,
    reached: str | None = None,
    every: Any = None,
    draws: int = ARM_DRAWS,
    seed: int = 0,
) -> Logged:
    """A domain whose arms are like the people of a log.

    Each warning about the log is given as a Python warning (`LogWarning`) of one sentence.

    Args:
        log: A polars or pandas frame, or a CSV or Parquet file, with one row for each person and
            round.
        id: Column with the id of the person.
        time: Column of whole numbers or dates.
        state: Column of the person's state in that round.
        action: Column of the action in that round; the state that follows is in the next row.
        features: Columns that describe people. All other columns if left out; none if empty, and
            then people differ by their state only.
        costs: The cost of each action, by action or in the order of their names; the one that costs
            0 is the passive one. Left out, `passive` (or the action 0) costs 0 and the others 1.
        rewards: The reward of each state.
        passive: The action that means doing nothing; not needed if `costs` has one cost of 0.
        available: Column of true and false: whether the person could be acted on. If left out, a
            column of this name is used if there is one.
        reached: Column of true and false: whether the action reached the person. If left out, a
            column of this name is used if there is one.
        every: Length of a round, such as `7d`, `2w`, `1m` or a number; the most common time between
            two rows of a person if left out.
        draws: Number of posterior draws from which arms are made.
        seed: Random seed.

    Returns:
        The domain, to pretrain and to evaluate on.

    >>> import prefermab as pm
    >>> from prefermab.programme.logs.simulated import example_tables
    >>> people, log = example_tables(people=60, weeks=10)
    >>> domain = pm.from_log(log, time="week", costs={"none": 0, "call": 1},
    ...     rewards={"engaged": 1, "drifting": 0.5, "silent": 0})
    >>> domain.action_names, domain.n_cells, domain.usual_arms
    (('none', 'call'), 3, 44)
    """
    read = read_log(
        log, id=id, time=time, state=state, action=action, features=features, costs=costs,
        rewards=rewards, passive=passive, available=available, reached=reached, every=every,
    )  # fmt: skip
    for warning in log_warnings(read):
        warnings.warn(warning, stacklevel=2)
    return Logged(read, fit_log(read, seed=seed), seed, draws=draws)


@dataclasses.dataclass(frozen=True, eq=False)
class PosteriorArms:
    """Arms: transition probabilities (arm, state, action, next state), features (arm, feature) and
    probabilities of the first state (arm, state). Arm i is of the posterior draw i modulo the
    number of draws."""

    table: np.ndarray
    features: np.ndarray
    starts: np.ndarray


def draw_posterior_arms(
    rng: np.random.Generator, log: Log, fit: Fit, newcomers: float, draws: int
) -> PosteriorArms:
    """Draws the same number of arms for each of the first posterior draws. The table of an arm is
    drawn from its posterior, given the features and the person's own past."""
    size = max(2, min(MOST_ARMS_DRAWN, MOST_TABLE_NUMBERS // int(np.prod(log.shape))) // draws)
    person = rng.integers(0, len(log.features), (size, draws))
    new = rng.random((size, draws)) < newcomers
    noise = bandwidth(fit.terms, len(log.features))
    features = log.features[person]
    features = features + new[..., None] * noise * rng.standard_normal(features.shape)
    order = np.argsort(log.transitions.person, kind="stable")
    ends = np.searchsorted(log.transitions.person[order], np.arange(len(log.features) + 1))
    table = np.empty((size, draws, *log.shape), np.float32)
    for draw in range(draws):
        chances = transition_tables(fit.draws[draw], fit.terms(features[:, draw]))
        concentration = fit.kappas[draw] * np.maximum(chances, LEAST_PROBABILITY)
        own = np.where(new[:, draw], -1, person[:, draw])
        table[:, draw] = dirichlet(rng, concentration + _past_counts(log, own, order, ends))
    if fit.starts is None:
        arrivals = _state_shares(log.first_state, log.shape[0])
        starts = np.where(new[..., None], arrivals, _starts(log.last_state, arrivals)[person])
    else:
        starts = fit.first_states(features.reshape(size * draws, -1)).reshape(size, draws, -1)
    parts = (table, features, starts)
    return PosteriorArms(*(part.reshape(size * draws, *part.shape[2:]) for part in parts))


def bandwidth(terms: Terms, people: int) -> np.ndarray:
    """The standard deviation of the noise that makes a newcomer's numeric features from those of a
    person: the bandwidth of a kernel density estimate by Scott's rule."""
    return np.where(terms.numeric, terms.spread, 0.0) * people ** (-1 / (terms.numeric.sum() + 4))


def _past_counts(log: Log, person: np.ndarray, order: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """(arm, state, action, next state): counts of the transitions of these people, 0 for person
    -1."""
    counts = np.zeros((len(person), *log.shape), np.float32)
    lengths = np.where(person >= 0, ends[person + 1] - ends[person], 0)
    arm = np.repeat(np.arange(len(person)), lengths)
    place = np.arange(len(arm)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    event = order[ends[person[arm]] + place]
    seen = log.transitions
    np.add.at(counts, (arm, seen.state[event], seen.action[event], seen.following[event]), 1.0)
    return counts


def _state_shares(states: np.ndarray, n_states: int) -> np.ndarray:
    known = np.bincount(states[states >= 0], minlength=n_states)
    return (1 - STARTS_ANYWHERE) * known / max(known.sum(), 1) + STARTS_ANYWHERE / n_states


def _starts(last: np.ndarray, arrivals: np.ndarray) -> np.ndarray:
    n_states = len(arrivals)
    here = (1 - STARTS_ANYWHERE) * np.eye(n_states)[
        np.maximum(last, 0)
    ] + STARTS_ANYWHERE / n_states
    return np.where(last[:, None] >= 0, here, arrivals)
