"""Off-policy estimates: worked by hand, right on average, refused where a log cannot carry them."""

import warnings

import numpy as np
import polars as pl
import pytest

import prefermab as pm
from prefermab.common.intervals import from_influence
from prefermab.programme.evidence.logged import learn_on_half
from prefermab.programme.evidence.weights import (
    Episodes,
    estimate_values,
    judge_support,
    row_episodes,
)
from prefermab.programme.learning import gain, verdict
from prefermab.programme.logs.reading import read_log
from prefermab.recipes.regression import Regression
from studies import evidence as evidence_study
from studies.off_policy import CALLED, rule_value, simulate_log
from studies.open_bandit import compare_campaign

REWARDS = {"good": 1, "bad": 0}


def test_one_step_by_hand():
    """Rewards 1, 0, 1, 1 with ratios 2, 0, 0.5, 1.5: the mean of w·r is 4/4; weights have the mean
    1, so self-normalised is the same. With q = (.5, .5, 1, 0) and v = 0.25 everywhere the robust
    one is 0.25 + (2·.5 + 0 + 0 + 1.5)/4 = 0.875."""
    episodes = row_episodes(
        np.array([1.0, 0, 1, 1]), np.array([2.0, 0, 0.5, 1.5]), np.array([0.5, 0.5, 1, 0]),
        np.full(4, 0.25),
    )  # fmt: skip
    found = estimate_values(episodes)
    for per in ("decision", "trajectory"):
        assert found["inverse propensity", per][0] == pytest.approx(1.0)
        assert found["self-normalised", per][0] == pytest.approx(1.0)
    assert found["doubly robust", "decision"][0] == pytest.approx(0.875)


def test_two_steps_by_hand():
    """Two episodes with ratios (2, .5), (.5, 1), so weights (2, 1) and (.5, .5), and rewards (1, 0)
    and (0, 1): per decision (2·1 + 0 + 0 + .5)/2 = 1.25, per trajectory (1·1 + .5·1)/2 = .75, and
    self-normalised (2/1.25·1)/2 + (.5/.75·1)/2 = .8 + 1/3, and (1·1 + .5·1)/2/.75 = 1."""
    zero = np.zeros((2, 2))
    episodes = Episodes(
        np.array([[1.0, 0], [0, 1]]), np.array([[2.0, 0.5], [0.5, 1]]), zero, zero, np.arange(2)
    )
    found = {name: value for name, (value, _) in estimate_values(episodes).items()}
    assert found["inverse propensity", "decision"] == pytest.approx(1.25)
    assert found["inverse propensity", "trajectory"] == pytest.approx(0.75)
    assert found["doubly robust", "decision"] == pytest.approx(1.25)
    assert found["self-normalised", "decision"] == pytest.approx(0.8 + 1 / 3)
    assert found["self-normalised", "trajectory"] == pytest.approx(1.0)


def test_an_interval_moves_to_the_side_of_the_long_tail():
    values = np.r_[np.zeros(95), np.full(5, 10.0)]
    found = from_influence(values.mean(), values - values.mean())
    assert found.high - found.estimate > 1.3 * (found.estimate - found.low)
    same = from_influence(0.0, np.array([-1.0, 1.0] * 500))
    assert same.high == pytest.approx(1.645 / np.sqrt(1000), rel=0.01)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (np.zeros(100), "no decision of the log"),
        (np.r_[np.zeros(98), 50, 50], "count for 2 of 100"),
        (np.r_[np.ones(500), 80.0], "one unit has 14% of all weight"),
        (np.full(400, 0.5) + np.tile([0.1, -0.1], 200), "mean 0.50 instead of 1"),
        (np.ones(100), ""),
    ],
)
def test_a_log_that_cannot_carry_it_is_refused(ratio, words):
    refusal = judge_support(row_episodes(np.ones(len(ratio)), ratio)).refusal
    assert words in refusal
    assert bool(words) == bool(refusal)


def open_bandit_log(items: int, spread: float, rows: int, seed: int) -> pl.DataFrame:
    """Made up, with the columns of the Open Bandit data that matter: items are shown with unequal
    probabilities, and the better ones are clicked more often."""
    rng = np.random.default_rng(seed)
    chance = np.exp(spread * rng.normal(size=items))
    chance /= chance.sum()
    item = rng.choice(items, rows, p=chance)
    clicked = rng.random(rows) < 0.02 + 0.06 * (np.arange(items) % 5 == 0)[item]
    return pl.DataFrame(
        {
            "timestamp": ["2019-11-24 00:00:17+00:00"] * rows,
            "item_id": item,
            "position": rng.integers(1, 4, rows),
            "click": clicked.astype(int),
            "propensity_score": chance[item],
        }
    )


def test_open_bandit_near_is_estimated_and_far_is_refused():
    random = open_bandit_log(30, 0.0, 8000, seed=0)
    near = compare_campaign("near", open_bandit_log(30, 0.7, 8000, seed=1), random)
    assert [row[3] for row in near] == ["yes"] * 3
    (far,) = compare_campaign("far", open_bandit_log(30, 5.0, 8000, seed=2), random)
    assert far[2].startswith("refused: ")


