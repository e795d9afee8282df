"""Logged: arms like those of a log, with all that the log leaves open about them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prefermab.arms import Arm, Key, State
from prefermab.domains.base import FiniteDomain
from prefermab.errors import count, share
from prefermab.features import FeatureMap
from prefermab.programme.logs.fitting import Fit, fit_log
from prefermab.programme.logs.pool import WORLDS, draw_pool
from prefermab.programme.logs.reading import Log, read_log
from prefermab.programme.tables import read_table, source_of


class Logged(FiniteDomain):
    """Arms that could be those of a log, made by `from_log`.

    An arm is a person of the log in one of the worlds that the log allows, with a table of
    transitions of their own; or, by a share `newcomers`, somebody like one of them who was never
    seen before. Many are drawn in advance, world by world; drawing arms resamples them.

    Arms start in the last state that was seen of them, newcomers as people first were seen.
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
    worlds: int

    name: ClassVar[str] = "logged"

    def __init__(
        self, log: Log, fit: Fit, seed: int = 0, newcomers: float = 0.5, worlds: int = WORLDS
    ):
        rng = np.random.default_rng(count(seed, "seed", at_least=0))
        self.worlds = min(count(worlds, "worlds"), len(fit.draws))
        pool = draw_pool(rng, log, fit, share(newcomers, "newcomers"), self.worlds)
        self.feature_map = FeatureMap("identity")
        self.table = jnp.asarray(pool.table, jnp.float32)
        self.feature_table = jnp.asarray(pool.features, jnp.float32)
        self.starts = jnp.asarray(pool.starts, jnp.float32)
        self.reward_table = jnp.asarray(log.meaning.rewards, jnp.float32)
        self.cost_table = jnp.asarray(log.meaning.costs, jnp.float32)
        self.state_names, self.action_names = log.meaning.states, log.meaning.actions
        self.parameter_names = log.feature_names
        # As arrays: logs that differ in these only can then share compiled code.
        self.present = jnp.asarray(log.found.present, jnp.float32)
        self.spent = jnp.asarray(log.spent, jnp.float32)

    @property
    def usual_arms(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """People with a row in a round of the log."""
        return max(1, round(float(self.present)))

    @property
    def usual_budget(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What a round of the log cost."""
        return float(self.spent)

    def world(self, number: int) -> "Logged":
        """The arms of one of the worlds only: all of them obey the same coefficients."""
        several = (self.table, self.feature_table, self.starts)
        # NumPy takes them out: JAX would compile for each world.
        own = (jnp.asarray(np.asarray(part)[number :: self.worlds]) for part in several)
        return eqx.tree_at(
            lambda it: (it.table, it.feature_table, it.starts, it.worlds), self, (*own, 1)
        )

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

    def row(self, arm: Arm, cell: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, "state"]:
        return self.table[arm, cell, action]


def from_log(
    frame: Any,
    id: str = "id",
    time: str = "time",
    state: str = "state",
    action: str = "action",
    features: Sequence[str] | None = None,
    costs: Mapping[Any, Any] | Sequence[Any] | None = None,
    rewards: Mapping[Any, Any] | None = None,
    *,
    passive: Any = None,
    available: str | None = None,
    reached: str | None = None,
    every: Any = None,
    worlds: int = WORLDS,
    seed: int = 0,
) -> Logged:
    """Arms like those of a log: a frame, or a CSV or Parquet file, with one row for each person
    and week. `id`, `time`, `state`, `action` and `features` name its columns; all others are
    features if these are left out. Without any, people are told apart by their state alone.

    An action is what was done in that week, and leads to the next week's state. `rewards` are by
    state. `costs` are by action, or in the order of the actions' names; the passive action is the
    one that costs 0. Left out, `passive` (or the action 0) costs 0 and the others 1.

    `available` and `reached` name columns of true and false: who could be acted on, and whom an
    action reached. Columns of these names are used if none is given. `every` is the length of a
    round, such as 7d; as long as two rows of a person mostly are apart if left out.

    What the log leaves open is kept as `worlds` that it allows.

    >>> import prefermab as pm
    >>> from prefermab.programme.logs.simulated import simulate
    >>> log = simulate(pm.domains.Armman(), people=60, rounds=10, share=0.2)
    >>> domain = pm.from_log(log, costs={"none": 0, "call": 1},
    ...     rewards={"motivated": 1, "persuadable": 0.5, "lost cause": 0})
    >>> domain.action_names, domain.n_cells, domain.usual_arms
    (('none', 'call'), 3, 60)
    """
    where = "the log"
    if isinstance(frame, str | Path):
        where, frame = source_of(Path(frame)), read_table(Path(frame))
    log = read_log(
        frame, id, time, state, action, features, costs, rewards, passive, where,
        available, reached, every,
    )  # fmt: skip
    return Logged(log, fit_log(log, seed=seed), seed, worlds=worlds)
