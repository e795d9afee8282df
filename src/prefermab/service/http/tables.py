"""Tables in requests and answers: CSV, Parquet, Excel or JSON, by Content-Type and Accept."""

import contextlib
import io
import tempfile
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import polars as pl
from fastapi import Request
from starlette.responses import Response

from prefermab.errors import BusyError, InputError, PrefermabError
from prefermab.programme.tables.apart import read_any, read_apart
from prefermab.programme.tables.table import Source, write_table

MEDIA_TYPES = {
    "application/json": ".json",
    "text/csv": ".csv",
    "application/vnd.apache.parquet": ".parquet",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
}
"""Media types of tables, with their file suffixes. JSON is sent if a request names none."""

MOST_ROWS_SENT, MOST_CELLS_SENT = 5_000_000, 100_000_000
"""Limits for an uploaded table: even a small Parquet file can hold very many rows."""

SMALL_TEXT = {".csv": 1 << 14, ".json": 1 << 18}
"""Bytes of a text that is read without another process. It cannot unpack to more, but each column
of a CSV takes 12 kB of memory, and it may have one for each second byte."""

MOST_MEMORY, MOST_SECONDS = 2 << 30, 60.0
"""Bytes of memory and seconds in which a process must have read an uploaded table."""

READING_UPLOADS, LONGEST_WAIT = threading.BoundedSemaphore(2), 5.0
"""Processes that read uploads at the same time, and seconds to wait for one: requests that wait
keep threads from other requests."""


class KindError(PrefermabError):
    """A table is sent or requested in an unknown format."""


def kind_of(header: str) -> str | None:
    """The file suffix for a media type; None for an unknown one.

    >>> from prefermab.service.http.tables import kind_of
    >>> kind_of("text/csv; charset=utf-8"), kind_of("image/png")
    ('.csv', None)
    """
    return MEDIA_TYPES.get(header.partition(";")[0].strip().lower())


def send_table(request: Request, frame: pl.DataFrame, name: str) -> Response:
    """A table in the requested format: that of `?format=csv`, or else of the Accept header."""
    asked = request.query_params.get("format")
    if asked is not None:
        kind = f".{asked}"
        if kind not in MEDIA_TYPES.values():
            raise KindError(f"format must be json, csv, parquet or xlsx, not '{asked[:40]}'.")
    else:
        kind = preferred_kind(request.headers.get("accept", ""))
    media = next(media for media, ending in MEDIA_TYPES.items() if ending == kind)
    headers = {"vary": "accept"}
    if kind != ".json":
        headers["content-disposition"] = f'attachment; filename="{name}{kind}"'
    return Response(table_as_bytes(frame, kind), media_type=media, headers=headers)


def preferred_kind(accept: str) -> str:
    """The file suffix of the format that an Accept header prefers."""
    ranked = []
    for place, part in enumerate(accept.split(",")):
        media, _, rest = part.partition(";")
        with contextlib.suppress(ValueError):
            weight = float(rest.partition("q=")[2] or 1)
            ranked.append((-weight, place, media.strip().lower()))
    for _, _, media in sorted(ranked):
        if media in MEDIA_TYPES:
            return MEDIA_TYPES[media]
        if media in ("*/*", "application/*", "text/html", ""):
            return ".json"
    raise KindError(f"tables are sent as {', '.join(MEDIA_TYPES)}.")


def table_as_bytes(frame: pl.DataFrame, kind: str) -> bytes:
    """A table as the bytes of a file with this suffix."""
    if kind == ".json":
        data = io.BytesIO()
        frame.write_json(data)
        return data.getvalue()
    with tempfile.TemporaryDirectory(prefix="prefermab-") as folder:
        file = Path(folder) / f"table{kind}"
        write_table(frame, file)
        return file.read_bytes()


@contextlib.asynccontextmanager
async def body_in_file(request: Request) -> AsyncIterator[Path | None]:
    """The body of a request in a temporary file; None if the body is empty. It is written piece by
    piece, and `Guards` limits its length."""
    kind = kind_of(request.headers.get("content-type", ""))
    with tempfile.TemporaryDirectory(prefix="prefermab-") as folder:
        file, length = Path(folder) / f"table{kind or ''}", 0
        with file.open("wb") as out:
            async for piece in request.stream():
                length += len(piece)
                out.write(piece)
        if length and kind is None:
            raise KindError(f"tables are sent as {', '.join(MEDIA_TYPES)}, named by Content-Type.")
        yield file if length else None


def read_sent_table(file: Path, name: str) -> tuple[pl.DataFrame, Source]:
    """Reads an uploaded table: a small text here, all else in a process of its own, which can end
    without harm.

    Args:
        file: The file that holds it.
        name: What messages call it.

    Returns:
        The table, and its name with the number of its first row, for messages.
    """
    is_small = file.stat().st_size <= SMALL_TEXT.get(file.suffix, 0)
    read = read_any if is_small else _read_apart
    try:
        with quiet():
            frame = read(file)
    except InputError as error:
        raise InputError(str(error).replace(str(file), name)) from None
    if frame.height > MOST_ROWS_SENT or frame.height * frame.width > MOST_CELLS_SENT:
        raise InputError(
            f"{name}: the table has {frame.height:,} rows and {frame.width:,} columns; at most "
            f"{MOST_ROWS_SENT:,} rows and {MOST_CELLS_SENT:,} cells are read."
        )
    return frame, Source(name, 2 if file.suffix in (".csv", ".xlsx") else 1)


def _read_apart(file: Path) -> pl.DataFrame:
    """Reads a file in another process, of which only a few run at the same time."""
    if not READING_UPLOADS.acquire(timeout=LONGEST_WAIT):
        raise BusyError("other tables are being read: send this one again in a moment.")
    try:
        return read_apart(file, memory=MOST_MEMORY, seconds=MOST_SECONDS)
    finally:
        READING_UPLOADS.release()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses warnings, which a server has nobody to show to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
