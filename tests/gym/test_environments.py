import importlib
import sys

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

import prefermab as pm
import prefermab.gym
from prefermab.gym import AllocationEnv, AllocationVectorEnv
from prefermab.gym.episodes import project

fit = jax.jit(project)
COMMON = {"n_arms": 5, "rounds": 4}
IDS = {name: kind.__name__ for name, kind in pm.domains.BY_NAME.items()}
STREAM = pm.opt_in.Streaming(stay=0.6, newcomers=1.5)
SETTINGS = {
    "synthetic": {"opt_in": STREAM},
    "sis": {"population": 10},
    "continuous-synthetic": {"reward": "scaled"},
    "continuous-sis": {"opt_in": 0.6},
}


def make(name, budget=2):
    settings = SETTINGS.get(name, {})
    env = gymnasium.make(f"prefermab/{IDS[name]}-v0", budget=budget, **COMMON, **settings)
    assert isinstance(env.unwrapped, AllocationEnv)
    return env.unwrapped


def own_arms():
    """Two arms with costs of their own, one feature unknown, that changes from round to round."""
    rng = np.random.default_rng(0)
    features = np.array([[[1.0, 2.0], [3.0, np.nan]], [[5.0, 6.0], [7.0, np.nan]]])
    return pm.domains.Tabular(
        rng.dirichlet(np.ones(3), size=(2, 3, 3)),
        rewards=[[0.0, 0.5, 1.0], [0.0, 1.0, 2.0]],
        costs=[[0.0, 1.0, 1.5], [0.0, 0.5, 2.0]],
        features=features,
    )


def total_per_arm(env, action, seed, episodes):
    """Mean over episodes of the reward per opted-in arm."""
    earned = []
    for episode in range(episodes):
        seen, _ = env.reset(seed=seed if episode == 0 else None)
        reward, present, over = 0.0, [], False
        while not over:
            present.append(seen["opt_in"].sum())
            seen, gained, _, over, _ = env.step(np.full(env.action_space.shape, action))
            reward += gained
        earned.append(reward / np.mean(present))
    return np.mean(earned)


def reference_projection(actions, costs, budget, opt_in):
    executed, left = [], budget
    for action, cost, there in zip(actions, costs, opt_in, strict=True):
        fits = there and cost[action] <= left
        executed.append(action if fits else 0)
        left -= cost[action] if fits else 0
    return executed


@pytest.mark.parametrize("name", IDS)
def test_the_checker_passes_without_a_warning(name):
    env = make(name)
    check_env(env)
    assert isinstance(env.domain, pm.domains.BY_NAME[name])


def everyone(seen):
    return seen.opt_in.astype(int)


@pytest.mark.parametrize(
    ("name", "policy", "action"),
    [("continuous-sis", pm.policies.NoAction(), 0), ("synthetic", everyone, 1)],
)
def test_rewards_are_those_of_evaluate(name, policy, action):
    frame = pm.evaluate(
        pm.domains.get(name), {"policy": policy}, budget=5, **COMMON,
        opt_in=SETTINGS[name]["opt_in"], trials=4, seed=7, bound=False,
    )  # fmt: skip
    env = make(name, budget=5)
    earned = total_per_arm(env, action, seed=7, episodes=4)
    assert earned == pytest.approx(frame["mean"][0], rel=1e-5)
    assert earned != pytest.approx(total_per_arm(env, 1 - action, seed=7, episodes=4), rel=1e-2)


def test_places_show_who_holds_them():
    env = make("synthetic")
    shown = [env.reset(seed=5)[0]]
    while shown[-1]["round"] < 4:
        shown.append(env.step([1] * 5)[0])
    assert not all(seen["opt_in"].all() for seen in shown)
    for seen in shown:
        assert seen in env.observation_space
        for field in ("state", "features", "known", "costs"):
            assert not seen[field][seen["opt_in"] == 0].any()
        assert seen["known"][seen["opt_in"] == 1].all()
    faces = [set(map(tuple, seen["features"][seen["opt_in"] == 1])) for seen in shown]
    assert len(set.union(*faces)) > 5  # newcomers have features of their own


