"""StateShaping (Algorithm 2): an abstract state in which the reward is a straight line.

The reward of a raw state is estimated from all (state, reward) pairs seen so far, and the state is
replaced by that estimate, stretched to the range of states seen. States of equal reward then look
alike. The estimate is kept as a table over the domain's cells, so that the shaped state is looked
up inside compiled code and is saved with the model.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

SHAPINGS = ("none", "isotonic", "knn")


class Samples(eqx.Module):
    """States and the rewards of being in them, block by block of training; with a first axis for
    seeds where several are trained together."""

    state: Float[Array, "... block sample"]
    reward: Float[Array, "... block sample"]
    blocks: Int[Array, "..."]
    """How many blocks hold samples."""

    @classmethod
    def none(cls, blocks: int, size: int) -> "Samples":
        """No samples yet, and room for so many blocks."""
        empty = jnp.zeros((blocks, size))
        return cls(empty, empty, jnp.zeros((), int))

    def add(self, state: Float[Array, "round arm"], reward: Float[Array, "round arm"]) -> "Samples":
        """One block more."""
        at = self.blocks
        states = self.state.at[at].set(state.reshape(-1))
        return Samples(states, self.reward.at[at].set(reward.reshape(-1)), at + 1)

    def codes(self, cells: np.ndarray, estimator: str) -> np.ndarray:
        """The abstract states of the cells as a network sees them, (seed, cell, 1)."""
        states, rewards, blocks = (np.asarray(x) for x in (self.state, self.reward, self.blocks))
        each = [
            shaped(cells, states[seed, :filled].ravel(), rewards[seed, :filled].ravel(), estimator)
            for seed, filled in enumerate(blocks)
        ]
        return 2 * np.stack(each)[..., None] - 1


def shaped(
    cells: np.ndarray, states: np.ndarray, rewards: np.ndarray, estimator: str
) -> np.ndarray:
    """The abstract state of each cell: (r̂(s) - r_min) / (r_max - r_min) · (s_max - s_min).

    >>> import numpy as np
    >>> from prefermab.shaping import shaped
    >>> s = np.linspace(0, 1, 101)
    >>> shaped(np.array([0.0, 0.25, 0.5, 1.0]), s, np.minimum(2 * s, 1), "isotonic").round(2)
    array([0. , 0.5, 1. , 1. ])
    """
    estimate = _estimator(estimator).fit(states[:, None], rewards).predict(cells[:, None])
    lowest, highest = rewards.min(), rewards.max()
    if highest == lowest:
        return np.zeros_like(cells)
    return (estimate - lowest) / (highest - lowest) * (states.max() - states.min())


def _estimator(name: str) -> Any:
    if name == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        return IsotonicRegression(out_of_bounds="clip")
    from sklearn.neighbors import KNeighborsRegressor

    return KNeighborsRegressor(n_neighbors=5)
