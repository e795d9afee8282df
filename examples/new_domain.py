"""A new domain: machines that wear out and can be inspected or overhauled.

Run it with `python examples/new_domain.py`. It compares policies on the new domain, then trains a
small model for it.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

import prefermab as pm


class Machines(pm.domains.FiniteDomain):
    """A machine gets one state worse with its own probability; the reward is its output, 0 to 1."""

    name = "machines"
    state_names: ClassVar = ("broken", "worn", "new")
    action_names: ClassVar = ("none", "inspect", "overhaul")
    parameter_names: ClassVar = ("wear", "repair")

    def draw(self, key):
        return jax.random.uniform(key, (2,), minval=0.2, maxval=0.9)

    def parameters(self, arm):
        return arm

    def costs(self, arm):
        return jnp.array([0.0, 1.0, 3.0])

    def reward_at(self, arm, state):
        return state / 2

    def row(self, arm, cell, action):
        """Probabilities of the next state. An inspection halves the wear; an overhaul repairs."""
        wear, repair = arm
        worse = jnp.where(action == 1, wear / 2, wear)
        kept = jnp.zeros(3).at[jnp.maximum(cell - 1, 0)].add(worse).at[cell].add(1 - worse)
        repaired = jnp.zeros(3).at[2].add(repair).at[cell].add(1 - repair)
        return jnp.where(action == 2, repaired, kept)


def main() -> None:
    """Check the domain, train a small model, and compare it with other policies."""
    domain = Machines()
    pm.domains.check(domain)
    model = pm.pretrain(domain, n_arms=12, budget=6, recipe="exact", steps=300, seed=0)
    policies = {
        "do nothing": pm.policies.NoAction(),
        "random": pm.policies.Random(),
        "model": model,
        "knows the dynamics": pm.policies.Lagrangian(),
    }
    frame = pm.evaluate(domain, policies, n_arms=12, budget=6, trials=100, seed=0)
    for name, mean, share in frame.select("policy", "mean", "of_bound").iter_rows():
        print(f"{name:20s} output {mean:.3f}, {share:.0%} of the upper bound")


if __name__ == "__main__":
    main()
