"""The study `left`: models that know the rounds left, beside policies that know the dynamics.

Trainings and trials take long. Results are stored in studies/data/left, so the same command
continues after an interruption: first a few seeds of every domain, then more of each.
`python -m studies.left armman` measures one domain only.
"""

import functools
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from prefermab import policies
from prefermab.common.files import use_compilation_cache, write_atomically
from prefermab.common.pages import table_as_markdown
from prefermab.evaluation.compare import trial_batches, trial_bounds, trial_keys, trial_rewards
from prefermab.paper.runner import EVALUATION_SEED
from prefermab.paper.tables import Setting
from prefermab.training.pretraining import pretrain_seeds
from studies import machine

DATA = Path("studies/data/left")
RATES = (0.8, 0.85, 0.9, 0.95, 1.0)
LONGEST = 12
SEEDS, TOGETHER = range(100, 116), 4
"""Training seeds, on which no setting was chosen, and how many are trained at once."""

SIZES: dict[str, tuple[Setting, ...]] = {
    "armman": tuple(Setting("armman", n, b) for n, b in ((25, 7), (25, 5), (50, 10))),
    "synthetic": tuple(Setting("synthetic", n, b) for n, b in ((21, 7), (48, 16), (96, 32))),
    "continuous-synthetic": (Setting("continuous-synthetic", 21, 7),),
    "sis-50": (Setting("sis", 20, 16, train=(("population", 50),)),),
    "continuous-synthetic-exponential": (
        Setting("continuous-synthetic", 21, 7, train=(("reward", "exponential"),)),
    ),
    "continuous-synthetic-scaled": (
        Setting("continuous-synthetic", 21, 7, train=(("reward", "scaled"),)),
    ),
    "sis-150": (Setting("sis", 20, 16, train=(("population", 150),)),),
    "continuous-sis": (Setting("continuous-sis", 20, 16),),
}
TRIALS = 1000


def measure(names: Iterable[str]) -> None:
    """Measures some domains, unless that was done before."""
    for at in range(0, len(SEEDS), TOGETHER):
        for name in names:
            measure_seeds(name, list(SEEDS)[at : at + TOGETHER])


def measure_seeds(name: str, seeds: list[int]) -> None:
    """Trains models with these seeds on a domain and measures them, unless that was done before."""
    file = DATA / f"{name}.json"
    done: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    if done.get("trials") != TRIALS:
        done = {"trials": TRIALS, "informed": {}}
    if measured(done) > seeds[-1] - SEEDS[0]:
        return
    done["on"], settings = machine(), SIZES[name]
    models = pretrain_seeds(settings[0].tried_on(), seeds, "exact", rounds_left=LONGEST)
    found: dict[str, Any] = {}
    for setting in settings:
        for rate in RATES:
            cell = f"({setting.n_arms}, {setting.budget:g}) {rate:g}"
            best, means = informed(setting, rate)
            own = {kind: played(models, kind, setting, rate) for kind in (None, "trial")}
            gap = own["trial"].mean(axis=0) - best
            done["informed"][cell] = means
            found[cell] = {
                "ongoing": own[None].mean(axis=1).tolist(),
                "left": own["trial"].mean(axis=1).tolist(),
                "stderr": float(gap.std(ddof=1) / np.sqrt(TRIALS)),
            }
            print(name, seeds, cell, found[cell], means, flush=True)
    done[str(seeds[0])] = found
    DATA.mkdir(parents=True, exist_ok=True)
    write_atomically(file, lambda draft: draft.write_text(json.dumps(done, indent=1)))


def measured(done: dict[str, Any]) -> int:
    """Number of seeds that were measured, from the first on."""
    groups = [next(iter(done[key].values())) for key in done if key.isdigit()]
    return sum(len(group["left"]) for group in groups)


def worlds(setting: Setting, rate: float):
    """The domain and the trials that all policies meet."""
    domain = setting.tried_on()
    return domain, trial_batches(domain, setting.n_arms, rate, trial_keys(EVALUATION_SEED, TRIALS))


