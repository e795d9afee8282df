"""The programme on the command line."""

import json
from pathlib import Path

import polars as pl
import pytest

import prefermab as pm
from prefermab import cli
from prefermab.programme.logs.reading import read_log

REWARDS = {"motivated": 1, "persuadable": 0.5, "lost cause": 0}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def prefermab(capsys):
    """Runs `prefermab programme` here; what it printed, or the sentence it ended with."""

    def typed(command, status=0):
        capsys.readouterr()
        try:
            cli.run_command(["programme", *command.split()])
            ended = 0
        except SystemExit as end:
            ended = end.code
        told = capsys.readouterr()
        assert ended == status, told.err
        if status:
            assert told.out == ""
            assert len(told.err.strip().splitlines()) == 1
        return told.err if status else told.out

    return typed


def write(name, text):
    Path(name).write_text(text.strip().replace(" ", "") + "\n")


PEOPLE = """
ID, State, Feature_0, region, rounds_since_action
007, persuadable, 0.1, north, 1
008, persuadable, 0.2, south,
12, motivated, , south, 9
13, lostcause, 0.4, north,
"""


@pytest.fixture
def begun(here, prefermab):
    prefermab("begin calls.db --model armman")
    write("people.csv", PEOPLE.replace("lostcause", "2"))
    assert prefermab("join calls.db people.csv") == "4 people joined; 4 take part\n"
    return here


@pytest.mark.usefixtures("begun")
def test_three_rounds_without_python(prefermab):
    told = json.loads(prefermab("plan calls.db --budget 1 --cooldown 1 --out list.csv --json"))
    assert (told["round"], told["attempt"], told["spent"], told["resting"]) == (1, 1, 1.0, 1)
    first = pl.read_csv("list.csv", schema_overrides={"id": pl.String})
    assert sorted(first["id"]) == ["007", "008", "12", "13"]
    assert first["list"][0] == "chosen"
    assert first["id"][0] != "007"  # was acted on the week before
    prefermab("plan calls.db --budget 1 --cooldown 1 --out list.csv --round 1")
    assert "1 person acted on, 1 spent of 1; current round: 2" in prefermab("record calls.db")

    write("seen.csv", "id, state\n12, persuadable\n13,\n007, motivated")
    assert "2 states stored; 2 of 4 people not observed" in prefermab("observe calls.db seen.csv")
    assert "2 people left; 2 take part" in prefermab("leave calls.db --ids 13 008")
    prefermab("plan calls.db --budget 2 --out list.csv")
    write("done.csv", "id, action\n12, call")
    prefermab("record calls.db done.csv --round 2")
    assert "current round: 3" in prefermab("record calls.db done.csv --round 2")

    write("done.csv", "id, action\n007, call\n12, none")
    prefermab("record calls.db done.csv --correct 2")
    told = json.loads(prefermab("status calls.db --json"))
    assert (told["round"], told["planned"], told["people"], told["unseen"]) == (3, False, 2, 2)
    assert [row["spent"] for row in told["past"]] == [1.0, 1.0]
    assert "current round: 3, not planned yet; 2 people take part" in prefermab("status calls.db")
    with pm.Programme.open("calls.db", pm.load("armman")) as programme:
        assert programme.history().corrections["id"].to_list() == ["12"]
        assert programme.roster()["rounds_since_action"].to_list()[0] == 1

    write("seen.csv", "id, state, rounds_since_action\n12, motivated, 7\n007, persuadable, 7")
    told = prefermab("observe calls.db seen.csv")
    assert "'rounds_since_action' is ignored" in told
    assert "2 states stored; 0 of 2 people" in told
    # Four in round 1; 13 and 008 left in round 2 unseen; round 3 has states only.
    assert prefermab("log calls.db --out log.csv") == "8 rows written to log.csv\n"
    log = pl.read_csv("log.csv", schema_overrides={"id": pl.String})
    assert log.columns == [
        "id", "time", "state", "action", "available", "reached", "feature_0",
    ]  # fmt: skip
    assert log["action"].null_count() == 2
    # 007 was called the week before they joined, and rested in round 1.
    assert log.filter(time=1).select("id", "available").rows()[0] == ("007", False)
    read_log(log, features=["feature_0"], passive="none", rewards=REWARDS)


