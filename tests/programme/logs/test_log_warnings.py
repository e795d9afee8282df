"""Warnings about a log: each where the thing is there, and none where it is not."""

import jax
import numpy as np
import polars as pl
import pytest

import prefermab as pm
from prefermab.programme.logs.log_warnings import log_warnings
from prefermab.programme.logs.reading import read_log
from prefermab.programme.logs.simulated import simulate_log, write_example
from prefermab.programme.tables.table import read_table

REWARDS = {0: 0, 1: 0.5, 2: 1}


def at_random(now):
    return np.full(len(now["state"]), 0.15)


def weeks(seed=0, people=200, rounds=20, chosen=at_random, lift=0.35):
    """A log of three states, from 0 up to 2, that actions lift; `chosen` gives the chance of an
    action by the state and by who had one in the week before (`last`)."""
    rng = np.random.default_rng(seed)
    state, acted, parts = rng.integers(0, 3, people), np.zeros(people, bool), []
    for now in range(rounds):
        acted = rng.random(people) < chosen({"state": state, "last": acted})
        week = {"id": np.arange(people), "time": now, "state": state, "action": acted.astype(int)}
        parts.append(pl.DataFrame(week))
        better = rng.random(people) < 0.2 + 0.2 * (state == 2) + lift * acted
        falls = rng.random(people) < 0.5
        state = np.where(better, np.minimum(state + 1, 2), np.maximum(state - falls, 0))
    return pl.concat(parts).sort("id", "time")


def told(frame, rewards=REWARDS, **options):
    """Warnings by code."""
    found = log_warnings(read_log(frame, rewards=rewards, **options))
    return {caution.code: caution for caution in found}


# Honest logs


@pytest.mark.parametrize("domain", [pm.domains.Armman(), pm.domains.Synthetic()])
def test_honest_logs_give_no_warning(domain):
    """Measured with 200 people, 20 rounds and share 0.1: 0 of 240 logs (Armman and Synthetic, 60
    seeds each, whole and with people who come, go and miss rows) had any warning."""
    somebody = jax.tree.map(lambda x: x[0], domain.draw_arms(jax.random.key(0), 1))
    earned = np.asarray(domain.rewards(somebody)).tolist()
    rewards = dict(zip(domain.state_names, earned, strict=True))
    for seed, (stay, missing) in enumerate([(1.0, 0.0), (0.95, 0.05)] * 3):
        frame = simulate_log(domain, 200, 20, 0.1, seed, stay=stay, missing=missing)
        assert told(frame, rewards, passive=domain.action_names[0]) == {}


def test_the_example_gives_no_warning(tmp_path):
    """Measured: 0 of 60 seeds."""
    write_example(tmp_path)
    frame = read_table(tmp_path / "log.csv")
    rewards = {"engaged": 1, "drifting": 0.5, "silent": 0}
    assert told(frame, rewards, time="week", passive="none") == {}


POLICIES = {
    "random": at_random,
    "worst": lambda now: np.where(now["state"] == 0, 0.3, 0.02),
    "middle": lambda now: np.where(now["state"] == 1, 0.3, 0.02),
    "best": lambda now: np.where(now["state"] == 2, 0.3, 0.02),
    "again": lambda now: np.where(now["last"], 0.7, 0.05),
}


@pytest.mark.parametrize("name", POLICIES)
def test_whoever_is_chosen_an_honest_log_gives_no_warning(name):
    """Measured: 0 of 2,880 logs, with 8 ways to choose, effects of 0 to 0.35 on the chance of a
    better state, and people alike or not."""
    for seed in range(3):
        assert told(weeks(seed, chosen=POLICIES[name])) == {}


# Rows that do not mean what they seem to


@pytest.mark.parametrize("name", ["random", "worst", "again"])
def test_states_written_down_after_the_action(name):
    later = pl.col("state").shift(-1).over("id")
    frame = weeks(chosen=POLICIES[name]).with_columns(state=later).drop_nulls()
    found = told(frame)
    assert list(found) == ["outcome_in_same_row"]
    assert found["outcome_in_same_row"].spoils
    assert "move actions one round back" in found["outcome_in_same_row"].sentence


def test_states_that_were_copied_where_nobody_looked():
    seen = (pl.col("action").shift().over("id") == 1) | (pl.col("time") == 0)
    frame = weeks().with_columns(state=pl.when(seen).then("state"))
    found = told(frame.with_columns(pl.col("state").forward_fill().over("id")))
    assert found["states_carried_forward"].spoils
    sentence = found["states_carried_forward"].sentence
    assert sentence.startswith("under '0' 3,2")
    assert "leave the state empty where nobody looked" in sentence


def test_actions_that_failed_are_missing():
    frame = weeks()
    better = (pl.col("state").shift(-1).over("id") > pl.col("state")) | (pl.col("state") == 2)
    action = pl.col("action") * better.fill_null(True)
    found = told(frame.with_columns(action=action))["only_successes"]
    assert found.spoils
    assert "failed ones were left out, or written as '0'." in found.sentence


