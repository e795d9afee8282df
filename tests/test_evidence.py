"""What a log proves, in figures by group, in sentences and in pictures."""

import dataclasses

import numpy as np
import polars as pl
import pytest

import prefermab as pm
from prefermab.evidence import pictures
from prefermab.evidence.groups import _groups, whom_it_helps
from prefermab.evidence.heldout import HeldOut, hold_out, verdict
from prefermab.evidence.words import headline
from prefermab.logs.fitting import fit_log
from prefermab.logs.reading import read_log
from prefermab.logs.shapes import Caution, cautions
from test_logs import TINY, read_walked, tiny, two_regions, walked

COMPARED = pl.DataFrame(
    {
        "policy": ["prefermab", "none", "random", "as logged"],
        "mean": [4.968, 3.2, 3.7, 3.89],
        "low": [4.7, 3.0, 3.5, 3.7],
        "high": [5.2, 3.4, 3.9, 4.1],
        "gain": [0.0, 1.768, 1.268, 1.078],
        "gain_low": [0.0, 1.6, 1.1, 0.962],
        "gain_high": [0.0, 1.9, 1.4, 1.205],
    }
)


# Groups


def test_groups_are_levels_and_thirds_and_who_is_unknown():
    names, member = _groups(tiny())
    assert names == [
        ("age", "31"), ("age", "50"), ("age", "unknown"),
        ("region", "north"), ("region", "south"), ("region", "unknown"),
    ]  # fmt: skip
    assert member.toarray().tolist() == [
        [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 1, 0], [0, 0, 0],
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    ages = np.array([20, 21, 22, 30, 31, 32, 40, 41, np.nan])
    log = read_walked(np.full((9, 2, 2, 2), 0.5), {"age": ages}, 20, 0.5, rng)
    names, member = _groups(log)
    assert [name for _, name in names] == ["20 to 22", "30 to 31", "32 to 41", "unknown"]
    assert member.sum(axis=1).tolist() == [3, 2, 3, 1]


def test_gains_of_groups_are_those_of_the_truth():
    rng = np.random.default_rng(1)
    tables, features = two_regions(1000, rng)
    log = read_walked(tables, features, 12, 0.3, rng)
    found = whom_it_helps(log, fit_log(log, draws=64))
    assert found["feature"].to_list() == ["region"] * 2 + ["age"] * 3
    assert found["people"].to_list() == [500, 500, 334, 333, 333]
    seen = log.transitions
    tables = tables[sorted(range(1000), key=str)]  # people are numbered in the order of their ids
    gains = tables[..., 1, 1] - tables[..., 0, 1]  # (person, state): more often in state 1
    own = gains[seen.person, seen.state]
    north = log.features[seen.person, 0] == 1
    truths = (own[north].mean(), own[~north].mean())
    for row, truth in zip(found[:2].iter_rows(named=True), truths, strict=True):
        assert row["low"] - 0.02 < truth < row["high"] + 0.02
        assert row["n"] == ((seen.action == 1) & (north == (row["group"] == "north"))).sum()
        assert row["low"] < row["gain"] < row["high"]
    assert abs(found["gain"][2] - own.mean()) < 0.05


# Sentences


def test_the_verdict_says_whether_features_helped():
    def told(better, stderr):
        rows = [("and features", where, 10, 0.4, better, stderr) for where in ("all",)]
        schema = ["predictor", "where", "n", "loss", "better", "stderr"]
        return verdict(HeldOut(2, pl.DataFrame(rows, schema, orient="row"), pl.DataFrame()))

    helped = "features helped (loss -0.0200, 90 % interval -0.0364 to -0.0036)"
    assert helped in told(0.02, 0.01)
    assert told(0.02, 0.01).endswith("They are worth keeping.")
    assert "it is open whether features help" in told(0.01, 0.01)
    assert told(0.01, 0.01).endswith("or collect more.")
    assert "features made it worse" in told(-0.02, 0.01)
    assert "Leave features out" in told(-0.02, 0.01)
    assert told(0.02, 0.0).startswith("Too little was held out")


def test_the_verdict_of_a_log_where_features_matter():
    rng = np.random.default_rng(7)
    tables, features = two_regions(400, rng)
    held = hold_out(read_walked(tables, features, 15, 0.2, rng), draws=16)
    assert held is not None
    assert "for all transitions features helped" in verdict(held)


def test_little_to_go_by_is_a_warning():
    few, action = cautions(tiny())[0], cautions(tiny())[2]
    assert few.code == "few_people"
    assert few.sentence.startswith("the log tells of 3 people only")
    assert action.code == "few_actions"
    assert action.sentence.startswith("the log has only 1 transition under the action 'call'")
    rng = np.random.default_rng(0)
    frame = walked(np.full((40, 2, 2, 2), 0.5), {"age": rng.normal(size=40)}, 8, 0.4, rng)
    assert cautions(read_log(frame, rewards={0: 0, 1: 1})) == []
    gaps = frame.with_columns(action=pl.when(pl.col("time") > 0).then("action"))
    assert cautions(read_log(gaps, rewards={0: 0, 1: 1})) == [
        Caution(
            "unknown_actions",
            "40 of 320 rows have no action, and transitions that need it are left out; in a CSV "
            "file the words NA, N/A, NaN, nan, null, NULL count as empty, and no others.",
        )
    ]


def test_the_headline_is_for_who_decides():
    rewards = {"bad": 0, "good": 2}
    log = read_log(TINY.rename({"time": "week"}), time="week", passive="none", rewards=rewards)
    model = dataclasses.replace(pm.load("armman"), n_arms=8, budget=4.0)
    told = headline(log, model, COMPARED)
    assert told.startswith(
        "Simulated from this log, a person earns 4.97 in 9 weeks with the model and 3.89 as chosen "
        "so far, for the same budget of 4 a week: 1.08 more (90 % interval 0.96 to 1.21)."
    )
    # 4 of 8 rows are good; 2 calls in 4 weeks with 2 people each are 0.25 a person.
    assert (
        "In the log itself people earned 1.00 a week; the simulation of the former choice" in told
    )
    assert "with this budget, 0.5 a person instead of 0.25, gives 0.43." in told


def test_the_headline_counts_rounds_in_the_one_good_state_and_admits_less():
    worse = COMPARED.with_columns(
        gain=pl.lit(-0.5), gain_low=pl.lit(-0.9), gain_high=pl.lit(0.1), mean=pl.lit(3.6)
    )
    model = dataclasses.replace(pm.load("armman"), n_arms=8, budget=2.0)
    told = headline(tiny(), model, worse)
    assert "a person is in the state good in 3.60 of 9 rounds with the model and in 3.60" in told
    assert "0.50 less (90 % interval -0.10 to 0.90, so it may be none)" in told
    assert "people were so in 50.0 % of their rounds" in told
    assert "the former choice gives 40.0 %" in told


@pytest.mark.parametrize(
    ("apart", "name", "unit"),
    [(1, "week", "week"), (2, "week", "round"), (1, "Month no", "month"), (1, "time", "round")],
)
def test_a_round_is_called_what_the_time_column_says(apart, name, unit):
    frame = TINY.with_columns(pl.col("time") * apart).rename({"time": name})
    log = read_log(frame, time=name, passive="none", rewards={"bad": 0, "good": 1})
    assert log.found.unit == unit


def test_bars_of_the_comparison_are_drawn_with_the_model_first():
    (picture,) = pictures.comparison(COMPARED, 9)
    shown = [picture.svg.index(f"<!-- {name} -->") for name in ("no action", "random", "as logged")]
    assert shown == sorted(shown)  # drawn from the bottom
    assert "<!-- 4.97 -->" in picture.svg
