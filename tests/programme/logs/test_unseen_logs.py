# pyright: reportOptionalMemberAccess=false
"""Logs in which most states are empty: how states are seen, the fit over hidden rounds, `learn`."""

import json
import sys
import warnings

import jax
import numpy as np
import polars as pl
import pytest
from scipy.special import softmax

import prefermab as pm
from prefermab import cli
from prefermab.programme.learning.visits import check_visits
from prefermab.programme.logs.domain import Logged
from prefermab.programme.logs.hidden import fit_hidden
from prefermab.programme.logs.histories import Histories
from prefermab.programme.logs.likelihood import (
    Batches,
    curvature,
    log_likelihood_and_gradient,
    log_likelihoods,
)
from prefermab.programme.logs.log_warnings import log_warnings
from prefermab.programme.logs.reading import read_log
from prefermab.programme.logs.shrinkage import contrasts
from prefermab.programme.logs.simulated import example_tables, keep_seen

REWARDS = {"bad": 0, "good": 1}
KNOWN = {"passive": "none", "rewards": REWARDS}

TINY = pl.DataFrame(
    {
        "id": [1] * 5 + [2] * 4,
        "time": [1, 2, 3, 4, 5, 1, 2, 3, 4],
        "state": ["bad", None, "good", None, "bad", None, "good", None, "bad"],
        "action": ["call", "none", "call", "none", "call", "none", "call", "none", "call"],
    }
)


def tiny(seen=None, **changes):
    return read_log(TINY.with_columns(**changes), seen=seen, **KNOWN)


def histories(log):
    """What a log with empty states says of each person."""
    assert log.histories is not None
    return log.histories


def column(*values):
    return pl.Series(values)


# How states are seen


def test_states_on_actions_only_are_seen_by_acting():
    found = histories(tiny())
    assert (found.way, found.chance) == ("acted", 1.0)
    assert "5 of 9 rows have a state, and in 5 of these somebody was acted on" in found.why
    assert found.state[0].tolist() == [0, -1, 1, -1, 0]
    assert found.since[0].tolist() == [-1, 1, 2, 1, 2]
    assert found.last_seen[0].tolist() == [-1, 0, 0, 1, 1]
    # Not the last call of either person.
    assert found.rounds_between_sightings(2).tolist() == [3, 3]


def test_a_state_at_joining_still_counts_as_seen_by_acting():
    first = column("bad", None, "good", None, "bad", "good", "good", None, "bad")
    assert histories(tiny(state=first)).way == "acted"


def test_a_call_that_showed_nothing_found_nobody_unless_a_column_says_so():
    state = column("bad", None, None, None, "bad", None, "good", None, "bad")
    found = histories(tiny(state=state))
    assert found.chance == 0.8
    assert found.action[0].tolist() == [1, 0, 0, 0, 1]
    told = TINY.with_columns(state=state, reached=pl.lit(True))
    assert histories(read_log(told, seen=None, **KNOWN)).action[0].tolist() == [1, 0, 1, 0, 1]


def test_states_in_other_rows_are_seen_now_and_then():
    state = column("bad", "bad", None, None, "bad", None, "good", "bad", None)
    found = histories(tiny(state=state))
    assert (found.way, found.chance) == ("some", pytest.approx(5 / 9))
    assert found.action[0].tolist() == [1, 0, 1, 0, 1]
    assert histories(tiny("some", state=state)).why.startswith("States count as seen now and then")


def test_few_empty_states_or_none_are_seen_always():
    frame = example_tables(people=30, weeks=6)[1]
    rewards = {"engaged": 1, "drifting": 0.5, "silent": 0}
    log = read_log(frame, time="week", passive="none", rewards=rewards, seen=None)
    assert log.histories is None


def test_what_needs_every_state_refuses_a_log_with_empty_ones():
    log = TINY.with_columns(probability=0.5, state=column(*[None] * 5, "good", "bad", None, "bad"))
    with pytest.raises(pm.InputError, match="6 of 9 rows have no state, the first of them row 1"):
        pm.from_log(log, **KNOWN)
    for seen, words in (("always", "`learn` takes such logs"), (None, "need a log with every")):
        with pytest.raises(pm.InputError, match=words):
            pm.evidence.off_policy(log, "none", seen=seen, **KNOWN)


