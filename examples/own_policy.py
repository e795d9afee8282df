"""Two policies of your own: both call persuadable mothers first.

Run it with `python examples/own_policy.py`. A policy without memory can be a plain function of the
observation. A policy that remembers when each arm was last called is a small class.
"""

import jax.numpy as jnp

import prefermab as pm


def persuadable_first(seen):
    """A policy as a function: scores (arm, action), on which the budget is spent greedily."""
    scores = jnp.stack([jnp.zeros(seen.n_arms), seen.state == 1], axis=1)
    return pm.budget.greedy(scores, seen.costs, seen.budget, seen.opt_in)


class LongestWait(pm.policies.Policy):
    """Calls persuadable mothers, first the one who has waited longest."""

    def memory(self, n_arms):
        """The number of rounds since each arm was last called."""
        return jnp.zeros(n_arms)

    def act(self, seen, memory, key):
        persuadable = seen.state == 1
        call = jnp.where(persuadable, 1.0 + memory, -jnp.inf)  # -inf: never called
        scores = jnp.stack([jnp.zeros(seen.n_arms), call], axis=1)
        actions = pm.budget.greedy(scores, seen.costs, seen.budget, seen.opt_in)
        return actions, jnp.where(actions > 0, 0.0, memory + 1.0)


def main() -> None:
    """Compare both on the same arms, starting states and random numbers."""
    policies = {
        "do nothing": pm.policies.NoAction(),
        "persuadable first": persuadable_first,
        "longest wait": LongestWait(),
        "whittle index": pm.policies.Whittle(),
    }
    frame = pm.evaluate(pm.domains.Armman(), policies, n_arms=25, budget=7, trials=200, seed=0)
    for name, mean, share in frame.select("policy", "mean", "of_bound").iter_rows():
        print(f"{name:20s} reward {mean:.2f} per arm, {share:.0%} of the upper bound")


if __name__ == "__main__":
    main()
