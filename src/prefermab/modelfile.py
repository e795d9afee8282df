"""A model on disk: a folder with weights, what they mean, and a card.

`model.safetensors` holds the arrays, `config.json` everything else with checksums of both, and
`README.md` the card. Reading executes nothing: names, shapes, types and checksums are compared with
what the configuration says they must be, and any difference is an error.
"""

import hashlib
import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import equinox as eqx
import jax
import msgspec
import numpy as np
import polars as pl
from safetensors import SafetensorError
from safetensors.numpy import load as parse_tensors
from safetensors.numpy import save as pack_tensors

from prefermab.errors import InputError, brief, list_names
from prefermab.files import check_file

MODEL_FORMAT = 1
MOST_WEIGHT_BYTES, MOST_TEXT_BYTES = 1 << 28, 1 << 24
"""Sizes in bytes above which a file cannot hold the weights or metrics of a model, or its texts."""

MOST_METRICS = 1 << 24
"""Cells of the largest table of metrics."""

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
    config["checksum"] = _checksum(config)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        check_place(path)
        draft = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
        draft.chmod(0o755)
        (draft / "model.safetensors").write_bytes(tensors)
        (draft / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (draft / "README.md").write_text(stored.card)
        if stored.history is not None:
            stored.history.write_parquet(draft / "metrics.parquet")
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
        return Stored(config, arrays, card, _history(folder / "metrics.parquet"))
    except InputError as error:
        raise InputError(f"{folder}: {error}") from None


def named_arrays(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a tree by their place in it.

    >>> from prefermab.modelfile import named_arrays
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
        lambda path, leaf: jax.device_put(tensors[_place(path)]) if is_slot(leaf) else leaf, tree
    )


def digest(data: bytes) -> str:
    """SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def digest_of_model(config: dict[str, Any], arrays: dict[str, np.ndarray]) -> str:
    """A hash of a model's configuration and weights."""
    whole = {**config, "weights_sha256": digest(pack_tensors(arrays))}
    return digest(json.dumps(whole, sort_keys=True).encode())


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
    amounts = [*(found.costs or ()), found.budget]
    if not all(math.isfinite(amount) for amount in amounts):
        raise InputError(f"{where}: costs and budget must be finite numbers.")


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


def _history(path: Path) -> pl.DataFrame | None:
    if not path.exists():
        return None
    check_file(path, path.name, MOST_WEIGHT_BYTES)
    try:
        schema = pl.read_parquet_schema(path)
        rows = pl.scan_parquet(path, glob=False).select(pl.len()).collect().item()
        plain = all(kind.is_numeric() or kind == pl.Boolean for kind in schema.values())
        if not plain or rows * len(schema) > MOST_METRICS:
            raise InputError(f"{path.name} holds something else than the metrics of a training.")
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(
            f"{path.name} is damaged: delete it to load the model without its training's metrics."
        ) from None


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
    if config.get("checksum") != _checksum(config) or "weights_sha256" not in config:
        raise InputError(f"{path} is damaged: its checksum does not match.")
    check_config(config, str(path))
    return config


def _checksum(config: dict[str, Any]) -> str:
    rest = {key: value for key, value in config.items() if key != "checksum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _place(path: tuple[Any, ...]) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
