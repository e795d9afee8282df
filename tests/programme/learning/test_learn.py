"""From a log to a model: reading, fitting, arms of the posterior, `learn` and its command."""

import datetime
import json
import re
import sys

import numpy as np
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression

import prefermab as pm
from prefermab import cli
from prefermab.cli import learn as command
from prefermab.programme.learning import gain
from prefermab.programme.learning import learn as learning
from prefermab.programme.learning.effects import estimate_effects
from prefermab.programme.learning.report import unseen_actions
from prefermab.programme.logs.domain import Logged
from prefermab.programme.logs.fitting import Terms, count_cells, fit_log
from prefermab.programme.logs.log_warnings import LogWarning
from prefermab.programme.logs.reading import read_log
from prefermab.programme.logs.shrinkage import (
    KAPPAS,
    check_size,
    contrasts,
    design_matrix,
    dirichlet,
    kappa_weights,
    log_probabilities,
    posterior_mode,
    transition_weight,
)

REWARDS = {"bad": 0, "good": 1}

TINY = pl.DataFrame(
    {
        "id": [1, 1, 1, 1, 2, 2, 2, 3],
        "time": [1, 2, 3, 5, 1, 2, 3, 2],
        "state": ["bad", "bad", "good", "good", "bad", "good", "bad", "good"],
        "action": ["none", "call", "none", "none", "none", "none", "call", "none"],
        "age": [30, 30, 31, None, 50, 50, 50, None],
        "region": ["north", "north", "north", None, "south", "south", "south", "north"],
    }
)


def tiny(**changes):
    return read_log(TINY.with_columns(**changes), passive="none", rewards=REWARDS)


def walked(tables, features, rounds, share, rng):
    """People who move by tables (person, state, action, next state), acted on at random."""
    n = len(tables)
    state, parts = rng.integers(0, tables.shape[1], n), []
    for now in range(rounds):
        action = np.where(rng.random(n) < share, 1, 0)
        parts.append(pl.DataFrame({"id": np.arange(n), "time": now, "state": state,
                                   "action": action, **features}))  # fmt: skip
        reached = np.cumsum(tables[np.arange(n), state, action], axis=1)
        state = (reached < rng.random((n, 1))).sum(axis=1)
    return pl.concat(parts)


def two_regions(people, rng):
    """Half of the people in each region, with different tables (state, action, next state)."""
    north = np.array([[[0.8, 0.2], [0.4, 0.6]], [[0.5, 0.5], [0.2, 0.8]]])
    south = np.array([[[0.6, 0.4], [0.5, 0.5]], [[0.9, 0.1], [0.3, 0.7]]])
    is_north = np.arange(people) % 2 == 0
    return np.where(is_north[:, None, None, None], north, south), {
        "region": np.where(is_north, "north", "south"),
        "age": rng.normal(40, 10, people),
    }


def read_walked(tables, features, rounds, share, rng):
    frame = walked(tables, features, rounds, share, rng)
    return read_log(frame, rewards={state: state for state in range(tables.shape[1])})


# Reading


def test_transitions_go_from_a_week_to_the_next_and_never_across_a_gap():
    log = tiny()
    seen = log.transitions
    # Person 1: bad none bad, bad call good, then a gap in week 4; person 2: bad none good none bad.
    assert seen.person.tolist() == [0, 0, 1, 1]
    assert seen.state.tolist() == [0, 0, 0, 1]
    assert seen.action.tolist() == [0, 1, 0, 0]
    assert seen.following.tolist() == [0, 1, 1, 0]
    assert (log.found.gaps, log.found.missing_rounds, log.found.single) == (1, 1, 1)
    assert (log.found.joined_later, log.found.left_earlier) == (1, 2)
    assert (log.first_state.tolist(), log.last_state.tolist()) == ([0, 0, 1], [1, 0, 1])
    assert log.labels.actions == ("none", "call")
    assert log.labels.costs.tolist() == [0, 1]


def test_features_are_the_last_known_and_named_as_the_planner_reads_them():
    log = tiny()
    assert log.feature_names == ("age", "region=north", "region=south")
    np.testing.assert_array_equal(log.features, [[31, 1, 0], [50, 0, 1], [np.nan, 1, 0]])
    terms = Terms.from_features(log.columns, log.features)
    # Ages 31 and 50 have mean 40.5 and spread 9.5; two of three are in the north.
    np.testing.assert_allclose(
        terms(log.features),
        [[1, -1, 1 / 3, -1 / 3, 0], [1, 1, -2 / 3, 2 / 3, 0], [1, 0, 1 / 3, -1 / 3, 1]],
    )