def test_a_history_ends_at_a_missing_row_and_after_an_unknown_action():
    time = column(1, 2, 3, 5, 6, 1, 2, 3, 4)
    action = column("call", "none", "call", "none", "call", None, "call", "none", "call")
    found = histories(tiny(time=time, action=action))
    assert found.person.tolist() == [0, 0, 1, 1]
    assert found.new.tolist() == [True, False, True, False]
    assert found.length.tolist() == [3, 2, 1, 3]


SOME = column("bad", "bad", None, None, "bad", None, "good", "bad", None)


@pytest.mark.parametrize(
    ("seen", "changes", "words"),
    [
        ("always", {"state": column(*[None] * 5, *["good", "bad", None, "bad"])}, "6 of 9 rows"),
        ("acted", {"state": SOME}, "2 of 5 states are of rows in which nobody was acted on"),
        ("some", {}, "states are in rows with an action only, such as row 1"),
        ("some", {"state": column(*["good", "bad"] * 4, "good")}, "every row has a state"),
        ("often", {}, "unknown way to see 'often'"),
    ],
)
def test_a_way_that_the_log_contradicts_is_refused_with_its_row(seen, changes, words):
    with pytest.raises(pm.InputError, match=words):
        tiny(seen, **changes)


def test_an_action_that_shows_nothing_speaks_against_seeing_by_acting():
    rows = [(i, t, "good" if t % 2 else None, "visit" if t % 2 else "sms") for i in range(20)
            for t in range(4)]  # fmt: skip
    frame = pl.DataFrame(rows, schema=["id", "time", "state", "action"], orient="row")
    frame = frame.vstack(pl.DataFrame({"id": [99, 99], "time": [0, 1], "state": [None, "bad"],
                                       "action": ["none", "visit"]}))  # fmt: skip
    with pytest.raises(pm.InputError, match="the action 'sms' showed a state in 0 of 40 rows"):
        read_log(frame, seen="acted", **KNOWN)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": pl.Series([None] * 9, dtype=pl.String)}, "no row has a state"),
        ({"state": column(*[None] * 8, "bad")}, "only the state 'bad'"),
        ({"state": column("bad", *[None] * 5, "good", None, None)}, "no person's state was seen"),
        ({"action": pl.lit("none")}, "only the action 'none'"),
        ({"time": column(1, 1, 3, 4, 5, 1, 2, 3, 4)}, "two rows in one week"),
        ({"action": column("call", "none", "call", "none", "visit", "none", "call", "none", "call"),
          }, "no week under the action 'visit'"),
    ],
)  # fmt: skip
def test_logs_from_which_nothing_can_be_learned_are_refused(changes, words):
    with pytest.raises(pm.InputError, match=words):
        tiny(**changes)


def test_a_log_without_a_state_column_is_refused():
    with pytest.raises(pm.InputError, match="state"):
        read_log(TINY.drop("state"), seen=None, **KNOWN)


def test_not_a_number_counts_as_empty():
    numbers = column(0.0, np.nan, 1.0, np.nan, 0.0, np.nan, 1.0, np.nan, 0.0)
    frame = TINY.with_columns(state=numbers)
    log = read_log(frame, seen=None, passive="none", rewards={0: 0, 1: 1})
    assert histories(log).state[0].tolist() == [0, -1, 1, -1, 0]


# The likelihood of what was seen


def paths(several, tables, starts):
    """The likelihood of each history, by a sum over all paths."""
    found = []
    for h in range(len(several.person)):
        total, n = 0.0, several.length[h]
        for path in np.ndindex(*[tables.shape[0]] * n):
            seen = several.state[h, :n]
            if any(s >= 0 and s != p for s, p in zip(seen, path, strict=True)):
                continue
            moves = [tables[path[t], several.action[h, t], path[t + 1]] for t in range(n - 1)]
            total += starts[path[0]] * np.prod(moves)
        found.append(np.log(total))
    return np.array(found)


@pytest.fixture(scope="module")
def three_states():
    rng = np.random.default_rng(0)
    state = np.where(rng.random((6, 5)) < 0.5, rng.integers(0, 3, (6, 5)), -1)
    several = Histories(
        "some", 0.5, "", np.arange(6), np.ones(6, bool), state, rng.integers(0, 2, (6, 5)),
        np.zeros((6, 5), int), np.full(6, 5),
    )  # fmt: skip
    return several, rng.normal(size=(4, 2, 2))