def test_a_vector_is_its_single_environments():
    made = {
        mode: gymnasium.make_vec(
            "prefermab/Synthetic-v0", 3, vectorization_mode=mode, budget=2, **COMMON, opt_in=STREAM
        )
        for mode in ("sync", "vector_entry_point")
    }
    ours, theirs = made["vector_entry_point"], made["sync"]
    assert isinstance(ours, AllocationVectorEnv)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    actions = np.random.default_rng(0).integers(0, 2, size=(9, 3, 5))
    left, right = ours.reset(seed=11), theirs.reset(seed=11)
    for asked in [None, *actions]:  # two episodes and the steps between them
        if asked is not None:
            left, right = ours.step(asked), theirs.step(asked)
            for mine, other in zip(left[1:4], right[1:4], strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-5)
                assert mine.dtype == other.dtype
        assert left[0] in ours.observation_space
        for mine, other in zip((left[0], left[-1]), (right[0], right[-1]), strict=True):
            assert mine.keys() == other.keys()
            for field, values in mine.items():
                np.testing.assert_allclose(values, other[field], rtol=1e-5, err_msg=field)
                assert values.dtype == other[field].dtype, field
    assert not np.allclose(left[0]["features"][0], left[0]["features"][1])


def test_seeds_begin_trials_and_later_resets_go_on():
    envs = AllocationVectorEnv(3, "synthetic", **COMMON, opt_in=STREAM)
    first, second = (envs.reset(seed=seed)[0]["features"] for seed in ([3, 9, 4], None))
    again, further = (envs.reset(seed=seed)[0]["features"] for seed in ([4, 9, 3], None))
    np.testing.assert_array_equal(first, again[::-1])
    np.testing.assert_array_equal(second, further[::-1])
    assert not np.array_equal(first, second)
    mixed = envs.reset(seed=[9, None, None])[0]["features"]
    np.testing.assert_array_equal(mixed[0], first[1])
    assert not np.array_equal(mixed[1], further[1])
    unseeded = [make("synthetic").reset()[0]["features"] for _ in range(2)]
    assert not np.array_equal(unseeded[0], unseeded[1])


def test_own_domains_show_costs_and_what_is_not_known():
    domain = own_arms()
    env = gymnasium.make("prefermab/Domain-v0", domain=domain, arms=jnp.array([0, 1]), budget=2.5)
    check_env(env.unwrapped)
    seen, _ = env.reset(seed=1)
    np.testing.assert_array_equal(seen["features"], [[1, 2], [3, 0]])
    np.testing.assert_array_equal(seen["known"], [[1, 1], [1, 0]])
    np.testing.assert_array_equal(seen["costs"], [[0, 1, 1.5], [0, 0.5, 2]])
    assert (seen["round"], seen["budget"]) == (0, 2.5)
    seen, reward, terminated, truncated, info = env.step([2, 2])  # 1.5 + 2 is more than 2.5
    np.testing.assert_array_equal(seen["features"], [[5, 6], [7, 0]])
    np.testing.assert_array_equal(info.pop("executed"), [2, 0])
    assert info == {"projected": True, "spent": 1.5, "budget": 2.5}
    expected = [[0, 0.5, 1], [0, 1, 2]][0][seen["state"][0]] + [0, 1, 2][seen["state"][1]]
    assert (reward, terminated, truncated) == (expected, False, False)
    assert [env.reset()[0]["features"].tolist() for _ in range(2)] == [[[1, 2], [3, 0]]] * 2
    info = env.step([2, 1])[-1]  # 1.5 + 0.5 fits as it is
    assert (info["executed"].tolist(), info["projected"], info["spent"]) == ([2, 1], False, 2.0)


