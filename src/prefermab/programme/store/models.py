"""The model of a programme: what it must have, and how it is identified."""

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from prefermab.common.files import exists
from prefermab.errors import InputError, brief
from prefermab.models.loading import earlier_fingerprint, fingerprint, load, shipped_models
from prefermab.models.model import Model
from prefermab.programme.tables.columns import HasStates

PACKAGES = ("prefermab", "jax", "jaxlib", "numpy", "polars")


@runtime_checkable
class Planner(HasStates, Protocol):
    """The attributes that a programme needs of a model; a class of your own can have them too."""

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
        """A function like `Model.plan`: it returns an object with `frame` and `summary`."""
        ...


def check_model(model: object) -> Planner:
    """The model; raises an error if it lacks something that a programme needs."""
    needed = ("plan", "state_names", "action_names", "feature_names", "costs")
    for name in needed:
        if not hasattr(model, name):
            raise InputError(
                f"a programme needs a model, such as pm.load returns, but {type(model).__name__} "
                f"has no {name}."
            )
    assert isinstance(model, Planner)
    return model


def model_hash(model: Planner) -> str:
    """The hash of a `Model`, or the `fingerprint` of a model of your own."""
    declared = getattr(model, "fingerprint", None)
    if declared is not None:
        return str(declared)
    if not isinstance(model, Model):
        raise InputError(
            "a model of your own needs a fingerprint, a text that identifies it, but "
            f"{type(model).__name__} has none."
        )
    return fingerprint(model)


def is_earlier_model(model: object, stored_hash: str | None) -> bool:
    """Whether a stored hash is that of this model before it was taught the last rounds of a
    programme."""
    if not isinstance(model, Model):
        return False
    return stored_hash is not None and stored_hash == earlier_fingerprint(model)


def software_versions() -> dict[str, str]:
    """Versions of the software that makes a plan, on which the last bits of numbers can depend."""
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
    """Loads a programme's model; `place` is a folder or the name of a model that ships, and `path`
    is the name of the programme in messages."""
    again = f"say where it is with `prefermab programme begin {path} --model FOLDER`"
    if place is None:
        raise InputError(f"{path} does not say where its model is: {again}.")
    if not Path(place).is_absolute() and place in shipped_models():
        return load(shipped_models()[place])
    if not exists(Path(place)):
        raise InputError(f"{path}: the model's folder {brief(place)} is gone: {again}.")
    return load(place)
