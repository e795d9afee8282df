"""Counts what a Parquet file holds before anything is unpacked.

A Parquet file is a row of pages, each with a header, and a footer that says where they begin. A
page of a few bytes can hold billions of cells, and a footer can say less than the pages hold. So
the headers of all pages are read first: by them the reader unpacks.
"""

import mmap
import zlib
from pathlib import Path
from typing import Any

import polars as pl

from prefermab.common.files import UNREADABLE, panics_unseen
from prefermab.common.limits import most_unpacked, too_large
from prefermab.errors import InputError, brief

MARK = b"PAR1"
"""The first and the last bytes of a file."""

WRONG = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What comes of a header or footer with wrong bytes in it."""

SMALLER = "write fewer rows or columns, or several files"
"""What to do about a file that is too large."""


def read_parquet(path: Path, where: str) -> pl.DataFrame:
    """Reads a file that `check_parquet` accepts.

    >>> import pathlib, tempfile
    >>> import polars as pl
    >>> from prefermab.common.parquet import read_parquet
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "people.parquet"
    >>> pl.DataFrame({"id": [7, 8]}).write_parquet(file)
    >>> read_parquet(file, "people.parquet")["id"].to_list()
    [7, 8]
    """
    check_parquet(path, where)
    with panics_unseen():
        return pl.read_parquet(path, glob=False)


def check_parquet(path: Path, where: str) -> int:
    """Counts what a Parquet file holds, and compares the checksums of its pages if it has them.

    Args:
        path: The file.
        where: Its name in messages.

    Returns:
        The number of its rows. A file that unpacks to too much, has lists in its cells or is
        damaged raises an error.
    """
    try:
        with panics_unseen():
            schema = pl.read_parquet_schema(path)
        for name, kind in schema.items():
            if kind.is_nested():
                raise InputError(
                    f"{where}: the column '{brief(name)}' holds {brief(kind)}; expected one "
                    "number, text, date or truth value in each cell."
                )
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            rows, unpacked = _count(data)
            most = most_unpacked(len(data))
    except InputError:
        raise
    except (*UNREADABLE, *WRONG):
        raise InputError(f"{where}: it is not a Parquet file that can be read.") from None
    # A cell takes 8 bytes in memory, and that of a text 16 besides the text itself.
    width = sum(16 if kind == pl.String else 8 for kind in schema.values())
    if max(unpacked, rows * width) > most:
        raise too_large(where, most, SMALLER)
    return rows


def _count(data: mmap.mmap) -> tuple[int, int]:
    """The rows of a file, and the bytes to which its pages unpack."""
    end = len(data) - 8
    if data[:4] != MARK or data[-4:] != MARK:
        raise ValueError("no Parquet file")
    start = end - int.from_bytes(data[end : end + 4], "little")
    footer = Thrift(data, start).struct()
    # The first structure is the table itself; all others are columns, since none is nested.
    named = [([column[4]], column[1]) for column in footer[2][1:]]
    unpacked = 0
    for group in footer[4]:
        columns = [column[3] for column in group[1]]
        if [(column[3], column[1]) for column in columns] != named:
            raise ValueError("a column has two names or types")
        unpacked += sum(_count_column(data, column, group[3], start) for column in columns)
    if sum(group[3] for group in footer[4]) != footer[3]:
        raise ValueError("the footer has another number of rows than its groups")
    return footer[3], unpacked


def _count_column(data: mmap.mmap, column: dict[int, Any], rows: int, end: int) -> int:
    """The bytes to which the pages of a column unpack. There must be a cell for each row, and the
    pages must fit their checksums where they have some."""
    # The dictionary comes first, if there is one.
    place, cells, unpacked = column.get(11) or column[9], 0, 0
    if column[5] != rows or not 0 <= column[7] <= end - place:
        raise ValueError("a column has another number of cells than rows, or lies outside")
    while cells < rows:
        header = Thrift(data, place)
        page = header.struct()
        place = header.place + page[3]
        if not 4 <= header.place <= place <= end or page[2] < 0:
            raise ValueError("a page lies outside of the file")
        if 4 in page and zlib.crc32(data[header.place : place]) != page[4] & 0xFFFFFFFF:
            raise ValueError("the checksum of a page does not match")
        unpacked += page[2]
        if page[1] in PAGES_OF_CELLS:
            cells += page[PAGES_OF_CELLS[page[1]]][1]
    if cells != rows:
        raise ValueError("a column has another number of cells than rows")
    return unpacked


PAGES_OF_CELLS = {0: 5, 3: 8}
"""The kinds of page that hold cells, the older and the newer, and the field with their number."""


class Thrift:
    """Reads values in the compact format of Thrift, in which Parquet writes headers and footer.

    >>> from prefermab.common.parquet import Thrift
    >>> Thrift(bytes([0x15, 6, 0x28, 2, 97, 98, 0]), 0).struct()
    {1: 3, 3: b'ab'}
    """

    def __init__(self, data: Any, place: int) -> None:
        self.data, self.place = data, place
        if place < 0:
            raise ValueError("a place before the file")

    def struct(self) -> dict[int, Any]:
        """The fields of a structure by their numbers."""
        fields, number = {}, 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.integer()
            fields[number] = head & 15 == 1 if head & 15 <= 2 else self.value(head & 15)
        return fields

    def value(self, kind: int) -> Any:
        """A value of a kind: a number, bytes, a list or a structure."""
        if kind in (1, 2):
            return self.byte() == 1
        if kind == 3:
            return self.byte()
        if kind in (4, 5, 6):
            return self.integer()
        if kind in (7, 8):
            size = 8 if kind == 7 else self.unsigned()
            self.place += size
            return self.data[self.place - size : self.place]
        if kind in (9, 10):
            head = self.byte()
            size = head >> 4 if head >> 4 < 15 else self.unsigned()
            return [self.value(head & 15) for _ in range(size)]
        if kind == 12:
            return self.struct()
        raise ValueError("an unknown kind")

    def byte(self) -> int:
        """The next byte."""
        self.place += 1
        return self.data[self.place - 1]

    def unsigned(self) -> int:
        """A number that is not negative, in pieces of seven bits."""
        number = shift = 0
        while (byte := self.byte()) > 127:
            number |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
        return number | byte << shift

    def integer(self) -> int:
        """A number whose last bit is its sign."""
        number = self.unsigned()
        return (number >> 1) ^ -(number & 1)
