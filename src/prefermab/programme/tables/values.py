"""Reads text cells as numbers and dates, and marks cells that a spreadsheet takes for formulas.

A cell with one meaning is read; a cell with two is refused with an error that names both. The rest
of the column helps: `12,5` in one row shows that `1,234` in another is a little more than one, and
`31/01/2026` shows that `03/04/2026` is in April.

A spreadsheet that opens a CSV file runs cells that begin with = + - @, a tab or a line break as
formulas, and a formula can send the cells beside it to somebody else. So `mark_formulas` puts an
apostrophe before such texts, the sign by which spreadsheets mark text; numbers stay as they are. In
many countries a spreadsheet also splits the text `x;=1+1` at the semicolon, or at a tab or line
break: there an apostrophe comes before the second part. `unmark_formulas` removes one apostrophe
before such signs, so that what is read is what was written.
"""

import re

import polars as pl

from prefermab.errors import EXACT, InputError, brief, check_exact

THOUSANDS_MARKS = "[ \u00a0\u2009\u202f'’]"
"""Marks that can only separate thousands."""

NUMBER = (
    rf"^[+\-−]?(?:[0-9]+|[0-9]{{1,3}}(?:(?:{THOUSANDS_MARKS}|[.,])[0-9]{{3}})+)?(?:[.,][0-9]+|[.,])?"
    r"(?:[eE][+-]?[0-9]+)?\s?%?$"
)
AMBIGUOUS = r"^[+-]?[1-9][0-9]{0,2}%s[0-9]{3}$"
"""One mark with three digits after it, which may be decimals or thousands."""

OPEN_ENDED = r"^(?:[<>≤≥]=?\s?[0-9.]+|[0-9.]+\s?\+)$"
"""Such as 3+ or <5: a range, and not a number."""

SLASHED = r"^([0-9]{1,2})[/.\-]([0-9]{1,2})[/.\-]([0-9]{4})(?:[ T].*)?$"
NAMED_MONTHS = ("%d %b %Y", "%d-%b-%Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%d%b%Y")
CLOCKS = ("", " %H:%M:%S", " %H:%M", " %I:%M:%S %p", " %I:%M %p")

FORMULA_STARTS = "=+\\-@\t\r\n＝＋－＠"
LIKE_FORMULA = f"^'*[{FORMULA_STARTS}]"
"""The beginning of texts that get an apostrophe, or one more."""

SIGNS_AFTER_SEPARATOR = "[\"' ]*[=+\\-@＝＋－＠]"
PART_LIKE_FORMULA = f"([;\t\r\n])({SIGNS_AFTER_SEPARATOR})"
MARKED_PART = f"([;\t\r\n])'({SIGNS_AFTER_SEPARATOR})"
"""A separator within a text, then the beginning of a formula: both without and with its mark."""

QUOTED_TEXT = r'^="([^"]*)"$'
"""A text, such as ="007", that a spreadsheet must not read as a number."""

MARKED_FORMULA = f"^'+[{FORMULA_STARTS}]"
FIRST_MARK = f"^'('*[{FORMULA_STARTS}])"
PLAIN_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$"


def is_number_text(values: pl.Series) -> bool:
    """Whether every known cell of a column of text is written as a number.

    >>> import polars as pl
    >>> from prefermab.programme.tables.values import is_number_text
    >>> [is_number_text(pl.Series([text])) for text in ("1 234,5", "45 %", "31.01.2026", "3+")]
    [True, True, False, False]
    """
    known = values.drop_nulls()
    # A few cells are enough to rule out most columns.
    return len(known) > 0 and _all_numbers(known.head(100)) and _all_numbers(known)


def _all_numbers(known: pl.Series) -> bool:
    text = known.str.strip_chars()
    return bool((text.str.contains("[0-9]") & text.str.contains(NUMBER)).all())