@functools.cache
def informed(setting: Setting, rate: float) -> tuple[np.ndarray, dict[str, Any]]:
    """The rewards in every trial of the better of the policies that know the dynamics, and the mean
    reward of each of them."""
    (domain, batches), budget = worlds(setting, rate), jnp.float32(setting.budget)
    _, prices = trial_bounds(domain, batches, budget, TRIALS)
    known: dict[str, policies.Policy] = {"lagrangian": policies.Lagrangian()}
    if domain.n_actions == 2:
        known["whittle"] = policies.Whittle()
    earned = {
        name: trial_rewards(policy, domain, batches, budget, TRIALS, prices)
        for name, policy in known.items()
    }
    best = max(earned, key=lambda name: earned[name].mean())
    means = {name: float(own.mean()) for name, own in earned.items()}
    return earned[best], {"best": best, **means}


def played(models, kind: str | None, setting: Setting, rate: float) -> np.ndarray:
    """The rewards of the models in every trial: (seed, trial)."""
    (domain, batches), budget = worlds(setting, rate), jnp.float32(setting.budget)
    policies_played = [model.with_rounds_left(kind).policy for model in models]
    return np.stack([trial_rewards(p, domain, batches, budget, TRIALS) for p in policies_played])


def left() -> str:
    """Models that know how many rounds are left."""
    measure(SIZES)
    return page()


def page() -> str:
    """The page of the measurements so far."""
    rows, seeds, places = [], {}, set[str]()
    for name in SIZES:
        file = DATA / f"{name}.json"
        done = json.loads(file.read_text()) if file.exists() else {}
        seeds[name] = measured(done)
        rows += rows_of(name, done) if seeds[name] else []
        places |= {done["on"]} if seeds[name] else set()
    missing = [f"{name} {found}" for name, found in seeds.items() if found < len(SEEDS)]
    head = ["", "opted in", "better informed policy", "seeds", "ongoing", "rounds left known",
            "standard error", "worst seed"]  # fmt: skip
    return (
        "Reward per opted-in arm over nine rounds, as a share of what the better of the policies "
        "Whittle and Lagrangian earns in the same trials; both know every arm's dynamics, and "
        "Lagrangian the end. The models see features only. `ongoing` is a model of recipe `exact` "
        "that is not told of the end, `rounds left known` the same model asked with "
        '`with_rounds_left("trial")`: the mean over training seeds, the standard error of its '
        f"paired difference over trials, and the worst seed. {TRIALS:,} trials. Training seeds "
        f"from {SEEDS[0]} on; settings were chosen on others, and on other trials. {len(SEEDS)} "
        "seeds are meant"
        + (f"; run so far: {', '.join(missing)}" if missing else "")
        + f". Measured with {', '.join(sorted(places))}.\n\n"
        + table_as_markdown(head, rows)
    )


def rows_of(name: str, done: dict[str, Any]) -> list[list[str]]:
    """The rows of the table for a domain."""
    groups = [value for key, value in done.items() if key.isdigit()]
    rows = []
    for cell, known in done["informed"].items():
        best = known[known["best"]]
        size, rate = cell.rsplit(" ", 1)
        shares = {
            kind: np.concatenate([group[cell][kind] for group in groups]) / best
            for kind in ("ongoing", "left")
        }
        error = np.mean([group[cell]["stderr"] for group in groups]) / best
        rows.append(
            [f"{name} {size}", f"{float(rate):.0%}", f"{known['best']} {best:.3f}",
             str(shares["left"].size), f"{shares['ongoing'].mean():.2%}",
             f"{shares['left'].mean():.2%}", f"{error:.2%}", f"{shares['left'].min():.2%}"]
        )  # fmt: skip
    return rows


if __name__ == "__main__":
    use_compilation_cache()
    measure(sys.argv[1:] or SIZES)
