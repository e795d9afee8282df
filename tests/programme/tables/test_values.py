"""Cells as they are written: read where there is one meaning, else refused with the two meanings.

With the files of `test_tables.py` and `test_hostile_files.py`: more than 60 kinds of messy table.
"""

import datetime

import polars as pl
import pytest

import prefermab as pm
from prefermab.programme.logs.reading import read_log
from prefermab.programme.logs.rows import read_times
from prefermab.programme.tables.columns import as_flags, as_labels, as_numbers, check_ids
from prefermab.programme.tables.table import Source, read_table
from prefermab.programme.tables.values import is_number_text, parse_dates

WHERE = Source("people.csv", 2)

NUMBERS = {
    "percent": (["45%", "7 %", None], [0.45, 0.07, None]),
    "thousands with commas": (["1,234,567", "1,234"], [1234567, 1234]),
    "thousands and decimals": (["1,234.5", "12.25"], [1234.5, 12.25]),
    "decimal comma": (["12,5", "1,234"], [12.5, 1.234]),
    "dots between thousands": (["1.234,5", "2.345,25"], [1234.5, 2345.25]),
    "several dots": (["1.234.567", "12"], [1234567, 12]),
    "blanks between thousands": (["1 234", "12 345,5"], [1234, 12345.5]),
    "narrow blanks": (["1\u202f234", "5"], [1234, 5]),
    "apostrophes": (["1'234.5", "7"], [1234.5, 7]),
    "a long minus": (["−5", "3"], [-5, 3]),
    "trailing blanks": (["5 ", " 7"], [5, 7]),
    "exponents": (["1e3", "2.5E-1"], [1000, 0.25]),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_with_one_meaning_are_read(kind):
    written, meant = NUMBERS[kind]
    assert as_numbers(pl.Series("x", written), WHERE).to_list() == pytest.approx(meant)


TWO_MEANINGS = {
    "comma before three digits": (["5", "1,234"], "row 3, which may be 1234 or 1.234"),
    "percent and none": (
        ["45%", "0.4"],
        "'45%' in row 2 and '0.4' without a percent sign in row 3",
    ),
    "commas of both kinds": (
        ["12,5", "1,234,567"],
        "before decimals in row 2 .* thousands in row 3",
    ),
    "a range": (["1", "3+"], r"row 3 holds '3\+'"),
    "a word": (["1", "many"], "row 3 holds 'many'"),
    "a date": (["1", "31.01.2026"], r"row 3 holds '31\.01\.2026'"),
    "infinity": (["1", "inf"], "finite numbers"),
}


@pytest.mark.parametrize("kind", TWO_MEANINGS)
def test_numbers_with_two_meanings_are_refused(kind):
    written, message = TWO_MEANINGS[kind]
    with pytest.raises(pm.InputError, match=f"people.csv: .*'x'.*{message}") as error:
        as_numbers(pl.Series("x", written), WHERE)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("decimal", [",", "."])
def test_what_a_mark_means_can_be_said(decimal, tmp_path):
    (tmp_path / "a.csv").write_text("id;x\n1;1,234\n2;2,500\n")
    found = read_table(f"{tmp_path}/a.csv#decimal={decimal}")["x"].to_list()
    assert found == ([1.234, 2.5] if decimal == "," else [1234, 2500])
    with pytest.raises(pm.InputError, match=r"row 2, which may be 1234 or 1\.234"):
        as_numbers(read_table(tmp_path / "a.csv")["x"], WHERE)


def test_a_dot_beside_decimal_commas_is_asked_about(tmp_path):
    (tmp_path / "a.csv").write_text("id;x;y\n1;0,5;1.234\n")
    with pytest.raises(pm.InputError, match=r"'1\.234', whose dot may mark decimals or thousands"):
        read_table(tmp_path / "a.csv")
    assert read_table(tmp_path / "a.csv", decimal=",")["y"].to_list() == [1234]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["Yes", "no", "Y", "N"], [True, False, True, False]),
        (["TRUE", "False", "T", "F"], [True, False, True, False]),
        (["1", "0", "1.0", None], [True, False, True, False]),
        (["oui", "NON", "vrai", "faux"], [True, False, True, False]),
        (["Sí", "no", "sim", "não"], [True, False, True, False]),
        (["ja", "nein", "ndiyo", "hapana"], [True, False, True, False]),
        (["x", None, "✓", None], [True, False, True, False]),
        ([1.0, 0.0, None, 1.0], [True, False, False, True]),
    ],
)
def test_yes_and_no_have_many_spellings(written, meant):
    assert as_flags(pl.Series("x", written), WHERE, unknown=False).to_list() == meant


def test_what_is_neither_yes_nor_no_is_refused():
    with pytest.raises(pm.InputError, match="'x' must hold true or false, but row 3 holds 'maybe'"):
        as_flags(pl.Series("x", ["yes", "maybe"]), WHERE, unknown=False)


