import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import prefermab as pm
from prefermab.programme import packing
from prefermab.programme.people import from_json, kinds_of, read_details, to_json
from programmes import FirstCome

PEOPLE = pl.DataFrame(
    {
        "id": [1, 2, 3, 4],
        "state": ["bad", "good", "bad", "fair"],
        "age": [30.0, None, 41.0, 28.0],
        "region": ["north", "south", None, "north"],
    }
)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "calls.db"


@pytest.fixture
def programme(file):
    with pm.Programme(file, FirstCome()) as running:
        running.join(PEOPLE)
        yield running


def frame(**columns):
    return pl.DataFrame(columns)


def called(plan):
    return plan.frame.filter(pl.col("action") == "call")["id"].to_list()


def test_rounds_go_by_and_all_of_it_is_kept(programme):
    assert programme.plan(1).round == 1
    assert programme.record() == 1
    programme.leave([4])
    programme.join(frame(id=[9], state=[2], age=[50]))
    programme.observe(frame(id=[1, 2], state=["good", "bad"]))
    assert called(programme.plan(2)) == [2, 3]
    programme.record(frame(id=[9, 3], action=["Call", "call"]))
    kept = programme.history()
    assert programme.round == 3
    assert kept.people.select("id", "joined", "gone", "age").rows() == [
        (1, 1, None, 30.0), (2, 1, None, None), (3, 1, None, 41.0), (4, 1, 2, 28.0),
        (9, 2, None, 50.0),
    ]  # fmt: skip
    assert kept.states.filter(pl.col("round") == 2).rows() == [
        (2, 1, "good"), (2, 2, "bad"), (2, 9, "bad"),
    ]  # fmt: skip
    assert kept.plans["spent"].to_list() == [1.0, 2.0]
    assert kept.plans["status"].to_list() == ["recorded", "recorded"]
    assert kept.actions.rows() == [(1, 1, "call", 1.0), (2, 3, "call", 1.0), (2, 9, "call", 1.0)]


def test_a_roster_says_how_long_ago_everyone_was_seen_and_acted_on(programme):
    programme.plan(1)
    programme.record()
    programme.observe(frame(id=[2], state=["bad"]))
    now = programme.roster()
    assert now["rounds_since_action"].to_list() == [1, None, None, None]
    assert now["rounds_since_seen"].to_list() == [1, 0, 1, 1]
    assert now["state"].to_list() == ["bad", "bad", "bad", "fair"]


def test_cooldown_needs_nothing_from_the_user(programme):
    rules, plans = pm.Rules(cooldown=2, last="weeks_since_call"), []
    for _ in range(4):
        plans.append(called(programme.plan(1, rules)))
        programme.record()
    # 1 rests in rounds 2 and 3, and 3 in rounds 3 and 4.
    assert plans == [[1], [3], [], [1]]


def test_who_comes_back_is_seen_anew_and_rests_on(programme):
    programme.plan(1)
    programme.record()
    programme.leave(1)
    programme.plan(1)
    programme.record()
    programme.join(frame(id=[1]))
    with pytest.raises(pm.InputError, match="the state of 1 was never observed"):
        programme.plan(1)
    programme.observe(frame(id=[1], state=["bad"]))
    again = programme.roster().filter(pl.col("id") == 1)
    assert again["rounds_since_action"].to_list() == [2]
    assert again["age"].to_list() == [30.0]
    programme.leave(1)
    programme.join(frame(id=[1], state=["good"]))
    stays = programme.history().people.filter(pl.col("id") == 1)
    assert stays.select("joined", "gone").rows() == [(1, 2), (3, None)]


def test_who_is_out_for_a_while_needs_no_state(programme):
    programme.join(frame(id=[5], opt_in=["no"]))
    programme.plan(1)
    assert programme.roster()["opt_in"].to_list() == [None] * 4 + [False]


@given(
    st.lists(
        st.tuples(
            st.none() | st.floats(allow_nan=False, allow_infinity=False),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.booleans(),
            st.none() | st.text(st.characters(codec="utf-8")),
        ),
        min_size=1,
    )
)
@settings(max_examples=100, deadline=None)
def test_what_is_known_of_people_comes_out_as_it_went_in(rows):
    schema = {"x": pl.Float64, 'a "b" é': pl.Int64, "c": pl.Boolean, "d": pl.String}
    went_in = pl.DataFrame(rows, schema=schema, orient="row")
    details = read_details(FirstCome(), went_in, "join")
    came_out = from_json(to_json(details, len(rows)), kinds_of(details, {}, "join"))
    assert packing.difference(went_in, came_out) is None