@pytest.mark.usefixtures("begun")
def test_a_list_comes_back_with_a_column_that_says_who_was_reached(prefermab):
    prefermab("plan calls.db --budget 2 --exclude-ids 13 --out list.csv")
    listed = pl.read_csv("list.csv", schema_overrides={"id": pl.String})
    assert (listed["action"] == "call").to_list() == [True, True, False, False]
    listed.with_columns(reached=pl.Series(["no", "yes", None, None])).write_csv("list.csv")
    told = prefermab("record calls.db list.csv")
    assert (
        told == "round 1: 2 people acted on (1 of them reached), 2 spent of 2; current round: 2\n"
    )
    tried = "round 1: 2 actions were tried, 1 of them reached somebody\n"
    assert tried in prefermab("status calls.db")
    assert json.loads(prefermab("status calls.db --json"))["past"][0]["reached"] == 1
    prefermab("log calls.db --out log.csv")
    log = pl.read_csv("log.csv", schema_overrides={"id": pl.String})
    kept = {who: row for who, *row in log.select("id", "action", "available", "reached").rows()}
    assert kept[listed["id"][0]] == ["call", True, False]
    assert kept[listed["id"][1]] == ["call", True, True]
    assert kept["13"] == ["none", False, None]

    listed.write_csv("list.csv")  # the first one was reached after all
    prefermab("record calls.db list.csv --correct 1")
    assert "tried" not in prefermab("status calls.db")
    listed.with_columns(action=pl.lit("no answer")).write_csv("list.csv")
    told = prefermab("record calls.db list.csv --correct 1", 2)
    assert "list.csv: row 2, id" in told
    assert "write the action that was tried, and false in the column 'reached'" in told


def test_a_model_is_found_again_or_asked_for(here, prefermab):
    model = pm.load("armman")
    model.save("mine")
    assert "current round 1, model mine" in prefermab("begin new/calls.db --model mine")
    assert "current round: 1, not planned yet; 0 people take part" in prefermab(
        "status new/calls.db"
    )
    (here / "mine").rename("ours")
    assert "mine is gone: say where it is" in prefermab("status new/calls.db", 2)
    prefermab("begin new/calls.db --model ours")
    prefermab("status new/calls.db")
    told = prefermab("begin new/calls.db --model armman-paper", 2)
    assert "--change-model" in told
    prefermab("begin new/calls.db --model armman-paper --change-model")
    pm.Programme("other.db", model).close()
    assert "other.db does not say where its model is" in prefermab("status other.db", 2)


