"""Trials: lots and protocols, estimators by hand and against exchanges, power, analysis."""

import dataclasses
import json
import shlex

import jax
import numpy as np
import polars as pl
import pytest

import prefermab as pm
from prefermab.cli import dispatch
from prefermab.programme.evidence import effects, power, trial_logs
from prefermab.programme.evidence.choosing import Quotas, choose_people, take_steps
from prefermab.programme.evidence.designs import Design, draw_layout, estimate_trial_effects
from prefermab.programme.evidence.effects import TrialArm
from prefermab.programme.evidence.power import TrialProgramme, needed, simulate_effects
from prefermab.programme.evidence.protocol import randomise, read_protocol
from prefermab.programme.evidence.simulated_trials import (
    Pool,
    TrialHistories,
    draw_pool,
    play_programme_trials,
)
from prefermab.programme.evidence.trial_logs import model_index, rehearse
from prefermab.programme.planning.constrained import Selection, choose_under_rules
from prefermab.programme.planning.rules import SharedLimits
from prefermab.programme.planning.rules.limits import Limits

REWARDS = {"motivated": 1.0, "persuadable": 0.5, "lost cause": 0.0}
MODEL = pm.load("armman")


@pytest.fixture(scope="module")
def pool() -> Pool:
    return draw_pool(MODEL, size=300, seed=1)


