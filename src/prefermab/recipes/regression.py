"""The base of recipes `sweep` and `exact`: their common hyperparameters, and how they are measured.

What learns is an object that they hold (`learner.py`).
"""

import abc
import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from prefermab.arms.observation import Arms, Budget, Key
from prefermab.domains.base import Domain
from prefermab.errors import InputError
from prefermab.evaluation.rollout import Moves, observe
from prefermab.networks.worth import Perception, Shape, Worth
from prefermab.policies.learned import ByPrice
from prefermab.recipes.base import PROBED_ARMS, Metrics, Recipe, Tuning, piece_sizes
from prefermab.recipes.learner import Kept, Learning, RegressionState

MEASURED_ARMS, MEASURED_ROUNDS = 64, 30
"""Size of the programme on which a network is measured between two pieces of training."""

FEW_ARMS = 256
"""Number of arms whose rewards are computed in all states, where arms start in one of them only."""

STEPS_IN_A_PIECE, MOST_PIECES = 300, 20
"""The fewest steps in a piece, and the most pieces: long trainings have longer pieces."""


@dataclasses.dataclass(frozen=True)
class Regression(Recipe[RegressionState[Kept], Worth]):
    """A recipe that fits a network to what actions are worth at many prices."""

    later: ClassVar[tuple[str, ...]] = ("focus",)
    may_be_undiscounted: ClassVar[bool] = False

    steps: int = 6000
    """Gradient steps; new arms are drawn for each."""
    arms: int = 512
    """Arms drawn for each step, each with a price of its own."""
    width: int = 64
    """Neurons in a hidden layer."""
    depth: int = 2
    """Hidden layers."""
    learning_rate: float = 3e-3
    """Step size of Adam at the start; it falls to 0 along a cosine."""
    discount: float = 0.8
    """Discount factor per round."""
    target_rate: float = 0.02
    """How far the slow copy, which becomes the model, moves towards the network in a step."""
    masked: float = 0.5
    """Share of training arms with hidden features, so that unknown ones cost little."""
    focus: float = 0.0
    """How near an action must be to the best other one, as a share of the price, for its error to
    count fully: only there does an error change a decision; 0: all errors count alike."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.discount > 1 or (self.discount == 1 and not self.may_be_undiscounted):
            limit = "at most 1" if self.may_be_undiscounted else "below 1"
            raise InputError(
                f"discount must be {limit} for the recipe {self.name}, not {self.discount}."
            )

    @property
    @abc.abstractmethod
    def learner(self) -> Learning[Kept]:
        """What learns, with these hyperparameters."""

    @property
    @abc.abstractmethod
    def rounds_ahead(self) -> float:
        """Rounds that a lasting gain of 1 a round is worth."""

    @property
    def pieces(self) -> tuple[int, ...]:
        return piece_sizes(self.steps, max(STEPS_IN_A_PIECE, -(-self.steps // MOST_PIECES)))

    def init(self, domain: Domain, n_arms: int, key: Key) -> RegressionState[Kept]:
        """An untrained network that sees arms of this domain on a common scale."""
        key_probe, _ = jax.random.split(key)
        arms = domain.draw_arms(key_probe, PROBED_ARMS)
        ceiling = self.price_ceiling(domain, key_probe)
        perception = Perception.of(domain, domain.features(arms), ceiling)
        return self.learner.init(domain, perception, key)

    def price_ceiling(self, domain: Domain, key: Key) -> Float[Array, ""]:
        """Above this price no action is worth its cost, which at most moves an arm from the worst
        state to the best for good. Where states are not always seen, the bound is that of one
        round: few arms gain more, and higher prices would take up most of the training."""
        arms = domain.draw_arms(key, PROBED_ARMS)
        costs = jax.vmap(domain.costs)(arms)
        if domain.targets is None:
            states = jax.vmap(domain.start)(jax.random.split(key, PROBED_ARMS), arms)
            rewards, ahead = jax.vmap(domain.reward_at)(arms, states), self.rounds_ahead
        else:
            # All arms start never seen, so only a table of all states tells what they may earn.
            few = jax.tree.map(lambda x: x[:FEW_ARMS], arms)
            rewards, ahead = jax.vmap(domain.rewards)(few), 1.0
        cheapest = jnp.min(jnp.where(costs > 0, costs, jnp.inf))
        price = (rewards.max() - rewards.min()) * ahead / cheapest
        return jnp.where(jnp.isfinite(price) & (price > 0), price, 1.0)

    def step(
        self,
        domain: Domain,
        n_arms: int,
        budget: Budget,
        size: int,
        state: RegressionState[Kept],
        key: Key,
    ) -> tuple[RegressionState[Kept], Metrics]:
        """`size` gradient steps, and one row of metrics."""
        after, loss = self.learner.advance(domain, size, state, key)
        measured = measure_worth(domain, after.slow, n_arms, budget, key)
        measured = eqx.tree_at(lambda it: it.loss, measured, loss)
        return after, jax.tree.map(lambda value: value[None], measured)

    def trained(self, state: RegressionState[Kept]) -> Worth:
        """The slow copy: an average over the last steps, and steadier for it."""
        to_end = None if state.to_end is None else state.to_end.slow
        return dataclasses.replace(state.slow, to_end=to_end)

    def network(self, shape: Shape, key: Key) -> Worth:
        return self.learner.untrained(Perception.blank(shape, plain=False), shape.actions, key)

    def policy(self, network: Worth) -> ByPrice:
        return ByPrice(network)

    def finetune(
        self, tuning: Tuning, domain: Domain, net: Worth, arms: Arms, budget: Budget, key: Key
    ) -> Worth:
        return self.learner.tuned(tuning, domain, net, arms, key)


def measure_worth(domain: Domain, worth: Worth, n_arms: int, budget: Budget, key: Key) -> Metrics:
    """Metrics of the learned policy in a programme of new arms. Of a large programme only a part is
    played, with its share of the budget."""
    key_arms, key_start, key_play = jax.random.split(key, 3)
    places = min(n_arms, MEASURED_ARMS)
    budget = budget * places / n_arms
    arms = domain.draw_arms(key_arms, places)
    costs = jax.vmap(domain.costs)(arms)
    policy, everyone, move = ByPrice(worth), jnp.ones(places, bool), Moves.of(domain, arms)

    def one_round(state, at):
        now, key = at
        seen = observe(domain, arms, costs, state, everyone, budget, now)
        judged = policy.judge(seen)
        actions = policy.choose_actions(judged, seen)
        after, reward = move(key, state, actions)
        spent = jnp.sum(jnp.take_along_axis(costs, actions[:, None], axis=1)) * n_arms / places
        return after, Metrics(
            jnp.mean(reward), spent, judged.price, jnp.mean(actions > 0), jnp.zeros(())
        )

    start = jax.vmap(domain.start)(jax.random.split(key_start, places), arms)
    rounds = jnp.arange(MEASURED_ROUNDS), jax.random.split(key_play, MEASURED_ROUNDS)
    return jax.tree.map(jnp.mean, jax.lax.scan(one_round, start, rounds)[1])
