"""Networks that are stacked along their first axis, taken apart."""

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

T = TypeVar("T")


def apart(stacked: T, number: int) -> list[T]:
    """Several networks that are stacked along their first axis, one by one. NumPy takes them
    apart: JAX would compile for each shape.

    >>> import equinox as eqx, jax
    >>> from prefermab.stacked import apart
    >>> both = eqx.filter_vmap(lambda key: eqx.nn.Linear(2, 3, key=key))(
    ...     jax.random.split(jax.random.key(0)))
    >>> [one.weight.shape for one in apart(both, 2)]
    [(3, 2), (3, 2)]
    """
    arrays, fixed = eqx.partition(stacked, eqx.is_array)
    arrays = jax.device_get(arrays)
    each = [jax.tree.map(lambda x, i=i: x[i], arrays) for i in range(number)]
    return [eqx.combine(own, fixed) for own in jax.device_put(each)]


def at_place(stacked: T, place: int) -> T:
    """One of several networks that are stacked along their first axis.

    >>> import equinox as eqx, jax
    >>> from prefermab.stacked import at_place
    >>> both = eqx.filter_vmap(lambda key: eqx.nn.Linear(2, 3, key=key))(
    ...     jax.random.split(jax.random.key(0)))
    >>> at_place(both, 1).weight.shape
    (3, 2)
    """
    arrays, fixed = eqx.partition(stacked, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda x: jnp.asarray(np.asarray(x)[place]), arrays), fixed)