def people(size=60, seed=0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    return pl.DataFrame(
        {
            "id": [f"p{i}" for i in range(size)],
            "region": np.array(["north", "south"])[rng.integers(0, 2, size)],
            "age": rng.integers(18, 60, size),
            "clinic": np.array(list("abcdefgh"))[np.arange(size) % 8],
        }
    )


def arm(reward, acted, index) -> TrialArm:
    return TrialArm(
        *(np.array(x, kind) for x, kind in ((reward, float), (acted, bool), (index, float)))
    )


def test_the_subgroup_estimator_by_hand():
    """The model chose the two with the highest index, who earn 3 and 5; of the control those with
    the indices 9 and 8 earn 1 and 2: 4 - 1.5."""
    one = arm([[3], [5], [0], [0]], [[1], [1], [0], [0]], [[9], [8], [2], [1]])
    other = arm([[0], [1], [2], [0]], [[0]] * 4, [[1], [9], [8], [3]])
    assert effects.subgroup(one, other).estimate == pytest.approx(2.5)


def exchanged_differences(one: TrialArm, other: TrialArm, cut: float) -> list[float]:
    """All exchanges of one untouched person of each arm, and of none, one by one."""
    found = [one.total.mean() - other.total.mean()]
    for i in np.flatnonzero(~one.acted[:, 0]):
        for j in np.flatnonzero(other.index[:, 0] < cut):
            swap = (other.total[j] - one.total[i]) * (1 / len(one.total) + 1 / len(other.total))
            found.append(found[0] + swap)
    return found


def test_reshuffling_is_the_mean_over_all_exchanges_of_a_pair():
    """One untouched person in each arm: exchanged or not, with the same probability. Model: 6, 1
    (untouched); control: 4 (would be acted on), 3 (untouched). Not exchanged 3.5 - 3.5, exchanged
    4.5 - 2.5: the mean is 1."""
    one = arm([[6], [1]], [[1], [0]], [[9], [2]])
    other = arm([[4], [3]], [[0], [0]], [[8], [1]])
    both = exchanged_differences(one, other, cut=5.5)
    assert both == pytest.approx([0.0, 2.0])
    assert effects.reshuffled(one, other).estimate == pytest.approx(np.mean(both))


def test_reshuffling_leaves_those_whom_the_other_arm_would_treat_otherwise():
    """Everybody of the control would have been acted on: nobody can be exchanged."""
    one = arm([[6], [1]], [[1], [0]], [[9], [2]])
    other = arm([[4], [3]], [[0], [0]], [[8], [7]])
    assert effects.reshuffled(one, other).estimate == pytest.approx(3.5 - 3.5)


def test_people_with_the_same_actions_in_both_arms_can_be_exchanged():
    """Control by lot: the second was acted on and would have been by the model; pooled with the
    model's first: 6 and 2 become 4 in both arms, and 1 and 3 become 2."""
    one = arm([[6], [1]], [[1], [0]], [[9], [2]])
    other = arm([[3], [2]], [[0], [1]], [[1], [8]])
    assert effects.reshuffled(one, other).estimate == pytest.approx(0.0)


def test_the_price_is_what_actions_are_worth_at_the_margin():
    """Those acted on earn 2 more in the next round whatever their index, so the price is 2."""
    rng = np.random.default_rng(0)
    index = rng.random((400, 1))
    acted = index > np.sort(index, axis=0)[-80]
    reward = rng.normal(0, 0.1, (400, 1)) + 2.0 * acted
    assert effects.marginal_price(TrialArm(reward, acted, index), by_index=True) == pytest.approx(
        2, abs=0.1
    )
    nobody = TrialArm(reward, np.zeros_like(acted), index)
    assert effects.marginal_price(nobody, by_index=True) == 0


@pytest.mark.parametrize("name", ["individual", "stratified", "cluster", "stepped wedge"])
def test_lots_are_drawn_evenly_within_strata(name):
    design, unit = Design(name, 10), np.arange(40) % 20
    stratum = np.arange(20) % 2 if name == "stratified" else np.zeros(20, int)
    times = np.zeros(20)
    for seed in range(300):
        layout = draw_layout(design, unit, stratum, np.random.default_rng(seed))
        model = layout.schedule[:, 5]
        times += model / 300
        if name != "stepped wedge":
            assert [model[stratum == each].sum() for each in (0, 1) if (stratum == each).any()] in (
                [10], [5, 5],
            )  # fmt: skip
        else:
            starts = layout.schedule.argmax(axis=1)
            assert np.bincount(starts).tolist() == [0, 0, 5, 0, 5, 0, 5, 0, 5]
    assert (np.abs(times - 0.5) < 0.13).all()


def test_a_switchback_has_one_block_of_each_arm_in_every_pair():
    layout = draw_layout(Design("switchback", 30, block=3), np.arange(5), np.zeros(5, int),
                         np.random.default_rng(0))  # fmt: skip
    blocks = layout.schedule[0].reshape(10, 3)
    assert (blocks == blocks[:, :1]).all()
    assert (blocks[0::2, 0] ^ blocks[1::2, 0]).all()
    assert layout.by_model.shape == (5, 30)


def test_a_simulated_programme_keeps_its_budget_and_cooldown(pool):
    rng = np.random.default_rng(0)
    who, shared = rng.integers(0, pool.size, (3, 40)), np.arange(3)[:, None] * 2 + np.arange(40) % 2
    by_model = np.repeat((shared % 2 == 0)[:, :, None], 8, axis=2)
    played = play_programme_trials(pool, who, by_model, shared, np.full(6, 4), "random", 2, rng)
    for trial in range(3):
        for which in (0, 1):
            acted = played.acted[trial, np.arange(40) % 2 == which]
            assert (acted.sum(axis=0) <= 4).all()
            assert acted.sum() > 8
    both = np.cumsum(played.acted, axis=2)
    within = both - np.concatenate([np.zeros((3, 40, 3)), both[:, :, :-3]], axis=2)
    assert within.max() == 1


@pytest.mark.parametrize(
    ("design", "clusters"),
    [
        (Design("individual", 6), 0),
        (Design("stratified", 6), 0),
        (Design("cluster", 6), 12),
        (Design("switchback", 24, block=3), 0),
        (Design("stepped wedge", 10, washout=1), 12),
    ],
)
def test_effects_are_found_in_every_design(pool, design, clusters):
    tried = TrialProgramme(0.2)
    found = simulate_effects(pool, design, tried, 96, clusters, 40, np.random.default_rng(0))
    first = [next(iter(one.values())) for one in found]
    mean = np.mean([one.estimate for one in first])
    held = np.mean([one.low <= mean <= one.high for one in first])
    assert 0.05 < mean < 0.6
    assert held >= 0.75
    assert {"t-test"} < set(found[0])


def test_power_finds_the_clusters_that_a_known_spread_needs(monkeypatch):
    """Nothing depends on anything: rewards are 0 or 1 by a coin, in one round, in clusters of ten
    with the standard deviation 0.158. A low end above 0 in 80 % of trials takes a gain of
    (1.75 + 0.86)·0.158·sqrt(4/k), with Student's quantiles: k = 17 clusters for 0.2."""
    coin = np.full((50, 2, 2, 2), 0.5)
    flat = Pool(coin, np.full((50, 2), 0.5), np.tile([0.0, 1.0], (50, 1)), np.zeros((50, 2)))
    monkeypatch.setattr(power, "draw_pool", lambda *_, **__: flat)
    design, tried = Design("cluster", 1), TrialProgramme(0.2)
    found = needed(MODEL, design, tried, gain=0.2, cluster_size=10, trials=300)
    assert found.clusters is not None
    assert 14 <= found.clusters <= 21
    assert found.people == 10 * found.clusters
    assert found.power == pytest.approx(0.8, abs=0.1)


def shares_of_a_plan(key, budget, label, shares) -> np.ndarray:
    """What a plan chooses for these gains."""
    size, (least, largest) = len(key), shares
    limits = np.zeros(size, int)
    rules = Limits(limits, limits, (SharedLimits.of(label, tuple("abc"), least, largest),))
    gains = np.stack([np.zeros(size), key], axis=1)
    costs = np.tile([0.0, 1.0], (size, 1))
    return choose_under_rules(Selection(gains, costs, budget, rules, limits, False)) > 0


@pytest.mark.parametrize("seed", range(12))
def test_simulated_people_are_chosen_as_a_plan_chooses_them(seed):
    rng = np.random.default_rng(seed)
    key, label = rng.random(60), rng.integers(0, 3, 60)
    shares = np.array([0.3, 0.0, 0.35]), np.array([0.5, rng.uniform(0.2, 0.4), 0.6])
    quotas = Quotas(label, np.append(shares[0], 0), np.append(shares[1], 1), np.full(4, np.inf))
    found = choose_people(key, np.zeros(60, int), np.array([11]), np.zeros(60), quotas, label)
    np.testing.assert_array_equal(found, shares_of_a_plan(key, 11.0, label, shares))
    assert (found[label == 0].sum() >= 0.3 * found.sum(), found.sum() >= 9) == (True, True)


@pytest.mark.parametrize("seed", range(4))
def test_simulated_budgets_of_workers_are_kept_as_a_plan_keeps_them(seed):
    rng = np.random.default_rng(seed)
    key, label = rng.random(60), rng.integers(0, 3, 60)
    zeros, budgets = np.zeros(60, int), np.array([2.0, 3.0, np.inf])
    limits = Limits(zeros, zeros, (SharedLimits.of(label, tuple("abc"), budget=budgets),))
    gains, costs = np.stack([np.zeros(60), key], axis=1), np.tile([0.0, 1.0], (60, 1))
    planned = choose_under_rules(Selection(gains, costs, 15.0, limits, zeros, False)) > 0
    each = np.append(budgets / np.bincount(label), np.inf)
    quotas = Quotas(label, np.zeros(4), np.ones(4), each)
    found = choose_people(key, np.zeros(60, int), np.array([15]), np.zeros(60), quotas, label)
    np.testing.assert_array_equal(found, planned)
    assert np.bincount(label[found]).tolist() == [2, 3, 10]


def table_of_people(size=150, **more) -> pl.DataFrame:
    rng = np.random.default_rng(5)
    features = {name: rng.normal(0, 0.3, size) for name in MODEL.feature_names}
    north = np.where(features[MODEL.feature_names[0]] > 0, "north", "south")
    return pl.DataFrame({"id": range(size), "state": ["persuadable"] * size, **features,
                         "region": north, "out": np.arange(size) % 3 == 0, **more})  # fmt: skip


def play_once(programme: TrialProgramme) -> tuple[Pool, np.ndarray, TrialHistories]:
    rng, drawn = np.random.default_rng(0), draw_pool(MODEL, size=300, seed=1, programme=programme)
    who, design = rng.integers(0, 300, (4, 100)), Design("individual", 3)
    layouts = [draw_layout(design, np.arange(100), np.zeros(100, int), rng) for _ in who]
    return drawn, who, power.play_layouts(drawn, design, programme, who, layouts, rng)


def test_simulated_trials_keep_exclusions_and_shares_of_groups():
    """Nobody excluded is acted on in either arm; at least 60 % of the ten of each arm, that is 6,
    are of the north wherever there are ten."""
    rules = pm.Rules(exclude_column="out", group_column="region", min_share={"north": 0.6})
    programme = TrialProgramme(0.2, "random", rules=rules, table=table_of_people())
    drawn, who, played = play_once(programme)
    assert drawn.may is not None
    assert drawn.quotas is not None
    assert 0.2 < drawn.may.mean() < 0.9
    assert not played.acted[~drawn.may[who]].any()
    assert (played.index[~drawn.may[who]] == 0).all()
    acted, north = played.acted, drawn.quotas.label[who] == 0
    assert (acted & north[:, :, None]).sum() >= 0.6 * acted.sum()
    assert acted.sum() > 0.9 * 4 * 3 * 20


def test_simulated_trials_keep_the_budgets_of_workers():
    """Ana can act on 4 of the 75 in the table whom she cares for: on 0.053 of her people of an arm
    in a round, to the nearest whole number; others have no limit of their own."""
    table = table_of_people(worker=["Ana", "Bo"] * 75)
    rules = pm.Rules(worker_column="worker", budgets={"Ana": 4})
    programme = TrialProgramme(0.3, "random", rules=rules, table=table)
    drawn, who, played = play_once(programme)
    assert drawn.quotas is not None
    hers = drawn.quotas.label[who] == 0
    assert hers.mean() == pytest.approx(0.5, abs=0.15)
    by_round = (played.acted & hers[:, :, None]).sum(axis=1)
    assert by_round.max() <= 2 * round(4 / 75 * hers.sum(axis=1).max() / 2) + 1
    assert by_round.min() > 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lock_column": "out"}, "locked in .lock."),
        ({"cooldown": 1}, "give cooldown itself"),
        ({"worker_column": "region", "budgets": {"north": 3}, "group_column": "region",
          "max_share": {"north": 0.5}}, r"not with 2 \(max_share; budgets\)"),
    ],
)  # fmt: skip
def test_rules_that_cannot_be_simulated_are_refused(given, words):
    with pytest.raises(pm.InputError, match=words):
        TrialProgramme(0.2, rules=pm.Rules(**given), table=table_of_people())


