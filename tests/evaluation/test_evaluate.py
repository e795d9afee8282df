import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prefermab as pm

P, D = pm.policies, pm.domains


def means(frame, opt_in=1.0):
    rows = frame.filter(frame["opt_in"] == opt_in)
    return dict(zip(rows["policy"], rows["mean"], strict=True))


# Published protocol simulated independently with 300 trials: domain, arms, budget, No Action,
# Random, and roughly the spread of one trial of each here.
SIMULATED = [
    (D.Synthetic(), 21, 7, 3.16, 3.55, 0.24, 0.27),
    (D.Armman(), 25, 7, 2.24, 3.11, 0.31, 0.35),
    (D.Armman(), 50, 10, 2.28, 2.84, 0.22, 0.24),
    (D.SIS(150), 20, 16, 5.46, 7.15, 0.21, 0.23),
    (D.SIS(50), 20, 16, 5.56, 7.29, 0.21, 0.23),
    (D.ContinuousSynthetic(), 21, 7, 0.71, 3.06, 0.25, 0.40),
    (D.ContinuousSynthetic("scaled"), 21, 7, 1.24, 4.42, 0.40, 0.45),
    (D.ContinuousSynthetic("exponential"), 21, 7, 0.85, 3.62, 0.30, 0.45),
    (D.ContinuousSIS(), 20, 16, 5.41, 7.15, 0.21, 0.23),
]


@pytest.mark.parametrize(("domain", "n_arms", "budget", "none", "random", "sd0", "sd1"), SIMULATED)
def test_no_action_and_random_earn_what_an_independent_simulation_found(
    domain, n_arms, budget, none, random, sd0, sd1
):
    policies = {"none": P.NoAction(), "random": P.Random()}
    frame = pm.evaluate(domain, policies, n_arms=n_arms, budget=budget, trials=300, bound=False)
    for name, expected, sd in (("none", none, sd0), ("random", random, sd1)):
        row = frame.filter(frame["policy"] == name).row(0, named=True)
        assert row["sd"] == pytest.approx(sd, rel=0.35)
        error = np.hypot(row["stderr"], row["sd"] / np.sqrt(300))
        assert row["mean"] == pytest.approx(expected, abs=3 * error + 0.005)


def much(*case):
    return pytest.param(*case, marks=pytest.mark.computes_much)


# The index policy at 100 % opt-in and the bound at 80, 90 and 100 %, all with known dynamics.
REACHABLE = [
    much(D.Synthetic(), 21, 7, "whittle", 4.59, (4.78, 4.70, 4.62), 300),
    much(D.Synthetic(), 96, 32, "whittle", 4.62, (4.82, 4.74, 4.65), 150),
    much(D.Armman(), 25, 7, "whittle", 4.78, (5.21, 5.05, 4.83), 300),
    much(D.Armman(), 50, 10, "whittle", 4.31, (4.64, 4.47, 4.32), 150),
    much(D.SIS(50), 20, 16, None, None, (8.63, None, 8.55), 20),
    much(D.ContinuousSynthetic(), 21, 7, "lagrangian", 4.35, (None, None, 4.39), 150),
    much(D.ContinuousSynthetic("scaled"), 21, 7, "lagrangian", 5.82, (None, None, 5.88), 150),
    much(D.ContinuousSynthetic("exponential"), 21, 7, "lagrangian", 5.07, (None, None, 5.14), 150),
]


@pytest.mark.parametrize(
    ("domain", "n_arms", "budget", "name", "index", "bounds", "trials"), REACHABLE
)
def test_index_and_bound_are_within_one_percent_of_those_found_before(
    domain, n_arms, budget, name, index, bounds, trials
):
    rates = [rate for rate, bound in zip((0.8, 0.9, 1.0), bounds, strict=True) if bound]
    policies = {"none": P.NoAction()} if name is None else {name: P.BY_NAME[name]()}
    frame = pm.evaluate(domain, policies, n_arms=n_arms, budget=budget, opt_in=rates, trials=trials)
    for rate, bound in zip((0.8, 0.9, 1.0), bounds, strict=True):
        if bound:
            found = frame.filter(frame["opt_in"] == rate)["bound"][0]
            assert found == pytest.approx(bound, rel=0.01)
    if index:
        assert means(frame)[name] == pytest.approx(index, rel=0.01)


