"""The effect of each departure of recipe `paper` from the paper, and table 5 of the paper.

Measuring and writing the page are separate commands, so that another machine can measure.
`python -m studies.departures PART ... --out FOLDER` trains and measures the cases of a part. It
writes FOLDER/PART.json after each case and skips cases that are in this file, so the same command
continues after an interruption. `python -m studies departures` writes the page from studies/data.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import prefermab
from prefermab import domains, policies
from prefermab.arms.features import FeatureMap
from prefermab.common.files import use_compilation_cache, write_atomically
from prefermab.domains import Domain
from prefermab.errors import unknown
from prefermab.evaluation.compare import trial_batches, trial_keys, trial_rewards
from prefermab.models.model import Model
from prefermab.paper.runner import EVALUATION_SEED
from prefermab.paper.tables import PAPER_EXCEPTIONS
from prefermab.recipes import Paper
from prefermab.recipes.base import choices
from prefermab.training.pretraining import pretrain_seeds

DATA = Path("studies/data/departures")
RATES = (0.8, 1.0)
SWITCHED: dict[str, dict[str, Any]] = {
    "synthetic": {}, "armman": {}, "sis": {"population": 50}, "continuous-synthetic": {},
}  # fmt: skip
"""Domains on which single switches are measured, with the settings of each domain."""

LITERAL_ARMS: dict[str, dict[str, Any]] = {
    "armman": {"motivated": (0.25, 0.75), "draws": "uniform"},
    "sis": {"draws": "uniform"},
}
"""How arms are drawn according to the printed paper, where ours follow the released code."""

UNIFORM = FeatureMap("linear", entries="uniform")
IDENTITY = FeatureMap("identity")
PASSES = (20, 100, 336)
LENGTHS = {30: 6, 100: 20}
"""Epochs of training: the number of last epochs in which the price is frozen."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to train, on one domain."""

    name: str
    domain: Domain
    recipe: str = "paper"
    settings: tuple[tuple[str, Any], ...] = ()


@dataclasses.dataclass(frozen=True)
class Effort:
    """The size of the measurements: training seeds, trials (a fifth for epidemics), whether
    trainings are tiny (`small`), and the seconds after which no further case begins."""

    seeds: int = 8
    trials: int = 1000
    small: bool = False
    seconds: float = float("inf")


SMALL = {"epochs": 4, "rounds": 5, "passes": 2, "freeze": 1}


def switch_cases(name: str) -> Iterator[Case]:
    """Recipe `paper` on a domain: as it is, with each single switch set as in the paper, and with
    all switches set as in the paper."""
    own = tuple(PAPER_EXCEPTIONS.get(name, {}).items())
    here = domains.get(name, **SWITCHED[name])
    yield Case("ours", here, settings=own)
    yield Case("literal", here, "paper-literal", own)
    yield Case("price_start=0", here, settings=(*own, ("price_start", 0.0)))
    for switch, (_, other) in choices(Paper).items():
        yield Case(f"{switch}={other}", here, settings=(*own, (switch, other)))
    yield from drawn_cases(name, own)


def drawn_cases(name: str, own: tuple[tuple[str, Any], ...]) -> Iterator[Case]:
    """Cases that draw arms and projections as in the printed paper or the released code."""
    plain, drawn = SWITCHED[name], LITERAL_ARMS.get(name, {})
    yield Case("entries=uniform", domains.get(name, **plain, feature_map=UNIFORM), settings=own)
    for setting, value in drawn.items():
        changed = domains.get(name, **plain, **{setting: value})
        yield Case(f"{setting}={value}", changed, settings=own)
    letter = domains.get(name, **plain, **drawn, feature_map=UNIFORM)
    yield Case("literal, arms and features too", letter, "paper-literal", own)


def table5_cases(reward: str, epochs: int) -> Iterator[Case]:
    """Each StateShaping and none, with few and many optimiser steps, and with `paper-literal`. The
    released code makes one step for each arm."""
    domain = domains.ContinuousSynthetic(reward, feature_map=IDENTITY)
    length = (("price_decay", 0.95), ("epochs", epochs), ("freeze", LENGTHS[epochs]))
    for shaping in ("isotonic", "knn", "none"):
        own = (*length, ("shaping", shaping))
        for passes in PASSES:
            title = f"{shaping}, {passes} passes"
            yield Case(title, domain, settings=(*own, ("passes", passes)))
        yield Case(f"{shaping}, 20 passes arm by arm", domain, settings=(*own, ("step_on", "arm")))
        yield Case(f"{shaping}, literal", domain, "paper-literal", own)


