"""Unpacks the parts of a workbook and counts what they hold, before a library reads it.

What an archive says about its parts can be wrong, so their own bytes are counted, and compared with
their checksums. In a sheet, a cell can name a far row and column, between which all cells take
memory, and many cells can share one long text, which each then has for itself.
"""

import functools
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from xml.parsers import expat

from prefermab.common.limits import LARGE, most_unpacked, too_large
from prefermab.errors import InputError

MOST_SHEET_CELLS = 1 << 25
"""The most cells of a sheet with the empty ones between: 32 columns in all rows of Excel."""

AT_ONCE = 1 << 20
"""Bytes that are unpacked at once."""

LONGEST_NUMBER = 20
"""Digits of the number of a shared text."""

XML, DRAWING = (".xml", ".rels"), ".vml"
"""How the names of parts end that hold XML, and of drawings, whose XML may have errors."""

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class DamagedError(Exception):
    """An archive is not a workbook, or not all of its bytes are as they were written."""


def check_workbook(path: Path, where: str) -> None:
    """Raises an error if a file is not an undamaged workbook, or holds too much.

    Args:
        path: The file.
        where: Its name in messages.
    """
    most = most_unpacked(path.stat().st_size, LARGE)
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            parts = archive.infolist()
            names = {part.filename for part in parts}
            if "[Content_Types].xml" not in names:
                raise InputError(f"{where}: it is an archive, but not an Excel workbook.")
            if len(names) < len(parts):
                raise DamagedError
            book = Contents(where, most)
            # The texts that cells share come first, because cells name them by their numbers.
            for part in sorted(parts, key=order_of):
                with archive.open(part):  # compares the two places that name a part
                    pass
                book.read(part.filename.lower(), unpack_part(file, part))
    except (zipfile.BadZipFile, zlib.error, expat.ExpatError, DamagedError, EOFError,
            LookupError, NotImplementedError, RuntimeError, ValueError) as error:  # fmt: skip
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{where}: it is not an Excel workbook that can be read; save it as .xlsx or .csv "
            "again."
        ) from None


def order_of(part: zipfile.ZipInfo) -> bool:
    """Puts the texts that cells share first."""
    return not part.filename.lower().endswith("sharedstrings.xml")


def unpack_part(file: IO[bytes], part: zipfile.ZipInfo) -> Iterator[bytes]:
    """The bytes of a part, piece by piece; raises unless they are as many as it says, and fit its
    checksum."""
    if part.compress_type not in METHODS or part.flag_bits & 1:
        raise DamagedError
    file.seek(part.header_offset)
    head = file.read(30)
    file.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), 1)
    left, length, checksum = part.compress_size, 0, 0
    stored = part.compress_type == zipfile.ZIP_STORED
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    while left or (not stored and not unpacker.eof):
        packed = unpacker.unconsumed_tail
        if not packed:
            packed = file.read(min(left, AT_ONCE))
            left -= len(packed)
        piece = packed if stored else unpacker.decompress(packed, AT_ONCE)
        if not packed and not piece:
            break
        length += len(piece)
        checksum = zlib.crc32(piece, checksum)
        yield piece
    if length != part.file_size or checksum != part.CRC:
        raise DamagedError


class Contents:
    """Counts what the parts of a workbook hold, and raises where it is more than may be.

    Args:
        where: The name of the workbook in messages.
        most: The most bytes of all its parts, and of all texts in its cells.
    """

    def __init__(self, where: str, most: int) -> None:
        self.where, self.most = where, most
        self.unpacked = self.texts = 0
        self.shared: list[int] = []
        self.cells = 0

    def read(self, name: str, pieces: Iterator[bytes]) -> None:
        """Reads a part."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse
        parser.StartElementHandler = self._start
        parser.CharacterDataHandler = self._text
        self.row = self.column = self.rows = self.columns = 0
        self.is_shared, self.shares, self.number = False, False, ""
        is_xml, last = None, b""
        for piece in pieces:
            self.unpacked += len(piece)
            self._check(self.unpacked)
            if name.endswith(DRAWING):
                if b"sheetData" in last + piece:  # it can be named as a sheet
                    raise DamagedError
                last = piece[-10:]
            elif is_xml is None:
                is_xml = name.endswith(XML) or piece.lstrip()[:1] == b"<"
            if is_xml:
                parser.Parse(piece, False)
        if is_xml:
            parser.Parse(b"", True)
            if self.shares:
                self._share()

    def _start(self, name: str, given: dict[str, str]) -> None:
        if self.shares:
            self._share()
        tag = name.rpartition(":")[2] if ":" in name else name
        if tag == "c":
            self.is_shared = given.get("t") == "s"
            self._move(given.get("r"))
        elif tag in ("v", "is"):
            self.shares, self.number = self.is_shared and tag == "v", ""
            self._count_cell()
        elif tag == "row":
            self.row, self.column = int(given.get("r", self.row + 1)), 0
        elif tag == "si":
            if self.cells:
                raise DamagedError
            self.shared.append(0)

    def _text(self, text: str) -> None:
        if self.shares:
            self.number += text[:LONGEST_NUMBER]
        elif self.shared and not self.cells:
            self.shared[-1] += len(text)

    def _share(self) -> None:
        """Adds the length of the text that a cell names by its number."""
        self.shares = False
        if not self.number.strip():
            return
        number = int(self.number[:LONGEST_NUMBER])
        if not 0 <= number < len(self.shared):
            raise DamagedError
        self.texts += self.shared[number]
        self._check(self.texts)

    def _move(self, place: str | None) -> None:
        """Goes to the named cell, such as AB12, or to the next one."""
        if place is None:
            self.column += 1
        elif found := CELL.fullmatch(place):
            self.column, self.row = column_number(found[1]), int(found[2])
        else:
            raise DamagedError

    def _count_cell(self) -> None:
        self.cells += 1
        if self.row > self.rows or self.column > self.columns:
            self.rows, self.columns = max(self.rows, self.row), max(self.columns, self.column)
        if self.rows * self.columns > MOST_SHEET_CELLS:
            raise InputError(
                f"{self.where}: a sheet has a cell in row {self.rows:,} and one in column "
                f"{self.columns:,}, and at most {MOST_SHEET_CELLS:,} cells are read; delete what "
                "lies outside of the table, or save it as CSV or Parquet."
            )

    def _check(self, size: int) -> None:
        if size > self.most:
            raise too_large(self.where, self.most, "save it as CSV or Parquet")

    def _refuse(self, *_: object) -> None:
        raise DamagedError


CELL = re.compile("([A-Za-z]{1,3})([0-9]{1,7})")
"""The name of a cell."""


@functools.cache
def column_number(letters: str) -> int:
    """The number of a column by its letters.

    >>> from prefermab.programme.tables.archives import column_number
    >>> column_number("A"), column_number("AB")
    (1, 28)
    """
    number = 0
    for letter in letters.upper():
        number = 26 * number + ord(letter) - 64
    return number