def log_of_lots(people=150, rounds=8, seed=0, lift=0.4) -> pl.DataFrame:
    """Those in the state bad are called with probability 0.3, the others with 0.1; a call helps by
    `lift`, and only those in the state bad."""
    rng = np.random.default_rng(seed)
    state, rows, who = rng.integers(0, 2, people), [], np.arange(people)
    for time in range(rounds + 1):
        chance = np.where(state == 0, 0.3, 0.1)
        called = rng.random(people) < chance
        rows.append(
            pl.DataFrame(
                {
                    "id": who,
                    "time": time,
                    "state": np.array(["bad", "good"])[state],
                    "action": np.array(["none", "call"])[called.astype(int)],
                    "probability": np.where(called, chance, 1 - chance),
                    "age": 20.0 + who % 30,
                }
            )
        )
        better = np.where(state == 0, 0.3 + lift * called, 0.7)
        state = (rng.random(people) < better).astype(int)
    return pl.concat(rows)


def test_nobody_called_is_valued_from_a_log_of_lots():
    """Without calls bad becomes good with 0.3 and good stays with 0.7; the share that is good in
    the log decides where people start."""
    log = log_of_lots()
    found = pm.evidence.off_policy(log, "none", rewards=REWARDS, passive="none")
    now = log.filter(pl.col("time") < 8)
    good = (now["state"] == "good").mean()
    truth = 0.3 + 0.4 * float(good)
    for row in found.estimates.iter_rows(named=True):
        assert row["value_low"] < truth < row["value_high"]
    assert found.gain is not None
    assert found.gain.high < 0
    assert found.refusal == ""


def test_longer_episodes_count_for_less_and_say_so():
    log = log_of_lots()
    sizes, values = [], []
    for rounds in (1, 2, 4):
        found = pm.evidence.off_policy(log, "none", rewards=REWARDS, passive="none", rounds=rounds)
        sizes.append(found.support.effective / found.support.units)
        values.append(found.estimates["value"].mean())
    assert sizes == sorted(sizes, reverse=True)
    assert values[0] < values[1] < values[2]
    with pytest.raises(pm.InputError, match="give fewer rounds"):
        pm.evidence.off_policy(log, "none", rewards=REWARDS, passive="none", rounds=9)


def test_a_log_without_probabilities_is_refused_unless_asked(tmp_path):
    log = log_of_lots().drop("probability")
    with pytest.raises(pm.InputError, match="no column with the probabilities"):
        pm.evidence.off_policy(log, "none", rewards=REWARDS, passive="none")
    found = pm.evidence.off_policy(
        log, "random", rewards=REWARDS, passive="none", estimate_probabilities=True
    )
    told = str(found)
    assert "estimated from states and features" in told.splitlines()[1]
    assert "People who were acted on differ from the others: " in told
    assert "state bad (+" in told
    found.report(tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert page.index("differ from the others") < page.index("Estimates")
    assert found.hidden_cause is None or found.hidden_cause >= 1


def test_a_hidden_cause_is_weighed_where_probabilities_are_estimated():
    log = log_of_lots(people=400, lift=0.6).drop("probability").with_columns(
        action=pl.col("action").replace({"none": "call", "call": "none"})
    )  # fmt: skip
    found = pm.evidence.off_policy(
        log, "none", rewards=REWARDS, passive="none", estimate_probabilities=True
    )
    assert found.gain is not None
    assert found.gain.low > 0
    assert found.hidden_cause is not None
    assert found.hidden_cause > 1
    assert "by a factor of" in str(found)


@pytest.mark.parametrize("wrong", [0.0, 1.5])
def test_wrong_probabilities_are_named(wrong):
    log = log_of_lots(30, 2).with_columns(
        probability=pl.when(pl.int_range(pl.len()) == 4).then(wrong).otherwise("probability")
    )
    with pytest.raises(pm.InputError, match=f"row 5 holds {wrong:g}"):
        pm.evidence.off_policy(log, "none", rewards=REWARDS, passive="none")


def test_probabilities_are_no_feature_and_many_unknown_ones_are_refused():
    log = log_of_lots(60, 4)
    assert pm.from_log(log, rewards=REWARDS, passive="none").feature_names == ("age",)
    with pytest.raises(pm.InputError, match="cannot be a feature too"):
        pm.from_log(log, rewards=REWARDS, passive="none", features=["probability"])
    few = log.with_columns(probability=pl.when(pl.col("id") > 20).then("probability"))
    with pytest.raises(pm.InputError, match="35% of the decisions have no probability"):
        pm.evidence.off_policy(few, "none", rewards=REWARDS, passive="none")


def test_from_a_programme_to_its_log_to_a_model_to_its_evidence(tmp_path, monkeypatch):
    """The log goes round: plans with lots, `history().log`, `learn`, off-policy estimates."""
    monkeypatch.setattr(Regression, "pieces", property(lambda _: (20,)))
    monkeypatch.setattr(gain, "MOST_TRANSITIONS", 0)
    monkeypatch.setattr(verdict, "SHUFFLES", 1)
    model, size, rng = pm.load("armman"), 80, np.random.default_rng(3)
    features = {name: rng.normal(0, 0.3, size) for name in model.feature_names}
    state, names = rng.integers(0, 3, size), np.array(model.state_names)
    with pm.Programme(tmp_path / "p.db", model) as programme:
        programme.join(pl.DataFrame({"id": np.arange(size), **features}))
        for round in range(6):
            programme.observe(pl.DataFrame({"id": np.arange(size), "state": names[state]}))
            made = programme.plan(30, explore=0.5, seed=round)
            programme.record()
            called = (made.frame["action"] == "call").to_numpy()
            better = rng.random(size) < 0.3 + 0.4 * called
            state = np.clip(state + np.where(better, -1, 1), 0, 2)
        log = programme.history().log
    given = {"rewards": dict(zip(model.state_names, (1, 0.5, 0), strict=True)), "passive": "none"}
    given["features"] = list(model.feature_names)[:1]
    found = pm.evidence.off_policy(log, model, **{**given, "features": model.feature_names})
    assert found.refusal == ""
    assert found.estimates.height == 6
    assert found.support.mean_weight == pytest.approx(1, abs=0.25)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.LogWarning)
        learned = pm.learn(log, **given)
    assert learned.model.feature_names == model.feature_names[:1]
    assert learned.off_policy is not None
    assert learned.off_policy.support.mean_weight == pytest.approx(1, abs=0.4)
    learned.report(tmp_path / "report")
    assert "own lots" in (tmp_path / "report" / "index.html").read_text()
    assert learned.as_data()["off_policy"]["rounds"] == 1