def number_meaning(values: pl.Series) -> str:
    """The meaning of the commas and dots in a column of numbers.

    It is "plain", "comma" (before decimals), "thousands" (commas between them), "comma or
    thousands" or "dot or thousands" (the column does not show which), or "both" (a contradiction).

    >>> import polars as pl
    >>> from prefermab.programme.tables.values import number_meaning
    >>> number_meaning(pl.Series(["1,234", "12,5"])), number_meaning(pl.Series(["1,234"]))
    ('comma', 'comma or thousands')
    """
    text = _strip_marks(values).drop_nulls()
    commas = text.str.contains(",", literal=True)
    if not commas.any():
        dots = text.str.contains(".", literal=True)
        if not dots.any():
            return "plain"
        several = (text.str.count_matches(".", literal=True) > 1).any()
        unclear = bool((text.str.contains(AMBIGUOUS % r"\.") | ~dots).all())
        return "dot or thousands" if several or unclear else "plain"
    decimal, thousands = _comma_evidence(text)
    if decimal.any() and thousands.any():
        return "both"
    if decimal.any():
        return "comma"
    return "thousands" if thousands.any() else "comma or thousands"


def parse_numbers(
    values: pl.Series, where: str, decimal: str | None = None, first: int = 1
) -> pl.Series:
    """A column of text as numbers; `45%` is 0.45.

    Args:
        values: Texts that `is_number_text` accepts.
        where: The name of the table in error messages.
        decimal: The decimal mark, if it is known.
        first: The number of the first row in messages.

    Returns:
        Floating-point numbers, null where a cell is empty.

    >>> import polars as pl
    >>> from prefermab.programme.tables.values import parse_numbers
    >>> parse_numbers(pl.Series("share", ["1 234,5", None, "0,25"]), "people.csv").to_list()
    [1234.5, None, 0.25]
    """
    _check_percents(values, where, first)
    meaning, text = number_meaning(values), _strip_marks(values)
    if decimal is None:
        _check_meaning(values, text, meaning, where, first)
    comma = decimal == "," or (decimal is None and meaning == "comma")
    drop, keep = (".", ",") if comma else (",", ".")
    plain = text.str.replace_all(drop, "", literal=True).str.replace(keep, ".", literal=True)
    if meaning == "dot or thousands" and decimal is None:
        several = text.str.count_matches(".", literal=True) > 1
        plain = text.str.replace_all(".", "", literal=True) if several.any() else text
    numbers = plain.cast(pl.Float64, strict=False)
    wrong = text.is_not_null() & numbers.is_null()
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        raise InputError(
            f"{where}: the column '{values.name}' must hold numbers, but row {row + first} holds "
            f"'{brief(values[row])}'."
        )
    for row in (numbers.abs() >= EXACT).fill_null(False).arg_true():
        what = f"{where}: the column '{values.name}' in row {row + first}"
        check_exact(plain[row], numbers[row], what)
    percents = values.str.ends_with("%")
    return (numbers / 100).alias(values.name) if percents.any() else numbers.alias(values.name)


def _strip_marks(values: pl.Series) -> pl.Series:
    """Removes percent signs, blanks and thousands marks; makes a minus sign an ASCII one."""
    text = values.str.strip_chars("% \u00a0\t").str.replace("−", "-", literal=True)
    return text.str.replace_all(THOUSANDS_MARKS, "")


def _comma_evidence(text: pl.Series) -> tuple[pl.Series, pl.Series]:
    """The rows whose comma must stand before decimals, and those where it must mark thousands."""
    dot, comma = text.str.find(".", literal=True), text.str.find(",", literal=True)
    several = text.str.count_matches(",", literal=True) > 1
    both = dot.is_not_null() & comma.is_not_null()
    one = comma.is_not_null() & ~several & dot.is_null()
    decimal = (both & (comma > dot) & ~several) | (one & ~text.str.contains(AMBIGUOUS % ","))
    thousands = several | (both & (dot > comma))
    return decimal.fill_null(False), thousands.fill_null(False)


def _check_percents(values: pl.Series, where: str, first: int) -> None:
    """Raises an error if only some cells have a percent sign."""
    has = values.str.strip_chars().str.ends_with("%").fill_null(False)
    lacks = values.is_not_null() & ~has
    if has.any() and lacks.any():
        with_it, without = int(has.arg_max() or 0), int(lacks.arg_max() or 0)
        raise InputError(
            f"{where}: the column '{values.name}' holds '{brief(values[with_it])}' in row "
            f"{with_it + first} and '{brief(values[without])}' without a percent sign in row "
            f"{without + first}; write all cells with a percent sign, or none."
        )


