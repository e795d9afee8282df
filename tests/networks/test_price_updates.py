"""Props. 2 and 3: price updates with best responses lead to the price of the linear program."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prefermab as pm
from prefermab.oracles import value_iteration
from prefermab.recipes import paper
from reference import lp_discounted

DISCOUNT = 0.9
ROUNDS = 150


def expected_costs(transitions, rewards, costs, start, price):
    """What an exact best response to a price spends, arm by arm and round by round."""
    best = jnp.argmax(value_iteration(transitions, rewards, costs, price, DISCOUNT), axis=2)
    n_arms, n_states = rewards.shape
    arms, states = jnp.arange(n_arms)[:, None], jnp.arange(n_states)
    moves = transitions[arms, states, best]
    paid = costs[arms, best]

    def one_round(where, _):
        return jnp.einsum("is,ist->it", where, moves), jnp.sum(where * paid, axis=1)

    return jax.lax.scan(one_round, jax.nn.one_hot(start, n_states), None, length=ROUNDS)[1]


@pytest.mark.parametrize(("domain", "budget"), [("synthetic", 4), ("synthetic", 5), ("armman", 3)])
def test_price_updates_converge_to_the_price_of_the_linear_program(domain, budget):
    domain, n_arms = pm.domains.get(domain), 12
    config = pm.recipes.Paper(price_rate=4e-3, price_decay=0.985, epochs=10**6)
    learner = eqx.filter_jit(config.init)(domain, n_arms, jax.random.key(1))
    arms = learner.arms
    transitions = jax.vmap(domain.transitions)(arms)
    rewards, costs = jax.vmap(domain.rewards)(arms), jax.vmap(domain.costs)(arms)
    start = jnp.arange(n_arms) % len(domain.state_names)
    bound, best_price = lp_discounted(transitions, rewards, costs, budget, start, DISCOUNT)

    features, states = domain.features(arms), jnp.broadcast_to(start, (ROUNDS, n_arms))
    nothing = jnp.zeros((ROUNDS, n_arms))

    @eqx.filter_jit
    def update(learner):
        price = learner.network.price(start, features, learner.opt_in)
        spent = expected_costs(transitions, rewards, costs, start, price)
        seen = paper.Trajectory(
            states, nothing.astype(int), nothing, spent, start, features, learner.opt_in, price
        )
        learner = config.update_price(jnp.asarray(float(budget)), learner, seen)
        return eqx.tree_at(lambda it: it.epoch, learner, learner.epoch + config.subepochs), price

    learner, price = update(learner)
    for _ in range(400):
        learner, price = update(learner)
    assert best_price > 0.02
    assert float(price) == pytest.approx(best_price, abs=0.01)
    # At that price the relaxation is as tight as the linear program: no gap is left (Prop. 3).
    q = value_iteration(transitions, rewards, costs, price, DISCOUNT)
    value = price * budget / (1 - DISCOUNT) + q.max(axis=2)[jnp.arange(n_arms), start].sum()
    np.testing.assert_allclose(float(value), bound, rtol=2e-3)
