"""Measurements behind docs/results: `python -m studies` from the root of the repository."""

import jax


def machine() -> str:
    """Where something is measured, to be kept beside it."""
    return f"JAX {jax.__version__} on {jax.devices()[0].device_kind}"
