"""Logs that have states only where people were acted on: the reward of models learned from them,
beside models learned from all states, and what the report detects where the log misleads.

Results are stored in studies/data/unseen-log, so the same command continues after an interruption.
`python -m studies.unseen_log 12` measures the log of one seed only.
"""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from prefermab import policies
from prefermab.common.files import use_compilation_cache, write_atomically
from prefermab.common.pages import table_as_markdown
from prefermab.domains import Armman, FiniteDomain, Unseen
from prefermab.evaluation.compare import trial_batches, trial_keys, trial_rewards
from prefermab.models.model import Model
from prefermab.paper.runner import EVALUATION_SEED
from prefermab.policies.base import Policy
from prefermab.programme.learning.effects import estimate_effects
from prefermab.programme.learning.visits import check_visits
from prefermab.programme.logs.domain import Logged
from prefermab.programme.logs.fitting import Fit, fit_log
from prefermab.programme.logs.hidden import fit_hidden
from prefermab.programme.logs.reading import Log, read_log
from prefermab.programme.logs.simulated import keep_seen, simulate_log
from prefermab.training.pretraining import pretrain
from studies import machine
from studies.log import covered

DATA = Path("studies/data/unseen-log")
PEOPLE, WEEKS, CALLED, SEEDS = 2000, 26, 0.1, range(10, 18)
N_ARMS, BUDGET, TRIALS, ROUNDS = 25, 7.0, 1000, 40
FEWER, MISLED = 1000, range(20, 23)
"""Number of people in the logs that mislead, and the seeds of these logs."""


def unseen_log() -> str:
    """Models learned from logs whose states were seen only on a call, and from whole ones."""
    measure(SEEDS)
    return page()


def measure(seeds: Any) -> None:
    """Measures the logs of some seeds, unless that was done before."""
    others = {"none": policies.NoAction(), "index": policies.Whittle()}
    keep("others", lambda: {name: earned(policy) for name, policy in others.items()})
    for seed in seeds:
        keep(str(seed), lambda seed=seed: measured(seed))


def keep(name: str, work: Any) -> None:
    """Does some work and stores its result, unless it is stored already."""
    file = DATA / f"{name}.json"
    if file.exists():
        return
    text = json.dumps(work())
    print(name, text, flush=True)
    DATA.mkdir(parents=True, exist_ok=True)
    write_atomically(file, lambda draft: draft.write_text(text))


def measured(seed: int) -> dict[str, Any]:
    """The rewards of the two models learned from a log, and the share of the fit's intervals that
    contain the truth."""
    (some, whole), within = learned(Armman(), CALLED, seed)
    own = {"some": earned(some.policy), "whole": earned(whole.policy)}
    return own | {"within": within, "on": machine()}


def page() -> str:
    """The page of the measurements so far."""
    known = json.loads((DATA / "others.json").read_text())
    files = [DATA / f"{seed}.json" for seed in SEEDS]
    found = [json.loads(file.read_text()) for file in files if file.exists()]
    some, whole, within = (
        np.array([one[name] for one in found]) for name in ("some", "whole", "within")
    )
    none, ratio = known["none"], some / whole
    rows = [
        [f"{none:.3f}", f"{some.mean():.3f}", f"{whole.mean():.3f}", f"{known['index']:.3f}",
         f"{ratio.mean():.1%}", f"{ratio.min():.1%}",
         f"{((some - none) / (whole - none)).mean():.1%}", f"{within.mean():.0%}"]
    ]  # fmt: skip
    head = ["nobody called", "from states on calls", "from all states", "index of the chain",
            "share", "lowest log", "of its gain", "truth within 90 % intervals"]  # fmt: skip
    return (
        f"ARMMAN, logs of {PEOPLE:,} people and {WEEKS} weeks in which a random {CALLED:.0%} is "
        "called in a week. One model is learned from the log with states only where a call was "
        "made, the other from the same log with all states; both with recipe `exact`. Both are "
        f"played unseen: reward per person and round over {ROUNDS} rounds, {TRIALS:,} paired "
        f"trials of ({N_ARMS}, {BUDGET:g}), everybody never seen at the start. Means of "
        f"{len(found)} logs (seeds from {SEEDS[0]}; choices were made on seeds 0 and 1). "
        "`of its gain` compares what both earn over calling nobody. The last column: how many of "
        "the population's true chances lie within the report's 90 % intervals, for the log with "
        f"few states. Measured with {', '.join(sorted({one['on'] for one in found}))}.\n\n"
        + table_as_markdown(head, rows)
    )


def learned(domain: FiniteDomain, share: float, seed: int) -> tuple[list[Model], float]:
    """Models learned from some states of a log and from all states, and the share of true
    probabilities within the intervals of the first fit."""
    arms = domain.draw_arms(jax.random.key(1000 + seed), PEOPLE)
    frame = simulate_log(domain, PEOPLE, WEEKS, share, seed, arms)
    truth = np.asarray(jax.vmap(domain.transitions)(arms)).mean(axis=0)
    some, whole = read(domain, keep_seen(frame, domain.action_names[0])), read(domain, frame)
    fit = fit_hidden(some, seed=seed)
    print(
        f"called {share:.0%}, seed {seed}: acting matters {fit.effect_probability:.2f}", flush=True
    )
    models = [trained(some, fit, seed), trained(whole, fit_log(whole, seed=seed), seed)]
    return models, covered(some, fit, truth)


