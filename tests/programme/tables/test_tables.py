"""Tables as they come: formats, encodings, separators; a list as a workbook."""

import contextlib
import csv
import datetime
import gc
import gzip
import hashlib
import io
import os
import re
import resource
import shutil
import sqlite3
import stat
import subprocess
import warnings
import zipfile

import polars as pl
import pytest
import xlsxwriter
from hypothesis import given, settings
from hypothesis import strategies as st

import prefermab as pm
from prefermab.common import limits
from prefermab.errors import InputWarning, StorageError
from prefermab.programme.planning.printed import write_list
from prefermab.programme.tables import text, workbooks
from prefermab.programme.tables.columns import as_numbers
from prefermab.programme.tables.table import read_table, write_table
from prefermab.programme.tables.text import guess_page
from prefermab.programme.tables.values import mark_formulas, unmark_formulas

ROWS = [("007", "José", 70.5), ("012", "Łucja", None)]
"""The same table in all formats."""

PEOPLE = pl.DataFrame(ROWS, ["id", "name", "weight"], orient="row")


def as_csv(separator: str, decimal: str = ".", end: str = "\n") -> str:
    cells = [("id", "name", "weight"), ("007", "José", f"70{decimal}5"), ("012", "Łucja", "")]
    return end.join(separator.join(row) for row in cells) + end


TEXTS = {
    "commas": as_csv(",").encode(),
    "semicolons": as_csv(";", ",").encode(),
    "semicolons and points": as_csv(";").encode(),
    "tabs": as_csv("\t").encode(),
    "bars": as_csv("|", ",").encode(),
    "byte order mark": as_csv(",").encode("utf-8-sig"),
    "UTF-16": as_csv("\t").encode("utf-16"),
    "UTF-16 big-endian": b"\xfe\xff" + as_csv(",").encode("utf-16-be"),
    "UTF-16 without a mark": as_csv(",").encode("utf-16-le"),
    "UTF-32": as_csv(",").encode("utf-32"),
    "carriage returns": as_csv(",", end="\r").encode(),
    "Windows line ends": as_csv(",", end="\r\n").encode(),
    "Excel's separator line": b"sep=;\n" + as_csv(";", ",").encode(),
    "quotes": b'"id","name","weight"\n"007","Jos\xc3\xa9",70.5\n"012","\xc5\x81ucja",\n',
    "quoted decimal comma": 'id,name,weight\n007,José,"70,5"\n012,Łucja,\n'.encode(),
    "blanks around cells": "id , name ,weight\n 007, José ,70.5 \n012,Łucja ,\n".encode(),
    "accents apart": as_csv(",").replace("é", "e\u0301").encode(),
    "unknown in words": "id,name,weight\n007,José,70.5\n012,Łucja,N/A\n".encode(),
}


@pytest.mark.parametrize("kind", TEXTS)
def test_a_text_file_is_read_as_it_comes(kind, tmp_path):
    (tmp_path / "people.csv").write_bytes(TEXTS[kind])
    found = read_table(tmp_path / "people.csv")
    assert found.columns == PEOPLE.columns
    assert found["id"].to_list() == ["007", "012"]
    assert found["name"].to_list() == ["José", "Łucja"]
    weight = found["weight"]
    if weight.dtype == pl.String:  # a number where it is used as one
        weight = as_numbers(weight, "people")
    assert weight.to_list() == [70.5, None]


def test_a_compressed_file_is_unpacked_up_to_a_limit(tmp_path, monkeypatch):
    (tmp_path / "people.csv.gz").write_bytes(gzip.compress(TEXTS["commas"]))
    assert read_table(tmp_path / "people.csv.gz").equals(PEOPLE)
    monkeypatch.setattr(limits, "SMALL", 10)
    monkeypatch.setattr(limits, "TIMES_ITS_SIZE", 0)
    with pytest.raises(pm.InputError, match="unpacks to more than"):
        read_table(tmp_path / "people.csv.gz")
    (tmp_path / "people.csv.gz").write_bytes(b"\x1f\x8bno")
    with pytest.raises(pm.InputError, match="not a gzip file"):
        read_table(tmp_path / "people.csv.gz")


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("cp1252", "Le café est très bon, déjà vu"),
        ("cp1250", "Łódź, Kraków, Gdańsk i Częstochowa"),
        ("cp1251", "Москва и Казань, Нижний Новгород"),
        ("cp1253", "Αθήνα και Θεσσαλονίκη"),
    ],
)
def test_a_code_page_is_found_out_and_said(page, words, tmp_path):
    (tmp_path / "a.csv").write_bytes(f"id\tname\n1\t{words}\n".encode(page))
    assert guess_page(words.encode(page)) == page
    with pytest.warns(InputWarning, match=f"read as {page}, with words such as"):
        assert read_table(tmp_path / "a.csv")["name"].to_list() == [words]
    with warnings.catch_warnings():  # nothing is guessed where it was named
        warnings.simplefilter("error")
        found = read_table(f"{tmp_path}/a.csv#encoding={page}")
    assert found["name"].to_list() == [words]


