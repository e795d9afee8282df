"""Arms whose state is not always seen: against dense tables, by hand, by a published formula."""

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import prefermab as pm
from prefermab.domains.sightings import Sightings
from prefermab.evaluation.rollout import Moves
from prefermab.oracles.dynamic_programming import Sparse, backward_induction, value_iteration
from prefermab.policies.base import Problem
from prefermab.programme.bulk.chunks import needed_columns
from prefermab.programme.planning.roster import place_texts, read_places
from prefermab.programme.planning.rules.limits import unused_columns
from studies.collapsing import optimum, tables
from studies.unseen import LastSeen

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

    @jax.jit
    def tables(arm):
        dense = pm.domains.FiniteDomain
        few = domain.transitions(arm), domain.rewards(arm)
        return few, (dense.transitions(domain, arm), dense.rewards(domain, arm))

    for few, dense in zip(*tables(one), strict=True):
        np.testing.assert_allclose(few, dense, atol=1e-6)


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
    after, rewards = jax.jit(lambda: Moves.of(domain, arms)(luck, state, actions))()
    step, reward_at = (jax.jit(jax.vmap(each)) for each in (domain.step, domain.reward_at))
    keys = jax.random.split(luck, 5)
    np.testing.assert_array_equal(after, step(keys, arms, state, actions))
    np.testing.assert_allclose(rewards, reward_at(arms, after), atol=1e-6)


def test_the_bound_holds_and_the_chain_beats_the_state_last_seen():
    domain = unseen(rounds=6)
    found = pm.evaluate(
        domain,
        {"chain": pm.policies.Whittle(), "last": LastSeen(), "none": pm.policies.NoAction()},
        n_arms=20, budget=4, trials=60, rounds=20, bound=5,
    )  # fmt: skip
    mean = dict(zip(found["policy"], found["mean"], strict=True))
    assert mean["none"] < mean["last"] < mean["chain"]
    assert found["of_bound"].max() < 1.01


def threshold_whittle(passive, active, longest):
    """(state last seen, rounds since): the index by Mate et al. 2020, Algorithm 1, for average
    reward and patients for whom threshold policies are best.

    After a patient was seen in state w, they are seen again x_w rounds later. The threshold that is
    raised next is the one that is worth raising at the lowest subsidy, which is its index.
    """
    beliefs = np.empty((2, longest + 1))
    beliefs[:, 0] = active
    for since in range(1, longest + 1):
        before = beliefs[:, since - 1]
        beliefs[:, since] = before * passive[1] + (1 - before) * passive[0]

    def average(x):
        good = np.array([beliefs[0, x[0] - 1], beliefs[1, x[1] - 1]])
        often = np.array([1 - good[1], good[0]])
        adherent = sum(often[w] * beliefs[w, : x[w]].sum() for w in (0, 1))
        return adherent / (often @ x), often @ (x - 1) / (often @ x)

    found, x = np.full((2, longest), np.nan), np.array([1, 1])
    while (x < longest).all():
        reward, rest = average(x)
        raised = [average(x + step) for step in np.eye(2, dtype=int)]
        subsidy = [(reward - more) / (longer - rest) for more, longer in raised]
        first = int(np.argmin(subsidy))
        found[first, x[first] - 1] = subsidy[first]
        x[first] += 1
    return found


