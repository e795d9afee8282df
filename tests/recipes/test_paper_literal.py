"""The paper to the letter: what can be done in two ways, and the preset that takes the paper's."""

import dataclasses
import json
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import prefermab as pm
from prefermab.models.loading import shipped_models
from prefermab.recipes import ppo
from prefermab.recipes.base import choices, hyperparameters_of, make_recipe
from prefermab.recipes.shaping import Samples
from studies import departures, departures_page


def test_the_preset_takes_the_other_way_everywhere():
    ours, literal = pm.recipes.Paper(), pm.recipes.Paper.literal()
    assert literal == make_recipe("paper-literal", {})
    assert pickle.loads(pickle.dumps(literal)) == literal
    assert literal.price_start == 0
    for name, (own, other) in choices(pm.recipes.Paper).items():
        assert getattr(ours, name) == own
        # Requests beyond capacity are in Algorithm 1; the appendix draws place by place.
        assert getattr(literal, name) == (own if name == "arrivals" else other)
    both = {f.name for f in dataclasses.fields(ours)} - {*choices(pm.recipes.Paper), "price_start"}
    assert all(getattr(ours, name) == getattr(literal, name) for name in both)


def test_models_of_before_read_as_before():
    folder = shipped_models()["armman-paper"]
    written = json.loads((folder / "config.json").read_text())
    model = pm.load("armman-paper")
    assert hyperparameters_of(model.config) == written["config"]
    assert model.describe()["domain"]["settings"]["feature_map"] == {
        "kind": "linear", "seed": 0, "masked": (),
    }  # fmt: skip
    assert list(model.describe()["domain"]["settings"]) == ["feature_map", "mix"]


def test_a_literal_model_with_an_abstraction_of_ones_own(tmp_path):
    def good_or_bad(cells, states, rewards):
        assert states.size == rewards.size > 0
        return (cells > 0.5).astype(float)

    domain = pm.domains.SIS(population=4)
    recipe = pm.recipes.Paper.literal(
        shaping=good_or_bad, epochs=2, subepochs=1, rounds=3, passes=1, freeze=0, width=4
    )
    model = pm.pretrain(domain, recipe, n_arms=3, budget=2)
    codes = model.network.perception.codes
    np.testing.assert_array_equal(codes[:, 0], [0, 0, 0, 1, 1])
    model.save(tmp_path / "m")
    again = pm.load(tmp_path / "m")
    assert again.config == dataclasses.replace(model.config, shaping="own")
    features = np.zeros((3, 4))
    np.testing.assert_array_equal(
        again.act([0, 1, 4], features, budget=2), model.act([0, 1, 4], features, budget=2)
    )
    with pytest.raises(pm.InputError, match="made for 3 arms: it cannot price 2"):
        again.act([0, 1], features[:2], budget=2)


def test_samples_are_those_of_opted_in_arms_of_all_epochs():
    samples = Samples.none(3, 2 * 2)
    states = jnp.arange(8.0).reshape(2, 2, 2)
    opt_in = jnp.array([[True, False], [True, True]])
    samples = samples.add(states, 10 * states, opt_in)
    samples = samples.add(states[:1] + 100, states[:1], opt_in[:1])
    seen = []

    def note(cells, states, rewards):
        seen.append((states.tolist(), rewards.tolist()))
        return cells

    jax.tree.map(lambda x: x[None], samples).abstract(np.zeros(2), note)
    assert seen == [([0, 2, 4, 5, 6, 7, 100, 102], [0, 20, 40, 50, 60, 70, 0, 2])]


def test_an_abstraction_that_gives_nonsense_is_refused():
    samples = jax.tree.map(lambda x: x[None], Samples.none(1, 2))
    with pytest.raises(pm.InputError, match="a finite number for each of 3 cells"):
        samples.abstract(np.zeros(3), lambda *_: np.zeros(2))


