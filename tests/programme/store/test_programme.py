import contextlib
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
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
from prefermab.errors import BusyError, StorageError
from prefermab.programme.logs.reading import read_log
from prefermab.programme.store.frames import (
    as_ids,
    column_kinds,
    first_difference,
    from_json,
    pack,
    read_details,
    to_json,
    unpack,
)
from prefermab.programme.store.migrating import APPLICATION
from prefermab.programme.store.plans import LONGEST_CHAIN, pack_changes, unpack_changes
from prefermab.programme.store.request import PlanRequest
from programmes import FirstCome, plain_sql

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
    assert kept.actions.rows() == [
        (1, 1, "call", 1.0, True), (2, 3, "call", 1.0, True), (2, 9, "call", 1.0, True),
    ]  # fmt: skip


def test_a_roster_says_how_long_ago_everyone_was_seen_and_acted_on(programme):
    programme.plan(1)
    programme.record()
    programme.observe(frame(id=[2], state=["bad"]))
    now = programme.roster()
    assert now["rounds_since_action"].to_list() == [1, None, None, None]
    assert now["rounds_since_seen"].to_list() == [1, 0, 1, 1]
    assert now["state"].to_list() == ["bad", "bad", "bad", "fair"]


def test_cooldown_needs_nothing_from_the_user(programme):
    rules, plans = pm.Rules(cooldown=2, last_column="weeks_since_call"), []
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
    # Nobody asked the first four: a newcomer's column does not put them out.
    assert programme.roster()["opt_in"].to_list() == [True] * 4 + [False]
    programme.observe(frame(id=[1, 2], state=["bad", "bad"], opt_in=[None, "yes"]))
    assert programme.roster()["opt_in"].to_list() == [False, True, True, True, False]


