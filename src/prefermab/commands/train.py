"""Verbs that train: pretrain and finetune."""

import contextlib
import dataclasses
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from prefermab import domains, plots
from prefermab.commands.shared import model_and_domain, progress, settings
from prefermab.compiled import use_compilation_cache
from prefermab.config import RECIPES
from prefermab.errors import InputError, count, unknown
from prefermab.events import check_events, write_events
from prefermab.finetuning import finetune as tune
from prefermab.model import Model
from prefermab.storage import check_place
from prefermab.training import TrainingError, pretrain_seeds
from prefermab.verbs import models as verbs


def pretrain(options: verbs.Pretrain) -> None:
    """Trains and saves; what was learned so far outlives an interruption."""
    use_compilation_cache()
    domain = domains.get(options.domain, **settings(options.settings))
    hyper = hyperparameters(options)
    seeds = range(options.seed, options.seed + count(options.seeds, "seeds"))
    places = [options.out / f"seed-{seed}" for seed in seeds]
    for place in places if options.seeds > 1 else [options.out]:
        check_folder(place, options.overwrite)
    if options.tensorboard is not None:
        check_events()
    checkpoint = options.out.with_name(options.out.name + ".checkpoint")
    if checkpoint.exists() and not options.resume:
        raise InputError(
            f"{checkpoint} holds a training that was cut short: add --resume to go on with it, or "
            "delete it to start anew."
        )
    if options.resume and not checkpoint.exists():
        raise InputError(f"there is nothing to resume at {checkpoint}: leave --resume out.")
    trouble = None
    with progress() as report, hint_to_resume(checkpoint):
        try:
            trained = pretrain_seeds(
                domain,
                list(seeds),
                options.n_arms,
                options.budget,
                options.recipe,
                progress=report,
                checkpoint=checkpoint,
                resume=options.resume,
                **hyper,
            )
        except TrainingError as error:
            trained, trouble = list(error.sound), error
    folders = []
    for model in trained:
        single = options.seeds == 1
        folders.append(options.out if single else options.out / f"seed-{model.config.seed}")
        keep(model, folders[-1], options.tensorboard)
    if trouble is not None:
        raise trouble
    own = "" if options.domain in domains.BY_NAME else own_domain(options)
    print(f"See how good it is: prefermab evaluate {folders[0]}{own}")


def own_domain(options: verbs.Pretrain) -> str:
    """What a command must say of a domain that a model's folder does not know how to make."""
    changes = "".join(f" {shlex.quote(change)}" for change in options.settings)
    return f" --domain {shlex.quote(options.domain)}{' --set' if changes else ''}{changes}"


def hyperparameters(options: verbs.Pretrain) -> dict[str, Any]:
    """Those of the recipe that is asked for; others are not passed over in silence."""
    if options.recipe not in RECIPES:
        raise unknown("recipe", options.recipe, RECIPES)
    for name in RECIPES:
        given = getattr(options, name)
        if name != options.recipe and given != type(given)():
            raise InputError(
                f"--{name}... sets the recipe {name}, but the recipe is {options.recipe}: add "
                f"--recipe {name}."
            )
    hyper = dataclasses.asdict(getattr(options, options.recipe))
    del hyper["seed"]  # each model has its own
    return hyper


def finetune(options: verbs.Finetune) -> None:
    """Learns further from arms drawn from the model's domain, and saves."""
    use_compilation_cache()
    model, domain = model_and_domain(options.model, settings(options.settings), options.domain)
    if model is None:
        raise InputError(f"{options.model} is a domain, not a model: see prefermab models.")
    check_folder(options.out, options.overwrite)
    n_arms = count(model.n_arms if options.n_arms is None else options.n_arms, "n_arms")
    key = jax.random.key(count(options.arms_seed, "arms_seed", at_least=0))
    arms = domain.draw_arms(key, n_arms)
    with progress() as report:
        tuned = tune(
            model,
            domain,
            arms=arms,
            budget=options.budget,
            progress=report,
            **dataclasses.asdict(options.tuning),
        )
    print(tuned.tuned)
    keep(tuned, options.out, None)


def keep(model: Model, folder: Path, events: Path | None) -> None:
    """Saves a model with its metrics and a picture of them."""
    model.save(folder)
    if model.history is not None:
        with contextlib.suppress(plots.NoPlotsError):
            plots.save(plots.curves(model.history), folder / "curves.svg")
        if events is not None:
            write_events(model.history, events / folder.name)
    print(f"saved {folder}")


def check_folder(out: Path, overwrite: bool) -> None:
    """The place for a model must be free, or hold one that may go; found out before the work."""
    if out.is_file():
        raise InputError(f"cannot save to {out}: it is a file.")
    check_place(out)
    if (out / "config.json").exists() and not overwrite:
        raise InputError(
            f"{out} holds a model already: add --overwrite to replace it, or take another folder."
        )


@contextlib.contextmanager
def hint_to_resume(checkpoint: Path) -> Iterator[None]:
    """Says how to go on after Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint.exists():
            print(f"{checkpoint} is kept: go on with --resume.", file=sys.stderr)
        raise
