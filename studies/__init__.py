"""Measurements behind docs/results: `python -m studies` from the root of the repository."""

import jax


def machine() -> str:
    """The version of JAX and the device of a measurement; stored with its result."""
    return f"JAX {jax.__version__} on {jax.devices()[0].device_kind}"
