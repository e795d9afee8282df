"""Arms whose state is not always seen: against dense tables, by hand, by a published formula."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prefermab as pm
from prefermab.domains.sightings import Sightings
from prefermab.oracles.dynamic_programming import Sparse, backward_induction, value_iteration
from prefermab.policies.base import Problem
from prefermab.rollout import Moves

WAYS = [("acted", 1.0, 4), ("acted", 0.6, 3), ("some", 0.3, 2), ("never", 0.0, 3)]


def unseen(seen="acted", chance=None, rounds=4, domain=None):
    base = pm.domains.Armman() if domain is None else domain
    return pm.domains.Unseen(base, seen, chance, rounds)


@pytest.fixture(scope="module")
def arms():
    return pm.domains.Armman().draw_arms(jax.random.key(3), 5)


@pytest.mark.parametrize(("seen", "chance", "rounds"), WAYS)
def test_every_way_to_see_is_a_sound_domain(seen, chance, rounds):
    pm.domains.check(unseen(seen, chance, rounds))


@pytest.mark.parametrize(("seen", "chance", "rounds"), WAYS)
def test_few_successors_are_the_dense_table(seen, chance, rounds, arms):
    domain = unseen(seen, chance, rounds)
    one = jax.tree.map(lambda x: x[0], arms)
    by_rows = pm.domains.FiniteDomain.transitions(domain, one)
    np.testing.assert_allclose(domain.transitions(one), by_rows, atol=1e-6)
    np.testing.assert_allclose(
        domain.rewards(one), pm.domains.FiniteDomain.rewards(domain, one), atol=1e-6
    )


def test_a_belief_by_hand():
    domain = unseen(rounds=3)
    #                  stay called  fall rise  stay called
    arm = jnp.array([0.9, 0.8, 0.5, 0.4, 0.6, 0.7])
    names = list(domain.state_names)
    beliefs = np.asarray(domain.beliefs(arm))
    # Found persuadable and called: motivated with 0.4, else the same.
    called = beliefs[names.index("persuadable, call, 1 ago")]
    np.testing.assert_allclose(called, [0.4, 0.6, 0.0], atol=1e-6)
    # A round later: 0.4·(0.9, 0.1, 0) + 0.6·(0, 0.5, 0.5).
    later = beliefs[names.index("persuadable, call, 2 ago")]
    np.testing.assert_allclose(later, [0.36, 0.34, 0.30], atol=1e-6)
    np.testing.assert_allclose(beliefs[names.index("never seen")], [1 / 3] * 3, atol=1e-6)
    # The reward is the expected one: 0.36 + 0.34 / 2.
    assert domain.rewards(arm)[names.index("persuadable, call, 2 ago")] == pytest.approx(0.53)


def test_acting_shows_the_state_and_waiting_does_not():
    domain = unseen(rounds=3)
    arm = jnp.array([0.9, 0.8, 0.5, 0.4, 0.6, 0.7])
    names = list(domain.state_names)
    table = np.asarray(domain.transitions(arm))
    here = names.index("persuadable, call, 2 ago")
    assert table[here, 0, names.index("persuadable, call, 3 ago")] == 1
    found = [table[here, 1, names.index(f"{state}, call, 1 ago")] for state in names[:3]]
    np.testing.assert_allclose(found, [0.36, 0.34, 0.30], atol=1e-6)


def test_a_call_that_is_not_answered_changes_nothing():
    domain = unseen(chance=0.25, rounds=3)
    arm = jnp.array([0.9, 0.8, 0.5, 0.4, 0.6, 0.7])
    names = list(domain.state_names)
    table = np.asarray(domain.transitions(arm))
    row = table[names.index("persuadable"), 1]
    assert row[names.index("persuadable, none, 1 ago")] == pytest.approx(0.75)
    assert row[names.index("persuadable, call, 1 ago")] == pytest.approx(0.25)


def test_what_was_done_unseen_counts():
    domain = unseen("never", rounds=2)
    arm = jnp.array([0.9, 0.8, 0.5, 0.4, 0.6, 0.7])
    names, beliefs = list(domain.state_names), np.asarray(domain.beliefs(arm))
    base = np.asarray(domain.domain.transitions(arm))
    by_hand = np.full(3, 1 / 3) @ base[:, 1] @ base[:, 0]
    np.testing.assert_allclose(beliefs[names.index("never seen, call, none")], by_hand, atol=1e-6)


@pytest.mark.parametrize("seen", ["acted", "some"])
def test_oracles_agree_on_few_and_all_successors(seen, arms):
    domain = unseen(seen, rounds=2)
    everyone = jnp.ones((4, 5), bool)
    problem = Problem(domain, arms, jnp.zeros(5, int), everyone, jnp.asarray(1.0))
    few, costs, rewards = problem.transitions(), problem.costs(), problem.rewards()
    assert isinstance(few, Sparse)
    dense, prices = few.dense(), jnp.full(4, 0.1)
    np.testing.assert_allclose(
        value_iteration(few, rewards, costs, 0.1),
        value_iteration(dense, rewards, costs, 0.1),
        atol=1e-4,
    )
    np.testing.assert_allclose(
        backward_induction(few, rewards, costs, prices, everyone),
        backward_induction(dense, rewards, costs, prices, everyone),
        atol=1e-6,
    )


def test_trials_by_a_table_are_those_of_the_domain(arms):
    domain = unseen(rounds=3)
    state, actions = jnp.array([3, 4, 9, 1, 12]), jnp.array([1, 0, 1, 0, 1])
    luck = jax.random.key(5)
    after, rewards = Moves.of(domain, arms)(luck, state, actions)
    keys = jax.random.split(luck, 5)
    np.testing.assert_array_equal(after, jax.vmap(domain.step)(keys, arms, state, actions))
    np.testing.assert_allclose(rewards, jax.vmap(domain.reward_at)(arms, after), atol=1e-6)


def test_the_bound_holds_and_the_chain_beats_the_state_last_seen():
    domain = unseen(rounds=6)
    found = pm.evaluate(
        domain,
        {"chain": pm.policies.Whittle(), "last": LastSeen(), "none": pm.policies.NoAction()},
        n_arms=20, budget=4, trials=60, rounds=20, bound=10,
    )  # fmt: skip
    mean = dict(zip(found["policy"], found["mean"], strict=True))
    assert mean["none"] < mean["last"] < mean["chain"]
    assert found["of_bound"].max() < 1.01


class LastSeen(pm.policies.Policy):
    """The Whittle index of the state last seen, and the mean index for people never seen."""

    def prepare(self, problem):
        tree, base = problem.domain.sightings, problem.domain.domain
        own = Problem(base, problem.arms, problem.start, problem.opt_in, problem.budget)
        table = pm.policies.Whittle().prepare(own).gains
        wide = jnp.concatenate([table, table.mean(axis=2, keepdims=True)], axis=2)
        return type(pm.policies.Whittle().prepare(own))(problem.domain, wide[:, :, tree.roots])

    def act(self, seen, memory, key):
        raise AssertionError("it is prepared first")


def test_places_by_what_was_seen():
    tree = Sightings(("good", "bad"), ("none", "call"), "acted", 3)
    found = tree.place([0, 0, 1, -1, -1], [0, 2, 9, 0, 9], [0, 1, 0, 0, 0])
    told = [tree.names[place] for place in found]
    assert told == ["good", "good, call, 2 ago", "bad, none, 3 ago", "never seen",
                    "never seen, 3 ago"]  # fmt: skip


def test_names_are_those_of_the_command_line():
    domain = pm.domains.get("synthetic-unseen", rounds=2, chance=0.5, shift=0.1)
    assert (domain.name, domain.rounds, domain.domain.shift) == ("synthetic-unseen", 2, 0.1)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: unseen("often"), "way to see"),
        (lambda: unseen(rounds=0), "rounds must"),
        (lambda: unseen("never", rounds=30), "give fewer rounds"),
        (lambda: unseen(chance=2.0), "chance must"),
        (lambda: unseen(domain=pm.domains.ContinuousSynthetic()), "finitely many states"),
        (lambda: pm.domains.get("continuous-sis-unseen"), "finitely many states"),
    ],
)
def test_what_cannot_be_is_named(make, told):
    with pytest.raises(pm.InputError, match=told):
        make()
