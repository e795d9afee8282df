"""Lots in plans: exact probabilities, every rule kept, the same again from the same seed."""

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

import prefermab as pm
from prefermab.programme.planning.lots import draw_lots, find_cells, pot_sizes
from prefermab.programme.planning.rules import SharedLimits
from prefermab.programme.planning.rules.limits import Limits

MODEL = pm.load("armman")
STATES = ("motivated", "persuadable", "lost cause")


def people(size=60, seed=0):
    rng = np.random.default_rng(seed)
    features = {name: rng.normal(0.0, 0.3, size) for name in MODEL.feature_names}
    return pl.DataFrame(
        {
            "id": np.arange(size),
            "state": np.array(STATES)[rng.integers(0, 3, size)],
            "region": np.where(rng.random(size) < 0.3, "north", "south"),
            "nurse": np.where(rng.random(size) < 0.5, "Ana", "Bo"),
            "rounds_since_action": rng.integers(1, 6, size),
            "no": rng.random(size) < 0.1,
            **features,
        }
    )


def limits(group, worker, may):
    shared = (SharedLimits.of(group, ()), SharedLimits.of(worker, ()))
    return Limits(np.where(may, 0, 1), np.zeros(len(group), int), shared)


def test_probabilities_by_hand():
    """Cell of 5, model acts on 2, pot of 2.5 on average: 2 or 3 with even chance. Pot of 2: in it
    with 2/5, keeps own with half, else one of the 4 others, of whom 1 is acted on:
    3/5 + 2/5·(1/2 + 1/2·1/4) = 0.85. Pot of 3: 2/5 + 3/5·(1/3 + 2/3·1/4) = 0.70."""
    lots = draw_lots(np.array([1, 0, 1, 0, 0]), [np.arange(5)], 2, 0.5, seed=1)
    np.testing.assert_allclose(lots.probabilities[:, 1], [0.775, 0.15, 0.775, 0.15, 0.15])
    assert lots.probabilities[:, 1].sum() == pytest.approx(2)


@pytest.mark.parametrize("explore", [0.03, 0.3, 1.0])
def test_probabilities_are_what_many_draws_show(explore):
    actions = np.array([2, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 2])
    cells = find_cells(
        np.tile([0.0, 1.0, 2.0], (12, 1)),
        limits(np.array([0] * 7 + [1] * 5), np.zeros(12, int), np.arange(12) != 3),
        np.zeros(12, int),
    )
    draws, seen = 4000, np.zeros((12, 3))
    lots = draw_lots(actions, cells, 3, explore, 0)
    for seed in range(draws):
        lots = draw_lots(actions, cells, 3, explore, seed)
        seen[np.arange(12), lots.actions] += 1 / draws
    error = np.sqrt(lots.probabilities * (1 - lots.probabilities) / draws)
    assert (np.abs(seen - lots.probabilities) <= 4.5 * error + 1e-12).all()
    np.testing.assert_allclose(lots.probabilities.sum(axis=1), 1)
    assert lots.probabilities[3, 0] == 1


@settings(max_examples=60)
@given(st.integers(2, 30), st.floats(0, 1), st.integers(0, 2**62), st.data())
def test_every_cell_keeps_its_actions_and_chances_add_up(size, explore, seed, data):
    actions = np.array(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    group = np.array(data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)))
    cells = find_cells(
        np.tile([0.0, 1.0, 2.5], (size, 1)),
        limits(group, np.full(size, -1), np.ones(size, bool)),
        np.zeros(size, int),
    )
    lots = draw_lots(actions, cells, 3, explore, seed)
    for cell in cells:
        assert sorted(lots.actions[cell]) == sorted(actions[cell])
        expected = np.bincount(actions[cell], minlength=3)
        np.testing.assert_allclose(lots.probabilities[cell].sum(axis=0), expected, atol=1e-9)
    assert (lots.chances > 0).all()


def test_everybody_is_in_a_pot_with_the_stated_chance():
    for size in (2, 3, 7, 40):
        for explore in (0.0, 0.1, 0.5, 0.77, 1.0):
            pots = pot_sizes(size, explore)
            assert sum(p for _, p in pots) == pytest.approx(1)
            assert sum(pot * p for pot, p in pots) == pytest.approx(explore * size)
            assert all(pot <= size for pot, p in pots if p > 0)


