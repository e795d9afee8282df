import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import prefermab as pm
from own_domain import Pumps, Tanks
from prefermab.domains import validate
from prefermab.gym.episodes import make_setup

DOMAINS = [
    pm.domains.Synthetic(),
    pm.domains.Synthetic(shift=0.2),
    pm.domains.Armman(),
    pm.domains.SIS(population=30),
    pm.domains.ContinuousSynthetic(reward="scaled"),
    pm.domains.ContinuousSIS(),
]


def ids(domain):
    return domain.name


@pytest.mark.parametrize("domain", DOMAINS, ids=ids)
def test_tables_have_the_shapes_and_sums_they_should(domain):
    arms = domain.draw_arms(jax.random.key(0), 40)
    table = np.asarray(jax.jit(jax.vmap(domain.transitions))(arms))
    assert table.shape == (40, domain.n_cells, domain.n_actions, domain.n_cells)
    assert (table >= 0).all()
    np.testing.assert_allclose(table.sum(-1), 1, atol=1e-5)
    costs = np.asarray(jax.vmap(domain.costs)(arms))
    assert (costs[:, 0] == 0).all()
    assert costs.shape == (40, domain.n_actions)
    assert len(domain.parameter_names) == jax.vmap(domain.parameters)(arms).shape[1]


