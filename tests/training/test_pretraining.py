import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prefermab as pm
from prefermab.models.saving import named_arrays
from prefermab.networks.pricing import PriceNetwork
from prefermab.networks.worth import Perception, Worth, mlp
from prefermab.policies.learned import ByGreedyProba
from prefermab.recipes import paper
from prefermab.recipes.learner import Batch, importance

P = pm.policies
start = eqx.filter_jit(paper.Paper.init)
collect = eqx.filter_jit(paper.Paper.collect)
improve = eqx.filter_jit(paper.Paper.improve)
update_price = eqx.filter_jit(paper.Paper.update_price)


def lifted_or_not():
    """Two kinds of arms: acting lifts the first to state 1 and does nothing for the second."""
    stay = [[[0.95, 0.05], [0.1, 0.9]], [[0.95, 0.05], [0.1, 0.9]]]
    deaf = [[[0.95, 0.05], [0.95, 0.05]], [[0.95, 0.05], [0.95, 0.05]]]
    return pm.domains.Tabular([stay, deaf], [0, 1], [0, 1], features=[[1.0], [-1.0]])


WORTHS = {"steps": 1500, "arms": 128, "width": 16}
SETTINGS = {
    "paper": {"epochs": 40, "rounds": 40},
    "sweep": WORTHS,
    "exact": {**WORTHS, "masked": 0.0},
}


@functools.cache
def taught(recipe):
    return pm.pretrain(lifted_or_not(), recipe, n_arms=8, budget=2, **SETTINGS[recipe])


@pytest.mark.parametrize("recipe", SETTINGS)
def test_a_model_learns_who_can_be_helped(recipe):
    model = taught(recipe)
    features = np.array([[-1.0], [1.0], [-1.0], [1.0], [-1.0]])
    for states in ([0] * 5, [1] * 5):
        actions = model.act(states, features, budget=2)
        np.testing.assert_array_equal(actions, [0, 1, 0, 1, 0])


def test_sweep_spends_nothing_on_those_it_cannot_help():
    model = taught("sweep")
    assert isinstance(model.network, Worth)
    worth = model.network(jnp.array(0), jnp.array([-1.0]), jnp.array(0.0))[1]
    assert abs(float(worth[1])) < 0.05
    helped = model.network(jnp.array(0), jnp.array([1.0]), jnp.array(0.0))[1]
    # Acting now gains 0.85 next round, and nothing after: every round's action starts afresh.
    assert float(helped[1]) == pytest.approx(0.85, abs=0.08)


def test_exact_learns_the_mean_over_arms_that_look_alike():
    """Acting lifts one kind of arm by 0.85 for a round and does nothing for the other. Both show
    the same feature, so acting is worth the mean of the two, at any price it is asked at; also
    where errors near a choice count more."""
    domain, told = lifted_or_not(), taught("exact")
    alike = pm.domains.Tabular(domain.table, [0, 1], [0, 1], features=[[1.0], [1.0]])
    mixed = pm.pretrain(alike, "exact", **SETTINGS["exact"], focus=0.3)
    for price in (0.0, 0.3):
        ask = lambda model, feature, at=price: float(  # noqa: E731
            model.network(jnp.array(0), jnp.array([feature]), jnp.array(at))[1][1]
        )
        assert ask(told, 1.0) == pytest.approx(0.85, abs=0.02)
        assert ask(told, -1.0) == pytest.approx(0.0, abs=0.02)
        assert ask(mixed, 1.0) == pytest.approx(0.425, abs=0.02)


def test_errors_count_most_where_two_actions_are_nearly_equal():
    """At a price of 1: the first arm is torn between waiting and the first action, the second
    between both actions, and the third is sure to wait."""
    gains = jnp.array([[0.0, 1.0, 1.2], [0.0, 3.0, 4.0], [0.0, 0.1, 0.1]])
    cost = jnp.tile(jnp.array([0.0, 1.0, 2.0]), (3, 1))
    batch = Batch(jnp.zeros(3, int), jnp.zeros((3, 1)), jnp.ones(3), gains, cost)
    found = importance(gains, jnp.array(2.0), batch, focus=0.1)
    assert float(found.mean()) == pytest.approx(1.0)
    torn = found > 1
    np.testing.assert_array_equal(
        torn, [[True, True, False], [False, True, True], [False, False, False]]
    )
    everywhere = importance(gains[:, None], jnp.array(2.0), batch, focus=0.1)
    np.testing.assert_allclose(everywhere[:, 0], found)