def test_rules_that_need_a_table_or_another_design_are_refused():
    with pytest.raises(pm.InputError, match="the rule exclude needs a table"):
        TrialProgramme(0.2, rules=pm.Rules(exclude_column="out"))
    rules = pm.Rules(group_column="region", max_share={"north": 0.5})
    tried = TrialProgramme(0.2, rules=rules, table=table_of_people())
    with pytest.raises(pm.InputError, match="too small for the rule max_share"):
        needed(MODEL, Design("cluster", 3), tried)
    costly = table_of_people(**{f"cost_{MODEL.action_names[1]}": [1.0, 2.0] * 75})
    with pytest.raises(pm.InputError, match="for one action that costs the same for everybody"):
        draw_pool(MODEL, size=20, programme=TrialProgramme(0.2, rules=rules, table=costly))
    with pytest.raises(pm.InputError, match="share must lie between 0 and 1"):
        draw_pool(MODEL, size=20, programme=TrialProgramme(1.2))


def test_steps_are_taken_by_price_and_passed_over_where_they_do_not_fit():
    """Unit 0 has 3: the steps of 5 (cost 2) and 4 (cost 2, passed over, and what builds on it), 2
    (cost 1). Unit 1 has 1: its only step costs 1."""
    price = np.array([[5.0, 1.0], [4.0, 3.0], [2.0, 0.0], [9.0, 0.0]])
    cost = np.array([[2.0, 1.0], [2.0, 0.5], [1.0, 0.0], [1.0, 0.0]])
    taken = take_steps(price, cost, np.array([0, 0, 0, 1]), np.array([3.0, 1.0]), np.zeros(4))
    assert taken.tolist() == [1, 0, 1, 1]


