"""Recipes: every hyperparameter of training, with what it means beside it.

The documentation of a field is its help on the command line.
"""

import dataclasses
from typing import Any

from prefermab.errors import InputError, count, unknown


@dataclasses.dataclass(frozen=True)
class Regression:
    """What the recipes that learn worths at swept prices have in common."""

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
    """How far the slow copy, which is kept, moves towards the network in a step."""
    masked: float = 0.5
    """Share of training arms with hidden features, so that unknown ones cost little."""
    seed: int = 0
    """Where all randomness starts."""


@dataclasses.dataclass(frozen=True)
class Sweep(Regression):
    """Prices are swept in training and searched when deciding; learns from sampled steps only."""


@dataclasses.dataclass(frozen=True)
class Exact(Regression):
    """Value iteration's answers are learned at swept prices; for simulators that know dynamics."""

    steps: int = 6000
    """Gradient steps, each on some new arms."""
    arms: int = 256
    """Arms, each at a price and in a state, of a step's sample."""
    prices: int = 8
    """Prices at which the answers of an arm are worked out."""
    horizon: int = 12
    """Rounds that value iteration looks ahead."""


@dataclasses.dataclass(frozen=True)
class Paper:
    """The paper's Algorithm 1: PPO at the price of a price network; its hyperparameter table."""

    epochs: int = 100
    """Rounds of collecting and learning (n_epochs)."""
    rounds: int = 100
    """Rounds played in an epoch (n_steps)."""
    subepochs: int = 4
    """Epochs between two updates of the price network (n_subepochs)."""
    freeze: int = 20
    """Last epochs in which the price network stays as it is (lambda freeze epochs)."""
    opt_in: float = 0.8
    """Chance that an arm is in, redrawn after every price update (training opt-in rate)."""
    passes: int = 20
    """Gradient steps on an epoch's data (trains per epoch)."""
    clip: float = 2.0
    """How far PPO lets the probability of an action move (agent clip ratio)."""
    entropy_start: float = 0.5
    """Weight of the entropy bonus at the start; it falls to a quarter within a block as well."""
    entropy_end: float = 0.0
    """Weight of the entropy bonus at the end."""
    actor_rate: float = 2e-3
    """Step size of Adam for the actor (actor learning rate)."""
    critic_rate: float = 2e-3
    """Step size of Adam for the critic (critic learning rate)."""
    price_rate: float = 2e-3
    """Step size of the price network at the start (lambda initial learning rate)."""
    price_decay: float = 0.99
    """By which it falls at each update (lambda scheduler discount rate)."""
    discount: float = 0.9
    """What the next round counts against this one."""
    trace: float = 0.97
    """λ of generalised advantage estimation."""
    width: int = 16
    """Neurons in a hidden layer, tanh."""
    depth: int = 2
    """Hidden layers."""
    shaping: str = "none"
    """StateShaping of a continuous state: none, isotonic or knn."""
    seed: int = 0
    """Where all randomness starts."""


@dataclasses.dataclass(frozen=True)
class Tuning:
    """How a model is fine-tuned on given arms, whatever its recipe."""

    epochs: int = 10
    """Rounds of collecting and learning."""
    rounds: int = 20
    """Rounds in which every arm is tried in an epoch."""
    passes: int = 20
    """Gradient steps on an epoch's data."""
    learning_rate: float = 1e-3
    """Step size of Adam."""
    trials: int = 200
    """Held-out trials on which the tuned model must beat the one it started from."""
    seed: int = 0
    """Where all randomness starts."""


PAPER_EXCEPTIONS: dict[str, dict[str, Any]] = {"continuous-synthetic": {"price_decay": 0.95}}
"""Where the paper departs from its own table of hyperparameters, by domain."""

RECIPES: dict[str, type] = {"exact": Exact, "sweep": Sweep, "paper": Paper}
SHAPINGS = ("none", "isotonic", "knn")


def recipe_config(recipe: str, settings: dict[str, Any]) -> Any:
    """The recipe's hyperparameters, with some of them set.

    >>> from prefermab.config import recipe_config
    >>> recipe_config("sweep", {"steps": 10}).steps
    10
    """
    if recipe not in RECIPES:
        raise unknown("recipe", str(recipe), RECIPES)
    check_settings(RECIPES[recipe], f"of the recipe '{recipe}'", settings)
    config = RECIPES[recipe](**settings)
    for field in dataclasses.fields(config):
        if field.type is int:
            least = 0 if field.name in ("seed", "freeze") else 1
            count(getattr(config, field.name), field.name, at_least=least)
    if config.discount > 1 or (config.discount == 1 and recipe != "exact"):
        raise InputError(
            f"discount must be below 1, or at most 1 for exact, not {config.discount}."
        )
    return config


def check_settings(kind: type, of: str, settings: dict[str, Any]) -> None:
    """Settings must be fields of a dataclass of numbers, and not negative; `of` says of what."""
    fields = {field.name: field.type for field in dataclasses.fields(kind)}
    for name, value in settings.items():
        if name not in fields:
            # One recipe counts epochs where another counts steps.
            meant = {"steps": "epochs", "epochs": "steps"}.get(name)
            raise unknown("setting", name, [meant] if meant in fields else fields, of=f" {of}")
        if name == "shaping":
            if value not in SHAPINGS:
                raise unknown("shaping", str(value), SHAPINGS)
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{name} must be a number, not {value!r}.")
        if value < 0 or value != value:
            raise InputError(f"{name} must not be negative or NaN, but it is {value}.")
