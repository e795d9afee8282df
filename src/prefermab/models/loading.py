"""Loads models: those that ship with the package, by name, and those in folders.

Reading executes nothing: names, shapes, types and checksums are compared with what the
configuration says they must be, and any difference is an error.
"""

import dataclasses
import json
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import equinox as eqx
import jax
import msgspec
import polars as pl
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors

from prefermab import domains
from prefermab.arms.features import FeatureMap
from prefermab.common.files import UNREADABLE, check_file, exists
from prefermab.common.parquet import read_parquet
from prefermab.domains import Domain
from prefermab.domains.sightings import Sightings
from prefermab.domains.validate import check_kind
from prefermab.errors import InputError, amount, brief, list_names, unknown
from prefermab.models.familiarity import FeatureRanges
from prefermab.models.model import Model
from prefermab.models.saving import (
    MODEL_FORMAT,
    Stored,
    config_checksum,
    digest,
    digest_of_model,
    named_arrays,
    with_arrays,
)
from prefermab.networks.worth import Shape
from prefermab.recipes import BY_NAME, Tuned
from prefermab.recipes.base import make_recipe

MOST_WEIGHT_BYTES, MOST_TEXT_BYTES = 1 << 28, 1 << 24
"""Sizes in bytes above which a file cannot hold the weights or metrics of a model, or its texts."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Size = Annotated[int, msgspec.Meta(ge=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class ShapeSchema(msgspec.Struct):
    """Sizes of a network."""

    cells: Size
    code: Size
    features: Size
    actions: Size
    continuous: bool
    arms: Size = 0
    by_cell: bool = False


class DomainSchema(msgspec.Struct):
    """The domain that a model was trained on; without settings it is one of the user's own."""

    name: str
    settings: dict[str, Any] | None


class TunedSchema(msgspec.Struct):
    """What fine-tuning used and found."""

    n_arms: Size
    samples_per_arm: Size
    trials: Size
    before: float
    after: float
    stderr: float
    kept: bool


class SeenSchema(msgspec.Struct):
    """The features of the training: the range of each, null where it was never known, and how far
    they lay from the mean together."""

    low: list[float | None]
    high: list[float | None]
    radius: NotNegative | None


class SightingsSchema(msgspec.Struct):
    """How states are seen, where they are not always."""

    seen: str
    rounds: Positive


class ConfigSchema(msgspec.Struct):
    """What `config.json` holds; types and ranges are checked when it is read."""

    format: int
    package: str
    recipe: str
    config: dict[str, Any]
    domain: DomainSchema
    shape: ShapeSchema
    state_names: list[Name]
    action_names: list[Name]
    feature_names: list[Name]
    costs: list[NotNegative] | None
    n_arms: Positive
    budget: NotNegative
    weights_sha256: str
    checksum: str
    tuned: TunedSchema | None = None
    seen: SeenSchema | None = None
    sightings: SightingsSchema | None = None
    metrics_sha256: str | None = None


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
    if domain is not None:
        check_kind(domain)
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
    if exists(folder / "config.json"):
        return folder
    if str(name) in shipped:
        return shipped[str(name)]
    if exists(folder) and not folder.is_dir():
        raise InputError(
            f"{name} is a file; a model is a folder with config.json and model.safetensors."
        )
    if exists(folder):
        raise InputError(f"{name} holds no model: there is no config.json in it.")
    if folder.name != str(name):
        raise InputError(f"there is no model at {brief(name)}.")
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
    >>> from prefermab.models.loading import fingerprint
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
    recipe, shape = make_recipe(config["recipe"], config["config"]), Shape(**config["shape"])
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
        seen=FeatureRanges.from_json(config["seen"]) if config.get("seen") else None,
    )


