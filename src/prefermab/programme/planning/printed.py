"""Writes a plan as a workbook: a list to print, the waiting list, a summary, and everybody."""

import datetime
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from prefermab.common.files import write_atomically
from prefermab.programme.tables.table import check_plain_columns, write_table
from prefermab.programme.tables.workbooks import write_book

if TYPE_CHECKING:
    from xlsxwriter.workbook import Workbook
    from xlsxwriter.worksheet import Worksheet

PLANNED = ("id", "action", "cost", "rank", "score", "price", "list", "outside", "probability",
           "reason")  # fmt: skip
"""Columns that a plan adds to those of the table."""

MOST_GIVEN = 5
"""Columns of the table, such as a name or a telephone number, that fit on paper."""

WIDEST = {"reason": 60.0}
WIDEST_OTHER = 28.0
"""The widest columns, in characters; others are as wide as their cells."""

LINE = 14
"""The height of a line in a cell, in points."""

MEANINGS = {
    "people": "people in the table",
    "chosen": "people to act on",
    "budget": "budget",
    "spent": "spent",
    "left": "left",
    "price": "price of a unit of budget",
    "gain": "expected gain",
    "bound": "most that any list could gain",
    "one_more": "gain of one more unit of budget",
    "opted_out": "opted out",
    "excluded": "excluded",
    "resting": "in cooldown",
    "locked": "locked in",
    "incomplete": "with unknown features",
    "explore": "share dealt by lot",
    "explore_cost": "expected gain given up by lots",
    "outside_training": "unlike those that the model was trained on",
}
"""The rows of the summary sheet: a field of `Summary` and its text."""


FIGURES = 4
"""Digits of scores and prices in a list; more say nothing."""


def write_list(frame: pl.DataFrame, facts: Mapping[str, Any], path: Path) -> None:
    """Writes a plan's list: first who is chosen, then the waiting list, then all others. An .xlsx
    file is a workbook to print and to work with. All lists of prefermab are written here, so that
    the same plan gives the same file everywhere.

    Args:
        frame: The list, a row for each person.
        facts: The fields of the plan's summary.
        path: A file whose name ends in .csv, .parquet, .pq or .xlsx; an existing one is replaced.
    """
    given = set(frame.columns)  # a model of one's own may leave some of them out
    if "rank" in given:
        frame = frame.sort("rank", nulls_last=True, maintain_order=True)
    frame = frame.with_columns(
        pl.col(name).round_sig_figs(FIGURES) for name in ("score", "price") if name in given
    )
    if path.suffix.lower() == ".xlsx":
        check_plain_columns(frame, path)
        fill = functools.partial(_fill_workbook, frame=frame, facts=facts)
        write_atomically(path, lambda draft: write_book(draft, fill))
    else:
        write_table(frame, path)


def _fill_workbook(book: "Workbook", frame: pl.DataFrame, facts: Mapping[str, Any]) -> None:
    for name, kind in (("List", "chosen"), ("Waiting list", "waiting")):
        people = frame.filter(pl.col("list") == kind).sort("rank")
        sheet = book.add_worksheet(name)
        _write_people(book, sheet, paper_columns(people), boxes=kind == "chosen")
    _write_summary(book, book.add_worksheet("Summary"), facts)
    _write_people(book, book.add_worksheet("Everybody"), frame, boxes=False)


def paper_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """The printed columns: id, action, the first of the table's columns without fractions, reason.

    >>> import polars as pl
    >>> from prefermab.programme.planning.printed import paper_columns
    >>> paper_columns(pl.DataFrame({"id": [7], "action": ["call"], "rank": [1], "reason": [""],
    ...     "score": [0.5], "phone": ["555"]})).columns
    ['rank', 'id', 'action', 'phone', 'reason']
    """
    fractions = frame.select(pl.selectors.float()).columns
    given = [name for name in frame.columns if name not in (*PLANNED, *fractions)]
    return frame.select("rank", "id", "action", *given[:MOST_GIVEN], "reason")