RULES = pm.Rules(
    exclude_column="no", lock_ids=(5,), cooldown=1, group_column="region",
    min_share={"north": 0.4}, max_share={"south": 0.6}, worker_column="nurse", budgets={"Ana": 5},
)  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_a_plan_with_lots_keeps_every_rule(seed):
    table = people().with_columns(no=(pl.col("no") & (pl.col("id") != 5)))
    table = table.with_columns(
        rounds_since_action=pl.when(pl.col("id") == 5).then(4).otherwise("rounds_since_action")
    )
    plain = MODEL.plan(table, budget=10, rules=RULES)
    made = MODEL.plan(table, budget=10, rules=RULES, explore=0.6, seed=seed)
    chosen = made.frame.filter(pl.col("action") == "call")
    assert made.summary.spent == plain.summary.spent <= 10
    assert not chosen["no"].any()
    assert (chosen["rounds_since_action"] > 1).all()
    assert (chosen["region"] == "north").mean() >= 0.4
    assert (chosen["nurse"] == "Ana").sum() <= 5
    locked = made.frame.row(by_predicate=pl.col("id") == 5, named=True)
    assert (locked["action"], locked["probability"]) == ("call", 1.0)
    called = pl.col("action") == "call"
    acted = made.frame.select(
        pl.when(called).then("probability").otherwise(1 - pl.col("probability"))
    )
    assert acted.to_series().sum() == pytest.approx(made.summary.spent)
    other = made.frame["action"] != plain.frame["action"]
    assert made.frame.filter(other)["reason"].str.starts_with("by lot; ").all()
    lost, before = made.summary.explore_cost, plain.summary.gain
    assert lost is not None
    assert before is not None
    assert lost >= 0
    assert made.summary.gain == pytest.approx(before - lost)


def test_different_costs_are_dealt_only_among_equals():
    table = people(40).with_columns(cost_call=pl.Series([1.0, 2.0] * 20))
    made = MODEL.plan(table, budget=15, explore=1.0, seed=2)
    plain = MODEL.plan(table, budget=15)
    for each in (1.0, 2.0):
        here = pl.col("cost_call") == each
        counts = [(p.frame.filter(here)["action"] == "call").sum() for p in (made, plain)]
        assert counts[0] == counts[1]
    assert made.summary.spent == plain.summary.spent


def test_the_same_seed_draws_the_same_and_no_seed_is_told():
    one, same = (MODEL.plan(people(), budget=9, explore=0.5, seed=7).frame for _ in range(2))
    assert one.equals(same)
    new = MODEL.plan(people(), budget=9, explore=0.5).summary
    assert new.seed is not None
    assert f"50% by lot among 60 people, seed {new.seed}" in str(new)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"explore": 1.5}, "explore must lie between 0 and 1"),
        ({"explore": 0.1, "seed": -1}, "seed"),
    ],
)
def test_wrong_lots_are_refused(given, words):
    with pytest.raises(pm.InputError, match=words):
        MODEL.plan(people(), budget=3, **given)


def test_a_programme_stores_replays_and_logs_its_lots(tmp_path):
    with pm.Programme(tmp_path / "p.db", MODEL) as programme:
        programme.join(people().drop("rounds_since_action"))
        made = programme.plan(9, explore=0.5)
        assert programme.plan(9, explore=0.5).frame.equals(made.frame)
        assert programme.replay(1).frame.equals(made.frame)
        chosen = made.frame.filter(pl.col("action") == "call")
        done = chosen.select("id", "action").slice(1)
        programme.record(done)
        programme.plan(9)
        programme.record()
        log = programme.history().log
    assert made.asked["seed"] == made.facts["seed"]
    first = log.filter(pl.col("time") == 1).join(made.frame.select("id", p="probability"), on="id")
    not_done = pl.col("id") == chosen["id"][0]
    assert first.filter(not_done)["probability"].to_list() == [None]
    kept = first.filter(~not_done)
    assert kept["probability"].equals(kept["p"], check_names=False)
    assert (kept["probability"] < 1).any()
    assert log.filter(pl.col("time") == 2)["probability"].to_list() == [1.0] * 60