SIS = pm.load("sis")


@pytest.fixture(scope="module")
def several() -> Pool:
    return draw_pool(SIS, size=40, seed=1)


def features_of(model, size, seed=1) -> np.ndarray:
    """Of the people of a pool drawn with this seed."""
    arms = model.domain.draw_arms(jax.random.split(jax.random.key(seed))[0], size)
    return np.asarray(model.domain.features(arms))


def chosen_at_once(pool, states, budget) -> np.ndarray:
    everybody, size = np.ones(len(states), bool), len(states)
    return pool.steps.choose(
        np.arange(size), states, everybody, everybody, np.zeros(size, int), np.array([budget]),
        "none", np.random.default_rng(0),
    )  # fmt: skip


@pytest.mark.parametrize("budget", [7.0, 30.0, 60.0])
def test_several_actions_are_chosen_as_the_model_chooses_them(several, budget):
    states = np.random.default_rng(0).integers(0, 151, 40)
    found = chosen_at_once(several, states, budget)
    acted = np.asarray(SIS.act(states, features_of(SIS, 40), budget=budget))
    assert (found == acted).mean() >= 0.95
    assert np.array(SIS.costs)[found].sum() == pytest.approx(np.array(SIS.costs)[acted].sum())


def test_people_whose_costs_differ_are_chosen_as_the_model_chooses_them():
    table = table_of_people(cost_call=np.random.default_rng(1).choice([0.5, 1.0, 2.5], 150))
    pool = draw_pool(MODEL, size=100, seed=1, programme=TrialProgramme(0.2, table=table))
    assert pool.steps is not None
    assert set(np.unique(pool.steps.costs[:, 1])) == {0.5, 1.0, 2.5}
    states = np.random.default_rng(0).integers(0, 3, 100)
    found = chosen_at_once(pool, states, 20.0)
    acted = MODEL.act(states, features_of(MODEL, 100), budget=20.0, costs=pool.steps.costs)
    assert (found == np.asarray(acted)).mean() >= 0.97
    assert pool.steps.costs[np.arange(100), found].sum() <= 20


