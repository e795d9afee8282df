"""Rounds that are left: what is learned about the end of a programme, and how plans use it."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import prefermab as pm
from prefermab import cli
from prefermab.models.loading import earlier_fingerprint, fingerprint
from prefermab.networks.ending import LEVELS, UsualPrices, encode_rounds_left, worths_to_end
from prefermab.oracles import backward_induction
from prefermab.programme.bulk.driver import plan_folder


def late(slow: float = 0.0) -> list:
    """An arm that acting helps two rounds later only: low, prepared, high; prepared becomes high
    by itself, and high falls back to low."""
    stay, go, up, down = [1 - slow, slow, 0], [slow, 1 - slow, 0], [0, 0, 1], [1, 0, 0]
    return [[stay, go], [up, up], [down, down]]


DOMAIN = pm.domains.Tabular([late(), late(0.02), late(0.04)], [0.0, 0.0, 1.0], [0.0, 1.0])
STATES = np.array([0, 0, 1, 2, 0, 2])
LONGEST = 4


@pytest.fixture(scope="module")
def model() -> pm.Model:
    return pm.pretrain(DOMAIN, n_arms=6, budget=2, steps=400, arms=64, rounds_left=LONGEST)


@pytest.fixture(scope="module")
def ongoing() -> pm.Model:
    return pm.pretrain(DOMAIN, n_arms=6, budget=2, steps=3, arms=16)


def features() -> np.ndarray:
    arms = DOMAIN.draw_arms(jax.random.key(1), len(STATES))
    return np.asarray(DOMAIN.features(arms))


def people(model: pm.Model) -> pl.DataFrame:
    names = [model.state_names[state] for state in STATES]
    frame = pl.DataFrame({"id": range(len(STATES)), "state": names})
    columns = dict(zip(model.feature_names, features().T.astype(float), strict=True))
    return frame.with_columns(**{name: pl.Series(name, v) for name, v in columns.items()})


def test_worths_equal_backward_induction():
    """The same numbers as the oracle's, which has one price for each round."""
    table = jnp.asarray([late(0.1)], jnp.float32)
    reward, cost = jnp.array([[0.0, 0.2, 1.0]]), jnp.array([[0.0, 1.0]])
    path = jnp.array([[0.3, 0.1, 0.2, 0.4]])  # the last round first
    left = jnp.array([[1, 3, 4]])
    expected = lambda ahead: jnp.einsum("sat,pt->psa", table[0], ahead)  # noqa: E731
    found = worths_to_end(expected, reward[0], cost[0], path, left)
    prices = path[0, ::-1]
    q = backward_induction(table, reward, cost, prices, jnp.ones((4, 1), bool))[:, 0]
    worth = q + prices[:, None, None] * cost[0]
    for place, rounds in enumerate((1, 3, 4)):
        np.testing.assert_allclose(found[0, place], worth[4 - rounds], atol=1e-6)


