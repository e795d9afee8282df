"""Files that lie: damaged models, tables that are traps. Each is refused with one sentence."""

import contextlib
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from safetensors.numpy import save as pack

import damage
import prefermab as pm
from prefermab.cli import dispatch
from prefermab.cli.plan import print_list, warn_of_unused
from prefermab.cli.terminal import plain, plain_table
from prefermab.common import pages
from prefermab.errors import visible
from prefermab.models import loading, saving
from prefermab.paper.tables import Setting
from prefermab.programme.planning.roster import read_roster
from prefermab.programme.store import queries
from prefermab.programme.store.reader import MODEL_PLACE
from prefermab.programme.tables import cleaning
from prefermab.programme.tables.apart import read_apart
from prefermab.programme.tables.table import read_table

MODEL = pm.load("armman")
SHIPPED = loading.shipped_models()["armman"]


def forged(folder, change):
    """A copy of a model whose configuration was changed, under a right checksum."""
    shutil.copytree(SHIPPED, folder)
    config = json.loads((folder / "config.json").read_text())
    change(config)
    config["checksum"] = saving.config_checksum(config)
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
    with pytest.raises(pm.InputError, match="budgets of 'a' must be a finite number"):
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


def with_state(given, kind=pl.Float64):
    states = pl.Series("state", [1, given, 0], dtype=kind, strict=False)
    return pl.DataFrame({"id": [1, 2, 3], "state": states, "feature_0": [0.1, 0.2, 0.3]})


def plan_folder_of(people, folder):
    folder.mkdir()
    people.write_parquet(folder / "people.parquet")
    return pm.plan_folder("armman", folder, folder.with_name(f"{folder.name}-plan"), 2)


READERS_OF_STATES = {
    "plan": lambda people, _: MODEL.plan(people, 2),
    "what-if": lambda people, _: MODEL.what_if(people, [1, 2]),
    "file": lambda people, folder: (
        people.write_parquet(folder / "people.parquet")
        or MODEL.plan(read_table(folder / "people.parquet"), 2)
    ),
    "folder": lambda people, folder: plan_folder_of(people, folder / "people"),
    "continuous": lambda people, _: pm.load("continuous-synthetic").plan(people, 2),
}


@pytest.mark.parametrize("reader", READERS_OF_STATES)
def test_a_state_that_is_nan_is_refused_as_an_empty_one_is(reader, tmp_path):
    read = READERS_OF_STATES[reader]
    texts = [] if reader == "continuous" else [("", pl.String), (" ", pl.String)]
    given = [(float("nan"), pl.Float64), (float("nan"), pl.Float32), (None, pl.Float64), *texts]
    for number, (state, kind) in enumerate(given):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(pm.InputError, match="row 2 has no state"):
            read(with_state(state, kind), tmp_path / str(number))
    for number, state in enumerate((float("inf"), float("-inf"), -1, 1e300, 1.5), len(given)):
        (tmp_path / str(number)).mkdir()
        with pytest.raises(pm.InputError, match=r"state '|finite numbers") as error:
            read(with_state(state), tmp_path / str(number))
        one_sentence(error)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_programme_takes_a_state_that_is_nan_as_not_seen(kind, tmp_path, request):
    place = str(tmp_path / "calls.db")
    if kind == "postgresql":
        place = f"{request.getfixturevalue('server').address}#p{uuid.uuid4().hex[:20]}"
    with pm.Programme(place, MODEL) as programme:
        for wrong in (float("inf"), -1, 0.5):
            with pytest.raises(pm.InputError, match="row 2, id 2, has the state"):
                programme.join(with_state(wrong))
        programme.join(with_state(float("nan")))
        assert programme.roster()["state"].to_list()[1] is None
        with pytest.raises(pm.InputError, match="the state of 2 was never observed"):
            programme.plan(1)
        for wrong in (float("inf"), -1, 0.5):
            with pytest.raises(pm.InputError, match="row 2, id 2, has the state"):
                programme.observe(with_state(wrong).select("id", "state"))
        assert programme.observe(with_state(float("nan")).select("id", "state")) == 2
        with pytest.raises(pm.InputError, match="the state of 2 was never observed"):
            programme.plan(1)


