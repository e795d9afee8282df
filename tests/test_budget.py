import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given

from prefermab.budget import by_price, cost_of, greedy, lowest_price
from reference import best_knapsack, greedy_one_by_one

SHAPES = [(1, 2), (6, 2), (5, 3), (7, 4)]
compiled_greedy = jax.jit(greedy)
compiled_by_price = jax.jit(by_price)


@st.composite
def problems(draw, whole=False, distinct=False):
    """Scores, costs, a budget and opt-ins; few shapes, so that little is compiled."""
    n_arms, n_actions = draw(st.sampled_from(SHAPES))
    size = n_arms * n_actions
    numbers = st.integers(-8, 8) if not distinct else st.integers(-1000, 1000)
    scores = draw(st.lists(numbers, min_size=size, max_size=size, unique=distinct))
    cost = st.integers(0, 4) if whole else st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.75, 2.0, 3.3])
    costs = np.array(draw(st.lists(cost, min_size=size, max_size=size)), float)
    costs = costs.reshape(n_arms, n_actions)
    costs[:, 0] = 0
    budget = draw(st.integers(0, 12) if whole else st.sampled_from([0.0, 0.3, 0.7, 2.5, 4, 100.0]))
    opt_in = draw(st.lists(st.booleans(), min_size=n_arms, max_size=n_arms))
    return (
        np.array(scores, float).reshape(n_arms, n_actions),
        costs,
        float(budget),
        np.array(opt_in),
    )


def as_jax(scores, costs, budget, opt_in):
    return (
        jnp.asarray(scores, jnp.float32),
        jnp.asarray(costs, jnp.float32),
        jnp.asarray(budget, jnp.float32),
        jnp.asarray(opt_in),
    )


@given(problems())
@example((np.zeros((6, 2)), np.tile([0.0, 1.0], (6, 1)), 3.0, np.array([True] * 5 + [False])))
@example((np.zeros((6, 2)), np.tile([0.0, 0.1], (6, 1)), 0.3, np.array([True] * 6)))
def test_greedy_is_the_plain_greedy(problem):
    scores, costs, budget, opt_in = problem
    actions = np.asarray(compiled_greedy(*as_jax(*problem)))
    np.testing.assert_array_equal(actions, greedy_one_by_one(scores, costs, budget, opt_in))


@given(problems())
@pytest.mark.parametrize("select", [compiled_greedy, compiled_by_price])
def test_selection_never_overspends_and_never_acts_on_the_opted_out(select, problem):
    _, costs, budget, opt_in = problem
    actions = np.asarray(select(*as_jax(*problem)))
    assert costs[np.arange(len(actions)), actions].sum() <= budget * (1 + 2e-6)
    assert (actions[~opt_in] == 0).all()


@given(problems())
def test_greedy_leaves_nothing_affordable_undone(problem):
    _, costs, budget, opt_in = problem
    actions = np.asarray(compiled_greedy(*as_jax(*problem)))
    left = budget - costs[np.arange(len(actions)), actions].sum()
    idle = opt_in & (actions == 0)
    assert (costs[idle, 1:] > left - 1e-5).all()


@given(problems())
def test_by_price_leaves_no_affordable_gain_undone(problem):
    gains, costs, budget, opt_in = problem
    actions = np.asarray(compiled_by_price(*as_jax(*problem)))
    arms = np.arange(len(actions))
    left = budget - costs[arms, actions].sum()
    better = gains > gains[arms, actions][:, None]
    fits = costs - costs[arms, actions][:, None] <= left - 1e-5
    assert not (better & fits & opt_in[:, None])[actions == 0].any()
    assert (gains[arms, actions] >= gains[:, 0]).all()


@given(problems(distinct=True), st.randoms(use_true_random=False))
@pytest.mark.parametrize("select", [compiled_greedy, compiled_by_price])
def test_selection_follows_a_reordering_of_arms(select, problem, random):
    scores, costs, budget, opt_in = problem
    scores = scores + np.linspace(0, 0.5, scores.size).reshape(scores.shape)
    costs = np.where(np.arange(costs.shape[1]) > 0, 1.0, 0.0) * np.ones_like(costs)
    order = np.array(random.sample(range(len(opt_in)), len(opt_in)))
    straight = np.asarray(select(*as_jax(scores, costs, budget, opt_in)))
    moved = np.asarray(select(*as_jax(scores[order], costs[order], budget, opt_in[order])))
    np.testing.assert_array_equal(straight[order], moved)


