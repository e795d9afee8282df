"""What a domain is: a family of arms to draw from, and how the state of one arm changes.

A domain file holds dynamics only, for one arm. With finitely many states it says how to draw an
arm, the probabilities of the next state, and the reward; with a continuous state, the mean and
spread of the next state in place of probabilities. Everything else is here: drawing many arms,
starts, stepping, features, and the table of transitions that oracles work on (for a continuous
state, on a grid).
"""

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Real

from prefermab.arms.features import FeatureMap
from prefermab.arms.observation import Arm, Arms, Features, Key, State
from prefermab.errors import InputError, unknown

Targets = Int[np.ndarray, "state act next"]
"""Cells that an action may lead to from each cell: known before anything is compiled."""

STARTS_SAMPLED = 512
"""First states of an arm that are drawn, always the same, to estimate how likely each is."""


class Domain(eqx.Module):
    """A family of arms. Methods that take an `arm` act on one; vmap them for many.

    Arguments of the methods: `key` is a random key, `arm` an arm as `draw` returns it, `arms` are
    `n_arms` of them, `state` is a state of an arm, `action` the number of an action, `round` the
    number of a round, from 0. A `cell` is the number of a state where states are finite, and of a
    point of a grid where they are continuous.

    >>> import jax
    >>> import prefermab as pm
    >>> domain = pm.domains.Armman()
    >>> arms = domain.draw_arms(jax.random.key(0), 25)
    >>> domain.features(arms, round=0).shape
    (25, 6)
    """

    feature_map: FeatureMap = eqx.field(kw_only=True, default_factory=FeatureMap)

    name: ClassVar[str] = "own"
    action_names: ClassVar[tuple[str, ...]]
    state_names: ClassVar[tuple[str, ...]]
    parameter_names: ClassVar[tuple[str, ...]]
    usual_arms: ClassVar[int] = 25
    usual_budget: ClassVar[float] = 7.0
    suits: ClassVar[dict[str, dict[str, Any]]] = {}
    """Hyperparameters of recipes, by the recipe's name, that suit the domain better than the
    defaults. They apply where a recipe is given by name, unless they are set."""
    later: ClassVar[tuple[str, ...]] = ()
    """Settings that were added later; see `Recipe.later`."""

    @abc.abstractmethod
    def draw(self, key: Key) -> Arm:
        """Draws one arm at random."""

    @abc.abstractmethod
    def parameters(self, arm: Arm) -> Float[Array, "param"]:
        """The numbers that describe an arm's dynamics, from which its features are made."""

    @abc.abstractmethod
    def start(self, key: Key, arm: Arm) -> State:
        """Draws the first state of an arm."""

    @abc.abstractmethod
    def step(self, key: Key, arm: Arm, state: State, action: Int[Array, ""]) -> State:
        """Draws the next state of an arm."""

    @abc.abstractmethod
    def reward_at(self, arm: Arm, state: State) -> Float[Array, ""]:
        """The reward of being in a state."""

    @abc.abstractmethod
    def costs(self, arm: Arm) -> Float[Array, "act"]:
        """What each action costs on this arm; action 0 is passive and free."""

    @abc.abstractmethod
    def encode(self, state: State) -> Float[Array, "code"]:
        """A state as numbers for a network."""

    @property
    @abc.abstractmethod
    def cells(self) -> Real[Array, "state"]:
        """All states, or the points of the grid."""

    @abc.abstractmethod
    def cell(self, state: State) -> Int[Array, ""]:
        """The cell a state lies in."""

    @abc.abstractmethod
    def row(self, arm: Arm, cell: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, "state"]:
        """Probability of each next cell."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features: those of the parameters, or numbers where a map mixes them."""
        if self.feature_map.kind == "identity":
            return self.parameter_names
        return tuple(f"feature_{i}" for i in range(len(self.parameter_names)))

    @property
    def n_actions(self) -> int:
        """How many actions there are, the passive one included."""
        return len(self.action_names)

    @property
    def n_cells(self) -> int:
        """How many states there are, or points of the grid."""
        return self.cells.shape[0]

    @property
    def targets(self) -> Targets | None:
        """The few cells that an action may lead to from each cell, the same ones for all arms;
        None where it may be any cell. `successors` are their probabilities, and `encode` ends with
        one number for each cell, 1 for its own and 0 for the others."""
        return None

    @property
    def table_size(self) -> int:
        """Number of transition probabilities of an arm."""
        few = self.targets
        return self.n_cells**2 * self.n_actions if few is None else few.size

    def draw_arms(self, key: Key, n_arms: int) -> Arms:
        """Draws `n_arms` arms independently."""
        return _draw_arms(self, key, n_arms)

    def observe(self, arm: Arm, round: int | Int[Array, ""]) -> Float[Array, "feat"]:
        """The features of an arm in a round; override where they change between rounds."""
        del round
        return self.feature_map(self.parameters(arm))

    def features(self, arms: Arms, round: int | Int[Array, ""] = 0) -> Features:
        """The features of many arms in a round."""
        return jax.vmap(lambda arm: self.observe(arm, round))(arms)

    def transitions(self, arm: Arm) -> Float[Array, "state act state"]:
        """The whole table of probabilities (cell, action, next cell)."""
        cells, actions = jnp.arange(self.n_cells), jnp.arange(self.n_actions)
        over_actions = jax.vmap(self.row, in_axes=(None, None, 0))
        return jax.vmap(over_actions, in_axes=(None, 0, None))(arm, cells, actions)

    def successors(self, arm: Arm) -> Float[Array, "state act next"]:
        """The probability of each of `targets`; of every cell where these are None."""
        return self.transitions(arm)

    def rewards(self, arm: Arm) -> Float[Array, "state"]:
        """The reward of every cell."""
        return jax.vmap(lambda state: self.reward_at(arm, state))(self.cells)