def _check_meaning(
    values: pl.Series, text: pl.Series, meaning: str, where: str, first: int
) -> None:
    if meaning == "comma or thousands":
        commas = text.str.contains(",", literal=True).fill_null(False)
        row = int(commas.arg_max() or 0)
        cell = text[row]
        raise InputError(
            f"{where}: the column '{values.name}' holds '{brief(values[row])}' in row "
            f"{row + first}, which may be {cell.replace(',', '')} or {cell.replace(',', '.')}; "
            "write #decimal=. or #decimal=, after the file's name."
        )
    if meaning == "both":
        decimal, thousands = _comma_evidence(text)
        one, other = int(decimal.arg_max() or 0), int(thousands.arg_max() or 0)
        raise InputError(
            f"{where}: in the column '{values.name}' a comma stands before decimals in row "
            f"{one + first} ('{brief(values[one])}') and between thousands in row {other + first} "
            f"('{brief(values[other])}'); write all in one way."
        )


def parse_dates(
    values: pl.Series, where: str, first: int = 1, form: str | None = None
) -> pl.Series:
    """A column of text as dates and times of day.

    Args:
        values: Texts such as 2026-01-31, 31/01/2026, 31 Jan 2026 or 2026-01-31T09:30:00Z.
        where: The name of the table in error messages.
        first: The number of the first row in messages.
        form: The format of the dates, such as %d/%m/%Y, if it is known.

    Returns:
        Dates and times without a time zone, null where a cell is empty.

    >>> import polars as pl
    >>> from prefermab.programme.tables.values import parse_dates
    >>> days = pl.Series("day", ["31/01/2026", "03/04/2026"])
    >>> parse_dates(days, "visits.csv").dt.month().to_list()
    [1, 4]
    """
    text = values.str.strip_chars()
    text = text.set(text == "", None)
    if form is not None:
        found = _parse_formats(text, (form,))
    else:
        found = _parse_iso(text)
        if (found.is_null() & text.is_not_null()).any():
            found = found.fill_null(_parse_slashed(values, text, where, first))
        if (found.is_null() & text.is_not_null()).any():
            found = found.fill_null(_parse_formats(text, NAMED_MONTHS))
    wrong = text.is_not_null() & found.is_null()
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        expected = f"dates as {form}" if form else "dates such as 2026-01-31"
        short = re.match(r"^\d{1,2}[/.\-]\d{1,2}[/.\-]\d{2}(?!\d)", text[row])
        years = "; write years with four digits" if short else ""
        raise InputError(
            f"{where}: the column '{values.name}' must hold {expected}, but row {row + first} "
            f"holds '{brief(values[row])}'{years}."
        )
    return found.alias(values.name)