def test_an_unknown_category_is_unknown_in_all_its_features():
    log = tiny(region=pl.Series(["north"] * 4 + ["south"] * 3 + [None]))
    np.testing.assert_array_equal(log.features[2], [np.nan] * 3)


def test_weeks_of_dates_may_be_early_or_late_and_differ_between_people():
    first = datetime.date(2026, 1, 5)
    days = [0, 7, 15, 21, 42, 3, 10, 17]  # person 2 on another weekday
    dates = [first + datetime.timedelta(days=d) for d in days]
    frame = TINY.with_columns(
        id=pl.Series([1, 1, 1, 1, 1, 2, 2, 2]),
        action=pl.Series(["none", "call"] * 4),
        time=pl.Series(dates),
    )
    log = read_log(frame, passive="none", rewards=REWARDS)
    assert (log.found.apart, log.found.dates, log.found.gaps) == (7, True, 1)
    assert len(log.transitions) == 3 + 2
    as_text = read_log(
        frame.with_columns(pl.col("time").cast(pl.String)), passive="none", rewards=REWARDS
    )
    assert as_text.transitions.following.tolist() == log.transitions.following.tolist()


def test_labels_are_the_same_as_numbers_and_as_text():
    frame = TINY.with_columns(
        action=pl.Series([0.0, 1.0, 0.0, None, 0.0, 0.0, 1.0, 0.0]),
        state=pl.Series([0, 0, 1, 1, 0, 1, 0, 1]),
    )
    log = read_log(frame, rewards={1: 2.0, 0: -1}, costs={0: 0, 1: 2.5})
    assert log.labels.states == ("1", "0")
    assert log.labels.rewards.tolist() == [2, -1]
    assert (log.labels.actions, log.labels.costs.tolist()) == (("0", "1"), [0, 2.5])
    assert log.found.unknown_actions == 1
    in_order = read_log(frame, rewards={1: 2.0, 0: -1}, costs=[2.0, 0.0])
    assert (in_order.labels.actions, in_order.labels.costs.tolist()) == (("1", "0"), [0, 2])


def test_rows_may_come_in_any_order_and_from_pandas():
    import pandas

    shuffled = TINY.sample(fraction=1, shuffle=True, seed=1)
    log = read_log(shuffled, passive="none", rewards=REWARDS)
    assert log.transitions.following.tolist() == [0, 1, 1, 0]
    frame = pandas.DataFrame({name: TINY[name].to_list() for name in TINY.columns})
    same = read_log(frame, passive="none", rewards=REWARDS)
    np.testing.assert_array_equal(same.features, log.features)