@given(
    st.lists(
        st.tuples(
            st.none() | st.floats(-1e30, 1e30),
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
    ids = pl.Series(range(len(rows)))
    details = read_details(FirstCome(), went_in, ids, "join")
    came_out = from_json(to_json(details, len(rows)), column_kinds(details, {}, "join"))
    assert first_difference(went_in, came_out) is None


def test_frames_may_come_from_pandas_and_ids_may_be_text(file):
    with pm.Programme(file, FirstCome()) as programme:
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
        with pytest.raises(pm.InputError, match=r"recorded already, and budget changed from 1.0"):
            programme.plan(2, round=1)
        with pytest.raises(pm.InputError, match="the current round is 2"):
            programme.plan(2, round=3)


def test_another_question_is_refused_or_takes_the_place_of_the_first(programme):
    programme.plan(1)
    with pytest.raises(pm.InputError, match=r"planned already, and budget changed from 1.0 to 2.0"):
        programme.plan(2)
    with pytest.raises(pm.InputError, match=r"and the rule cooldown changed from 0 to 2 since"):
        programme.plan(1, pm.Rules(cooldown=2))
    with pytest.raises(pm.InputError, match=r"argument of plan 'wating': did you mean 'waiting'"):
        programme.plan(1, wating=3)
    assert programme.plan(1, pm.Rules()).attempt == 1  # no rules are no rules
    programme.leave([4])
    with pytest.raises(pm.InputError, match=r"planned already, and 4 left since"):
        programme.plan(1)
    programme.join(frame(id=[5, 6], state=["good"] * 2))
    with pytest.raises(pm.InputError, match=r"and 4 left and 5 and 1 more joined since"):
        programme.plan(1)
    programme.leave([5, 6])
    programme.join(frame(id=[4], state=["fair"]))
    assert programme.plan(1).attempt == 1
    programme.observe(frame(id=[2], state=["bad"]))
    with pytest.raises(pm.InputError, match=r"'state' of 2 is good .* and bad"):
        programme.plan(1)
    programme.observe(frame(id=[2], state=["bad"], town=["Pune"]))
    with pytest.raises(pm.InputError, match=r"the column 'town' came in since"):
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
    assert programme.record(round=1) == 1
    assert programme.record(frame(id=[3, 1, 2], action=["call", "call", "none"]), round=1) == 1
    for other in (frame(id=[1], action=["call"]), frame(id=[1, 3], action=["call", "visit"])):
        with pytest.raises(pm.InputError, match="round 1 is recorded already, with other actions"):
            programme.record(other, round=1)
    with pytest.raises(pm.InputError, match="round 2 is not planned yet; name round=1"):
        programme.record()
    assert_frame_equal(programme.history().actions, before)
    assert programme.round == 2


def test_a_wrong_record_is_corrected_and_what_it_was_is_kept(programme):
    rules = pm.Rules(cooldown=2)
    programme.plan(2, rules)
    programme.record()
    programme.plan(2, rules)
    with pytest.raises(pm.InputError, match="a correction needs the number of its round"):
        programme.record(correct=True)
    with pytest.raises(pm.InputError, match="round 2 is not recorded yet: nothing to correct"):
        programme.record(round=2, correct=True)
    with pytest.raises(pm.InputError, match=r"cost 4, more than the budget of 2 of round 1"):
        programme.record(frame(id=[1, 2], action=["visit"] * 2), round=1, correct=True)
    for _ in range(2):  # the second time there is nothing to correct
        programme.record(frame(id=[2, 3], action=["call"] * 2), round=1, correct=True, yes=True)
    kept = programme.history()
    assert programme.round == 2
    assert kept.actions.select("id", "action").rows() == [(2, "call"), (3, "call")]
    assert kept.corrections.drop("corrected").rows() == [
        (1, 1, "call", 1.0, True), (1, 3, "call", 1.0, True),
    ]  # fmt: skip
    assert programme.roster()["rounds_since_action"].to_list() == [None, 1, 1, None]
    assert called(programme.plan(2, rules, again=True)) == [1]
    programme.record(frame(id=[], action=[]))
    programme.record(frame(id=[1], action=["call"]), round=2, correct=True)
    kept = programme.history()
    assert kept.corrections.drop("corrected").row(-1) == (2, None, None, None, None)
    assert kept.plans.filter(status="recorded")["spent"].to_list() == [2.0, 1.0]


def test_who_was_acted_on_before_joining_rests_on(programme):
    programme.join(frame(id=[8, 9], state=["bad"] * 2, Rounds_since_action=[1, None]))
    assert programme.roster()["rounds_since_action"].to_list() == [None] * 4 + [1, None]
    assert called(programme.plan(4, pm.Rules(cooldown=1))) == [1, 3, 9]
    programme.record()
    assert programme.roster()["rounds_since_action"].to_list() == [1, None, 1, None, 2, 1]
    assert called(programme.plan(4, pm.Rules(cooldown=1))) == [8]


def test_columns_match_in_any_case_and_an_empty_state_is_not_noted(programme):
    programme.join(frame(ID=[9], STATE=["bad"], Age=[50], REGION=["south"], Cost_Visit=[3]))
    last = programme.roster().row(-1, named=True)
    assert (last["age"], last["region"], last["cost_visit"]) == (50.0, "south", 3.0)
    assert programme.observe(frame(id=[1, 2, 9], state=["good", None, "fair"])) == 2
    assert programme.roster()["state"].to_list() == ["good", "good", "bad", "fair", "fair"]


def test_a_programme_becomes_a_log_to_learn_from(programme):
    programme.plan(1)
    programme.record()  # 1 is called
    programme.leave(4)
    programme.observe(frame(id=[1, 3], state=["good", "fair"]))
    programme.plan(1)
    programme.record(frame(id=[3], action=["visit"]), over_budget=True)
    programme.observe(frame(id=[3, 1], state=["good", "bad"]))
    log = programme.history().log
    assert log.columns == ["id", "time", "state", "action", "available", "reached", "age"]
    assert log.drop("available", "reached").rows() == [
        (1, 1, "bad", "call", 30.0), (2, 1, "good", "none", None), (3, 1, "bad", "none", 41.0),
        (4, 1, "fair", "none", 28.0), (1, 2, "good", "none", 30.0), (2, 2, None, "none", None),
        (3, 2, "fair", "visit", 41.0), (1, 3, "bad", None, 30.0), (3, 3, "good", None, 41.0),
    ]  # fmt: skip
    assert log["available"].to_list() == [True] * 7 + [None] * 2
    assert log["reached"].to_list() == [True] + [None] * 5 + [True] + [None] * 2
    rewards = {"good": 1, "fair": 0.5, "bad": 0}
    read = read_log(log, features=["age"], passive="none", rewards=rewards)
    assert read.labels.actions == ("none", "call", "visit")
    assert len(read.transitions) == 4


def test_an_action_that_reached_nobody_is_still_the_action_that_was_tried(programme):
    programme.plan(2, pm.Rules(cooldown=1))
    done = frame(id=[1, 2, 3], action=["call", "none", "call"], Reached=["no", "", None])
    programme.record(done)
    kept = programme.history()
    assert kept.actions.rows() == [(1, 1, "call", 1.0, False), (1, 3, "call", 1.0, True)]
    assert kept.plans.select("spent", "acted_on", "reached").rows() == [(2.0, 2, 1)]
    assert kept.log.select("action", "reached").rows() == [
        ("call", False), ("none", None), ("call", True), ("none", None),
    ]  # fmt: skip
    assert called(programme.plan(2, pm.Rules(cooldown=1))) == []  # an attempt counts for cooldown


@pytest.mark.parametrize("flags", [[False, True], ["no", "yes"], [0, 1], [0.0, None], ["f", " "]])
def test_reached_is_read_as_other_flags_are(programme, flags):
    programme.plan(2)
    programme.record(pd.DataFrame({"id": [1, 3], "action": ["call", "call"], "reached": flags}))
    assert programme.history().actions["reached"].to_list() == [False, True]


def test_reached_is_compared_and_corrected_with_the_actions(programme):
    programme.plan(2)
    programme.record(frame(id=[1, 3], action=["call"] * 2, reached=[False, True]))
    tried = frame(id=[3, 1], action=["call"] * 2, reached=[None, "no"])
    programme.record(tried, round=1)  # the same, said in another way
    with pytest.raises(pm.InputError, match="recorded already, with the same actions but another"):
        programme.record(round=1)
    for _ in range(2):  # the second time there is nothing to correct
        programme.record(tried.drop("reached"), round=1, correct=True)
    kept = programme.history()
    assert kept.actions["reached"].to_list() == [True, True]
    assert kept.corrections.drop("corrected").rows() == [
        (1, 1, "call", 1.0, False), (1, 3, "call", 1.0, True),
    ]  # fmt: skip


def test_the_log_says_who_could_not_be_acted_on(file):
    rules = pm.Rules(cooldown=1, exclude_column="do_not_call", exclude_ids=(4,))
    people = PEOPLE.with_columns(opt_in=pl.Series([True, False, True, True]))
    with pm.Programme(file, FirstCome()) as programme:
        programme.join(people.with_columns(do_not_call=pl.Series(["no", "no", "yes", None])))
        programme.plan(1, rules)
        programme.join(frame(id=[5], state=["bad"], opt_in=[True]))
        programme.record(frame(id=[1], action=["call"]))
        programme.plan(1, pm.Rules(cooldown=1))
        programme.record(frame(id=[5, 2], action=["call", "visit"]), over_budget=True)
        log = programme.history().log
    # 2 opted out, 3 and 4 are excluded, 5 joined when the list was made.
    assert log.filter(time=1)["available"].to_list() == [True, False, False, False, False]
    # 1 rests; 2 was visited all the same.
    assert log.filter(time=2)["available"].to_list() == [False, True, True, True, True]


def test_rules_that_only_a_model_of_your_own_can_read_keep_nobody_out_of_the_log(programme):
    programme.observe(frame(id=[1, 2], state=["bad", "bad"], opt_in=["yes", "no"]))
    programme.plan(1, pm.Rules(exclude_column="a word of its own"))
    programme.record()
    assert programme.history().log["available"].to_list() == [True, False, True, True]


def test_the_log_has_features_as_they_were_known_in_each_round(programme):
    programme.plan(1)
    programme.record()
    programme.observe(frame(id=[1, 2], state=["bad", "good"], age=[31, 50]))
    programme.plan(1)
    programme.join(frame(id=[5], state=["bad"], age=[20]))
    programme.record()
    programme.observe(frame(id=[1, 5], state=["bad", "bad"], age=[32, 21]))
    ages = programme.history().log.select("time", "id", "age").rows()
    assert [age for time, _, age in ages if time == 1] == [30.0, None, 41.0, 28.0]
    # 5 is not in the plan of round 2: what is known now stands for what was.
    assert [age for time, _, age in ages if time == 2] == [31.0, 50.0, 41.0, 28.0, 21.0]
    assert [(who, age) for time, who, age in ages if time == 3] == [(1, 32.0), (5, 21.0)]


@pytest.mark.parametrize("version", [1, 4])
def test_a_file_of_0_1_0_is_refused_with_what_to_do(file, version):
    sql = sqlite3.connect(file)
    sql.execute("CREATE TABLE meta (key TEXT, value TEXT)")
    sql.execute(f"PRAGMA application_id = {APPLICATION}")
    sql.execute(f"PRAGMA user_version = {version}")
    sql.close()
    before = file.read_bytes()
    with pytest.raises(pm.InputError, match=r"prefermab 0\.1\.0, .*: open it once with .* 0\.2\.0"):
        pm.Programme.open(file, FirstCome())
    assert file.read_bytes() == before


def test_costs_of_what_was_done_instead(file):
    with pm.Programme(file, FirstCome()) as programme:
        programme.join(PEOPLE.with_columns(cost_visit=pl.Series([1.0, 2.5, 3.0, 4.0])))
        programme.plan(3)
        programme.observe(frame(id=[4], state=["fair"], cost_visit=[None]))
        programme.plan(3, again=True)
        done = frame(id=[2, 3], action=["visit", "call"])
        with pytest.raises(pm.InputError, match=r"cost 3.5, more than the budget of 3 of round 1"):
            programme.record(done)
        programme.record(done, over_budget=True)
        assert programme.history().actions["cost"].to_list() == [2.5, 1.0]
        programme.record(frame(id=[4], action=["visit"]), round=1, correct=True, yes=True)
        assert programme.history().actions["cost"].to_list() == [2.0]  # empty: the model's


def test_a_correction_loses_nobody_unless_that_is_said(programme):
    programme.plan(2)
    programme.record()  # 1 and 3 are called
    only = frame(id=[2], action=["call"], why=["she asked for it"])
    before = programme.history().actions.rows()
    with pytest.raises(pm.InputError, match=r"2 people recorded as acted on in round 1 \(1, 3\)"):
        programme.record(only, round=1, correct=True, over_budget=True)
    assert programme.history().actions.rows() == before
    with pytest.raises(pm.InputError, match="partial needs correct=True and a table"):
        programme.record(only, partial=True)
    with pytest.raises(pm.InputError, match="cost 3, more than the budget of 2"):
        programme.record(only, round=1, correct=True, partial=True)
    for _ in range(2):  # the second time there is nothing to correct
        programme.record(only, round=1, correct=True, partial=True, over_budget=True)
    kept = programme.history()
    assert kept.actions["id"].to_list() == [1, 2, 3]
    assert kept.plans["corrected"].to_list() == [1]
    # Nobody but 3 is changed, and what was said of 2 is still there.
    programme.record(frame(id=[3], action=["none"]), round=1, correct=True, partial=True)
    assert programme.deviations().rows() == [
        (1, 2, "none", "call", True, "she asked for it"), (1, 3, "call", "none", True, None),
    ]  # fmt: skip
    programme.record(only, round=1, correct=True, yes=True)
    assert programme.history().actions["id"].to_list() == [2]


def test_who_was_not_treated_as_planned_is_counted_with_the_reason(programme):
    programme.observe(frame(id=[4], state=["bad"], opt_in=[False]))
    programme.plan(2)
    done = frame(id=[1, 4], action=["call"] * 2, Why=[None, " knocked at our door "])
    programme.record(done)
    assert programme.deviations(1).rows() == [
        (1, 3, "call", "none", True, None), (1, 4, "none", "call", False, "knocked at our door"),
    ]  # fmt: skip
    assert programme.plans()["changed"].to_list() == [2]
    programme.plan(2)
    assert programme.plans()["changed"].to_list() == [2, None]
    programme.record()
    assert programme.deviations(2).is_empty()
    with pytest.raises(pm.InputError, match="round must be"):
        programme.deviations(0)


def test_strangers_are_all_named_or_skipped(programme):
    seen = frame(id=[9, 2, 8], state=["bad"] * 3)
    with pytest.raises(pm.InputError, match=r"2 people \(9 in row 1, 8 in row 3\) are not in the"):
        programme.observe(seen)
    assert programme.observe(seen, skip_unknown=True) == 1
    programme.plan(2)
    with pytest.raises(pm.InputError, match=r"\(9 in row 1, 8 in row 3\) are not in the plan"):
        programme.record(frame(id=[9, 2, 8], action=["call"] * 3))
    with pytest.raises(pm.InputError, match="leave: 8, 9 are not in the programme"):
        programme.leave([8, 2, 9])


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
        ("join", {"id": [7], "Rounds_since_seen": [1]}, "leave out the column 'rounds_since_seen"),
        ("join", {"id": [7], "rounds_since_action": [-1]}, "'rounds_since_action' must hold whole"),
        ("join", {"id": [7], "age": [1], "AGE": [2]}, "may be 'age' or 'AGE'; rename"),
        ("join", {"id": ["a", " "]}, "join: row 2 has no id"),
        ("join", {"id": [7, 2**63]}, "join: row 2: the id 9223372036854775808 is too large"),
        ("join", {"id": [7], "cost_visit": [-1]}, "the column 'cost_visit' must hold"),
        ("join", {"id": [7, 8], "cost_call": ["1", "x"]}, "but row 2 holds 'x'"),
        ("observe", {"id": [2], "state": [0], "cost_call": [float("inf")]}, "but row 1 holds inf"),
        ("observe", {"id": [2], "state": [0], "rounds_since_action": [1]}, "leave out the column"),
        ("join", {"id": [7], "state": ["sad"]}, "row 1, id 7, has the state 'sad'; expected one"),
        ("join", {"id": [7], "state": [3]}, "has the state '3'; expected one of good, fair, bad"),
        ("leave", [2, 99], "leave: 99 is not in the programme."),
        ("leave", [2, 2], "leave: the id 2 is in row 1 and again in row 2"),
        ("leave", [2, "a"], "ids must be all whole numbers or all text"),
        ("observe", {"id": [2, 99], "state": [0, 0]}, "row 2: 99 is not in the programme: remove"),
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
        (
            "record",
            {"id": [3, 1], "action": ["call", "No answer"]},
            "record: row 2, id 1: 'No answer' is not an action: write the action that was tried, "
            "and false in the column 'reached'.",
        ),
        ("record", {"id": [1], "action": ["not_reached"]}, "write the action that was tried"),
        ("record", {"id": [1], "action": ["call_Missed"]}, "write the action that was tried"),
        ("record", {"id": [1], "action": ["call: busy"]}, "write the action that was tried"),
        (
            "record",
            {"id": [1], "action": ["call"], "reached": ["?"]},
            "'reached' must hold true or",
        ),
        (
            "record",
            {"id": [1, 2], "action": ["call", "None"], "reached": [True, False]},
            "record: row 2, id 2: the column 'reached' holds 'false' beside the action 'none', but "
            "it belongs to an action that was tried: write the action that was tried, or leave the "
            "cell empty.",
        ),
        ("record", {"id": [1, 2, 3], "action": ["call"] * 3}, "cost 3, more than the budget of 2"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(programme, file, call, given, message):
    programme.plan(2)
    with contextlib.closing(sqlite3.connect(file)) as sql:
        before = list(sql.iterdump())
    given = frame(**given) if isinstance(given, dict) else given
    with pytest.raises(pm.InputError) as error:
        getattr(programme, call)(given)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    with contextlib.closing(sqlite3.connect(file)) as sql:
        assert list(sql.iterdump()) == before


def test_calls_that_come_too_early_are_refused(file):
    with pm.Programme(file, FirstCome()) as programme:
        with pytest.raises(pm.InputError, match="round 1 cannot be planned: nobody is in"):
            programme.plan(3)
        with pytest.raises(pm.InputError, match="record: round 1 is not planned yet"):
            programme.record()
        with pytest.raises(pm.InputError, match="round 1 is not planned yet"):
            programme.planned()
        assert programme.leave([]) == 0
        assert programme.join(frame(id=[], age=[])) == 0
    with pytest.raises(pm.InputError, match="leave: expected ids, not float"):
        as_ids(2.5, "leave")


def test_rules_are_rules_and_their_column_is_not_taken(programme):
    with pytest.raises(pm.InputError, match=r"rules must be pm.Rules\(...\), not dict"):
        PlanRequest.from_call(FirstCome(), 1, {"cooldown": 2}, 0, {})
    with pytest.raises(pm.InputError, match=r"rules.last_column names 'age', a column of"):
        programme.plan(1, pm.Rules(cooldown=2, last_column="age"))


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


class Dearer(FirstCome):
    """Chooses as before, but its costs differ in their last digits, as on other software."""

    def plan(self, frame, budget, rules=None, waiting=20):
        made = super().plan(frame, budget, rules, waiting)
        made.frame = made.frame.with_columns(pl.col("cost") + pl.col("cost") * pl.lit(2e-7))
        return made


def test_a_plan_that_does_not_come_out_again_is_told(programme, file):
    programme.plan(2)
    assert called(programme.replay(1)) == [1, 3]
    with (
        pm.Programme(file, Dearer()) as other,
        pytest.raises(pm.InputError, match=r"'cost' of 1 is 1.0 in one and 1.000\d+ in the other"),
    ):
        other.replay(1)
    sql = sqlite3.connect(file)
    sql.execute("UPDATE plans SET output = ?", (b"ARROW1 and no more",))
    sql.commit()
    sql.close()
    with pytest.raises(
        StorageError, match=r"calls.db is damaged, .* the plan of round 1 is not as"
    ):
        programme.replay(1)


def test_frames_differ_where_a_bit_does():
    one = frame(id=[1, 2], x=[float("nan"), 0.0], y=["a", None])
    assert first_difference(one, unpack(pack(one))) is None
    assert first_difference(one, one[:1]) == "one has 2 rows and the other 1"
    assert first_difference(one, one.drop("y")) == "the column 'y' is in only one"
    assert first_difference(one, one.select("id", "y", "x")) == "the order of columns differs"
    assert "'y' of 2 is None" in str(first_difference(one, one.with_columns(y=pl.lit("a"))))
    other = one.with_columns(pl.col("x").cast(pl.Float32))
    assert first_difference(one, other) == "'x' is Float64 in one and Float32 in the other"


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
            with pytest.raises(pm.InputError, match="the column 'nurs' is missing; found id, "):
                programme.plan(2, pm.Rules(worker_column="nurs"), waiting=1)
            programme.record()
        with pytest.raises(pm.InputError, match="nobody has the id '77' that exclude_ids names"):
            programme.plan(2, pm.Rules(exclude_ids=("77",)), round=1)
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
        (text, "a.db is not a SQLite file; expected the file of a programme"),
        (other, "b.db is a SQLite file, but not the file of a programme"),
        (newer, "c.db has tables of version 7, but this prefermab reads version 5"),
    ):
        before = path.read_bytes()
        with pytest.raises(pm.InputError, match=message):
            pm.Programme(path, FirstCome())
        assert path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot open"):
        pm.Programme(tmp_path / "file" / "calls.db", FirstCome())
    closed = Path("/proc") if os.geteuid() == 0 else tmp_path / "closed"
    closed.mkdir(mode=0o500, exist_ok=True)
    with pytest.raises(StorageError, match="cannot be written"):
        pm.Programme(closed / "calls.db", FirstCome())


def test_a_file_in_a_folder_that_cannot_be_written_is_read(programme, file, monkeypatch):
    programme.close()
    assert not Path(f"{file}-wal").exists()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may always write
    before = set(file.parent.iterdir())
    with pm.Programme(file, FirstCome()) as reader:
        assert reader.roster().height == 4
        assert set(file.parent.iterdir()) == before
        with pytest.raises(StorageError, match=r"calls.db is read-only"):
            reader.leave([1])


def test_what_a_file_cannot_do_is_told(programme, file, monkeypatch):
    def read_only(path, **options):
        return connect(f"file:{path}?mode=ro", uri=True, **options)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", read_only)  # as a file of mode 444 is opened
    with pm.Programme(file, FirstCome()) as reader:
        assert reader.roster().height == 4
        with pytest.raises(StorageError, match=r"calls.db is read-only"):
            reader.leave([1])
    monkeypatch.undo()
    sql = programme.database._connection.connection
    sql.execute(f"PRAGMA max_page_count = {sql.execute('PRAGMA page_count').fetchone()[0]}")
    many = frame(id=range(100, 5000), state=["bad"] * 4900)
    with pytest.raises(StorageError, match=r"the disk is full; nothing was changed"):
        programme.join(many)
    assert programme.roster().height == 4
    programme.close()
    with file.open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(b"\xff" * 60_000)
    with pytest.raises(StorageError, match=r"calls.db is damaged"):
        pm.Programme(file, FirstCome()).roster()


def test_only_the_owner_reads_the_file_and_those_beside_it(file):
    modes = []

    def look():
        modes.extend(one.stat().st_mode & 0o777 for one in file.parent.iterdir())

    with pm.Programme(file, FirstCome(on_plan=look)) as programme:
        programme.join(PEOPLE)
        programme.plan(1)
    assert (
        modes == [0o600] * 4
    )  # the file, its log, what is shared of the log, and a planner's lock


def test_a_programme_belongs_to_its_thread_and_ends_when_closed(programme):
    with ThreadPoolExecutor(1) as other:
        for call in (lambda: programme.round, programme.roster, programme.close):
            with pytest.raises(pm.InputError, match="belongs to the thread that opened it"):
                other.submit(call).result()
    programme.close()
    with pytest.raises(pm.InputError, match="the programme is closed"):
        programme.plan(1)


def test_open_goes_on_and_never_begins(programme, file, tmp_path):
    programme.close()
    with pm.Programme.open(file, FirstCome()) as again:
        assert again.roster().height == 4
    (tmp_path / "empty.db").write_text("")
    for name in ("none.db", "empty.db"):
        with pytest.raises(pm.InputError, match=f"there is no programme at .*{name}; Programme"):
            pm.Programme.open(tmp_path / name, FirstCome())
    assert not (tmp_path / "none.db").exists()
    for begin in (pm.Programme, pm.Programme.open):
        for address in ("sqlite:///calls.db", Path("sqlite:///calls.db")):
            with pytest.raises(pm.InputError, match=r"the path of a file, such as .*, not 'sqlite"):
                begin(address, FirstCome())


def test_only_a_model_can_run_a_programme(file):
    with pytest.raises(pm.InputError, match=r"needs a model, .* but NoAction has no plan"):
        pm.Programme(file, pm.policies.NoAction())
    assert not file.exists()


def test_a_file_that_another_process_holds_is_waited_for_and_then_told(programme, file):
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pm.Programme(file, FirstCome(), wait=0.05) as waiting:  # who reads need not wait
        assert waiting.roster().height == 4
        with pytest.raises(BusyError, match=r"in use by another process, .* within 0.05 seconds"):
            waiting.leave([1])
    other.close()
    assert programme.roster().height == 4


CELLS = {
    "x": st.sampled_from([0.0, -0.0, 1.5, float("nan"), None]),
    "state": st.sampled_from(["good", "bad", None]),
    "flag": st.sampled_from([True, False, None]),
    "empty": st.none(),
}


@st.composite
def tables(draw):
    ids = draw(st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=8))
    kinds = {"x": pl.Float64, "state": pl.String, "flag": pl.Boolean, "empty": pl.Null}
    kinds["x"] = draw(st.sampled_from([pl.Float64, pl.Float32]))
    names = draw(st.lists(st.sampled_from(list(kinds)), unique=True))
    columns = [pl.Series(n, [draw(CELLS[n]) for _ in ids], dtype=kinds[n]) for n in names]
    return pl.DataFrame([pl.Series("id", ids, dtype=pl.Int64), *columns])


@given(old=tables(), new=tables())
@settings(max_examples=200)
def test_changes_of_a_table_give_it_back_to_the_last_bit(old, new):
    found = unpack_changes(pack_changes(new, old), old)
    assert found.schema == new.schema
    assert first_difference(found, new) is None


def test_a_plan_is_stored_once_and_then_what_changed(file):
    model, people = FirstCome(), 3000
    ages = np.random.default_rng(0).normal(40, 9, people)
    rounds = LONGEST_CHAIN + 3
    with pm.Programme(file, model) as programme:
        programme.join(frame(id=range(people), state=["bad"] * people, age=ages))
        made = programme.plan(5)
        for round in range(1, rounds + 1):
            made = programme.plan(5)
            programme.record()
            programme.observe(frame(id=[round], state=["good"], age=[20.0 + round]))
            programme.leave([100 + round])
        for round in range(1, rounds + 1):
            programme.replay(round)
        assert len(programme.history().log.filter(time=rounds)) == people - rounds + 1
        assert first_difference(programme.plan(5, round=rounds).frame, made.frame) is None
    with plain_sql(str(file)) as sql:
        sizes = [size for (size,) in sql.execute("SELECT length(inputs) FROM plans ORDER BY 1")]
    whole = [size for size in sizes if size > 20_000]
    assert len(whole) == 2  # the first, and one after so many changes
    assert max(sizes[: -len(whole)]) < whole[0] / 3
