"""Which model decided, and with what software."""

import sys
from importlib import metadata
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from prefermab.errors import InputError
from prefermab.model import Model
from prefermab.programme.store.database import Database
from prefermab.programme.store.queries import current_model, get_meta, put_model, set_meta
from prefermab.storage import fingerprint, load, shipped_models

PLACE = "model_place"
PACKAGES = ("prefermab", "jax", "jaxlib", "numpy", "polars")


def hash_of(model: Any) -> str:
    """What a model goes by: its fingerprint, or the one that it says it has."""
    own = getattr(model, "fingerprint", None)
    return fingerprint(model) if own is None else str(own)


def check_model(model: Any) -> None:
    """A programme is run by something that plans."""
    wanted = ("plan", "state_names", "action_names", "feature_names", "costs")
    missing = [name for name in wanted if not hasattr(model, name)]
    if missing:
        raise InputError(
            f"a programme needs a model, as pm.load gives one, but {type(model).__name__} has no "
            f"{missing[0]}."
        )


def versions() -> dict[str, str]:
    """What a plan is made with; figures can differ in their last bits between versions."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if "jax" in sys.modules:
        found["device"] = sys.modules["jax"].default_backend()
    return found


def take_over(sql: Connection, model: Any, path: Path, change_model: bool) -> None:
    """Checks that this model runs the programme, or may from now on."""
    running, own = current_model(sql), hash_of(model)
    if running == own:
        return
    for key in ("state_names", "action_names"):
        kept, names = get_meta(sql, key), list(getattr(model, key))
        if kept is None:
            set_meta(sql, key, names)
        elif kept != names:
            raise InputError(
                f"{path}: the {key.replace('_', ' ')} of the programme are {', '.join(kept)}, but "
                f"this model's are {', '.join(names)}."
            )
    if running is not None and not change_model:
        raise InputError(
            f"{path}: the programme is run by the model {running[:12]}, but this one is "
            f"{own[:12]}; open it with change_model=True (`programme begin` with --change-model) "
            "to go on with this one."
        )
    put_model(sql, own, str(getattr(model, "domain_name", "own")))


def keep_place(sql: Connection, name: str) -> None:
    """Notes where the model is: the name of one that ships, or the folder's full path."""
    folder = Path(name)
    set_meta(sql, PLACE, str(folder.resolve()) if folder.is_dir() else name)


def model_of(path: str | Path) -> Model:
    """The model that runs the programme in a file, from where it was when it was noted."""
    database = Database(path, 60.0, begin=False)
    try:
        with database.reading() as sql:
            name = get_meta(sql, PLACE)
    finally:
        database.close()
    again = f"say where it is with `prefermab programme begin {path} --model FOLDER`"
    if name is None:
        raise InputError(f"{path} does not say where its model is: {again}.")
    if not Path(name).is_absolute() and name in shipped_models():
        return load(shipped_models()[name])
    if not Path(name).is_dir():
        raise InputError(f"{path}: the model's folder {name} is not there any more: {again}.")
    return load(name)