def test_the_likelihood_is_the_sum_over_all_paths(three_states):
    several, at = three_states
    spread = contrasts(3)
    tables = np.stack([softmax(at[:3, :, 0] @ spread.T, axis=1),
                       softmax(at[:3].sum(axis=2) @ spread.T, axis=1)], axis=1)  # fmt: skip
    starts = softmax(spread @ at[3, :, 0])
    found = log_likelihoods(Batches.from_histories(several, np.ones((1, 1)), 3), at)
    np.testing.assert_allclose(found, paths(several, tables, starts), atol=1e-5)


def test_slope_and_curvature_are_those_of_the_likelihood(three_states):
    several, at = three_states
    batches = Batches.from_histories(several, np.ones((1, 1)), 3)
    slope, away = log_likelihood_and_gradient(batches, at)[1], np.zeros_like(at)
    away[1, 0, 1] = 0.02
    ends = [log_likelihood_and_gradient(batches, at + sign * away) for sign in (1, -1)]
    assert slope[1, 0, 1] == pytest.approx((ends[0][0] - ends[1][0]) / 0.04, abs=2e-3)
    along = (ends[1][1] - ends[0][1]).ravel() / 0.04
    place = int(np.flatnonzero(away.ravel())[0])
    np.testing.assert_allclose(curvature(batches, at)[place], along, atol=5e-3)


def test_what_a_history_without_a_beginning_first_shows_counts_nothing(three_states):
    at = three_states[1]
    known = Histories("some", 0.5, "", np.array([0]), np.array([False]), np.array([[-1, 2, -1]]),
                      np.zeros((1, 3), int), np.zeros((1, 3), int), np.array([3]))  # fmt: skip
    assert log_likelihoods(Batches.from_histories(known, np.ones((1, 1)), 3), at)[0] == 0


# The fit


def walked(effect, people=600, rounds=14, share=0.3, seed=0, likelier=1.0):
    """Two states and no features; acting helps, or does nothing; people in the good state may be
    likelier to be acted on."""
    rng = np.random.default_rng(seed)
    to_good = np.array([[0.2, 0.7 if effect else 0.2], [0.8, 0.9 if effect else 0.8]])
    state, parts = rng.integers(0, 2, people), []
    for now in range(rounds):
        acted = (rng.random(people) < share * np.where(state, likelier, 1.0)).astype(int)
        rows = {"id": np.arange(people), "time": now, "state": np.array(["bad", "good"])[state],
                "action": np.array(["none", "call"])[acted]}  # fmt: skip
        parts.append(pl.DataFrame(rows))
        state = (rng.random(people) < to_good[state, acted]).astype(int)
    return pl.concat(parts), to_good


@pytest.fixture(scope="module")
def helped():
    frame, truth = walked(effect=True)
    log = read_log(keep_seen(frame, "none"), seen=None, **KNOWN)
    return log, fit_hidden(log, draws=64), truth


@pytest.mark.computes_much
def test_the_fit_finds_the_chances_of_rounds_nobody_saw(helped):
    log, fit, truth = helped
    assert log.histories.way == "acted"
    np.testing.assert_allclose(fit.chances(log.profiles)[0, :, :, 1], truth, atol=0.08)
    np.testing.assert_allclose(fit.first_states(log.profiles)[0], [0.5, 0.5], atol=0.1)
    assert fit.effect_probability > 0.95
    # The truth is within what is left open.
    logits = fit.draws[..., 0]
    chances = softmax(logits, axis=-1)[..., 1]
    low, high = np.quantile(chances, [0.01, 0.99], axis=0)
    assert ((low < truth) & (truth < high)).all()


@pytest.mark.computes_much
def test_where_acting_does_nothing_the_fit_says_so():
    frame, _ = walked(effect=False)
    fit = fit_hidden(read_log(keep_seen(frame, "none"), seen=None, **KNOWN), draws=16)
    assert fit.effect_probability < 0.3


@pytest.mark.computes_much
def test_held_back_sightings_are_predicted_better_than_by_the_last(helped):
    log, fit, _ = helped
    visits = check_visits(log, fit)
    loss = {row[:2]: row[3] for row in visits.predicted.rows()}
    assert loss["all", "the fit"] < min(loss["all", "as last seen"], loss["all", "average"])
    assert visits.warnings == ()


