"""Which model decided, and with what software."""

import sys
from importlib import metadata
from typing import Any

from prefermab.errors import InputError
from prefermab.storage import fingerprint

PACKAGES = ("prefermab", "jax", "jaxlib", "numpy", "polars")


def hash_of(model: Any) -> str:
    """What a model goes by: its fingerprint, or the one that it says it has."""
    own = getattr(model, "fingerprint", None)
    return fingerprint(model) if own is None else str(own)


def check_model(model: Any) -> None:
    """A programme is run by something that plans."""
    wanted = ("plan", "state_names", "action_names", "feature_names", "costs")
    missing = [name for name in wanted if not hasattr(model, name)]
    if missing:
        raise InputError(
            f"a programme needs a model, as pm.load gives one, but {type(model).__name__} has no "
            f"{missing[0]}."
        )


def versions() -> dict[str, str]:
    """What a plan is made with; figures can differ in their last bits between versions."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if "jax" in sys.modules:
        found["device"] = sys.modules["jax"].default_backend()
    return found
