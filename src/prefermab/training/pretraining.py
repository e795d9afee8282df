"""Pretraining: from a domain and a recipe to a model."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

import prefermab
from prefermab.arms.observation import Budget, TrialKeys
from prefermab.domains.base import Domain
from prefermab.domains.unseen import Unseen
from prefermab.domains.validate import check_once
from prefermab.errors import InputError, PrefermabError, amount, count
from prefermab.evaluation.compare import Progress
from prefermab.models.familiarity import FeatureRanges, draw_features
from prefermab.models.model import Model
from prefermab.networks.worth import Network
from prefermab.recipes.base import (
    METRICS,
    MetricRows,
    Metrics,
    Net,
    Recipe,
    TrainingState,
    make_recipe,
)
from prefermab.training.checkpoints import (
    Checkpoint,
    read_checkpoint,
    training_fingerprint,
    write_checkpoint,
)

T = TypeVar("T")


class TrainingError(PrefermabError):
    """Training failed; the message names the seed and the epoch. `sound` has the models of seeds
    that ended well; the other models are not kept."""

    __module__ = "prefermab"  # where users import it from

    sound: Sequence[Model] = ()


def pretrain(
    domain: Domain,
    recipe: str | Recipe = "exact",
    *,
    n_arms: int | None = None,
    budget: float | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> Model:
    """A model trained on arms of a domain.

    Args:
        domain: The family of arms to learn from.
        recipe: How to train: a name (`exact`, `sweep`, `paper` or `paper-literal`) or an object
            such as `pm.recipes.Paper(epochs=50)`.
        n_arms: Number of arms the model is meant for; the domain's usual number if left out. It
            makes no difference to what `exact` and `sweep` learn. Except for models of
            `paper-literal`, all decide for any number of arms.
        budget: Budget of a round the model is meant for; the domain's usual one if left out.
        seed: Random seed; that of the recipe if left out.
        progress: Called with the share that is done and a line of text.
        checkpoint: A file in which progress is saved; it is deleted when training is done.
        resume: Whether to continue the training that the checkpoint holds; the weights come out
            as without the interruption.
        **settings: Hyperparameters of the recipe.

    Returns:
        The trained model.

    >>> import prefermab as pm
    >>> model = pm.pretrain(pm.domains.Synthetic(), n_arms=21, budget=7, steps=20)
    >>> model.action_names
    ('none', 'act')
    >>> pm.pretrain(pm.domains.Synthetic(), pm.recipes.Sweep(steps=20)).recipe
    'sweep'
    """
    made = _recipe_for(recipe, domain, settings)
    models = pretrain_seeds(
        domain,
        [made.seed if seed is None else seed],
        made,
        n_arms=n_arms,
        budget=budget,
        progress=progress,
        checkpoint=checkpoint,
        resume=resume,
    )
    return models[0]


def pretrain_seeds(
    domain: Domain,
    seeds: Sequence[int],
    recipe: str | Recipe = "exact",
    *,
    n_arms: int | None = None,
    budget: float | None = None,
    progress: Progress | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    keep_collapsed: bool = False,
    **settings: Any,
) -> list[Model]:
    """Several independent trainings in one computation.

    Args:
        domain: The family of arms to learn from.
        seeds: Random seeds, one for each model.
        recipe: As in `pretrain`, and so are all other arguments.
        keep_collapsed: Whether to return also models whose policy has collapsed, for measurements;
            by default they are an error.

    Returns:
        One model for each seed.

    >>> import prefermab as pm
    >>> len(pm.pretrain_seeds(pm.domains.Synthetic(), [0, 1], steps=20))
    2
    """
    if not seeds:
        raise InputError("seeds must name at least one seed.")
    made = _recipe_for(recipe, domain, settings)
    places = count(domain.usual_arms if n_arms is None else n_arms, "n_arms")
    money = amount(domain.usual_budget if budget is None else budget, "budget")
    numbers = [count(seed, "seed", at_least=0) for seed in seeds]
    made.check(domain)

    training = training_fingerprint(
        prefermab.__version__, made.name, repr(made), domain, places, money, numbers
    )
    file = None if checkpoint is None else Path(checkpoint)
    state, rows = run(made, domain, places, money, numbers, progress, file, resume, training)
    if file is not None:
        file.unlink(missing_ok=True)

    networks = unstack(made.trained(state), len(numbers))
    template = _model(made, domain, networks[0], places, money)
    return _models_of_seeds(template, networks, rows, numbers, keep_collapsed)


def _recipe_for(recipe: str | Recipe, domain: Domain, settings: dict[str, Any]) -> Recipe:
    """The recipe; if it is given by name, its defaults are those that suit the domain."""
    check_once(domain)
    suited = domain.suits.get(recipe, {}) if isinstance(recipe, str) else {}
    return make_recipe(recipe, {**suited, **settings})


def run(
    recipe: Recipe[TrainingState, Net],
    domain: Domain,
    n_arms: int,
    budget: float,
    seeds: Sequence[int],
    progress: Progress | None,
    checkpoint: Path | None,
    resume: bool,
    training: str,
) -> tuple[TrainingState, MetricRows]:
    """Runs all pieces of a training, or those after its checkpoint; returns the states of all seeds
    and the metrics."""
    words = np.array([seed % 2**32 for seed in seeds], np.uint32)
    keys: TrialKeys = jax.vmap(jax.random.key)(words)
    at = Checkpoint(0, _init(recipe, domain, n_arms, keys), {})
    if checkpoint is not None and checkpoint.exists():
        if not resume:
            raise InputError(
                f"{checkpoint} holds an interrupted training: resume it, or delete the file."
            )
        at = read_checkpoint(checkpoint, training, at.state)
    state, rows, money = at.state, at.rows, jnp.asarray(budget, jnp.float32)
    for piece in range(at.pieces, len(recipe.pieces)):
        size, done = recipe.pieces[piece], sum(recipe.pieces[:piece])
        state, metrics = _step(recipe, domain, n_arms, money, size, state, keys)
        state = recipe.between(domain, state)
        new = _rows(recipe, metrics, done, size)
        _check_finite(new, recipe.unit, seeds)
        rows = _append(rows, new)
        if checkpoint is not None:
            write_checkpoint(checkpoint, training, Checkpoint(piece + 1, state, rows))
        if progress is not None:
            progress((done + size) / sum(recipe.pieces), _progress_line(new, recipe.unit))
    return state, rows


@eqx.filter_jit
def _init(
    recipe: Recipe[TrainingState, Net], domain: Domain, n_arms: int, keys: TrialKeys
) -> TrainingState:
    return eqx.filter_vmap(lambda key: recipe.init(domain, n_arms, key))(keys)


@eqx.filter_jit
def _step(
    recipe: Recipe[TrainingState, Net],
    domain: Domain,
    n_arms: int,
    budget: Budget,
    size: int,
    state: TrainingState,
    keys: TrialKeys,
) -> tuple[TrainingState, Metrics]:
    """One piece of training for each seed."""
    each = eqx.filter_vmap(recipe.step, in_axes=(None, None, None, None, eqx.if_array(0), 0))
    return each(domain, n_arms, budget, size, state, keys)


def _rows(recipe: Recipe, metrics: Metrics, done: int, size: int) -> MetricRows:
    """Metrics of a piece by name, and the numbers of the epochs or steps of each row."""
    found: MetricRows = {name: np.asarray(getattr(metrics, name)) for name in METRICS}
    each = found["loss"].shape[1]
    return {recipe.unit: done + size * (1 + np.arange(each)) // each, **found}


def _append(rows: MetricRows, new: MetricRows) -> MetricRows:
    if not rows:
        return new
    return {name: np.concatenate([rows[name], new[name]], axis=-1) for name in rows}


def _models_of_seeds(
    template: Model, networks: Sequence[Network], rows: MetricRows, seeds: Sequence[int], keep: bool
) -> list[Model]:
    """A model for each seed. Raises an error if some collapsed, which names these and holds the
    others; with `keep`, returns all."""
    assert template.domain is not None
    recipe, drawn, models, trouble = template.config, draw_features(template.domain), [], []
    for place, seed in enumerate(seeds):
        of_seed = {name: rows[name][place] for name in METRICS} | {recipe.unit: rows[recipe.unit]}
        since = None if keep else recipe.collapsed(of_seed, template.budget)
        if since is not None:
            trouble.append(f"seed {seed} since {recipe.unit} {since}")
            continue
        history = pl.DataFrame({recipe.unit: of_seed.pop(recipe.unit), **of_seed})
        models.append(
            dataclasses.replace(
                template,
                config=dataclasses.replace(recipe, seed=seed),
                network=networks[place],
                seen=FeatureRanges.from_features(drawn, networks[place].perception),
                history=history.with_columns(seed=pl.lit(seed)),
            )
        )
    if trouble:
        error = TrainingError(
            f"the policy has collapsed, giving everyone the same action ({', '.join(trouble)}): "
            "try another seed, more epochs or the recipe exact."
        )
        error.sound = models
        raise error
    return models


def _check_finite(rows: MetricRows, unit: str, seeds: Sequence[int]) -> None:
    for name, values in rows.items():
        if name == unit or np.isfinite(values).all():
            continue
        seed, epoch = np.argwhere(~np.isfinite(values))[0]
        raise TrainingError(
            f"training of seed {seeds[seed]} broke down by {unit} {rows[unit][epoch]}: the {name} "
            "is no longer a number; try a smaller step size."
        )


def _progress_line(rows: MetricRows, unit: str) -> str:
    shown = {name: rows[name][:, -1].mean() for name in ("reward", "spending", "price")}
    return f"{unit} {rows[unit][-1]}: " + ", ".join(f"{k} {v:.2f}" for k, v in shown.items())


def _model(recipe: Recipe, domain: Domain, network: Network, n_arms: int, budget: float) -> Model:
    costs = np.asarray(jax.vmap(domain.costs)(domain.draw_arms(jax.random.key(0), 1000)))
    shared = (costs == costs[0]).all()
    known = domain.sightings if isinstance(domain, Unseen) else None
    return Model(
        config=recipe,
        network=network,
        domain=domain,
        domain_name=domain.name,
        state_names=tuple(known.states if known else domain.state_names),
        action_names=tuple(domain.action_names),
        feature_names=tuple(domain.feature_names),
        costs=tuple(float(cost) for cost in costs[0]) if shared else None,
        n_arms=n_arms,
        budget=budget,
        sightings=known,
    )


def unstack(stacked: T, number: int) -> list[T]:
    """Splits networks that are stacked along their first axis. NumPy splits them, because JAX would
    compile for each shape.

    >>> import equinox as eqx, jax
    >>> from prefermab.training.pretraining import unstack
    >>> both = eqx.filter_vmap(lambda key: eqx.nn.Linear(2, 3, key=key))(
    ...     jax.random.split(jax.random.key(0)))
    >>> [one.weight.shape for one in unstack(both, 2)]
    [(3, 2), (3, 2)]
    """
    arrays, fixed = eqx.partition(stacked, eqx.is_array)
    arrays = jax.device_get(arrays)
    each = [jax.tree.map(lambda x, i=i: x[i], arrays) for i in range(number)]
    return [eqx.combine(one, fixed) for one in jax.device_put(each)]