@pytest.mark.computes_much
@pytest.mark.parametrize("share", [None, 0.3])
def test_people_who_are_seen_because_of_their_state_are_noticed(share):
    frame, _ = walked(effect=True, share=0.15, likelier=3.0)
    if share is not None:
        rng = np.random.default_rng(0)
        kept = rng.random(frame.height) < np.where(frame["state"] == "good", 0.45, 0.15)
        some = frame.with_columns(state=pl.when(pl.Series(kept)).then("state"))
    else:
        some = keep_seen(frame, "none")
    log = read_log(some, seen=None, **KNOWN)
    found = check_visits(log, fit_hidden(log, draws=16))
    assert "seen_by_state" in [warning.code for warning in found.warnings]


def test_too_many_coefficients_are_refused():
    wide = pl.DataFrame({f"f{i}": [float(i % 7), 1.0, 2.0] * 3 for i in range(300)})
    many = read_log(pl.concat([TINY, wide], how="horizontal"), seen=None, **KNOWN)
    with pytest.raises(pm.InputError, match="join labels or leave out features"):
        fit_hidden(many)


def test_warnings_count_rounds_between_sightings():
    codes = [warning.code for warning in log_warnings(tiny())]
    assert codes == ["few_people", "few_actions", "few_actions"]


# `learn`


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    people, frame = example_tables(people=260, weeks=20, seed=1)
    file = tmp_path_factory.mktemp("log") / "log.csv"
    keep_seen(frame, "none").write_csv(file)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.LogWarning)
        result = pm.learn(
            file, time="week", passive="none", steps=20,
            rewards={"engaged": 1, "drifting": 0.5, "silent": 0},
        )  # fmt: skip
    return result, people


@pytest.mark.computes_much
def test_no_gain_is_promised_and_the_report_says_how_states_are_seen(learned, tmp_path):
    result, _ = learned
    assert (result.verdict, result.gain) == ("cannot tell", None)
    assert result.warnings[0].code == "gain_not_measured"
    assert "States count as seen by acting only (`acted`)" in " ".join(result.summary)
    result.report(tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "as last seen" in page
    assert "What this assumes" in page
    data = json.loads((tmp_path / "learned.json").read_text())
    assert data["seen"]["way"] == "acted"
    assert data["gain"] is None
    assert {row["predictor"] for row in data["seen"]["predicted"]} == {
        "the fit", "as last seen", "average"}  # fmt: skip


def test_its_model_plans_for_people_never_seen_and_seen_long_ago(learned, tmp_path):
    result, people = learned
    result.model.save(tmp_path / "mine")
    model = pm.load(tmp_path / "mine")
    assert model.sightings.seen == "acted"
    table = people.head(6).with_columns(
        state=pl.Series(["silent", None, "engaged", None, "drifting", "silent"]),
        rounds_since_seen=pl.Series([3, None, 0, None, 40, 1]),
    )
    plan = model.plan(table.drop("rounds_since_action"), budget=2)
    assert (plan.frame["action"] == "call").sum() <= 2
    never = plan.frame.filter(pl.col("state").is_null())
    assert never.height == 2
    assert never["score"].is_finite().all()


def test_the_arms_are_never_seen_at_first_and_like_their_features(learned):
    result, _ = learned
    base = Logged(result.log, result.fit)
    domain = pm.domains.Unseen(base, "acted")
    arm = domain.draw(jax.random.key(0))
    assert domain.state_names[int(domain.start(jax.random.key(0), arm))] == "never seen"
    first = result.fit.first_states(np.asarray(base.feature_table)[[int(arm)]])[0]
    np.testing.assert_allclose(domain.start_belief(arm), first, atol=1e-5)


def test_rounds_left_and_a_contradiction_are_refused_before_the_work(tmp_path, capsys, monkeypatch):
    file = tmp_path / "log.csv"
    TINY.write_csv(file)
    with pytest.raises(pm.InputError, match="rounds_left is for logs"):
        pm.learn(file, rounds_left=4, **KNOWN)
    arguments = ["prefermab", "learn", str(file), "--out", str(tmp_path / "out"), "--passive",
                 "none", "--rewards", "bad=0", "good=1", "--seen", "some"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert "seen is 'some'" in capsys.readouterr().err
