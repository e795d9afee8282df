"""Studies of our own: each trains, measures and writes a page under docs/results.

`make results` runs all of them, `python -m prefermab.experiments.studies sizes` one.
"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
import polars as pl

import prefermab
from prefermab import domains, plots, policies
from prefermab.commands.shared import use_compilation_cache
from prefermab.config import PAPER_EXCEPTIONS
from prefermab.evaluation import evaluate
from prefermab.experiments.settings import Setting, settings
from prefermab.features import FeatureMap
from prefermab.files import write_atomically
from prefermab.shaping import shaped
from prefermab.storage import load
from prefermab.training import pretrain_seeds
from prefermab.tuning import ddlpo, finetune

RESULTS, IMAGES = Path("docs/results"), Path("docs/images")
RATES = (0.8, 0.85, 0.9, 0.95, 1.0)
EVALUATION_SEED = 1


def paper_recipe() -> str:
    """Recipe `paper` on every setting, eight seeds each."""
    rows = []
    for setting in [s for s in settings() if s.published is not None]:
        domain = setting.make()
        exceptions = PAPER_EXCEPTIONS.get(setting.domain, {})
        seeds = range(8)
        models = pretrain_seeds(
            domain, seeds, setting.n_arms, setting.budget, "paper", **exceptions
        )
        capped = setting.domain == "synthetic"
        frame = measured(setting, {str(m.config.seed): m for m in models}, RATES, bound=capped)
        each = means(frame)
        assert setting.published is not None
        goal = setting.published - setting.sd / np.sqrt(50)
        if capped:
            goal = min(goal, 0.99 * frame.filter(pl.col("opt_in") == 1)["bound"][0])
        by_rate = [each[rate].mean() for rate in RATES]
        full = each[1.0]
        rows.append(
            [
                str(setting), f"{setting.published:.2f}", f"{goal:.2f}",
                *(f"{mean:.3f}" for mean in by_rate), f"{full.min() / full.mean():.1%}",
                "yes" if full.mean() >= goal and full.min() >= 0.97 * full.mean() else "no",
            ]
        )  # fmt: skip
    head = ["setting", "published, 100 %", "goal", *(f"{rate:.0%}" for rate in RATES)]
    return (
        "Reward per opted-in arm, mean of 8 training seeds (0 to 7), 1,000 paired trials a seed "
        "(SIS 200). The goal is the published figure less one standard error of its 50 trials, on "
        "Synthetic at most 99 % of the bound. It counts as reached if no seed is below 97 % of "
        "the mean either.\n\n"
        + table([*head, "worst seed, of mean", "reached"], rows)
        + "\nPublished figures above the bound (Synthetic at 48 arms) are luck of the test arms; "
        "continuous-synthetic uses the paper's exception, a price step that falls by 0.95.\n"
    )


def sweep_recipe() -> str:
    """Recipe `sweep` on every setting, sixteen seeds each."""
    rows = []
    trained = {}
    for setting in settings():
        domain = setting.make()
        knows = "whittle" if setting.domain in ("synthetic", "armman") else "lagrangian"
        what = (setting.domain, str(setting.options))
        if what not in trained:
            trained[what] = pretrain_seeds(domain, range(16))
        models = {str(m.config.seed): m for m in trained[what]}
        informed = policies.BY_NAME[knows]()
        frame = measured(setting, {"0": models["0"], knows: informed}, RATES, bound=True)
        shares = []
        for rate in RATES:
            here = frame.filter(pl.col("opt_in") == rate)
            mean = dict(zip(here["policy"], here["mean"], strict=True))
            shares.append(f"{mean['0'] / mean[knows]:.1%} / {mean['0'] / here['bound'][0]:.1%}")
        full = means(measured(setting, models, (1.0,), bound=False))[1.0]
        rows.append(
            [str(setting), knows, *shares, f"{full.mean():.3f}", f"{full.min() / full.mean():.2%}"]
        )
    head = ["setting", "informed policy", *(f"{rate:.0%}" for rate in RATES)]
    return (
        "Seed 0 at five opt-in rates: share of the policy that knows the dynamics / share of the "
        "upper bound; 1,000 paired trials (SIS 200). Then 16 training seeds at 100 %: mean reward "
        "per arm, and the worst seed's share of it. A model is trained once for a domain and used "
        "at every size.\n\n" + table([*head, "16 seeds", "worst seed, of mean"], rows)
    )


def sizes() -> str:
    """One ARMMAN model at four sizes beside models trained for the purpose."""
    shipped, domain = load("armman"), domains.Armman()
    rows = []
    for n_arms, budget, trials in ((10, 3, 1000), (50, 10, 1000), (250, 70, 300), (2000, 300, 60)):
        own = pretrain_seeds(domain, (101, 102, 103), n_arms, budget)
        compared = {"shipped": shipped, "whittle": policies.Whittle()}
        compared |= {f"own {m.config.seed}": m for m in own}
        frame = evaluate(
            domain, compared, n_arms, budget, trials=trials, seed=EVALUATION_SEED, bound=False
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
        "each size (three seeds, mean). Recipe `sweep` does not use the size, so the difference is "
        "that between seeds.\n\n"
        + table(["size", "shipped", "for the purpose", "difference", "whittle", "trials"], rows)
    )


def finetuning() -> str:
    """Fine-tuning on 21 unseen Synthetic arms beside DDLPO from scratch."""
    model, parts = load("synthetic"), []
    cases = {
        "Features as in pretraining": domains.Synthetic(),
        "Features mixed anew, so that the model has to learn what they mean": domains.Synthetic(
            feature_map=FeatureMap(seed=5)
        ),
    }
    for title, domain in cases.items():
        rows = []
        for seed in range(8):
            arms = domain.draw_arms(jax.random.key(1000 + seed), 21)
            topline = ddlpo(domain, arms, 7, seed=seed)
            blind = ddlpo(domain, arms, 7, seed=seed, with_features=False)
            tuned = finetune(model, domain, arms=arms, budget=7, seed=seed)
            compared = {
                "as it was": model,
                "tuned": tuned,
                "DDLPO last": topline.last,
                "DDLPO best": topline.best,
                "blind last": blind.last,
                "blind best": blind.best,
                "whittle": policies.Whittle(),
            }
            frame = evaluate(domain, compared, budget=7, arms=arms, seed=EVALUATION_SEED)
            mean = dict(zip(frame["policy"], frame["mean"], strict=True))
            needed = samples_to_reach(mean["DDLPO last"], mean["as it was"], tuned.history)
            shown = [f"{mean[name]:.3f}" for name in compared]
            rows.append([str(seed), *shown, f"{frame['bound'][0]:.3f}", needed])
        head = ["arms", "as it was", "tuned, 400 samples", "DDLPO last", "DDLPO best"]
        head += ["without features, last", "best", "whittle", "bound", "samples to reach DDLPO"]
        parts.append(f"## {title}\n\n" + table(head, rows))
    return (
        "Reward per arm on eight sets of 21 arms that no model has seen, budget 7, 1,000 trials of "
        "the same arms. DDLPO uses 10,000 samples of each arm (100 epochs of 100 rounds); its best "
        "epoch is chosen on 50 test trials, as the paper does. The last column: samples of each "
        "arm after which fine-tuning first earned DDLPO's last-epoch reward (on 200 trials), 0 "
        "where the pretrained model did from the start. 5 % of DDLPO's samples are 500.\n\n"
        + "\n".join(parts)
    )


def samples_to_reach(goal: float, before: float, history: pl.DataFrame | None) -> str:
    """Samples of each arm until the curve reaches the goal."""
    if before >= goal:
        return "0"
    assert history is not None
    reached = history.filter(pl.col("mean") >= goal)
    return str(reached["samples_per_arm"][0]) if len(reached) else "not reached"


def shaping() -> str:
    """StateShaping with and without, on the three rewards of Continuous Synthetic."""
    draw_shaping(IMAGES / "state-shaping.svg")
    rows = []
    for setting in [s for s in settings() if s.domain == "continuous-synthetic"]:
        row = [setting.options.get("reward", "identity")]
        for kind in ("none", "isotonic", "knn"):
            models = pretrain_seeds(
                setting.make(), range(8), setting.n_arms, setting.budget, "paper",
                shaping=kind, **PAPER_EXCEPTIONS[setting.domain],
            )  # fmt: skip
            compared = {str(m.config.seed): m for m in models}
            full = means(measured(setting, compared, (1.0,), bound=False))[1.0]
            row.append(f"{full.mean():.3f} ({full.min():.2f} to {full.max():.2f})")
        rows.append(row)
    return (
        "Continuous Synthetic (21, 7), recipe `paper`, 100 % opt-in, 1,000 paired trials: mean of "
        "8 seeds (worst to best). Published with / without: scaled 5.28 / 4.50, exponential 4.38 / "
        "3.80; the identity reward is published as 3.67 without saying which.\n\n"
        + table(["reward", "no shaping", "isotonic", "k-nearest neighbours"], rows)
        + "\nThe released code truncates continuous states to 0 or 1 before its network sees them; "
        "ours does not, with shaping or without.\n"
    )


def draw_shaping(path: Path) -> None:
    """The paper's example: a reward that is flat above half, seen with some noise."""
    rng = np.random.default_rng(0)
    states = rng.random(300)
    rewards = np.minimum(2 * states, 1.0) + rng.normal(0, 0.03, 300)
    cells = np.linspace(0, 1, 101)
    plots.save(
        plots.shaping(states, rewards, cells, shaped(cells, states, rewards, "isotonic")), path
    )


