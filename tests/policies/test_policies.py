import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prefermab as pm
from prefermab.arms.observation import Observation
from prefermab.arms.opt_in import Streaming
from prefermab.evaluation.rollout import draw_world, play
from prefermab.policies.base import Problem

P = pm.policies
compiled_play = eqx.filter_jit(play)


def seen(costs, budget, opt_in=None, state=None, round=0):
    n_arms = len(costs)
    return Observation(
        jnp.zeros(n_arms, int) if state is None else jnp.asarray(state),
        jnp.zeros((n_arms, 2)),
        jnp.ones(n_arms, bool) if opt_in is None else jnp.asarray(opt_in),
        jnp.asarray(costs, jnp.float32),
        jnp.asarray(float(budget)),
        jnp.asarray(round),
    )


def test_random_gives_each_affordable_action_the_same_chance():
    # Three arms, three actions of cost 0, 1, 2, budget 2. The first arm visited takes each action
    # with 1/3; the second sees what is left; arms are exchangeable, so by symmetry the mean
    # spending is (E first + E second + E third) with E computed from the tree below.
    def expected(left, arms):
        if arms == 0:
            return 0.0
        options = [c for c in (0, 1, 2) if c <= left]
        return sum(c + expected(left - c, arms - 1) for c in options) / len(options)

    view = seen(np.tile([0.0, 1.0, 2.0], (3, 1)), 2)
    keys = jax.random.split(jax.random.key(0), 20_000)
    actions = jax.vmap(lambda key: P.Random().act(view, None, key)[0])(keys)
    assert actions.sum(1).max() <= 2
    assert float(actions.sum(1).mean()) == pytest.approx(expected(2, 3), abs=0.02)
    np.testing.assert_allclose(actions.mean(0), expected(2, 3) / 3, atol=0.02)


def test_random_visits_opted_out_arms_too():
    view = seen(np.tile([0.0, 1.0], (4, 1)), 1, opt_in=[True, False, False, False])
    keys = jax.random.split(jax.random.key(0), 400)
    actions = jax.vmap(lambda key: P.Random().act(view, None, key)[0])(keys)
    assert (actions[:, 1:].sum(0) > 0).all()


def test_round_robin_serves_everyone_in_turn():
    policy = P.RoundRobin()
    memory, served = policy.memory(7), np.zeros(7, int)
    for round in range(7):
        view = seen(np.tile([0.0, 1.0], (7, 1)), 3, round=round)
        actions, memory = policy.act(view, memory, jax.random.key(0))
        assert actions.sum() == 3
        served += np.asarray(actions)
    assert (served == 3).all()


def problem(domain, n_arms, budget, seed=0, rounds=9):
    world = draw_world(jax.random.key(seed), domain, jnp.ones((rounds, n_arms), bool))
    return Problem(domain, world.arms, world.start, world.opt_in, jnp.asarray(float(budget)))


def test_myopic_takes_the_best_immediate_gain_per_cost():
    up = [[0.5, 0.5], [0.1, 0.9]]  # acting gains 0.4
    little = [[0.5, 0.5], [0.4, 0.6]]  # gains 0.1
    domain = pm.domains.Tabular([[up, up], [little, little]], [0, 1], [[0, 5], [0, 1]])
    given = Problem(
        domain,
        jnp.array([0, 1]),
        jnp.array([0, 0]),
        jnp.ones((1, 2), bool),
        jnp.asarray(5.0),
    )
    ready = P.Myopic().prepare(given)
    actions, _ = ready.act(seen([[0, 5], [0, 1]], 5), None, jax.random.key(0))
    np.testing.assert_array_equal(actions, [0, 1])  # 0.1 a unit beats 0.4 / 5
    actions, _ = ready.act(seen([[0, 5], [0, 1]], 6), None, jax.random.key(0))
    np.testing.assert_array_equal(actions, [1, 1])


def test_whittle_acts_on_the_highest_indices():
    given = problem(pm.domains.Armman(), 25, 7)
    indices = pm.oracles.whittle_indices(
        np.asarray(given.transitions(), float)
        / np.asarray(given.transitions(), float).sum(-1)[..., None],
        np.asarray(given.rewards()),
    )
    now = indices[np.arange(25), np.asarray(given.start)]
    view = seen(given.costs(), 7, state=given.start)
    actions, _ = P.Whittle().prepare(given).act(view, None, jax.random.key(0))
    np.testing.assert_array_equal(np.flatnonzero(actions), np.sort(np.argsort(-now)[:7]))


def test_whittle_refuses_three_actions():
    with pytest.raises(pm.InputError, match="two actions"):
        pm.evaluate(pm.domains.SIS(10), {"w": P.Whittle()}, trials=2, bound=False)


def test_an_informed_policy_says_that_it_must_be_prepared():
    with pytest.raises(pm.InputError, match="prepared"):
        P.Myopic().act(seen([[0, 1]], 1), None, jax.random.key(0))


@pytest.mark.parametrize("name", list(P.BY_NAME))
@pytest.mark.parametrize("budget", [0.0, 2.5, 1000.0])
def test_every_policy_keeps_any_budget_and_any_costs_while_people_come_and_go(name, budget):
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.ones(3), size=(9, 3, 2))
    costs = np.stack([np.zeros(9), rng.uniform(0.3, 2.0, 9)], axis=1)
    domain = pm.domains.Tabular(transitions, [0, 0.5, 1.0], costs)
    schedule = Streaming(stay=0.7, newcomers=2.0).schedule(jax.random.key(3), 6, 8)
    world = draw_world(jax.random.key(1), domain, schedule)
    played = compiled_play(P.BY_NAME[name](), domain, world, jnp.asarray(budget), jax.random.key(2))
    assert (played.spent <= budget * (1 + 2e-6)).all()
    if budget == 0:
        assert (played.spent == 0).all()
    assert played.sound.all()


@pytest.mark.parametrize("resolve", [False, True])
def test_the_lagrangian_policy_is_optimal_where_the_optimum_is_known(resolve):
    # One arm and a budget for everyone: the optimum is plain backward induction at price 0.
    domain = pm.domains.Armman()
    frame = pm.evaluate(
        domain, {"l": P.Lagrangian(resolve=resolve)}, n_arms=1, budget=1, trials=800, rounds=4
    )
    row = frame.row(0, named=True)
    assert row["mean"] == pytest.approx(row["bound"], abs=3 * row["stderr"])


def test_resolving_prices_is_no_worse_with_few_arms():
    policies = {"fixed": P.Lagrangian(), "resolved": P.Lagrangian(resolve=True)}
    frame = pm.evaluate(pm.domains.Armman(), policies, n_arms=5, budget=1, trials=100)
    means = dict(zip(frame["policy"], frame["mean"], strict=True))
    worst = frame["difference_stderr"].max()
    assert means["resolved"] > means["fixed"] - 3 * worst