def test_exact_worths_are_those_of_backward_induction():
    domain, price, rounds = pm.domains.Armman(), 0.4, 6
    arms = domain.draw_arms(jax.random.key(0), 3)
    config = pm.recipes.Exact(horizon=rounds, discount=1.0).lessons
    each = jax.vmap(config.worths_of_arm, in_axes=(None, 0, None))
    worth = each(domain, arms, jnp.array([price]))[:, 0]
    transitions, costs = jax.vmap(domain.transitions)(arms), jax.vmap(domain.costs)(arms)
    prices, everyone = jnp.full(rounds, price), jnp.ones((rounds, 3), bool)
    rewards = jax.vmap(domain.rewards)(arms)
    q = pm.oracles.backward_induction(transitions, rewards, costs, prices, everyone)[0]
    np.testing.assert_allclose(worth - price * costs[:, None], q, atol=1e-5)


def test_seeds_trained_together_are_those_trained_alone():
    domain, small = pm.domains.Synthetic(), {"steps": 30, "arms": 32, "width": 8}
    together = pm.pretrain_seeds(domain, [3, 5], **small)
    for model, seed in zip(together, (3, 5), strict=True):
        alone = pm.pretrain(domain, seed=seed, **small)
        assert alone.config == model.config
        for name, array in named_arrays(alone.network).items():
            np.testing.assert_allclose(
                named_arrays(model.network)[name], array, rtol=2e-3, atol=2e-4
            )


def test_the_same_seed_gives_the_same_weights():
    domain, small = pm.domains.Synthetic(), {"steps": 30, "arms": 32, "width": 8}
    first, again = (named_arrays(pm.pretrain(domain, seed=1, **small).network) for _ in range(2))
    for name, array in first.items():
        np.testing.assert_array_equal(again[name], array)


@pytest.mark.parametrize("name", ["armman", "synthetic"])
def test_shipped_models_reach_99_percent_of_the_policy_that_knows_the_dynamics(name):
    model = pm.load(name)
    compared = {"model": model, "whittle": P.Whittle()}
    frame = pm.evaluate(
        model.domain,
        compared,
        n_arms=model.n_arms,
        budget=model.budget,
        opt_in=(0.8, 1.0),
        trials=300,
        bound=False,
    )
    for rate in (0.8, 1.0):
        rows = frame.filter(frame["opt_in"] == rate)
        means = dict(zip(rows["policy"], rows["mean"], strict=True))
        assert means["model"] > 0.99 * means["whittle"]


def test_unknown_features_cost_little_and_are_not_fatal():
    model, domain = pm.load("armman"), pm.domains.Armman()
    assert model.domain == domain
    rng = np.random.default_rng(0)
    features = np.array(domain.features(domain.draw_arms(jax.random.key(0), 500)))
    states = rng.integers(0, 3, 500)
    full = model.act(states, features, budget=100)
    features[rng.random(features.shape) < 0.1] = np.nan
    partly = model.act(states, features, budget=100)
    assert partly.sum() == 100
    assert (full == partly).mean() > 0.85
    none = model.act(states, np.full_like(features, np.nan), budget=100)
    assert none.sum() == 100


@pytest.mark.parametrize("name", ["armman", "sis", "continuous-synthetic"])
@pytest.mark.parametrize("budget", [0, 1, 3.7, 1e9])
def test_a_model_keeps_any_budget_for_any_number_of_arms(name, budget):
    model = pm.load(name)
    rng = np.random.default_rng(1)
    for n_arms in (1, 2, 37):
        top = 1.0 if name == "continuous-synthetic" else len(model.state_names)
        states = rng.random(n_arms) * top
        states = states if top == 1.0 else np.floor(states)
        opt_in = rng.random(n_arms) < 0.7
        features = rng.normal(size=(n_arms, len(model.feature_names)))
        actions = model.act(states, features, budget=budget, opt_in=opt_in)
        assert np.asarray(model.costs)[actions].sum() <= budget
        assert (actions[~opt_in] == 0).all()
        np.testing.assert_array_equal(
            actions, model.act(states, features, budget=budget, opt_in=opt_in)
        )