def _domain(name: str, settings: dict[str, Any]) -> Domain:
    plain = {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
    seen = {**settings["feature_map"], "masked": tuple(settings["feature_map"]["masked"])}
    return domains.built_in(name, **{**plain, "feature_map": FeatureMap(**seen)})


def read_folder(folder: Path) -> Stored:
    """Reads a model's folder and compares its checksums."""
    config = _read_config(folder / "config.json")
    weights = _read(folder / "model.safetensors", MOST_WEIGHT_BYTES)
    if digest(weights) != config["weights_sha256"]:
        raise InputError(f"{folder / 'model.safetensors'} is damaged: its checksum does not match.")
    card = ""
    if (folder / "README.md").exists():
        card = _read(folder / "README.md", MOST_TEXT_BYTES).decode(errors="replace")
    try:
        arrays = parse_tensors(weights)
    except SafetensorError as error:
        raise InputError(f"{folder} does not hold a model that can be read: {error}.") from None
    try:
        history = _history(folder / "metrics.parquet", config.get("metrics_sha256"))
        return Stored(config, arrays, card, history)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from None


def check_config(config: dict[str, Any], where: str) -> None:
    """Raises unless a configuration has all that a model needs, of the right types and lengths.

    Args:
        config: What `config.json` holds.
        where: What a message calls it.
    """
    try:
        found = msgspec.convert(config, ConfigSchema)
    except msgspec.ValidationError as error:
        raise InputError(
            f"{where} does not hold a model that can be read: {brief(error, 200)}."
        ) from None
    for name in ("state_names", "action_names", "feature_names"):
        names = getattr(found, name)
        if len(set(names)) < len(names):
            twice = sorted({one for one in names if names.count(one) > 1})
            raise InputError(f"{where}: {name} has {list_names(twice)} more than once.")
    for one in (*(found.costs or ()), found.budget):
        amount(one, f"{where}: each of costs and budget")


def check_counts(config: dict[str, Any]) -> None:
    """Raises unless there is a name and a cost for each thing that the network knows."""
    shape = config["shape"]
    wanted = {"action_names": shape["actions"], "feature_names": shape["features"]}
    wanted["costs"] = shape["actions"]
    if config.get("seen"):
        for end in ("low", "high"):
            wanted[end] = shape["features"]
            config = {**config, end: config["seen"][end]}
    if not shape["continuous"] and not config.get("sightings"):
        wanted["state_names"] = shape["cells"]
    for name, size in wanted.items():
        if config[name] is not None and len(config[name]) != size:
            raise InputError(
                f"config.json has {len(config[name])} {name}, but the weights are for {size}."
            )


def _history(path: Path, checksum: str | None) -> pl.DataFrame | None:
    """The metrics of a training; models of version 0.2 and earlier have no checksum of them."""
    if not path.exists():
        return None
    check_file(path, path.name, MOST_WEIGHT_BYTES)
    try:
        if checksum not in (None, digest(path.read_bytes())):
            raise OSError("its checksum does not match")
        found = read_parquet(path, path.name)
    except UNREADABLE:
        raise InputError(
            f"{path.name} is damaged: delete it to load the model without its training's metrics."
        ) from None
    if not all(kind.is_numeric() or kind == pl.Boolean for kind in found.dtypes):
        raise InputError(f"{path.name} holds something else than the metrics of a training.")
    return found


def _read(path: Path, most: int) -> bytes:
    check_file(path, most=most)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from None


def _read_config(path: Path) -> dict[str, Any]:
    text = _read(path, MOST_TEXT_BYTES)
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not the JSON of a model.") from None
    if not isinstance(config, dict) or "format" not in config:
        raise InputError(f"{path} is not the configuration of a model.")
    if config["format"] != MODEL_FORMAT:
        raise InputError(
            f"{path} has format {config['format']}, and this version reads {MODEL_FORMAT}: "
            f"it was written by prefermab {config.get('package')}."
        )
    if config.get("checksum") != config_checksum(config) or "weights_sha256" not in config:
        raise InputError(f"{path} is damaged: its checksum does not match.")
    check_config(config, str(path))
    return config