def test_arrays_of_numbers_that_are_none_are_refused():
    features, unseen = np.full((2, 6), 0.5), pm.load("armman-unseen")
    for wrong in (float("nan"), float("inf"), -1, 0.5, 1e300, "x", 10**400):
        with pytest.raises(pm.InputError, match=r"^states must"):
            MODEL.act([0, wrong], features, 1)
        with pytest.raises(pm.InputError, match=r"^costs must|^each cost must"):
            MODEL.act([0, 0], features, 1, costs=[0, "y" if wrong == 0.5 else wrong])
        with pytest.raises(pm.InputError, match=r"^rounds_since_seen must"):
            unseen.act([0, 0], features, 1, rounds_since_seen=[0, wrong])
        if wrong == wrong:  # an unknown action is the usual one
            with pytest.raises(pm.InputError, match=r"^action_seen must"):
                unseen.act([0, 0], features, 1, action_seen=[0, wrong])


HUGE = (1e19, 1e25, 1e30, 1e38, 1e39, 1e300, float("inf"), float("nan"), 1e-45, 1e-310, -1e300)


@pytest.mark.parametrize("column", ["feature_0", "cost_call", "rounds_since_action", "opt_in"])
def test_huge_numbers_lead_to_a_plan_or_a_sentence_without_a_warning(column, tmp_path):
    """Warnings are errors here, as everywhere in these tests."""
    rules = pm.Rules(cooldown=1, last_column="feature_0" if column != "feature_0" else column)
    for number, huge in enumerate(HUGE):
        people = with_state(1).with_columns(pl.Series(column, [huge, 1.0, 1.0]))
        with contextlib.suppress(pm.InputError):
            plan = MODEL.plan(people, 2, rules=rules)
            assert np.isfinite(plan.frame["score"].to_numpy()).all()
        with contextlib.suppress(pm.InputError):
            MODEL.what_if(people, [1, 2])
        with (
            contextlib.suppress(pm.InputError),
            pm.Programme(tmp_path / f"{number}.db", MODEL) as it,
        ):
            it.join(people)
            it.plan(2)
        features = np.array([[huge] * 6, [0.5] * 6])
        with contextlib.suppress(pm.InputError):
            MODEL.act([0, 0], features, 1)


# Ids


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "a "), ("a", "\ta"), ("Jos\u00e9", "Jose\u0301"), ("a", "a\u200b"), ("a", "\ufeffa")],
)
def test_ids_are_read_by_one_rule_everywhere(one, other, tmp_path):
    people = with_state(1).with_columns(id=pl.Series([other, "b", "c"]))
    twice = with_state(1).with_columns(id=pl.Series([one, other, "c"]))
    plans = {
        "frame": lambda people: MODEL.plan(people, 2).frame,
        "file": lambda people: (
            people.write_parquet(tmp_path / "people.parquet")
            or MODEL.plan(read_table(tmp_path / "people.parquet"), 2).frame
        ),
        "text": lambda people: (
            people.write_csv(tmp_path / "people.csv")
            or MODEL.plan(read_table(tmp_path / "people.csv"), 2).frame
        ),
    }
    for read in plans.values():
        assert set(read(people)["id"]) == {one, "b", "c"}
        with pytest.raises(pm.InputError, match=f"the id {one} is in row"):
            read(twice)
    locked = MODEL.plan(people, 1, rules=pm.Rules(lock_ids=[other])).frame
    assert locked.filter(pl.col("id") == one)["action"].to_list() == ["call"]
    folder = tmp_path / "folder"
    folder.mkdir()
    twice.write_parquet(folder / "people.parquet")
    with pytest.raises(pm.InputError, match=f"the id {one} "):
        pm.plan_folder("armman", folder, tmp_path / "plan", 2)
    with pm.Programme(tmp_path / "calls.db", MODEL) as programme:
        programme.join(people)
        assert programme.roster()["id"].to_list() == [one, "b", "c"]
        with pytest.raises(pm.InputError, match="in the programme already"):
            programme.join(people.with_columns(id=pl.Series([one, "d", "e"])))
        assert programme.observe(pl.DataFrame({"id": [other], "state": [0]})) == 1
        programme.plan(2)
        programme.record(pl.DataFrame({"id": [other, "b", "c"], "action": ["none"] * 3}))
        assert programme.leave([other]) == 1


