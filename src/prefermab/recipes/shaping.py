"""StateShaping (Algorithm 2): replaces states by abstract states, in which the reward is linear.

The reward of a raw state is estimated from all (state, reward) pairs of opted-in arms seen so far,
and the state is replaced by that estimate, stretched to the range of states seen. States of equal
reward then look alike. The abstract state is kept as a table over the domain's cells, so that it is
looked up inside compiled code and is saved with the model.

It works for states that are one number: continuous states, and counts such as the number of
uninfected people, as a share of the highest count.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from prefermab.domains.base import Domain
from prefermab.errors import InputError, unknown
from prefermab.evaluation.rollout import Trajectory

Abstraction = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""A function from the cells (cell,) and the states and rewards of all samples (sample,) to the
abstract state of each cell (cell,). States and abstract states are numbers from 0 to 1."""

OWN = "own"
"""What a model file has as `shaping` where the user passed a function."""


class Samples(eqx.Module):
    """The states of all epochs so far, as numbers, with their rewards; `inside` says which belong
    to opted-in arms. Where several seeds are trained together, the first axis is that of seeds."""

    state: Float[Array, "... epoch sample"]
    reward: Float[Array, "... epoch sample"]
    inside: Bool[Array, "... epoch sample"]
    epochs: Int[Array, "..."]
    """How many epochs hold samples."""

    @classmethod
    def none(cls, epochs: int, size: int) -> "Samples":
        """No samples yet, and room for `epochs` epochs."""
        empty = jnp.zeros((epochs, size))
        return cls(empty, empty, jnp.zeros((epochs, size), bool), jnp.zeros((), int))

    def add(
        self,
        state: Float[Array, "epoch round arm"],
        reward: Float[Array, "epoch round arm"],
        opt_in: Bool[Array, "epoch arm"],
    ) -> "Samples":
        """Adds the samples of some epochs."""
        inside = jnp.broadcast_to(opt_in[:, None], state.shape)

        def put(kept, new):
            rows = new.reshape(len(new), -1).astype(kept.dtype)
            return jax.lax.dynamic_update_slice_in_dim(kept, rows, self.epochs, axis=0)

        return Samples(
            put(self.state, state),
            put(self.reward, reward),
            put(self.inside, inside),
            self.epochs + len(state),
        )

    def abstract(self, cells: np.ndarray, abstraction: Abstraction) -> np.ndarray:
        """The abstract states of the cells for each seed, (seed, cell)."""
        arrays = (self.state, self.reward, self.inside, self.epochs)
        states, rewards, inside, epochs = (np.asarray(array) for array in arrays)
        each = []
        for seed, filled in enumerate(epochs):
            inside_seed = inside[seed, :filled]
            seen = states[seed, :filled][inside_seed], rewards[seed, :filled][inside_seed]
            found = abstraction(cells, *seen)
            each.append(check_abstract_states(found, cells))
        return np.stack(each)


def visited_states(domain: Domain, seen: Trajectory) -> tuple[Array, Array, Array]:
    """States as numbers, the rewards of being in them, and who was in, epoch by epoch."""
    # The reward of a decision is that of the next state.
    states = jnp.concatenate([seen.state[:, 1:], seen.last_state[:, None]], axis=1)
    numbers = jax.vmap(jax.vmap(jax.vmap(domain.encode)))(states)[..., 0]
    return numbers, seen.reward, seen.opt_in


def abstract_states(
    cells: np.ndarray, states: np.ndarray, rewards: np.ndarray, estimator: str
) -> np.ndarray:
    """The abstract state of each cell, by Algorithm 2:
    (r̂(s) - r_min) / (r_max - r_min) · (s_max - s_min).

    >>> import numpy as np
    >>> from prefermab.recipes.shaping import abstract_states
    >>> s = np.linspace(0, 1, 101)
    >>> cells = np.array([0.0, 0.25, 0.5, 1.0])
    >>> abstract_states(cells, s, np.minimum(2 * s, 1), "isotonic").round(2)
    array([0. , 0.5, 1. , 1. ])
    """
    fitted = ESTIMATORS[estimator]().fit(states[:, None], rewards)
    estimate = fitted.predict(cells[:, None])
    lowest, highest = rewards.min(), rewards.max()
    if highest == lowest:
        return np.zeros_like(cells)
    return (estimate - lowest) / (highest - lowest) * (states.max() - states.min())


def isotonic() -> Any:
    """An estimator of the reward that never falls as the state rises."""
    from sklearn.isotonic import IsotonicRegression

    return IsotonicRegression(out_of_bounds="clip")


def nearest_neighbours() -> Any:
    """An estimator of the reward: the mean of the five nearest samples."""
    from sklearn.neighbors import KNeighborsRegressor

    return KNeighborsRegressor(n_neighbors=5)


ESTIMATORS = {"isotonic": isotonic, "knn": nearest_neighbours}

SHAPINGS: dict[str, Abstraction | None] = {
    "none": None,
    **{name: partial(abstract_states, estimator=name) for name in ESTIMATORS},
    OWN: None,
}
"""Shapings by name; `own` only says that the user passed a function."""


def check_shaping(shaping: str | Abstraction) -> None:
    """Raises `InputError` unless this is a function or the name of a shaping."""
    if not callable(shaping) and shaping not in SHAPINGS:
        raise unknown("shaping", str(shaping), [name for name in SHAPINGS if name != OWN])


def abstraction_of(shaping: str | Abstraction) -> Abstraction | None:
    """The function for a name, or the given function; None where states stay as they are."""
    if shaping == OWN:
        raise InputError("shaping is 'own': pass the function itself to train with it again.")
    return shaping if callable(shaping) else SHAPINGS[shaping]


def check_abstract_states(found: Any, cells: np.ndarray) -> np.ndarray:
    """Checks what an abstraction returned: one finite number for each cell."""
    array = np.asarray(found, float)
    if array.shape != cells.shape or not np.isfinite(array).all():
        raise InputError(
            f"the state abstraction must give a finite number for each of {cells.size} cells."
        )
    return array
