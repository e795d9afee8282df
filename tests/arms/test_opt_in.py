import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prefermab as pm
from prefermab.arms.opt_in import Streaming, fixed_share, opted_in_count, redraw


@pytest.mark.parametrize(
    ("rate", "n_arms", "expected"), [(0.8, 21, 17), (0.9, 25, 22), (0.95, 48, 46), (1.0, 7, 7)]
)
def test_the_opted_in_are_the_rounded_share(rate, n_arms, expected):
    assert opted_in_count(rate, n_arms) == expected


def test_a_fixed_share_is_exact_and_uniform():
    drawn = jax.vmap(lambda key: fixed_share(key, 21, 17))(
        jax.random.split(jax.random.key(0), 4000)
    )
    assert (drawn.sum(1) == 17).all()
    np.testing.assert_allclose(drawn.mean(0), 17 / 21, atol=0.03)


def test_a_redraw_has_the_rate_in_the_mean():
    assert redraw(jax.random.key(0), 20_000, 0.8).mean() == pytest.approx(0.8, abs=0.01)


def test_those_who_are_in_ask_first_and_newcomers_fill_what_is_left():
    process = Streaming(stay=0.5, newcomers=3.0)
    opt_in = jnp.array([True] * 6 + [False] * 4)
    for seed in range(200):
        after, joined = process.requests(jax.random.key(seed), opt_in)
        # A place that a newcomer takes is one nobody stayed in, the first such places first.
        stayed = after & ~joined
        assert not (stayed & ~opt_in).any()
        free = np.flatnonzero(~np.asarray(stayed))
        np.testing.assert_array_equal(np.flatnonzero(joined), free[: int(joined.sum())])


def test_capacity_holds_and_everyone_who_leaves_is_gone():
    schedule = np.asarray(Streaming(stay=0.8, newcomers=4.0).schedule(jax.random.key(1), 15, 40))
    assert (schedule.sum(1) <= 15).all()
    assert schedule[0, :15].all()
    assert not schedule[0, 15:].any()
    assert schedule.any(0).all()
    entries = (schedule & ~np.pad(schedule, ((1, 0), (0, 0)))[:-1]).sum(0)
    assert (entries == 1).all()


def test_the_mean_number_of_people_is_what_the_rates_say():
    # With room to spare n settles where as many leave as join: n·(1 - stay) = newcomers, n = 30.
    schedule = Streaming(stay=0.9, newcomers=3.0).schedule(jax.random.key(2), 200, 400)
    assert schedule[100:].sum(1).mean() == pytest.approx(30, rel=0.1)


@pytest.mark.parametrize("stay", [-0.1, 1.1, float("nan")])
def test_a_share_outside_its_range_is_refused(stay):
    with pytest.raises(pm.InputError, match="stay must"):
        Streaming(stay=stay)
