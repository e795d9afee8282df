"""Lessons of recipe `exact`: computed answers, some of which are kept from step to step.

With many states these answers take long to compute. Each step computes them for a few fresh arms,
which replace the oldest, and learns from a sample of all that are kept.
"""

import abc
import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms.observation import Arms, Features, Key
from prefermab.domains.base import Domain, Targets
from prefermab.networks.worth import Worth
from prefermab.oracles.dynamic_programming import expectation_of_few
from prefermab.recipes.learner import Batch, Lessons, hide_features

ARMS_KEPT, MOST_FRESH_ARMS, MOST_FRESH_PROBABILITIES = 512, 64, 1 << 17
"""Arms whose answers are kept; the most arms that a step computes; and the most transition
probabilities that these may have, so that they are fewer where states are many."""


class Answers(eqx.Module):
    """What every action is worth in every state of some arms, each at several prices."""

    features: Features
    prices: Float[Array, "arm price"]
    worth: Float[Array, "arm price state act"]
    costs: Float[Array, "arm act"]
    left: Int[Array, "arm price"] | None = None
    """Rounds left; None: the programme goes on."""


@dataclasses.dataclass(frozen=True)
class Answered(Lessons[Answers]):
    """Lessons from answers for some arms."""

    arms: int
    """Arms, each at a price and in a state, of a step's sample."""
    prices: int
    """Prices at which the answers of an arm are computed."""
    masked: float
    """Share of the sample with hidden features."""
    work: ClassVar[int]
    """How many times longer an answer takes than one of value iteration."""

    @abc.abstractmethod
    def answers(self, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Answers:
        """Answers for these arms, each at prices of its own."""

    def prepare(self, domain: Domain, slow: Worth, key: Key) -> Answers:
        """The first answers to learn from."""
        fresh = self.fresh_arms(domain)
        keys = jax.random.split(key, ARMS_KEPT // fresh)
        several = jax.lax.map(lambda key: self.draw(domain, slow, fresh, key), keys)
        return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), several)

    def teach(
        self, domain: Domain, slow: Worth, memory: Answers, step: Int[Array, ""], key: Key
    ) -> tuple[Answers, Batch]:
        """The oldest answers replaced by fresh ones, and a sample of all."""
        key_arms, key_rows = jax.random.split(key)
        fresh = self.fresh_arms(domain)
        new = self.draw(domain, slow, fresh, key_arms)
        place = (step % (ARMS_KEPT // fresh)) * fresh
        kept = jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, place, 0), memory, new
        )
        return kept, self.sample(domain, kept, key_rows, slow.perception.by_cell)

    def batch(self, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Batch:
        """A sample of the answers of these arms, of as many as a step can compute."""
        key_used, key_prices, key_rows = jax.random.split(key, 3)
        used = min(n_arms, self.fresh_arms(domain))
        chosen = jax.random.choice(key_used, n_arms, (used,), replace=False)
        arms = jax.tree.map(lambda x: x[chosen], arms)
        answers = self.answers(domain, slow, arms, used, key_prices)
        return self.sample(domain, answers, key_rows, slow.perception.by_cell)

    def draw(self, domain: Domain, slow: Worth, n_arms: int, key: Key) -> Answers:
        """Answers for new arms."""
        key_arms, key_prices = jax.random.split(key)
        return self.answers(domain, slow, domain.draw_arms(key_arms, n_arms), n_arms, key_prices)

    def sample(self, domain: Domain, among: Answers, key: Key, by_cell: bool) -> Batch:
        """Some arms at some price in some state (or in all), features of some of them hidden."""
        key_arm, key_price, key_state, key_mask = jax.random.split(key, 4)
        size = (self.arms,)
        arm = jax.random.randint(key_arm, size, 0, among.prices.shape[0])
        price = jax.random.randint(key_price, size, 0, among.prices.shape[1])
        cell = jax.random.randint(key_state, size, 0, domain.n_cells)
        everywhere = among.worth[arm, price]
        return Batch(
            domain.cells[cell],
            hide_features(key_mask, among.features[arm], self.masked),
            among.prices[arm, price],
            everywhere if by_cell else everywhere[jnp.arange(self.arms), cell],
            among.costs[arm],
            None if among.left is None else among.left[arm, price],
        )

    def fresh_arms(self, domain: Domain) -> int:
        """The number of arms that a step computes."""
        work = domain.table_size * (1 if domain.targets is None else 20)
        fresh = max(1, min(MOST_FRESH_ARMS, MOST_FRESH_PROBABILITIES // work))
        return max(1, fresh // self.work)


def expectations(
    table: Float[Array, "state act next"],
    targets: Targets | None,
    ahead: Float[Array, "price state"],
) -> Float[Array, "price state act"]:
    """Expectations of values of the next state, by an arm's transitions to `targets` or to all."""
    if targets is None:
        return jnp.einsum("sat,pt->psa", table, ahead)
    few = expectation_of_few(table[..., None], targets)
    return jnp.moveaxis(few(ahead.T), -1, 0)