NO_ROWS = TINY.clear()
WRONG = [
    (NO_ROWS, {}, "there are no rows"),
    (TINY.drop("state"), {}, "the column 'state' is missing; found id, time, action, age, region: "
     "name yours with state=... (--state on the command line)"),
    (TINY.select("id"), {}, "only one column was found, 'id'; the separator may be wrong"),
    (TINY.with_columns(time=pl.Series([1, 1, 3, 5, 1, 2, 3, 2])), {},
     "1 has two rows in one week, row 1 and row 2 (time 1); expected"),
    (TINY.with_columns(time=pl.Series([1, 1, 1, 5, 1, 2, 2, 2])), {},
     "row 1 and row 2 (time 1), and 2 more such rows; expected"),
    (TINY.with_columns(time=10 * pl.col("time") + pl.Series([0, 0, -7, 0, 0, 0, 0, 0])), {},
     "two rows in one week, row 2 and row 3 (time 20 and 23, where rounds are 10 apart)"),
    (TINY.with_columns(time=pl.Series(["1", "2", "3rd", "5", "1", "2", "3", "2"])), {},
     "the column 'time' must hold whole numbers or dates such as 2026-01-31, but row 3 holds"),
    (TINY.with_columns(time=pl.col("time") + 0.5), {}, "but row 1 holds 1.5"),
    (TINY.with_columns(time=pl.Series([1, None, 3, 5, 1, 2, 3, 2])), {}, "row 2 has no time"),
    (TINY.with_columns(id=pl.Series([1, 1, 1, None, 2, 2, 2, 3])), {}, "row 4 has no id"),
    (TINY.with_columns(state=pl.lit("bad")), {}, "there is only the state 'bad'"),
    (TINY.with_columns(action=pl.lit("none")), {"costs": {"none": 0, "call": 1}},
     "only the action 'none': nothing can be learned about 'call'"),
    (TINY.unique("id", keep="first"), {}, "no person has two rows"),
    (TINY.with_columns(action=pl.Series([None] * 3 + ["none"] + [None] * 2 + ["call", None])), {},
     "no person has known states in two weeks"),
    (TINY.filter(pl.col("id") != 1), {}, "no transition under the action 'call' can be used"),
    (TINY, {"costs": {"none": 0, "call": 1, "visit": 3}}, "costs name the action 'visit'"),
    (TINY, {"costs": {"none": 0, "cal": 1}}, "name the action 'cal', which the log never has, so "
     "that nothing can be learned about it: did you mean 'call'?"),
    (TINY, {"costs": {"none": 0}}, "costs must give a number for the action 'call'"),
    (TINY, {"costs": {"none": 1, "call": 1}, "passive": None}, "must cost 0, but none does"),
    (TINY, {"costs": {"none": 0, "call": 0}, "passive": None}, "not none and call: name it"),
    (TINY, {"costs": [0, 1, 2]}, "costs must have a number for each of call, none, in this order"),
    (TINY, {"costs": {"none": 0, "call": -1}}, "the cost of 'call' must be a finite number of at"),
    (TINY, {"passive": None}, "costs or passive must say which action costs nothing: call, none"),
    (TINY, {"passive": "call", "costs": {"none": 0, "call": 1}}, "'call' must cost 0, not 1"),
    (TINY, {"passive": "nothing"}, "passive is 'nothing', which is no action of the log: did you"),
    (TINY, {"rewards": {"bad": 0, "god": 1}}, "rewards name the state 'god', which the log never"),
    (TINY.with_columns(state=pl.col("state").replace({"good": "#N/A"})), {"rewards": {"bad": 0}},
     "must give a number for the state '#N/A' of the log, first in row 3; leave the cell empty"),
    (TINY, {"rewards": {**REWARDS, "best": 2}}, "rewards name the state 'best'"),
    (TINY, {"rewards": {"bad": 1, "good": 1}}, "rewards are the same for every state"),
    (TINY, {"rewards": {"bad": "low", "good": 1}}, "the reward of 'bad' must be a finite number"),
    (TINY, {"rewards": None}, "rewards must give a number for each state: bad, good"),
    (TINY.with_columns(available=pl.col("action") == "none"), {},
     "row 2 has the action 'call' although the person was not available; correct one"),
    (TINY.with_columns(available=pl.lit("maybe")), {}, "'available' must hold true or false, but"),
    (TINY, {"available": "there"}, "the column 'there' is missing; found id, time, state, action, "
     "age, region: name yours with available=... (--available on the command line)"),
    (TINY.with_columns(reached=True), {"features": ["reached"]},
     "the column 'reached' says who was reached and cannot be a feature too"),
    (TINY.with_columns(action=pl.col("action").replace({"call": "no answer"})),
     {"costs": {"none": 0}}, "for the action 'no answer' of the log, first in row 2: if it is an "
     "attempt that failed, write the action that was tried, and false in a column 'reached'."),
    (TINY.with_columns(action=pl.col("action").replace({"call": "Not_Reached"})), {},
     "'Not_Reached' of the log, first in row 2, looks like an attempt that failed: write the "
     "action that was tried, and false in a column 'reached'; if it is an action of its own, give"),
    (TINY, {"every": "7x"}, "every must be the length of a round, such as 7d, 2w, 1m or a whole "
     "number, not '7x'"),
    (TINY, {"every": 0}, "or a whole number, not '0'"),
    (TINY, {"every": "7d"}, "every is '7d', but times are numbers and not dates; give a whole"),
    (TINY, {"every": 3}, "two rows in one week, row 1 and row 2 (time 1 and 2, where rounds are 3"),
    (TINY, {"features": ["age", "height"]}, "the column 'height' is missing"),
    (TINY, {"features": ["age", "age"]}, "features must be different columns"),
    (TINY, {"state": "action"}, "action and state are both the column 'action'"),
    (TINY.with_columns(age=pl.lit(None, pl.Int64)), {}, "'age' has no known value"),
    (TINY.with_columns(age=pl.Series([np.inf] * 8)), {}, "'age' must hold finite numbers"),
    (TINY.rename({"age": "a=b"}), {}, "'a=b' must not have = in its name"),
    (TINY.with_columns(age=pl.date(2026, 1, 1)), {}, "'age' holds Date values"),
    (TINY.with_columns(state=pl.col("state").replace({"good": "Bad"})), {}, "upper and lower case"),
    (TINY.with_columns(region=pl.Series(["North"] + ["north"] * 7)), {},
     "the level 'North' of row 1 in the column 'region' differs from 'north' in upper and lower"),
    (TINY.with_columns(age=pl.Series(["30", "31", None, "twenty", "50", "50", "50", "50"])), {},
     "'age' holds numbers in 6 rows but 'twenty' in row 4: correct it, or leave it empty"),
]  # fmt: skip


