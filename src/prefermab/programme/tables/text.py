"""Reads text files: detects encoding, separator and decimal mark, and refuses ragged rows."""

import codecs
import csv
import gzip
import io
import itertools
import re
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from prefermab.common.limits import LARGE, most_unpacked, too_large
from prefermab.errors import InputError, InputWarning, brief, optional
from prefermab.programme.tables.address import SEPARATORS, Address
from prefermab.programme.tables.cleaning import (
    TEXTS,
    check_column_names,
    clean,
    columns_where,
    plain_numbers,
)
from prefermab.programme.tables.values import (
    is_number_text,
    number_meaning,
    parse_numbers,
    unmark_formulas,
)

UNKNOWN = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
"""Cells of a text file that mean an unknown value."""

OTHER_FORMATS = {
    b"PK\x03\x04": "an Excel workbook or another archive: let its name end in .xlsx",
    b"PAR1": "a Parquet file: let its name end in .parquet",
    b"SQLite format 3": "a SQLite database: let its name end in .db",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save it as .xlsx",
    b"%PDF": "a PDF",
}
"""The first bytes of files that are not text."""


def read_text(address: Address, *, as_text: bool = False) -> pl.DataFrame:
    """Reads a text file; with `as_text` all cells stay as they are written."""
    text = _unix_lines(decode(_read_bytes(address), address.encoding, address.shown))
    declared = re.match(r"sep=(.)\n", text)
    if declared is not None:  # Excel's own way to name the separator
        text = text[declared.end() :]
    if not text.strip():
        raise InputError(f"{address.shown}: the file is empty; expected a header and rows.")
    if text[: text.find("\n")].strip() == "":
        raise InputError(
            f"{address.shown}: the first line is empty; delete the lines above the header."
        )
    separator = address.separator or (
        declared[1] if declared else find_separator(text, address.shown)
    )
    _check_rows(text, separator, address.shown)
    frame = pl.read_csv(
        text.encode(), separator=separator, infer_schema=False, null_values=list(UNKNOWN)
    )
    frame = unmark_formulas(clean(frame))
    return frame if as_text else infer_numbers(frame, address)


def find_separator(text: str, where: str) -> str:
    """Detects the separator: the one that divides the first rows into the most columns.

    >>> from prefermab.programme.tables.text import find_separator
    >>> find_separator("id;weight\\n1;70,5\\n", "people.csv")
    ';'
    """
    sample = "".join(text[:100_000].splitlines(keepends=True)[:50])
    widths: dict[str, int] = {}
    ragged: dict[str, int] = {}
    for separator in SEPARATORS.values():
        try:
            rows = [row for row in csv.reader(io.StringIO(sample), delimiter=separator) if row]
        except csv.Error:
            raise InputError(
                f"{where}: a cell in its first rows has a carriage return in it, but no quotes "
                "around it."
            ) from None
        # The last row of a long sample may be cut off.
        rows = rows[:-1] if len(rows) > 2 and len(sample) >= 100_000 else rows
        same = len({len(row) for row in rows}) == 1
        (widths if same else ragged)[separator] = len(rows[0])
    best = max(widths.values(), default=1)
    found = [separator for separator, width in widths.items() if width == best]
    if best > 1 and len(found) > 1:
        names = [name for name, mark in SEPARATORS.items() if mark in found]
        raise InputError(
            f"{where}: its columns may be divided by {' or '.join(names)}; write which one after "
            f"the file, such as #separator={names[0]}."
        )
    if best > 1:
        return found[0]
    return max(ragged, key=ragged.__getitem__) if max(ragged.values(), default=1) > 1 else ","


