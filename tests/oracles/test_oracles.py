import contextlib
import io
import itertools
import pickle

import jax
import jax.numpy as jnp
import markovianbandit
import numpy as np
import pytest

import prefermab as pm
from prefermab.oracles import Bound, backward_induction, value_iteration
from prefermab.oracles.lagrangian import relax
from reference import lp_bound

# Two arms of two states and two actions: rows are (state, action).
TWO = np.array([[[[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.2, 0.8]]]])


def random_arms(n_arms, n_states, structure, seed):
    """Random transition tables: dense, with a few next states, or to neighbours only."""
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.ones(n_states), size=(n_arms, n_states, 2))
    if structure == "neighbours":
        away = np.abs(np.subtract.outer(np.arange(n_states), np.arange(n_states)))
        table *= (away <= 1)[None, :, None, :]
    if structure == "sparse":
        kept = rng.random(table.shape) < 3 / n_states
        kept[..., 0] = True
        table *= kept
    return table / table.sum(-1, keepdims=True), rng.normal(size=(n_arms, n_states, 2))


@pytest.mark.parametrize("structure", ["dense", "sparse", "neighbours"])
@pytest.mark.parametrize("n_states", [2, 3, 10, 50])
def test_whittle_indices_agree_with_an_independent_package(n_states, structure):
    n_arms = 30 if n_states < 50 else 10
    transitions, rewards = random_arms(n_arms, n_states, structure, seed=n_states)
    indices = pm.oracles.whittle_indices(transitions, rewards, discount=0.9)
    indexable = pm.oracles.is_indexable(transitions, rewards, discount=0.9)
    for arm in range(n_arms):
        theirs = markovianbandit.RestlessBandit(transitions[arm], rewards[arm])
        with contextlib.redirect_stdout(io.StringIO()):
            expected, is_indexable = theirs.whittle_indices(discount=0.9), theirs.is_indexable(0.9)
        assert indexable[arm] == is_indexable
        if is_indexable:
            assert np.abs(indices[arm] - expected).max() < 1e-6


@pytest.mark.parametrize(("discount", "indexable"), [(0.9, False), (0.99, False), (0.8, True)])
def test_the_packages_own_non_indexable_example(discount, indexable):
    theirs = markovianbandit.random_restless(4, seed=2791)
    arm = theirs.transition_matrices[None], theirs.reward_vector[None]
    with contextlib.redirect_stdout(io.StringIO()):
        assert theirs.is_indexable(discount) == indexable
    assert pm.oracles.is_indexable(*arm, discount=discount)[0] == indexable


def test_a_whittle_index_is_the_price_at_which_acting_is_a_tie():
    transitions, rewards = random_arms(5, 4, "dense", seed=1)
    rewards[..., 1] = rewards[..., 0]
    indices = pm.oracles.whittle_indices(transitions, rewards[..., 0])
    tables = jnp.asarray(transitions, jnp.float32), jnp.asarray(rewards[..., 0], jnp.float32)
    costs = jnp.tile(jnp.array([0.0, 1.0]), (5, 1))
    for state in range(4):
        q = value_iteration(*tables, costs, jnp.asarray(indices[:, state], jnp.float32))
        np.testing.assert_allclose(q[:, state, 0], q[:, state, 1], atol=2e-5)


def test_value_iteration_solves_a_problem_worked_by_hand():
    # At price 10 nobody acts: V = R + 0.9 P0 V with P0 = [[.9, .1], [.6, .4]], R = (0, 1), so
    # .19 V0 = .09 V1 and .64 V1 = 1 + .54 V0, hence V1 = 1 / (.64 - .54·.09/.19) = 2.60274.
    q = value_iteration(
        jnp.asarray(TWO, jnp.float32), jnp.array([[0.0, 1.0]]), jnp.array([[0.0, 1.0]]), 10.0
    )
    np.testing.assert_allclose(q[0, :, 0], [2.60274 * 0.09 / 0.19, 2.60274], rtol=1e-5)


@pytest.mark.parametrize("n_states", [3, 20])
def test_backward_induction_is_the_plain_recursion(n_states):
    transitions, rewards = random_arms(4, n_states, "dense", seed=2)
    rewards, costs = rewards[..., 0], np.array([[0, 1.0], [0, 2.0], [0, 0.5], [0, 1.5]])
    prices, opt_in = np.array([0.3, 0.0, 0.7]), np.ones((3, 4), bool)
    opt_in[2, 1] = False
    single = [jnp.asarray(x, jnp.float32) for x in (transitions, rewards, costs, prices)]
    q = backward_induction(single[0], single[1], single[2], single[3], jnp.asarray(opt_in))
    later = np.zeros((4, n_states))
    for t in (2, 1, 0):
        now = np.einsum("isat,it->isa", transitions, rewards + later)
        now = (now - prices[t] * costs[:, None]) * opt_in[t][:, None, None]
        np.testing.assert_allclose(q[t], now, atol=1e-5)
        later = now.max(-1)


def instance(domain, n_arms, seed):
    key_arms, key_start = jax.random.split(jax.random.key(seed))
    arms = domain.draw_arms(key_arms, n_arms)
    start = jax.vmap(domain.start)(jax.random.split(key_start, n_arms), arms)
    return (
        np.asarray(jax.vmap(domain.transitions)(arms), float),
        np.asarray(jax.vmap(domain.rewards)(arms), float),
        np.asarray(jax.vmap(domain.costs)(arms), float),
        np.asarray(jax.vmap(domain.cell)(start)),
    )