def test_trials_with_several_actions_keep_their_budget_and_cooldown(several):
    rng, design = np.random.default_rng(0), Design("individual", 5)
    tried = TrialProgramme(0.8, "random", cooldown=1)
    who = rng.integers(0, several.size, (3, 40))
    layouts = [draw_layout(design, np.arange(40), np.zeros(40, int), rng) for _ in who]
    played = power.play_layouts(several, design, tried, who, layouts, rng)
    assert set(np.unique(played.action)) == {0, 1, 2}
    np.testing.assert_array_equal(played.spent, np.array(SIS.costs)[played.action])
    for trial, layout in enumerate(layouts):
        for which in (True, False):
            spent = played.spent[trial, layout.by_model[:, 0] == which].sum(axis=0)
            assert (spent <= 0.8 * 20 + 1e-6).all()
            assert spent.max() > 12
    assert not (played.acted[:, :, 1:] & played.acted[:, :, :-1]).any()


def test_power_of_several_actions_counts_the_plain_difference(several, monkeypatch):
    monkeypatch.setattr(power, "draw_pool", lambda *_, **__: several)
    tried, design = TrialProgramme(0.8), Design("individual", 3)
    found = needed(SIS, design, tried, trials=60, people=40)
    assert 8 <= found.people < 200
    one = simulate_effects(several, design, tried, 40, 0, 1, np.random.default_rng(0))[0]
    assert list(one) == ["difference", "t-test"]


def test_the_analysis_of_several_actions_counts_what_they_cost():
    """Actions of 1 and 3 that gain 2 for each unit of cost: the price is 2, and not 4 or so."""
    rng = np.random.default_rng(0)
    cost = rng.choice([0.0, 1.0, 3.0], (600, 1), p=[0.6, 0.2, 0.2])
    reward = 2 * cost + rng.normal(0, 0.1, (600, 1))
    spent = TrialArm(reward, cost > 0, np.full((600, 1), np.nan), cost)
    assert effects.marginal_price(spent, by_index=False) == pytest.approx(2, abs=0.05)
    assert effects.arm_influence(spent, spent.total, by_index=False).std() < 0.3


def test_a_trial_with_several_actions_goes_from_lots_to_its_analysis(several, monkeypatch):
    monkeypatch.setattr(trial_logs, "draw_pool", lambda *_, **__: several)
    rewards = {name: place / 150 for place, name in enumerate(SIS.state_names)}
    protocol = randomise(people(60), Design("individual", 4), rewards=rewards, seed=2)
    log = rehearse(protocol, SIS, TrialProgramme(0.8), seed=1)
    assert set(log["action"].drop_nulls()) == {"none", "messaging", "masks"}
    assert set(log["cost"].drop_nulls()) == {0.0, 1.0, 2.0}
    found = pm.evidence.analyse(protocol, log)
    assert (found.primary, list(found.effects)) == ("difference", ["difference", "t-test"])
    assert "several actions" in str(found)
    # Without the column, costs are the model's; without both every action costs 1.
    by_model = pm.evidence.analyse(protocol, log.drop("cost"), model=SIS)
    plain = pm.evidence.analyse(protocol, log.drop("cost"))
    assert by_model.effect == found.effect
    assert plain.effect.estimate == found.effect.estimate
    assert plain.effect.stderr != found.effect.stderr