def infer_numbers(frame: pl.DataFrame, address: Address) -> pl.DataFrame:
    """Converts columns of numbers, which may have decimal commas, from text to numbers."""
    decimal, numbers = address.decimal, []
    commas = columns_where(frame, TEXTS.str.contains(",", literal=True))
    texts = [frame[name] for name in commas if is_number_text(frame[name])]
    if decimal is None and any(number_meaning(column) == "comma" for column in texts):
        decimal = ","
    if decimal is None:
        return plain_numbers(frame)
    dots = columns_where(frame, TEXTS.str.contains(".", literal=True))
    texts += [frame[n] for n in dots if n not in commas and is_number_text(frame[n])]
    found = {column.name: number_meaning(column) for column in texts}
    for column in texts:
        meaning = found[column.name]
        if decimal == "," and meaning == "dot or thousands" and not address.decimal:
            raise InputError(
                f"{address.shown}: the column '{column.name}' holds "
                f"'{brief(column.drop_nulls()[0])}', whose dot may mark decimals or thousands, "
                "since other columns have decimal commas; write #decimal=. or #decimal=, after the "
                "file's name."
            )
        by_comma = decimal == "," and meaning == "dot or thousands"
        if by_comma or meaning in ("comma", "comma or thousands"):
            numbers.append(parse_numbers(column, address.shown, decimal=decimal))
    return plain_numbers(frame.with_columns(numbers))


def _read_bytes(address: Address) -> bytes:
    path = address.path
    data = _unpack(path, address.shown) if path.suffix.lower() == ".gz" else path.read_bytes()
    for first, what in OTHER_FORMATS.items():
        if data.startswith(first):
            raise InputError(f"{address.shown}: it is not a text file, but {what}.")
    return data