def test_sheets_are_found_by_name(tmp_path):
    write_table(PEOPLE, tmp_path / "one.xlsx")
    assert read_table(tmp_path / "one.xlsx").equals(PEOPLE)
    workbooks.write_sheets(tmp_path / "two.xlsx", {"May": PEOPLE, "June": PEOPLE.head(1)})
    assert read_table(f"{tmp_path}/two.xlsx#june").height == 1
    assert read_table(tmp_path / "two.xlsx", sheet="May").equals(PEOPLE)
    with pytest.raises(pm.InputError, match=r"it has the sheets May, June; write which .*#May"):
        read_table(tmp_path / "two.xlsx")
    with pytest.raises(pm.InputError, match="no sheet 'July'; found May, June"):
        read_table(f"{tmp_path}/two.xlsx#July")


def test_the_only_sheet_with_cells_is_taken_and_a_title_above_the_header_is_refused(tmp_path):
    with xlsxwriter.Workbook(tmp_path / "a.xlsx") as book:
        book.add_worksheet("Empty")
        sheet = book.add_worksheet("People")
        sheet.write_row(0, 0, ["id", "state"])
        sheet.write_row(1, 0, [7, "good"])
    assert read_table(tmp_path / "a.xlsx").rows() == [(7, "good")]
    with xlsxwriter.Workbook(tmp_path / "b.xlsx") as book:
        sheet = book.add_worksheet("People")
        sheet.write(0, 0, "People of the north")
        sheet.write_row(2, 0, ["id", "state", "age"])
        sheet.write_row(3, 0, [7, "good", 31])
    with pytest.raises(pm.InputError, match="column 2 has no name in the first row"):
        read_table(tmp_path / "b.xlsx")
    with pytest.raises(pm.InputError, match="the sheet is empty"):
        read_table(f"{tmp_path}/a.xlsx#Empty")


def test_cells_of_a_workbook_keep_their_types(tmp_path):
    days = [datetime.date(2026, 1, 31), None]
    frame = PEOPLE.with_columns(
        day=pl.Series(days), calls=pl.Series([3, None]), code=pl.lit("=1+1")
    )
    write_table(frame, tmp_path / "a.xlsx")
    found = read_table(tmp_path / "a.xlsx")
    assert found["day"].cast(pl.Date).to_list() == days
    assert found.drop("day").equals(frame.drop("day"))


def test_a_file_whose_name_has_a_hash_is_found(tmp_path):
    (tmp_path / "people#2.csv").write_bytes(TEXTS["commas"])
    assert read_table(tmp_path / "people#2.csv").equals(PEOPLE)


@pytest.mark.parametrize(
    "url", ["{}/people.db", "sqlite:///{}/people.db#people", "{}/people.db#people"]
)
def test_a_table_of_sqlite_is_read_and_nothing_else(url, tmp_path):
    with sqlite3.connect(tmp_path / "people.db") as made:
        made.execute("CREATE TABLE people (id TEXT, name TEXT, weight REAL)")
        made.executemany("INSERT INTO people VALUES (?, ?, ?)", ROWS)
    made.close()
    assert read_table(url.format(tmp_path)).equals(PEOPLE)
    with pytest.raises(pm.InputError, match="no table 'visits'; found people"):
        read_table(f"{tmp_path}/people.db#visits")


def test_databases_that_cannot_be_read(tmp_path):
    (tmp_path / "a.db").write_bytes(b"no database" * 100)
    with pytest.raises(pm.InputError, match="the database cannot be read"):
        read_table(tmp_path / "a.db")
    with pytest.raises(pm.InputError, match=r"postgresql://me:\*\*\*@.*: no connection") as error:
        read_table("postgresql://me:secret@127.0.0.1:1/none#visits")
    assert "secret" not in str(error.value)


