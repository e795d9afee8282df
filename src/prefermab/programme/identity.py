"""Which model decided, and with what software."""

import hashlib
import json
import sys
from importlib import metadata
from typing import Any

from prefermab.errors import InputError

PACKAGES = ("prefermab", "jax", "jaxlib", "numpy", "polars")


def fingerprint(model: Any) -> str:
    """A hash of everything that decides what a model does: its weights and its configuration.

    The version of the package is not part of it: a model that is loaded by a later one is the same.

    >>> import prefermab as pm
    >>> from prefermab.programme.identity import fingerprint
    >>> fingerprint(pm.load("armman")) == fingerprint(pm.load("sis"))
    False
    """
    own = getattr(model, "fingerprint", None)
    if own is not None:
        return str(own)
    from safetensors.numpy import save

    from prefermab.storage import describe, named_arrays

    weights = hashlib.sha256(save(named_arrays(model.network))).hexdigest()
    config = {key: value for key, value in describe(model).items() if key != "package"}
    config["weights_sha256"] = weights
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


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