def test_no_policy_earns_more_than_the_bound():
    policies = {name: policy() for name, policy in P.BY_NAME.items()}
    frame = pm.evaluate(D.Armman(), policies, n_arms=10, budget=3, opt_in=(0.7, 1.0), trials=200)
    assert (frame["mean"] < frame["bound"] + 3 * frame["stderr"]).all()
    assert (frame["of_bound"] > 0.3).all()


def test_a_policys_figures_do_not_depend_on_its_company():
    alone = pm.evaluate(D.Armman(), {"random": P.Random()}, trials=60)
    both = {"whittle": P.Whittle(), "random": P.Random(), "none": P.NoAction()}
    together = pm.evaluate(D.Armman(), both, trials=60)
    assert means(alone)["random"] == means(together)["random"]


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    policies = {"random": P.Random(), "whittle": P.Whittle()}
    first, again = (pm.evaluate(D.Armman(), policies, trials=60, seed=5) for _ in range(2))
    assert first.equals(again)
    other = pm.evaluate(D.Armman(), policies, trials=60, seed=6)
    assert not first.equals(other)


def test_policies_that_never_act_differ_in_nothing():
    nothing = {"none": P.NoAction(), "own": lambda seen: jnp.zeros(seen.n_arms, int)}
    frame = pm.evaluate(D.SIS(20), nothing, trials=50, bound=False)
    assert frame["difference"].to_list() == [0.0, 0.0]


def test_batches_change_nothing(monkeypatch):
    policies = {"none": P.NoAction()}
    whole = pm.evaluate(D.Synthetic(), policies, trials=50)
    monkeypatch.setattr("prefermab.evaluation.compare.TABLE_BYTES", 4 * 21 * 8 * 7)
    parts = pm.evaluate(D.Synthetic(), policies, trials=50)
    np.testing.assert_allclose(whole["mean"], parts["mean"], rtol=1e-6)
    np.testing.assert_allclose(whole["bound"], parts["bound"], rtol=1e-4)
    assert parts["trials"][0] == 50


def test_features_seen_in_a_round_are_those_of_the_round_and_hidden_when_opted_out():
    table = np.tile(np.array([[0.5, 0.5], [0.5, 0.5]]), (1, 2, 1, 1))
    features = np.arange(9.0).reshape(9, 1, 1)
    domain = D.Tabular(table, [0, 0], [0, 1], features)
    told = []

    def listen(seen):
        jax.debug.callback(lambda *at: told.append(at), seen.round, seen.features, seen.opt_in)
        return jnp.zeros(seen.n_arms, int)

    pm.evaluate(domain, {"l": listen}, n_arms=2, budget=1, opt_in=0.5, trials=1, bound=False)
    jax.effects_barrier()
    assert len(told) == 9
    for round, seen, opt_in in told:
        np.testing.assert_array_equal(seen[:, 0], np.where(opt_in, float(round), 0.0))


def test_a_streaming_programme_is_evaluated_per_person_present():
    # Reward 1 whatever happens: nine rounds earn 9 per arm that is in, however many come and go.
    table = np.tile(np.array([[0.5, 0.5], [0.5, 0.5]]), (3, 2, 1, 1))
    domain = D.Tabular(table, [1, 1], [0, 1])
    process = pm.opt_in.Streaming(stay=0.7, newcomers=2.0)
    frame = pm.evaluate(
        domain, {"none": P.NoAction()}, n_arms=8, budget=2, opt_in=(1.0, process), trials=20
    )
    np.testing.assert_allclose(frame["mean"], 9.0, rtol=1e-5)
    np.testing.assert_allclose(frame["bound"], 9.0, rtol=1e-4)
    assert frame["opt_in"].to_list() == ["1", "stay 0.7, 2 join"]


