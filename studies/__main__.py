"""Studies beyond the paper: each trains models, measures them and writes a page to docs/results.

`make results` runs all of them, `python -m studies sizes` one.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

import prefermab
from prefermab import domains, policies
from prefermab.common.files import use_compilation_cache, write_atomically
from prefermab.common.pages import table_as_markdown
from prefermab.errors import unknown
from prefermab.evaluation.compare import (
    evaluate,
    trial_batches,
    trial_bounds,
    trial_keys,
    trial_rewards,
)
from prefermab.models.loading import load
from prefermab.paper.runner import EVALUATION_SEED
from prefermab.paper.tables import Setting
from prefermab.training.pretraining import pretrain_seeds
from studies.damage import damage
from studies.departures_page import departures
from studies.durability import durability
from studies.evidence import evidence
from studies.gain import gain
from studies.left import left
from studies.log import log
from studies.races import races
from studies.scale import scale
from studies.uncertainty import IDENTITY, ByBayes, blurred, reward_curves
from studies.unseen import unseen
from studies.unseen_log import unseen_checks, unseen_log

RESULTS = Path("docs/results")
RATES = (0.8, 0.85, 0.9, 0.95, 1.0)
SYNTHETIC = Setting("synthetic", 21, 7)
ARMMAN = Setting("armman", 25, 7)
SIS_50 = Setting("sis", 20, 16, train=(("population", 50),))
SIS_150 = Setting("sis", 20, 16, train=(("population", 150),))
CONTINUOUS = Setting("continuous-synthetic", 21, 7)
EXPONENTIAL = Setting("continuous-synthetic", 21, 7, train=(("reward", "exponential"),))
SETTINGS = (
    SYNTHETIC,
    Setting("synthetic", 48, 16),
    Setting("synthetic", 96, 32),
    ARMMAN,
    Setting("armman", 25, 5),
    Setting("armman", 50, 10),
    Setting("armman", 1000, 200),
    SIS_50,
    SIS_150,
    CONTINUOUS,
    Setting("continuous-synthetic", 21, 7, train=(("reward", "scaled"),)),
    EXPONENTIAL,
    Setting("continuous-sis", 20, 16),
)


def exact() -> str:
    """Recipe `exact` everywhere, sixteen seeds, with linear and with sigmoid features."""
    rows, trained = [], {}
    for setting in SETTINGS:
        informed = {rate: informed_in(setting, rate) for rate in RATES}
        for kind in ("linear", "sigmoid"):
            here = dataclasses.replace(setting, map=kind)
            domain, what = here.tried_on(), (here.domain, here.train, kind)
            if what not in trained:
                trained[what] = pretrain_seeds(domain, range(16), recipe="exact")
            models = trained[what]
            shares = [
                f"{earned_in(models[0].policy, here, rate).mean() / informed[rate].mean():.2%}"
                for rate in RATES
            ]
            full = np.array([earned_in(m.policy, here, 1.0).mean() for m in models])
            rows.append(
                [setting_name(here), kind, here.knows, *shares, f"{full.mean():.3f}",
                 f"{full.min() / full.mean():.2%}"]
            )  # fmt: skip
            print(*rows[-1], flush=True)
    head = ["setting", "features", "informed policy", *(f"{rate:.0%}" for rate in RATES)]
    return (
        "Seed 0 at five opt-in rates: share of what the policy that knows the dynamics earns in "
        "the same trials, 1,000 of them (100 at 1,000 arms, 200 on epidemics). Then 16 training "
        "seeds at 100 %: mean reward per arm, and the worst seed's share of it. A model is trained "
        "once for a domain and features, and used at every size.\n\n"
        + table_as_markdown([*head, "16 seeds", "worst seed, of mean"], rows)
    )


def closest() -> str:
    """Recipe `exact` where its margin is smallest, all sixteen seeds at every opt-in rate."""
    setting, rows = EXPONENTIAL, []
    models = pretrain_seeds(setting.tried_on(), range(16), recipe="exact")
    for rate in RATES:
        informed = informed_in(setting, rate)
        own = np.stack([earned_in(m.policy, setting, rate) for m in models])
        each = own.mean(axis=1) / informed.mean()
        error = (own.mean(axis=0) - informed).std(ddof=1) / np.sqrt(informed.size)
        rows.append(
            [f"{rate:.0%}", f"{informed.mean():.3f}", f"{each.mean():.2%}",
             f"{error / informed.mean():.2%}", f"{each.min():.2%}", f"{each.max():.2%}"]
        )  # fmt: skip
        print(*rows[-1], flush=True)
    head = ["opted in", "lagrangian", "mean seed", "standard error", "worst seed", "best seed"]
    return (
        f"{setting_name(setting)}, 1,000 trials: share of what the policy that knows the dynamics "
        "earns. The standard error is that of the mean seed's paired difference over trials.\n\n"
        + table_as_markdown(head, rows)
    )


def horizon() -> str:
    """Horizon and discount of recipe `exact`, for short programmes and long ones."""
    choices = [(0.8, 6), (0.8, 12), (0.8, 30), (0.9, 6), (0.9, 12), (0.9, 30), (1.0, 5), (1.0, 9)]
    parts = []
    for setting in (ARMMAN, SIS_50):
        domain, rows = setting.tried_on(), []
        trials = trials_of(setting)
        for discount, rounds in choices:
            models = pretrain_seeds(
                domain, range(3), recipe="exact", discount=discount, horizon=rounds
            )
            row = [f"{discount:g}", str(rounds)]
            for length in (9, 52):
                frame = evaluate(
                    domain, {str(i): m for i, m in enumerate(models)},
                    n_arms=setting.n_arms, budget=setting.budget, trials=trials,
                    seed=EVALUATION_SEED, rounds=length, bound=False,
                )  # fmt: skip
                row.append(f"{frame['mean'].to_numpy().mean() / length:.4f}")
            rows.append(row)
        head = ["discount", "horizon", "reward a round, 9 rounds", "52 rounds"]
        parts.append(f"## {setting_name(setting)}\n\n" + table_as_markdown(head, rows))
    return (
        "Reward per arm and round, mean of three training seeds at 100 % opt-in (1,000 paired "
        "trials, epidemics 200). The default is 0.8 and 12.\n\n" + "\n".join(parts)
    )


def uncertainty() -> str:
    """Features that are missing or noisy: `exact`, `sweep` and the right answer."""
    seeds, hidden_rows, noise_rows = range(4), [], []
    for title, domain in (("synthetic, identity", IDENTITY), ("armman, linear", domains.Armman())):
        models = {r: pretrain_seeds(domain, seeds, recipe=r) for r in ("exact", "sweep")}
        quarters = len(domain.feature_names) / 4
        for share in range(5):
            seen = blurred(domain, hidden=round(share * quarters))
            compared = {f"{r} {m.config.seed}": m for r in models for m in models[r]}
            compared |= {"bayes": ByBayes(0.0)} if domain is IDENTITY else {}
            frame = evaluate(seen, compared, n_arms=21, budget=7, seed=EVALUATION_SEED, bound=False)
            hidden_rows.append([title, f"{share}/4", *by_recipe(frame)])
    for noise in (0.0, 0.02, 0.05, 0.1, 0.2, 0.4):
        seen = blurred(IDENTITY, noise=noise)
        compared = {
            f"{r} {m.config.seed}": m
            for r in ("exact", "sweep")
            for m in pretrain_seeds(seen, seeds, recipe=r)
        }
        compared |= {"bayes": ByBayes(noise), "whittle": policies.Whittle()}
        frame = evaluate(seen, compared, n_arms=21, budget=7, seed=EVALUATION_SEED, bound=False)
        noise_rows.append([f"{noise:g}", *by_recipe(frame)])
    head = ["`exact`", "`sweep`", "difference", "Bayes", "Whittle"]
    svg = reward_curves([row[1:] for row in hidden_rows[:5]], noise_rows)
    write_atomically(RESULTS / "figures/uncertainty.svg", lambda draft: draft.write_text(svg))
    return (
        "![Reward against what is hidden of the features, and against noise on them]"
        "(figures/uncertainty.svg)\n\n"
        "*Synthetic with identity features: the two recipes beside Bayes.*\n\n"
        "Reward per arm at 100 % opt-in, (21, 7), mean of 4 training seeds, 1,000 paired trials. "
        "The difference is `exact` - `sweep` with its standard error over paired seeds and trials. "
        "Bayes decides by the exact mean worth of all arms that look alike (Synthetic with "
        "identity features only, where it can be computed); Whittle knows everything.\n\n"
        "## Features missing at random when deciding\n\nTrained once, on features of which some "
        "are hidden at random.\n\n"
        + table_as_markdown(["domain", "hidden", *head], hidden_rows)
        + "\n## Noise on the features\n\nNormal noise of this standard deviation on every feature, "
        "in training and when deciding; the features range over 0.2, 0.2, 0.2 and 1.\n\n"
        + table_as_markdown(["noise", *head], noise_rows)
    )


def sizes() -> str:
    """One ARMMAN model at four sizes beside models trained for the purpose."""
    shipped, domain = load("armman"), domains.Armman()
    rows = []
    for n_arms, budget, trials in ((10, 3, 1000), (50, 10, 1000), (250, 70, 300), (2000, 300, 60)):
        own = pretrain_seeds(domain, (101, 102, 103), n_arms=n_arms, budget=budget)
        compared = {"shipped": shipped, "whittle": policies.Whittle()}
        compared |= {f"own {m.config.seed}": m for m in own}
        frame = evaluate(
            domain,
            compared,
            n_arms=n_arms,
            budget=budget,
            trials=trials,
            seed=EVALUATION_SEED,
            bound=False,
        )
        mean = dict(zip(frame["policy"], frame["mean"], strict=True))
        purpose = np.mean([mean[f"own {m.config.seed}"] for m in own])
        rows.append(
            [
                f"({n_arms}, {budget})", f"{mean['shipped']:.3f}", f"{purpose:.3f}",
                f"{mean['shipped'] / purpose - 1:+.2%}", f"{mean['whittle']:.3f}", str(trials),
            ]
        )  # fmt: skip
    return (
        "ARMMAN, 100 % opt-in. The model that ships was trained once; the others were trained for "
        "each size (three seeds, mean). The default recipe does not use the size, so the "
        "difference is that between seeds.\n\n"
        + table_as_markdown(
            ["size", "shipped", "for the purpose", "difference", "whittle", "trials"], rows
        )
    )


def speed() -> str:
    """Seconds to train, from nothing and once compiled."""
    jax.config.update("jax_enable_compilation_cache", False)
    rows = []
    for setting in (SYNTHETIC, ARMMAN, SIS_50, SIS_150, CONTINUOUS):
        row = [setting_name(setting)]
        for recipe in ("paper", "sweep", "exact"):
            jax.clear_caches()
            took = []
            for _ in range(2):
                begun = time.perf_counter()
                size = {"n_arms": setting.n_arms, "budget": setting.budget}
                pretrain_seeds(setting.tried_on(), [0], recipe, **size)
                took.append(time.perf_counter() - begun)
            row.append(f"{took[0]:.1f} / {took[1]:.1f}")
        rows.append(row)
    return (
        "One seed: seconds from nothing, compilation included / of a second training that finds it "
        "compiled. The compilation cache on disk is off. All in one run on two shared cores, so "
        "compare figures with each other only.\n\n"
        + table_as_markdown(["setting", "`paper`", "`sweep`", "`exact`"], rows)
    )


def trials_of(setting: Setting) -> int:
    """Number of trials: enough to distinguish policies, but fewer where trials take long."""
    return 200 if setting.epidemic else 100 if setting.n_arms >= 1000 else 1000


def earned_in(policy: policies.Policy, setting: Setting, rate: float) -> np.ndarray:
    """The reward of a policy in every trial."""
    domain, trials = setting.tried_on(), trials_of(setting)
    batches = trial_batches(domain, setting.n_arms, rate, trial_keys(EVALUATION_SEED, trials))
    return trial_rewards(policy, domain, batches, jnp.float32(setting.budget), trials)


def informed_in(setting: Setting, rate: float) -> np.ndarray:
    """The reward in every trial of the policy that knows the dynamics."""
    knows = policies.BY_NAME[setting.knows]()
    if setting.knows == "whittle":
        return earned_in(knows, setting, rate)
    domain, trials, budget = setting.tried_on(), trials_of(setting), jnp.float32(setting.budget)
    batches = trial_batches(domain, setting.n_arms, rate, trial_keys(EVALUATION_SEED, trials))
    _, prices = trial_bounds(domain, batches, budget, trials)
    return trial_rewards(knows, domain, batches, budget, trials, prices)


def by_recipe(frame: pl.DataFrame) -> list[str]:
    """The means of both recipes, their difference, and the means of `bayes` and `whittle`."""
    mean = dict(zip(frame["policy"], frame["mean"], strict=True))
    own = {
        recipe: np.array([m for name, m in sorted(mean.items()) if name.startswith(recipe)])
        for recipe in ("exact", "sweep")
    }
    gap = own["exact"] - own["sweep"]
    error = gap.std(ddof=1) / np.sqrt(gap.size)
    known = [f"{mean[name]:.3f}" if name in mean else "" for name in ("bayes", "whittle")]
    return [
        f"{own['exact'].mean():.3f}", f"{own['sweep'].mean():.3f}",
        f"{gap.mean():+.3f} ± {error:.3f}", *known,
    ]  # fmt: skip


def setting_name(setting: Setting) -> str:
    """A setting in a few words."""
    options = "".join(f" {value}" for _, value in setting.train)
    return f"{setting.domain}{options} ({setting.n_arms}, {setting.budget:g})"


STUDIES: dict[str, Callable[[], str]] = {
    "exact": exact,
    "closest": closest,
    "horizon": horizon,
    "uncertainty": uncertainty,
    "sizes": sizes,
    "speed": speed,
    "log": log,
    "gain": gain,
    "left": left,
    "evidence": evidence,
    "scale": scale,
    "departures": departures,
    "unseen": unseen,
    "unseen-log": unseen_log,
    "durability": durability,
    "races": races,
    "damage": damage,
    "unseen-checks": unseen_checks,
}


def main(names: Sequence[str]) -> None:
    """Runs the named studies, or all, and writes a page for each."""
    use_compilation_cache()
    for name in names or STUDIES:
        study = STUDIES[name]
        title = (study.__doc__ or name).rstrip(".")
        page = (
            f"# {title}\n\n{study()}\nWritten by `python -m studies {name}`, "
            f"prefermab {prefermab.__version__}, JAX {jax.__version__} on "
            f"{jax.default_backend()}; evaluation seed {EVALUATION_SEED}.\n"
        )
        write_atomically(RESULTS / f"{name}.md", lambda draft, page=page: draft.write_text(page))
        print(f"wrote {RESULTS / name}.md", flush=True)


def chosen_studies(arguments: Sequence[str]) -> list[str]:
    """The studies that the command line names, by default all."""
    about = "\n".join(f"  {name:12} {study.__doc__}" for name, study in STUDIES.items())
    parser = argparse.ArgumentParser(
        prog="python -m studies",
        description="Runs studies and writes a page for each to docs/results. All take hours.",
        epilog=f"studies:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which studies (default: all)")
    names = parser.parse_args(arguments).names
    for name in names:
        if name not in STUDIES:
            parser.error(str(unknown("study", name, STUDIES)))
    return names


if __name__ == "__main__":
    main(chosen_studies(sys.argv[1:]))