def test_frames_may_come_from_pandas_and_ids_may_be_text(file):
    with pm.Programme.open(file, FirstCome()) as programme:
        people = {"ID": ["a", "b"], "state": [2.0, 0.0], "age": [float("nan"), 3.0]}
        assert programme.join(pd.DataFrame(people)) == 2
        programme.observe(
            frame(id=["b"], age=[4], born=[pd.Timestamp("2020-03-01").date()], state=[1])
        )
        now = programme.roster()
    assert now.select("id", "state", "age", "born").rows() == [
        ("a", "bad", None, None), ("b", "fair", 4.0, "2020-03-01"),
    ]  # fmt: skip


def test_states_may_be_numbers_between_0_and_1(file):
    with pm.Programme(file, FirstCome(continuous=True)) as programme:
        programme.join(frame(id=[1, 2], state=[0.25, 1.0]))
        assert programme.roster()["state"].to_list() == [0.25, 1.0]
        with pytest.raises(pm.InputError, match=r"row 1, id 2, has the state '1.5'"):
            programme.observe(frame(id=[2], state=[1.5]))


def test_the_same_question_is_answered_once(file):
    asked = []
    with pm.Programme(file, FirstCome(on_plan=lambda: asked.append(1))) as programme:
        programme.join(PEOPLE)
        first = programme.plan(1)
        assert_frame_equal(programme.plan(1).frame, first.frame)
        programme.record()
        assert_frame_equal(programme.plan(1, round=1).frame, first.frame)
        assert len(asked) == 1
        with pytest.raises(pm.InputError, match=r"round 1 is recorded already, .* another budget"):
            programme.plan(2, round=1)
        with pytest.raises(pm.InputError, match="the round that is on is 2"):
            programme.plan(2, round=3)


def test_another_question_is_refused_or_takes_the_place_of_the_first(programme):
    programme.plan(1)
    with pytest.raises(pm.InputError, match=r"planned already, and budget changed from 1.0 to 2.0"):
        programme.plan(2)
    programme.observe(frame(id=[2], state=["bad"]))
    with pytest.raises(pm.InputError, match=r"'state' of 2 is good .* and bad"):
        programme.plan(1)
    assert called(programme.plan(2, again=True)) == [1, 2]
    programme.record()
    plans = programme.history().plans
    assert plans.select("attempt", "status", "acted_on").rows() == [
        (1, "superseded", 0), (2, "recorded", 2),
    ]  # fmt: skip
    assert called(programme.planned(1, attempt=1)) == [1]
    assert called(programme.replay(1, attempt=1)) == [1]


def test_recording_twice_is_harmless_or_refused(programme):
    programme.plan(2)
    programme.record()
    before = programme.history().actions
    assert programme.record() == 1
    assert programme.record(frame(id=[3, 1, 2], action=["call", "call", "none"]), round=1) == 1
    for other in (frame(id=[1], action=["call"]), frame(id=[1, 3], action=["call", "visit"])):
        with pytest.raises(pm.InputError, match="round 1 is recorded already, with other actions"):
            programme.record(other)
    assert_frame_equal(programme.history().actions, before)
    assert programme.round == 2


def test_costs_of_what_was_done_instead(file):
    with pm.Programme(file, FirstCome()) as programme:
        programme.join(PEOPLE.with_columns(cost_visit=pl.Series([1.0, 2.5, 3.0, 4.0])))
        programme.plan(3)
        done = frame(id=[2, 3], action=["visit", "call"])
        with pytest.raises(pm.InputError, match=r"cost 3.5, more than the budget of 3 of round 1"):
            programme.record(done)
        programme.record(done, over_budget=True)
        assert programme.history().actions["cost"].to_list() == [2.5, 1.0]


