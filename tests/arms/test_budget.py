import itertools
from decimal import Decimal
from fractions import Fraction

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from hypothesis import example, given

import prefermab as pm
from prefermab.arms.amounts import DecimalUnits, exact_amounts, fits, read_decimals, remaining
from prefermab.arms.budget import by_price, cost_of, greedy, lowest_price
from prefermab.errors import amount
from prefermab.programme.tables.table import read_table
from reference import best_knapsack, exact, greedy_one_by_one

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
    assert fits(costs[np.arange(len(actions)), actions], budget)
    assert (actions[~opt_in] == 0).all()


@given(problems())
def test_greedy_leaves_nothing_affordable_undone(problem):
    _, costs, budget, opt_in = problem
    actions = np.asarray(compiled_greedy(*as_jax(*problem)))
    left = remaining(budget, costs[np.arange(len(actions)), actions])
    idle = opt_in & (actions == 0)
    assert (costs[idle, 1:] > left).all()


@given(problems())
def test_by_price_leaves_no_affordable_gain_undone(problem):
    gains, costs, budget, opt_in = problem
    actions = np.asarray(compiled_by_price(*as_jax(*problem)))
    arms = np.arange(len(actions))
    left = remaining(budget, costs[arms, actions])
    better = gains > gains[arms, actions][:, None]
    assert not (better & (costs <= left) & opt_in[:, None])[actions == 0].any()
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


def test_very_many_arms():
    key, size = jax.random.key(0), 200_000
    scores = jax.random.normal(key, (size, 3))
    costs = jnp.tile(jnp.array([0.0, 1.0, 2.5]), (size, 1))
    actions = compiled_greedy(scores, costs, jnp.asarray(50_000.0), jnp.ones(size, bool))
    assert 49_999 < float(cost_of(actions, costs)) <= 50_000


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
    assert float(cost_of(actions, costs)) > 8999.5
    assert fits(np.asarray(costs)[np.arange(70_000), actions], 9000)


def test_the_lowest_price_is_zero_where_everything_fits():
    assert float(lowest_price(lambda price: 3.0 - price, 5.0, 10.0)) == 0.0


ARMS = 6
many = {select: jax.jit(jax.vmap(select)) for select in (greedy, by_price)}
KINDS = {
    "tenths": lambda rng, shape: rng.integers(0, 30, shape) / 10,
    "cents": lambda rng, shape: np.round(rng.random(shape) * 10 ** rng.integers(0, 4), 2),
    "thirds": lambda rng, shape: rng.integers(0, 7, shape) / 3,
    "whole": lambda rng, shape: rng.integers(0, 5, shape).astype(float),
    "wide": lambda rng, shape: np.round(10.0 ** rng.integers(-3, 8, shape), 3),
    "edge": lambda rng, shape: rng.choice([0.0, 1.0, 2.0**24, 2.0**24 + 1, 0.001, 1e6], shape),
    "any": lambda rng, shape: rng.random(shape) * 10.0 ** rng.integers(-6, 9),
}


def instances(kind, number, n_actions, seed):
    """Scores, costs, budgets and opt-ins; budgets are often a sum of some costs, to the digit."""
    rng = np.random.default_rng(seed)
    costs = np.stack([KINDS[kind](rng, (ARMS, n_actions)) for _ in range(number)])
    costs[:, :, 0] = 0
    some = np.where(rng.random((number, ARMS)) < 0.5, costs[:, :, 1], 0.0)
    exactly = [float(sum(map(exact, one))) for one in some]
    budgets = np.where(rng.random(number) < 0.7, exactly, rng.permutation(exactly))
    budgets[::20] = 0.0
    scores = rng.integers(-3, 9, (number, ARMS, n_actions)) + rng.random((number, ARMS, n_actions))
    scores[:, :, 0] = 0
    return scores, costs, budgets, rng.random((number, ARMS)) < 0.9


