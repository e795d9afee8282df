"""A model beside other policies in the worlds that a log allows."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Array, Float

from prefermab.arms import Actions, Key, Observation
from prefermab.budget import greedy
from prefermab.domains.logged import Logged
from prefermab.evaluation import evaluate
from prefermab.logs.reading import Log
from prefermab.model import Model
from prefermab.policies import NoAction, Random
from prefermab.policies.base import Memory, Policy

WORLDS, ARM_TRIALS = 32, 100_000
"""How many worlds are played in, and about how many arms are played with in all of them."""


class AsLogged(Policy):
    """Does what the log did: whoever is in a state gets an action as often, beside others, as in
    the log, with as many actions as the budget pays for.

    Arms and actions are drawn one after the other, each with a chance in proportion to how often
    the action was taken in the arm's state, until the budget is spent.

    >>> import jax.numpy as jnp
    >>> from prefermab.evidence.comparison import AsLogged
    >>> AsLogged(jnp.array([[1.0, 0.0], [0.7, 0.3]]))  # never acts in state 0
    AsLogged(chances=f32[2,2])
    """

    chances: Float[Array, "state act"]

    @classmethod
    def of(cls, log: Log) -> "AsLogged":
        """How often each action was taken in each state."""
        n_states, n_actions, _ = log.shape
        counts = np.zeros((n_states, n_actions))
        np.add.at(counts, (log.transitions.state, log.transitions.action), 1.0)
        return cls(jnp.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)))

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        # The largest of logarithms of weights, each with Gumbel noise, is a draw by weight.
        likely = jnp.log(self.chances[seen.state])
        scores = likely + jax.random.gumbel(key, likely.shape)
        return greedy(scores, seen.costs, seen.budget, seen.opt_in), memory


def compare(
    domain: Logged,
    model: Model,
    log: Log,
    seed: int = 0,
    progress: Callable[[float, str], None] | None = None,
) -> pl.DataFrame:
    """Reward per arm of the model, no action, random actions and the logged policy, in several of
    the worlds that the log allows: mean and 90 % interval over worlds, and the same of what the
    model earns more in the same world.

    Columns: policy, mean, low, high, gain, gain_low, gain_high, ahead (share of worlds in which
    the model earns more), spent, worlds, trials (in each world).
    """
    policies = {"prefermab": model, "none": NoAction(), "random": Random()}
    policies |= {"as logged": AsLogged.of(log)}
    worlds = np.unique(np.linspace(0, domain.worlds - 1, WORLDS).astype(int))
    trials = int(np.clip(ARM_TRIALS // (len(worlds) * model.n_arms), 4, 64))
    earned, spent = [], []
    for place, world in enumerate(worlds):
        frame = evaluate(
            domain.world(int(world)), policies, model.n_arms, model.budget, trials=trials,
            seed=seed + place, bound=False,
        )  # fmt: skip
        rows = {row["policy"]: row for row in frame.iter_rows(named=True)}
        earned.append([rows[name]["mean"] for name in policies])
        spent.append([rows[name]["spent"] for name in policies])
        if progress is not None:
            progress((place + 1) / len(worlds), "comparing")
    table = np.array(earned)
    gain = table[:, :1] - table
    return pl.DataFrame(
        {
            "policy": list(policies),
            "mean": table.mean(axis=0),
            "low": np.quantile(table, 0.05, axis=0),
            "high": np.quantile(table, 0.95, axis=0),
            "gain": gain.mean(axis=0),
            "gain_low": np.quantile(gain, 0.05, axis=0),
            "gain_high": np.quantile(gain, 0.95, axis=0),
            "ahead": (gain > 0).mean(axis=0),
            "spent": np.mean(spent, axis=0),
            "worlds": [len(worlds)] * len(policies),
            "trials": [trials] * len(policies),
        }
    )