def test_a_policy_of_other_states_or_a_wrong_one_is_refused():
    log = log_of_lots(40, 3)
    with pytest.raises(pm.InputError, match="those of the model are"):
        pm.evidence.off_policy(log, pm.load("armman"), rewards=REWARDS, passive="none")
    with pytest.raises(pm.InputError, match="must be a model, 'none' or 'random'"):
        pm.evidence.off_policy(log, 3, rewards=REWARDS, passive="none")


@pytest.mark.parametrize(
    ("reward", "probability", "target", "words"),
    [
        ([1, 0], [0.5], [1, 1], "probability must hold"),
        ([1, 0], [0.5, 0], [1, 1], "probability must be above 0"),
        ([1, 0], [0.5, 0.5], [1, 2], "target must lie between"),
    ],
)
def test_wrong_rows_are_refused(reward, probability, target, words):
    with pytest.raises(pm.InputError, match=words):
        pm.evidence.off_policy_rows(reward, probability, target)


@pytest.mark.parametrize("differ", [False, True])
def test_the_truth_of_a_rule_is_what_it_earns_in_the_world_of_the_logs(differ):
    """A rule that acts as the lots do earns what they do: 0.59 for the young, by the chain of the
    states. If everybody in bad is called, both states lead to good with 0.7, so the young earn 0.7;
    the older ones 0.4 or 0.7, by how often they are in bad."""
    log = read_log(simulate_log(3, differ=differ), rewards=REWARDS, passive="none")
    moves, _ = learn_on_half(log, 0.2)
    assert len(np.unique(moves.person)) == 100
    bad = np.array(log.labels.states)[moves.state] == "bad"
    chance = CALLED[1 - bad]
    value, done = rule_value(log, moves, np.stack([1 - chance, chance], axis=1), differ)
    assert value == pytest.approx(done)
    earned = np.array(log.labels.rewards)[moves.following].mean()
    assert done == pytest.approx(earned, abs=0.04)
    called, _ = rule_value(log, moves, np.eye(2)[bad * 1], differ)
    assert (called == pytest.approx(0.7)) == (not differ)
    assert 0.59 < called < 0.71


def test_sections_of_the_study_can_be_measured_alone(tmp_path, monkeypatch):
    page = tmp_path / "evidence.md"
    page.write_text("# Title\n\nold words\n\n## Power\n\none\n\n## Lots\n\ntwo\n\nWritten by me.\n")
    monkeypatch.setattr(evidence_study, "PAGE", page)
    monkeypatch.setitem(evidence_study.PARTS, "Trials", lambda: "new\n")
    monkeypatch.setitem(evidence_study.PARTS, "Power", lambda: "three\n")
    evidence_study.renew(["Power", "Trials"])
    alone = 'Measured alone, by `python -m studies.evidence "{}"`.\n\n'
    assert page.read_text() == (
        f"# Title\n\n{evidence_study.FIRST}\n## Trials\n\nnew\n\n{alone.format('Trials')}"
        f"## Power\n\nthree\n\n{alone.format('Power')}## Lots\n\ntwo\n\nWritten by me.\n"
    )
    with pytest.raises(pm.InputError, match="unknown section 'Lot'"):
        evidence_study.renew(["Lot"])
