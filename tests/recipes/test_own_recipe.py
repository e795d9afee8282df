"""A recipe of one's own, in one small class, works with everything else."""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import polars as pl
import pytest
from jaxtyping import PyTree

import prefermab as pm
from prefermab.models.saving import named_arrays
from prefermab.networks.worth import Perception, Worth, mlp
from prefermab.policies.learned import ByPrice
from prefermab.recipes import METRICS, Metrics, Recipe
from prefermab.recipes.base import make_recipe


class State(eqx.Module):
    """What changes in training: the network, Adam's memory, and how many steps were done."""

    network: Worth
    adam: PyTree
    step: jax.Array


@dataclasses.dataclass(frozen=True)
class OneRoundAhead(Recipe):
    """Learns what every action earns in the next round, and nothing beyond."""

    name: ClassVar[str] = "one-round-ahead"

    steps: int = 40
    width: int = 16
    learning_rate: float = 1e-2

    @property
    def pieces(self):
        return (10,) * (self.steps // 10)

    def network(self, shape, key):
        return self.behind(Perception.blank(shape, plain=False), shape.actions, key)

    def behind(self, perception, n_actions, key):
        return Worth(perception, mlp(perception.size, n_actions, self.width, 1, jnp.tanh, key))

    def init(self, domain, n_arms, key):
        features = domain.features(domain.draw_arms(key, 1000))
        perception = Perception.of(domain, features, jnp.ones(()))
        return self.before_learning(self.behind(perception, domain.n_actions, key))

    def before_learning(self, network):
        adam = optax.adam(self.learning_rate).init(eqx.filter(network.layers, eqx.is_array))
        return State(network, adam, jnp.zeros((), int))

    def step(self, domain, n_arms, budget, size, state, key):
        losses = []
        for _ in range(size):
            arms = domain.draw_arms(jax.random.fold_in(key, state.step), 64)
            state, loss = self.learn(domain, arms, state)
            losses.append(loss)
        zero = jnp.zeros(1)
        return state, Metrics(zero, zero, zero, zero, jnp.stack(losses).mean()[None])

    def learn(self, domain, arms, state):
        earned = jnp.einsum(
            "nsat,nt->nsa", jax.vmap(domain.transitions)(arms), jax.vmap(domain.rewards)(arms)
        )
        perception, features = state.network.perception, domain.features(arms)

        def error(layers):
            ask = jax.vmap(Worth(perception, layers), in_axes=(None, 0, None))
            gains = jax.vmap(lambda s: ask(s, features, jnp.zeros(())), out_axes=1)(domain.cells)[1]
            return jnp.mean((gains - (earned - earned[..., :1])) ** 2)

        loss, slope = eqx.filter_value_and_grad(error)(state.network.layers)
        update, adam = optax.adam(self.learning_rate).update(slope, state.adam)
        layers = eqx.apply_updates(state.network.layers, update)
        return State(Worth(perception, layers), adam, state.step + 1), loss

    def trained(self, state):
        return state.network

    def policy(self, network):
        return ByPrice(network)

    def finetune(self, tuning, domain, net, arms, budget, key):
        state, found = self.before_learning(net), []
        for _ in range(tuning.epochs):
            state, _ = self.learn(domain, arms, state)
            found.append(eqx.filter(state.network, eqx.is_array))
        return eqx.combine(jax.tree.map(lambda *x: jnp.stack(x), *found), net)


@pytest.fixture(scope="module")
def model():
    return pm.pretrain(pm.domains.Armman(), OneRoundAhead(steps=200), n_arms=10, budget=3)


def same(one, other):
    for name, array in named_arrays(one.network).items():
        np.testing.assert_array_equal(named_arrays(other.network)[name], array)


def test_it_can_be_asked_for_by_name(model):
    by_name = pm.pretrain(
        pm.domains.Armman(), recipe="one-round-ahead", steps=200, n_arms=10, budget=3
    )
    same(model, by_name)
    assert by_name.recipe == "one-round-ahead"
    assert by_name.history is not None
    assert by_name.history["step"].to_list() == list(range(10, 201, 10))
    assert by_name.history["loss"][-1] < by_name.history["loss"][0]


def test_its_models_are_saved_and_loaded(model, tmp_path):
    model.save(tmp_path / "m")
    again = pm.load(tmp_path / "m")
    same(model, again)
    assert again.config == model.config


def test_its_models_are_evaluated_and_earn_more_than_chance(model):
    frame = pm.evaluate(
        pm.domains.Armman(), {"own": model, "random": pm.policies.Random()}, n_arms=10, budget=3,
        trials=100, bound=False,
    )  # fmt: skip
    means = dict(zip(frame["policy"], frame["mean"], strict=True))
    assert means["own"] > 1.02 * means["random"]


def test_its_models_plan_and_act(model):
    domain = pm.domains.Armman()
    features = np.asarray(domain.features(domain.draw_arms(jax.random.key(0), 6)))
    people = pl.DataFrame({"id": range(6), "state": ["persuadable"] * 6}).with_columns(
        [pl.Series(name, features[:, i]) for i, name in enumerate(model.feature_names)]
    )
    plan = model.plan(people, budget=2)
    assert plan.summary.spent == 2
    assert plan.summary.gain is not None
    assert model.act(np.ones(6), features, budget=2).sum() == 2


def test_its_training_can_be_cut_short_and_resumed(model, tmp_path):
    file, domain, recipe = tmp_path / "c", pm.domains.Armman(), OneRoundAhead(steps=200)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pm.pretrain(domain, recipe, n_arms=10, budget=3, checkpoint=file, progress=stop)
    resumed = pm.pretrain(domain, recipe, n_arms=10, budget=3, checkpoint=file, resume=True)
    same(model, resumed)
    assert not file.exists()


def test_its_models_are_fine_tuned(model):
    arms = pm.domains.Armman().draw_arms(jax.random.key(0), 6)
    tuned = pm.finetune(model, arms=arms, budget=2, epochs=3, trials=20)
    assert tuned.tuned is not None
    assert tuned.tuned.n_arms == 6


def test_a_hyperparameter_out_of_range_is_refused():
    with pytest.raises(pm.InputError, match="steps must be"):
        pm.pretrain(pm.domains.Armman(), recipe="one-round-ahead", steps=0)
    with pytest.raises(pm.InputError, match="did you mean 'steps'"):
        pm.pretrain(pm.domains.Armman(), recipe="one-round-ahead", step=10)
    with pytest.raises(pm.InputError, match=r"write OneRoundAhead\(\)"):
        make_recipe(OneRoundAhead, {})
    with pytest.raises(pm.InputError, match="recipe must be a name or an object"):
        make_recipe(25, {})


def test_every_recipe_has_the_same_metrics(model):
    assert model.history is not None
    assert set(model.history.columns) == {"step", "seed", *METRICS}