@eqx.filter_jit
def _draw_arms(domain: Domain, key: Key, n_arms: int) -> Arms:
    return jax.vmap(domain.draw)(jax.random.split(key, n_arms))


class FiniteDomain(Domain):
    """Finitely many states 0, 1, …: a subclass gives `row`, the probabilities of the next state."""

    @property
    def cells(self) -> Int[Array, "state"]:
        return jnp.arange(len(self.state_names))

    def cell(self, state: State) -> Int[Array, ""]:
        return state.astype(int)

    def start(self, key: Key, arm: Arm) -> State:
        del arm
        return jax.random.randint(key, (), 0, len(self.state_names))

    def start_chances(self, arm: Arm) -> Float[Array, "state"]:
        """Probability of each first state of an arm. Where a subclass has its own `start`, these
        are frequencies in a sample, unless it has its own `start_chances` too."""
        n_states = len(self.state_names)
        if type(self).start is FiniteDomain.start:
            return jnp.full(n_states, 1 / n_states)
        keys = jax.random.split(jax.random.key(0), STARTS_SAMPLED)
        starts = jax.vmap(lambda key: self.start(key, arm))(keys)
        return jax.nn.one_hot(starts, n_states).mean(axis=0)

    def step(self, key: Key, arm: Arm, state: State, action: Int[Array, ""]) -> State:
        return draw_index(key, self.row(arm, self.cell(state), action)).astype(state.dtype)

    def encode(self, state: State) -> Float[Array, "code"]:
        return jax.nn.one_hot(state, len(self.state_names))