DAY = datetime.date(2026, 1, 31)

DATES = {
    "ISO": ["2026-01-31", "2026-02-01"],
    "slashes, year first": ["2026/01/31", "2026/2/1"],
    "with a time": ["2026-01-31T23:30:00", "2026-02-01 00:15"],
    "with a zone": ["2026-01-31T23:30:00.000+02:00", "2026-02-01T00:00:00Z"],
    "day first": ["31/01/2026", "01/02/2026"],
    "month first": ["01/31/2026", "02/01/2026"],
    "month first with a time": ["1/31/2026 11:30:00 PM", "2/1/2026 12:05:00 AM"],
    "dots": ["31.01.2026", "1.2.2026"],
    "hyphens, day first": ["31-01-2026", "01-02-2026"],
    "month in letters": ["31 Jan 2026", "01 Feb 2026"],
    "month in letters, hyphens": ["31-Jan-2026", "01-Feb-2026"],
    "month in letters first": ["Jan 31, 2026", "Feb 01, 2026"],
    "eight digits": ["20260131", "20260201"],
    "two ways in one column": ["31/01/2026", "2026-02-01"],
}


@pytest.mark.parametrize("kind", DATES)
def test_dates_with_one_meaning_are_read(kind):
    found = parse_dates(pl.Series("day", [*DATES[kind], None]), WHERE, 2)
    assert found.cast(pl.Date).to_list() == [DAY, DAY + datetime.timedelta(days=1), None]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (["03/04/2026"], "row 2, which may be day 3 of month 4 or day 4 of month 3"),
        (["31/01/2026", "01/31/2026"], "the day comes first in row 2 .* and the month in row 3"),
        (["2026-01-31", "31/01/26"], "row 3 holds '31/01/26'; write years with four digits"),
        (["2026-02-30"], "row 2 holds '2026-02-30'"),
        (["2026-01-31", "soon"], "row 3 holds 'soon'"),
    ],
)
def test_dates_with_two_meanings_are_refused(written, message):
    with pytest.raises(pm.InputError, match=message):
        parse_dates(pl.Series("day", written), WHERE, 2)


def test_the_same_day_read_either_way_is_no_question():
    found = parse_dates(pl.Series("day", ["05/05/2026", "31/05/2026"]), WHERE, 2)
    assert found.dt.day().to_list() == [5, 31]
    assert parse_dates(pl.Series("day", ["05/05/2026"]), WHERE).dt.month().to_list() == [5]


def test_eight_digits_in_a_log_are_dates():
    days, dates = read_times(pl.Series("time", [20260131, 20260207]), WHERE)
    assert (days[1] - days[0], dates) == (7, True)
    weeks, dates = read_times(pl.Series("time", ["1", "2"]), WHERE)
    assert (weeks.to_list(), dates) == ([1, 2], False)


def test_one_letter_in_two_encodings_is_one_letter(tmp_path):
    (tmp_path / "a.csv").write_text("id,name\nJos\u00e9,a\nJose\u0301 ,b\n")
    ids = read_table(tmp_path / "a.csv")["id"]
    with pytest.raises(pm.InputError, match="the id José is in row 2 and again in row 3"):
        check_ids(ids, WHERE)


def test_labels_of_numbers_and_ranges():
    assert as_labels(pl.Series([3.0, 2.5, float("nan")])).to_list() == ["3", "2.5", None]
    assert not is_number_text(pl.Series(["0", "1", "3+"]))


def children(values) -> pl.DataFrame:
    """A log in which four people have a number of children."""
    return pl.DataFrame(
        {"id": [n for n in range(4) for _ in range(3)], "time": [1, 2, 3] * 4,
         "state": ["good", "bad", "good"] * 4, "action": [0, 1, 0] * 4,
         "children": [value for value in values for _ in range(3)]}
    )  # fmt: skip


def test_an_open_end_makes_categories_and_number_texts_make_numbers():
    rewards = {"good": 1, "bad": 0}
    log = read_log(children(["0", "1", "2", "3+"]), rewards=rewards)
    assert log.feature_names == ("children=0", "children=1", "children=2", "children=3+")
    log = read_log(children(["1 200", "800,5", "7", "0"]), rewards=rewards)
    assert log.feature_names == ("children",)
    assert sorted(log.features[:, 0]) == [0, 7, 800.5, 1200]
    with pytest.raises(pm.InputError, match=r"row 7, which may be 1200 or 1\.200"):
        read_log(children(["1", "2", "1,200", "0"]), rewards=rewards)


def test_long_codes_and_codes_with_zeros_stay_as_they_are(tmp_path):
    (tmp_path / "a.csv").write_text("id,code,zip\n1,12345678901234567890,01234\n2,5,99999\n")
    found = read_table(tmp_path / "a.csv")
    assert found["code"].to_list() == ["12345678901234567890", "5"]
    assert found["zip"].to_list() == ["01234", "99999"]
