"""Model files: a folder with weights, what they mean, and a card.

`model.safetensors` holds the arrays, `config.json` everything else with checksums of both, and
`README.md` the card. Loading executes nothing: names, shapes, types and checksums are compared
with what the configuration says they must be, and any difference is an error.
"""

import dataclasses
import hashlib
import json
import shutil
import tempfile
from importlib import resources
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as pack_tensors

import prefermab
from prefermab import domains
from prefermab.config import RECIPES, recipe_config
from prefermab.domains import Domain
from prefermab.errors import InputError, unknown
from prefermab.features import FeatureMap
from prefermab.model import Model, Tuned
from prefermab.networks import Perception, Shape
from prefermab.recipes import paper, regression

FORMAT = 1
NETWORKS = {"sweep": regression.network, "exact": regression.network, "paper": paper.network}
LARGEST = 1 << 28
"""Bytes beyond which a file is no model of ours."""


def save(model: Model, path: Path) -> None:
    """Writes the folder beside its place, then moves it there; an older model is replaced."""
    tensors = pack_tensors(named_arrays(model.network))
    config = describe(model)
    config["weights_sha256"] = hashlib.sha256(tensors).hexdigest()
    config["checksum"] = _checksum(config)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_place(path)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        draft.chmod(0o755)
        (draft / "model.safetensors").write_bytes(tensors)
        (draft / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (draft / "README.md").write_text(model.card or default_card(model))
        if model.history is not None:
            model.history.write_parquet(draft / "metrics.parquet")
        old = draft.with_name(draft.name + ".old")
        if path.exists():
            path.rename(old)
        draft.rename(path)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise InputError(f"cannot save to {path}: {error.strerror or error}.") from None


def check_place(path: Path) -> None:
    """A model is saved where there is nothing, or another model."""
    if path.is_dir() and not (path / "config.json").exists() and any(path.iterdir()):
        raise InputError(f"cannot save to {path}: it holds something that is not a model.")


def load(name: str | Path, domain: Domain | None = None) -> Model:
    """A model that ships with the package, by its name, or one from a folder.

    Give `domain` for a model that was trained on a domain of your own, to evaluate it there.

    >>> import prefermab as pm
    >>> pm.load("armman").recipe
    'exact'
    """
    folder = find(name)
    config = _read_config(folder / "config.json")
    weights = _read(folder / "model.safetensors")
    if hashlib.sha256(weights).hexdigest() != config["weights_sha256"]:
        raise InputError(f"{folder / 'model.safetensors'} is damaged: its checksum does not match.")
    try:
        card = (folder / "README.md").read_text()
    except OSError:
        card = ""
    try:
        model = _rebuild(config, parse_tensors(weights), domain, card)
        if domain is not None:
            model.check_fits(domain)
        return dataclasses.replace(model, history=_history(folder / "metrics.parquet"))
    except InputError as error:
        raise InputError(f"{folder}: {error}") from None
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
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


def named_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree by their place in it.

    >>> from prefermab.storage import named_arrays
    >>> import jax.numpy as jnp
    >>> list(named_arrays({"a": jnp.ones(2), "b": [jnp.ones(1), "text"]}))
    ['a', 'b.0']
    """
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {_place(path): np.asarray(leaf, order="C") for path, leaf in leaves}


def with_arrays(tree: Any, tensors: dict[str, np.ndarray]) -> Any:
    """The tree with its arrays (or the shapes that stand for them) taken from `tensors`."""
    is_slot = lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct) or eqx.is_array(leaf)  # noqa: E731
    slots = {
        _place(path): leaf
        for path, leaf in jax.tree_util.tree_leaves_with_path(eqx.filter(tree, is_slot))
    }
    if set(slots) != set(tensors):
        missing, extra = sorted(set(slots) - set(tensors)), sorted(set(tensors) - set(slots))
        raise InputError(
            f"arrays do not match: missing {missing or 'none'}, extra {extra or 'none'}."
        )
    for name, slot in slots.items():
        found = tensors[name]
        if found.shape != slot.shape or found.dtype != slot.dtype:
            raise InputError(
                f"the array {name} must be {slot.dtype}{list(slot.shape)}, "
                f"not {found.dtype}{list(found.shape)}."
            )
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            raise InputError(f"the array {name} holds numbers that are not finite.")
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.asarray(tensors[_place(path)]) if is_slot(leaf) else leaf, tree
    )


def describe(model: Model) -> dict[str, Any]:
    """Everything about a model but its arrays, as JSON can hold it."""
    perception = model.network.perception
    cells, code = perception.codes.shape
    return {
        "format": FORMAT,
        "package": prefermab.__version__,
        "recipe": model.recipe,
        "config": dataclasses.asdict(model.config),
        "domain": {"name": model.domain_name, "settings": domain_settings(model.domain)},
        "shape": {
            "cells": cells,
            "code": code,
            "features": len(model.feature_names),
            "actions": len(model.action_names),
            "continuous": perception.continuous,
        },
        "state_names": list(model.state_names),
        "action_names": list(model.action_names),
        "feature_names": list(model.feature_names),
        "costs": None if model.costs is None else list(model.costs),
        "n_arms": model.n_arms,
        "budget": model.budget,
        "tuned": None if model.tuned is None else dataclasses.asdict(model.tuned),
    }


def fingerprint(model: Model) -> str:
    """A hash of everything that decides what a model does: its weights and its configuration.

    The version of the package is not part of it: a model that is loaded by a later one is the same.

    >>> import prefermab as pm
    >>> from prefermab.storage import fingerprint
    >>> fingerprint(pm.load("armman")) == fingerprint(pm.load("sis"))
    False
    """
    config = {key: value for key, value in describe(model).items() if key != "package"}
    tensors = pack_tensors(named_arrays(model.network))
    config["weights_sha256"] = hashlib.sha256(tensors).hexdigest()
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def domain_settings(domain: Domain | None) -> dict[str, Any] | None:
    """What rebuilds a domain from its name, or None for a domain of the user's own."""
    if domain is None or domains.BY_NAME.get(domain.name) is not type(domain):
        return None
    fields = {f.name: getattr(domain, f.name) for f in dataclasses.fields(domain) if f.init}
    fields["feature_map"] = dataclasses.asdict(domain.feature_map)
    return fields


def default_card(model: Model) -> str:
    """A card for a model that has not been measured yet."""
    return (
        f"# {model.domain_name}, recipe `{model.recipe}`\n\n"
        f"Actions {', '.join(model.action_names)}; {len(model.feature_names)} features. "
        + (f"Fine-tuned: {model.tuned}.\n" if model.tuned else "")
        + f"Not measured on new arms yet{_how_to_measure(model)}.\n"
    )


def _how_to_measure(model: Model) -> str:
    """The command that does, as far as it can be told from the model."""
    if model.domain is not None and model.domain.name in ("tabular", "logged"):
        return ""
    other = ""
    if model.domain is None:
        other = " --domain FILE.py:CLASS"
    elif domain_settings(model.domain) is None:
        other = f" --domain {domains.spelling(model.domain)}"
    return f": `prefermab evaluate FOLDER{other}`"


def _rebuild(
    config: dict[str, Any], tensors: dict[str, np.ndarray], domain: Domain | None, card: str
) -> Model:
    recipe = config["recipe"]
    if recipe not in RECIPES:
        raise unknown("recipe", str(recipe), RECIPES)
    hyper = recipe_config(recipe, config["config"])
    shape = Shape(**config["shape"])
    # A model may go by the state alone: features may be none, all else is at least one.
    features = shape.features or 1 if isinstance(shape.features, int) else -1
    sizes = (hyper.width, hyper.depth, shape.cells, shape.code, features, shape.actions)
    if not all(isinstance(size, int) and 0 < size <= 1 << 16 for size in sizes) or hyper.depth > 64:
        raise InputError("config.json asks for a network of an impossible size.")
    skeleton = eqx.filter_eval_shape(
        lambda key: NETWORKS[recipe](
            hyper, Perception.blank(shape, plain=recipe == "paper"), shape.actions, key
        ),
        jax.random.key(0),
    )
    name, settings = config["domain"]["name"], config["domain"]["settings"]
    if domain is None and settings is not None:
        plain = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
        seen = {**settings["feature_map"], "masked": tuple(settings["feature_map"]["masked"])}
        domain = domains.get(name, **{**plain, "feature_map": FeatureMap(**seen)})
    return Model(
        recipe=recipe,
        config=hyper,
        network=with_arrays(skeleton, tensors),
        domain=domain,
        domain_name=name,
        state_names=tuple(config["state_names"]),
        action_names=tuple(config["action_names"]),
        feature_names=tuple(config["feature_names"]),
        costs=None if config["costs"] is None else tuple(config["costs"]),
        n_arms=config["n_arms"],
        budget=config["budget"],
        tuned=Tuned(**config["tuned"]) if config.get("tuned") else None,
        card=card,
    )


def _history(path: Path) -> pl.DataFrame | None:
    if not path.exists():
        return None
    try:
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(
            f"{path.name} is damaged: delete it to load the model without its training's metrics."
        ) from None


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path} is too large to be a model.")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from None


def _read_config(path: Path) -> dict[str, Any]:
    text = _read(path)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not the JSON of a model.") from None
    if not isinstance(config, dict) or "format" not in config:
        raise InputError(f"{path} is not the configuration of a model.")
    if config["format"] != FORMAT:
        raise InputError(
            f"{path} has format {config['format']}, and this version reads {FORMAT}: "
            f"it was written by prefermab {config.get('package')}."
        )
    if config.get("checksum") != _checksum(config) or "weights_sha256" not in config:
        raise InputError(f"{path} is damaged: its checksum does not match.")
    return config


def _checksum(config: dict[str, Any]) -> str:
    rest = {key: value for key, value in config.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _place(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