@pytest.mark.parametrize("domain", DOMAINS, ids=ids)
def test_steps_follow_the_table(domain):
    """Mean and spread of 20,000 steps against the row of the table, within five standard errors."""
    arm = domain.draw(jax.random.key(3))
    keys = jax.random.split(jax.random.key(4), 20_000)
    cells = np.asarray(domain.cells, float)
    for action in range(domain.n_actions):
        for cell in (0, domain.n_cells // 2, domain.n_cells - 1):
            chosen = jnp.asarray(action)
            row = np.asarray(domain.row(arm, jnp.asarray(cell), chosen), float)
            step = jax.vmap(domain.step, in_axes=(0, None, None, None))
            reached = np.asarray(step(keys, arm, domain.cells[cell], chosen), float)
            mean = (row * cells).sum()
            spread = np.sqrt(max((row * cells**2).sum() - mean**2, 0))
            coarse = np.diff(cells).max() ** 2 if domain.n_cells > 40 else 0
            assert abs(reached.mean() - mean) < 5 * spread / np.sqrt(20_000) + 1e-4 + coarse


def test_synthetic_goes_to_state_0_with_the_given_probabilities():
    domain = pm.domains.Synthetic()
    arm = jnp.array([0.4, 0.5, 0.9, 0.2])
    np.testing.assert_allclose(
        domain.transitions(arm), [[[0.4, 0.6], [0.5, 0.5]], [[0.9, 0.1], [0.2, 0.8]]], rtol=1e-6
    )


def test_synthetic_shift_moves_every_probability_and_stays_in_range():
    key = jax.random.key(1)
    plain, moved = (pm.domains.Synthetic(s).draw_arms(key, 200) for s in (0.0, 0.25))
    np.testing.assert_allclose(moved, np.clip(np.asarray(plain) + 0.25, 0, 1), rtol=1e-6)


def test_armman_table_by_hand():
    domain = pm.domains.Armman()
    table = domain.transitions(jnp.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    np.testing.assert_allclose(
        table,
        [
            [[0.1, 0.9, 0.0], [0.2, 0.8, 0.0]],  # motivated: stay, else persuadable
            [[0.0, 0.7, 0.3], [0.4, 0.6, 0.0]],  # persuadable: fall when alone, rise when called
            [[0.0, 0.5, 0.5], [0.0, 0.4, 0.6]],  # lost cause: stay, else persuadable
        ],
        rtol=1e-6,
    )
    np.testing.assert_allclose(domain.rewards(jnp.zeros(6)), [1.0, 0.5, 0.0])


def test_armman_mix_sets_the_share_of_each_group():
    # Only group A has a rise above 0.65, and half of it lies there or above in the mean: compare
    # the share of arms above 0.65 at two mixes.
    def above(mix):
        arms = pm.domains.Armman(mix).draw_arms(jax.random.key(0), 20_000)
        return float((arms[:, 3] > 0.65).mean())

    assert above((0.0, 0.5, 0.5)) == 0.0
    assert above((0.4, 0.2, 0.4)) == pytest.approx(2 * above((0.2, 0.2, 0.6)), rel=0.1)


def test_sis_newly_infected_are_binomial_over_the_uninfected():
    domain = pm.domains.SIS(population=150)
    arm = jnp.array([4.0, 0.6, 2.0, 3.0])
    for action, divisor in enumerate((1.0, 2.0, 3.0)):
        for uninfected in (0, 1, 90, 149, 150):
            q = 1 - np.exp(-4.0 * (150 - uninfected) / 150 * 0.6 / divisor)
            expected = scipy.stats.binom.pmf(150 - np.arange(151), uninfected, q)
            row = domain.row(arm, jnp.asarray(uninfected), jnp.asarray(action))
            np.testing.assert_allclose(row, expected, atol=2e-5)


def test_continuous_rows_keep_the_mean_of_the_clipped_normal():
    domain = pm.domains.ContinuousSynthetic(grid=51)
    arm = jnp.array([-0.3, 0.2])
    for cell in (0, 20, 50):
        for action in (0, 1):
            row = np.asarray(domain.row(arm, jnp.asarray(cell), jnp.asarray(action)))
            start = float(domain.cells[cell] + arm[action])
            expected = scipy.stats.norm.expect(
                lambda x: np.clip(x, 0, 1), loc=start, scale=0.2, epsabs=1e-8
            )
            assert (row * np.asarray(domain.cells)).sum() == pytest.approx(expected, abs=1e-4)


def test_continuous_rewards():
    states = jnp.array([0.0, 0.25, 0.5, 1.0])
    for reward, expected in (
        ("identity", [0, 0.25, 0.5, 1]),
        ("scaled", [0, 0.5, 1, 1]),
        ("exponential", [0, np.expm1(0.25), np.expm1(0.5), 1]),
    ):
        domain = pm.domains.ContinuousSynthetic(reward)
        np.testing.assert_allclose([domain.reward_at(None, s) for s in states], expected, rtol=1e-6)


def test_every_subinterval_rule_keeps_the_range_and_the_middle():
    domain = pm.domains.SIS(messaging_effect=(2, 8))
    arms = np.asarray(domain.draw_arms(jax.random.key(0), 20_000))
    assert arms[:, 2].min() >= 2
    assert arms[:, 2].max() <= 8
    assert arms.mean(0) == pytest.approx([5.5, 0.745, 5.0, 5.5], rel=0.01)


def test_a_tabular_domain_is_the_users_arrays():
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.ones(3), size=(4, 3, 2))
    features = rng.normal(size=(2, 4, 5))
    domain = pm.domains.Tabular(transitions, rng.normal(size=(4, 3)), [0, 1.5], features)
    arms = domain.draw_arms(jax.random.key(0), 100)
    assert set(np.asarray(arms).tolist()) == {0, 1, 2, 3}
    np.testing.assert_allclose(domain.transitions(jnp.asarray(2)), transitions[2], rtol=1e-5)
    for round, seen in ((0, features[0]), (1, features[1]), (7, features[1])):
        np.testing.assert_allclose(domain.observe(jnp.asarray(3), round), seen[3], rtol=1e-5)
    np.testing.assert_allclose(domain.costs(jnp.asarray(1)), [0, 1.5])


def test_features_of_tabular_arms_default_to_their_dynamics():
    transitions = np.array([[[[0.9, 0.1], [0.4, 0.6]], [[0.5, 0.5], [0.1, 0.9]]]])
    domain = pm.domains.Tabular(transitions, [0, 1], [0, 1])
    np.testing.assert_allclose(domain.observe(jnp.asarray(0), 0), [0.9, 0.4, 0.5, 0.1], rtol=1e-6)


@pytest.mark.parametrize("kind", ["identity", "linear", "sigmoid"])
def test_feature_maps_are_what_the_paper_writes(kind):
    mapped = pm.FeatureMap(kind, seed=3, masked=(2,))
    x = jnp.array([0.4, 0.6, 0.9, 0.1])
    y = np.asarray(x) if kind == "identity" else mapped.matrix(4) @ np.asarray(x)
    if kind == "sigmoid":
        y = 1 / (1 + np.exp(-y))
    np.testing.assert_allclose(mapped(x)[jnp.array([0, 1, 3])], y[[0, 1, 3]], rtol=1e-5)
    assert np.isnan(mapped(x)[2])


def test_feature_maps_are_seeded():
    same, other = pm.FeatureMap(seed=1).matrix(4), pm.FeatureMap(seed=2).matrix(4)
    np.testing.assert_array_equal(same, pm.FeatureMap(seed=1).matrix(4))
    assert not np.allclose(same, other)


ONE_ARM = np.array([[[[0.9, 0.1], [0.4, 0.6]], [[0.5, 0.5], [0.1, 0.9]]]])
LEAKY = ONE_ARM.copy()
LEAKY[0, 1, 0] = [0.5, 0.4]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: pm.domains.get("arman"), "did you mean 'armman'"),
        (lambda: pm.domains.get("zzz"), "expected one of armman, continuous-sis"),
        (lambda: pm.domains.get("sis", populaton=3), "did you mean .population."),
        (lambda: pm.domains.Armman(mix=(0.5, 0.5, 0.5)), "add up to 1"),
        (lambda: pm.domains.SIS(population=0), "population must be"),
        (lambda: pm.domains.SIS(contacts=(5, 1)), "contacts must be two finite numbers"),
        (lambda: pm.domains.Synthetic(shift=float("nan")), "shift must be a finite number"),
        (lambda: pm.domains.ContinuousSynthetic(reward="scald"), "did you mean 'scaled'"),
        (lambda: pm.domains.ContinuousSynthetic(grid=1), "at least 2 points"),
        (lambda: pm.FeatureMap("liner"), "did you mean 'linear'"),
        (lambda: pm.domains.Tabular(LEAKY, [0, 1], [0, 1]), r"transitions\[0, 1, 0\].*0\.9\."),
        (lambda: pm.domains.Tabular(ONE_ARM[0], [0, 1], [0, 1]), "4 axes, not 3"),
        (lambda: pm.domains.Tabular(ONE_ARM[..., :1], [0, 1], [0, 1]), "as many next states"),
        (lambda: pm.domains.Tabular(ONE_ARM, [0, 1, 2], [0, 1]), r"rewards must have the shape"),
        (lambda: pm.domains.Tabular(ONE_ARM, [0, 1], [0, -1]), "must not be negative"),
        (lambda: pm.domains.Tabular(ONE_ARM, [0, 1], [0, np.nan]), r"costs\[1\] is nan"),
        (lambda: pm.domains.Tabular(ONE_ARM, [0, 1], [1, 1]), "action 0 is the passive one"),
        (lambda: pm.domains.Tabular(ONE_ARM, [0, 1], [0, 1], [[1.0], [2.0]]), "with 1 arms"),
        (lambda: pm.domains.Tabular(ONE_ARM, ["a", "b"], [0, 1]), "array of numbers"),
        (lambda: pm.oracles.whittle_indices(LEAKY, [0, 1]), "add up to 1"),
        (lambda: pm.oracles.whittle_indices(ONE_ARM, [0, 1], 1.0), "discount must be below 1"),
        (lambda: pm.oracles.whittle_indices(ONE_ARM, [0, 1, 2]), "rewards must have the shape"),
        (lambda: pm.oracles.lagrangian_bound(ONE_ARM, [0, 1], [0, 1], -1, [0]), "budget must be"),
        (lambda: pm.oracles.lagrangian_bound(ONE_ARM, [0, 1], [0, 1], 1, [2]), "from 0 to 1"),
        (lambda: pm.oracles.lagrangian_bound(ONE_ARM, [0, 1], [0, 1], 1, [0, 0]), "each of 1 arms"),
    ],
)
def test_bad_input_gets_one_clear_sentence(make, message):
    with pytest.raises(pm.InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def spoiled(kind=Pumps, **changes):
    return type(kind.__name__, (kind,), changes)()


@pytest.mark.parametrize("domain", [Pumps(), Tanks()], ids=ids)
def test_a_sound_domain_of_ones_own_passes(domain):
    pm.domains.check(domain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row": lambda *_: jnp.ones(2) / 2}, "must return 3 numbers, one"),
        ({"row": lambda *_: [0.2, 0.3, 0.5]}, "an array of jax.numpy, not a"),
        ({"costs": lambda *_: jnp.zeros(2)}, "3 numbers, one for each action"),
        ({"costs": lambda _, arm: jnp.ones(3) if arm[0] > 0.5 else jnp.zeros(3)}, "jnp.where"),
        ({"costs": lambda _, arm: np.asarray(arm)}, "jax.numpy instead of numpy"),
        ({"costs": lambda _, arm: arm.wear}, "costs of 'pumps' fails: AttributeError"),
        ({"parameters": lambda *_: jnp.ones(3)}, "2 numbers, one for each parameter"),
        ({"reward_at": lambda *_: jnp.ones(3)}, "must return one number"),
        ({"reward_at": lambda *_: None}, "not nothing"),
        ({"encode": lambda _, state: state}, "numbers along one axis"),
        ({"start": lambda *_: jnp.zeros(())}, "must be a whole number"),
        ({"step": lambda _self, _key, _arm, state, _action: 0.5 * state}, "as start does, int32"),
        ({"state_names": ("down", "worn", "worn")}, "'worn' is there twice"),
        ({"state_names": "abc"}, "must be a tuple of names, one for each state"),
        ({"action_names": ("none",)}, "at least 2 actions, the passive one first"),
        ({"parameter_names": ()}, "at least 1 parameter"),
        ({"usual_arms": 0}, "usual_arms of 'pumps' must be"),
    ],
)
def test_what_methods_of_a_domain_return_is_checked(changes, message):
    with pytest.raises(pm.InputError, match=message) as caught:
        pm.domains.check(spoiled(**changes))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (
            spoiled(row=lambda *_: jnp.array([0.2, 0.3, 0.3])),
            r"transitions of 'pumps': row gave \[0.2 0.3 0.3\], which adds up to 0.8 and not to 1, "
            "in the state 'down' under the action 'none'",
        ),
        (
            spoiled(row=lambda *_: jnp.array([-0.2, 0.6, 0.6])),
            "which is negative in places",
        ),
        (
            spoiled(
                row=lambda _self, _arm, cell, action: jnp.where(
                    (cell == 1) & (action == 2), jnp.nan, jnp.ones(3) / 3
                )
            ),
            "which is not finite, in the state 'worn' under the action 'replace'",
        ),
        (
            spoiled(costs=lambda *_: jnp.array([0.0, 1.0, jnp.nan])),
            "costs of 'pumps': nan is not finite, under the action 'replace'",
        ),
        (spoiled(costs=lambda *_: jnp.array([0.0, -2.0, 1.0])), "-2 is negative, under"),
        (spoiled(costs=lambda *_: jnp.ones(3)), "passive one and must cost 0, not 1"),
        (
            spoiled(reward_at=lambda _self, _arm, state: jnp.where(state == 2, jnp.inf, 0.0)),
            "rewards of 'pumps': inf is not finite, in the state 'new'",
        ),
        (spoiled(start=lambda *_: jnp.asarray(3)), "start of 'pumps': 3 is not from 0"),
        (
            spoiled(step=lambda _self, _key, _arm, state, _action: jnp.minimum(state + 1, 2)),
            "step of 'pumps' does not do what row says",
        ),
        (
            spoiled(step=lambda _self, _key, _arm, state, _action: state + 1),
            "step of 'pumps': 3 is not a state from 0 to 2, in the state 'new'",
        ),
        (
            spoiled(Tanks, moments=lambda _self, _arm, state, _action: (state, -0.1)),
            "moments of 'tanks': -0.1 is no standard deviation, in the state '0'",
        ),
    ],
)
def test_what_a_domain_says_of_a_few_arms_is_checked(domain, message):
    with pytest.raises(pm.InputError, match=message) as caught:
        pm.domains.check(domain)
    assert "\n" not in str(caught.value)