def test_several_tables_of_a_database_are_named(tmp_path):
    with sqlite3.connect(tmp_path / "a.db") as made:
        made.execute("CREATE TABLE people (id INTEGER, weight REAL)")
        made.execute("CREATE VIEW heavy AS SELECT * FROM people")
    made.close()
    with pytest.raises(
        pm.InputError, match=r"it has the tables heavy, people; write which .* #heavy"
    ):
        read_table(tmp_path / "a.db")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("a.csv#May#June", "expected a sheet or table"),
        ("a.csv#separator=two", "separator must be comma, semicolon, tab, bar"),
        ("a.csv#decimal=x", "decimal must be , or ."),
        ("a.csv#encoding=klingon", "there is no encoding 'klingon'"),
        ("a.csv#encoding=ascii", "the text is not in ascii: byte 3"),
    ],
)
def test_what_stands_behind_a_name_is_checked(address, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("id,é\n1,2\n")
    with pytest.raises(pm.InputError, match=message):
        read_table(address)


def test_a_separator_that_was_named_is_taken(tmp_path):
    (tmp_path / "a.csv").write_text("id,x\n1,2\n")
    assert read_table(f"{tmp_path}/a.csv#separator=bar").columns == ["id,x"]


def test_a_text_in_no_known_encoding_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "guess_page", lambda _: None)
    (tmp_path / "a.csv").write_bytes(b"id\n\xff\x81\n")
    with pytest.raises(pm.InputError, match="cannot be detected; name it after the file"):
        read_table(tmp_path / "a.csv")


def test_archives_are_measured_before_they_are_unpacked(tmp_path, monkeypatch):
    write_table(PEOPLE, tmp_path / "a.xlsx")
    monkeypatch.setattr(limits, "SMALL", 100)
    monkeypatch.setattr(limits, "TIMES_ITS_SIZE", 0)
    with pytest.raises(pm.InputError, match="it unpacks to"):
        read_table(tmp_path / "a.xlsx")
    with zipfile.ZipFile(tmp_path / "b.xlsx", "w") as archive:
        archive.writestr("a.txt", "no workbook")
    with pytest.raises(pm.InputError, match="not an Excel workbook"):
        read_table(tmp_path / "b.xlsx")


# A list as a workbook

LIST = pl.DataFrame(
    {
        "id": ["007", "=1+1", "9", "10"],
        "action": ["call", "call", "none", "none"],
        "cost": [1.0, 1.0, 0.0, 0.0],
        "rank": [1, 2, 3, None],
        "score": [0.5, 0.25, 0.1, None],
        "list": ["chosen", "chosen", "waiting", None],
        "reason": ["moved up by age"] * 4,
        "phone": ["0555", "0556", "0557", "0558"],
        "seen": [datetime.date(2026, 1, day) for day in (5, 6, 7, 8)],
    }
)
FACTS = {"people": 4, "chosen": 2, "budget": 2.5, "gain": None, "by_action": {"call": 2}}


def test_a_list_has_sheets_for_who_is_chosen_who_waits_and_the_summary(tmp_path):
    write_list(LIST, FACTS, tmp_path / "list.xlsx")
    chosen = read_table(f"{tmp_path}/list.xlsx#List")
    assert chosen.columns == ["done", "rank", "id", "action", "phone", "seen", "reason"]
    assert chosen["id"].to_list() == ["007", "=1+1"]
    assert chosen["phone"].to_list() == ["0555", "0556"]
    assert read_table(f"{tmp_path}/list.xlsx#Waiting list")["id"].to_list() == [9]
    summary = dict(read_table(f"{tmp_path}/list.xlsx#Summary").iter_rows())
    assert summary == {"people in the table": 4, "people to act on": 2, "budget": 2.5,
                       "action: call": 2}  # fmt: skip
    assert read_table(f"{tmp_path}/list.xlsx#Everybody").height == 4


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_libreoffice_reads_the_list_with_its_types(tmp_path):
    write_list(LIST, FACTS, tmp_path / "list.xlsx")
    subprocess.run(
        ["soffice", "--headless", f"-env:UserInstallation=file://{tmp_path}/profile",
         "--convert-to", "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,true,false",
         "--outdir", tmp_path, tmp_path / "list.xlsx"],
        check=True, capture_output=True,
    )  # fmt: skip
    rows = (tmp_path / "list.csv").read_text().splitlines()
    assert rows[1] == ",1,007,call,0555,2026-01-05,moved up by age"
    assert rows[2].startswith(",2,=1+1,call")


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "'=quoted", "plain", "-5", "+49 151"]