@pytest.mark.parametrize(("frame", "changes", "message"), WRONG, ids=[m for _, _, m in WRONG])
def test_a_bad_log_is_refused_in_one_sentence(frame, changes, message):
    with pytest.raises(pm.InputError) as caught:
        read_log(frame, **{"passive": "none", "rewards": REWARDS, **changes})
    told = str(caught.value)
    assert message in told
    assert told.endswith((".", "?"))
    assert "\n" not in told


def test_numbers_beside_as_many_words_are_categories():
    parity = ["0", "1", "many", "none", "0", "0", "0", "many"]
    log = tiny(region=pl.Series(parity))
    assert log.feature_names[1:] == ("region=0", "region=1", "region=many", "region=none")


def test_a_name_is_no_category():
    frame = pl.concat([TINY.with_columns(id=pl.col("id") + 10 * i) for i in range(20)])
    frame = frame.with_columns(region=pl.concat_str(pl.lit("name "), "id"))
    with pytest.raises(pm.InputError, match="60 different texts; a category has at most 50"):
        read_log(frame, passive="none", rewards=REWARDS)


# Fitting


def test_contrasts_are_orthonormal_and_add_up_to_nothing():
    spread = contrasts(5)
    np.testing.assert_allclose(spread.T @ spread, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(spread.sum(axis=0), 0, atol=1e-12)


def test_cells_count_what_followed_by_person_and_action():
    log = tiny()
    bad, good = count_cells(log, Terms.from_features(log.columns, log.features), log.transitions)
    assert bad.action.tolist() == [0, 1, 0]
    assert bad.counts.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert good.counts.tolist() == [[1, 0]]


def test_no_shrinkage_gives_the_shares_seen_and_all_of_it_none():
    terms, action = np.ones((2, 1)), np.array([0, 1])
    design, counts = design_matrix(terms, action, 2), np.array([[6.0, 2.0, 0.5], [1.0, 3.0, 4.0]])
    free = posterior_mode(design, counts, np.full(2, 1e-9), np.zeros((2, 2)))
    np.testing.assert_allclose(
        np.exp(log_probabilities(design, free.mean)),
        counts / counts.sum(axis=1)[:, None],
        atol=1e-5,
    )
    bound = posterior_mode(design, counts, np.full(2, 1e9), np.zeros((2, 2)))
    np.testing.assert_allclose(np.exp(log_probabilities(design, bound.mean)), 1 / 3, atol=1e-6)
    # The effect alone held down: both actions share what is seen of both, 7 + 5 + 4.5 of 16.5.
    pooled = posterior_mode(design, counts, np.array([1e-9, 1e9]), np.zeros((2, 2)))
    both = np.exp(log_probabilities(design, pooled.mean))
    np.testing.assert_allclose(both, [[7 / 16.5, 5 / 16.5, 4.5 / 16.5]] * 2, atol=1e-5)


def test_the_likeliest_coefficients_are_those_of_another_package():
    rng = np.random.default_rng(0)
    design = rng.normal(size=(300, 4))
    label = (rng.random(300) < 1 / (1 + np.exp(-design[:, 0]))) + (design[:, 1] > 0.7).astype(int)
    ours = posterior_mode(design, np.eye(3)[label], np.full(4, 2.0), np.zeros((2, 4)))
    theirs = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-8, max_iter=1000)
    theirs.fit(design, label)
    np.testing.assert_allclose(
        np.exp(log_probabilities(design, ours.mean)), theirs.predict_proba(design), atol=2e-4
    )


