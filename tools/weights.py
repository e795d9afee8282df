"""Makes the shipped models: trains and evaluates each, and writes its model card.

`make weights` runs this file; `python -m tools.weights armman` rebuilds one.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import polars as pl

import prefermab
from prefermab import domains, policies
from prefermab.cli.terminal import progress
from prefermab.common.files import use_compilation_cache
from prefermab.errors import unknown
from prefermab.evaluation.compare import evaluate
from prefermab.models.loading import load
from prefermab.models.model import Model
from prefermab.networks.worth import Worth
from prefermab.paper.tables import PAPER_EXCEPTIONS
from prefermab.recipes import Exact
from prefermab.recipes.last_rounds import LearnerToEnd
from prefermab.training.pretraining import pretrain

OPT_IN = (0.8, 0.85, 0.9, 0.95, 1.0)
TRIALS = {"sis": 200, "continuous-sis": 200, "armman-unseen": 200}
"""Number of trials, if not 1,000: on these domains the bound takes a hundred times as long."""

SHIPPED = (*domains.BY_NAME, "armman-unseen")
"""Domains of the shipped models; all but the last also have a model of the recipe `paper`."""

LONGEST = 12
"""Largest number of rounds left for which the models of recipe `exact` are trained."""

ROUNDS_LEFT_NOTE = (
    "With `rounds_left` up to {}, the present round included, it allows for the end of a "
    "programme; docs/results/left.md has what that is worth.\n"
)

WEIGHTS = Path(prefermab.__file__).parent / "weights"


def train_shipped(name: str) -> Model:
    """Trains the model with this name by the default settings of its recipe."""
    recipe = "paper" if name.endswith("-paper") else "exact"
    domain = name.removesuffix("-paper")
    exceptions: dict[str, Any] = {"rounds_left": LONGEST} if domain in domains.BY_NAME else {}
    if recipe == "paper":
        exceptions = PAPER_EXCEPTIONS.get(domain, {})
    with progress() as report:
        return pretrain(domains.get(domain), recipe=recipe, seed=0, progress=report, **exceptions)


def teach_end(name: str) -> Model:
    """The shipped model with this name, with a newly trained network for the last rounds of a
    programme."""
    model = load(name)
    assert isinstance(model.config, Exact)
    assert isinstance(model.network, Worth)
    assert model.domain is not None
    recipe = dataclasses.replace(model.config, rounds_left=LONGEST)
    learner, key = recipe.learner, jax.random.fold_in(jax.random.key(recipe.seed), 2)
    assert isinstance(learner, LearnerToEnd)
    begin, proceed = eqx.filter_jit(learner.begin), eqx.filter_jit(learner.proceed)
    state = begin(model.domain, model.network.perception, key)
    state = proceed(model.domain, recipe.steps, state, key)
    network = dataclasses.replace(model.network, to_end=state.slow)
    note = "\n" + ROUNDS_LEFT_NOTE.format(LONGEST)
    card = model.card.removesuffix(note) + note
    return dataclasses.replace(model, config=recipe, network=network, card=card)


def with_cards(domain_name: str, models: dict[str, Model]) -> dict[str, Model]:
    """The models of a domain by name, each with a model card from one comparison of all."""
    trials = TRIALS.get(domain_name, 1000)
    informed = (
        "whittle" if domain_name in ("synthetic", "armman", "armman-unseen") else "lagrangian"
    )
    compared = {n: policies.BY_NAME[n]() for n in ("none", "random", "myopic", informed)}
    with progress() as report:
        frame = evaluate(
            domains.get(domain_name), {**models, **compared}, opt_in=OPT_IN, trials=trials, seed=1,
            progress=report,
        )  # fmt: skip
    return {
        name: dataclasses.replace(model, history=None, card=model_card(name, model, frame, trials))
        for name, model in models.items()
    }


def model_card(name: str, model: Model, frame: pl.DataFrame, trials: int) -> str:
    """The model card: the model, its measured rewards, and the command that measures them."""
    lines = [
        f"# {name}",
        "",
        f"Pretrained on the domain `{model.domain_name}` with the recipe `{model.recipe}`, seed "
        f"{model.config.seed}; {len(model.feature_names)} features, actions "
        f"{', '.join(model.action_names)}. It decides for any number of arms and any budget.",
        "",
        f"Reward per opted-in arm, {model.n_arms} arms, budget {model.budget:g}, {trials} paired "
        "trials of nine rounds, mean ± standard error. `whittle`, `lagrangian` and `myopic` know "
        "the true dynamics; the models see features only.",
        "",
        "| policy | " + " | ".join(f"{rate:.0%}" for rate in OPT_IN) + " |",
        "|---|" + "---|" * len(OPT_IN),
    ]
    for policy in frame["policy"].unique(maintain_order=True):
        rows = frame.filter(pl.col("policy") == policy).sort("opt_in")
        cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(rows["mean"], rows["stderr"], strict=True)]
        lines.append(f"| {policy} | " + " | ".join(cells) + " |")
    own = frame.filter(pl.col("policy") == name).sort("opt_in")
    lines.append("| bound | " + " | ".join(f"{b:.3f}" for b in own["bound"]) + " |")
    lines.append(f"| {name}, of bound | " + " | ".join(f"{b:.1%}" for b in own["of_bound"]) + " |")
    rates = " ".join(f"{rate:g}" for rate in OPT_IN)
    lines += [
        "",
        "Measured by",
        f"`prefermab evaluate {name} --opt-in {rates} --trials {trials} --seed 1`;",
        f"made by `python -m tools.weights {model.domain_name}`.",
        "",
    ]
    if model.network.longest is not None:
        lines.append(ROUNDS_LEFT_NOTE.format(model.network.longest))
    return "\n".join(lines)


def main(names: Sequence[str], ends: bool = False) -> None:
    """Builds the models of the named domains, or of all. With `ends`, trains only the network for
    the last rounds of a programme, in the models of recipe `exact`."""
    use_compilation_cache()
    for domain_name in names or (domains.BY_NAME if ends else SHIPPED):
        if ends:
            teach_end(domain_name).save(WEIGHTS / domain_name)
            print(f"saved {domain_name}", flush=True)
            continue
        both = (domain_name, domain_name + "-paper")
        models = {
            name: train_shipped(name) for name in both[: 1 + (domain_name in domains.BY_NAME)]
        }
        for name, model in with_cards(domain_name, models).items():
            model.save(WEIGHTS / name)
            print(f"saved {name}", flush=True)


def chosen_domains(arguments: Sequence[str]) -> tuple[list[str], bool]:
    """The domains named on the command line, by default all, and whether `--ends` was given."""
    known = ", ".join(SHIPPED)
    parser = argparse.ArgumentParser(
        prog="python -m tools.weights",
        description="Trains the models that ship and writes them to src/prefermab/weights.",
    )
    parser.add_argument("names", nargs="*", metavar="DOMAIN", help=f"{known} (default: all)")
    parser.add_argument(
        "--ends", action="store_true", help="only train the network for a programme's last rounds"
    )
    chosen = parser.parse_args(arguments)
    for name in chosen.names:
        if name not in SHIPPED:
            parser.error(str(unknown("domain", name, SHIPPED)))
    return chosen.names, chosen.ends


if __name__ == "__main__":
    main(*chosen_domains(sys.argv[1:]))