def test_the_price_network_takes_any_number_of_arms_in_any_order():
    keys = jax.random.split(jax.random.key(0), 2)
    network = PriceNetwork(
        mlp(3 + 4 + 1, 16, 16, 1, jnp.tanh, keys[0]), mlp(16, 1, 16, 1, jnp.tanh, keys[1])
    )
    for n_arms in (1, 5, 40):
        codes = jax.random.normal(keys[0], (n_arms, 3))
        features = jax.random.normal(keys[1], (n_arms, 4))
        opt_in = jnp.arange(n_arms) % 3 != 1
        price = network(codes, features, opt_in)
        assert float(price) >= 0
        turned = network(codes[::-1], features[::-1], opt_in[::-1])
        assert float(turned) == pytest.approx(float(price), rel=1e-5)
        # What an opted-out arm looks like is of no consequence.
        other = jnp.where(opt_in[:, None], features, 9.0)
        assert float(network(codes, other, opt_in)) == pytest.approx(float(price), rel=1e-5)


def test_the_price_falls_under_budget_and_rises_over_it():
    """Prop. 2 with the sign of its proof."""
    domain = pm.domains.Synthetic()
    config = pm.recipes.Paper()
    learner = start(config, domain, 21, jax.random.key(0))
    seen = collect(config, domain, learner, jax.random.key(1), jax.random.key(2))

    def price(learner):
        return float(learner.network.price(seen.state[0], seen.features, seen.opt_in))

    lavish, tight = (
        update_price(config, jnp.asarray(budget), learner, seen) for budget in (21.0, 0.0)
    )
    assert price(lavish) < price(learner) < price(tight)


def test_the_price_stays_in_the_last_epochs():
    domain, config = pm.domains.Synthetic(), pm.recipes.Paper(epochs=40, freeze=20)
    learner = start(config, domain, 5, jax.random.key(0))
    seen = collect(config, domain, learner, jax.random.key(1), jax.random.key(2))
    for epoch, moves in ((20, True), (24, False), (40, False)):
        at = eqx.tree_at(lambda it: it.epoch, learner, jnp.asarray(epoch))
        after = update_price(config, jnp.asarray(0.0), at, seen)
        before, now = named_arrays(at.network.pricing), named_arrays(after.network.pricing)
        assert any((before[k] != now[k]).any() for k in before) == moves


def test_entropy_cools_over_training_and_within_a_block():
    config = pm.recipes.Paper(epochs=100, subepochs=4, entropy_start=0.5, entropy_end=0.0)
    weights = [float(config.entropy_weight(jnp.asarray(e))) for e in (0, 1, 3, 4, 96, 99)]
    np.testing.assert_allclose(
        weights,
        [0.5, 0.5 * 98 / 99 * 3 / 4, 0.5 * 96 / 99 / 4, 0.5 * 95 / 99, 0.5 * 3 / 99, 0],
        atol=1e-6,
    )


def test_opted_out_arms_are_in_no_loss():
    domain, config = pm.domains.Synthetic(), pm.recipes.Paper(rounds=10, passes=2)
    learner = start(config, domain, 6, jax.random.key(0))
    opt_in = jnp.array([True, True, False, True, False, True])
    learner = eqx.tree_at(lambda it: it.opt_in, learner, opt_in)
    seen = collect(config, domain, learner, jax.random.key(1), jax.random.key(2))
    spoiled = paper.Trajectory(
        seen.state, seen.action, jnp.where(opt_in, seen.reward, 1e3), seen.cost, seen.last_state,
        seen.features, seen.opt_in, seen.price,
    )  # fmt: skip
    same, other = (improve(config, learner, t)[0].network for t in (seen, spoiled))
    for name, array in named_arrays(same).items():
        np.testing.assert_array_equal(named_arrays(other)[name], array)


