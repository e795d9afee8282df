"""Ids that stand in more than one piece."""

import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import polars as pl

from prefermab.engines import Engine
from prefermab.errors import InputError
from prefermab.programme.bulk.passes import Job, hashes
from prefermab.programme.bulk.pieces import Piece
from prefermab.programme.tables import column, row_in

AT_ONCE = 1 << 22
"""Checksums that are compared together."""


def refuse_twins(job: Job, pieces: Sequence[Piece], engine: Engine) -> None:
    """Every id stands in one row of all parts. Pieces have left sorted checksums of their ids, of
    which stretches are compared over all pieces; ids are read again only where two are alike."""
    stretches = -(-job.people // AT_ONCE)
    ends = [(2**64 * place) // stretches for place in range(stretches + 1)]
    spans = list(itertools.pairwise(ends))
    alike = np.concatenate(list(engine.map(functools.partial(twins, job, pieces), spans)))
    if not alike.size:
        return
    seen: dict[str, list[str]] = defaultdict(list)
    for found in engine.map(functools.partial(holders, alike[:100]), pieces):
        for one, where in found:
            seen[one].append(where)
    for one, where in seen.items():
        if len(where) > 1:
            raise InputError(
                f"the id {one} is in {where[0]} and again in {where[1]}; expected one row for each "
                "person."
            )


def twins(job: Job, pieces: Sequence[Piece], span: tuple[int, int]) -> np.ndarray:
    """Checksums within a span that stand in the pieces more than once."""
    low, last = np.uint64(span[0]), np.uint64(span[1] - 1)
    found = []
    for piece in pieces:
        there = np.load(job.ids(piece), mmap_mode="r")
        begin, end = np.searchsorted(there, low), np.searchsorted(there, last, side="right")
        found.append(np.array(there[begin:end]))
    together = np.sort(np.concatenate(found))
    return np.unique(together[1:][together[1:] == together[:-1]])


def holders(alike: np.ndarray, piece: Piece) -> list[tuple[str, str]]:
    """Ids of a piece with one of these checksums, and where they stand."""
    ids = column(piece.read(), "id", piece.shown)
    rows = np.flatnonzero(np.isin(hashes(ids), alike))
    text = ids.cast(pl.String).gather(rows).to_list()
    return [
        (one, f"{row_in(piece.where, int(row))} of {piece.shown}")
        for one, row in zip(text, rows, strict=True)
    ]
