"""Frames as bytes, and whether two frames are the same to the last bit."""

import io

import numpy as np
import polars as pl

from prefermab.programme.tables import first_row


def pack(frame: pl.DataFrame) -> bytes:
    """A frame as a compressed Arrow file.

    >>> import polars as pl
    >>> from prefermab.programme.store.packing import pack, unpack
    >>> frame = pl.DataFrame({"id": [1, 2], "state": ["good", None]})
    >>> unpack(pack(frame)).equals(frame)
    True
    """
    out = io.BytesIO()
    frame.rechunk().write_ipc(out, compression="zstd")
    return out.getvalue()


def unpack(data: bytes) -> pl.DataFrame:
    """The frame that was packed."""
    return pl.read_ipc(io.BytesIO(data))


def difference(one: pl.DataFrame, other: pl.DataFrame) -> str | None:
    """Where two frames differ first, in words; None where every bit is the same.

    >>> import polars as pl
    >>> from prefermab.programme.store.packing import difference
    >>> difference(pl.DataFrame({"id": [7], "x": [0.0]}), pl.DataFrame({"id": [7], "x": [-0.0]}))
    "'x' of 7 is 0.0 in one and -0.0 in the other"
    """
    if one.height != other.height:
        return f"one has {one.height} rows and the other {other.height}"
    if one.columns != other.columns:
        odd = sorted(set(one.columns) ^ set(other.columns))
        return f"the column '{odd[0]}' is in only one" if odd else "the order of columns differs"
    for name in one.columns:
        left, right = one[name], other[name]
        if left.dtype != right.dtype:
            return f"'{name}' is {left.dtype} in one and {right.dtype} in the other"
        same = _bits(left).eq_missing(_bits(right))
        if not same.all():
            row = first_row(~same)
            who = one["id"][row] if "id" in one.columns else f"row {row + 1}"
            return f"'{name}' of {who} is {left[row]} in one and {right[row]} in the other"
    return None


def _bits(values: pl.Series) -> pl.Series:
    """Numbers by their bits, so that 0.0 is not -0.0; what is null stays null."""
    if not values.dtype.is_float():
        return values
    whole = values.fill_null(0.0).to_numpy().astype(np.float64).view(np.int64)
    return pl.Series(values.name, whole).set(values.is_null(), None)
