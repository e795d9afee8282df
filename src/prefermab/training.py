"""Pretraining: from a domain and a recipe to a model."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prefermab.arms import TrialKeys
from prefermab.config import Paper, Sweep, recipe_config
from prefermab.domains.base import ContinuousDomain, Domain
from prefermab.errors import InputError, count, number
from prefermab.model import Model
from prefermab.networks import ActorCritic, Worth
from prefermab.recipes import paper, sweep
from prefermab.shaping import shaped

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
    for field in dataclasses.fields(config):
        if field.type is int and field.name not in ("seed", "freeze"):
            count(getattr(config, field.name), field.name)
    numbers = [count(seed, "seed", at_least=0) for seed in seeds]
    keys = jnp.stack([jax.random.key(seed) for seed in numbers])

    if getattr(config, "shaping", "none") != "none" and not isinstance(domain, ContinuousDomain):
        raise InputError("StateShaping is for continuous states: leave shaping at none.")
    course = COURSES[recipe](config, domain, places, jnp.asarray(money))
    learner = course.start(keys)
    for piece in range(course.pieces):
        learner, metrics = course.piece(learner, keys, piece)
        for seed, loss in zip(numbers, metrics["loss"], strict=True):
            if not np.isfinite(loss):
                raise TrainingError(
                    f"training of seed {seed} broke down in piece {piece + 1} of {course.pieces} "
                    f"({course.unit}): the loss is no longer a number; try a smaller step size."
                )
        if progress is not None:
            told = ", ".join(f"{name} {value.mean():.3f}" for name, value in metrics.items())
            progress((piece + 1) / course.pieces, told)
    arrays, fixed = eqx.partition(course.result(learner), eqx.is_array)
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


class SweepCourse:
    """A training by the recipe `sweep`, in pieces, for several seeds at once."""

    def __init__(self, config: Sweep, domain: Domain, n_arms: int, budget: Float[Array, ""]):
        del n_arms, budget
        self.config, self.domain = config, domain
        self.size = -(-config.steps // PIECES)
        self.pieces = -(-config.steps // self.size)
        self.unit = f"{self.size} steps each"

    def start(self, keys: TrialKeys) -> sweep.Learner:
        """Untrained."""
        return _start_sweep(self.config, self.domain, keys)

    def piece(self, learner: sweep.Learner, keys: TrialKeys, number: int):
        """A piece further, and how it went."""
        steps = min(self.size, self.config.steps - number * self.size)
        learner, loss = _train_sweep(self.config, self.domain, learner, keys, jnp.asarray(steps))
        return learner, {"loss": np.asarray(loss)}

    def result(self, learner: sweep.Learner) -> Worth:
        """The slow copy: an average over the last steps, and steadier for it."""
        return learner.slow


class PaperCourse:
    """A training by the recipe `paper`: a piece is a block of epochs and its price update."""

    def __init__(self, config: Paper, domain: Domain, n_arms: int, budget: Float[Array, ""]):
        self.config, self.domain, self.n_arms, self.budget = config, domain, n_arms, budget
        self.pieces = -(-config.epochs // config.subepochs)
        self.unit = f"{config.subepochs} epochs each"
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []

    def start(self, keys: TrialKeys) -> paper.Learner:
        """Untrained."""
        return _start_paper(self.config, self.domain, self.n_arms, keys)

    def piece(self, learner: paper.Learner, keys: TrialKeys, number: int):
        """A block further, StateShaping refitted, and how it went."""
        del number
        learner, metrics, seen = _train_paper(self.config, self.domain, self.budget, learner, keys)
        if self.config.shaping != "none":
            learner = self._reshape(learner, seen)
        last = {name: np.asarray(getattr(metrics, name))[:, -1] for name in paper.METRICS}
        return learner, last

    def result(self, learner: paper.Learner) -> ActorCritic:
        """All the networks."""
        return learner.network

    def _reshape(self, learner: paper.Learner, seen: paper.Trajectory) -> paper.Learner:
        """Line 24: the estimate of the reward refitted on all that was seen so far."""
        # The reward of a decision is that of the next state: pair them as they belong.
        n_seeds = seen.state.shape[0]
        states = np.concatenate(
            [np.asarray(seen.state)[:, 1:], np.asarray(seen.last_state)[:, None]], 1
        )
        self.seen.append(
            (states.reshape(n_seeds, -1), np.asarray(seen.reward).reshape(n_seeds, -1))
        )
        states, rewards = (np.concatenate(parts, axis=1) for parts in zip(*self.seen, strict=True))
        cells = np.asarray(self.domain.cells, float)
        codes = [
            2 * shaped(cells, states[i], rewards[i], self.config.shaping)[:, None] - 1
            for i in range(n_seeds)
        ]
        where = lambda it: it.network.perception.codes  # noqa: E731
        return eqx.tree_at(where, learner, jnp.asarray(np.stack(codes), jnp.float32))


COURSES: dict[str, type] = {"sweep": SweepCourse, "paper": PaperCourse}


@eqx.filter_jit
def _start_sweep(config: Sweep, domain: Domain, keys: TrialKeys) -> sweep.Learner:
    return eqx.filter_vmap(lambda key: sweep.start(config, domain, key))(keys)


@eqx.filter_jit
def _train_sweep(
    config: Sweep,
    domain: Domain,
    learner: sweep.Learner,
    keys: TrialKeys,
    n_steps: Int[Array, ""],
) -> tuple[sweep.Learner, Float[Array, "trial"]]:
    each = eqx.filter_vmap(sweep.train, in_axes=(None, None, eqx.if_array(0), 0, None))
    return each(config, domain, learner, keys, n_steps)


@eqx.filter_jit
def _start_paper(config: Paper, domain: Domain, n_arms: int, keys: TrialKeys) -> paper.Learner:
    return eqx.filter_vmap(lambda key: paper.start(config, domain, n_arms, key))(keys)


@eqx.filter_jit
def _train_paper(
    config: Paper,
    domain: Domain,
    budget: Float[Array, ""],
    learner: paper.Learner,
    keys: TrialKeys,
) -> tuple[paper.Learner, paper.Metrics, paper.Trajectory]:
    each = eqx.filter_vmap(paper.block, in_axes=(None, None, None, eqx.if_array(0), 0))
    return each(config, domain, budget, learner, keys)


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
