"""A folder of Parquet parts, cut into pieces that fit into memory."""

import dataclasses
from pathlib import Path

import polars as pl

from prefermab.errors import InputError
from prefermab.model import Model
from prefermab.programme.planning.roster import columns_of
from prefermab.programme.planning.rules import Rules
from prefermab.programme.tables import Source

ROWS = 1 << 19
"""Most rows of a piece."""

PARQUET = (".parquet", ".pq")


@dataclasses.dataclass(frozen=True)
class Piece:
    """Some rows of a part that follow each other."""

    number: int
    file: str
    shown: str
    """The file as it was given, for messages."""
    first: int
    """The first row, in its file."""
    rows: int
    start: int
    """The first row, in the whole roster."""

    def read(self, columns: list[str] | None = None) -> pl.DataFrame:
        """Its rows, all columns or some of them."""
        try:
            lazy = pl.scan_parquet(self.file, glob=False).slice(self.first, self.rows)
            frame = (lazy if columns is None else lazy.select(columns)).collect()
        except (pl.exceptions.PolarsError, OSError):
            raise InputError(f"{self.shown}: it is not a Parquet file that can be read.") from None
        if frame.height != self.rows:
            raise InputError(f"{self.shown}: it has changed while the plan was made.")
        return frame

    @property
    def where(self) -> Source:
        """What it is called in messages, in which rows are those of the file."""
        return Source(self.shown, self.first + 1)


def cut(folder: Path, rows: int = ROWS) -> list[Piece]:
    """The pieces of all parts of a folder, in the order of their names."""
    found: list[Piece] = []
    start = 0
    for file in parts(folder):
        height = height_of(file)
        for first in range(0, height, rows):
            size = min(rows, height - first)
            here = str(file.absolute()), str(file)
            found.append(Piece(len(found), *here, first, size, start + first))
        start += height
    if not found:
        raise InputError(f"{folder}: there are no rows; expected one for each person.")
    return found


def parts(folder: Path) -> list[Path]:
    """The Parquet files of a folder; names that begin with a dot or an underscore do not count."""
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder.")
    inside = [path for path in sorted(folder.iterdir()) if path.name[0] not in "._"]
    for path in inside:
        if path.is_dir() or path.suffix.lower() not in PARQUET:
            raise InputError(f"{path}: expected only Parquet files in the folder {folder}.")
    if not inside:
        raise InputError(f"{folder}: the folder is empty; expected Parquet files.")
    return inside


def height_of(file: Path) -> int:
    """How many rows a part has, which its end says."""
    try:
        return int(pl.scan_parquet(file, glob=False).select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"{file}: it is not a Parquet file that can be read.") from None


def needed(model: Model, rules: Rules, file: str) -> list[str] | None:
    """The columns of a part that a choice depends on; all, to be told, where one is missing."""
    must = {"id", "state"} | {
        name.strip().lower()
        for name in (
            rules.exclude, rules.lock, rules.group, rules.worker,
            rules.last if rules.cooldown else None,
        )
        if name
    }  # fmt: skip
    may = {"opt_in", *columns_of(model.feature_names)}
    may |= {f"cost_{action}" for action in model.action_names}
    found = {name: name.strip().lower() for name in pl.read_parquet_schema(file)}
    if not must <= set(found.values()):
        return None
    return [name for name, plain in found.items() if plain in must or name in may]