def test_the_curvature_is_the_slope_of_the_slope():
    rng = np.random.default_rng(0)
    design, counts = rng.normal(size=(20, 3)), rng.integers(0, 5, (20, 4)).astype(float)
    found = posterior_mode(design, counts, np.ones(3), np.zeros((3, 3)))

    def loss(at):
        return -(counts * log_probabilities(design, at)).sum() + (at**2).sum() / 2

    direction, step = rng.normal(size=(3, 3)), 1e-4
    ahead, behind = loss(found.mean + step * direction), loss(found.mean - step * direction)
    second = (ahead + behind - 2 * loss(found.mean)) / step**2
    precision = found.factor @ found.factor.T
    np.testing.assert_allclose(direction.ravel() @ precision @ direction.ravel(), second, rtol=1e-4)
    np.testing.assert_allclose(
        found.variance().ravel(), np.diag(np.linalg.inv(precision)), rtol=1e-9
    )


def test_a_large_log_gives_the_true_chances_of_each_region():
    rng = np.random.default_rng(1)
    tables, features = two_regions(3000, rng)
    fit = fit_log(read_walked(tables, features, 12, 0.3, rng), draws=20)
    chances = fit.chances(np.array([[1.0, 0.0, 40.0], [0.0, 1.0, 40.0]]))
    np.testing.assert_allclose(chances, tables[:2], atol=0.03)
    assert fit.kappas.min() > 100


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    hits = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        tables, features = two_regions(80, rng)
        log = read_walked(tables, features, 8, 0.15, rng)
        found = estimate_effects(log, fit_log(log, seed=seed)).transitions
        truth = tables.mean(axis=0)[..., 0]
        low, high = (found[end].to_numpy().reshape(2, 2, 2)[..., 0] for end in ("low", "high"))
        hits.append((low <= truth) & (truth <= high))
    assert 0.8 < np.mean(hits) < 0.98


def test_draws_scatter_around_the_likeliest_coefficients_and_shrink_with_the_log():
    rng = np.random.default_rng(2)
    tables, features = two_regions(60, rng)
    log = read_walked(tables, features, 10, 0.2, rng)
    fit = fit_log(log)
    spread = fit.draws.std(axis=0)
    assert fit.effect_probability > 0.999  # so all draws are of models with an effect
    np.testing.assert_allclose(fit.draws.mean(axis=0), fit.mean, atol=0.05)
    more = fit_log(read_walked(np.tile(tables, (20, 1, 1, 1)), {
        name: np.tile(values, 20) for name, values in features.items()
    }, 10, 0.2, rng))  # fmt: skip
    assert (more.draws.std(axis=0)[..., 0] < 0.5 * spread[..., 0]).all()


def test_kappa_says_how_alike_people_are():
    rng = np.random.default_rng(3)
    chances = np.full((2000, 3), 1 / 3)
    for kappa in (4.0, 64.0):
        own = dirichlet(rng, np.full((2000, 3), kappa / 3))
        counts = np.stack([rng.multinomial(12, p) for p in own])
        likely = kappa_weights(chances, counts)
        assert kappa / 1.5 < np.exp(likely @ np.log(KAPPAS)) < kappa * 1.5
    assert kappa_weights(chances, np.eye(3)[rng.integers(0, 3, 2000)]) == pytest.approx(1 / 13)
    # With κ = 3 the variance of 5 from one person is (5 + 3) / (1 + 3) = 2 times that of 5 people.
    assert transition_weight(np.array([5.0]), 3.0) == pytest.approx(0.5)


def test_people_who_differ_make_the_population_less_certain():
    widths = []
    for kappa in (1e6, 1.0):
        rng = np.random.default_rng(4)
        tables = dirichlet(rng, kappa * np.full((150, 2, 2, 2), 0.5))
        log = read_walked(tables, {"age": rng.normal(size=150)}, 20, 0.3, rng)
        found = estimate_effects(log, fit_log(log)).transitions
        widths.append((found["high"] - found["low"]).mean())
    assert widths[1] > 1.3 * widths[0]


def test_too_many_coefficients_are_refused():
    with pytest.raises(pm.InputError, match="join labels or leave out features"):
        check_size(200, 4, 30)


def test_a_state_that_nobody_was_seen_to_leave_stays_open():
    rng = np.random.default_rng(0)
    frame = walked(np.full((60, 2, 2, 2), 0.5), {"age": rng.normal(size=60)}, 4, 0.3, rng)
    last = frame.filter(pl.col("time") == 3).with_columns(time=4, state=2, action=None)
    log = read_log(pl.concat([frame, last], how="vertical_relaxed"), rewards={0: 0, 1: 1, 2: 2})
    found = estimate_effects(log, fit_log(log)).transitions
    ends = found.filter(pl.col("state") == "2")
    assert ends["n"].sum() == 0
    assert (ends["high"] - ends["low"]).min() > 0.5
    assert unseen_actions(log) == ["0 in 2", "1 in 2"]