def test_indices_are_those_of_threshold_whittle():
    rng, compared = np.random.default_rng(0), 0
    with jax.enable_x64(True):
        domain = pm.domains.Unseen(pm.domains.Synthetic(), rounds=40)
        names, shown = list(domain.state_names), range(1, 9)
        tables = jax.jit(lambda arm: (domain.transitions(arm)[None], domain.rewards(arm)[None]))
        for _ in range(60):
            (p01, p11), (a01, a11) = np.sort(rng.random(2)), np.sort(rng.random(2))
            theirs = threshold_whittle((p01, p11), (a01, a11), 38)[:, :8]
            # Helped by acting, better off when good, and longer waits never worth less.
            sound = a01 > p01 and a11 > p11 and not np.isnan(theirs).any()
            if not sound or (np.diff(theirs) < 0).any():
                continue
            arm = jnp.array([1 - p01, 1 - a01, 1 - p11, 1 - a11])
            ours = pm.oracles.whittle_indices(*tables(arm), discount=0.999999)[0]
            own = [[ours[names.index(f"{s}, act, {u} ago")] for u in shown] for s in names[:2]]
            np.testing.assert_allclose(own, theirs, atol=1e-4)
            compared += 1
    assert compared >= 5


def test_the_best_policy_for_a_few_patients_is_below_the_bound():
    rng = np.random.default_rng(1)
    for _ in range(3):
        good = np.sort(rng.random((2, 2, 2)), axis=2)
        patients = np.stack([1 - good, good], axis=-1)
        _, transitions, rewards = tables(patients, 5)
        best, by_indices = optimum(transitions, rewards, 1, 1, 5)
        bound = pm.oracles.lagrangian_bound(transitions, rewards, [0, 1], 1, [1, 1], 5)
        index = pm.oracles.whittle_indices(transitions, rewards, discount=0.8)
        assert by_indices(index) <= best + 1e-9
        assert by_indices(-index) < by_indices(index)
        assert best <= bound * (1 + 1e-5)
        # With one round to go the best call is the one that gains most at once.
        gained = [one[1, 1] @ own - one[1, 0] @ own
                  for one, own in zip(transitions, rewards, strict=True)]  # fmt: skip
        waiting = sum(one[1, 0] @ own for one, own in zip(transitions, rewards, strict=True))
        last = optimum(transitions, rewards, 1, 1, 1)[0]
        assert last == pytest.approx(waiting + max(gained))


def test_prices_go_as_far_as_rewards_do_in_any_state():
    # Everybody starts never seen, which is worth the same of all arms.
    table = np.array([[[[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.1, 0.9]]]] * 2)
    base = pm.domains.Tabular(table, [0, 3], [0, 0.5])
    for recipe in (pm.recipes.Exact(), pm.recipes.Sweep()):
        ceiling = recipe.price_ceiling(pm.domains.Unseen(base, rounds=3), jax.random.key(0))
        assert ceiling == pytest.approx(3 / 0.5)


def test_the_end_of_a_programme_is_for_states_that_are_seen():
    with pytest.raises(
        pm.InputError, match=r"rounds_left needs states that are always seen, and those "
    ):
        pm.pretrain(unseen(), steps=1, rounds_left=4)


def test_all_states_at_once_are_each_of_them(model):
    worth, features = model.network, jnp.array([0.1, jnp.nan, -0.3, 0.2, 0.0, 0.4])
    price = jnp.array(0.3)
    everywhere = jax.jit(lambda: worth.everywhere(features, price))()
    cells = jnp.arange(everywhere.shape[0])
    values, gains = jax.jit(jax.vmap(lambda cell: worth(cell, features, price)))(cells)
    np.testing.assert_allclose(everywhere[:, 0], values, atol=1e-5)
    np.testing.assert_allclose(everywhere[:, 1], gains[:, 1], atol=1e-5)


def test_places_by_what_was_seen():
    tree = Sightings(("good", "bad"), ("none", "call"), "acted", 3)
    found = tree.place([0, 0, 1, -1, -1], [0, 2, 9, 0, 9], [0, 1, 0, 0, 0])
    told = [tree.names[place] for place in found]
    assert told == ["good", "good, call, 2 ago", "bad, none, 3 ago", "never seen",
                    "never seen, 3 ago"]  # fmt: skip


def test_names_are_those_of_the_command_line():
    domain = pm.domains.get("synthetic-unseen", rounds=2, chance=0.5, shift=0.1)
    assert isinstance(domain, pm.domains.Unseen)
    assert isinstance(domain.domain, pm.domains.Synthetic)
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


