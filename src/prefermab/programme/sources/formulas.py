"""Cells of CSV files that a spreadsheet would take for a formula, written as text and read again.

A spreadsheet that opens a CSV file computes cells that begin with = + - @, a tab or a line break;
such a cell can send what stands beside it elsewhere. Before such a text goes an apostrophe, the
sign by which spreadsheets mark text; numbers stay as they are. Reading takes one apostrophe off
where it stands before such a sign, so that a table that was written is read as it was.
"""

import re

import polars as pl

STARTS = "=+\\-@\t\r\n＝＋－＠"
RISKY = f"^'*[{STARTS}]"
"""How texts begin that get an apostrophe, or one more."""

QUOTED = r'^="([^"]*)"$'
"""A text that a spreadsheet is to take as it is."""

MARKED = f"^'+[{STARTS}]"
NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


def mark_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with an apostrophe before every text and name that a spreadsheet would compute.

    >>> import polars as pl
    >>> from prefermab.programme.sources.formulas import mark_formulas, unmark_formulas
    >>> frame = pl.DataFrame({"name": ["=1+1", "-5", "'@x", "Ana"]})
    >>> mark_formulas(frame)["name"].to_list()
    ["'=1+1", '-5', "''@x", 'Ana']
    >>> unmark_formulas(mark_formulas(frame)).equals(frame)
    True
    """
    words = pl.selectors.categorical() | pl.selectors.by_dtype(pl.Enum)
    frame = frame.with_columns(words.cast(pl.String))
    text = pl.selectors.string().as_expr()
    risky = text.str.contains(RISKY) & ~text.str.contains(NUMBER)
    marked = pl.when(risky).then(pl.lit("'") + text).otherwise(text)
    names = {name: f"'{name}" for name in frame.columns if re.match(RISKY, name)}
    return frame.with_columns(marked.name.keep()).rename(names)


def unmark_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """The table without the apostrophes that `mark_formulas` put there, and without the signs of
    `="007"`, by which others keep a spreadsheet from reading a number."""
    text = pl.selectors.string()
    quoted = frame.select(text.str.contains(QUOTED).any())
    frame = frame.with_columns(
        pl.col(name).str.replace(QUOTED, "$1") for name in quoted.columns if quoted[name][0]
    )
    marked = frame.select(text.str.contains(MARKED).any())
    found = [name for name in marked.columns if marked[name][0]]
    plain = [pl.col(name).str.replace(r"^'('*[" + STARTS + "])", "$1") for name in found]
    names = {name: name[1:] for name in frame.columns if re.match(MARKED, name)}
    return frame.with_columns(plain).rename(names)