def test_gains_that_cannot_be_shown_are_refused():
    with pytest.raises(pm.InputError, match="gain must be above 0"):
        needed(MODEL, Design("individual", 2), TrialProgramme(0.2), gain=0)
    with pytest.raises(pm.InputError, match="unknown control 'placebo'"):
        TrialProgramme(0.2, "placebo")
    with pytest.raises(pm.InputError, match="not for paper"):
        draw_pool(pm.load("armman-paper"))
    with pytest.raises(pm.InputError, match="unknown design 'clustr'"):
        Design("clustr", 3)
    with pytest.raises(pm.InputError, match="fewer than two pairs"):
        Design("switchback", 8, block=4)


def test_a_protocol_is_drawn_again_from_its_seed_and_notices_changes(tmp_path):
    made = randomise(people(), Design("stratified", 4), balance=["region", "age"],
                     groups=["region"], rewards=REWARDS, seed=5)  # fmt: skip
    again = randomise(people(), Design("stratified", 4), balance=["region", "age"],
                      groups=["region"], rewards=REWARDS, seed=5)  # fmt: skip
    assert made.facts == again.facts
    for region in ("north", "south"):
        arms = made.assignment.filter(pl.col("region") == region)["arm"]
        assert abs((arms == "model").sum() - (arms == "control").sum()) <= 3
    made.write(tmp_path / "trial")
    assert read_protocol(tmp_path / "trial").checksum == made.facts["checksum"]
    assert made.facts["checksum"] in (tmp_path / "trial" / "index.html").read_text()
    with pytest.raises(pm.InputError, match="randomised once"):
        made.write(tmp_path / "trial")
    table = (tmp_path / "trial" / "assignment.csv").read_text()
    moved = table.replace("model", "Model", 1).replace("control", "model", 1)
    (tmp_path / "trial" / "assignment.csv").write_text(moved)
    with pytest.raises(pm.InputError, match="not the assignment that the protocol fixed"):
        read_protocol(tmp_path / "trial")
    facts = json.loads((tmp_path / "trial" / "protocol.json").read_text())
    facts["analysis"]["level"] = 0.5
    (tmp_path / "trial" / "protocol.json").write_text(json.dumps(facts))
    with pytest.raises(pm.InputError, match="was changed after it was written"):
        read_protocol(tmp_path / "trial")


@pytest.mark.parametrize(
    ("design", "given", "words"),
    [
        ("stratified", {}, "needs the columns of the strata"),
        ("cluster", {}, "needs the column of the clusters"),
        ("cluster", {"cluster": "region"}, "4 clusters or more, not 2"),
        ("individual", {"balance": ["town"]}, "town"),
        ("individual", {"balance": ["id"]}, "59 numeric columns, too many to balance 60 people"),
        ("switchback", {"balance": ["age"]}, "a switchback compares people with themselves"),
        ("stepped wedge", {"balance": ["age"], "cluster": "clinic"}, "leave out balance"),
    ],
)
def test_a_trial_that_cannot_be_drawn_is_refused(design, given, words):
    with pytest.raises(pm.InputError, match=words):
        randomise(people(), Design(design, 16), **given)


def differences(protocol) -> np.ndarray:
    """The last column of the balance table, without the row of numbers of people."""
    return np.array([float(row[-1]) for row in protocol.facts["balance"][1:]])


def test_people_are_drawn_alike_in_the_columns_and_with_equal_chances(tmp_path):
    """With 40 people lots alone differ by 0.32 standard deviations in a column. Here 19 people are
    in one region and 21 in the other, so that one arm has one more: 0.10, the least there is."""
    table, times, apart = people(40), np.zeros(40), []
    draw = lambda seed: randomise(  # noqa: E731
        table, Design("individual", 4), balance=["age", "region"], rewards=REWARDS, seed=seed
    )
    for seed in range(60):
        made = draw(seed)
        times += (made.assignment["arm"] == "model").to_numpy() / 60
        apart.append(np.abs(differences(made)))
    age, *region = np.mean(apart, axis=0)
    assert age < 0.06
    assert region == pytest.approx([0.1, 0.1])
    assert (np.abs(times - 0.5) < 0.3).all()
    assert np.abs(times - 0.5).mean() == pytest.approx(0.052, abs=0.02)
    draw(60).write(tmp_path)
    again = read_protocol(tmp_path)
    drawn = (again.assignment["arm"] == "model").to_numpy()
    np.testing.assert_array_equal(again.layout.by_model[:, 0], drawn)
    assert "takes off what they predict" in (tmp_path / "index.html").read_text()