def test_texts_that_look_like_formulas_are_text_in_a_csv(tmp_path):
    file = tmp_path / "list.csv"
    frame = pl.DataFrame({"id": range(len(FORMULAS)), "=name": FORMULAS})
    write_table(frame, file)
    rows = list(csv.reader(io.StringIO(file.read_text())))
    cells = [cell for row in rows for cell in row if not re.fullmatch(r"[+-]?\d+", cell)]
    assert not [cell for cell in cells if cell[:1] in "=+-@\t\r"]
    assert read_table(file).equals(frame)


SIGNS = ["=1+1", "+1", "-x", "@A1", ";", "\t", "\n", "\r", "'", '"', " ", "a", ",", "＝1"]


@given(st.lists(st.lists(st.sampled_from(SIGNS), min_size=1, max_size=8).map("".join), min_size=1))
@settings(max_examples=300)
def test_no_part_of_a_text_becomes_a_formula_where_a_spreadsheet_splits_it(texts):
    """Many spreadsheets split a CSV file at semicolons or tabs, within quotation marks too."""
    frame = pl.DataFrame({"id": range(len(texts)), "note": texts})
    marked = mark_formulas(frame)
    for cell in marked["note"]:
        for part in re.split(r"[;\t\r\n]", cell)[1:]:
            assert not re.match(r"[\"' ]*[=+\-@＝]", part) or part.startswith("'")
    assert unmark_formulas(marked).equals(frame)


def test_a_formula_after_a_separator_is_text_in_every_list(tmp_path):
    trap = "x;=cmd|' /C calc'!A0"
    frame = pl.DataFrame({"id": [1, 2], f"a{trap}": [trap, "Ana\t@SUM(A1)"], "b": ["x", None]})
    write_table(frame, tmp_path / "list.csv")
    for line in (tmp_path / "list.csv").read_text().splitlines():
        for cell in re.split("[;\t]", line):
            assert cell.lstrip('"')[:1] not in set("=+-@")
    assert read_table(tmp_path / "list.csv").equals(frame)


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
@pytest.mark.parametrize(
    "values", [[[1], [2, 3]], [{"a": 1}, {"a": 2}], [b"x", b"y"]], ids=["lists", "records", "bytes"]
)
def test_nested_columns_are_refused_by_files_that_cannot_hold_them(ending, values, tmp_path):
    frame = LIST.head(2).with_columns(pl.Series("more", values))
    file = tmp_path / f"list.{ending}"
    file.write_text("old")
    for write in (write_table, lambda frame, file: write_list(frame, FACTS, file)):
        with pytest.raises(
            pm.InputError, match=f"the column 'more' holds .*a .{ending} file cannot"
        ):
            write(frame, file)
    assert file.read_text() == "old"
    write_table(frame, tmp_path / "list.parquet")
    assert pl.read_parquet(tmp_path / "list.parquet")["more"].to_list() == values


@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet"])
def test_a_list_can_be_read_by_its_owner_only_and_an_existing_file_keeps_its_mode(ending, tmp_path):
    file = tmp_path / f"list.{ending}"
    before = os.umask(0)
    try:
        for write in (write_table, lambda frame, file: write_list(frame, FACTS, file)):
            file.unlink(missing_ok=True)
            write(LIST, file)
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            file.chmod(0o640)
            write(LIST, file)
            assert stat.S_IMODE(file.stat().st_mode) == 0o640
    finally:
        os.umask(before)


@contextlib.contextmanager
def files_of_at_most(size):
    """As on a disk that is nearly full: no file can become larger than this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("ending", ["csv", "xlsx", "parquet"])
def test_a_file_that_does_not_fit_on_the_disk_is_one_sentence_and_leaves_the_old_one(
    ending, tmp_path, capfd
):
    file = tmp_path / f"list.{ending}"
    file.write_text("old")
    names = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(999)]
    frame = pl.concat([LIST.head(1)] * 999).with_columns(name=pl.Series(names))
    for write in (write_table, lambda frame, file: write_list(frame, FACTS, file)):
        with files_of_at_most(5000), pytest.raises(StorageError) as error:
            write(frame, file)
        assert str(error.value) == f"cannot write {file}: File too large."
    assert file.read_text() == "old"
    assert [one.name for one in tmp_path.iterdir()] == [file.name]
    gc.collect()
    assert capfd.readouterr().err == ""
