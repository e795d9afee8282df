"""Pages to import people and states: first a preview with every wrong row, then the import."""

from typing import Annotated, Any

import polars as pl
from fastapi import APIRouter, File, Form, Request
from starlette.datastructures import UploadFile
from starlette.responses import Response

from prefermab.errors import InputError
from prefermab.programme.tables.columns import source_columns
from prefermab.programme.tables.table import format_people
from prefermab.service.auth.access import Guarded, account_of
from prefermab.service.http.rendering import FormText, page
from prefermab.service.work.desk import desk_of
from prefermab.service.work.uploads import (
    UPLOAD_KINDS,
    UPLOAD_LASTS,
    check_upload,
    drop_upload,
    keep_upload,
    take_upload,
)

router = APIRouter(route_class=Guarded, include_in_schema=False)
PREVIEW_ROWS = 8
"""Rows that a preview shows."""


@router.get("/import", name="import_page")
def import_page(request: Request) -> Response:
    """The form to choose a file."""
    return choose_file(request)


def choose_file(request: Request, done: str | None = None) -> Response:
    """The page with the form; after an import it says what was done."""
    model = desk_of(request).programme().model
    features = list(dict.fromkeys(source_columns(model.feature_names)))
    return page(
        request,
        "import.html",
        kinds=UPLOAD_KINDS,
        states=model.state_names,
        features=features,
        done=done,
    )


@router.post("/import", name="preview_import")
def preview_import(request: Request, file: Annotated[Any, File()], kind: FormText) -> Response:
    """Shows what would be imported and which rows are wrong. The programme does not change."""
    desk, account = desk_of(request), account_of(request)
    if not isinstance(file, UploadFile):
        raise InputError("choose a file first.")
    name, data = file.filename or "table", file.file.read()
    checked = check_upload(desk.programme(), kind, name, data)
    with desk.records.writing() as sql:
        secret = keep_upload(sql, account.name, kind, name, data, desk.clock())
    right = checked.right.height
    return page(
        request, "import_preview.html", kind=kind, what=UPLOAD_KINDS[kind], checked=checked,
        right=right, secret=secret, shown=cells_as_text(checked.frame.head(PREVIEW_ROWS)),
        minutes=UPLOAD_LASTS / 60,
    )  # fmt: skip


@router.post("/import/confirm", name="confirm_import")
def confirm_import(
    request: Request, secret: FormText, rows: Annotated[int, Form()], why: FormText = ""
) -> Response:
    """Imports the valid rows, if there are still as many as in the preview."""
    desk, account = desk_of(request), account_of(request)
    with desk.records.reading() as sql:
        kind, name, data = take_upload(sql, secret, account.name, desk.clock())
    programme = desk.programme(account)
    checked = check_upload(programme, kind, name, data)
    right = checked.right
    if right.height != rows or checked.more_wrong:
        raise InputError(
            f"{checked.where}: {right.height:,} rows can be imported now, not {rows:,}: somebody "
            "changed the programme meanwhile. Choose the file again."
        )
    call = programme.join if kind == "join" else programme.observe
    number = call(right, why=why.strip() or None, where=checked.where)
    with desk.records.writing() as sql:
        drop_upload(sql, account.name)
    done = f"{format_people(number)} joined" if kind == "join" else f"{number:,} states were stored"
    left_out = "" if not checked.wrong else f"; {len(checked.wrong):,} rows were left out"
    return choose_file(request, f"{done}{left_out}.")


def cells_as_text(frame: pl.DataFrame) -> list[list[str]]:
    """The cells of a table as text."""
    return [["" if cell is None else str(cell) for cell in row] for row in frame.rows()]
