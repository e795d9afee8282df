"""Divides a folder of Parquet files into chunks that fit into memory."""

import dataclasses
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from prefermab.arms.amounts import DecimalUnits
from prefermab.common.engines import Engine
from prefermab.common.files import UNREADABLE, check_file, panics_unseen, write_atomically
from prefermab.common.parquet import check_parquet
from prefermab.errors import InputError
from prefermab.models.loading import load
from prefermab.models.model import Model
from prefermab.programme.planning.plan import model_for_rounds_left
from prefermab.programme.planning.roster import model_columns
from prefermab.programme.planning.rules import Rules
from prefermab.programme.planning.rules.limits import check_columns
from prefermab.programme.tables.address import PARQUET
from prefermab.programme.tables.cleaning import clean_ids
from prefermab.programme.tables.columns import column
from prefermab.programme.tables.naming import find_named, match_names
from prefermab.programme.tables.table import Source, row_in

MOST_ROWS_PER_CHUNK = 1 << 19
"""The most rows of a chunk."""


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a file."""

    number: int
    file: str
    shown: str
    """The file's name in messages."""
    first: int
    """The number of the first row within the file."""
    rows: int
    start: int
    """The number of the first row among all people."""

    def read(self, columns: list[str] | None = None) -> pl.DataFrame:
        """Reads the rows of the chunk, with all columns or some of them."""
        try:
            lazy = pl.scan_parquet(self.file, glob=False).slice(self.first, self.rows)
            with panics_unseen():
                frame = (lazy if columns is None else lazy.select(columns)).collect()
        except UNREADABLE:
            raise InputError(f"{self.shown}: it is not a Parquet file that can be read.") from None
        if frame.height != self.rows:
            raise InputError(f"{self.shown}: the file has changed while the plan was made.")
        return frame

    @property
    def where(self) -> Source:
        """The name of the chunk in messages, which count rows within the file."""
        return Source(self.shown, self.first + 1)


@dataclasses.dataclass(frozen=True)
class Job:
    """Everything that the work on every chunk depends on."""

    model: str
    rules: Rules
    budget: float
    people: int
    out: str
    reasons: bool
    rounds_left: int | None = None

    @property
    def units(self) -> DecimalUnits:
        """The units in which all costs are counted. They fit one more than the budget, since the
        summary says what one more unit of budget would gain."""
        return DecimalUnits.of(self.budget + 1)

    @property
    def scratch(self) -> Path:
        """The folder in which chunks keep what later passes need."""
        return Path(self.out) / ".unfinished"

    def scores_file(self, chunk: Chunk) -> Path:
        """The file with the scores of a chunk, for later passes."""
        return self.scratch / f"chunk-{chunk.number:05}.safetensors"

    def ids(self, chunk: Chunk) -> Path:
        """The file with the sorted checksums of a chunk's ids."""
        return self.scratch / f"ids-{chunk.number:05}.npy"

    def actions(self, chunk: Chunk) -> Path:
        """The file with a chunk's actions, if they were chosen for all chunks together."""
        return self.scratch / f"actions-{chunk.number:05}.npy"

    def part(self, chunk: Chunk) -> Path:
        """The file with a chunk of the plan, until all are written."""
        return self.scratch / f"part-{chunk.number:05}.parquet"


_models: dict[str, Model] = {}


def model_of(name: str) -> Model:
    """The model with this name or folder; a process reads it once."""
    if name not in _models:
        _models[name] = load(name)
    return _models[name]


def planner(job: Job) -> Model:
    """The model of a job, prepared for the rounds that are left."""
    return model_for_rounds_left(model_of(job.model), job.rounds_left)


def keep_model(name: str, model: Model) -> None:
    """Keeps a model in the memory of this process, under this name."""
    _models[name] = model


def divide_into_chunks(folder: Path, rows: int = MOST_ROWS_PER_CHUNK) -> list[Chunk]:
    """Divides all files of a folder, in the order of their names, into chunks."""
    found: list[Chunk] = []
    start = 0
    for file in parquet_files(folder):
        height = count_rows(file)
        for first in range(0, height, rows):
            size = min(rows, height - first)
            here = str(file.absolute()), str(file)
            found.append(Chunk(len(found), *here, first, size, start + first))
        start += height
    if not found:
        raise InputError(f"{folder}: there are no rows; expected one for each person.")
    return found