@pytest.mark.parametrize(
    ("command", "table", "message"),
    [
        ("begin calls.db --model arman", "", "did you mean 'armman'?"),
        ("begin sqlite:///x.db --model armman", "", "expected the path of a file"),
        ("status no.db", "", "there is no programme at no.db"),
        ("join calls.db no.csv", "", "no.csv: there is no such file"),
        ("join calls.db t.csv", "id,state\n1,2\n,2", "t.csv: row 3 has no id"),
        ("join calls.db t.csv", "id,state\n1,2\n007,2", "t.csv: row 3: 007 is in the programme al"),
        ("join calls.db t.csv", "id,state\n1,sad", "t.csv: row 2, id 1, has the state 'sad'"),
        (
            "join calls.db t.csv",
            "id,cost_call\n1,2\n2,-3",
            "'cost_call' must hold costs of at least 0",
        ),
        ("join calls.db t.csv", "id,feature_0\n1,x", "'feature_0' must hold numbers, but row 2 ho"),
        ("observe calls.db t.csv", "id,state\n12,0\n99,0", "t.csv: row 3: 99 is not in the progra"),
        ("observe calls.db t.csv", "id\n12", "t.csv: the column 'state' is missing"),
        ("leave calls.db --ids 99", "", "leave: 99 is not in the programme"),
        ("plan calls.db --budget 1 --out list.txt", "", "list.txt: expected a name that ends in"),
        (
            "plan calls.db --budget 1 --out l.csv --group x",
            "",
            "round 1: the column 'x' is missing",
        ),
        ("plan calls.db --budget -1 --out l.csv", "", "budget must be a finite number"),
        ("record calls.db", "", "record: round 1 is not planned yet"),
        ("record calls.db --correct 1 --round 2", "", "--round 2 and --correct 1 differ"),
        ("log calls.db --out log.txt", "", "log.txt: expected a name that ends in"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(begun, prefermab, command, table, message):
    if table:
        (begun / "t.csv").write_text(table)
    before = (begun / "calls.db").read_bytes()
    assert message in prefermab(command, 2)
    assert (begun / "calls.db").read_bytes() == before
    assert sorted(path.suffix for path in begun.iterdir() if path.name != "t.csv") == [
        ".csv", ".db",
    ]  # fmt: skip


@pytest.mark.usefixtures("here")
def test_ids_that_are_numbers_stay_numbers(prefermab):
    prefermab("begin calls.db --model armman")
    write("people.csv", "id, state, feature_0\n7, 0, 0.1\n12, 1, 0.2")
    prefermab("join calls.db people.csv")
    write("more.csv", "id, state\n08, 0")
    assert "more.csv: ids are whole numbers in this programme, but '08' is not" in prefermab(
        "join calls.db more.csv", 2
    )
    assert "ids are whole numbers in this programme, not 'x'" in prefermab(
        "leave calls.db --ids x", 2
    )
    assert "1 person left; 1 take part" in prefermab("leave calls.db --ids 7")


@pytest.mark.usefixtures("begun")
def test_a_week_that_does_not_go_as_planned_is_told(prefermab):
    write("seen.csv", "id,state\n007,motivated\n99,motivated\n98,motivated")
    told = prefermab("observe calls.db seen.csv", status=2)
    assert "2 people (99 in row 3, 98 in row 4) are not in the programme" in told
    told = prefermab("observe calls.db seen.csv --skip-unknown")
    assert "2 people skipped, not in the programme: 99, 98" in told
    prefermab("plan calls.db --budget 1 --out list.csv --exclude-ids 13")
    listed = pl.read_csv("list.csv", schema_overrides={"id": pl.String})
    called = listed.filter(action="call")["id"].item()
    write("done.csv", "id,action,why\n13,call,rang_us")
    told = prefermab("record calls.db done.csv")
    assert "1 on the list not acted on, 1 acted on who were not on it" in told
    assert "acted on although opted out, excluded or in cooldown: 13" in told
    write("more.csv", f"id,action\n{called},call")
    assert "(13) would count as not" in prefermab("record calls.db more.csv --correct 1", status=2)
    told = prefermab("record calls.db more.csv --correct 1 --partial --over-budget")
    assert "round 1: 2 people acted on" in told
    assert "on the list not acted on" not in told
    told = prefermab("plan calls.db --budget 1 --out list.csv")
    assert "4 people planned with a state of an earlier round, the oldest from 1 round ago" in told
    facts = json.loads(prefermab("status calls.db --json"))
    assert (facts["past"][0]["changed"], facts["past"][0]["corrected"]) == (1, 1)
    assert (facts["states_from_earlier"], facts["oldest_state"], facts["model_changes"]) == (
        4,
        1,
        [],
    )
    prefermab("begin calls.db --model armman-paper --change-model")
    assert "from round 2 on, plans use another model" in prefermab("status calls.db")