# Names of files with code, in everything that is read


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A Python file that leaves a mark if it is executed or imported, and the ways to name it."""
    mark, file = tmp_path / "executed", tmp_path / "evil.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    code = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\n"
    for one in (file, tmp_path / "..\\evil.py", tmp_path / "C:evil.py"):
        one.write_text(code)
    names = [
        "evil.py", "evil.py:Evil", "./evil.py:Evil", f"{tmp_path}/../{tmp_path.name}/evil.py",
        str(file), f"{file}:Evil", f"/{file}", "..\\evil.py:Evil", "C:evil.py", "evil", "evil:Evil",
        "evil.Evil", f"file://{file}", f"http://127.0.0.1:9{file}", f"\\\\127.0.0.1{file}",
        "x" * 300 + ".py", "evil.py\0",
    ]  # fmt: skip
    for name in ("evil.py", "..\\evil.py:Evil"):  # the trap works
        with pytest.raises(pm.InputError, match="defines no domain"):
            pm.domains.get(name)
        assert mark.exists()
        mark.unlink()
    monkeypatch.delitem(sys.modules, "prefermab_own_evil")
    yield SimpleNamespace(names=names, file=file, folder=tmp_path)
    assert not mark.exists()
    assert "evil" not in sys.modules


def texts_in(value, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every text in a JSON value."""
    if isinstance(value, str):
        yield path
    for key, inner in (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    ):
        yield from texts_in(inner, (*path, key))


def put(value, path, new):
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


def run_or_refuse(*words):
    """A command that may fail with a sentence only."""
    with contextlib.suppress(pm.PrefermabError):
        dispatch([str(word) for word in words])


@pytest.mark.parametrize("name", ["armman-paper", "armman-unseen"])
def test_no_text_of_a_models_folder_is_executed(name, trap):
    shipped = loading.shipped_models()[name]
    config = json.loads((shipped / "config.json").read_text())
    places = [
        place for place in texts_in(config) if place[-1] not in ("checksum", "weights_sha256")
    ]
    assert ("domain", "name") in places
    assert ("domain", "settings", "feature_map", "kind") in places
    shutil.copytree(shipped, "model")
    for number, (place, evil) in enumerate(
        [(("domain", "name"), evil) for evil in trap.names]
        + [(place, trap.names[i % 7]) for i, place in enumerate(places)]
    ):
        changed = json.loads(json.dumps(config))
        put(changed, place, evil)
        changed["checksum"] = saving.config_checksum(changed)
        (trap.folder / "model" / "config.json").write_text(json.dumps(changed))
        with contextlib.suppress(pm.InputError):
            pm.load("model")
        if number < len(trap.names):
            with pytest.raises(pm.InputError, match="unknown domain") as error:
                pm.load("model")
            one_sentence(error)


