"""States that are seen only on a call: the gain of policies that use what is really known.

Results are stored in studies/data/unseen, so the same command continues after an interruption.
`python -m studies.unseen 4` trains four seeds only.
"""

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from prefermab import policies
from prefermab.arms.observation import Actions, Key, Observation
from prefermab.common.files import use_compilation_cache, write_atomically
from prefermab.common.pages import table_as_markdown
from prefermab.domains import Armman, Domain, Synthetic, Unseen
from prefermab.evaluation.compare import trial_batches, trial_keys, trial_rewards
from prefermab.paper.runner import EVALUATION_SEED
from prefermab.policies.base import Memory, Policy, Problem
from prefermab.policies.informed import ByTable, Informed
from prefermab.training.pretraining import pretrain_seeds
from studies import machine

DATA = Path("studies/data/unseen")
SETTINGS = (
    ("ARMMAN", Armman(), 25, 7), ("ARMMAN", Armman(), 100, 10), ("Synthetic", Synthetic(), 21, 7),
)  # fmt: skip
SEEDS, TOGETHER, TRIALS, ROUNDS = range(16), 2, 1000, 40
"""Training seeds, on which no setting was chosen; how many are trained at once; trials; rounds."""


CHAIN, NOBODY, LAST = "index of the chain", "nobody acted on", "index of the state last seen"


class LastSeen(Informed):
    """Decides by the Whittle index of the state last seen, as if unchanged; an arm never seen has
    the mean index over states. With `weighted`, indices are weighted by the belief."""

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
    measure(len(SEEDS))
    return page()


def measure(n_seeds: int) -> None:
    """Measures the first `n_seeds` seeds, unless that was done before."""
    for at in range(0, n_seeds, TOGETHER):
        seeds = list(SEEDS[at : at + TOGETHER])
        trained: dict[str, Any] = {}
        for name, base, n_arms, budget in SETTINGS:
            done = kept(name, n_arms)
            if str(seeds[0]) in done["seeds"]:
                continue
            if name not in trained:
                trained[name] = pretrain_seeds(Unseen(base), seeds)
            for seed, model in zip(seeds, trained[name], strict=True):
                mean = earned(model.policy, Unseen(base), n_arms, budget)
                done["seeds"][str(seed)] = mean
                print(name, n_arms, seed, mean, flush=True)
            keep(name, n_arms, done)
    for name, base, n_arms, budget in SETTINGS:
        done = kept(name, n_arms)
        for title, (policy, domain) in informed(base).items():
            if title not in done["others"]:
                done["others"][title] = earned(policy, domain, n_arms, budget)
                print(name, n_arms, title, done["others"][title], flush=True)
                keep(name, n_arms, done)


def kept(name: str, n_arms: int) -> dict[str, Any]:
    """The stored measurements."""
    file = DATA / f"{name}-{n_arms}.json"
    return json.loads(file.read_text()) if file.exists() else {"others": {}, "seeds": {}}


def keep(name: str, n_arms: int, done: dict[str, Any]) -> None:
    """Stores the measurements."""
    DATA.mkdir(parents=True, exist_ok=True)
    text = json.dumps(done | {"on": machine()}, indent=1)
    write_atomically(DATA / f"{name}-{n_arms}.json", lambda draft: draft.write_text(text))


def informed(base: Any) -> dict[str, tuple[Policy, Domain]]:
    """Policies to compare with, and the domain that each sees."""
    domain = Unseen(base)
    return {
        NOBODY: (policies.NoAction(), domain),
        "random": (policies.Random(), domain),
        LAST: (LastSeen(), domain),
        "index weighted by the belief": (LastSeen(weighted=True), domain),
        CHAIN: (policies.Whittle(), domain),
        "every state seen": (policies.Whittle(), base),
    }


def earned(policy: Policy, domain: Domain, n_arms: int, budget: float) -> float:
    """Mean reward per arm and round."""
    batches = trial_batches(domain, n_arms, 1.0, trial_keys(EVALUATION_SEED, TRIALS), ROUNDS)
    rewards = trial_rewards(policy, domain, batches, jnp.float32(budget), TRIALS)
    return float(rewards.mean()) / ROUNDS


def page() -> str:
    """The page of the measurements so far."""
    columns, labels, places = [], [], set[str]()
    for name, _, n_arms, budget in SETTINGS:
        done = kept(name, n_arms)
        places.add(done["on"])
        means, each = done["others"], np.array(list(done["seeds"].values()))
        share = each / means[CHAIN]
        more = (each.mean() - means[NOBODY]) / (means[LAST] - means[NOBODY]) - 1
        own = {
            "`exact`, from features, mean seed": f"{each.mean():.3f}",
            "`exact`, of the chain's index": f"{share.mean():.2%}",
            "worst seed": f"{share.min():.2%}",
            "seeds": str(each.size),
            "gain over the last seen": f"{more:+.0%}",
        }
        texts = [f"{means[policy]:.3f}" for policy in informed(Armman())]
        columns.append([f"{name} ({n_arms}, {budget})", *texts, *own.values()])
        labels = ["", *informed(Armman()), *own]
    rows = [list(row) for row in zip(labels, *columns, strict=True)]
    return (
        f"Reward per arm and round, {ROUNDS} rounds, {TRIALS:,} paired trials, everybody never "
        "seen at the start, and a state seen only on an action. Indices know everybody's dynamics; "
        "`exact` sees features only. The last row is how much more `exact` gains over acting on "
        f"nobody than the index of the state last seen does. Training seeds from 0, of which "
        f"{len(SEEDS)} are meant; settings were chosen on seeds from 100 and on trials of another "
        f"evaluation seed. Measured with {', '.join(sorted(places))}.\n\n"
        + table_as_markdown(rows[0], rows[1:])
    )


if __name__ == "__main__":
    use_compilation_cache()
    measure(int(sys.argv[1]) if sys.argv[1:] else len(SEEDS))
