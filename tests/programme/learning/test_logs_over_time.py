"""What a log says at which time: features that change, who was available, rounds, no features."""

import dataclasses
import datetime
import inspect
import sys

import numpy as np
import polars as pl
import pytest
from test_gain import assessment
from test_learn import REWARDS, TINY, tiny, two_regions, walked

import prefermab as pm
from prefermab import cli
from prefermab.programme.learning import learn as learning
from prefermab.programme.learning.effects import estimate_effects
from prefermab.programme.learning.holdout import features_verdict, hold_out
from prefermab.programme.learning.learn import LearnResult, _card
from prefermab.programme.logs.domain import Logged
from prefermab.programme.logs.fitting import Terms, count_cells, fit_log
from prefermab.programme.logs.log_warnings import LogWarning, log_warnings
from prefermab.programme.logs.reading import read_log

# Features that change


def test_a_changing_feature_has_the_value_known_then_and_a_fixed_one_holds_for_all_rows():
    log = tiny(
        age=pl.Series([None, 30, 31, None, 50, 50, 50, None]),
        region=pl.Series([None, "north", None, None, "south", None, None, None]),
    )
    # Ages change within person 1: unknown in the first week; the region is known from the start.
    known = log.profiles[log.transitions.profile]
    np.testing.assert_array_equal(
        known, [[np.nan, 1, 0], [30, 1, 0], [50, 0, 1], [50, 0, 1]]
    )  # fmt: skip
    np.testing.assert_array_equal(log.features, [[31, 1, 0], [50, 0, 1], [np.nan] * 3])
    assert len(log.profiles) == len(np.unique(np.nan_to_num(log.profiles, nan=-1), axis=0)) == 5


def test_an_attribute_written_down_late_holds_from_the_start():
    log = tiny(age=pl.Series([None, None, 31, None, 50, 50, 50, None]))
    assert log.profiles[log.transitions.profile, 0].tolist() == [31, 31, 50, 50]


def test_the_future_of_a_feature_says_nothing_of_the_past():
    """States are pure chance. How often somebody was well so far predicts nothing; how often in
    the whole log, known in every week, would."""
    rng = np.random.default_rng(0)
    frame = walked(np.full((300, 2, 2, 2), 0.5), {}, 10, 0.3, rng).sort("id", "time")
    well = pl.col("state").cum_sum().over("id")
    better = {}
    for name, values in (("so far", well), ("in all", pl.col("state").sum().over("id"))):
        held = hold_out(read_log(frame.with_columns(well=values), rewards={0: 0, 1: 1}), draws=8)
        better[name] = held[0].losses["better"][1] / held[0].losses["stderr"][1]
    assert better["so far"] < 2
    assert better["in all"] > 4


def test_cells_are_by_person_and_what_was_known_of_them():
    log = tiny(age=pl.Series([30, 31, 31, 31, 50, 50, 50, 44]))
    terms = Terms.from_features(log.columns, log.features, log.profiles)
    bad, _ = count_cells(log, terms, log.transitions)
    ages = bad.terms[:, 1] * terms.spread[0] + terms.mean[0]
    np.testing.assert_allclose(ages, [30, 31, 50])


def test_what_was_unknown_once_has_a_constant_of_its_own():
    log = tiny(age=pl.Series([None, 30, 31, 31, 50, 50, 50, 44]))
    assert Terms.from_features(log.columns, log.features).flagged == ()
    assert fit_log(log, draws=2).terms.flagged == (0,)


# Who was available, and who was reached


def test_transitions_of_rows_in_which_nobody_could_be_acted_on_are_left_out():
    log = tiny(available=pl.Series([False, True, None, None, False, True, True, False]))
    assert log.transitions.person.tolist() == [0, 1]
    assert log.found.unavailable == 2
    assert log.feature_names == ("age", "region=north", "region=south")
    named = TINY.with_columns(here=pl.Series(["no", "yes", None, "1", "0", "y", "t", "f"]))
    same = read_log(named, passive="none", rewards=REWARDS, available="here")
    assert same.transitions.state.tolist() == log.transitions.state.tolist()


def test_an_action_that_reached_nobody_is_still_the_action_that_was_tried():
    log = tiny(reached=pl.Series([False, False, None, True, None, None, True, True]))
    assert log.transitions.action.tolist() == tiny().transitions.action.tolist()
    assert (log.found.tried, log.found.not_reached) == (2, 1)
    assert "reached" not in log.feature_names


# Rounds


def test_the_length_of_a_round_may_be_given():
    first = datetime.date(2026, 1, 5)
    days = [0, 7, 14, 28, 0, 7, 14, 7]
    frame = TINY.with_columns(
        time=pl.Series([first + datetime.timedelta(days=d) for d in days])
    )  # fmt: skip
    for every, apart in (("7d", 7), ("1w", 7), (7, 7), (None, 7)):
        log = read_log(frame, passive="none", rewards=REWARDS, every=every)
        assert (log.found.apart, len(log.transitions)) == (apart, 4)
    months = TINY.with_columns(
        time=pl.Series([datetime.date(2026, m, 1) for m in (1, 2, 3, 5, 1, 2, 3, 2)])
    )
    log = read_log(months, passive="none", rewards=REWARDS, every="1m")
    assert (log.found.unit, log.found.gaps, len(log.transitions)) == ("month", 1, 4)


# No features


@pytest.fixture(scope="module")
def by_state():
    """A log without features and a model of it."""
    rng = np.random.default_rng(0)
    frame = walked(two_regions(40, rng)[0], {}, 8, 0.3, rng)
    log = read_log(frame, rewards={0: 0, 1: 1})
    fit = fit_log(log, draws=8)
    return log, fit, pm.pretrain(Logged(log, fit), n_arms=6, budget=2, steps=20)