def _write_people(
    book: "Workbook", sheet: "Worksheet", frame: pl.DataFrame, *, boxes: bool
) -> None:
    """Writes a header that is repeated on each page, and a row for each person."""
    grid = {"border": 1, "border_color": "#BFC5CC", "valign": "top"}
    head = book.add_format({**grid, "bold": True, "bg_color": "#E8ECF0", "text_wrap": True})
    formats = {
        "text": book.add_format({**grid, "num_format": "@", "text_wrap": True}),
        "whole": book.add_format({**grid, "num_format": "0", "align": "left"}),
        "number": book.add_format({**grid, "num_format": "General"}),
        "date": book.add_format({**grid, "num_format": "yyyy-mm-dd", "align": "left"}),
        "time": book.add_format({**grid, "num_format": "yyyy-mm-dd hh:mm", "align": "left"}),
    }
    offset = 1 if boxes else 0
    if boxes:
        sheet.write_string(0, 0, "done", head)
        sheet.set_column(0, 0, 6)
    widths = [_width(values) for values in frame]
    for row, lines in enumerate(_lines(frame, widths), 1):
        sheet.set_row(row, LINE * lines + 4)
    for place, values in enumerate(frame, offset):
        sheet.write_string(0, place, values.name, head)
        sheet.set_column(place, place, widths[place - offset])
        kind, cells = _cells(values)
        for row, cell in enumerate(cells, 1):
            _write_cell(sheet, row, place, cell, formats[kind])
    if boxes:
        for row in range(1, frame.height + 1):
            sheet.write_blank(row, 0, None, formats["text"])
    _set_up_page(sheet, frame.height, frame.width + offset)


def _cells(values: pl.Series) -> tuple[str, list[Any]]:
    """The format of a column, and its cells as values that Excel can hold."""
    kind = values.dtype
    if kind == pl.Date:
        return "date", values.to_list()
    if kind == pl.Datetime:
        return "time", values.dt.replace_time_zone(None).to_list()
    if kind.is_integer() and (values.abs() < 10**15).all():
        return "whole", values.to_list()
    if kind.is_float():
        return "number", values.fill_nan(None).to_list()
    if kind.is_nested() or kind == pl.Binary:
        return "text", [None if cell is None else str(cell) for cell in values.to_list()]
    return "text", values.cast(pl.String).to_list()


def _write_cell(sheet: "Worksheet", row: int, place: int, cell: Any, look: Any) -> None:
    if cell is None:
        sheet.write_blank(row, place, None, look)
    elif isinstance(cell, str):
        sheet.write_string(row, place, cell, look)
    elif isinstance(cell, datetime.date):
        sheet.write_datetime(row, place, cell, look)  # pyright: ignore[reportArgumentType]
    else:
        sheet.write_number(row, place, cell, look)


def _width(values: pl.Series) -> float:
    """The width of a column in characters: enough for nearly all cells; longer texts wrap."""
    longest = max([len(values.name), *(len(str(cell)) for cell in values.head(500).to_list())])
    return min(longest + 2.0, WIDEST.get(values.name, WIDEST_OTHER))


def _lines(frame: pl.DataFrame, widths: list[float]) -> list[int]:
    """The number of lines of each row, which programs that open the file do not compute."""
    if not frame.height:
        return []
    # Lines break between words, so a line holds about a tenth less.
    needed = [
        (pl.col(name).cast(pl.String).str.len_chars().fill_null(0) * 1.1 / width).ceil()
        for name, width in zip(frame.columns, widths, strict=True)
        if frame.schema[name] == pl.String
    ]
    lines = frame.select(pl.max_horizontal(pl.lit(1), *needed).cast(pl.Int64)).to_series()
    return lines.to_list()


def _set_up_page(sheet: "Worksheet", rows: int, columns: int) -> None:
    """Sets A4 landscape and fits the columns to the page; each page has the header and a number."""
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, max(rows, 1), columns - 1)
    sheet.set_landscape()
    sheet.set_paper(9)
    sheet.set_margins(left=0.4, right=0.4, top=0.6, bottom=0.6)
    sheet.repeat_rows(0)
    sheet.fit_to_pages(1, 0)
    sheet.set_header("&L&A")
    sheet.set_footer("&Rpage &P of &N")


def _write_summary(book: "Workbook", sheet: "Worksheet", facts: Mapping[str, Any]) -> None:
    bold, number = book.add_format({"bold": True}), book.add_format({"num_format": "#,##0.####"})
    rows: list[tuple[str, Any]] = [
        (meaning, facts[name]) for name, meaning in MEANINGS.items() if facts.get(name) is not None
    ]
    rows += [(f"action: {name}", times) for name, times in facts.get("by_action", {}).items()]
    rows += [(f"unknown: {name}", times) for name, times in facts.get("unknown", {}).items()]
    rows += [(f"outside of training: {name}", n) for name, n in facts.get("outside", {}).items()]
    rows += [(f"cost of the rule: {name}", cost) for name, cost in facts.get("rules", {}).items()]
    sheet.write_string(0, 0, "what", bold)
    sheet.write_string(0, 1, "number", bold)
    for row, (what, value) in enumerate(rows, 1):
        sheet.write_string(row, 0, what)
        if value is not None:
            sheet.write_number(row, 1, value, number)
    sheet.set_column(0, 0, max(len(what) for what, _ in rows) + 2)
    sheet.set_column(1, 1, 14)
    sheet.set_paper(9)
    sheet.set_header("&L&A")