def speed() -> str:
    """Seconds for 100 epochs of recipe `paper`, one seed and eight."""
    domain, rows = domains.Synthetic(), []
    jax.config.update("jax_enable_compilation_cache", False)
    took = {}
    for n_seeds in (1, 8):
        jax.clear_caches()
        runs = []
        for _ in range(4):
            begun = time.perf_counter()
            pretrain_seeds(domain, range(n_seeds), 21, 7, "paper")
            runs.append(time.perf_counter() - begun)
        took[n_seeds] = min(runs[1:])
        rows.append([str(n_seeds), f"{runs[0] - took[n_seeds]:.1f}", f"{took[n_seeds]:.2f}"])
    return (
        "Synthetic (21, 7), 100 epochs of 100 rounds, best of three runs after one that compiles; "
        "the compilation cache is off. Run with `taskset -c 0` for one core.\n\n"
        + table(["seeds at once", "compilation, s", "training, s"], rows)
        + f"\nEight seeds take {took[8] / took[1]:.1f} times as long as one.\n"
    )


def measured(
    setting: Setting, compared: Mapping[str, object], rates: Sequence[float], bound: bool
) -> pl.DataFrame:
    """A comparison on a setting."""
    return evaluate(
        setting.make(), compared, setting.n_arms, setting.budget, rates, setting.trials,
        seed=EVALUATION_SEED, bound=bound,
    )  # fmt: skip


def means(frame: pl.DataFrame) -> dict[float, np.ndarray]:
    """The seeds' means, by opt-in rate."""
    rates = frame["opt_in"].unique(maintain_order=True).to_list()
    return {rate: frame.filter(pl.col("opt_in") == rate)["mean"].to_numpy() for rate in rates}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


STUDIES: dict[str, Callable[[], str]] = {
    "paper": paper_recipe,
    "sweep": sweep_recipe,
    "sizes": sizes,
    "finetuning": finetuning,
    "shaping": shaping,
    "speed": speed,
}


def main(names: Sequence[str]) -> None:
    """Runs the named studies, or all, and writes a page for each."""
    use_compilation_cache()
    for name in names or STUDIES:
        study = STUDIES[name]
        title = (study.__doc__ or name).rstrip(".")
        page = (
            f"# {title}\n\n{study()}\nWritten by `python -m prefermab.experiments.studies {name}`, "
            f"prefermab {prefermab.__version__}, JAX {jax.__version__} on "
            f"{jax.default_backend()}; evaluation seed {EVALUATION_SEED}.\n"
        )
        write_atomically(RESULTS / f"{name}.md", lambda draft, page=page: draft.write_text(page))
        print(f"wrote {RESULTS / name}.md", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
