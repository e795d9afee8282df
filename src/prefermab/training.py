"""Pretraining: from a domain and a recipe to a model."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prefermab.arms import TrialKeys
from prefermab.config import Sweep, recipe_config
from prefermab.domains.base import Domain
from prefermab.errors import InputError, count, number
from prefermab.model import Model
from prefermab.recipes import sweep

Progress = Callable[[float, str], None]
PIECES = 20
"""Into how many pieces a training is cut, to report and to look for trouble between them."""


class TrainingError(InputError):
    """Training went wrong: nothing was saved, and the message names the step."""


def pretrain(
    domain: Domain,
    n_arms: int | None = None,
    budget: float | None = None,
    recipe: str = "sweep",
    seed: int = 0,
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> Model:
    """A model trained on arms of `domain`.

    `n_arms` and `budget` say what it is meant for; a model of the recipe `sweep` learns the same
    whatever they are, and decides for any. `settings` are the recipe's hyperparameters.

    >>> import prefermab as pm
    >>> model = pm.pretrain(pm.domains.Synthetic(), n_arms=21, budget=7, steps=50)
    >>> model.action_names
    ('none', 'act')
    """
    return pretrain_seeds(domain, [seed], n_arms, budget, recipe, progress=progress, **settings)[0]


def pretrain_seeds(
    domain: Domain,
    seeds: Sequence[int],
    n_arms: int | None = None,
    budget: float | None = None,
    recipe: str = "sweep",
    *,
    progress: Progress | None = None,
    **settings: Any,
) -> list[Model]:
    """Several independent trainings in one computation, one model a seed.

    >>> import prefermab as pm
    >>> len(pm.pretrain_seeds(pm.domains.Synthetic(), [0, 1], steps=20))
    2
    """
    if not isinstance(domain, Domain):
        raise InputError(f"domain must be a Domain such as Armman(), not {domain!r}.")
    if not seeds:
        raise InputError("seeds must name at least one seed.")
    config = recipe_config(recipe, settings)
    places = count(domain.usual_arms if n_arms is None else n_arms, "n_arms")
    money = number(domain.usual_budget if budget is None else budget, "budget")
    for size in ("steps", "arms", "width", "depth"):
        count(getattr(config, size), size)
    numbers = [count(seed, "seed", at_least=0) for seed in seeds]
    keys = jnp.stack([jax.random.key(seed) for seed in numbers])

    learner = _start(config, domain, keys)
    done = 0
    while done < config.steps:
        piece = min(-(-config.steps // PIECES), config.steps - done)
        learner, losses = _train(config, domain, learner, keys, jnp.asarray(piece))
        done += piece
        for seed, loss in zip(numbers, np.asarray(losses), strict=True):
            if not np.isfinite(loss):
                raise TrainingError(
                    f"training of seed {seed} broke down by step {done} of {config.steps}: "
                    "the loss is no longer a number; try a smaller learning_rate."
                )
        if progress is not None:
            progress(done / config.steps, f"step {done:,}, loss {float(losses.mean()):.4f}")
    arrays, fixed = eqx.partition(learner.slow, eqx.is_array)
    return [
        _model(
            recipe_config(recipe, {**settings, "seed": seed}),
            domain,
            eqx.combine(jax.tree.map(lambda x, i=i: x[i], arrays), fixed),
            recipe,
            places,
            money,
        )
        for i, seed in enumerate(numbers)
    ]


@eqx.filter_jit
def _start(config: Sweep, domain: Domain, keys: TrialKeys) -> sweep.Learner:
    return eqx.filter_vmap(lambda key: sweep.start(config, domain, key))(keys)


@eqx.filter_jit
def _train(
    config: Sweep,
    domain: Domain,
    learner: sweep.Learner,
    keys: TrialKeys,
    n_steps: Int[Array, ""],
) -> tuple[sweep.Learner, Float[Array, "trial"]]:
    each = eqx.filter_vmap(sweep.train, in_axes=(None, None, eqx.if_array(0), 0, None))
    return each(config, domain, learner, keys, n_steps)


def _model(
    config: Sweep, domain: Domain, network: Any, recipe: str, n_arms: int, budget: float
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
