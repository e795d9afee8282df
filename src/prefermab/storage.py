"""Loading models: those that ship with the package, by name, and those in folders."""

import dataclasses
from importlib import resources
from pathlib import Path
from typing import Any

import equinox as eqx
import jax

from prefermab import domains
from prefermab.domains import Domain
from prefermab.domains.sightings import Sightings
from prefermab.errors import InputError, unknown
from prefermab.familiarity import Familiar
from prefermab.features import FeatureMap
from prefermab.model import Model
from prefermab.modelfile import (
    MODEL_FORMAT,
    Stored,
    check_counts,
    digest_of_model,
    named_arrays,
    read_folder,
    with_arrays,
)
from prefermab.networks import Shape
from prefermab.recipes import BY_NAME, Tuned
from prefermab.recipes.base import make


def load(name: str | Path, domain: Domain | None = None) -> Model:
    """A model that ships with the package, or one from a folder.

    Args:
        name: The name of a model that ships, or the path of a model's folder.
        domain: The domain to evaluate it on, for a model that was trained on a domain of your own.

    Returns:
        The model, ready to decide.

    >>> import prefermab as pm
    >>> pm.load("armman").recipe
    'exact'
    """
    folder = find(name)
    stored = read_folder(folder)
    try:
        model = _rebuild(stored, domain)
        if domain is not None:
            model.check_fits(domain)
        return model
    except InputError as error:
        raise InputError(f"{folder}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{folder} does not hold a model that can be read: {error}.") from None


def find(name: str | Path) -> Path:
    """The folder of the model that is meant: one that is given, if it holds a model, or else the
    one that ships under this name."""
    folder, shipped = Path(name), shipped_models()
    if not str(name).strip():
        raise InputError("the name of the model is empty: name one that ships, or a folder.")
    if (folder / "config.json").is_file():
        return folder
    if str(name) in shipped:
        return shipped[str(name)]
    if folder.is_file():
        raise InputError(
            f"{name} is a file; a model is a folder with config.json and model.safetensors."
        )
    if folder.is_dir():
        raise InputError(f"{name} holds no model: there is no config.json in it.")
    if folder.name != str(name):
        raise InputError(f"there is no model at {name}.")
    raise unknown("model", str(name), shipped, of=f", and there is no folder '{name}'")


def shipped_models() -> dict[str, Path]:
    """The folders of the models inside the package, by name."""
    weights = Path(str(resources.files("prefermab"))) / "weights"
    if not weights.is_dir():
        return {}
    return {folder.name: folder for folder in sorted(weights.iterdir()) if folder.is_dir()}


def fingerprint(model: Model) -> str:
    """A hash of everything that decides what a model does: its weights and its configuration.

    The version of the package is not part of it: a model that is loaded by a later one is the same.

    >>> import prefermab as pm
    >>> from prefermab.storage import fingerprint
    >>> fingerprint(pm.load("armman")) == fingerprint(pm.load("sis"))
    False
    """
    config = {key: value for key, value in model.describe().items() if key != "package"}
    return digest_of_model({"format": MODEL_FORMAT, **config}, named_arrays(model.network))


def earlier_fingerprint(model: Model) -> str | None:
    """What a model was called before it was taught the last rounds of a programme; None where it
    was not. For ongoing programmes it decides as it did then."""
    if getattr(model.network, "to_end", None) is None:
        return None
    network: Any = dataclasses.replace(model.network, to_end=None)
    config = dataclasses.replace(model.config, rounds_left=0)
    return fingerprint(dataclasses.replace(model, network=network, config=config))


def _rebuild(stored: Stored, domain: Domain | None) -> Model:
    config = stored.config
    if config["recipe"] not in BY_NAME:
        raise unknown("recipe", str(config["recipe"]), BY_NAME)
    recipe, shape = make(config["recipe"], config["config"]), Shape(**config["shape"])
    # A model may go by the state alone: features may be none, all else is at least one.
    features = shape.features or 1 if isinstance(shape.features, int) else -1
    arms = shape.arms or 1 if isinstance(shape.arms, int) else -1
    sizes = (shape.cells, shape.code, features, shape.actions, arms)
    if not all(isinstance(size, int) and 0 < size <= 1 << 16 for size in sizes):
        raise InputError("config.json asks for a network of an impossible size.")
    skeleton = eqx.filter_eval_shape(recipe.network, shape, jax.random.key(0))
    name, settings = config["domain"]["name"], config["domain"]["settings"]
    if domain is None and settings is not None:
        domain = _domain(name, settings)
    network = with_arrays(skeleton, stored.arrays)
    check_counts(config)
    return Model(
        config=recipe,
        network=network,
        domain=domain,
        domain_name=name,
        state_names=tuple(config["state_names"]),
        action_names=tuple(config["action_names"]),
        feature_names=tuple(config["feature_names"]),
        costs=None if config["costs"] is None else tuple(config["costs"]),
        n_arms=config["n_arms"],
        budget=config["budget"],
        tuned=Tuned(**config["tuned"]) if config.get("tuned") else None,
        card=stored.card,
        history=stored.history,
        sightings=Sightings.from_json(config),
        seen=Familiar.from_json(config["seen"]) if config.get("seen") else None,
    )


def _domain(name: str, settings: dict[str, Any]) -> Domain:
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    seen = {**settings["feature_map"], "masked": tuple(settings["feature_map"]["masked"])}
    return domains.get(name, **{**plain, "feature_map": FeatureMap(**seen)})