numbers = st.floats(-5, 5, width=32, allow_subnormal=False)  # which compiled code rounds to 0


@given(st.lists(numbers, min_size=20, max_size=20), st.integers(0, 25))
def test_two_actions_of_unit_cost_are_the_top_scores(scores, budget):
    costs = jnp.tile(jnp.array([0.0, 1.0]), (20, 1))
    both = jnp.stack([jnp.zeros(20), jnp.asarray(scores)], axis=1)
    actions = np.asarray(
        compiled_greedy(both, costs, jnp.asarray(float(budget)), jnp.ones(20, bool))
    )
    top = np.argsort(-np.asarray(scores), kind="stable")[:budget]
    np.testing.assert_array_equal(np.flatnonzero(actions), np.sort(top))


@given(problems(whole=True))
def test_by_price_is_within_one_action_of_the_best_knapsack(problem):
    gains, costs, budget, opt_in = problem
    gains = gains - gains[:, :1]
    actions = np.asarray(compiled_by_price(*as_jax(gains, costs, budget, opt_in)))
    own = gains[np.arange(len(actions)), actions].sum()
    best = best_knapsack(np.maximum(gains, 0)[opt_in], costs.astype(int)[opt_in], int(budget))
    assert own <= best + 1e-4
    assert own >= best - np.maximum(gains, 0).max() - 1e-4


def test_a_worthless_action_is_never_bought():
    gains = jnp.array([[0.0, -1.0], [0.0, 0.0], [0.0, 2.0]])
    costs = jnp.tile(jnp.array([0.0, 1.0]), (3, 1))
    np.testing.assert_array_equal(by_price(gains, costs, 10.0, jnp.ones(3, bool)), [0, 0, 1])


def test_forbidden_and_unknown_scores_are_passed_over():
    scores = jnp.array([[0.0, -jnp.inf], [0.0, jnp.nan], [0.0, -3.0]])
    costs = jnp.tile(jnp.array([0.0, 1.0]), (3, 1))
    np.testing.assert_array_equal(greedy(scores, costs, 10.0, jnp.ones(3, bool)), [0, 0, 1])


def test_a_million_arms():
    key = jax.random.key(0)
    scores = jax.random.normal(key, (1_000_000, 3))
    costs = jnp.tile(jnp.array([0.0, 1.0, 2.5]), (1_000_000, 1))
    actions = compiled_greedy(scores, costs, jnp.asarray(250_000.0), jnp.ones(1_000_000, bool))
    assert 249_999 < float(cost_of(actions, costs)) <= 250_000


def test_many_arms_by_price_are_those_with_the_most_gain_per_cost():
    gains = jnp.pad(jax.random.normal(jax.random.key(1), (70_000, 1)), ((0, 0), (1, 0)))
    costs = jnp.tile(jnp.array([0.0, 1.0]), (70_000, 1))
    opt_in = jnp.arange(70_000) % 7 > 0
    actions = compiled_by_price(gains, costs, jnp.asarray(5000.0), opt_in)
    best = np.argsort(-np.where(opt_in, gains[:, 1], -np.inf))[:5000]
    np.testing.assert_array_equal(np.flatnonzero(actions), np.sort(best))


def test_many_arms_that_are_all_alike_share_the_budget_by_their_order():
    gains, costs = (jnp.tile(jnp.array([0.0, x]), (70_000, 1)) for x in (0.3, 1.0))
    actions = compiled_by_price(gains, costs, jnp.asarray(12_345.0), jnp.ones(70_000, bool))
    np.testing.assert_array_equal(np.flatnonzero(actions), np.arange(12_345))


def test_many_arms_with_different_costs_leave_next_to_nothing():
    key = jax.random.key(2)
    gains = jnp.pad(jax.random.uniform(key, (70_000, 2)), ((0, 0), (1, 0)))
    costs = jnp.pad(jax.random.uniform(key, (70_000, 2), minval=0.5, maxval=2.0), ((0, 0), (1, 0)))
    actions = compiled_by_price(gains, costs, jnp.asarray(9000.0), jnp.ones(70_000, bool))
    assert 8999.5 < float(cost_of(actions, costs)) <= 9000 * (1 + 2e-6)


def test_the_lowest_price_is_zero_where_everything_fits():
    assert float(lowest_price(lambda price: 3.0 - price, 5.0, 10.0)) == 0.0