@pytest.fixture(scope="module")
def model():
    return pm.pretrain(unseen(rounds=4), steps=20, arms=16)


@pytest.fixture(scope="module")
def people():
    features = np.asarray(pm.domains.Armman().features(pm.domains.Armman().draw_arms(
        jax.random.key(1), 4)))  # fmt: skip
    return pl.DataFrame(
        {
            "id": [1, 2, 3, 4],
            "state": ["persuadable", "motivated", None, "lost cause"],
            "rounds_since_seen": [3, 0, None, 99],
            **{f"feature_{i}": features[:, i] for i in range(6)},
        }
    )


def test_a_plan_goes_by_when_people_were_seen(model, people):
    plan = model.plan(people, budget=3)
    assert (plan.frame["action"] == "call").sum() <= 3
    tree = model.sightings
    told = place_texts(model, tree)
    first, _, third, last = tree.place([1, 0, -1, 2], [3, 0, 4, 99], [1, 1, 0, 1])
    assert told[first].startswith("not seen for 3 rounds, then persuadable: ")
    assert told[last].startswith("not seen for 4 rounds or more, then lost cause: ")
    assert told[third].startswith("never seen: ")


def test_act_takes_the_same_as_a_plan(model, people):
    features = people.select(f"feature_{i}" for i in range(6)).to_numpy()
    states = [1, 0, np.nan, 2]
    acted = model.act(states, features, budget=2, rounds_since_seen=[3, 0, np.nan, 99])
    planned = (model.plan(people, budget=2).frame.sort("id")["action"] == "call").to_numpy()
    np.testing.assert_array_equal(acted, planned.astype(int))


def test_an_unseen_model_is_stored_whole(model, people, tmp_path):
    model.save(tmp_path / "own")
    again = pm.load(tmp_path / "own")
    assert (again.sightings, again.domain_name) == (model.sightings, "armman-unseen")
    assert again.plan(people, budget=2).frame.equals(model.plan(people, budget=2).frame)


def test_what_was_done_when_seen_is_read_from_the_table(model, people):
    tree, present = model.sightings, np.ones(4, bool)
    by_name = people.with_columns(action_seen=pl.Series(["none", None, None, "call"]))
    by_round = people.with_columns(rounds_since_action=pl.Series([3, 5, None, 2]))
    for table, wanted in ((by_name, [0, 1, 0, 1]), (by_round, [1, 0, 0, 0])):
        found = read_places(model, tree, table, table["id"], present, "the table")
        np.testing.assert_array_equal(found, tree.place([1, 0, -1, 2], [3, 0, 4, 99], wanted))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda t: t.drop("rounds_since_seen"), "rounds_since_seen' is missing"),
        (lambda t: t.with_columns(rounds_since_seen=None), "has a state but no rounds_since_seen"),
        (lambda t: t.with_columns(rounds_since_seen=1.5), "whole numbers of at least 0"),
        (lambda t: t.with_columns(action_seen=pl.lit("visit")), "expected one of none, call"),
    ],
)
def test_a_table_that_does_not_tell_is_refused(model, people, change, told):
    with pytest.raises(pm.InputError, match=told):
        model.plan(change(people), budget=2)


def test_a_programme_plans_for_people_never_seen(model, people, tmp_path):
    joined = people.drop("rounds_since_seen")
    with pm.Programme(tmp_path / "p.db", model) as programme:
        programme.join(joined)
        plan = programme.plan(budget=2)
        assert plan.frame["id"].to_list() == [1, 2, 3, 4]


def test_columns_of_sightings_count_as_used(model, people, tmp_path):
    people.write_parquet(tmp_path / "part.parquet")
    assert unused_columns(model, pm.Rules(), people.columns) == []
    assert set(needed_columns(model, pm.Rules(), str(tmp_path / "part.parquet")) or []) == set(
        people.columns
    )