@pytest.mark.parametrize(
    ("domain", "n_arms", "budget"),
    [
        (pm.domains.Synthetic(), 1, 1),
        (pm.domains.Synthetic(), 21, 7),
        (pm.domains.Armman(), 4, 1),
        (pm.domains.Armman(), 25, 7),
        (pm.domains.SIS(population=8), 5, 4),
        (pm.domains.ContinuousSynthetic(grid=11), 5, 2),
        (pm.domains.Armman(), 6, 0),
        (pm.domains.Armman(), 6, 100),
    ],
)
def test_the_bound_is_the_linear_programs(domain, n_arms, budget):
    for seed in range(3):
        transitions, rewards, costs, start = instance(domain, n_arms, seed)
        transitions = transitions / transitions.sum(-1, keepdims=True)
        bound = pm.oracles.lagrangian_bound(transitions, rewards, costs, budget, start, horizon=9)
        exact, _ = lp_bound(transitions, rewards, costs, budget, start, np.ones((9, n_arms), bool))
        assert exact * (1 - 1e-5) <= bound <= exact * 1.0005


def test_the_bound_knows_who_comes_and_goes():
    transitions, rewards, costs, start = instance(pm.domains.Armman(), 8, seed=5)
    opt_in = np.array(pm.opt_in.redraw(jax.random.key(1), 8 * 9, 0.7)).reshape(9, 8)
    opt_in[0, 0] = opt_in[4, 0] = True
    opt_in[2, 0] = False
    bound = pm.oracles.lagrangian_bound(
        transitions, rewards, costs, 2, start, horizon=9, opt_in=opt_in
    )
    exact, _ = lp_bound(transitions, rewards, costs, 2, start, opt_in)
    assert exact * (1 - 1e-5) <= bound <= exact * 1.0005


def test_costs_may_differ_between_arms_and_be_real():
    transitions, rewards, _, start = instance(pm.domains.SIS(population=6), 5, seed=3)
    costs = np.array([[0, 1.5, 2.25], [0, 0.5, 3], [0, 1, 1], [0, 2, 2.5], [0, 0.75, 4]])
    bound = pm.oracles.lagrangian_bound(transitions, rewards, costs, 3.3, start, horizon=4)
    exact, _ = lp_bound(transitions, rewards, costs, 3.3, start, np.ones((4, 5), bool))
    assert exact * (1 - 1e-5) <= bound <= exact * 1.0005
    assert bound.prices.shape == (4,)
    assert (bound.prices >= 0).all()


def test_the_bound_does_not_depend_on_how_it_is_compiled():
    """At every level of XLA's optimisation and in batches of every size, with people who come and
    go."""
    drawn = [instance(pm.domains.Armman(), 8, seed) for seed in range(7)]
    many = [np.resize(np.stack(column), (64, *column[0].shape))
            for column in zip(*drawn, strict=True)]  # fmt: skip
    opt_in = jax.random.bernoulli(jax.random.key(3), 0.8, (64, 9, 8))
    given = (*(jnp.asarray(table, jnp.float32) for table in many[:3]), jnp.asarray(many[3]), opt_in)
    bounds = jax.jit(jax.vmap(lambda t, r, c, start, opt_in: relax(t, r, c, 2.0, start, opt_in)[0]))
    expected = bounds(*given)
    table = drawn[0][0] / drawn[0][0].sum(-1, keepdims=True)
    exact, _ = lp_bound(table, *drawn[0][1:3], 2, drawn[0][3], np.asarray(opt_in[0]))
    assert exact * (1 - 1e-5) <= expected[0] <= exact * 1.0005
    for size in (1, 7, 64):
        first = [array[:size] for array in given]
        lowered = bounds.lower(*first)
        for level in (0, 1, 2, 3):
            compiled = lowered.compile({"xla_backend_optimization_level": level})
            np.testing.assert_allclose(compiled(*first), expected[:size], rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_no_policy_earns_more_than_the_bound(seed):
    """The best policy of two arms together, by dynamic programming over pairs of states."""
    transitions, rewards = random_arms(2, 2, "dense", seed)
    rewards, horizon = rewards[..., 0], 4
    joint = [
        np.einsum("st,uv->sutv", transitions[0, :, a], transitions[1, :, b])
        for a, b in ((0, 0), (0, 1), (1, 0))
    ]
    best = np.zeros((2, 2))
    for _ in range(horizon):
        earned = rewards[0][:, None] + rewards[1] + best
        best = np.max([np.einsum("sutv,tv->su", table, earned) for table in joint], axis=0)
    for start in itertools.product((0, 1), repeat=2):
        bound = pm.oracles.lagrangian_bound(transitions, rewards, [0, 1], 1, start, horizon)
        assert bound >= best[start] - 1e-5


def test_a_bound_is_a_number_with_prices():
    bound = pm.oracles.lagrangian_bound(TWO, [0, 1], [0, 1], 1, [0], 2)
    assert bound.value == bound == float(bound)
    assert f"{bound}" == f"{bound.value}"
    copied = pickle.loads(pickle.dumps(bound))
    assert isinstance(copied, Bound)
    assert copied == bound
    np.testing.assert_array_equal(copied.prices, bound.prices)
