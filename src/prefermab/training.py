"""Pretraining: from a domain and a recipe to a model."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import polars as pl

import prefermab
from prefermab import checkpoints
from prefermab.arms import TrialKeys
from prefermab.checkpoints import Checkpoint
from prefermab.config import recipe_config
from prefermab.courses import COURSES, Course, Rows
from prefermab.domains.base import ContinuousDomain, Domain
from prefermab.domains.validate import check_once
from prefermab.errors import InputError, PrefermabError, count, number
from prefermab.evaluation import Progress
from prefermab.model import Model
from prefermab.networks import apart
from prefermab.recipes.metrics import METRICS
from prefermab.sharding import everywhere


class TrainingError(PrefermabError):
    """Training went wrong: the message names the seed and the epoch. `sound` are the models of the
    seeds that ended well; those that did not are not returned anywhere."""

    sound: Sequence[Model] = ()


def pretrain(
    domain: Domain,
    n_arms: int | None = None,
    budget: float | None = None,
    recipe: str = "exact",
    seed: int = 0,
    *,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> Model:
    """A model trained on arms of `domain`.

    `n_arms` and `budget` say what it is meant for; a model of the recipe `exact` or `sweep` learns
    the same whatever they are, and decides for any. `settings` are the recipe's hyperparameters.
    With a `checkpoint` file, a training that was cut short goes on with `resume=True` and ends in
    the same weights; the file is gone when training is done.

    >>> import prefermab as pm
    >>> model = pm.pretrain(pm.domains.Synthetic(), n_arms=21, budget=7, steps=50)
    >>> model.action_names
    ('none', 'act')
    """
    models = pretrain_seeds(
        domain, [seed], n_arms, budget, recipe,
        progress=progress, checkpoint=checkpoint, resume=resume, **settings,
    )  # fmt: skip
    return models[0]


def pretrain_seeds(
    domain: Domain,
    seeds: Sequence[int],
    n_arms: int | None = None,
    budget: float | None = None,
    recipe: str = "exact",
    *,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> list[Model]:
    """Several independent trainings in one computation, one model a seed.

    >>> import prefermab as pm
    >>> len(pm.pretrain_seeds(pm.domains.Synthetic(), [0, 1], steps=20))
    2
    """
    check_once(domain)
    if not seeds:
        raise InputError("seeds must name at least one seed.")
    config = recipe_config(recipe, settings)
    places = count(domain.usual_arms if n_arms is None else n_arms, "n_arms")
    money = number(domain.usual_budget if budget is None else budget, "budget")
    numbers = [count(seed, "seed", at_least=0) for seed in seeds]
    if getattr(config, "shaping", "none") != "none" and not isinstance(domain, ContinuousDomain):
        raise InputError("StateShaping is for continuous states: leave shaping at none.")

    course = COURSES[recipe](config, domain, places, money)
    training = checkpoints.fingerprint(
        prefermab.__version__, recipe, repr(config), domain, places, money, numbers
    )
    file = None if checkpoint is None else Path(checkpoint)
    with everywhere():
        learner, rows = run(course, numbers, progress, file, resume, training)
    if file is not None:
        file.unlink(missing_ok=True)

    networks = apart(course.result(learner), len(numbers))
    alike = _model(config, domain, networks[0], recipe, places, money)
    return _sound(course, alike, networks, rows, numbers)


def run(
    course: Course,
    seeds: Sequence[int],
    progress: Progress | None,
    checkpoint: Path | None,
    resume: bool,
    training: str,
) -> tuple[Any, Rows]:
    """All pieces of a course, or those that are left of it; the learner and all metrics."""
    words = np.array([seed % 2**32 for seed in seeds], np.uint32)
    keys: TrialKeys = jax.vmap(jax.random.key)(words)
    at = Checkpoint(0, course.start(keys), {}, {})
    if checkpoint is not None and checkpoint.exists():
        if not resume:
            raise InputError(
                f"{checkpoint} holds a training that was cut short: ask to resume it, or delete it."
            )
        at = checkpoints.load(checkpoint, training, at.learner)
        course.restore(at.kept)
    learner, rows = at.learner, at.rows
    for piece in range(at.pieces, course.pieces):
        learner, new = course.piece(learner, keys, piece)
        _check_finite(new, course.unit, seeds)
        joined = {name: np.concatenate([rows[name], new[name]], axis=-1) for name in rows}
        rows = joined if rows else new
        if checkpoint is not None:
            checkpoints.save(
                checkpoint, training, Checkpoint(piece + 1, learner, rows, course.kept())
            )
        if progress is not None:
            progress((piece + 1) / course.pieces, _told(new, course.unit))
    return learner, rows


def _sound(
    course: Course, alike: Model, networks: Sequence[Any], rows: Rows, seeds: Sequence[int]
) -> list[Model]:
    """A model for each seed, or the error that says which collapsed and holds the others."""
    models, trouble = [], []
    for place, seed in enumerate(seeds):
        since = course.collapsed(rows, place)
        if since is not None:
            trouble.append(f"seed {seed} since {course.unit} {since}")
            continue
        own = dataclasses.replace(alike.config, seed=seed)
        history = _history(rows, course.unit, place, seed)
        models.append(
            dataclasses.replace(alike, config=own, network=networks[place], history=history)
        )
    if trouble:
        error = TrainingError(
            f"the policy has collapsed, giving everyone the same action ({', '.join(trouble)}): "
            "try another seed, more epochs or the recipe exact."
        )
        error.sound = models
        raise error
    return models


def _check_finite(rows: Rows, unit: str, seeds: Sequence[int]) -> None:
    for name, values in rows.items():
        if name == unit or np.isfinite(values).all():
            continue
        seed, epoch = np.argwhere(~np.isfinite(values))[0]
        raise TrainingError(
            f"training of seed {seeds[seed]} broke down by {unit} {rows[unit][epoch]}: the {name} "
            "is no longer a number; try a smaller step size."
        )


def _told(rows: Rows, unit: str) -> str:
    shown = {name: rows[name][:, -1].mean() for name in ("reward", "spending", "price")}
    told = ", ".join(f"{name} {value:.2f}" for name, value in shown.items())
    return f"{unit} {rows[unit][-1]}: {told}"


def _history(rows: Rows, unit: str, place: int, seed: int) -> pl.DataFrame:
    """The metrics of one seed, one row for each epoch."""
    metrics = {name: rows[name][place] for name in METRICS}
    return pl.DataFrame({unit: rows[unit], **metrics}).with_columns(seed=pl.lit(seed))


def _model(
    config: Any, domain: Domain, network: Any, recipe: str, n_arms: int, budget: float
) -> Model:
    costs = np.asarray(jax.vmap(domain.costs)(domain.draw_arms(jax.random.key(0), 1000)))
    shared = (costs == costs[0]).all()
    return Model(
        recipe=recipe,
        config=config,
        network=network,
        domain=domain,
        domain_name=domain.name,
        state_names=tuple(domain.state_names),
        action_names=tuple(domain.action_names),
        feature_names=tuple(domain.feature_names),
        costs=tuple(float(cost) for cost in costs[0]) if shared else None,
        n_arms=n_arms,
        budget=budget,
    )
