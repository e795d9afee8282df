"""The Gymnasium environments: one world, or several that run together."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from prefermab import domains
from prefermab.arms.observation import Arms
from prefermab.arms.opt_in import Streaming
from prefermab.domains import ContinuousDomain, Domain
from prefermab.errors import InputError, count
from prefermab.evaluation.compare import ROUNDS
from prefermab.gym.episodes import (
    ObservationArrays,
    Setup,
    Worlds,
    as_actions,
    as_seed,
    make_setup,
)

# Gymnasium's checker needs finite bounds; features and costs have no natural ones.
_LARGEST = float(np.finfo(np.float32).max)


class AllocationEnv(gymnasium.Env):
    """One world with `n_arms` arms and a budget in each round; truncated after `rounds` rounds.

    Args:
        domain: A Domain, or the name of one.
        n_arms: Number of arms; by default as in the paper for this domain.
        budget: Budget of a round; by default as in the paper for this domain.
        rounds: Number of rounds in an episode.
        opt_in: Share of arms that opt in, or a `Streaming` process.
        arms: Arms to play in every episode; by default each episode draws new ones.
        render_mode: Only None: there is nothing to render.
        settings: Settings of the domain, if it is given by name.

    >>> import prefermab as pm
    >>> from prefermab.gym import AllocationEnv
    >>> env = AllocationEnv(pm.domains.SIS(population=20), n_arms=3, budget=2)
    >>> env.action_space
    MultiDiscrete([3 3 3])
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        domain: Domain | str | None = None,
        n_arms: int | None = None,
        budget: float | None = None,
        rounds: int = ROUNDS,
        opt_in: float | Streaming = 1.0,
        *,
        arms: Arms | None = None,
        render_mode: str | None = None,
        **settings: Any,
    ):
        setup = make_setup(domain, n_arms, budget, rounds, opt_in, arms, **settings)
        self.domain, self.render_mode = setup.domain, render_mode
        self.observation_space = observation_space(setup)
        self.action_space = action_space(setup)
        self._worlds = Worlds(setup, 1)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObservationArrays, dict[str, Any]]:
        """Begins an episode: the first trial of `seed`, or the next trial if there is no seed."""
        seed = as_seed(seed)
        super().reset(seed=seed)
        return _first(self._worlds.reset([seed], self.np_random)), {}

    def step(self, action: Any) -> tuple[ObservationArrays, float, bool, bool, dict[str, Any]]:
        """Plays a round. `info` has the actions that were `executed`, whether they differ from
        `action` (`projected`), what they cost (`spent`), and the `budget`."""
        actions = as_actions(action, self._worlds.setup, ())
        seen, reward, infos = self._worlds.step(actions[None])
        info = {
            "projected": bool(infos["projected"][0]),
            "executed": infos["executed"][0],
            "spent": float(infos["spent"][0]),
            "budget": float(infos["budget"][0]),
        }
        return _first(seen), float(reward[0]), False, self._worlds.over, info


class AllocationVectorEnv(VectorEnv):
    """Many worlds in one computation; the arguments are those of `AllocationEnv`.

    All worlds end together. The next step then begins a new episode in each world and ignores the
    actions (Gymnasium's next-step autoreset).

    >>> from prefermab.gym import AllocationVectorEnv
    >>> envs = AllocationVectorEnv(100, "synthetic", n_arms=5, budget=2)
    >>> seen, infos = envs.reset(seed=0)
    >>> seen["features"].shape
    (100, 5, 4)
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(
        self,
        num_envs: int,
        domain: Domain | str | None = None,
        n_arms: int | None = None,
        budget: float | None = None,
        rounds: int = ROUNDS,
        opt_in: float | Streaming = 1.0,
        *,
        arms: Arms | None = None,
        render_mode: str | None = None,
        **settings: Any,
    ):
        setup = make_setup(domain, n_arms, budget, rounds, opt_in, arms, **settings)
        self.domain, self.render_mode = setup.domain, render_mode
        self.num_envs = count(num_envs, "num_envs")
        self.single_observation_space = observation_space(setup)
        self.single_action_space = action_space(setup)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._worlds = Worlds(setup, self.num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[ObservationArrays, dict[str, Any]]:
        """Begins an episode in every world, with the seeds `seed`, `seed` + 1 and so on, or with a
        list of seeds."""
        if options and "reset_mask" in options:
            raise InputError("all worlds end together: they cannot be reset one by one.")
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        seeds = [as_seed(one) for one in ([None] * self.num_envs if seed is None else seed)]
        if len(seeds) != self.num_envs:
            raise InputError(f"seed must have one number for each of {self.num_envs} worlds.")
        super().reset(seed=seeds[0])
        return self._worlds.reset(seeds, self.np_random), {}

    def step(
        self, actions: Any
    ) -> tuple[ObservationArrays, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Plays a round in every world; the infos are those of a single world, stacked."""
        terminated = np.zeros(self.num_envs, bool)
        if self._worlds.over:
            return self.reset()[0], np.zeros(self.num_envs), terminated, terminated.copy(), {}
        checked = as_actions(actions, self._worlds.setup, (self.num_envs,))
        seen, reward, infos = self._worlds.step(checked)
        # Gymnasium marks the worlds that have an info: here all of them.
        masks = {f"_{name}": np.ones(self.num_envs, bool) for name in infos}
        truncated = np.full(self.num_envs, self._worlds.over)
        return seen, reward, terminated, truncated, {**infos, **masks}


def observation_space(setup: Setup) -> spaces.Space:
    """The fields of `Observation`, and which features are `known`."""
    domain, n_arms = setup.domain, setup.n_arms
    shape = (n_arms, len(domain.feature_names))
    state = spaces.Box(-_LARGEST, _LARGEST, (n_arms,), np.float32)
    if isinstance(domain, ContinuousDomain):
        state = spaces.Box(0.0, 1.0, (n_arms,), np.float32)
    elif jnp.issubdtype(domain.cells.dtype, jnp.integer):
        state = spaces.MultiDiscrete(np.full(n_arms, domain.n_cells))
    return spaces.Dict(
        {
            "state": state,
            "features": spaces.Box(-_LARGEST, _LARGEST, shape, np.float32),
            "known": spaces.MultiBinary(shape),
            "opt_in": spaces.MultiBinary(n_arms),
            "costs": spaces.Box(0.0, _LARGEST, (n_arms, domain.n_actions), np.float32),
            "budget": spaces.Box(0.0, _LARGEST, (1,), np.float32),
            "round": spaces.Discrete(setup.rounds + 1),
        }
    )


def action_space(setup: Setup) -> spaces.Space:
    """One action for each arm; together, actions may cost more than the budget."""
    return spaces.MultiDiscrete(np.full(setup.n_arms, setup.domain.n_actions))


def register() -> None:
    """Registers `prefermab/Armman-v0` and so on; `prefermab/Domain-v0` takes any Domain.

    >>> import gymnasium
    >>> import prefermab.gym
    >>> prefermab.gym.register()
    >>> gymnasium.spec("prefermab/SIS-v0").kwargs
    {'domain': 'sis'}
    """
    named = {kind.__name__: {"domain": name} for name, kind in domains.BY_NAME.items()}
    for name, kwargs in {**named, "Domain": {}}.items():
        if f"prefermab/{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"prefermab/{name}-v0",
                entry_point="prefermab.gym:AllocationEnv",
                vector_entry_point="prefermab.gym:AllocationVectorEnv",
                kwargs=kwargs,
            )


def _first(seen: ObservationArrays) -> ObservationArrays:
    return {name: values[0] for name, values in seen.items()}
