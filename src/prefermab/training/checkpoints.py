"""Checkpoints: files from which an interrupted training is resumed.

A checkpoint is written between two pieces of training, and atomically, so that the file is never
half-written. Its format is safetensors: the arrays of the recipe's state and the metrics so far.
The header names the training, so that no other training resumes from it.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Generic, NamedTuple

import equinox as eqx
import jax
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as pack_tensors

from prefermab.common.files import write_atomically
from prefermab.errors import InputError
from prefermab.models.saving import digest_of_model, named_arrays, with_arrays
from prefermab.recipes.base import TrainingState

CHECKPOINT_FORMAT = "3"


class Checkpoint(NamedTuple, Generic[TrainingState]):
    """The progress of a training: pieces done, the recipe's state, and rows of metrics."""

    pieces: int
    state: TrainingState
    rows: dict[str, np.ndarray]


def training_fingerprint(*parts: object) -> str:
    """A checksum of everything that determines a training.

    >>> from prefermab.training.checkpoints import training_fingerprint
    >>> a, b = training_fingerprint("sweep", 1), training_fingerprint("sweep", 2)
    >>> a == training_fingerprint("sweep", 1), a == b
    (True, False)
    """
    digest = hashlib.sha256()
    leaves, structure = jax.tree.flatten(parts)
    # Functions print with their address in memory, which differs between runs.
    without_addresses = lambda text: re.sub(r"0x[0-9a-f]+", "", text).encode()  # noqa: E731
    digest.update(without_addresses(str(structure)))
    for leaf in leaves:
        shown = np.asarray(leaf).tobytes() if eqx.is_array(leaf) else without_addresses(repr(leaf))
        digest.update(hashlib.sha256(shown).digest())
    return digest.hexdigest()


def write_checkpoint(path: Path, training: str, at: Checkpoint) -> None:
    """Writes the checkpoint in place of an older one."""
    tensors = {f"state.{name}": array for name, array in named_arrays(at.state).items()}
    tensors |= {f"rows.{name}": array for name, array in at.rows.items()}
    plain = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    header = {"format": CHECKPOINT_FORMAT, "training": training, "pieces": json.dumps(at.pieces)}
    header["checksum"] = digest_of_model(header, plain)
    packed = pack_tensors(plain, metadata=header)
    write_atomically(path, lambda draft: draft.write_bytes(packed))


def read_checkpoint(
    path: Path, training: str, untrained: TrainingState
) -> Checkpoint[TrainingState]:
    """Reads a checkpoint of this training; `untrained` gives the state's structure."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if header.get("format") != CHECKPOINT_FORMAT or header.get("training") != training:
            raise InputError(
                f"{path} belongs to another training (other domain, settings, seeds or version): "
                "ask for the same again, or delete it to start anew."
            )
        if header.pop("checksum", "") != digest_of_model(header, tensors):
            raise InputError(
                f"{path} is damaged, its checksum does not match: delete it to start anew."
            )
        groups = {"state": {}, "rows": {}}
        for name, array in tensors.items():
            group, _, rest = name.partition(".")
            groups[group][rest] = array
        state = with_arrays(untrained, groups["state"])
        return Checkpoint(json.loads(header["pieces"]), state, groups["rows"])
    except InputError:
        raise
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InputError(f"{path} is not a checkpoint that can be read: {error}.") from None
