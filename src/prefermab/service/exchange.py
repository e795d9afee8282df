"""Tables in requests and answers: CSV, Parquet, Excel or JSON, by Content-Type and Accept."""

import contextlib
import io
import json
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from fastapi import Request
from starlette.responses import Response

from prefermab.errors import InputError, PrefermabError
from prefermab.programme.tables import Source, read_table, write_table

MEDIA_TYPES = {
    "application/json": ".json",
    "text/csv": ".csv",
    "application/vnd.apache.parquet": ".parquet",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
}
"""Media types of tables, with their file suffixes. JSON is sent if a request names none."""

MOST_ROWS_SENT, MOST_CELLS_SENT = 5_000_000, 100_000_000
"""Limits for an uploaded table: even a small Parquet file can hold very many rows."""

MOST_UNPACKED = 1 << 30
"""Bytes that an uploaded table may take in memory."""


class KindError(PrefermabError):
    """A table is sent or requested in an unknown format."""


def kind_of(header: str) -> str | None:
    """The file suffix for a media type; None for an unknown one.

    >>> from prefermab.service.exchange import kind_of
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
    """Reads an uploaded table.

    Args:
        file: The file that holds it.
        name: What messages call it.

    Returns:
        The table, and its name with the number of its first row, for messages.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            frame = _read_json(file) if file.suffix == ".json" else _read_file(file)
    except InputError as error:
        raise InputError(str(error).replace(str(file), name)) from None
    if frame.estimated_size() > MOST_UNPACKED:
        raise InputError(f"{name}: the table has more than {MOST_UNPACKED >> 20:,} MB in memory.")
    return frame, Source(name, 2 if file.suffix in (".csv", ".xlsx") else 1)


def _read_file(file: Path) -> pl.DataFrame:
    if file.suffix == ".parquet":
        _check_parquet(file)
    return read_table(file)


def _check_parquet(file: Path) -> None:
    """Raises if the file's header states too many rows; no row is unpacked for this."""
    try:
        scanned = pl.scan_parquet(file, glob=False)
        width = len(scanned.collect_schema())
        height = int(scanned.select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError):
        raise InputError(f"{file}: it is not a Parquet file that can be read.") from None
    if height > MOST_ROWS_SENT or height * width > MOST_CELLS_SENT:
        raise InputError(
            f"{file}: the table has {height:,} rows and {width:,} columns; at most "
            f"{MOST_ROWS_SENT:,} rows and {MOST_CELLS_SENT:,} cells are read."
        )


def _read_json(file: Path) -> pl.DataFrame:
    try:
        rows = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        raise InputError(f"{file}: it is not JSON that can be read.") from None
    return frame_of(rows, str(file))


def frame_of(rows: Any, where: str) -> pl.DataFrame:
    """A table from JSON: a list of objects, one for each row."""
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
    try:
        return pl.DataFrame(rows, infer_schema_length=None, strict=True)
    except (pl.exceptions.PolarsError, TypeError, OverflowError):
        raise InputError(f"{where}: a column holds values of different kinds.") from None
    except UnicodeEncodeError:
        raise InputError(f"{where}: a text has a character that cannot be stored.") from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses warnings, which a server has nobody to show to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