def test_a_log_without_features_gives_a_model_by_state(by_state, tmp_path):
    log, fit, model = by_state
    assert (log.profiles.shape, log.features.shape, log.feature_names) == ((1, 0), (40, 0), ())
    assert fit.draws.shape == (8, 2, 2, 2, 1)
    assert estimate_effects(log, fit).groups.is_empty()
    held = hold_out(log, draws=8)
    assert held[0].losses["predictor"].unique().sort().to_list() == [
        "and own past",
        "state and action",
    ]
    assert features_verdict(held[0]).startswith("The log has no features")
    model.save(tmp_path / "m")
    loaded = pm.load(tmp_path / "m")
    assert loaded.feature_names == ()
    nothing = np.zeros((4, 0))
    acted = model.act([0, 1, 1, 0], nothing, budget=2)
    assert acted.tolist() == loaded.act([0, 1, 1, 0], nothing, budget=2).tolist()
    assert acted.sum() == 2


def test_a_table_of_ids_and_states_can_be_planned_for(by_state):
    plan = by_state[2].plan(pl.DataFrame({"id": [7, 8, 9], "state": [0, 1, 0]}), budget=1)
    assert plan.frame["cost"].sum() == 1
    assert all("by state" in reason for reason in plan.frame["reason"])


def test_no_features_may_be_asked_for():
    log = read_log(TINY, features=[], passive="none", rewards=REWARDS)
    assert log.features.shape == (3, 0)


def test_the_report_says_that_there_are_no_features_and_gives_warnings(by_state, tmp_path):
    log, fit, model = by_state
    found = dataclasses.replace(log.found, people=3, unavailable=4, tried=9, not_reached=2)
    log = dataclasses.replace(log, found=found)
    found = assessment("not shown", warnings=log_warnings(log))
    held = hold_out(log, draws=8)
    result = LearnResult(model, log, fit, estimate_effects(log, fit), held, found)
    (warning,) = result.as_data()["warnings"]
    assert (warning["code"], warning["spoils"]) == ("few_people", False)
    assert "the log has 3 people only" in warning["sentence"]
    assert "features none" in _card(result)
    result.report(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "Features: none." in text
    assert "Whom it helps" not in text
    assert "4 transitions start while the person was not available" in text
    assert "2 of 9 actions did not reach the person" in text
    assert "**What could be wrong?** The log has 3 people only" in text


def test_a_result_without_a_gain(by_state, tmp_path):
    log, fit, model = by_state
    few = LogWarning("too_few_to_judge", "there are 3 people.", spoils=True)
    found = assessment("cannot tell", warnings=[few])
    found = dataclasses.replace(found, comparison=None, placebo=())
    result = LearnResult(model, log, fit, estimate_effects(log, fit), [], found)
    assert result.gain is None
    assert repr(result) == "LearnResult(verdict='cannot tell', gain=None, warnings=1)"
    data = result.as_data()
    assert [data[name] for name in ("gain", "placebo", "rounds", "compared")] == [None] * 4
    result.report(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "**It cannot be told from this log whether a model would gain anything**" in text
    assert "The model and other ways of choosing" not in text
    assert "the prediction error is not known" in text


def test_a_round_without_any_known_action_does_not_count_for_what_rounds_cost():
    # 2 calls in weeks 1, 2, 3 and 5; of week 6 no action is known.
    more = TINY.head(1).with_columns(time=6, action=pl.lit(None, pl.String))
    log = read_log(pl.concat([TINY, more], how="vertical_relaxed"), passive="none", rewards=REWARDS)
    assert log.spent == 2 / 4


# The command line


def typed(tmp_path, monkeypatch, frame, *options):
    """What `prefermab learn` reads with these options, up to the log."""
    frame.write_csv(tmp_path / "log.csv")
    logs, arguments = [], inspect.signature(read_log).parameters

    def stop(log, **given):
        logs.append(read_log(log, **{k: value for k, value in given.items() if k in arguments}))
        raise pm.InputError("far enough.")

    monkeypatch.setattr(learning, "learn", stop)
    line = ["prefermab", "learn", str(tmp_path / "log.csv"), "--out", str(tmp_path / "m")]
    line += ["--rewards", "bad=0", "good=1", "--budget", "5", *options]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(SystemExit):
        cli.main()
    return logs[0] if logs else None


def test_a_label_none_with_a_capital_is_a_label(tmp_path, monkeypatch, capsys):
    frame = TINY.with_columns(action=pl.col("action").replace({"none": "None"}))
    for options in (["--passive", "None"], ["--costs", "None=0", "call=1"]):
        log = typed(tmp_path, monkeypatch, frame, *options)
        assert log is not None, capsys.readouterr().err
        assert log.labels.actions == ("None", "call")


def test_options_of_columns_and_rounds(tmp_path, monkeypatch, capsys):
    frame = TINY.with_columns(here=True, got=pl.col("id") == 1)
    options = ["--available", "here", "--reached", "got", "--every", "1", "--passive", "none"]
    log = typed(tmp_path, monkeypatch, frame, *options, "--features")
    assert log is not None
    assert (log.feature_names, log.found.not_reached, log.found.apart) == ((), 1, 1)
    log = typed(tmp_path, monkeypatch, frame, *options)
    assert log is not None
    assert log.feature_names == ("age", "region=north", "region=south")
    assert typed(tmp_path, monkeypatch, frame, *options, "--features", "None") is None
    assert "the column 'None' is missing" in capsys.readouterr().err
