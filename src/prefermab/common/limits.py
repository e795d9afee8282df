"""How much a packed file may hold: a small file can unpack to more than fits into memory."""

from prefermab.errors import InputError

SMALL, LARGE = 1 << 28, 1 << 30
"""What every file may unpack to, and what a text or workbook may at most, in bytes."""

TIMES_ITS_SIZE = 100
"""Tables shrink to a tenth when they are packed, and hardly ever to a hundredth."""


def most_unpacked(size: int, most: int | None = None) -> int:
    """The bytes to which a file of this size may unpack, at most `most`.

    >>> from prefermab.common.limits import most_unpacked
    >>> most_unpacked(1000) >> 20, most_unpacked(1 << 30) >> 30
    (256, 100)
    """
    found = max(SMALL, TIMES_ITS_SIZE * size)
    return found if most is None else min(found, most)


def too_large(where: str, most: int, instead: str) -> InputError:
    """The error for a file that unpacks to more than `most` bytes; `instead` says what to do."""
    return InputError(
        f"{where}: it unpacks to more than {most >> 20:,} MB, and a file of its size may not; "
        f"{instead}."
    )
