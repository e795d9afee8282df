"""States that are seen only on a call: what deciding by what is really known is worth."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from prefermab import policies
from prefermab.arms import Actions, Key, Observation
from prefermab.domains import Armman, Domain, Synthetic, Unseen
from prefermab.evaluation import trial_batches, trial_keys, trial_rewards
from prefermab.pages import table_as_markdown
from prefermab.paper.runner import EVALUATION_SEED
from prefermab.policies.base import Memory, Policy, Problem
from prefermab.policies.informed import ByTable, Informed
from prefermab.training import pretrain_seeds

SETTINGS = (
    ("ARMMAN", Armman(), 25, 7), ("ARMMAN", Armman(), 100, 10), ("Synthetic", Synthetic(), 21, 7),
)  # fmt: skip
SEEDS, TRIALS, ROUNDS = 3, 300, 40


class LastSeen(Informed):
    """The Whittle index of the state last seen, as if it were so still; of somebody never seen, the
    mean over states. With `weighted`, the mean over states by what is believed."""

    weighted: bool = False

    def prepare(self, problem: Problem) -> Policy:
        domain = problem.domain
        assert isinstance(domain, Unseen)
        seen = Problem(domain.domain, problem.arms, problem.start, problem.opt_in, problem.budget)
        ready = policies.Whittle().prepare(seen)
        assert isinstance(ready, ByTable)
        indices: Float[Array, "arm state act"] = ready.gains[0]
        if self.weighted:
            beliefs = jax.vmap(domain.beliefs)(problem.arms)
            return ByTable(domain, jnp.einsum("ics,isa->ica", beliefs, indices)[None])
        wide = jnp.concatenate([indices, indices.mean(axis=1, keepdims=True)], axis=1)
        return ByTable(domain, wide[None, :, domain.sightings.roots])

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        raise AssertionError("prepared policies act")


def unseen() -> str:
    """Policies that see a state only when they act, and what a model earns among them."""
    columns, trained, means = [], {}, {}
    for name, base, n_arms, budget in SETTINGS:
        domain, money = Unseen(base), jnp.asarray(budget, jnp.float32)
        keys = trial_keys(EVALUATION_SEED, TRIALS)

        def earned(policy: Policy, where: Domain = domain, n_arms=n_arms, keys=keys, money=money):
            batches = trial_batches(where, n_arms, 1.0, keys, ROUNDS)
            return trial_rewards(policy, where, batches, money, TRIALS) / ROUNDS

        if name not in trained:
            trained[name] = pretrain_seeds(domain, range(SEEDS))
        each = np.array([earned(model.policy).mean() for model in trained[name]])
        means = {
            "nobody acted on": earned(policies.NoAction()).mean(),
            "random": earned(policies.Random()).mean(),
            "index of the state last seen": earned(LastSeen()).mean(),
            "index weighted by the belief": earned(LastSeen(weighted=True)).mean(),
            "index of the chain": earned(policies.Whittle()).mean(),
            "`exact`, from features, mean seed": each.mean(),
            "every state seen": earned(policies.Whittle(), base).mean(),
        }
        none, last = means["nobody acted on"], means["index of the state last seen"]
        more = (each.mean() - none) / (last - none) - 1
        share = each / means["index of the chain"]
        columns.append(
            [f"{name} ({n_arms}, {budget})", *(f"{mean:.3f}" for mean in means.values()),
             f"{share.mean():.1%}", f"{share.min():.1%}", f"{more:+.0%}"]
        )  # fmt: skip
        print(*columns[-1], flush=True)
    labels = ["", *means, "`exact`, of the chain's index", "worst seed", "gain over the last seen"]
    rows = [list(row) for row in zip(labels, *columns, strict=True)]
    return (
        f"Reward per arm and round, {ROUNDS} rounds, {TRIALS} paired trials, everybody never seen "
        "at the start, and a state seen only on an action. Indices know everybody's dynamics; "
        f"`exact` sees features only ({SEEDS} seeds). The last row is how much more `exact` gains "
        "over acting on nobody than the index of the state last seen does. The recipe's settings "
        "were chosen with training seed 0 on trials of another evaluation seed.\n\n"
        + table_as_markdown(rows[0], rows[1:])
    )