def test_usual_prices_fall_towards_the_end_and_with_the_budget():
    usual = UsualPrices.of(pm.domains.Armman(), 6, jax.random.key(0))
    assert usual.prices.shape == (LEVELS, 6)
    assert (np.diff(usual.prices, axis=0) >= 0).all()
    middle = usual.prices[LEVELS // 2]
    assert middle[0] < middle[1] < middle[3]
    few, many = usual.price(jnp.array(0.1), jnp.array(3)), usual.price(jnp.array(0.5), jnp.array(3))
    assert few > many > 0


def test_usual_prices_are_worked_out_inside_compiled_code():
    """Where the numbers of a domain are not known to the checks of its constructor."""
    domain = pm.domains.ContinuousSIS(grid=5)

    def prices(population):
        traced = eqx.tree_at(lambda it: it.population, domain, population)
        return UsualPrices.of(traced, 2, jax.random.key(0)).prices

    assert jax.eval_shape(prices, 150.0).shape == (LEVELS, 2)


def test_many_arms_are_believed_and_few_are_not():
    usual = dataclasses.replace(UsualPrices.blank(2), prices=jnp.full((LEVELS, 2), 0.5))
    usual = dataclasses.replace(usual, budgets=jnp.linspace(1.0, 0.1, LEVELS))

    def price(n):
        share = jnp.array(0.3 * n)
        return float(usual.expected(jnp.array(1.5), share, jnp.array(n), jnp.array(2)))

    assert price(30) == pytest.approx(1.0)  # as many as count as much as the training's
    assert price(1) == pytest.approx(0.5, abs=0.04)
    assert price(100_000) == pytest.approx(1.5, abs=0.001)


def test_clock_tells_few_rounds_apart():
    seen = np.array([encode_rounds_left(jnp.array(rounds)) for rounds in (1, 2, 3, 12, 13)])
    steps = np.abs(np.diff(seen, axis=0)).max(axis=1)
    assert steps[0] > steps[1] > 10 * steps[3] > 0


def test_with_one_round_left_what_pays_later_does_not_pay(model):
    arguments = (STATES, features())
    assert not model.act(*arguments, budget=6, rounds_left=1).any()
    # Two rounds are enough: those who are low gain.
    np.testing.assert_array_equal(model.act(*arguments, budget=3, rounds_left=2), STATES == 0)
    assert model.act(*arguments, budget=1, rounds_left=2).sum() == 1


def test_more_rounds_than_were_taught_are_an_ongoing_programme(model):
    arguments = (STATES, features(), 2)
    ongoing = model.act(*arguments)
    np.testing.assert_array_equal(model.act(*arguments, rounds_left=LONGEST + 1), ongoing)
    np.testing.assert_array_equal(model.act(*arguments, rounds_left=1000), ongoing)
    assert model.with_rounds_left(1000).rounds_left is None


@pytest.mark.parametrize("wrong", [0, -1])
def test_rounds_left_is_a_number_of_rounds(model, wrong):
    with pytest.raises(pm.InputError, match="rounds_left"):
        model.act(STATES, features(), 2, rounds_left=wrong)


@pytest.mark.parametrize("name", ["armman-paper", None])
def test_models_that_were_not_taught_it_say_what_to_do(ongoing, name):
    model = ongoing if name is None else pm.load(name)
    assert model.with_rounds_left(None).rounds_left is None
    with pytest.raises(pm.InputError, match=r"not trained for rounds_left.*--rounds-left 12"):
        model.with_rounds_left(4)


def test_without_rounds_left_the_other_network_is_not_asked(model):
    """What is learned about the end changes nothing for a programme that goes on."""
    network = dataclasses.replace(model.network, to_end=None)
    alone = dataclasses.replace(model, network=network)
    arguments = (STATES, features(), 2)
    np.testing.assert_array_equal(alone.act(*arguments), model.act(*arguments))
    assert alone.plan(people(model), 2).frame.equals(model.plan(people(model), 2).frame)


def test_a_model_keeps_what_it_knows_of_the_end(model, tmp_path):
    model.save(tmp_path / "mine")
    again = pm.load(tmp_path / "mine", domain=DOMAIN)
    assert again.config == model.config
    assert fingerprint(again) == fingerprint(model)
    assert earlier_fingerprint(again) not in (None, fingerprint(model))
    arguments = (STATES, features(), 2)
    for left in (1, 2, None):
        np.testing.assert_array_equal(
            again.act(*arguments, rounds_left=left), model.act(*arguments, rounds_left=left)
        )


def test_a_model_that_was_tuned_still_knows_the_end(model):
    arms = DOMAIN.draw_arms(jax.random.key(3), 6)
    tuned = pm.finetune(model, DOMAIN, arms=arms, epochs=1, trials=4, passes=2)
    assert not tuned.act(STATES, features(), budget=6, rounds_left=1).any()


def test_a_plan_says_that_nothing_pays_before_the_end(model):
    last = model.plan(people(model), budget=6, rounds_left=1)
    assert (last.summary.chosen, last.summary.rounds_left) == (0, 1)
    assert "this is the last round: no action that may be taken would still pay" in str(
        last.summary
    )
    more = model.plan(people(model), budget=3, rounds_left=2)
    assert more.frame.filter(pl.col("list") == "chosen")["id"].to_list() == [0, 1, 4]
    assert "2 rounds left, this one included" in str(more.summary)
    assert "would still pay" not in str(more.summary)
    assert model.plan(people(model), budget=6).summary.rounds_left is None
    assert json.loads(last.as_json())["rounds_left"] == 1
    budgets = model.what_if(people(model), [1, 2], rounds_left=1)
    assert budgets["chosen"].to_list() == [0, 0]


def test_a_folder_is_planned_to_the_end_too(model, tmp_path):
    (tmp_path / "people").mkdir()
    people(model).write_parquet(tmp_path / "people" / "all.parquet")
    for left, chosen in ((1, 0), (2, 3)):
        out = tmp_path / f"plan{left}"
        summary = plan_folder(model, tmp_path / "people", out, 3, rounds_left=left)
        assert (summary.chosen, summary.rounds_left) == (chosen, left)
    with pytest.raises(pm.InputError, match="not empty"):
        plan_folder(model, tmp_path / "people", tmp_path / "plan1", 3, rounds_left=2)


def test_an_evaluation_tells_the_rounds_left(model):
    """Nothing is spent in the last round, and nothing is lost by that."""
    told = {"told": model.with_rounds_left("trial"), "not told": model}
    for rounds in (2, LONGEST + 1):
        frame = pm.evaluate(DOMAIN, told, n_arms=6, budget=2, trials=20, rounds=rounds, bound=False)
        spent = dict(zip(frame["policy"], frame["spent"], strict=True))
        earned = dict(zip(frame["policy"], frame["mean"], strict=True))
        assert spent["told"] <= 2 * (rounds - 1) / rounds
        assert spent["told"] < spent["not told"]
        assert earned["told"] >= earned["not told"] - 1e-6
    with pytest.raises(pm.InputError, match="known in an evaluation only"):
        told["told"].act(STATES, features(), 2)


def test_a_programme_counts_the_rounds_that_are_left(model, tmp_path):
    path = tmp_path / "calls.db"
    with pm.Programme(path, model) as programme:
        programme.join(people(model))
        programme.last_round = 2
        first = programme.plan(3)
        assert first.asked["rounds_left"] == 2
        assert first.summary.chosen == 3
        programme.record()
        second = programme.plan(3)
        assert (second.asked["rounds_left"], second.summary.chosen) == (1, 0)
        programme.record()
        programme.replay(1)
        with pytest.raises(pm.InputError, match="ended with round 2"):
            programme.plan(6)
        with pytest.raises(pm.InputError, match="last_round 1 is over"):
            programme.last_round = 1
        programme.last_round = None
        assert "rounds_left" not in programme.plan(6).asked


def test_a_programme_needs_a_model_that_was_taught_it(ongoing, tmp_path):
    with (
        pm.Programme(tmp_path / "calls.db", ongoing) as programme,
        pytest.raises(pm.InputError, match="not trained for rounds_left"),
    ):
        programme.last_round = 4


def test_a_programme_goes_on_with_its_model_after_that_was_taught_the_end(model, tmp_path):
    before = dataclasses.replace(
        model,
        network=dataclasses.replace(model.network, to_end=None),
        config=dataclasses.replace(model.config, rounds_left=0),
    )
    with pm.Programme(tmp_path / "calls.db", before) as programme:
        programme.join(people(model))
        programme.plan(2)
        programme.record()
    with pm.Programme(tmp_path / "calls.db", model) as programme:
        programme.replay(1)
        programme.last_round = 2
        assert programme.plan(2).asked["rounds_left"] == 1


def test_commands_take_rounds_left(model, tmp_path, capsys):
    model.save(tmp_path / "mine")
    people(model).write_csv(tmp_path / "people.csv")
    run = lambda *words: cli.run_command([*map(str, words)]) or capsys.readouterr().out  # noqa: E731
    plan = ("plan", tmp_path / "mine", "--arms", tmp_path / "people.csv", "--budget", 6)
    out = run(*plan, "--out", tmp_path / "plan.csv", "--rounds-left", 1, "--json")
    assert json.loads(out)["chosen"] == 0
    file = tmp_path / "calls.db"
    begun = run("programme", "begin", file, "--model", tmp_path / "mine", "--last-round", 9)
    assert "current round 1 of 9" in begun
    assert json.loads(run("programme", "status", file, "--json"))["last_round"] == 9