def stacked(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_actions", [2, 3])
def test_what_was_given_is_never_overspent_and_nothing_affordable_is_left(kind, n_actions):
    """25,200 choices in exact fractions: as given in double precision, and as JAX meets them."""
    scores, costs, budgets, opt_in = instances(kind, 450, n_actions, seed=n_actions)
    arrays = [jnp.asarray(a, jnp.float32) for a in (scores, costs, budgets)] + [jnp.asarray(opt_in)]
    given = stacked([exact_amounts(c, float(b)) for c, b in zip(costs, budgets, strict=True)])
    single = costs.astype(np.float32), budgets.astype(np.float32)
    for amounts, paid, limits in ((given, costs, budgets), (None, *single)):
        for select in (greedy, by_price):
            chosen = np.asarray(many[select](*arrays, amounts))
            for row, actions in enumerate(chosen):
                own = [exact(paid[row, arm, action]) for arm, action in enumerate(actions)]
                left = exact(limits[row]) - sum(own)
                assert left >= 0
                idle = opt_in[row] & (actions == 0) & (scores[row, :, 1:] > 0).any(axis=1)
                # A number of single precision with more than seven digits is rounded.
                margin = exact(limits[row]) / 1_000_000 if amounts is None else 0
                for arm, action in itertools.product(np.flatnonzero(idle), range(1, n_actions)):
                    if scores[row, arm, action] > 0:
                        assert exact(paid[row, arm, action]) > left - margin
                if select is greedy and amounts is not None:
                    plain = greedy_one_by_one(
                        scores[row].astype(np.float32), paid[row], limits[row], opt_in[row]
                    )
                    np.testing.assert_array_equal(actions, plain)


@pytest.mark.parametrize("select", [greedy, by_price])
def test_what_single_precision_cannot_add_is_not_bought(select):
    for costs, budget in (([2.0**24, 1.0], 2.0**24), ([0.001, 1e6], 1e6), ([0.1] * 8, 0.7)):
        costs = jnp.stack([jnp.zeros(len(costs)), jnp.asarray(costs)], axis=1)
        gains = costs.at[:, 1].set(1.0)
        actions = select(gains, costs, budget, jnp.ones(len(costs), bool))
        assert actions.sum() == (7 if len(costs) == 8 else 1)


def as_read(amount):
    """Of numbers with more than 15 digits, whole ones are read as they are, and those that single
    precision holds as single precision."""
    many = len(Decimal(repr(amount)).as_tuple().digits) > 15
    if many and amount == int(amount):
        return Fraction(int(amount))
    single = many and float(np.float32(amount)) == amount
    return Fraction(str(np.float32(amount))) if single else exact(amount)


amounts = st.floats(1e-30, 1e30) | st.integers(1, 10**30).map(float)


@example(2.0**-49, 2.0**-14)
@example(2.0**53, 2.0**53)
@example(2.0**53, 9_007_199_254_740_991.0)
@example(999_999_986_991_104.0, 1e15)
@example(2.0**60, 1e30)
@example(1e-30, 1e30)
@example(1e30, 1e-30)
@given(amounts | st.just(0.0), amounts)
def test_units_never_flatter(cost, budget):
    units = DecimalUnits.of(budget)
    paid, room = int(units.of_costs([cost])[0]), units.of_budget(budget)
    scale = Fraction(10) ** units.decimals
    assert 0 <= as_read(budget) * scale - room < 1
    assert room < 10**18
    if as_read(cost) * scale < 10**18:
        assert 0 <= paid - as_read(cost) * scale < 1
    digits, places = read_decimals(np.array([cost]))
    last = Fraction(10) ** -int(places[0])
    assert 0 <= int(digits[0]) * last - as_read(cost) < (last if cost > 1e18 else 1e-99)
    assert fits([cost], budget) == (as_read(cost) <= as_read(budget))


@pytest.mark.parametrize("kind", [int, float, np.int64, np.uint64, np.float32, np.float64])
def test_whole_amounts_are_added_up_exactly_whatever_holds_them(kind):
    model, features = pm.load("armman"), np.full((3, 6), 0.5)
    people = pl.DataFrame({"id": [1, 2, 3], "state": [1] * 3, "feature_0": [0.5] * 3})
    for cost in (2**53, 2**53 + 2**31, 10**15 + 2**27, 2**58):
        if float(kind(cost)) != cost:  # it is not this number that a float32 holds
            cost = int(kind(cost))
        for budget, chosen in ((cost - 2**31, 0), (cost, 1), (2 * cost - 2**31, 1), (2 * cost, 2)):
            budget, costs = float(budget), np.array([0, cost]).astype(kind)
            assert model.act([1] * 3, features, budget, costs=costs).sum() == chosen
            plan = model.plan(people.with_columns(cost_call=pl.Series(costs[[1] * 3])), budget)
            assert plan.summary.spent == chosen * cost
            assert plan.summary.left == budget - chosen * cost


def test_what_a_number_cannot_hold_is_refused(tmp_path):
    model, features = pm.load("armman"), np.full((1, 6), 0.5)
    act = lambda cost, budget: model.act([1], features, budget, costs=[0, cost])  # noqa: E731
    people = pl.DataFrame({"id": [1], "state": [1], "feature_0": [0.5]})
    odd = 2**53 + 1
    for wrong in (odd, 10**400):
        for ask in (lambda w: act(1, w), lambda w: model.plan(people, w),
                    lambda w: model.what_if(people, [1, w])):  # fmt: skip
            with pytest.raises(pm.InputError, match=r"^budget (is 9007199254740993, which|must)"):
                ask(wrong)
    for wrong in (np.int64(odd), np.uint64(odd), str(odd), f" {odd}.0", Decimal(odd)):
        with pytest.raises(pm.InputError, match=r"^budget is .*9007199254740993.*, which has more"):
            amount(wrong, "budget")
    for wrong in (1e-310, 5e-324, 1e-31, 1.1e30, 1e308):
        with pytest.raises(pm.InputError, match="must be 0, or from 1e-30 to 1e\\+30"):
            act(1, wrong)
        with pytest.raises(pm.InputError, match="each cost must be 0, or from 1e-30"):
            act(wrong, 1)
    with pytest.raises(pm.InputError, match="a number in costs is 9007199254740993"):
        act(odd, 1)
    told = r": the column 'cost_call' in row [23] (is 9.?007|must be 0, or from)"
    for wrong in (odd, '"9,007,199,254,740,993"', "1e-310", "1e300", f"{odd}.0"):
        file = tmp_path / "people.csv"
        for other in ("1", "1.5", '"1,000,000.5"'):
            rows = f"id,state,feature_0,cost_call\n1,1,0.5,{other}\n2,1,0.5,{wrong}\n"
            file.write_text(rows)
            with pytest.raises(pm.InputError, match=told) as error:
                model.plan(read_table(file), 1)
            assert "\n" not in str(error.value)