def test_a_step_of_ones_own_that_follows_the_rows_passes():
    def step(self, key, arm, state, action):
        return jax.random.choice(key, 3, p=self.row(arm, state, action))

    pm.domains.check(spoiled(step=step))


def test_all_that_computes_with_a_domain_checks_it_first():
    leaky = spoiled(row=lambda *_: jnp.ones(3) / 4)
    arms = leaky.draw_arms(jax.random.key(0), 3)
    model = pm.load("armman")
    for compute in (
        lambda: pm.evaluate(leaky, {"none": pm.policies.NoAction()}, bound=False),
        lambda: pm.pretrain(leaky),
        lambda: pm.pretrain_seeds(leaky, [0, 1]),
        lambda: pm.simulate(domain=leaky),
        lambda: pm.finetune(model, leaky, arms=arms),
        lambda: make_setup(leaky, 3, 2.0, 5, 1.0, None),
    ):
        with pytest.raises(pm.InputError, match=r"adds up to 0\.75"):
            compute()


def test_a_sound_domain_is_checked_once(monkeypatch):
    looked = []
    monkeypatch.setattr(validate, "check", looked.append)
    domain = Pumps()
    for _ in range(3):
        validate.check_once(domain)
        validate.check_once(pm.domains.Armman())
    assert looked == [domain]


def test_a_class_is_no_domain():
    with pytest.raises(pm.InputError, match=r"domain is a class: write Pumps\(\)"):
        validate.check_once(Pumps)