PARTS: dict[str, tuple[Any, ...]] = {
    **{f"switches-{name}": (switch_cases, name) for name in SWITCHED},
    **{
        f"table5-{reward}-{epochs}": (table5_cases, reward, epochs)
        for reward in ("scaled", "exponential")
        for epochs in LENGTHS
    },
}


def cases_of(part: str) -> list[Case]:
    """All cases of a part."""
    make, *about = PARTS[part]
    return list(make(*about))


def measure_part(part: str, folder: Path, effort: Effort, begun: float) -> None:
    """Measures the cases that are not in the part's file yet; writes the file after each case."""
    file = folder / f"{part}.json"
    found = json.loads(file.read_text()) if file.exists() else []
    done = {entry["case"] for entry in found}
    for case in cases_of(part):
        if case.name in done:
            continue
        if time.perf_counter() - begun > effort.seconds:
            print(f"{part}: stopped before '{case.name}'; the same command continues", flush=True)
            return
        found.append(measure(case, effort))
        text = json.dumps(found, indent=1)
        write_atomically(file, lambda draft, text=text: draft.write_text(text))
        print(part, case_summary(found[-1]), flush=True)


def measure(case: Case, effort: Effort) -> dict[str, Any]:
    """The rewards of a case's models, seed by seed, and of No Action."""
    begun = time.perf_counter()
    settings: dict[str, Any] = dict(case.settings) | (SMALL if effort.small else {})
    models = pretrain_seeds(
        case.domain, range(effort.seeds), case.recipe, keep_collapsed=True, **settings
    )
    trained = time.perf_counter() - begun
    reward, no_action = {}, {}
    for rate in RATES:
        players = [policies.NoAction(), *(model.policy for model in models)]
        none, *each = (earned(player, case.domain, rate, effort) for player in players)
        reward[f"{rate:g}"], no_action[f"{rate:g}"] = each, none
    return {
        "case": case.name, "recipe": case.recipe, "settings": dict(case.settings),
        "reward": reward, "none": no_action, "collapsed": [collapsed(model) for model in models],
        "price": [model.history["price"][-1] for model in models if model.history is not None],
        "effort": {"seeds": effort.seeds, "trials": effort.trials, "small": effort.small},
        "package": prefermab.__version__, "backend": jax.default_backend(),
        "seconds": [round(trained, 1), round(time.perf_counter() - begun, 1)],
    }  # fmt: skip


def earned(policy: policies.Policy, domain: Domain, rate: float, effort: Effort) -> float:
    """Mean reward per arm on the trials that all cases of a domain share."""
    trials = max(2, effort.trials // 5) if domain.name == "sis" else effort.trials
    batches = trial_batches(domain, domain.usual_arms, rate, trial_keys(EVALUATION_SEED, trials))
    budget = jnp.float32(domain.usual_budget)
    return round(float(trial_rewards(policy, domain, batches, budget, trials).mean()), 5)


def collapsed(model: Model) -> bool:
    """Whether the model's policy gives all arms the same action."""
    assert model.history is not None
    rows = {name: model.history[name].to_numpy() for name in model.history.columns}
    return model.config.collapsed(rows, model.budget) is not None


def case_summary(entry: dict[str, Any]) -> str:
    """The result of a case in one line."""
    each = np.array(entry["reward"]["1"])
    return f"{entry['case']}: {each.mean():.3f} (worst {each.min():.3f}), {entry['seconds']} s"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures the parts that the command line names, by default all."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.departures", epilog=f"parts: {', '.join(PARTS)}",
        description="Measures what departures from the paper are worth.",
    )  # fmt: skip
    parser.add_argument("parts", nargs="*", metavar="PART", help="which parts (default: all)")
    parser.add_argument(
        "--out", type=Path, default=DATA, help=f"folder of the data (default: {DATA})"
    )
    parser.add_argument("--seeds", type=int, default=Effort.seeds)
    parser.add_argument("--trials", type=int, default=Effort.trials)
    parser.add_argument("--small", action="store_true", help="tiny trainings, as a quick test")
    parser.add_argument(
        "--seconds",
        type=float,
        default=Effort.seconds,
        help="begin no new case after this many seconds",
    )
    given = parser.parse_args(arguments)
    for part in given.parts:
        if part not in PARTS:
            parser.error(str(unknown("part", part, PARTS)))
    use_compilation_cache()
    begun = time.perf_counter()
    effort = Effort(given.seeds, given.trials, given.small, given.seconds)
    for part in given.parts or PARTS:
        measure_part(part, given.out, effort, begun)


if __name__ == "__main__":
    main()
