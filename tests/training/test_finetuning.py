import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prefermab as pm
from prefermab.models.saving import named_arrays
from prefermab.networks.worth import ActorCritic
from prefermab.policies.learned import ByGreedyProba

SMALL = {"epochs": 3, "rounds": 10, "trials": 60}


@pytest.fixture(scope="module")
def synthetic():
    """A pretrained model whose features later mean something else, and 21 arms."""
    domain = pm.domains.Synthetic(feature_map=pm.FeatureMap(seed=5))
    model = pm.pretrain(pm.domains.Synthetic(), recipe="sweep", steps=1500, arms=256)
    return model, domain, domain.draw_arms(jax.random.key(3), 21)


@pytest.fixture(scope="module")
def tuned(synthetic):
    model, domain, arms = synthetic
    return pm.finetune(model, domain, arms=arms, budget=7, trials=100)


def test_fine_tuning_learns_what_features_mean(synthetic, tuned):
    model, domain, arms = synthetic
    found = tuned.tuned
    assert found is not None
    assert (found.kept, found.samples_per_arm, found.n_arms) == (True, 400, 21)
    compared = {"before": model, "after": tuned, "whittle": pm.policies.Whittle()}
    frame = pm.evaluate(domain, compared, budget=7, arms=arms, trials=200, seed=9, bound=False)
    means = dict(zip(frame["policy"], frame["mean"], strict=True))
    assert means["after"] > 1.2 * means["before"]
    assert means["after"] > 0.97 * means["whittle"]


def test_a_model_by_exact_learns_from_the_arms_dynamics(synthetic):
    _, domain, arms = synthetic
    tuned = pm.finetune(pm.load("synthetic"), domain, arms=arms, budget=7, trials=100)
    assert tuned.tuned is not None
    assert tuned.tuned.kept
    assert "the dynamics of each of 21 arms" in str(tuned.tuned)


def test_a_model_that_tuning_does_not_improve_stays_as_it_was(synthetic):
    model, _, arms = synthetic
    # A step size at which learning wrecks the network.
    tuned = pm.finetune(
        model, pm.domains.Synthetic(), arms=arms, budget=7, learning_rate=30.0, **SMALL
    )
    assert tuned.tuned is not None
    assert not tuned.tuned.kept
    for name, array in named_arrays(model.network).items():
        np.testing.assert_array_equal(named_arrays(tuned.network)[name], array)


def test_what_tuning_found_is_saved_with_the_model(tuned, tmp_path):
    tuned.save(tmp_path / "tuned")
    again = pm.load(tmp_path / "tuned")
    assert again.tuned == tuned.tuned
    assert "400 samples of each of 21 arms" in again.card
    assert (tmp_path / "tuned" / "metrics.parquet").exists()


def test_a_paper_model_is_tuned_by_its_own_recipe():
    domain = pm.domains.Synthetic()
    model = pm.pretrain(domain, "paper", n_arms=6, budget=2, epochs=4, rounds=10, freeze=0)
    arms = domain.draw_arms(jax.random.key(0), 6)
    tuned = pm.finetune(model, domain, arms=arms, epochs=6, rounds=10, trials=30)
    assert tuned.tuned is not None
    assert tuned.tuned.samples_per_arm == 60
    assert tuned.history is not None
    assert tuned.history["samples_per_arm"].to_list() == [10, 20, 30, 40, 50, 60]


def test_ddlpo_learns_who_can_be_helped_with_and_without_features():
    stay = [[[0.95, 0.05], [0.1, 0.9]], [[0.95, 0.05], [0.1, 0.9]]]
    deaf = [[[0.95, 0.05], [0.95, 0.05]], [[0.95, 0.05], [0.95, 0.05]]]
    domain = pm.domains.Tabular([stay, deaf, stay, deaf], [0, 1], [0, 1])
    arms = jnp.arange(4)
    for with_features in (True, False):
        topline = pm.ddlpo(
            domain, arms, budget=2, with_features=with_features, epochs=40, rounds=40, freeze=8
        )
        frame = pm.evaluate(
            domain, {"last": topline.last, "best": topline.best}, budget=2, arms=arms, trials=100
        )
        assert frame["of_bound"].min() > 0.98
        assert topline.history["mean"].max() >= topline.history["mean"][-1]


def test_each_arm_has_networks_of_its_own():
    domain = pm.domains.Synthetic()
    arms = domain.draw_arms(jax.random.key(0), 5)
    topline = pm.ddlpo(domain, arms, budget=2, epochs=2, rounds=5, trials=5, freeze=0)
    assert isinstance(topline.last, ByGreedyProba)
    network = topline.last.network
    assert isinstance(network, ActorCritic)
    assert network.own
    assert all(layer.weight.shape[0] == 5 for layer in network.actor.layers)
    states, features = jnp.zeros(5, int), domain.features(arms)
    logits = network.logits_of(states, features, jnp.ones(()))
    one = jax.tree.map(lambda x: x[3] if hasattr(x, "shape") else x, network.actor)
    seen = network.perception(states[3], features[3], jnp.ones(()))
    np.testing.assert_allclose(one(seen), logits[3], rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arms": None}, "arms must be given"),
        ({"arms": jnp.zeros((0, 4))}, "at least one"),
        ({"epochs": 0}, "epochs must be"),
        ({"epoch": 3}, "did you mean 'epochs'?"),
        ({"budget": -1}, "budget must be"),
        ({"domain": pm.domains.Armman()}, "the model knows 2 states"),
    ],
)
def test_bad_tuning_gets_one_clear_sentence(synthetic, change, message):
    model, domain, arms = synthetic
    with pytest.raises(pm.InputError, match=message.replace("?", r"\?")):
        pm.finetune(model, **{"domain": domain, "arms": arms, **change})


def test_a_model_without_its_domain_asks_for_it(synthetic):
    model, _, arms = synthetic
    with pytest.raises(pm.InputError, match="give domain="):
        pm.finetune(dataclasses.replace(model, domain=None), arms=arms)


def test_ddlpo_refuses_what_it_cannot_train():
    domain = pm.domains.Synthetic()
    arms = domain.draw_arms(jax.random.key(0), 3)
    with pytest.raises(pm.InputError, match="epochs must be"):
        pm.ddlpo(domain, arms, budget=1, epochs=0)