def _unpack(path: Path, where: str) -> bytes:
    most = most_unpacked(path.stat().st_size, LARGE)
    try:
        with gzip.open(path) as file:
            data = file.read(most + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{where}: it is not a gzip file that can be read.") from None
    if len(data) > most:
        raise too_large(where, most, "unpack it first, or use Parquet")
    return data


def _unix_lines(text: str) -> str:
    """Makes all line ends \\n; old Macs ended lines with \\r alone."""
    if "\r" not in text:
        return text
    return text.replace("\r\n", "\n") if "\n" in text else text.replace("\r", "\n")


def _check_rows(text: str, separator: str, where: str) -> None:
    """Raises an error unless column names differ and every row has as many fields as the header."""
    rows = _rows(text, separator, where)
    header = next(rows)
    check_column_names(header, where)
    first = text.partition("\n")[0]
    lines = text.count("\n") + (not text.endswith("\n"))
    # Counting separators is fast, and enough if nothing is quoted; otherwise rows are parsed.
    if '"' not in text and text.count(separator) == lines * first.count(separator):
        return
    for number, fields in enumerate(rows, 2):
        if fields and len(fields) != len(header):
            size = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
            raise InputError(
                f"{where}: row {number} has {size}, but the header has {len(header)}; expected the "
                "same number, with quotes around a text that holds the separator."
            )


def _rows(text: str, separator: str, where: str) -> Iterator[list[str]]:
    """The fields of each row."""
    reader = csv.reader(_iterate_lines(text), delimiter=separator)
    number = 1
    try:
        for fields in reader:
            yield fields
            number += 1
    except csv.Error:
        raise InputError(
            f"{where}: row {number} holds a text without an end; a quotation mark may be missing."
        ) from None


def _iterate_lines(text: str) -> Iterator[str]:
    """The lines of a text one by one, without a copy of the whole text."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks; UTF-32 comes first, since its mark begins with that of UTF-16."""

PAGES = (
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258",
    "cp850", "mac_roman",
)  # fmt: skip
"""The code pages that are tried: those of Windows, DOS and old Macs."""

UTF_8 = rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
"""The bytes of a letter beyond ASCII in UTF-8."""

BYTES_SAMPLED = 1 << 16
"""A code page is guessed from this many bytes of lines with letters beyond ASCII."""


def decode(data: bytes, encoding: str | None, where: str) -> str:
    """Decodes the bytes of a text; an `InputWarning` names a code page that had to be guessed.

    >>> from prefermab.programme.tables.text import decode
    >>> decode("id,name\\n1,José".encode("utf-16"), None, "people.csv")
    'id,name\\n1,José'
    """
    if encoding is not None:
        return _decode_as(data, encoding, where)
    for mark, name in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _decode_as(data, name, where)
    if (name := _utf_16_without_mark(data)) is not None:
        return _decode_as(data, name, where)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        row = data[: error.start].count(b"\n") + 1
        return _damaged_utf_8(data, row, where) or _decode_by_guess(data, where)


def _decode_as(data: bytes, encoding: str, where: str) -> str:
    try:
        return data.decode(encoding)
    except LookupError:
        raise InputError(
            f"{where}: there is no encoding '{encoding}'; expected a name such as utf-8, utf-16 or "
            "cp1252."
        ) from None
    except UnicodeError as error:
        raise InputError(
            f"{where}: the text is not in {encoding}: byte {getattr(error, 'start', 0):,} does not "
            "fit."
        ) from None


def _utf_16_without_mark(data: bytes) -> str | None:
    """The byte order of UTF-16, found by the zero in every other byte of Latin letters; or None."""
    head = data[:1000]
    if b"\0" not in head:
        return None
    odd, even = head[1::2].count(0), head[::2].count(0)
    if max(odd, even) > 0.4 * len(head) and min(odd, even) == 0:
        return "utf-16-le" if odd else "utf-16-be"
    return None


def _damaged_utf_8(data: bytes, row: int, where: str) -> str | None:
    """The text if it is UTF-8 except for a few bytes, which are shown as �; else None."""
    text = data.decode("utf-8", errors="replace")
    whole = len(re.findall(UTF_8, data))
    broken = text.count("\ufffd") - data.count("\ufffd".encode())
    if whole <= broken:
        return None
    warnings.warn(
        f"{where}: its text is in UTF-8, but {broken:,} of its characters, the first in line "
        f"{row:,}, cannot be read and are shown as \ufffd.",
        InputWarning,
        stacklevel=2,
    )
    return text


def _decode_by_guess(data: bytes, where: str) -> str:
    page = guess_page(data)
    if page is None:
        raise InputError(
            f"{where}: the encoding of its text cannot be detected; name it after the file, such "
            "as #encoding=cp1252, or save the file as UTF-8."
        )
    text = _decode_as(data, page, where)
    letters = re.findall(r"[^\W\d_]+", text[: 1 << 20])
    words = [brief(word) for word in letters if not word.isascii()][:20]
    longest = max(words, key=len, default="")
    warnings.warn(
        f"{where}: its text is read as {page}, with words such as '{longest}'; "
        "if they look wrong, name the encoding after the file, such as #encoding=cp1250.",
        InputWarning,
        stacklevel=2,
    )
    return text


def guess_page(data: bytes) -> str | None:
    """Guesses the code page of some bytes.

    Short texts fit several code pages; that of Western Europe is preferred if it fits and gives
    plausible words.

    >>> from prefermab.programme.tables.text import guess_page
    >>> guess_page("déjà vu".encode("cp1252")), guess_page("Łódź, Kraków".encode("cp1250"))
    ('cp1252', 'cp1250')
    """
    guesser = optional("charset_normalizer", "programme", "a text table that is not UTF-8")

    lines = (line for line in data[: 1 << 24].split(b"\n") if not line.isascii())
    sample = b"\n".join(lines)[:BYTES_SAMPLED]
    found = guesser.from_bytes(sample, cp_isolation=list(PAGES), steps=8, chunk_size=2048)
    fitting = [name for match in found for name in (match.encoding, *match.could_be_from_charset)]
    if "cp1252" in fitting and _plausible(sample, "cp1252"):
        return "cp1252"
    plausible = [name for name in fitting if name in PAGES and _plausible(sample, name)]
    return next(iter(plausible or fitting), None)


def _plausible(sample: bytes, page: str) -> bool:
    """Whether no word has a sign in or before it, or an accented capital after a small letter."""
    try:
        text = sample.decode(page)
    except UnicodeError:
        return False
    strange = re.findall(r"(?<=[^\W\d_])[^\x00-\x7f\w’‘“”–—…»«\s](?=[^\W\d_])|[\x80-\x9f]", text)
    at_edge = re.findall(r"[¢£¤¥¦§¨©¬®¯±²³´µ¶·¸¹¼½¾×÷](?=[^\W\d_])", text)
    capitals = [word for word in re.findall(r"[^\W\d_]{2,}", text) if _has_inner_capital(word)]
    return not strange and not at_edge and not capitals


def _has_inner_capital(word: str) -> bool:
    """Whether a word has a capital beyond ASCII after a small letter, as in josŽ."""
    pairs = itertools.pairwise(word)
    return any(a.islower() and b.isupper() and ord(b) > 127 for a, b in pairs)