def stopped(frame, chance):
    """Without the rows after the first one of each person by which they left."""
    chances = frame.select(chance).to_series().to_numpy()
    leaves = np.random.default_rng(1).random(len(frame)) < chances
    gone = pl.Series(leaves).cast(pl.Int64).cum_sum()
    frame = frame.with_columns(left=pl.Series(leaves), gone=gone)
    before = pl.col("gone") - pl.col("left").cast(pl.Int64)
    return frame.filter(before - before.min().over("id") == 0).drop("left", "gone")


def test_people_who_leave_when_they_are_worse():
    found = told(stopped(weeks(people=400), 0.02 + 0.1 * (pl.col("state") == 0)))
    assert list(found) == ["rows_stop_when_worse"]
    assert not found["rows_stop_when_worse"].spoils
    by_action = 0.02 + 0.1 * (pl.col("state") == 0) + 0.3 * pl.col("action")
    assert told(stopped(weeks(people=400), by_action))["rows_stop_when_worse"].spoils
    assert told(stopped(weeks(people=400), pl.lit(0.05) + 0 * pl.col("state"))) == {}


# Features


def test_a_feature_that_changes_and_one_that_is_the_state_in_disguise():
    rng = np.random.default_rng(0)
    frame = weeks().with_columns(
        age=30 + pl.col("time") // 10,
        calls=pl.col("time") % 3,
        minutes=10 * pl.col("state") + pl.Series(rng.normal(0, 4, 4000)),
        mood=pl.col("state").replace_strict({0: "low", 1: "fair", 2: "fair"}),
    )
    log = read_log(frame, rewards=REWARDS)
    found = log_warnings(log)
    assert [caution.code for caution in found] == [
        "feature_changes", "feature_follows_state", "feature_follows_state",
    ]  # fmt: skip
    assert "'age' within 200 people, 'calls' within 200 people" in found[0].sentence
    assert "'minutes' moves with the state" in found[1].sentence
    assert "'mood'" in found[2].sentence
    assert not any(caution.spoils for caution in found)


@pytest.mark.parametrize(
    ("values", "odd"),
    [
        ([18, 25, 40, -1], "-1"),
        ([18, 25, 40, 999], "999"),
        ([1.5, 2.5, 3.5, 88], "88"),
        ([-3, 25, 40, -9], None),
        ([-1, 1], None),
        ([-1, 0, 1], None),
        ([60, 80, 99], None),
        ([0, 500, 999], None),
    ],
)
def test_numbers_that_stand_for_unknown(values, odd):
    frame = weeks(people=60)
    values = pl.Series(values, dtype=pl.Float64)
    column = values.gather((frame["id"] % len(values)).to_numpy())
    found = told(frame.with_columns(score=column))
    assert set(found) == ({"sentinel"} if odd else set())
    if odd:
        assert f"'score' holds {odd} in 300 rows" in found["sentinel"].sentence


def test_states_that_stand_for_unknown():
    frame = weeks(people=60).with_columns(state=pl.col("state").replace({2: 99}))
    found = told(frame, {0: 0, 1: 1, 99: 0})
    assert list(found) == ["sentinel"]
    labels = pl.col("state").cast(pl.String).replace({"0": "bad", "1": "good"})
    words = frame.with_columns(state=labels)
    assert "'state' holds 99 in" in told(words, {"bad": 0, "good": 1, "99": 0})["sentinel"].sentence


def test_codes_of_states_in_another_order_than_their_rewards():
    assert (
        "rewards 0, 1, 0.5 neither rise nor fall"
        in told(weeks(), {0: 0, 2: 0.5, 1: 1})["state_order"].sentence
    )
    assert told(weeks(lift=0), {0: 1, 1: 0.5, 2: 0}) == {}
    assert told(weeks(lift=0), {0: 1, 1: 0, 2: 0}) == {}


def test_a_feature_with_one_value_and_one_that_numbers_people():
    who = np.random.default_rng(0).permutation(200)
    frame = weeks().with_columns(
        country=pl.lit("IN"),
        year=2026,
        number=pl.Series(who).gather(pl.Series(np.repeat(np.arange(200), 20))),
        card=1_000_000 + 1000 * pl.col("id"),
        income=pl.Series(np.repeat(np.random.default_rng(1).integers(0, 10**6, 200), 20)),
    )
    found = log_warnings(read_log(frame, rewards=REWARDS))
    assert [(c.code, c.sentence.split("'")[1]) for c in found] == [
        ("constant_feature", "country"), ("constant_feature", "year"),
        ("id_feature", "number"), ("id_feature", "card"),
    ]  # fmt: skip
    names = weeks(people=40).with_columns(name=pl.concat_str(pl.lit("Mr "), "id"))
    assert list(told(names)) == ["id_feature"]
