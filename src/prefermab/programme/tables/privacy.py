"""Pseudonyms: ids as keyed hashes. Whoever has the key and the ids can compute them again."""

import hashlib
import hmac
import os
import secrets
from pathlib import Path

import polars as pl

from prefermab.common.files import check_file
from prefermab.errors import InputError
from prefermab.programme.tables.cleaning import clean_ids
from prefermab.programme.tables.columns import as_labels
from prefermab.programme.tables.naming import name_key

SHORTEST_KEY, LONGEST_KEY = 16, 1 << 16
"""The fewest and the most bytes of a key file."""

MOST_CATEGORIES = 50
"""A column with more different texts holds names or numbers of people, not categories."""

LONG_NUMBER = 1_000_000
"""A column of whole numbers that are usually this large identifies people, if most differ."""

PSEUDONYM_DIGITS = 20
"""Hexadecimal digits of a pseudonym: 80 bits keep a billion people apart. Stored pseudonyms,
and the mark of the key in a programme, depend on it."""


def read_key(path: Path) -> tuple[bytes, bool]:
    """Reads the key in a file. If there is no such file, writes a new key to it.

    Args:
        path: The key file. Keep it apart from the tables: whoever has both can try ids until a
            pseudonym matches.

    Returns:
        The key, and whether it is new.
    """
    if not path.exists():
        key = secrets.token_hex(32).encode()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as error:
            raise InputError(f"cannot write the key {path}: {error.strerror or error}.") from None
        with os.fdopen(handle, "wb") as file:
            file.write(key)
        return key, True
    check_file(path, most=LONGEST_KEY)
    key = path.read_bytes().strip()
    if len(key) < SHORTEST_KEY:
        raise InputError(
            f"{path}: a key must have at least {SHORTEST_KEY} bytes, not {len(key)}; to make a new "
            "key, name a file that does not exist."
        )
    return key, False


def pseudonyms(ids: pl.Series, key: bytes) -> pl.Series:
    """A keyed hash (HMAC-SHA256) of each id; the number 7 and the text 7 are the same person.

    Args:
        ids: A column of ids.
        key: The content of the key file.

    Returns:
        A column of texts of 20 hexadecimal digits; null where an id is null.

    >>> import polars as pl
    >>> import prefermab as pm
    >>> one, other = pm.tables.pseudonyms(pl.Series([7, 8]), b"k" * 32)
    >>> one == pm.tables.pseudonyms(pl.Series(["7"]), b"k" * 32)[0], one == other, len(one)
    (True, False, 20)
    """
    labels = as_labels(clean_ids(ids))
    known = labels.drop_nulls().unique()
    made = {one: _pseudonym(one, key) for one in known}
    return labels.replace_strict(made, default=None, return_dtype=pl.String).alias(ids.name)


def key_mark(key: bytes) -> str:
    """A text that differs from key to key and does not reveal the key."""
    return _pseudonym("prefermab: the mark of a key", key)


def _pseudonym(label: str, key: bytes) -> str:
    return hmac.new(key, label.encode(), hashlib.sha256).hexdigest()[:PSEUDONYM_DIGITS]


def identifying_columns(frame: pl.DataFrame) -> list[str]:
    """Columns that may identify people: names, addresses, telephone numbers, notes.

    Categories that many rows share, such as a region, are not among them.

    >>> import polars as pl
    >>> from prefermab.programme.tables.privacy import identifying_columns
    >>> people = pl.DataFrame({"id": ["a", "b"], "name": ["Ana", "Bea"], "region": ["n", "n"]})
    >>> identifying_columns(people)
    ['name']
    """
    others = [values for values in frame if name_key(values.name) != "id"]
    return [values.name for values in others if _is_free(values.drop_nulls())]


def _is_free(known: pl.Series) -> bool:
    if known.dtype.is_integer():  # a telephone number
        if len(known) == 0 or int(known.abs().median() or 0) < LONG_NUMBER:  # type: ignore[arg-type]
            return False
    elif known.dtype != pl.String:
        return False
    different = known.n_unique()
    return different > MOST_CATEGORIES or 2 * different > len(known)