def test_an_action_on_an_arm_that_is_out_is_passive_and_said():
    env = make("continuous-sis", budget=5)
    seen, _ = env.reset(seed=0)
    info = env.step([1, 1, 1, 1, 1])[-1]
    np.testing.assert_array_equal(info["executed"], seen["opt_in"])
    assert (info["projected"], info["spent"]) == (True, 3.0)  # 60 % of 5 arms
    out = seen["opt_in"] == 0
    assert not seen["known"][out].any()
    assert seen["known"][~out].all()


@given(
    actions=st.lists(st.integers(0, 2), min_size=4, max_size=4),
    tenths=st.integers(0, 100),
    opt_in=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_projection_serves_arms_in_their_order(actions, tenths, opt_in):
    costs = np.array([[0, 1, 2.5], [0, 2, 3], [0, 0, 4], [0, 0.5, 1]])
    paid, budget = jnp.asarray(costs, jnp.float32), jnp.asarray(tenths / 10)
    fitted = fit(jnp.array(actions), paid, budget, jnp.array(opt_in))
    assert fitted.tolist() == reference_projection(actions, costs, tenths / 10, opt_in)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"domain": None}, "domain must be a Domain such as Armman.., or a name, not None"),
        ({"domain": "arman"}, "did you mean 'armman'"),
        ({"domain": "armman", "mux": 1}, "unknown setting 'mux' of the domain 'armman'"),
        (
            {"domain": pm.domains.Armman(), "mix": 1},
            "mix is only allowed if the domain is given by name",
        ),
        ({"domain": "armman", "rounds": 0}, "rounds must be"),
        ({"domain": "armman", "budget": -1}, "budget must be"),
        ({"domain": "armman", "opt_in": 0.0}, "none of 25 arms is in"),
        ({"domain": "armman", "opt_in": 1.5}, "opt_in must lie between 0 and 1"),
        (
            {"domain": "armman", "arms": jnp.ones((2, 6)), "opt_in": pm.opt_in.Streaming()},
            "a Streaming process, in which new arms join",
        ),
    ],
)
def test_arguments_that_cannot_be_used(arguments, message):
    with pytest.raises(pm.InputError, match=message):
        AllocationEnv(**arguments)


def test_calls_that_cannot_be_answered():
    env = make("synthetic")
    with pytest.raises(pm.InputError, match="must be reset before its first step"):
        env.step([0] * 5)
    with pytest.raises(pm.InputError, match=r"seed must be less than 2\*\*32"):
        env.reset(seed=2**32)
    env.reset(seed=0)
    for wrong, message in [
        ([0] * 4, r"the shape \(5,\), not \(4,\)"),
        ([0, 0, 0, 0, 2], "whole numbers from 0 to 1"),
        ([0, 0, 0, 0, -1], "whole numbers from 0 to 1"),
        ([0.0] * 5, "whole numbers from 0 to 1"),
    ]:
        with pytest.raises(pm.InputError, match=message):
            env.step(wrong)
    assert [env.step([0] * 5)[3] for _ in range(4)] == [False, False, False, True]
    with pytest.raises(pm.InputError, match="the episode ended after 4 rounds"):
        env.step([0] * 5)
    envs = AllocationVectorEnv(2, "armman", **COMMON)
    with pytest.raises(pm.InputError, match="one number for each of 2 worlds"):
        envs.reset(seed=[1, 2, 3])
    with pytest.raises(pm.InputError, match="cannot be reset one by one"):
        envs.reset(options={"reset_mask": np.array([True, False])})


def test_without_gymnasium_the_way_to_install_it_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "prefermab.gym")
    with pytest.raises(pm.InputError, match=r"pip install 'prefermab\[gym\]'"):
        importlib.import_module("prefermab.gym")


def test_registering_again_is_silent():
    known = dict(gymnasium.registry)
    prefermab.gym.register()
    assert gymnasium.registry == known
    assert {f"prefermab/{name}-v0" for name in [*IDS.values(), "Domain"]} <= known.keys()
