"""Reads tables in JSON: a list of objects, one for each row."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from prefermab.common.files import UNREADABLE
from prefermab.errors import InputError
from prefermab.programme.tables.cleaning import check_column_names

FEW_CELLS, CELLS_FOR_A_VALUE = 1_000_000, 20
"""A table may have this many cells, or this many for each value in it: if every row has keys of its
own, there are far more cells than values."""


def read_objects(path: Path) -> pl.DataFrame:
    """Reads a file; a row without one of the keys has no value there.

    >>> import pathlib, tempfile
    >>> from prefermab.programme.tables.objects import read_objects
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "people.json"
    >>> _ = file.write_text('[{"id": 7, "state": "good"}, {"id": 8}]')
    >>> read_objects(file)["state"].to_list()
    ['good', None]
    """
    try:
        rows = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise InputError(f"{path}: it is not JSON that can be read.") from None
    return frame_of(rows, str(path))


def frame_of(rows: Any, where: str) -> pl.DataFrame:
    """A table from rows; `where` is its name in messages."""
    plain = (str, int, float, bool, type(None))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{where}: expected a list of objects, one for each row.")
    for place, row in enumerate(rows, 1):
        for name, value in row.items():
            if not isinstance(value, plain):
                raise InputError(
                    f"{where}: row {place}: '{name[:80]}' must be a text, a number, true, false or "
                    "null."
                )
    names = {name: None for row in rows for name in row}
    check_column_names(list(names), where)
    values = sum(len(row) for row in rows)
    if len(names) * len(rows) > max(FEW_CELLS, CELLS_FOR_A_VALUE * values):
        raise InputError(
            f"{where}: its {len(rows):,} rows have {len(names):,} different keys; expected the "
            "same keys in each row."
        )
    try:
        return pl.DataFrame(rows, infer_schema_length=None, strict=True)
    except UnicodeEncodeError:
        raise InputError(f"{where}: a text has a character that cannot be stored.") from None
    except (*UNREADABLE, TypeError, ValueError, OverflowError):
        raise InputError(f"{where}: a column holds values of different kinds.") from None
