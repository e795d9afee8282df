"""Spreads arms over all accelerators of a machine.

Everything that belongs to one arm stays on one device; only sums over arms (gradients, spending)
are exchanged. With one device nothing changes.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, PartitionSpec, get_abstract_mesh

T = TypeVar("T")
AXIS = "arms"


def all_devices() -> AbstractContextManager:
    """A context in which arms are spread over all devices, if there are several.

    >>> from prefermab.common.sharding import all_devices, number_of_devices
    >>> with all_devices():
    ...     number_of_devices() == len(jax.devices())
    True
    """
    devices = jax.devices()
    if len(devices) == 1 or number_of_devices() > 1:
        return nullcontext()
    return jax.set_mesh(jax.make_mesh((len(devices),), (AXIS,), (AxisType.Auto,)))


def number_of_devices() -> int:
    """Number of devices that arms are spread over in this context."""
    mesh = get_abstract_mesh()
    return mesh.shape[AXIS] if AXIS in mesh.axis_names else 1


def spread(arrays: T) -> T:
    """Splits arrays along their first axis, that of arms, where that gives equal parts."""

    def cut(array):
        even = array.ndim > 0 and array.shape[0] % number_of_devices() == 0
        return jax.lax.with_sharding_constraint(array, PartitionSpec(AXIS)) if even else array

    return arrays if number_of_devices() == 1 else jax.tree.map(cut, arrays)


def map_on_devices(function: Callable, arms: Any, n_arms: int) -> jax.Array:
    """Calls a function of many arms on each device, for its own part of the arms."""
    if number_of_devices() == 1:
        return function(arms)
    fill = -n_arms % number_of_devices()
    filled = jax.tree.map(lambda x: jnp.pad(x, [(0, fill)] + [(0, 0)] * (x.ndim - 1)), arms)
    part = PartitionSpec(AXIS)
    return jax.shard_map(function, in_specs=(part,), out_specs=part)(filled)[:n_arms]
