"""Courses: a recipe's training in pieces, for several seeds at once.

Between two pieces a training can be reported on, looked at for trouble, and written down to go on
later. What a piece does depends on the learner, the seeds' keys and the piece's number only, so a
training that was cut ends as if it had not been.
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prefermab.arms import TrialKeys
from prefermab.config import Exact, Paper, Regression, Sweep
from prefermab.domains.base import Domain
from prefermab.networks import ActorCritic, Worth
from prefermab.recipes import exact, paper, regression, sweep
from prefermab.recipes.metrics import METRICS, Metrics
from prefermab.shaping import shaped

Rows = dict[str, np.ndarray]
"""Metrics by name, (seed, epoch of the piece), and under the unit's name the epochs' numbers."""

STEPS_IN_A_PIECE, MOST_PIECES = 300, 20
"""At least so many steps, and more where they would be too many pieces."""


class Course(abc.ABC):
    """A training in pieces; `unit` is what its progress is counted in."""

    unit: str
    pieces: int

    @abc.abstractmethod
    def start(self, keys: TrialKeys) -> Any:
        """Untrained learners, one for each key."""

    @abc.abstractmethod
    def piece(self, learner: Any, keys: TrialKeys, number: int) -> tuple[Any, Rows]:
        """A piece further, and how it went."""

    @abc.abstractmethod
    def result(self, learner: Any) -> Any:
        """The networks that were learned."""

    def kept(self) -> dict[str, np.ndarray]:
        """What is carried from piece to piece beside the learner."""
        return {}

    def restore(self, kept: dict[str, np.ndarray]) -> None:
        """Takes up what was carried."""
        del kept

    def collapsed(self, rows: Rows, seed: int) -> int | None:
        """Since when the policy of a seed has been the same for everyone, if it is so."""
        del rows, seed


TEACHERS = {
    Sweep: regression.Teacher(sweep.prepare, sweep.teach, sweep.sample, 0.1),
    Exact: regression.Teacher(exact.prepare, exact.teach, exact.compute, 0.0),
}


class RegressionCourse(Course):
    """A training by the recipe `sweep` or `exact`."""

    unit = "step"

    def __init__(self, config: Regression, domain: Domain, n_arms: int, budget: float):
        self.config, self.domain, self.n_arms = config, domain, n_arms
        self.budget = jnp.asarray(budget, jnp.float32)
        self.steps = max(STEPS_IN_A_PIECE, -(-config.steps // MOST_PIECES))
        self.pieces = -(-config.steps // self.steps)

    def start(self, keys: TrialKeys) -> regression.Learner:
        return _start(self.config, self.domain, keys)

    def piece(
        self, learner: regression.Learner, keys: TrialKeys, number: int
    ) -> tuple[regression.Learner, Rows]:
        done = number * self.steps
        steps = min(self.steps, self.config.steps - done)
        learner, loss = _train(self.config, self.domain, learner, keys, jnp.asarray(steps))
        metrics = _measure(self.domain, learner.slow, self.n_arms, self.budget, keys)
        metrics = eqx.tree_at(lambda it: it.loss, metrics, loss)
        rows = {name: np.asarray(getattr(metrics, name))[:, None] for name in METRICS}
        return learner, {"step": np.array([done + steps]), **rows}

    def result(self, learner: regression.Learner) -> Worth:
        """The slow copy: an average over the last steps, and steadier for it."""
        return learner.slow


class PaperCourse(Course):
    """A training by the recipe `paper`: a piece is a block of epochs and its price update."""

    unit = "epoch"

    def __init__(self, config: Paper, domain: Domain, n_arms: int, budget: float):
        self.config, self.domain, self.n_arms = config, domain, n_arms
        self.budget = jnp.asarray(budget, jnp.float32)
        self.pieces = -(-config.epochs // config.subepochs)
        self.seen: list[tuple[np.ndarray, np.ndarray]] = []

    def start(self, keys: TrialKeys) -> paper.Learner:
        return _start_paper(self.config, self.domain, self.n_arms, keys)

    def piece(
        self, learner: paper.Learner, keys: TrialKeys, number: int
    ) -> tuple[paper.Learner, Rows]:
        done = number * self.config.subepochs
        epochs = min(self.config.subepochs, self.config.epochs - done)
        learner, came = train_paper(self.config, self.domain, self.budget, epochs, learner, keys)
        if self.config.shaping != "none":
            learner = self._reshape(learner, came.last)
        rows = {name: np.asarray(getattr(came.metrics, name)) for name in METRICS}
        return learner, {"epoch": done + 1 + np.arange(epochs), **rows}

    def result(self, learner: paper.Learner) -> ActorCritic:
        """The networks with the settled actor."""
        return eqx.tree_at(lambda net: net.actor, learner.network, learner.settled)

    def kept(self) -> dict[str, np.ndarray]:
        if not self.seen:
            return {}
        states, rewards = (np.concatenate(parts, axis=1) for parts in zip(*self.seen, strict=True))
        return {"states": states, "rewards": rewards}

    def restore(self, kept: dict[str, np.ndarray]) -> None:
        self.seen = [(kept["states"], kept["rewards"])] if kept else []

    def collapsed(self, rows: Rows, seed: int) -> int | None:
        """Every arm gets the same action for certain, so that nothing is learned any more, though
        the budget allows some but not all of it, in each of the last epochs."""
        acted, spending = rows["acted"][seed], rows["spending"][seed]
        last = acted[-self.config.subepochs :]
        never = (last == 0).all() and float(self.budget) > 0
        always = (last == 1).all() and spending[-1] > 1.25 * float(self.budget)
        if not never and not always:
            return None
        other = np.flatnonzero(acted != acted[-1])
        return int(rows["epoch"][other[-1] + 1 if other.size else 0])

    def _reshape(self, learner: paper.Learner, seen: paper.Trajectory) -> paper.Learner:
        """Line 24: the estimate of the reward refitted on all that was seen so far."""
        # The reward of a decision is that of the next state: pair them as they belong.
        n_seeds = seen.state.shape[0]
        following = np.asarray(seen.last_state)[:, None]
        states = np.concatenate([np.asarray(seen.state)[:, 1:], following], axis=1)
        rewards = np.asarray(seen.reward)
        self.seen.append((states.reshape(n_seeds, -1), rewards.reshape(n_seeds, -1)))
        kept = self.kept()
        cells = np.asarray(self.domain.cells, float)
        codes = [
            2 * shaped(cells, states, rewards, self.config.shaping)[:, None] - 1
            for states, rewards in zip(kept["states"], kept["rewards"], strict=True)
        ]
        where = lambda it: it.network.perception.codes  # noqa: E731
        return eqx.tree_at(where, learner, jnp.asarray(np.stack(codes), jnp.float32))


COURSES: dict[str, type[RegressionCourse] | type[PaperCourse]] = {
    "sweep": RegressionCourse,
    "exact": RegressionCourse,
    "paper": PaperCourse,
}


@eqx.filter_jit
def _start(config: Regression, domain: Domain, keys: TrialKeys) -> regression.Learner:
    return eqx.filter_vmap(
        lambda key: regression.start(TEACHERS[type(config)], config, domain, key)
    )(keys)


@eqx.filter_jit
def _train(
    config: Regression,
    domain: Domain,
    learner: regression.Learner,
    keys: TrialKeys,
    n_steps: Int[Array, ""],
) -> tuple[regression.Learner, Float[Array, "trial"]]:
    each = eqx.filter_vmap(regression.train, in_axes=(None, None, None, eqx.if_array(0), 0, None))
    return each(TEACHERS[type(config)], config, domain, learner, keys, n_steps)


@eqx.filter_jit
def _measure(
    domain: Domain, worth: Worth, n_arms: int, budget: Float[Array, ""], keys: TrialKeys
) -> Metrics:
    each = eqx.filter_vmap(regression.measure, in_axes=(None, eqx.if_array(0), None, None, 0))
    return each(domain, worth, n_arms, budget, keys)


@eqx.filter_jit
def _start_paper(config: Paper, domain: Domain, n_arms: int, keys: TrialKeys) -> paper.Learner:
    return eqx.filter_vmap(lambda key: paper.start(config, domain, n_arms, key))(keys)


@eqx.filter_jit
def train_paper(
    config: Paper,
    domain: Domain,
    budget: Float[Array, ""],
    n_epochs: int,
    learner: paper.Learner,
    keys: TrialKeys,
) -> tuple[paper.Learner, paper.Block]:
    """A block of epochs for each of several learners."""
    each = eqx.filter_vmap(paper.block, in_axes=(None, None, None, None, eqx.if_array(0), 0))
    return each(config, domain, budget, n_epochs, learner, keys)