def test_the_analysis_takes_off_what_balanced_columns_predict():
    """The outcome is 3·age + 1 in the model's arm: the effect is 1 exactly, with the error of the
    noise alone; without the column the error is that of age too."""
    rng = np.random.default_rng(0)
    age, noise = rng.normal(0, 1, (200, 1)), rng.normal(0, 0.01, (200, 1))
    design = Design("individual", 1)
    layout = draw_layout(design, np.arange(200), np.zeros(200, int), rng)
    reward = 3 * age + layout.by_model + noise
    everyone = TrialArm(reward, np.zeros((200, 1), bool), rng.random((200, 1)))
    plain = estimate_trial_effects(design, layout, everyone)["difference"]
    taken = dataclasses.replace(layout, columns=age)
    found = estimate_trial_effects(design, taken, everyone)["difference"]
    assert found.estimate == pytest.approx(1, abs=0.005)
    assert found.stderr == pytest.approx(0.01 * np.sqrt(4 / 200), rel=0.15)
    assert plain.stderr == pytest.approx(3 * np.sqrt(4 / 200), rel=0.15)


def test_clusters_are_paired_by_all_columns():
    """Alike in both columns are a and b, c and d, e, f and g; the first column alone would pair
    others."""
    first = {"a": 0, "b": 1, "c": 0, "d": 1, "e": 10, "f": 11, "g": 12}
    second = {"a": 0, "b": 1, "c": 20, "d": 21, "e": 0, "f": 0, "g": 0}
    table = pl.DataFrame({"id": range(14), "clinic": list("abcdefg") * 2}).with_columns(
        pl.col("clinic").replace_strict(first, return_dtype=pl.Float64).alias("size"),
        pl.col("clinic").replace_strict(second, return_dtype=pl.Float64).alias("far"),
    )
    made = randomise(table, Design("cluster", 4), balance=["size", "far"], cluster="clinic", seed=0)
    together = made.facts["units"]["stratum"]
    assert together[2] == together[3]
    assert len({*together}) == 3
    assert sorted(np.bincount(together)) == [2, 2, 3]


@pytest.mark.parametrize("name", ["individual", "cluster", "switchback", "stepped wedge"])
def test_every_design_goes_from_lots_to_its_page(name, tmp_path):
    design = Design(name, 16 if name == "switchback" else 10)
    alike = ["age", "region"] if name in ("individual", "cluster") else []
    protocol = randomise(people(80), design, groups=["region"], balance=alike, cluster="clinic",
                         rewards=REWARDS, seed=2)  # fmt: skip
    log = rehearse(protocol, MODEL, TrialProgramme(0.2), seed=1)
    found = pm.evidence.analyse(protocol, log)
    assert found.primary == {"individual": "reshuffled"}.get(name, name)
    assert found.effect.low < found.effect.estimate < found.effect.high
    assert found.effect.estimate > 0
    assert (found.groups.height == 2) == (name in ("individual", "cluster"))
    found.report(tmp_path)
    page = (tmp_path / "index.html").read_text()
    for heading in ("Flow of participants", "Effect", protocol.facts["checksum"]):
        assert heading in page


@pytest.fixture(scope="module")
def rehearsed():
    protocol = randomise(people(120), Design("individual", 5), groups=["region"], rewards=REWARDS,
                         seed=4)  # fmt: skip
    return protocol, rehearse(protocol, MODEL, TrialProgramme(0.2), seed=3)


def test_the_analysis_agrees_with_the_arrays(rehearsed):
    protocol, log = rehearsed
    found = pm.evidence.analyse(protocol, log)
    reward = log["state"].replace_strict(REWARDS, return_dtype=pl.Float64).to_numpy()
    after = reward.reshape(6, 120)[1:].mean(axis=0)
    model = (protocol.assignment["arm"] == "model").to_numpy()
    plain = after[model].mean() - after[~model].mean()
    assert found.effects["difference"].estimate == pytest.approx(plain)
    assert found.followed == 1
    assert found.shown == (found.effect.low > 0)
    without = pm.evidence.analyse(protocol, log.drop("index"))
    assert list(without.effects) == ["difference", "t-test"]


def test_those_who_are_lost_are_counted_by_arm(rehearsed):
    protocol, log = rehearsed
    control = protocol.assignment.filter(pl.col("arm") == "control")["id"][:15]
    gone = pl.col("id").is_in(control.implode()) & (pl.col("time") > 3)
    found = pm.evidence.analyse(protocol, log.filter(~gone))
    lost = found.flow.row(by_predicate=pl.col("people") == "lost before the end", named=True)
    assert (lost["model"], lost["control"]) == ("0", "15")
    assert "More people were lost in one arm" in str(found)
    assert found.lost is not None
    assert found.lost < 0.001