@pytest.mark.parametrize(
    ("call", "given", "message"),
    [
        ("join", {"id": [7, 2]}, "join: row 2: 2 is in the programme already"),
        ("join", {"id": [7, 8, 7]}, "join: the id 7 is in row 1 and again in row 3"),
        ("join", {"id": [7, None]}, "join: row 2 has no id"),
        ("join", {"id": ["x"]}, "ids are whole numbers in this programme, but 'x' is not"),
        ("join", {"id": [0.5]}, "an id must be a whole number or text, not Float64"),
        ("join", {"name": ["x"]}, "the column 'id' is missing"),
        ("join", {"id": [7], "age": ["old"]}, "'age' must hold numbers, but row 1 holds 'old'"),
        ("join", {"id": [7], "age": [float("inf")]}, "'age' must hold finite numbers"),
        ("join", {"id": [7], "region": [3]}, "'region' holds numbers, but held text before"),
        ("join", {"id": [7], "x": [[1]]}, "'x' must hold numbers, text or true and false"),
        ("join", {"id": [7], "opt_in": ["?"]}, "'opt_in' must hold true or false"),
        ("join", {"id": [7], "rounds_since_action": [1]}, "leave out the column 'rounds_since_"),
        ("join", {"id": [7], "state": ["sad"]}, "row 1, id 7, has the state 'sad'; expected one"),
        ("join", {"id": [7], "state": [3]}, "has the state '3'; expected one of good, fair, bad"),
        ("leave", [2, 99], "leave: row 2: 99 is not in the programme"),
        ("leave", [2, 2], "leave: the id 2 is in row 1 and again in row 2"),
        ("leave", [2, "a"], "ids must be all whole numbers or all text"),
        ("leave", 2.5, "leave: expected ids, not float"),
        ("observe", {"id": [2, 99], "state": [0, 0]}, "observe: row 2: 99 is not in the programme"),
        ("observe", {"id": [2, 2], "state": [0, 1]}, "observe: the id 2 is in row 1 and again"),
        ("observe", {"id": [2], "state": ["sad"]}, "row 1, id 2, has the state 'sad'"),
        ("observe", {"id": [2]}, "observe: the column 'state' is missing"),
        ("observe", [2], "frame must be a polars or pandas frame, not list"),
        ("plan", -1, "budget must be a finite number of at least 0"),
        ("record", {"id": [1], "action": ["cal"]}, "row 1, id 1: unknown action 'cal': did you"),
        ("record", {"id": [1], "action": [None]}, "row 1, id 1, has no action"),
        ("record", {"id": [7], "action": ["call"]}, "row 1: 7 is not in the plan of round 1"),
        ("record", {"id": ["1"], "action": ["call"]}, "row 1: 1 is not in the plan of round 1"),
        ("record", {"id": [1, 1], "action": ["call", "call"]}, "the id 1 is in row 1 and again"),
        ("record", {"id": [1]}, "record: the column 'action' is missing"),
        ("record", {"id": [1, 2, 3], "action": ["call"] * 3}, "cost 3, more than the budget of 2"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(programme, file, call, given, message):
    programme.plan(2)
    before = list(sqlite3.connect(file).iterdump())
    given = frame(**given) if isinstance(given, dict) else given
    with pytest.raises(pm.InputError) as error:
        getattr(programme, call)(given)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert list(sqlite3.connect(file).iterdump()) == before


def test_calls_that_come_too_early_are_refused(file):
    with pm.Programme(file, FirstCome()) as programme:
        with pytest.raises(pm.InputError, match="round 1 cannot be planned: nobody is in"):
            programme.plan(3)
        with pytest.raises(pm.InputError, match="record: round 1 is not planned yet"):
            programme.record()
        with pytest.raises(pm.InputError, match="round 1 is not planned yet"):
            programme.planned()
        assert programme.leave([]) == 0


def test_rules_are_rules_and_their_column_is_not_taken(programme):
    with pytest.raises(pm.InputError, match=r"rules must be pm.Rules\(...\), not dict"):
        programme.plan(1, {"cooldown": 2})
    with pytest.raises(pm.InputError, match=r"rules.last names 'age', a column that people came"):
        programme.plan(1, pm.Rules(cooldown=2, last="age"))


def test_a_plan_that_fails_leaves_no_trace(file):
    def fail():
        raise pm.InputError("the planner gives up.")

    with pm.Programme(file, FirstCome(on_plan=fail)) as programme:
        programme.join(PEOPLE)
        with pytest.raises(pm.InputError, match="gives up"):
            programme.plan(1)
        assert programme.history().plans.height == 0
        assert programme.leave([1]) == 1


def test_another_model_has_to_be_asked_for(programme, file):
    programme.plan(1)
    programme.record()
    other = FirstCome(fingerprint="second")
    with pytest.raises(pm.InputError, match="run by the model first come, but this one is second"):
        pm.Programme(file, other)
    with pytest.raises(pm.InputError, match="the state names of the programme are good, fair, bad"):
        pm.Programme(file, FirstCome("third", state_names=("x", "y")), change_model=True)
    with pm.Programme(file, other, change_model=True) as later:
        with pytest.raises(pm.InputError, match="round 1 was made by the model first come"):
            later.replay(1)
        assert later.plan(1).model == "second"
    with pytest.raises(pm.InputError, match="another model has taken over"):
        programme.plan(1)


def test_a_plan_that_does_not_come_out_again_is_told(programme, file):
    programme.plan(2)
    assert called(programme.replay(1)) == [1, 3]
    stored = programme.planned().frame
    nudged = stored.with_columns(pl.col("cost") + pl.Series([0, 0, 2e-7, 0], dtype=pl.Float32))
    sql = sqlite3.connect(file)
    sql.execute("UPDATE plans SET output = ?", (packing.pack(nudged),))
    sql.commit()
    with pytest.raises(pm.InputError, match=r"'cost' of 3 is 1.000\d+ in one and 1.0 in the other"):
        programme.replay(1)
    sql.execute("UPDATE plans SET output = ?", (b"ARROW1 and no more",))
    sql.commit()
    with pytest.raises(pm.InputError, match="the plan of round 1 is damaged"):
        programme.replay(1)


def test_frames_differ_where_a_bit_does():
    one = frame(id=[1, 2], x=[float("nan"), 0.0], y=["a", None])
    assert packing.difference(one, packing.unpack(packing.pack(one))) is None
    assert packing.difference(one, one[:1]) == "one has 2 rows and the other 1"
    assert packing.difference(one, one.drop("y")) == "the column 'y' is in only one"
    assert packing.difference(one, one.select("id", "y", "x")) == "the order of columns differs"
    assert "'y' of 2 is None" in str(packing.difference(one, one.with_columns(y=pl.lit("a"))))
    other = one.with_columns(pl.col("x").cast(pl.Float32))
    assert packing.difference(one, other) == "'x' is Float64 in one and Float32 in the other"


def test_a_model_plans_for_a_programme_and_its_plans_can_be_replayed(file):
    model, domain = pm.load("armman"), pm.domains.Armman()
    features = domain.features(domain.draw_arms(jax.random.key(0), 12))
    people = pl.DataFrame(np.asarray(features), schema=list(model.feature_names))
    with pm.Programme(file, model) as programme:
        programme.join(people.with_columns(id=pl.int_range(12), state=pl.lit("persuadable")))
        rules = pm.Rules(cooldown=2, exclude_ids=("3",))
        plans = []
        for _ in range(2):
            plans.append(programme.plan(2, rules, waiting=1))
            programme.record()
    with pm.Programme(file, model) as programme:
        for round, plan in enumerate(plans, start=1):
            assert_frame_equal(programme.replay(round).frame, plan.frame, check_exact=True)
        resting = programme.planned(2)
    assert resting.summary.resting == 2
    assert resting.waiting.height == 1
    assert str(resting.summary).startswith("2 of 12 people (2 call); 2 spent")
    assert not set(called(plans[0])) & set(called(plans[1]))


def test_a_file_that_is_no_programme_is_left_alone(tmp_path):
    text, other, newer = (tmp_path / name for name in ("a.db", "b.db", "c.db"))
    text.write_text("this is a letter, not a database\n" * 40)
    sql = sqlite3.connect(other)
    sql.execute("CREATE TABLE mine (x)")
    sql.close()
    pm.Programme(newer, FirstCome()).close()
    sql = sqlite3.connect(newer)
    sql.execute("PRAGMA user_version = 7")
    sql.close()
    for path, message in (
        (text, "a.db is not a SQLite file; expected one of a programme"),
        (other, "b.db is a SQLite file, but not of a programme"),
        (newer, "c.db has tables of version 7, and this prefermab reads version 1"),
    ):
        before = path.read_bytes()
        with pytest.raises(pm.InputError, match=message):
            pm.Programme(path, FirstCome())
        assert path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(pm.InputError, match="cannot open"):
        pm.Programme(tmp_path / "file" / "calls.db", FirstCome())
    closed = Path("/proc") if os.geteuid() == 0 else tmp_path / "closed"
    closed.mkdir(mode=0o500, exist_ok=True)
    with pytest.raises(pm.InputError, match="cannot be written"):
        pm.Programme(closed / "calls.db", FirstCome())


def test_only_a_model_can_run_a_programme(file):
    with pytest.raises(pm.InputError, match=r"needs a model, .* but NoAction has no plan"):
        pm.Programme(file, pm.policies.NoAction())
    assert not file.exists()


def test_a_file_that_another_process_holds_is_waited_for_and_then_told(programme, file):
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(pm.InputError, match=r"in use by another process, .* within 0.05 seconds"):
        pm.Programme(file, FirstCome(), wait=0.05)
    assert programme.roster().height == 4


def run(*arguments) -> dict[str, int]:
    script = Path(__file__).with_name("programmes.py")
    ran = subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        capture_output=True, text=True, check=False, env={**os.environ, "POLARS_MAX_THREADS": "1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_nothing_confirmed_is_lost_when_killed_at_200_random_moments(tmp_path):
    told = run("kill", tmp_path, 200, 0)
    assert told["kills"] == 200
    assert told["confirmed"] > 100
    assert told["under_way"] > 50


def test_two_processes_never_both_plan_the_same_round(tmp_path):
    told = run("race", tmp_path, 20)
    assert told["asked"] == told["stored"] == told["plans"] == 20
    assert (told["same"], told["refused"]) == (10, 10)