def _parse_iso(text: pl.Series) -> pl.Series:
    """Reads 2026-01-31, 2026/01/31 or 20260131, with or without a time of day. The time zone is
    dropped, so that the local date stays as it is written."""
    if text.head(100).str.contains(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$").all():
        return _parse_first_fitting(text, ("%Y-%m-%d",))
    day = text.str.replace(r"^([0-9]{4})/([0-9]{1,2})/", "${1}-${2}-")
    day = day.str.replace(r"^([0-9]{4})([0-9]{2})([0-9]{2})$", "${1}-${2}-${3}")
    day = day.str.replace(r"\s*(?:Z|UTC|[+-][0-9]{2}:?[0-9]{2})$", "")
    clock = day.str.replace("T", " ", literal=True)
    forms = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M")
    iso = clock.str.contains(r"^[0-9]{4}-[0-9]{1,2}-[0-9]")
    return _parse_first_fitting(clock.set(~iso, None), forms)


def _parse_slashed(values: pl.Series, text: pl.Series, where: str, first: int) -> pl.Series:
    """Reads 31/01/2026 or 01/31/2026; the column must show which of them it uses."""
    day = text.str.extract(SLASHED, 1).cast(pl.Int64)
    month = text.str.extract(SLASHED, 2).cast(pl.Int64)
    if not day.is_not_null().any():
        return pl.Series(values.name, [None] * len(text), pl.Datetime("us"))
    by_day, by_month = (day > 12).fill_null(False), (month > 12).fill_null(False)
    if by_day.any() and by_month.any():
        one, other = int(by_day.arg_max() or 0), int(by_month.arg_max() or 0)
        raise InputError(
            f"{where}: in the column '{values.name}' the day comes first in row {one + first} "
            f"('{brief(values[one])}') and the month in row {other + first} "
            f"('{brief(values[other])}'); write all dates in one way."
        )
    unclear = (day != month).fill_null(False)
    if not by_day.any() and not by_month.any() and unclear.any():
        row = int(unclear.arg_max() or 0)
        raise InputError(
            f"{where}: the column '{values.name}' holds '{brief(values[row])}' in row "
            f"{row + first}, which may be day {day[row]} of month {month[row]} or day "
            f"{month[row]} of month {day[row]}; write dates as 2026-01-31."
        )
    form = "%m/%d/%Y" if by_month.any() else "%d/%m/%Y"
    return _parse_formats(
        text.str.replace_all(r"^([0-9]+)[.\-]([0-9]+)[.\-]", "${1}/${2}/"), (form,)
    )


def _parse_formats(text: pl.Series, forms: tuple[str, ...]) -> pl.Series:
    return _parse_first_fitting(text, tuple(form + clock for form in forms for clock in CLOCKS))


def _parse_first_fitting(text: pl.Series, forms: tuple[str, ...]) -> pl.Series:
    """Reads each cell by the first format that fits it."""
    found = pl.Series(text.name, [None] * len(text), pl.Datetime("us"))
    for form in forms:
        open = text.is_not_null() & found.is_null()
        if not open.any():
            break
        if "%H" in form or "%I" in form:
            more = text.str.to_datetime(form, strict=False, time_unit="us")
        else:
            more = text.str.to_date(form, strict=False).cast(pl.Datetime("us"))
        found = found.fill_null(more)
    return found


def mark_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with an apostrophe before every text and column name that looks like a formula.

    >>> import polars as pl
    >>> from prefermab.programme.tables.values import mark_formulas, unmark_formulas
    >>> frame = pl.DataFrame({"name": ["=1+1", "-5", "'@x", "Ana", "Ana;=1+1"]})
    >>> mark_formulas(frame)["name"].to_list()
    ["'=1+1", '-5', "''@x", 'Ana', "Ana;'=1+1"]
    >>> unmark_formulas(mark_formulas(frame)).equals(frame)
    True
    """
    words = pl.selectors.categorical() | pl.selectors.by_dtype(pl.Enum)
    frame = frame.with_columns(words.cast(pl.String))
    text = pl.selectors.string().as_expr()
    parts = text.str.replace_all(PART_LIKE_FORMULA, "${1}'${2}")
    risky = text.str.contains(LIKE_FORMULA) & ~text.str.contains(PLAIN_NUMBER)
    marked = pl.when(risky).then(pl.lit("'") + parts).otherwise(parts)
    names = {name: _mark_name(name) for name in frame.columns}
    return frame.with_columns(marked.name.keep()).rename(names)


def _mark_name(name: str) -> str:
    marked = re.sub(PART_LIKE_FORMULA, r"\1'\2", name)
    return f"'{marked}" if re.match(LIKE_FORMULA, name) else marked


def unmark_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """The table without the apostrophes of `mark_formulas`, and with `="007"` as the text 007.

    Other programs write `="007"` so that a spreadsheet does not read a number.
    """
    text = pl.selectors.string()
    quoted = frame.select(text.str.contains(QUOTED_TEXT).any())
    frame = frame.with_columns(
        pl.col(name).str.replace(QUOTED_TEXT, "$1") for name in quoted.columns if quoted[name][0]
    )
    either = f"{MARKED_FORMULA}|{MARKED_PART}"
    marked = frame.select(text.str.contains(either).any())
    plain = [
        pl.col(name).str.replace(FIRST_MARK, "$1").str.replace_all(MARKED_PART, "${1}${2}")
        for name in marked.columns
        if marked[name][0]
    ]
    names = {
        name: re.sub(MARKED_PART, r"\1\2", re.sub(FIRST_MARK, r"\1", name))
        for name in frame.columns
        if re.search(either, name)
    }
    return frame.with_columns(plain).rename(names)