# Arms drawn from the posterior


def test_a_person_with_a_long_past_is_drawn_as_that_past_was():
    rng = np.random.default_rng(5)
    tables = dirichlet(rng, np.full((40, 2, 2, 2), 0.5))
    log = read_walked(tables, {"age": np.arange(40.0)}, 200, 0.5, rng)
    domain = Logged(log, fit_log(log, draws=8), newcomers=0.0)
    who = np.asarray(domain.feature_table[:, 0]).astype(int)
    assert np.abs(np.asarray(domain.table) - tables[who]).mean() < 0.06
    np.testing.assert_allclose(domain.table.sum(axis=-1), 1, rtol=1e-5)
    # Half of a start's little share for any state goes to the other one.
    last = log.last_state[np.argsort(log.features[:, 0])][who]
    np.testing.assert_allclose(domain.starts[np.arange(len(who)), last], 0.99, rtol=1e-5)


def test_newcomers_have_no_past_and_numbers_of_their_own():
    rng = np.random.default_rng(5)
    tables = np.broadcast_to([[[0.5, 0.5], [0.2, 0.8]], [[0.5, 0.5], [0.2, 0.8]]], (60, 2, 2, 2))
    log = read_walked(tables, {"age": rng.normal(size=60)}, 10, 0.3, rng)
    domain = Logged(log, fit_log(log, draws=8), newcomers=1.0)
    ages = np.asarray(domain.feature_table[:, 0])
    assert not np.isin(ages, log.features[:, 0].astype(np.float32)).any()
    # Scott's rule for 60 people and one number: 60 ** (-1/5) = 0.44 spreads.
    spread = log.features.std()
    np.testing.assert_allclose(ages.std(), spread * np.sqrt(1 + 60**-0.4), rtol=0.05)


def test_arms_belong_to_posterior_draws_in_turn():
    rng = np.random.default_rng(6)
    tables, features = two_regions(60, rng)
    log = read_walked(tables, features, 5, 0.2, rng)
    fit = fit_log(log, draws=4)
    domain = Logged(log, fit, newcomers=1.0)
    table, people = np.asarray(domain.table), np.asarray(domain.feature_table, float)
    for number in range(4):
        own = fit.terms(people[number::4])
        logits = np.tensordot(own, fit.draws[number], axes=(1, -1))
        expected = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        gap = table[number::4].mean(axis=0) - expected.mean(axis=0)
        assert np.abs(gap).max() < 0.02


# `learn`


@pytest.fixture(scope="module")
def log_frame():
    """40 people in two regions, 8 weeks; the age of one person is not known."""
    rng = np.random.default_rng(10)
    tables, features = two_regions(40, rng)
    frame = walked(tables, features, 8, 0.3, rng).rename({"time": "week"})
    return frame.with_columns(age=pl.when(pl.col("id") == 3).then(None).otherwise("age"))


@pytest.fixture(scope="module")
def learned(log_frame):
    """What is learned from it, with one random order of people instead of ten."""
    reports = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gain, "MOST_TRANSITIONS", 1)
        result = pm.learn(
            log_frame, time="week", features=["region", "age"], rewards={0: 0, 1: 1}, n_arms=6,
            budget=2, rounds=3, steps=20, progress=lambda done, what: reports.append((done, what)),
        )  # fmt: skip
    assert reports[-1] == (pytest.approx(1.0), "judging")
    return result


def test_learn_gives_the_model_and_what_the_log_shows(learned):
    assert learned.verdict in ("shown", "not shown", "cannot tell")
    assert learned.gain.low <= learned.gain.estimate <= learned.gain.high
    assert learned.warnings == ()
    assert learned.summary[0].startswith(("**A gain", "**No gain", "**It cannot be told"))
    shown = f"LearnResult(verdict='{learned.verdict}', gain={learned.gain.estimate:.3g} ("
    assert repr(learned).startswith(shown)
    model = learned.model
    assert model.feature_names == ("region=north", "region=south", "age")
    assert (model.n_arms, model.budget, model.costs) == (6, 2, (0.0, 1.0))
    assert "features region=north" in model.card
    assert learned.summary[0] in model.card
    people = np.array([[1, 0, 40.0], [0, 1, np.nan], [np.nan, np.nan, 30.0]])
    assert model.act([0, 1, 1], people, budget=1).sum() <= 1


