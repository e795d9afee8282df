"""The model that runs a programme: what it must offer, and how it is told from other models."""

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from prefermab.errors import InputError
from prefermab.model import Model
from prefermab.programme.columns import HasStates
from prefermab.storage import earlier_fingerprint, fingerprint, load, shipped_models

PACKAGES = ("prefermab", "jax", "jaxlib", "numpy", "polars")


@runtime_checkable
class Planner(HasStates, Protocol):
    """What a programme needs of a model; a `Model` has it, and so can a class of your own."""

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names of the actions, the passive one first."""
        ...

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The columns that the model reads."""
        ...

    @property
    def costs(self) -> Any:
        """The cost of each action, or None."""
        ...

    @property
    def plan(self) -> Callable[..., Any]:
        """A function as `Model.plan`: it returns an object with `frame` and `summary`."""
        ...


def check_model(model: object) -> Planner:
    """The model, if it has all that a programme needs."""
    needed = ("plan", "state_names", "action_names", "feature_names", "costs")
    for name in needed:
        if not hasattr(model, name):
            raise InputError(
                f"a programme needs a model, as pm.load gives one, but {type(model).__name__} has "
                f"no {name}."
            )
    assert isinstance(model, Planner)
    return model


def model_hash(model: Planner) -> str:
    """The fingerprint that a model of your own declares, or the hash of a Model's weights."""
    own = getattr(model, "fingerprint", None)
    if own is not None:
        return str(own)
    if not isinstance(model, Model):
        raise InputError(
            "a model of your own needs a text that identifies it, but "
            f"{type(model).__name__} has no fingerprint."
        )
    return fingerprint(model)


def is_same_model(model: object, stored_hash: str | None) -> bool:
    """Whether a stored hash is that of this model, or of what it was before it was taught the last
    rounds of a programme."""
    if not isinstance(model, Model):
        return False
    return stored_hash is not None and stored_hash == earlier_fingerprint(model)


def software_versions() -> dict[str, str]:
    """The software that makes a plan; the last bits of its figures can depend on it."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if "jax" in sys.modules:
        found["device"] = sys.modules["jax"].default_backend()
    return found


def load_stored(place: str | None, path: str) -> Model:
    """The model of the programme that messages call `path`: `place` is a shipped model's name or a
    folder."""
    again = f"say where it is with `prefermab programme begin {path} --model FOLDER`"
    if place is None:
        raise InputError(f"{path} does not say where its model is: {again}.")
    if not Path(place).is_absolute() and place in shipped_models():
        return load(shipped_models()[place])
    if not Path(place).is_dir():
        raise InputError(f"{path}: the model's folder {place} is not there any more: {again}.")
    return load(place)
