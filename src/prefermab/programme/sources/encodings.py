"""Bytes of a text file as text: its encoding is found out, and a guess is said."""

import codecs
import itertools
import re
import warnings

from prefermab.errors import InputError, InputWarning

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks; UTF-32 before UTF-16, whose mark it begins with."""

PAGES = (
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258",
    "cp850", "mac_roman",
)  # fmt: skip
"""Code pages that are looked for: those of Windows, DOS and old Macs."""

UTF_8 = rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
"""Letters beyond ASCII in UTF-8."""

SAMPLE = 1 << 16
"""Bytes around letters that are not ASCII from which a code page is guessed."""


def decode(data: bytes, encoding: str | None, where: str) -> str:
    """The text; a code page that had to be guessed is said in an `InputWarning`.

    >>> from prefermab.programme.sources.encodings import decode
    >>> decode("id,name\\n1,José".encode("utf-16"), None, "people.csv")
    'id,name\\n1,José'
    """
    if encoding is not None:
        return _decode_as(data, encoding, where)
    for mark, name in MARKS:
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
    """Text in Latin letters has a zero in every other byte."""
    head = data[:1000]
    if b"\0" not in head:
        return None
    odd, even = head[1::2].count(0), head[::2].count(0)
    if max(odd, even) > 0.4 * len(head) and min(odd, even) == 0:
        return "utf-16-le" if odd else "utf-16-be"
    return None


def _damaged_utf_8(data: bytes, row: int, where: str) -> str | None:
    """Text in UTF-8 but for a few bytes, which are shown as �; None if it is something else."""
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
            f"{where}: the encoding of its text cannot be found out; name it after the file, such "
            "as #encoding=cp1252, or save the file as UTF-8."
        )
    text = _decode_as(data, page, where)
    words = re.findall(r"[^\W\d_]*[^\W\d_\x00-\x7f][^\W\d_]*", text[: 1 << 20]) or [""]
    warnings.warn(
        f"{where}: its text is read as {page}, with words such as '{max(words[:20], key=len)}'; "
        "if they look wrong, name the encoding after the file, such as #encoding=cp1250.",
        InputWarning,
        stacklevel=2,
    )
    return text


def guess_page(data: bytes) -> str | None:
    """The code page of some bytes.

    Short texts fit several pages; that of Western Europe is taken where it fits and gives words
    that could be words.

    >>> from prefermab.programme.sources.encodings import guess_page
    >>> guess_page("déjà vu".encode("cp1252")), guess_page("Łódź, Kraków".encode("cp1250"))
    ('cp1252', 'cp1250')
    """
    from charset_normalizer import from_bytes

    sample = b"\n".join(re.findall(rb"[^\n]*[\x80-\xff][^\n]*", data[: 1 << 24]))[:SAMPLE]
    found = from_bytes(sample, cp_isolation=list(PAGES), steps=8, chunk_size=2048)
    fitting = [name for match in found for name in (match.encoding, *match.could_be_from_charset)]
    if "cp1252" in fitting and _plausible(sample, "cp1252"):
        return "cp1252"
    plausible = [name for name in fitting if name in PAGES and _plausible(sample, name)]
    return next(iter(plausible or fitting), None)


def _plausible(sample: bytes, page: str) -> bool:
    """Whether no sign stands within a word, and no capital behind a small letter."""
    try:
        text = sample.decode(page)
    except UnicodeError:
        return False
    strange = re.findall(r"(?<=[^\W\d_])[^\x00-\x7f\w’‘“”–—…»«\s](?=[^\W\d_])|[\x80-\x9f]", text)
    at_edge = re.findall(r"[¢£¤¥¦§¨©¬®¯±²³´µ¶·¸¹¼½¾×÷](?=[^\W\d_])", text)
    capitals = [word for word in re.findall(r"[^\W\d_]{2,}", text) if _mixed(word)]
    return not strange and not at_edge and not capitals


def _mixed(word: str) -> bool:
    """A capital letter beyond ASCII behind a small letter, as in josŽ."""
    pairs = itertools.pairwise(word)
    return any(a.islower() and b.isupper() and ord(b) > 127 for a, b in pairs)