def test_a_step_for_each_arm_that_is_in():
    """Against Adam in a plain loop, on the error of one number to each arm's gain."""
    n_arms, passes, rate = 3, 2, 0.1
    gain = jnp.array([[1.0, 5.0, -2.0], [3.0, 7.0, 0.0]])
    inside = jnp.broadcast_to(jnp.array([True, False, True]), gain.shape)
    batch = ppo.PPOBatch(
        gain, gain.astype(int), gain, gain, gain, inside, jnp.zeros((n_arms, 1)), jnp.zeros(())
    )
    start = jnp.array(0.5)
    error = lambda number, own: jnp.mean((number - own.gain) ** 2)  # noqa: E731
    moved, _, loss = ppo.descend_arm_by_arm(
        error, batch, start, optax.adam(rate).init(start), rate, passes
    )
    number, state, last = start, optax.adam(rate).init(start), []
    for _ in range(passes):
        last = []
        for arm in (0, 2):
            mean, square = gain[:, arm].mean(), (gain[:, arm] ** 2).mean()
            last.append(number**2 - 2 * number * mean + square)
            update, state = optax.adam(rate).update(2 * (number - mean), state)
            number = optax.apply_updates(number, update)
    assert float(moved) == pytest.approx(float(number), rel=1e-5)
    assert float(loss) == pytest.approx(float(np.mean(last)), rel=1e-5)


def test_capacity_in_training():
    """Those who stay keep their dynamics; newcomers take free places, as many as there are."""
    domain, n_arms = pm.domains.Synthetic(), 8

    @eqx.filter_jit
    def after(stay, newcomers):
        recipe = pm.recipes.Paper(arrivals="streaming", stay=stay, newcomers=newcomers)
        arms = domain.draw_arms(jax.random.key(0), n_arms)
        before = recipe.learner(
            recipe.untrained(
                recipe.perception(domain, domain.features(arms)), 2, n_arms, jax.random.key(1)
            ),
            arms,
        )
        found = recipe.requests(domain, before, jax.random.key(2))
        return found.opt_in, jnp.any(found.arms != arms, axis=1)

    is_in, is_new = after(0.5, 100.0)
    assert is_in.all()
    assert 0 < is_new.sum() < n_arms
    stayed, none_new = after(0.5, 0.0)
    assert not none_new.any()
    np.testing.assert_array_equal(stayed, ~is_new)


def test_entropy_of_the_released_code():
    recipe = pm.recipes.Paper.literal(epochs=40, freeze=20)
    weights = [float(recipe.entropy_weight(jnp.asarray(e))) for e in (0, 1, 3, 4, 19, 20, 39)]
    level = lambda epoch: 0.5 * (1 - epoch / 39)  # noqa: E731
    np.testing.assert_allclose(weights, [0.5, level(1) * 2 / 3, 0, level(4), 0, 0, 0], atol=1e-6)


def test_domains_as_the_paper_prints_them():
    domain = pm.domains.Armman(motivated=(0.25, 0.75), draws="uniform")
    arms = np.asarray(domain.draw_arms(jax.random.key(0), 2000))
    assert arms[:, :2].min() >= 0.25
    assert arms[:, :2].max() <= 0.75
    # A uniform draw of width 1/2 has standard deviation 1/√48, one from a sub-interval less.
    assert arms[:, 4].std() == pytest.approx(0.5 / 12**0.5, rel=0.05)
    other = pm.FeatureMap("linear", entries="uniform").matrix(6)
    assert other.min() >= 0
    for wrong in ({"motivated": (0.5, 1.5)}, {"motivated": (0.5, 0.2)}, {"draws": "unifrom"}):
        with pytest.raises(pm.InputError):
            pm.domains.Armman(**wrong)


def test_the_study_of_departures_has_a_case_for_each_switch_and_a_page(tmp_path):
    made_up = {"reward": {"0.8": [1.0, 3.0], "1": [2.0, 4.0]}, "none": {"0.8": 0.5, "1": 1.0}}
    made_up |= {"collapsed": [False, True], "price": [0.5, 0.6], "backend": "none"}
    made_up |= {"effort": {"seeds": 2, "trials": 10, "small": True}}
    for part in departures.PARTS:
        names = [case.name for case in departures.cases_of(part)]
        assert len(set(names)) == len(names)
        entries = [{"case": name, **made_up} for name in names]
        (tmp_path / f"{part}.json").write_text(json.dumps(entries))
    for case in departures.cases_of("switches-armman"):
        make_recipe(case.recipe, dict(case.settings)).check(case.domain)
    page = departures_page.departures(tmp_path)
    for switch, (_, other) in choices(pm.recipes.Paper).items():
        assert f"| `{switch}={other}` | +0.000 ± 0.000 |" in page
    assert "min(2s, 1) 5.28 with StateShaping and 4.50 without" in page
    assert "| knn | 3.000 ± 1.000 (2.00) |" in page
    with pytest.raises(pm.InputError, match="there is no data"):
        departures_page.departures(tmp_path / "nowhere")