def test_the_data_of_a_result_has_every_figure(learned):
    data = learned.as_data()
    assert json.loads(json.dumps(data)) == data
    assert (data["found"]["people"], data["found"]["unit"]) == (40, "week")
    assert [row["policy"] for row in data["compared"]] == ["before", "random", "none"]
    for found in (data["gain"], data["placebo"], *(row["gain"] for row in data["compared"])):
        assert found["low"] <= found["estimate"] <= found["high"]
    assert (data["rounds"], len(data["placebo"]["estimates"])) == (3, 5)
    assert len(data["transitions"]) == 8
    assert {row["group"] for row in data["groups"]} >= {"north", "south", "unknown"}
    assert data["warnings"] == []


def test_the_report_of_a_result(learned, tmp_path):
    learned.report(tmp_path)
    page = (tmp_path / "index.html").read_text()
    assert "Predictions checked" in page
    before_the_fold = page[: page.index("<h2")]
    assert not any(word in before_the_fold for word in ("loss", "posterior", "propensity"))
    assert "<svg" in page
    assert (tmp_path / "figures" / "calibration-people.svg").exists()
    assert (tmp_path / "figures" / "gain.svg").exists()
    text = (tmp_path / "README.md").read_text()
    assert "40 people" in text
    assert "Whom it helps" in text
    assert "**Verdict**: " in text
    assert learned.summary[0] in text
    assert json.loads((tmp_path / "learned.json").read_text()) == learned.as_data()


@pytest.mark.parametrize(
    ("frame", "changes", "message"),
    [
        (TINY, {"time": "week"}, "the column 'week' is missing; found id, time"),
        (TINY, {"features": ["height"]}, "the column 'height' is missing"),
        (TINY.clear(), {}, "there are no rows"),
        (TINY, {"passive": None}, "costs or passive must say which action costs nothing"),
        (TINY, {"rewards": None}, "rewards must give a number for each state: bad, good"),
        (
            TINY,
            {"budget": 0.9},
            "the budget, 0.9, is below the cost of the cheapest action, 'call'",
        ),
        (TINY, {"budget": None}, "what a round of the log cost, 0.5, is below the cost of the"),
        (TINY, {"rounds": 0}, "rounds must be a finite number of at least 1"),
        ("nowhere.csv", {}, "nowhere.csv: there is no such file"),
        ([1, 2], {}, "the log must be a polars or pandas frame, not list"),
    ],
)
def test_learn_says_what_is_wrong_before_the_work(frame, changes, message):
    with pytest.raises(pm.InputError, match=re.escape(message)):
        pm.learn(frame, **{"passive": "none", "rewards": REWARDS, "budget": 1, **changes})


def test_arguments_of_learn_are_named():
    with pytest.raises(TypeError, match="positional argument"):
        pm.learn(TINY, REWARDS)  # pyright: ignore[reportCallIssue]


# Its command


def learn(monkeypatch, capsys, *arguments):
    monkeypatch.setattr(sys, "argv", ["prefermab", "learn", *map(str, arguments)])
    status = 0
    try:
        cli.main()
    except SystemExit as stop:
        status = stop.code
    told = capsys.readouterr()
    return status, told.out, told.err