@given(n_arms=st.sampled_from([1, 2]), budget=st.sampled_from([0.0, 1.0, 1e6]))
def test_small_and_extreme_settings(n_arms, budget):
    frame = pm.evaluate(D.Armman(), {"w": P.Whittle()}, n_arms=n_arms, budget=budget, trials=20)
    assert np.isfinite(frame["mean"][0])


def test_one_trial_has_no_spread():
    frame = pm.evaluate(D.Synthetic(), {"none": P.NoAction()}, trials=1)
    assert frame["sd"][0] == 0


def spend_all(seen):
    return jnp.ones(seen.n_arms, int)


def with_numpy(seen):
    return np.asarray(seen.state) * 0


def with_if(seen):
    return jnp.ones(seen.n_arms, int) if seen.state[0] > 0 else jnp.zeros(seen.n_arms, int)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policies": {}}, "at least one policy"),
        ({"policies": {"x": 3}}, "'x' must be a Policy or a function"),
        ({"policies": {"x": P.NoAction}}, r"is a class: write NoAction\(\)"),
        ({"policies": {"greedy": spend_all}}, "'greedy' spent 21 of a budget of 7"),
        ({"policies": {"x": lambda seen: jnp.full(seen.n_arms, 5)}}, "outside 0 to 1"),
        (
            {"policies": {"x": lambda seen: seen.state[:3]}},
            "'x' must return one action for each of 21 arms",
        ),
        ({"policies": {"x": lambda seen: jnp.zeros(seen.n_arms)}}, "'x' must return whole numbers"),
        ({"policies": {"x": with_numpy}}, "must use jax.numpy"),
        ({"policies": {"x": with_if}}, "must use jax.numpy"),
        ({"budget": float("nan")}, "budget must be a finite number"),
        ({"budget": -1}, "budget must be a finite number of at least 0"),
        ({"n_arms": 0}, "n_arms must be"),
        ({"trials": 0}, "trials must be"),
        ({"seed": -1}, "seed must be"),
        ({"opt_in": 1.5}, "opt_in must lie between 0 and 1"),
        ({"opt_in": 0.0}, "none of 21 arms is in"),
        ({"opt_in": ()}, "at least one rate"),
        ({"rounds": 0}, "rounds must be"),
    ],
)
def test_bad_arguments_get_one_clear_sentence(arguments, message):
    given = {"policies": {"none": P.NoAction()}, "trials": 3, "bound": False, **arguments}
    with pytest.raises(pm.InputError, match=message):
        pm.evaluate(D.Synthetic(), **given)


def test_a_domain_by_its_name_is_refused_with_the_way_to_get_it():
    with pytest.raises(pm.InputError, match="domain must be a Domain"):
        inspect.unwrap(pm.evaluate)("armman", {"none": P.NoAction()})


def test_policies_in_a_list_are_refused_with_the_way_to_name_them():
    with pytest.raises(pm.InputError, match="policies must be a dictionary from names"):
        inspect.unwrap(pm.evaluate)(D.Armman(), [P.NoAction()])


def test_a_bound_on_the_first_trials_is_compared_with_what_they_earned():
    arguments = {"n_arms": 4, "budget": 2, "trials": 30}
    policies = {"random": P.Random()}
    whole = pm.evaluate(D.Synthetic(), policies, **arguments)
    part = pm.evaluate(D.Synthetic(), policies, bound=10, **arguments)
    short = pm.evaluate(D.Synthetic(), policies, **{**arguments, "trials": 10})
    np.testing.assert_allclose(part["bound"], short["bound"], rtol=1e-6)
    assert (part["mean"] == whole["mean"]).all()
    of_bound = dict(zip(short["policy"], short["of_bound"], strict=True))
    for name, found in zip(part["policy"], part["of_bound"], strict=True):
        assert found == pytest.approx(of_bound[name], rel=1e-6)
    assert part["bound_trials"].to_list() == [10]
    assert whole["bound_trials"].to_list() == [30]
