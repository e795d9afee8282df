"""What a recipe is: one way of training, from its hyperparameters to the policy it leads to.

A recipe is a frozen dataclass of hyperparameters. Its methods say how to start (`init`), what one
piece of training does (`step`), which network comes of it (`trained`), how that network decides
(`policy`) and learns further (`finetune`). The rest of the package needs nothing else: training,
checkpoints, model files, evaluation and plans work for every recipe alike. Everything that changes
in training is in a state, a tree of arrays that is passed along.

As soon as a class with a `name` is defined, it can be used by that name, and models trained by it
can be loaded.
"""

import abc
import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args, get_origin

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from prefermab.arms.observation import Arms, Budget, Key
from prefermab.domains.base import Domain
from prefermab.errors import InputError, count, unknown
from prefermab.networks.worth import Network, Shape
from prefermab.policies.learned import Learned
from prefermab.recipes.shaping import OWN

TrainingState = TypeVar("TrainingState")
"""What changes in training: a tree of arrays."""

Net = TypeVar("Net", bound=Network)
"""What training leads to."""

BY_NAME: dict[str, type["Recipe[Any, Any]"]] = {}
"""All recipes that are defined, by name."""

PROBED_ARMS = 20_000
"""Arms drawn to learn the scale of features and rewards."""

LARGEST_SIZES = {"width": 1 << 16, "depth": 64}
"""The largest values of the hyperparameters that size a network."""

MetricRows = dict[str, np.ndarray]
"""Metrics by name, each (seed, epoch); under the name of the recipe's unit, the epochs' numbers."""


class Metrics(eqx.Module):
    """How training goes: mean reward of an arm in a round, mean spending in a round, the price, the
    share of arms acted on, and the loss of the network that values states."""

    reward: Float[Array, "..."]
    spending: Float[Array, "..."]
    price: Float[Array, "..."]
    acted: Float[Array, "..."]
    loss: Float[Array, "..."]