def test_learn_writes_a_model_and_a_report(learned, tmp_path, monkeypatch, capsys):
    """The tutorial's test runs the command whole."""
    given = {}
    monkeypatch.setattr(learning, "learn", lambda _, **all: given.update(all) or learned)
    out = tmp_path / "runs" / "mine"
    status, printed, errors = learn(
        monkeypatch, capsys, "log.parquet", "--out", out, "--time", "week", "--features", "region",
        "age", "--rewards", "0=0", "1=1", "--n-arms", 6, "--budget", 2, "--steps", 20, "--rounds",
        3, "--json",
    )  # fmt: skip
    assert status == 0, errors
    assert (given["time"], given["features"], given["passive"]) == ("week", ("region", "age"), None)
    assert (given["rewards"], given["costs"]) == ({"0": 0, "1": 1}, None)
    assert [given[name] for name in ("n_arms", "budget", "steps", "rounds")] == [6, 2, 20, 3]
    places = {"model": str(out), "report": str(out / "report")}
    assert json.loads(printed) == {**places, **learned.as_data()}
    assert (out / "report" / "index.html").exists()
    model = pm.load(out)
    assert model.domain is None
    assert model.domain_name == "logged"
    assert model.feature_names == ("region=north", "region=south", "age")

    status, printed, errors = learn(
        monkeypatch, capsys, "log.parquet", "--out", out, "--rewards", "0=0", "1=1"
    )
    assert status == 0, errors
    assert printed.startswith(("A gain is shown.", "No gain is shown.", "It cannot be told"))
    assert f"The model is in {out} (replaced the model that was there), the report in" in printed


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--rewards", "bad=0", "good="], "--rewards takes name=number, such as call=1, not"),
        (["--rewards", "bad=0,good=1"], "--rewards takes name=number with spaces between them"),
        (["--rewards", "bad=0,", "good=1"], "with spaces between them, such as call=1 visit=4"),
        (["--rewards", "bad=0", "good=1", "--budget", "0.9"],
         "the budget, 0.9, is below the cost of the cheapest action, 'call' at 1"),
        (["--rewards", "bad=0", "good=1"], "what a round of the log cost, 0.5, is below"),
    ],
)  # fmt: skip
def test_what_was_typed_wrong_is_said_before_the_work(
    tmp_path, monkeypatch, capsys, typed, message
):
    TINY.write_csv(tmp_path / "log.csv")
    status, printed, errors = learn(
        monkeypatch, capsys, tmp_path / "log.csv", "--out", tmp_path / "m", "--passive", "none",
        *typed,
    )  # fmt: skip
    assert (status, printed) == (2, "")
    assert message in errors
    assert not (tmp_path / "m").exists()


def test_warnings_come_first_and_an_interruption_writes_nothing(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(learning, "fit_log", interrupted)
    TINY.write_csv(tmp_path / "log.csv")
    typed = command.LearnCommand(
        str(tmp_path / "log.csv"), tmp_path / "m", ("bad=0", "good=1"), passive="none", budget=1
    )
    with pytest.raises(KeyboardInterrupt):
        typed.run()
    told = capsys.readouterr()
    lines = told.err.splitlines()
    assert lines[0].startswith("prefermab: warning: the log has 3 people only")
    assert lines[-1] == "prefermab: nothing was written."
    assert (told.out, sorted(path.name for path in tmp_path.iterdir())) == ("", ["log.csv"])


def test_an_example_over_another_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["prefermab", "example", str(tmp_path), "--people", "9"])
    cli.main()
    assert "replacing" not in capsys.readouterr().out
    cli.main()
    assert "log.csv, replacing what was there" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.xlsx", b"id,time", "not an Excel workbook"),
        ("log.doc", b"id,time", "expected a file that ends in .csv"),
        ("log.csv", b"", "the file is empty"),
        ("log.csv", b"id,time,state,action,age\n", "there are no rows"),
        ("log.csv", b"id,time,state\n1,1,bad\n1,2\n", "row 3 has 2 fields, but the header has 3"),
        ("log.csv", b'id,time,state\n1,"1",bad\n\n1,2,bad,4\n', "row 4 has 4 fields"),
        ("log.parquet", b"id,time", "not a Parquet file"),
        ("log.csv", b"id,time,state,action,age\n1,one,bad,0,3\n1,2,good,1,3\n", "row 2 holds"),
    ],
)
def test_a_bad_file_is_one_sentence_and_exit_status_2(
    tmp_path, monkeypatch, capsys, name, content, message
):
    (tmp_path / name).write_bytes(content)
    status, printed, errors = learn(
        monkeypatch, capsys, tmp_path / name, "--out", tmp_path / "m", "--rewards", "bad=0",
        "good=1",
    )  # fmt: skip
    assert (status, printed) == (2, "")
    assert message in errors
    assert name in errors
    assert len(errors.strip().splitlines()) == 1
    assert not (tmp_path / "m").exists()


def test_from_log_reads_a_file_and_gives_the_warnings_of_the_log(tmp_path):
    TINY.write_csv(tmp_path / "log.csv")
    with pytest.warns(LogWarning) as found:
        domain = pm.from_log(
            tmp_path / "log.csv", features=["region"], passive="none", rewards=REWARDS, draws=4
        )
    codes = [each.message.code for each in found if isinstance(each.message, LogWarning)]
    assert codes == ["few_people", "few_actions", "few_actions"]
    assert str(found[0].message).startswith("the log has 3 people only")
    assert domain.feature_names == ("region=north", "region=south")
    assert domain.usual_arms == 2  # 8 rows in 4 rounds
    assert domain.usual_budget == pytest.approx(2 / 4)
