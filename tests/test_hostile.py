"""Files that lie: damaged models, tables that are traps. Each is refused with one sentence."""

import io
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import damage
import prefermab as pm
from prefermab import modelfile, pages, storage
from prefermab.cli.plan import print_list, warn_of_unused
from prefermab.cli.terminal import plain, plain_table
from prefermab.errors import visible
from prefermab.programme.planning.roster import read_roster
from prefermab.programme.sources import cleaning
from prefermab.programme.sources.apart import read_apart
from prefermab.programme.tables import read_table

MODEL = pm.load("armman")
SHIPPED = storage.shipped_models()["armman"]


def forged(folder, change):
    """A copy of a model whose configuration was changed, under a right checksum."""
    shutil.copytree(SHIPPED, folder)
    config = json.loads((folder / "config.json").read_text())
    change(config)
    config["checksum"] = modelfile.config_checksum(config)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def one_sentence(error) -> str:
    text = str(error.value)
    assert "\n" not in text
    assert "Traceback" not in text
    assert len(text) < 600
    return text


CONFIGS = {
    "names are numbers": (lambda c: c.update(state_names=[1, 2, 3]), "got `int`.*state_names"),
    "names are one text": (lambda c: c.update(action_names="none"), "got `str`.*action_names"),
    "an empty name": (lambda c: c["action_names"].__setitem__(1, ""), "action_names"),
    "a name of a megabyte": (lambda c: c["state_names"].__setitem__(0, "x" * 10**6), "state_names"),
    "fewer features than weights": (lambda c: c["feature_names"].pop(), "5 feature_names.*for 6"),
    "more states than weights": (lambda c: c["state_names"].append("x"), "4 state_names.*for 3"),
    "the same name twice": (lambda c: c.update(action_names=["a", "a"]), "has a more than once"),
    "costs too short": (lambda c: c.update(costs=[0.0]), "1 costs.*for 2"),
    "a negative cost": (lambda c: c.update(costs=[0.0, -1.0]), ">= 0.0"),
    "a cost that is no number": (lambda c: c.update(costs=[0.0, float("nan")]), "finite|>= 0.0"),
    "an endless cost": (lambda c: c.update(costs=[0.0, float("inf")]), "finite"),
    "costs in words": (lambda c: c.update(costs=["0", "1"]), "got `str`.*costs"),
    "no budget": (lambda c: c.update(budget=None), "got `null`.*budget"),
    "an endless budget": (lambda c: c.update(budget=float("inf")), "finite"),
    "no arms": (lambda c: c.update(n_arms=0), "n_arms"),
    "half an arm": (lambda c: c.update(n_arms=2.5), "n_arms"),
    "no domain": (lambda c: c.update(domain=[]), "domain"),
    "settings that are a list": (lambda c: c["domain"].update(settings=[1]), "settings"),
    "a shape in words": (lambda c: c["shape"].update(features="6"), "features"),
    "a negative shape": (lambda c: c["shape"].update(features=-1), "features"),
    "tuned is a text": (lambda c: c.update(tuned="yes"), "tuned"),
    "a recipe that is a list": (lambda c: c.update(recipe=["exact"]), "recipe"),
    "no settings of the recipe": (lambda c: c.update(config=None), "config"),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_wrong_configuration_is_refused_when_it_is_loaded(kind, tmp_path):
    change, message = CONFIGS[kind]
    with pytest.raises(pm.InputError, match=message) as error:
        pm.load(forged(tmp_path / "m", change))
    assert "config.json" in one_sentence(error)


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "README.md", "metrics.parquet"]
)
@pytest.mark.parametrize("what", ["device", "pipe", "sparse", "folder"])
def test_a_file_of_another_kind_or_size_is_refused_before_it_is_read(name, what, tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(SHIPPED, folder)
    (folder / name).unlink(missing_ok=True)
    if what == "device":
        (folder / name).symlink_to("/dev/zero")
    elif what == "pipe":
        os.mkfifo(folder / name)
    elif what == "folder":
        (folder / name).mkdir()
    else:
        with (folder / name).open("wb") as file:
            file.truncate(20 << 30)
    with pytest.raises(
        pm.InputError, match=r"device or a pipe|bytes, and at most|folder|no config"
    ) as error:
        pm.load(folder)
    one_sentence(error)


@pytest.mark.parametrize(
    "metrics",
    [
        pl.DataFrame({"text": ["x" * 10**6]}),
        pl.DataFrame({"lists": [[1.0]]}),
        pl.DataFrame({"zeros": np.zeros(1 << 25)}),
    ],
    ids=["texts", "lists", "a bomb"],
)
def test_metrics_that_are_no_metrics_are_refused(metrics, tmp_path):
    shutil.copytree(SHIPPED, tmp_path / "m")
    metrics.write_parquet(tmp_path / "m" / "metrics.parquet")
    with pytest.raises(
        pm.InputError, match=r"something else than the metrics|unpacks to|holds List"
    ) as error:
        pm.load(tmp_path / "m")
    one_sentence(error)


def test_a_card_that_is_no_text_is_shown_as_far_as_it_goes(tmp_path):
    shutil.copytree(SHIPPED, tmp_path / "m")
    (tmp_path / "m" / "README.md").write_bytes(b"caf\xe9")
    assert pm.load(tmp_path / "m").card == "caf�"


# Tables

PEOPLE = pl.DataFrame({"id": ["a", "b"], "state": [0, 1], "feature_0": [0.5, 0.25]})

FRAMES = {
    "lists of states": (PEOPLE.with_columns(state=pl.Series([[0], [1]])), "'state' holds List"),
    "states in a struct": (
        PEOPLE.with_columns(state=pl.struct("state")),
        "'state' holds Struct",
    ),
    "ids in bytes": (PEOPLE.with_columns(id=pl.Series([b"a", b"b"])), "'id' holds Binary"),
    "a feature in lists": (
        PEOPLE.with_columns(feature_0=pl.Series([[0.1], [0.2]])),
        "'feature_0' holds List",
    ),
    "an endless state": (PEOPLE.with_columns(state=pl.Series([0.0, float("inf")])), "state 'inf'"),
    "a huge state": (PEOPLE.with_columns(state=pl.Series([0.0, 1e30])), r"state '1e\+?30'"),
    "a huge feature": (PEOPLE.with_columns(feature_0=pl.Series([1e308, 0.0])), "at most 1e"),
    "an endless feature": (
        PEOPLE.with_columns(feature_0=pl.Series([0.0, float("inf")])),
        "finite numbers",
    ),
    "an id of blanks": (PEOPLE.with_columns(id=pl.Series(["a", " \t"])), "row 2 has no id"),
    "an id of a page": (PEOPLE.with_columns(id=pl.Series(["a", "b" * 5000])), "5,000 characters"),
    "dates for numbers": (
        PEOPLE.with_columns(feature_0=pl.lit("2026-01-05").str.to_date()),
        "holds dates",
    ),
    "two columns of a name": (
        PEOPLE.rename({"id": "ID"}).with_columns(Id=pl.lit(1)),
        "'ID' or 'Id'",
    ),
    "negative costs": (PEOPLE.with_columns(cost_call=pl.lit(-1.0)), "costs of at least 0"),
    "no state": (PEOPLE.with_columns(state=pl.Series([0, None])), "row 2 has no state"),
    "no rows": (PEOPLE.clear(), "there are no rows"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_table_that_is_a_trap_is_refused(kind):
    frame, message = FRAMES[kind]
    with pytest.raises(pm.InputError, match=message) as error:
        read_roster(MODEL, frame, "people.parquet")
    one_sentence(error)


def test_a_quotation_mark_that_is_never_closed_is_found(tmp_path):
    (tmp_path / "a.csv").write_text('id,state\n1,"0\n' + "2,1\n" * 50_000)
    with pytest.raises(pm.InputError, match="row 2 holds a text without an end"):
        read_table(tmp_path / "a.csv")


def test_a_header_of_many_columns_is_read_whole(tmp_path):
    names = [f"{number}" + "_" * 300 for number in range(5000)]
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + ",".join("1" * len(names)) + "\n")
    assert read_table(tmp_path / "a.csv").width == 5000


def test_a_cell_that_swallowed_the_file_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(cleaning, "LONGEST_CELL", 1000)
    (tmp_path / "a.csv").write_text('id,state\n1,"0\n' + "2,1\n" * 1000 + '"')
    with pytest.raises(pm.InputError, match=r"row 2 .* a quotation mark may be missing"):
        read_table(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("a.csv", lambda path: path.symlink_to("/dev/zero"), "a device or a pipe"),
        ("a.csv", os.mkfifo, "a device or a pipe"),
        ("a.parquet", lambda path: path.symlink_to("/dev/zero"), "a device or a pipe"),
        ("a.parquet", pl.DataFrame({"id": [1], "id ": [2]}).write_parquet, "the same name, 'id'"),
        ("a.csv", lambda path: path.symlink_to(path), "cannot be read|no such file"),
        ("a.csv", lambda path: path.write_bytes(b"PAR1" * 9), "Parquet file"),
        ("a.csv", lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0" * 9), "old Excel file"),
        ("a.csv", lambda path: path.write_bytes(b"\0" * 5000), "there are no rows|empty|NUL|null"),
        ("a.csv", lambda path: path.write_bytes(b"\n\n\n"), "the file is empty"),
        ("a.csv", lambda path: path.write_text("id,state,id\n1,2,3\n"), "same name, 'id'"),
        ("a.csv", lambda path: path.write_text("id,state\n1\n"), "row 2 has 1 field"),
        ("a.csv", lambda path: path.write_text("x," * 60_000 + "\n"), "it has 60,001 columns"),
        ("a.csv", lambda path: path.write_text("a,b;c\n1,2;3\n"), "comma or semicolon"),
        ("a.xlsx", lambda path: path.write_text("<html><table>"), "not an Excel workbook"),
        ("a.db", lambda path: path.write_bytes(b"SQLite format 3\0" * 9), "cannot be read"),
    ],
)
def test_a_file_that_is_a_trap_is_refused(name, make, message, tmp_path):
    make(tmp_path / name)
    with pytest.raises(pm.InputError, match=message) as error:
        read_roster(MODEL, read_table(tmp_path / name), name)
    one_sentence(error)


def test_a_million_columns_are_not_all_listed(capsys):
    names = [f"column {number}" for number in range(1_000_000)]
    warn_of_unused(MODEL, pm.Rules(), names)
    assert len(capsys.readouterr().err) < 400


@pytest.mark.parametrize("cost", ["nan", "inf"])
def test_options_that_are_no_numbers_are_refused(cost):
    with pytest.raises(pm.InputError, match="the budget of 'a' must be a finite number"):
        pm.Rules(worker_column="id", budgets={"a": float(cost), "b": 1})
    with pytest.raises(pm.InputError, match="budget must be a finite number"):
        MODEL.plan(PEOPLE, float(cost))


def test_a_cost_that_is_unknown_is_counted():
    frame = PEOPLE.with_columns(cost_call=pl.Series([float("nan"), 2.0]))
    roster = read_roster(MODEL, frame, "people.parquet")
    assert roster.costs[:, 1].tolist() == [1.0, 2.0]
    assert roster.unknown["cost_call"] == 1


# Text from files, as it is shown

TRAP = "Ana[red]\x1b[2J\r\u202e<b>&"


def test_control_characters_and_markup_are_written_out(capsys):
    assert visible(TRAP) == "Ana[red]\\x1b[2J\\r\\u202e<b>&"
    assert str(pm.InputError(TRAP)) == visible(TRAP)
    table = plain_table("id")
    table.add_row(plain(TRAP))
    shown = io.StringIO()
    Console(file=shown, width=80, force_terminal=True).print(table)
    assert visible(TRAP) in shown.getvalue()
    listed = pl.DataFrame(
        {"rank": [1], "id": [TRAP], "action": ["call"], "price": [0.5], "reason": [TRAP],
         "list": ["chosen"]}
    )  # fmt: skip
    print_list(listed)
    assert "\x1b" not in (printed := capsys.readouterr().out)
    assert "[red]" in printed


def test_control_characters_and_markup_are_written_out_in_reports():
    cell = pages.Cell("<script>alert(1)</script>\x1b[2J [x](javascript:alert(1)) \u202e")
    page = pages.as_html(TRAP, [pages.Text(TRAP), pages.Grid([TRAP], [[cell, cell]])])
    assert "<script>" not in page
    assert "<b>" not in page
    assert not {"\x1b", "\u202e"} & set(page)
    assert 'href="javascript' not in page


# Damage and bombs

FINE = {"the same", "one sentence"}


def apart(*given):
    """What the program `damage` prints; it has 1 GB of memory, and fails where it needs more."""
    command = [sys.executable, damage.__file__, *map(str, given)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return json.loads(ran.stdout)


def test_a_flipped_bit_is_noticed_wherever_there_is_a_checksum():
    for kind, found in damage.damaged(320, 1, damage.flip).items():
        assert set(found) <= FINE | ({"different"} if kind in damage.UNSEEN else set()), kind


def test_every_reader_answers_in_one_sentence():
    for kind, found in apart("fuzz", 192, 2).items():
        assert set(found) <= FINE | {"different"}, kind


def test_small_files_that_are_very_large_are_refused(tmp_path):
    damage.write_book(tmp_path / "fine.xlsx", '<row r="2"><c r="A2"><v>7</v></c></row>', blanks=1)
    assert read_table(tmp_path / "fine.xlsx")["id"].to_list() == [7]
    sizes = damage.write_bombs(tmp_path)
    assert max(sizes.values()) < 4 << 20
    assert apart("bombs", tmp_path) == dict.fromkeys(sizes, "one sentence")


def test_a_parquet_file_whose_footer_lies_is_refused(tmp_path):
    damage.write_checked_parquet(tmp_path / "a.parquet")
    assert read_table(tmp_path / "a.parquet")["id"].to_list() == list(range(40))
    for rows in (1, 39, 41, 10**9):
        damage.write_checked_parquet(tmp_path / "a.parquet", rows)
        with pytest.raises(pm.InputError, match="not a Parquet file that can be read"):
            read_table(tmp_path / "a.parquet")


def test_metrics_of_a_training_fit_their_checksum(tmp_path):
    """Metrics of earlier versions have none, and are read as they are."""
    path = tmp_path / "m" / "metrics.parquet"
    path.parent.mkdir()
    damage.copy_model(path)
    path.write_bytes(damage.change(path.read_bytes(), 40, b"?"))
    with pytest.raises(pm.InputError, match=r"metrics\.parquet is damaged: delete it"):
        pm.load(tmp_path / "m")
    pl.DataFrame({"loss": [1.0]}).write_parquet(path)
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    del config["metrics_sha256"]
    config["checksum"] = modelfile.config_checksum(config)
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    history = pm.load(tmp_path / "m").history
    assert history is not None
    assert history.equals(pl.DataFrame({"loss": [1.0]}))


def test_a_table_is_read_in_a_process_with_limits(tmp_path):
    file = tmp_path / "people.csv"
    PEOPLE.write_csv(file)
    assert read_apart(file, memory=damage.MEMORY, seconds=60).equals(read_table(file))
    file.write_bytes("id,name\n1,José\n".encode("cp1252"))
    with pytest.warns(pm.tables.InputWarning, match="its text is read as cp1252"):
        read_apart(file, memory=damage.MEMORY, seconds=60)
    with pytest.raises(pm.InputError, match="cannot be read with 64 MB of memory"):
        read_apart(file, memory=64 << 20, seconds=60)
    with pytest.raises(pm.InputError, match=r"takes longer than 0.02 seconds"):
        read_apart(file, memory=damage.MEMORY, seconds=0.02)
    with pytest.raises(pm.InputError, match="there is no such file") as error:
        read_apart(tmp_path / "none.csv", memory=damage.MEMORY, seconds=60)
    one_sentence(error)
