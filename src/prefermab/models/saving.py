"""Writes a model to its folder; `loading.py` reads it.

`model.safetensors` holds the arrays, `config.json` everything else with checksums of both, and
`README.md` the card.
"""

import dataclasses
import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np
import polars as pl
from safetensors.numpy import save as pack_tensors

import prefermab
from prefermab import domains
from prefermab.errors import InputError
from prefermab.recipes.base import hyperparameters_of

if TYPE_CHECKING:
    from prefermab.models.model import Model

MODEL_FORMAT = 1
Tree = TypeVar("Tree")


class Stored(NamedTuple):
    """What a model's folder holds."""

    config: dict[str, Any]
    arrays: dict[str, np.ndarray]
    card: str
    history: pl.DataFrame | None


def write_folder(path: Path, stored: Stored) -> None:
    """Writes the folder beside its place, then moves it there; an older model is replaced."""
    tensors = pack_tensors(stored.arrays)
    config = {"format": MODEL_FORMAT, **stored.config, "weights_sha256": digest(tensors)}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_place(path)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        draft.chmod(0o755)
        if stored.history is not None:
            stored.history.write_parquet(draft / "metrics.parquet")
            config["metrics_sha256"] = digest((draft / "metrics.parquet").read_bytes())
        config["checksum"] = config_checksum(config)
        (draft / "model.safetensors").write_bytes(tensors)
        (draft / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (draft / "README.md").write_text(stored.card)
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


def describe_model(model: "Model") -> dict[str, Any]:
    """Everything about a model but its arrays, as `config.json` holds it."""
    perception = model.network.perception
    cells, code = perception.codes.shape
    return {
        "package": prefermab.__version__,
        "recipe": model.recipe,
        "config": hyperparameters_of(model.config),
        "domain": {"name": model.domain_name, "settings": domains.settings_of(model.domain)},
        "shape": {
            "cells": cells,
            "code": code,
            "features": len(model.feature_names),
            "actions": len(model.action_names),
            "continuous": perception.continuous,
            **({"arms": model.network.places} if model.network.places else {}),
            **({"by_cell": True} if perception.by_cell else {}),
        },
        "state_names": list(model.state_names),
        "action_names": list(model.action_names),
        **({} if model.sightings is None else {"sightings": model.sightings.as_json()}),
        "feature_names": list(model.feature_names),
        "costs": None if model.costs is None else list(model.costs),
        "n_arms": model.n_arms,
        "budget": model.budget,
        "tuned": None if model.tuned is None else dataclasses.asdict(model.tuned),
    }


def default_card(model: "Model") -> str:
    """A card for a model that has not been measured yet."""
    how = ""
    if model.domain is None:
        how = ": `prefermab evaluate FOLDER --domain FILE.py:CLASS`"
    elif domains.settings_of(model.domain) is not None:
        how = ": `prefermab evaluate FOLDER`"
    elif model.domain.name not in ("tabular", "logged"):
        how = f": `prefermab evaluate FOLDER --domain {domains.spelling(model.domain)}`"
    return (
        f"# {model.domain_name}, recipe `{model.recipe}`\n\n"
        f"Actions {', '.join(model.action_names)}; {len(model.feature_names)} features. "
        + (f"Fine-tuned: {model.tuned}.\n" if model.tuned else "")
        + f"Not measured on new arms yet{how}.\n"
    )


def named_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree by their place in it.

    >>> from prefermab.models.saving import named_arrays
    >>> import jax.numpy as jnp
    >>> list(named_arrays({"a": jnp.ones(2), "b": [jnp.ones(1), "text"]}))
    ['a', 'b.0']
    """
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, eqx.is_array))
    return {_place(path): np.asarray(leaf, order="C") for path, leaf in leaves}


def with_arrays(tree: Tree, tensors: dict[str, np.ndarray]) -> Tree:
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
        lambda path, leaf: jax.device_put(tensors[_place(path)]) if is_slot(leaf) else leaf, tree
    )


def digest(data: bytes) -> str:
    """SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_of_model(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """A hash of a model's configuration and weights."""
    whole = {**config, "weights_sha256": digest(pack_tensors(arrays))}
    return digest(json.dumps(whole, sort_keys=True).encode())


def config_checksum(config: dict[str, Any]) -> str:
    """The checksum that stands in a configuration, of all the rest of it."""
    rest = {key: value for key, value in config.items() if key != "checksum"}
    return digest(json.dumps(rest, sort_keys=True).encode())


def _place(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
