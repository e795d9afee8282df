"""Networks for one arm: how an arm is seen, and what acting on it is worth.

`Perception` is the only place where an observation becomes a network's input, in training and when
deciding alike.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from prefermab.arms import Features, Key, State
from prefermab.domains.base import ContinuousDomain, Domain


class Shape(eqx.Module):
    """Sizes that fix a network's parameters, so that a file can be checked before it is read."""

    cells: int
    code: int
    features: int
    actions: int
    continuous: bool


class Perception(eqx.Module):
    """From an arm's state and features and the price to numbers of about unit size.

    A state is looked up in the codes of the domain's cells; a continuous one is interpolated
    between them. Features are whitened with the mean and covariance of training arms: a random
    projection leaves some directions a hundred times smaller than others, and those decide as
    often. An unknown feature (NaN) takes its mean, and a flag says so. The price enters by its
    root, as it is drawn.
    """

    points: Float[Array, "state"]
    codes: Float[Array, "state code"]
    mean: Float[Array, "feat"]
    whitening: Float[Array, "feat feat"]
    highest_price: Float[Array, ""]
    continuous: bool

    @classmethod
    def of(
        cls, domain: Domain, features: Features, highest_price: Float[Array, ""]
    ) -> "Perception":
        """How arms of a domain are seen, given the features of many of them."""
        codes = 2 * jax.vmap(domain.encode)(domain.cells) - 1
        points = domain.cells.astype(jnp.float32)
        continuous = isinstance(domain, ContinuousDomain)
        return cls(points, codes, *whitening(features), highest_price, continuous)

    @classmethod
    def blank(cls, shape: Shape) -> "Perception":
        """One that sees nothing, of a given shape."""
        zeros = jnp.zeros
        return cls(
            zeros(shape.cells),
            zeros((shape.cells, shape.code)),
            zeros(shape.features),
            zeros((shape.features, shape.features)),
            zeros(()),
            shape.continuous,
        )

    def __call__(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "input"]:
        unknown = jnp.isnan(features)
        centred = jnp.where(unknown, 0.0, features - self.mean)
        level = jnp.sqrt(jnp.clip(price / self.highest_price, 0.0, 1.0))
        return jnp.concatenate(
            [
                self.code(state),
                centred @ self.whitening,
                unknown.astype(jnp.float32),
                2 * level[None] - 1,
            ]
        )

    def code(self, state: State) -> Float[Array, "code"]:
        """A state as numbers."""
        if not self.continuous:
            return self.codes[state]
        return jax.vmap(lambda code: jnp.interp(state, self.points, code))(self.codes.T)

    @property
    def size(self) -> int:
        """How many numbers a network sees."""
        return self.codes.shape[1] + 2 * self.mean.shape[0] + 1


def whitening(features: Features) -> tuple[Float[Array, "feat"], Float[Array, "feat feat"]]:
    """Mean, and the matrix after which features have unit covariance (unknown ones left out).

    >>> import jax, jax.numpy as jnp
    >>> from prefermab.networks import whitening
    >>> x = jax.random.normal(jax.random.key(0), (1000, 2)) @ jnp.array([[1.0, 0.9], [0.0, 0.1]])
    >>> mean, matrix = whitening(x)
    >>> jnp.cov(((x - mean) @ matrix).T).round(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    known = ~jnp.isnan(features)
    seen = jnp.maximum(known.sum(axis=0), 1)
    mean = jnp.where(known, features, 0.0).sum(axis=0) / seen
    centred = jnp.where(known, features - mean, 0.0)
    covariance = centred.T @ centred / jnp.maximum(len(features) - 1, 1)
    sizes, directions = jnp.linalg.eigh(covariance)
    # A direction in which training arms do not differ says nothing: it is left out, not blown up.
    useful = sizes > 1e-7 * jnp.maximum(sizes.max(), 1e-30)
    scale = jnp.where(useful, 1 / jnp.sqrt(jnp.where(useful, sizes, 1.0)), 0.0)
    return mean, directions * scale


class Worth(eqx.Module):
    """What a state is worth, and what each action is worth more than the passive one there."""

    perception: Perception
    layers: eqx.nn.MLP

    def __call__(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, "act"]]:
        out = self.layers(self.perception(state, features, price))
        return out[0], out.at[0].set(0.0)


def mlp(
    size: int, out: int, width: int, depth: int, activation: Callable[[Array], Array], key: Key
) -> eqx.nn.MLP:
    """A plain network with the same width throughout."""
    return eqx.nn.MLP(size, out, width, depth, activation, key=key)
