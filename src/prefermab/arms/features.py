"""Feature maps: what the programme sees of an arm instead of its true dynamics.

The paper projects the parameters x of an arm's dynamics to features y = Ax with a random square
matrix A (the default), or y = 1/(1 + exp(-Ax)), or y = x; and masks some of them. The
fields of a map, its seed included, determine it, so model files store only these.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from prefermab.errors import InputError, count, unknown

FEATURE_MAP_KINDS = ("identity", "linear", "sigmoid")
ENTRY_DISTRIBUTIONS = ("normal", "uniform")


class FeatureMap(eqx.Module):
    """Turns an arm's true parameters into the features that policies see.

    A masked feature is NaN, which means "unknown" everywhere in this package.

    >>> import jax.numpy as jnp
    >>> import prefermab as pm
    >>> pm.FeatureMap("identity", masked=(1,))(jnp.array([0.4, 0.6]))
    Array([0.4, nan], dtype=float32)
    >>> domain = pm.domains.Synthetic(feature_map=pm.FeatureMap("sigmoid", seed=7))
    """

    kind: str = "linear"
    seed: int = 0
    masked: tuple[int, ...] = ()
    entries: str = "normal"
    """How the entries of A are drawn."""

    later: ClassVar[tuple[str, ...]] = ("entries",)

    def __check_init__(self) -> None:
        if self.kind not in FEATURE_MAP_KINDS:
            raise unknown("feature map", str(self.kind), FEATURE_MAP_KINDS)
        if self.entries not in ENTRY_DISTRIBUTIONS:
            raise unknown("way to draw entries", str(self.entries), ENTRY_DISTRIBUTIONS)
        count(self.seed, "the feature map's seed", at_least=0)
        if any(column < 0 for column in self.masked):
            raise InputError(f"masked features are numbered from 0, not {min(self.masked)}.")

    def matrix(self, size: int) -> np.ndarray:
        """The random matrix A of the projection.

        Args:
            size: The number of parameters of an arm.

        Returns:
            A, (size, size). Its entries are standard normal, scaled by 1/√size so that features
            keep their scale; or uniform on [0, 1], as in the paper's released code.

        >>> from prefermab import FeatureMap
        >>> FeatureMap("linear", seed=0).matrix(2).shape
        (2, 2)
        """
        if self.entries == "uniform":
            return np.random.default_rng(self.seed).random((size, size))
        return np.random.default_rng(self.seed).standard_normal((size, size)) / np.sqrt(size)

    def __call__(self, parameters: Float[Array, "feat"]) -> Float[Array, "feat"]:
        size = parameters.shape[-1]
        if any(column >= size for column in self.masked):
            raise InputError(
                f"masked names feature {max(self.masked)}, but features go from 0 to {size - 1}."
            )
        features = parameters
        if self.kind != "identity":
            features = jnp.asarray(self.matrix(size), dtype=jnp.float32) @ parameters
        if self.kind == "sigmoid":
            features = jax.nn.sigmoid(features)
        hidden = np.isin(np.arange(size), self.masked)
        return jnp.where(hidden, jnp.nan, features)
