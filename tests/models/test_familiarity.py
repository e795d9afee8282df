"""Data unlike the training's: who is outside, how they are judged, and where it is said."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import prefermab as pm
from prefermab.errors import UnlikeTrainingWarning
from prefermab.models.familiarity import FeatureRanges, distance, draw_features
from prefermab.models.loading import fingerprint

MODEL = pm.load("armman")
DOMAIN = pm.domains.Armman()
SIZE = 1000


def table(features: np.ndarray, states: np.ndarray | None = None) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    states = rng.integers(0, 3, len(features)) if states is None else states
    columns = dict(zip(MODEL.feature_names, features.T, strict=True))
    return pl.DataFrame({"id": np.arange(len(features)), "state": states, **columns})


def strange_features() -> np.ndarray:
    return np.random.default_rng(0).random((SIZE, 6)).astype(np.float32)


def test_new_arms_of_the_same_domain_are_familiar():
    arms = DOMAIN.draw_arms(jax.random.key(5), SIZE)
    judged = MODEL.judge_cautiously(np.asarray(DOMAIN.features(arms)))
    assert judged.unlike.mean() < 0.002
    same = ~judged.unlike
    features = np.asarray(DOMAIN.features(arms))
    assert (judged.features[same] == features[same]).all()


def test_who_is_judged_lies_inside_of_the_range():
    judged = MODEL.judge_cautiously(strange_features())
    known = MODEL.familiar
    assert known is not None
    assert known.radius is not None
    assert judged.unlike.all()
    assert ((judged.features >= known.low - 1e-5) & (judged.features <= known.high + 1e-5)).all()
    assert distance(judged.features, MODEL.network.perception).max() <= known.radius * 1.0001


def test_of_somebody_with_no_feature_inside_nothing_is_known():
    features = np.full((2, 6), np.nan, np.float32)
    features[0, 2] = 5.0
    judged = MODEL.judge_cautiously(features)
    assert np.isnan(judged.features).all()
    assert judged.counts(MODEL.feature_names) == {"feature_2": 1}


def test_a_plan_says_who_is_unlike_and_spends_its_budget():
    plan = MODEL.plan(table(strange_features()), budget=140)
    assert plan.summary.left == 0
    assert plan.summary.outside_training == SIZE
    assert set(plan.summary.outside) == {f"feature_{i}" for i in (0, 1, 2, 4, 5)}
    facts = json.loads(plan.as_json())
    assert facts["outside"]["feature_2"] == facts["outside_training"] == SIZE
    assert plan.frame["outside"].min() == 1
    line = next(line for line in str(plan.summary).splitlines() if "unlike" in line)
    assert "1,000 people" in line
    assert "feature_2 of 1,000" in line
    assert "cautiously" in line


def test_a_familiar_table_is_not_remarked_on():
    named = np.array(MODEL.state_names)[np.random.default_rng(0).integers(0, 3, 50)]
    plan = MODEL.plan(table(draw_features(DOMAIN)[:50], named), budget=5)
    assert plan.summary.outside_training == 0
    assert plan.summary.outside == {}
    assert plan.frame["outside"].to_list() == [0] * 50
    assert "unlike" not in str(plan.summary)
    assert "numbers" not in str(plan.summary)


def test_states_given_as_numbers_are_echoed_by_name():
    plan = MODEL.plan(table(draw_features(DOMAIN)[:50]), budget=5)
    meant = {"0": "motivated", "1": "persuadable", "2": "lost cause"}
    assert plan.summary.states_read == meant
    assert "read as 0 = motivated, 1 = persuadable, 2 = lost cause" in str(plan.summary)


def test_a_budget_far_from_the_trainings_is_said_where_it_matters():
    paper = pm.load("armman-paper")
    people = table(draw_features(DOMAIN)[:50])
    assert "trained for a budget of 0.28 per person" in str(paper.plan(people, budget=1).summary)
    assert "per person" not in str(paper.plan(people, budget=14).summary)
    assert "per person" not in str(MODEL.plan(people, budget=1).summary)


def test_act_warns_and_judges_as_a_plan_does():
    people = table(strange_features()[:50])
    with pytest.warns(UnlikeTrainingWarning, match="50 arms are unlike .*feature_2 of 50"):
        acted = MODEL.act(people["state"], people.select(MODEL.feature_names).to_numpy(), budget=7)
    planned = MODEL.plan(people, budget=7).frame["action"] == "call"
    assert (planned.to_numpy() == (acted > 0)).all()


def test_evaluate_warns_of_arms_unlike_the_trainings():
    other = pm.domains.Armman(feature_map=pm.FeatureMap("identity"))
    with pytest.warns(UnlikeTrainingWarning, match="of the arms of 'armman' are unlike .*'mine'"):
        pm.evaluate(other, {"mine": MODEL}, n_arms=3, budget=1, trials=2, bound=False)


def test_ranges_are_stored_and_no_part_of_the_fingerprint(tmp_path):
    assert MODEL.seen is not None  # models that ship have them, so loading draws nothing
    bare = dataclasses.replace(MODEL, seen=None)
    assert fingerprint(bare) == fingerprint(MODEL)
    bare.save(tmp_path / "again")
    again = pm.load(tmp_path / "again")
    # Saving draws nothing either: a model of before has them from its domain.
    assert again.seen is None
    assert again.familiar is not None
    assert np.allclose(again.familiar.low, MODEL.seen.low)


def test_a_model_without_ranges_and_domain_guesses_them():
    alone = dataclasses.replace(MODEL, seen=None, domain=None)
    known, right = alone.familiar, MODEL.familiar
    assert known is not None
    assert right is not None
    wider = (known.high - known.low) / (right.high - right.low)
    assert ((wider > 0.8) & (wider < 2.5)).all()


def test_a_feature_that_was_never_known_says_nothing():
    known = FeatureRanges.from_features(np.array([[0.0, np.nan], [1.0, np.nan]]), _two_features())
    judged = known.judge(np.array([[0.5, 7.0]], np.float32), _two_features())
    assert judged.features[0, 0] == 0.5
    assert np.isnan(judged.features[0, 1])
    assert not judged.unlike.any()
    assert json.loads(json.dumps(known.as_json()))["low"][1] is None


def _two_features():
    perception = MODEL.network.perception
    zeros, eye = jnp.zeros(2), jnp.eye(2)
    return dataclasses.replace(perception, mean=zeros, whitening=eye)


def test_a_trained_model_knows_the_features_of_its_training_before_it_is_saved():
    model = pm.pretrain(pm.domains.Synthetic(), "sweep", n_arms=4, budget=1, steps=1, arms=8)
    assert model.seen is not None
    assert (
        model.seen.as_json() == FeatureRanges.of(model.domain, model.network.perception).as_json()
    )
