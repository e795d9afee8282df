"""Recipes: every hyperparameter of training, with what it means beside it.

The documentation of a field is its help on the command line.
"""

import dataclasses
from typing import Any

from prefermab.errors import InputError, unknown


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Prices are swept in training and searched when deciding; learns from sampled steps only."""

    steps: int = 6000
    """Gradient steps, each on new arms."""
    arms: int = 512
    """Arms drawn for each step, each with a price of its own."""
    width: int = 64
    """Neurons in a hidden layer."""
    depth: int = 2
    """Hidden layers."""
    learning_rate: float = 3e-3
    """Of Adam at the start; it falls to 0 along a cosine."""
    discount: float = 0.8
    """What the next round counts against this one."""
    target_rate: float = 0.02
    """How far the slow copy that values next states moves towards the network in a step."""
    masked: float = 0.5
    """Share of training arms with hidden features, so that unknown ones cost little."""
    seed: int = 0
    """Where all randomness starts."""


RECIPES: dict[str, type] = {"sweep": Sweep}


def recipe_config(recipe: str, settings: dict[str, Any]) -> Any:
    """The recipe's hyperparameters, with some of them set.

    >>> from prefermab.config import recipe_config
    >>> recipe_config("sweep", {"steps": 10}).steps
    10
    """
    if recipe not in RECIPES:
        raise unknown("recipe", str(recipe), RECIPES)
    fields = {field.name: field.type for field in dataclasses.fields(RECIPES[recipe])}
    for name, value in settings.items():
        if name not in fields:
            raise unknown(f"setting of the recipe '{recipe}'", name, fields)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{name} must be a number, not {value!r}.")
        if value < 0 or value != value:
            raise InputError(f"{name} must not be negative or NaN, but it is {value}.")
    return RECIPES[recipe](**settings)