def test_greedy_proba_still_orders_actions_whose_probability_rounds_to_one():
    domain = lifted_or_not()
    learner = start(pm.recipes.Paper(), domain, 3, jax.random.key(0))
    net = learner.network

    class Sure(type(net)):
        def logits(self, state, features, price):
            return jnp.array([0.0, 40.0]) * (1 + features[0])

    sure = Sure(net.perception, net.actor, net.critic, net.pricing)
    seen = pm.Observation(
        jnp.zeros(3, int), jnp.array([[0.1], [0.3], [0.2]]), jnp.ones(3, bool),
        jnp.tile(jnp.array([0.0, 1.0]), (3, 1)), jnp.array(1.0), jnp.array(0),
    )  # fmt: skip
    actions, _ = ByGreedyProba(sure).act(seen, None, jax.random.key(0))
    np.testing.assert_array_equal(actions, [0, 1, 0])


def test_shaping_makes_states_of_equal_reward_alike():
    domain = pm.domains.ContinuousSynthetic("scaled")
    model = pm.pretrain(domain, recipe="paper", shaping="isotonic", epochs=8, rounds=40)
    see = model.network.perception.code
    at = [float(see(jnp.array(s))[0]) for s in (0.0, 0.25, 0.5, 0.75, 1.0)]
    np.testing.assert_allclose(at, [-1, 0, 1, 1, 1], atol=0.06)


def test_whitening_leaves_out_what_does_not_differ():
    domain = pm.domains.Synthetic()
    features = jnp.concatenate(
        [jnp.ones((100, 1)), jax.random.normal(jax.random.key(0), (100, 3))], 1
    )
    perception = Perception.of(domain, features, jnp.array(5.0))
    seen = perception(jnp.array(1), jnp.array([1e6, 0.0, jnp.nan, 0.0]), jnp.array(0.0))
    assert jnp.isfinite(seen).all()
    assert float(jnp.abs(seen).max()) < 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipe": "swep"}, "did you mean 'sweep'"),
        ({"stps": 3}, "did you mean 'steps'"),
        ({"steps": 0}, "steps must be"),
        ({"learning_rate": -1}, "must not be negative"),
        ({"learning_rate": float("nan")}, "must not be negative or NaN"),
        ({"width": "wide"}, "width must be a number"),
        ({"budget": -1}, "budget must be"),
        ({"n_arms": 0}, "n_arms must be"),
        ({"seed": -1}, "seed must be"),
        ({"recipe": "paper", "shaping": "isotonc"}, "did you mean 'isotonic'"),
        ({"recipe": "paper", "shaping": "knn"}, "states that are numbers"),
        ({"recipe": "paper", "shaping": "own"}, "pass the function"),
        ({"recipe": "paper", "cooling": "hole"}, "did you mean 'whole'"),
    ],
)
def test_bad_training_settings_get_one_clear_sentence(arguments, message):
    with pytest.raises(pm.InputError, match=message):
        pm.pretrain(pm.domains.Synthetic(), **arguments)


def test_a_training_that_diverges_is_no_input_error():
    with pytest.raises(pm.TrainingError, match="broke down"):
        pm.pretrain(pm.domains.Synthetic(), steps=40, arms=8, learning_rate=1e30)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"states": [0, 1, 3]}, r"states\[2\] is 3"),
        ({"states": [0, 1, 0.5]}, "whole numbers"),
        ({"states": [0, 1, np.nan]}, "finite"),
        ({"features": np.zeros((3, 5))}, r"\(3, 6\)"),
        ({"features": np.full((3, 6), np.inf)}, "finite, or NaN"),
        ({"features": [["a"] * 6] * 3}, "array of numbers"),
        ({"budget": -1}, "budget must be"),
        ({"budget": np.nan}, "budget must be"),
        ({"opt_in": [True]}, "each of 3 arms"),
        ({"opt_in": [0.5, 1, 1]}, "true or false"),
        ({"costs": [0, 1, 2]}, "2 numbers"),
    ],
)
def test_bad_rounds_get_one_clear_sentence(arguments, message):
    given = {"states": [0, 1, 2], "features": np.zeros((3, 6)), "budget": 1, **arguments}
    with pytest.raises(pm.InputError, match=message):
        pm.load("armman").act(**given)


def test_nobody_and_nobody_in():
    model = pm.load("armman")
    assert model.act([], np.zeros((0, 6)), budget=3).shape == (0,)
    nobody = model.act([0, 1], np.zeros((2, 6)), budget=3, opt_in=[False, False])
    np.testing.assert_array_equal(nobody, [0, 0])