def test_arms_that_are_not_as_drawn_make_a_trial_unreadable(rehearsed):
    protocol, log = rehearsed
    control = protocol.assignment.filter(pl.col("arm") == "control")["id"][:50]
    stranger = log.head(1).with_columns(id=pl.lit("nobody"))
    found = pm.evidence.analyse(
        protocol, pl.concat([log.filter(~pl.col("id").is_in(control.implode())), stranger])
    )
    assert not found.shown
    assert str(found).startswith("The trial cannot be read")
    assert found.strangers == 1


def test_actions_that_do_not_follow_the_index_are_not_reshuffled(rehearsed):
    protocol, log = rehearsed
    found = pm.evidence.analyse(protocol, log.with_columns(index=-pl.col("index") + 9))
    assert found.primary == "difference"
    assert "of the model's actions went to the people with the highest index" in str(found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda log: log.filter(pl.col("time") < 6), "must have 6 times"),
        (lambda log: pl.concat([log, log.head(1)]), "p0 has two rows in one round"),
        (lambda log: log.with_columns(state=pl.lit("asleep")), "the state 'asleep' has no reward"),
    ],
)
def test_a_wrong_log_is_refused(rehearsed, change, words):
    protocol, log = rehearsed
    with pytest.raises(pm.InputError, match=words):
        pm.evidence.analyse(protocol, change(log))
    with pytest.raises(pm.InputError, match="differ from those that the protocol fixed"):
        pm.evidence.analyse(protocol, log, rewards={"motivated": 2})


def test_the_index_is_computed_from_states_and_features():
    rng = np.random.default_rng(0)
    table = pl.DataFrame(
        {"state": ["persuadable", None, "motivated"],
         **{name: rng.normal(0, 0.2, 3) for name in MODEL.feature_names}}
    )  # fmt: skip
    index = model_index(MODEL, table, "the log")
    planned = MODEL.plan(
        table.filter(pl.col("state").is_not_null()).with_columns(id=pl.Series([1, 2])), 1
    )
    assert index[1] == 0
    np.testing.assert_allclose(index[[0, 2]], planned.frame["price"].to_numpy(), atol=0.02)


def run_trial(typed: str) -> None:
    dispatch(["trial", *shlex.split(typed)])


def test_the_commands_write_what_they_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    people(80).write_csv("people.csv")
    typed = "randomise people.csv --rounds 6 --balance age --groups region --seed 3 --out t"
    rewards = "--rewards motivated=1 persuadable=0.5 'lost cause=0'"
    run_trial(f"{typed} {rewards}")
    assert {"protocol.json", "index.html", "assignment.csv", "model.csv", "control.csv"} == {
        file.name for file in (tmp_path / "t").iterdir()
    }
    run_trial("rehearse t --model armman --share 0.2 --out log.csv")
    capsys.readouterr()
    run_trial("analyse t --log log.csv --out report --json")
    told = json.loads(capsys.readouterr().out)
    assert told["primary"] == "reshuffled"
    assert told["sample_ratio"] == 1
    table_of_people().write_csv("table.csv")
    rules = "--table table.csv --exclude out --group region --max-share north=0.7 --cooldown 1"
    run_trial(f"power armman --rounds 2 --share 0.2 --trials 40 {rules} --json")
    assert json.loads(capsys.readouterr().out)["people"] >= 8
    run_trial(f"rehearse t --model armman --share 0.2 {rules} --out ruled.csv")
    ruled = pl.read_csv("ruled.csv").sort("id", "time").drop_nulls("action")
    acted = (ruled["action"] == "call").to_numpy().reshape(-1, 6)
    assert acted.any()
    assert not (acted[:, 1:] & acted[:, :-1]).any()


def test_estimators_are_those_of_the_design():
    rng = np.random.default_rng(0)
    layout = draw_layout(Design("individual", 2), np.arange(20), np.zeros(20, int), rng)
    arms = TrialArm(rng.random((20, 2)), rng.random((20, 2)) < 0.3, rng.random((20, 2)))
    found = estimate_trial_effects(Design("individual", 2), layout, arms)
    assert list(found) == ["reshuffled", "difference", "t-test", "subgroup"]