def parquet_files(folder: Path) -> list[Path]:
    """The Parquet files of a folder, without names that begin with a dot or an underscore."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder.")
    inside = [path for path in sorted(folder.iterdir()) if path.name[0] not in "._"]
    for path in inside:
        if path.is_dir() or path.suffix.lower() not in PARQUET:
            raise InputError(f"{path}: expected only Parquet files in the folder {folder}.")
    if not inside:
        raise InputError(f"{folder}: the folder is empty; expected Parquet files.")
    return inside


def count_rows(file: Path) -> int:
    """The number of rows of a file, whose pages are compared with their checksums."""
    check_file(file)
    return check_parquet(file, str(file))


def check_files(job: Job, chunks: Sequence[Chunk]) -> None:
    """Raises an error if a file has a column that may decide who is acted on, but is not read."""
    for file, shown in {chunk.file: chunk.shown for chunk in chunks}.items():
        check_columns(planner(job), job.rules, list(pl.read_parquet_schema(file)), shown)


def needed_columns(model: Model, rules: Rules, file: str) -> list[str] | None:
    """The columns of a file that the choice depends on. If one is missing, the result is None (read
    all columns), so that the error can list those that were found."""
    columns, where = list(pl.read_parquet_schema(file)), Path(file).name
    found = match_names(columns, model_columns(model), where)
    named = [find_named(columns, name, where) for name in rules.columns(in_force=True)]
    if not {"id", "state"} <= set(found) or None in named:
        return None
    used = {*found.values(), *named}
    return [name for name in columns if name in used]


HASHES_AT_ONCE = 1 << 22
"""The most checksums that are compared at once."""


def refuse_duplicate_ids(job: Job, chunks: Sequence[Chunk], engine: Engine) -> None:
    """Raises an error if an id is in two rows of any files. The sorted checksums of the chunks' ids
    are compared range by range; if two are equal, their ids are read again and compared."""
    ranges = -(-job.people // HASHES_AT_ONCE)
    ends = [(2**64 * place) // ranges for place in range(ranges + 1)]
    spans = list(itertools.pairwise(ends))
    repeated = np.concatenate(
        list(engine.map(functools.partial(repeated_hashes, job, chunks), spans))
    )
    if not repeated.size:
        return
    seen: dict[str, list[str]] = defaultdict(list)
    for found in engine.map(functools.partial(ids_with_hashes, repeated[:100]), chunks):
        for one, where in found:
            seen[one].append(where)
    for one, where in seen.items():
        if len(where) > 1:
            raise InputError(
                f"the id {one} is in {where[0]} and again in {where[1]}; expected one row for each "
                "person."
            )


def repeated_hashes(job: Job, chunks: Sequence[Chunk], span: tuple[int, int]) -> np.ndarray:
    """The checksums within a range that occur more than once in all chunks."""
    low, last = np.uint64(span[0]), np.uint64(span[1] - 1)
    found = []
    for chunk in chunks:
        there = np.load(job.ids(chunk), mmap_mode="r")
        begin, end = np.searchsorted(there, low), np.searchsorted(there, last, side="right")
        found.append(np.array(there[begin:end]))
    together = np.sort(np.concatenate(found))
    return np.unique(together[1:][together[1:] == together[:-1]])


def ids_with_hashes(repeated: np.ndarray, chunk: Chunk) -> list[tuple[str, str]]:
    """The ids of a chunk that have one of these checksums, and where they are."""
    ids = clean_ids(column(chunk.read(), "id", chunk.shown))
    rows = np.flatnonzero(np.isin(hashes(ids), repeated))
    text = ids.cast(pl.String).gather(rows).to_list()
    return [
        (one, f"{row_in(chunk.where, int(row))} of {chunk.shown}")
        for one, row in zip(text, rows, strict=True)
    ]


def hashes(ids: pl.Series) -> np.ndarray:
    """A checksum of each id, the same for 7 and "7"."""
    return ids.cast(pl.String).hash().to_numpy()


def save_array(path: Path, array: np.ndarray) -> None:
    """Writes an array to a file whose name need not end in .npy."""
    with path.open("wb") as file:
        np.save(file, array)


def store_id_hashes(job: Job, chunk: Chunk, ids: pl.Series) -> None:
    """Stores the sorted checksums of a chunk's ids."""
    sums = np.sort(hashes(ids))
    write_atomically(job.ids(chunk), functools.partial(save_array, array=sums))


def all_labels(labels: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The distinct labels of all chunks, sorted."""
    return tuple(sorted({label for chunk_labels in labels for label in chunk_labels}))


def recode_labels(
    codes: np.ndarray, chunk_labels: Sequence[str], labels: tuple[str, ...]
) -> np.ndarray:
    """Converts numbers of a chunk's own labels into numbers of all labels; -1 stays -1."""
    places = np.array([*(labels.index(label) for label in chunk_labels), -1])
    return places[codes]