def test_no_command_executes_what_a_model_names(trap):
    forged(trap.folder / "model", lambda config: config["domain"].update(name="evil.py:Evil"))
    PEOPLE.write_csv("people.csv")
    for words in (
        ["models", "model"],
        ["plan", "model", "--arms", "people.csv", "--budget", 1, "--out", "x.csv"],
        ["what-if", "model", "--arms", "people.csv", "--budgets", 1], ["evaluate", "model"],
        ["simulate", "model"], ["finetune", "model", "--out", "tuned"],
        ["programme", "begin", "calls.db", "--model", "model"],
        ["plan", "model", "--arms", ".", "--budget", 1, "--out", "plan"],
        ["learn", "people.csv", "--rewards", "evil.py=1", "--out", "learned"],
    ):  # fmt: skip
        with pytest.raises(pm.PrefermabError) as error:
            dispatch([str(word) for word in words])
        one_sentence(error)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_place_of_a_programmes_model_is_only_read(kind, trap, request):
    place = str(trap.folder / "calls.db")
    if kind == "postgresql":
        place = f"{request.getfixturevalue('server').address}#p{uuid.uuid4().hex[:20]}"
    forged(trap.folder / "model", lambda config: config["domain"].update(name="evil.py:Evil"))
    (trap.folder / "link").symlink_to(trap.folder / "model")
    (trap.folder / "link.py").symlink_to(trap.file)
    with pm.Programme(place, MODEL) as programme:
        programme.join(PEOPLE)
        programme.plan(1)
        forgeries = [*trap.names, "link", "link.py", str(trap.folder / "link"), "model", "a" * 5000]
        for evil in forgeries:
            if kind == "postgresql" and "\0" in evil:
                continue
            with programme.database.writing() as sql:
                queries.set_meta(sql, MODEL_PLACE, evil)
            for words in (
                ["status", place],
                ["plan", place, "--budget", 1, "--out", "x.csv", "--again"],
            ):
                with pytest.raises(pm.InputError) as error:
                    dispatch(["programme", *map(str, words)])
                one_sentence(error)


@pytest.mark.usefixtures("trap")
def test_no_text_of_a_programmes_file_is_executed():
    with pm.Programme("calls.db", MODEL) as programme:
        programme.keep_place("armman")
        programme.join(PEOPLE)
        programme.plan(1, pm.Rules(cooldown=1, lock_ids=["a"]), why="a test")
        programme.record()
    shutil.copy("calls.db", "whole.db")
    with contextlib.closing(sqlite3.connect("whole.db")) as sql:
        columns = sql.execute(
            "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c "
            "WHERE m.type = 'table' AND c.type = 'TEXT'"
        ).fetchall()
    assert {("meta", "value"), ("models", "name"), ("plans", "asked")} <= set(columns)
    for table, column in columns:
        shutil.copy("whole.db", "calls.db")
        with contextlib.closing(sqlite3.connect("calls.db")) as sql:
            triggers = sql.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
            for (trigger,) in triggers.fetchall():
                sql.execute(f'DROP TRIGGER "{trigger}"')
            evil = '"evil.py:Evil"' if column in ("value", "asked", "details") else "evil.py:Evil"
            sql.execute(f'UPDATE OR IGNORE "{table}" SET "{column}" = ?', (evil,))
            sql.commit()
        # What a damaged file does is the topic of other tests; here nothing is executed.
        with contextlib.suppress(Exception), pm.Programme.open("calls.db") as programme:
            programme.replay(1)


def test_no_text_of_other_files_is_executed(trap):
    for evil in trap.names[:7]:
        table = pl.DataFrame({"id": [evil], "state": [evil], "feature_0": [evil], evil: [evil]})
        table.write_csv("people.csv")
        run_or_refuse("plan", "armman", "--arms", "people.csv", "--budget", 1, "--out", "x.csv")
        for line in (
            f'who = "{evil}"',
            f'state = {{value = "{evil}"}}',
            f'people.table = "{evil}"',
        ):
            lines = ['who = "id"', 'when = "feature_0"', 'round = "7d"', line]
            (trap.folder / "map.toml").write_text("\n".join(dict.fromkeys(lines)))
            run_or_refuse("events", "people.csv", "--map", "map.toml", "--out", "log.csv")
        header = {"format": evil, "training": evil, "pieces": json.dumps(evil)}
        packed = pack({evil: np.zeros(1), f"state.{evil}": np.zeros(1)}, metadata=header)
        (trap.folder / "m.checkpoint").write_bytes(packed)
        run_or_refuse("pretrain", "armman", "--out", "m", "--resume", "--exact.steps", 2)
        with pytest.raises(pm.InputError, match="unknown domain"):
            Setting(evil, 2, 1).trained_on()


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
    config["checksum"] = saving.config_checksum(config)
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
