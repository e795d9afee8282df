"""Reads tables from Excel workbooks, and writes them."""

import io
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from prefermab.errors import InputError, brief, list_names, optional
from prefermab.programme.tables.address import Address
from prefermab.programme.tables.archives import check_workbook
from prefermab.programme.tables.cleaning import check_column_names, clean, plain_numbers

if TYPE_CHECKING:
    from fastexcel import ExcelReader

BOOK_OPTIONS = {
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "nan_inf_to_errors": True,
    "in_memory": True,
}
"""Options of xlsxwriter with which a text such as =1+1 stays a text."""

UNNAMED = "__UNNAMED__"
"""The beginning of fastexcel's name for a column without a name; a number follows."""


def read_workbook(address: Address, *, as_text: bool = False) -> pl.DataFrame:
    """Reads the only sheet of a workbook, or the named one."""
    fastexcel = optional("fastexcel", "programme", f"{address.shown}: an Excel workbook")
    # It logs a warning for every empty column.
    logging.getLogger("fastexcel").setLevel(logging.ERROR)
    check_workbook(address.path, address.shown)
    try:
        book = fastexcel.read_excel(str(address.path))
        sheet = _choose_sheet(book, address)
        top = book.load_sheet(sheet, header_row=None, n_rows=1).to_polars()
        names = [str(cell or "") for cell in top.row(0)] if top.height else []
        check_column_names(names, f"{address.place}#{sheet}")
        loaded = book.load_sheet(sheet, dtypes="string" if as_text else None)
    except fastexcel.FastExcelError as error:
        why = " ".join(str(error).split())
        raise InputError(
            f"{address.shown}: it is not an Excel workbook that can be read ({brief(why, 120)})."
        ) from None
    frame = loaded.to_polars()
    if frame.width == 0:
        raise InputError(
            f"{address.place}#{sheet}: the sheet is empty; expected a header and rows."
        )
    frame = clean(_without_empty_end(_named_columns(frame, f"{address.place}#{sheet}")))
    return frame if as_text else plain_numbers(_whole_numbers(frame))


def row_below_header(address: Address) -> int:
    """The number in Excel of the row below the header: a sheet may begin with empty rows, which are
    skipped when it is read."""
    fastexcel = optional("fastexcel", "programme", f"{address.shown}: an Excel workbook")
    book = fastexcel.read_excel(str(address.path))
    sheet = _choose_sheet(book, address)
    whole = book.load_sheet(sheet, header_row=None, skip_rows=0, dtypes="string").to_polars()
    filled = whole.select(pl.any_horizontal(pl.all().is_not_null())).to_series()
    return int(filled.arg_max() or 0) + 2


def _choose_sheet(book: "ExcelReader", address: Address) -> str:
    sheets = book.sheet_names
    if address.part is None:
        filled = [name for name in sheets if book.load_sheet(name, n_rows=1).width]
        if len(filled) == 1:
            return filled[0]
        if len(sheets) == 1:
            return sheets[0]
        raise InputError(
            f"{address.place}: it has the sheets {list_names(sheets)}; write which one after the "
            f"file, such as {address.place}#{sheets[0] if sheets else 'Sheet1'}."
        )
    by_key = {name.strip().lower(): name for name in sheets}
    if address.part in sheets:
        return address.part
    if address.part.strip().lower() in by_key:
        return by_key[address.part.strip().lower()]
    raise InputError(
        f"{address.place}: there is no sheet '{address.part}'; found {list_names(sheets)}."
    )


def _named_columns(frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """Drops empty columns without a name. If most other columns have no name either, there is a
    title above the header: then raises an error."""
    nameless = [name for name in frame.columns if name.startswith(UNNAMED)]
    empty = [name for name in nameless if frame[name].null_count() == frame.height]
    if 2 * (len(nameless) - len(empty)) > frame.width - len(empty):
        place = frame.columns.index(next(name for name in nameless if name not in empty)) + 1
        raise InputError(
            f"{where}: column {place} has no name in the first row; delete the rows above the "
            "header."
        )
    return frame.drop(empty)


def _without_empty_end(frame: pl.DataFrame) -> pl.DataFrame:
    """Drops the empty rows below the table, which formatted cells leave in a workbook."""
    filled = frame.select(pl.any_horizontal(pl.all().is_not_null()))
    last = filled.to_series().arg_true()
    return frame.head(int(last[-1]) + 1 if len(last) else 0)


def _whole_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    """Converts columns of whole numbers to integers, since Excel stores all numbers as floats."""
    whole: list[Any] = []
    for values in frame.select(pl.selectors.float()):
        known = values.drop_nulls()
        if len(known) and bool(((known == known.round()) & (known.abs() < 2**53)).all()):
            whole.append(values.cast(pl.Int64))
    return frame.with_columns(whole)


def write_sheets(path: Path, sheets: Mapping[str, pl.DataFrame]) -> None:
    """Writes a workbook with a sheet for each table; texts never become formulas."""

    def fill(book: Any) -> None:
        for name, frame in sheets.items():
            frame.write_excel(book, name, autofit=True, table_style="Table Style Light 1")

    write_book(path, fill)


def write_book(path: Path, fill: Callable[[Any], object]) -> None:
    """Writes a workbook; `fill` gets an empty `xlsxwriter.Workbook` and puts sheets into it."""
    xlsxwriter = optional("xlsxwriter", "programme", f"{path}: an Excel workbook")
    # In memory first: on a full disk, xlsxwriter leaves an open archive that complains later.
    data = io.BytesIO()
    with xlsxwriter.Workbook(data, BOOK_OPTIONS) as book:
        fill(book)
    path.write_bytes(data.getvalue())