METRICS = ("reward", "spending", "price", "acted", "loss")


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
    """Random seed."""

    def __post_init__(self) -> None:
        check_numbers(self, at_least={"seed": 0, "trials": 2})


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What fine-tuning used and found: mean rewards per arm on held-out trials of the arms it was
    tuned on, before and after, and the standard error of the paired difference. `kept` is false
    where the model stayed as it was, because tuning did not make it better."""

    n_arms: int
    samples_per_arm: int
    trials: int
    before: float
    after: float
    stderr: float
    kept: bool

    def __str__(self) -> str:
        done = "kept" if self.kept else "not better, so the model stays as it was"
        used = f"{self.samples_per_arm} samples" if self.samples_per_arm else "the dynamics"
        return (
            f"{used} of each of {self.n_arms} arms; reward per arm on "
            f"{self.trials} held-out trials {self.before:.3f} before and {self.after:.3f} after "
            f"(difference {self.after - self.before:+.3f} ± {self.stderr:.3f}): {done}"
        )


@dataclasses.dataclass(frozen=True)
class Recipe(abc.ABC, Generic[TrainingState, Net]):
    """Base of all recipes; `tests/recipes/test_own_recipe.py` has one of sixty lines.

    It is generic in the state of training and the network. `check`, `between`, `collapsed` and
    `samples_per_round` do nothing special unless a recipe needs them. No other method that has a
    body is ever replaced: what recipes share is an object that they hold.

    Arguments of the methods: `domain` is what to train on, `n_arms` and `budget` the programme that
    the model is meant for, `key` a random key, `state` what changes in training, `states` the
    stacked states of all seeds, `size` a number of units, `rows` the metrics of a seed, `shape` the
    sizes of a network, `network` (`net`) a trained one, `tuning` the settings of fine-tuning, and
    `arms` those to fine-tune on.

    >>> import prefermab as pm
    >>> recipe = pm.recipes.Paper(epochs=50)
    >>> recipe.name, type(recipe) is pm.recipes.BY_NAME["paper"]
    ('paper', True)
    """

    name: ClassVar[str]
    """What the recipe is called in a model's file and on the command line."""
    unit: ClassVar[str] = "step"
    """What training is counted in."""
    later: ClassVar[tuple[str, ...]] = ()
    """Hyperparameters that were added later. A model file has them only where they differ from
    their default, so that the files of older models stay the same."""
    may_be_zero: ClassVar[tuple[str, ...]] = ("seed",)
    """Whole numbers among the hyperparameters that may be 0; the others are at least 1."""
    seed: int = 0
    """Random seed."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" in cls.__dict__:
            BY_NAME[cls.name] = cls

    def __post_init__(self) -> None:
        check_numbers(self, at_least=dict.fromkeys(self.may_be_zero, 0))
        for name, values in choices(type(self)).items():
            if getattr(self, name) not in values:
                raise unknown(name, str(getattr(self, name)), values)

    def check(self, domain: Domain) -> None:
        """Raises `InputError` if the recipe cannot be used on this domain."""
        del domain

    @property
    @abc.abstractmethod
    def pieces(self) -> tuple[int, ...]:
        """The number of units in each piece of training. Between two pieces, metrics are reported
        and checked, and a checkpoint is written."""

    @abc.abstractmethod
    def init(self, domain: Domain, n_arms: int, key: Key) -> TrainingState:
        """The state before training."""

    @abc.abstractmethod
    def step(
        self, domain: Domain, n_arms: int, budget: Budget, size: int, state: TrainingState, key: Key
    ) -> tuple[TrainingState, Metrics]:
        """One piece of `size` units: the state after it, and metrics with one row for each row of
        the history. The key is the same in every piece. Randomness depends on it and on the count
        of units in the state, so that a resumed training ends as an uninterrupted one."""

    def between(self, domain: Domain, states: TrainingState) -> TrainingState:
        """What happens between two pieces outside of compiled code, for the stacked states of all
        seeds; by default nothing."""
        del domain
        return states

    @abc.abstractmethod
    def trained(self, state: TrainingState) -> Net:
        """The network that was learned."""

    def collapsed(self, rows: MetricRows, budget: float) -> int | None:
        """The epoch from which the policy of a seed is useless, by its metrics, or None."""
        del rows, budget

    @abc.abstractmethod
    def network(self, shape: Shape, key: Key) -> Net:
        """An untrained network of the given shape."""

    @abc.abstractmethod
    def policy(self, network: Net) -> Learned:
        """How a trained network decides."""

    @abc.abstractmethod
    def finetune(
        self, tuning: Tuning, domain: Domain, net: Net, arms: Arms, budget: Budget, key: Key
    ) -> Net:
        """The network after each epoch of learning from these arms, stacked."""

    def samples_per_round(self, domain: Domain) -> int:
        """Samples of each arm that fine-tuning takes in a round."""
        del domain
        return 1


AnyRecipe = TypeVar("AnyRecipe", bound=Recipe[Any, Any])


def preset(
    kind: type[AnyRecipe],
    name: str,
    values: Mapping[str, tuple[object, str]],
    doc: str,
    module: str,
) -> type[AnyRecipe]:
    """A recipe with other defaults, which has a name of its own in files and on the command line.

    Args:
        kind: The recipe that it is but for its values.
        name: Its name.
        values: For each hyperparameter that differs, the value and the reason.
        doc: What it is, in a sentence.
        module: The module that defines it (`__name__`).

    >>> from prefermab.recipes import Sweep
    >>> from prefermab.recipes.base import BY_NAME, preset
    >>> values = {"steps": (50, "For a first look.")}
    >>> Quick = preset(Sweep, "quick", values, "A short training.", __name__)
    >>> Quick(arms=64).steps, BY_NAME.pop("quick") is Quick
    (50, True)
    """
    types = {field.name: field.type for field in dataclasses.fields(kind)}
    fields = [
        (key, types[key], dataclasses.field(default=value, metadata={"why": why}))
        for key, (value, why) in values.items()
    ]
    words = "".join(word.capitalize() for word in name.split("-"))
    about = {"name": name, "__doc__": doc, "__module__": module}
    return dataclasses.make_dataclass(words, fields, bases=(kind,), frozen=True, namespace=about)


def hyperparameters_of(recipe: Recipe) -> dict[str, Any]:
    """The hyperparameters of a recipe as a model file stores them.

    >>> from prefermab.recipes.base import make_recipe, hyperparameters_of
    >>> "price_network" in hyperparameters_of(make_recipe("paper", {}))
    False
    >>> hyperparameters_of(make_recipe("paper", {"price_start": 0.0}))["price_start"]
    0.0
    """
    kept = {}
    for field in dataclasses.fields(recipe):
        value = getattr(recipe, field.name)
        if field.name not in recipe.later or value != field.default:
            kept[field.name] = OWN if callable(value) else value
    return kept


def choices(kind: type) -> dict[str, tuple[str, ...]]:
    """The values of each field of a dataclass that is a choice (its type is a `Literal`), by name.

    >>> import prefermab as pm
    >>> from prefermab.recipes.base import choices
    >>> choices(pm.recipes.Paper)["price_network"]
    ('pooled', 'concatenated')
    """
    declared = [inspect.get_annotations(base) for base in reversed(kind.__mro__)]
    return {
        name: get_args(hint)
        for names in declared
        for name, hint in names.items()
        if get_origin(hint) is Literal
    }


def piece_sizes(units: int, size: int) -> tuple[int, ...]:
    """Sizes of the pieces into which `units` units are cut, all equal but the last.

    >>> from prefermab.recipes.base import piece_sizes
    >>> piece_sizes(11, 4)
    (4, 4, 3)
    """
    full, rest = divmod(units, size)
    return (size,) * full + ((rest,) if rest else ())


def make_recipe(recipe: object, settings: dict[str, Any]) -> Recipe:
    """The recipe of a name, or a given recipe, with some of its hyperparameters set.

    >>> from prefermab.recipes.base import make_recipe
    >>> make_recipe("sweep", {"steps": 10}).steps
    10
    """
    if isinstance(recipe, type) and issubclass(recipe, Recipe):
        raise InputError(f"recipe is a class: write {recipe.__name__}().")
    if not isinstance(recipe, str | Recipe):
        raise InputError(
            f"recipe must be a name or an object such as pm.recipes.Exact(), not {recipe!r}."
        )
    name = recipe if isinstance(recipe, str) else recipe.name
    if name not in BY_NAME:
        raise unknown("recipe", name, BY_NAME)
    check_settings(BY_NAME[name], f"of the recipe '{name}'", settings)
    if isinstance(recipe, str):
        return BY_NAME[name](**settings)
    return dataclasses.replace(recipe, **settings)


def check_settings(kind: type, of: str, settings: Mapping[str, object]) -> None:
    """Raises `InputError` unless settings are fields of a dataclass, each of the field's type."""
    fields: dict[str, Any] = {field.name: field.type for field in dataclasses.fields(kind)}
    for name, value in settings.items():
        if name not in fields:
            # One recipe counts epochs where another counts steps.
            meant = {"steps": "epochs", "epochs": "steps"}.get(name)
            raise unknown("setting", name, [meant] if meant in fields else fields, of=f" {of}")
        wanted = (int, float) if fields[name] in (int, float) else fields[name]
        wanted = str if get_origin(wanted) is Literal else wanted
        if isinstance(value, bool) or not isinstance(value, wanted):
            kind_of_value = "a number" if wanted == (int, float) else f"of type {wanted}"
            raise InputError(f"{name} must be {kind_of_value}, not {value!r}.")


def check_numbers(config: Any, at_least: dict[str, int]) -> None:
    """Raises `InputError` unless the numbers of a dataclass are in range: whole ones at least 1, or
    as `at_least` says; none negative or NaN."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.type in (int, float) and not value >= 0:
            raise InputError(f"{field.name} must not be negative or NaN, but it is {value}.")
        if field.type is int:
            count(value, field.name, at_least=at_least.get(field.name, 1))
        if field.name in LARGEST_SIZES and value > LARGEST_SIZES[field.name]:
            raise InputError(
                f"{field.name} must be at most {LARGEST_SIZES[field.name]}, not {value}."
            )
