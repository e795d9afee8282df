"""A small domain of one's own, and ways to spoil it."""

import jax
import jax.numpy as jnp

import prefermab as pm


class Pumps(pm.domains.FiniteDomain):
    """Pumps that fail and can be serviced or replaced."""

    name = "pumps"
    state_names = ("down", "worn", "new")
    action_names = ("none", "service", "replace")
    parameter_names = ("wear", "repair")

    def draw(self, key):
        return jax.random.uniform(key, (2,), minval=0.2, maxval=0.9)

    def parameters(self, arm):
        return arm

    def costs(self, arm):
        return jnp.array([0.0, 1.0, 3.0])

    def reward_at(self, arm, state):
        return state / 2

    def row(self, arm, cell, action):
        falls = jnp.where(action == 1, arm[0] / 2, arm[0])
        alone = jnp.zeros(3).at[jnp.maximum(cell - 1, 0)].add(falls).at[cell].add(1 - falls)
        renewed = jnp.zeros(3).at[2].add(arm[1]).at[cell].add(1 - arm[1])
        return jnp.where(action == 2, renewed, alone)


class Tanks(pm.domains.ContinuousDomain):
    """Tanks that leak and can be filled."""

    name = "tanks"
    action_names = ("none", "fill")
    parameter_names = ("leak",)
    usual_arms = 4
    usual_budget = 2.0

    def draw(self, key):
        return jax.random.uniform(key, (1,), maxval=0.4)

    def parameters(self, arm):
        return arm

    def costs(self, arm):
        return jnp.stack([0.0, 1.0 + arm[0]])

    def reward_at(self, arm, state):
        return state

    def moments(self, arm, state, action):
        return state * (1 - arm[0]) + 0.3 * action, jnp.asarray(0.05)