def read(domain: FiniteDomain, frame: pl.DataFrame) -> Log:
    """The log of a domain with the rewards of its first arm."""
    arm = jax.tree.map(lambda x: x[0], domain.draw_arms(jax.random.key(0), 1))
    rewards = np.asarray(domain.rewards(arm)).tolist()
    named = dict(zip(domain.state_names, rewards, strict=True))
    return read_log(frame, passive=domain.action_names[0], rewards=named, seen=None)


def trained(log: Log, fit: Fit, seed: int) -> Model:
    """A model that sees states only when it acts."""
    return pretrain(Unseen(Logged(log, fit, seed)), n_arms=N_ARMS, budget=BUDGET)


def earned(policy: Policy) -> float:
    """Mean reward per arm and round, in the same trials for all."""
    domain = Unseen(Armman())
    batches = trial_batches(domain, N_ARMS, 1.0, trial_keys(EVALUATION_SEED, TRIALS), ROUNDS)
    money = jnp.asarray(BUDGET, jnp.float32)
    return float(trial_rewards(policy, domain, batches, money, TRIALS).mean()) / ROUNDS


@dataclasses.dataclass(frozen=True)
class World:
    """How a log misleads: whether calls have an effect, and how many times likelier people in the
    worst state are to be called (or seen)."""

    name: str
    effect: bool = True
    way: str = "acted"
    likelier: float = 1.0


WORLDS = (
    World("called at random"),
    World("called at random, calls do nothing", effect=False),
    World("lost causes three times likelier to be called", likelier=3.0),
    World("motivated three times likelier to be called", likelier=1 / 3),
    World("seen at random, whatever is done", way="some"),
    World("motivated three times likelier to be seen", way="some", likelier=1 / 3),
)


def unseen_checks() -> str:
    """What is noticed in logs with empty states: no effect, people seen because of their state."""
    rows = []
    for world in WORLDS:
        found = np.array([one_misled(world, seed) for seed in MISLED])
        acts, unlike, by_state, wrong, better = found.T
        rows.append(
            [world.name, f"{acts.mean():.2f}", f"{(acts > 0.5).sum():.0f} of {len(MISLED)}",
             f"{unlike.sum():.0f}", f"{by_state.sum():.0f}",
             f"{wrong.mean():.3f}", f"{better.mean():+.3f}"]
        )  # fmt: skip
        print(*rows[-1], flush=True)
    head = ["people were", "acting matters, mean probability", "above one half",
            "warned `unlike_predicted`", "warned `seen_by_state`", "error of chances",
            "held-out error less that of `as last seen`"]  # fmt: skip
    return (
        f"{len(MISLED)} logs each, {FEWER:,} people and {WEEKS} weeks, a "
        "tenth called or seen a week. In the rows in which people are called or seen because of "
        "the state they are in, the likelihood leaves that out: chances are wrong, and no check "
        "can see all of it. The error of chances is the mean distance of the population's mean "
        "chances from the truth.\n\n" + table_as_markdown(head, rows)
    )


def one_misled(world: World, seed: int) -> tuple[float, bool, bool, float, float]:
    """The fit's probability that acting matters, whether each warning was given, and errors."""
    base = Armman()
    arms = base.draw_arms(jax.random.key(2000 + seed), FEWER)
    table, features = np.array(jax.vmap(base.transitions)(arms)), np.asarray(base.features(arms))
    if not world.effect:
        table[:, :, 1] = table[:, :, 0]
    log = read(base, misleading(base, table, features, world, seed))
    fit = fit_hidden(log, draws=64, seed=seed)
    visits = check_visits(log, fit, seed)
    codes = {warning.code for warning in visits.warnings}
    found = estimate_effects(log, fit).transitions["chance"].to_numpy().reshape(log.shape)
    assert visits.predicted is not None
    loss = dict(
        visits.predicted.filter(pl.col("where") == "all").select("predictor", "loss").rows()
    )
    return (
        fit.effect_probability, "unlike_predicted" in codes, "seen_by_state" in codes,
        float(np.abs(found - table.mean(axis=0)).mean()), loss["the fit"] - loss["as last seen"],
    )  # fmt: skip


def misleading(
    base: FiniteDomain, table: np.ndarray, features: np.ndarray, world: World, seed: int
) -> pl.DataFrame:
    """A log in which the state may affect who is called or seen."""
    rng, n = np.random.default_rng(seed), len(table)
    state, parts = rng.integers(0, 3, n), []
    odds = np.array([1.0, np.sqrt(world.likelier), world.likelier])
    names, actions = np.array(base.state_names), np.array(base.action_names)
    known = {f"f{i}": each.astype(float) for i, each in enumerate(features.T)}
    for week in range(WEEKS):
        chosen = rng.random(n) < 0.1 * odds[state] / odds.mean()
        acted = (chosen if world.way == "acted" else rng.random(n) < 0.1).astype(int)
        rows = {"id": np.arange(n), "time": week, "action": actions[acted], **known}
        seen = pl.when(pl.Series(chosen)).then(pl.Series(names[state]))
        parts.append(pl.DataFrame(rows).with_columns(state=seen))
        reached = np.cumsum(table[np.arange(n), state, acted], axis=1)
        state = (reached <= rng.random((n, 1)) * reached[:, -1:]).sum(axis=1)
    return pl.concat(parts)


if __name__ == "__main__":
    use_compilation_cache()
    measure([int(seed) for seed in sys.argv[1:]] or SEEDS)