class ContinuousDomain(Domain):
    """A state in [0, 1] whose next value is normal, clipped: a subclass gives its `moments`."""

    grid: int = eqx.field(kw_only=True, default=101)
    """Number of grid points that replace the state where an oracle needs finitely many states."""

    state_names: ClassVar[tuple[str, ...]] = ("state",)

    def __check_init__(self) -> None:
        if self.grid < 2:
            raise InputError(f"grid must have at least 2 points, not {self.grid}.")

    @abc.abstractmethod
    def moments(
        self, arm: Arm, state: State, action: Int[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Mean and standard deviation of the next state before it is clipped to [0, 1]."""

    @property
    def cells(self) -> Float[Array, "state"]:
        return jnp.linspace(0.0, 1.0, self.grid)

    def cell(self, state: State) -> Int[Array, ""]:
        return jnp.searchsorted((self.cells[1:] + self.cells[:-1]) / 2, state)

    def start(self, key: Key, arm: Arm) -> State:
        del arm
        return jax.random.uniform(key)

    def step(self, key: Key, arm: Arm, state: State, action: Int[Array, ""]) -> State:
        mean, spread = self.moments(arm, state, action)
        return jnp.clip(mean + spread * jax.random.normal(key), 0.0, 1.0)

    def row(self, arm: Arm, cell: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, "state"]:
        # Mass is split between the two nearest points so that the mean is kept: each point gets
        # the expectation of a hat function, which is a second difference of E[(x' - point)+].
        mean, spread = self.moments(arm, self.cells[cell], action)
        spread = jnp.maximum(spread, 1e-6)
        z = (self.cells - mean) / spread
        excess = spread * (jax.scipy.stats.norm.pdf(z) - z * jax.scipy.stats.norm.sf(z))
        above = jnp.diff(excess) / jnp.diff(self.cells)
        p = jnp.maximum(jnp.diff(above, prepend=-1.0, append=0.0), 0.0)
        return p / jnp.sum(p)

    def encode(self, state: State) -> Float[Array, "code"]:
        return state[None]


def draw_index(key: Key, chances: Float[Array, "next"]) -> Int[Array, ""]:
    """Draws an index by the probability of each.

    It inverts the cumulative probability at one uniform draw: with the same key, two policies reach
    different states only where their actions make a difference.
    """
    reached = jnp.cumsum(chances)
    return jnp.sum(reached <= jax.random.uniform(key) * reached[-1])


def scatter_chances(
    chances: Float[Array, "state act next"], targets: Targets
) -> Float[Array, "state act state"]:
    """One arm's probabilities of every next state, from those of its `targets`."""
    state, action = jnp.indices(targets.shape[:2])
    empty = jnp.zeros((*targets.shape[:2], targets.shape[0]), chances.dtype)
    return empty.at[state[..., None], action[..., None], targets].add(chances)


def uniform_in_subinterval(
    key: Key, low: Float[Array, "..."], high: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Draws a random sub-interval of each [low, high] (two sorted draws), then a value inside it:
    how the paper's released code draws the arms of ARMMAN and SIS."""
    ends = jax.random.uniform(key, (3, *low.shape))
    left, right = jnp.minimum(ends[0], ends[1]), jnp.maximum(ends[0], ends[1])
    return low + (high - low) * (left + (right - left) * ends[2])


def uniform_in_range(
    key: Key, low: Float[Array, "..."], high: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Draws a value of each [low, high] uniformly."""
    return low + (high - low) * jax.random.uniform(key, low.shape)


WAYS_TO_DRAW = {"subinterval": uniform_in_subinterval, "uniform": uniform_in_range}
"""How parameters are drawn from their ranges."""


def check_draws(draws: str) -> None:
    """Raises `InputError` unless `draws` is one of `WAYS_TO_DRAW`."""
    if draws not in WAYS_TO_DRAW:
        raise unknown("way to draw", str(draws), WAYS_TO_DRAW)


def range_ends(*ranges: tuple[float, float]) -> tuple[Float[Array, "param"], Float[Array, "param"]]:
    """Lower and upper ends of several ranges, as two arrays."""
    table = jnp.asarray(ranges, jnp.float32)
    return table[:, 0], table[:, 1]


def check_range(pair: tuple[float, float], name: str) -> None:
    """Checks that a range is two finite numbers, the lower first."""
    if len(pair) != 2 or not np.all(np.isfinite(pair)) or pair[0] > pair[1]:
        raise InputError(f"{name} must be two finite numbers, the lower first, not {pair}.")
