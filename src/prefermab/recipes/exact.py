"""Recipe `exact`: learns from value iteration what actions are worth, where dynamics are known.

For every arm that is drawn, backward induction at each of several prices computes exactly

    y(s, a) = Σ P(s'|s,a) (R(s') + discount·max_b [y'(s', b) - price·cost(b)])

This is what an action is worth before its own cost, with `horizon` rounds to go. The network is
fitted to the gain y(s, a) - y(s, 0) given what a decision can use: state, features (some hidden)
and price. Its output is the mean over all arms that look alike, which allows for features that are
missing or say little, and for uncertain dynamics.
"""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from prefermab.arms.observation import Arm, Arms, Key
from prefermab.domains.base import Domain, Targets
from prefermab.errors import InputError
from prefermab.networks.worth import Worth
from prefermab.recipes.answers import Answered, Answers, expectations
from prefermab.recipes.last_rounds import LearnerToEnd
from prefermab.recipes.learner import Learner, Learning, sample_prices
from prefermab.recipes.regression import Regression


@dataclasses.dataclass(frozen=True)
class Exact(Regression[Answers]):
    """Learns the answers of value iteration at many prices; for simulators with known dynamics.

    >>> import prefermab as pm
    >>> model = pm.pretrain(pm.domains.Synthetic(), pm.recipes.Exact(steps=20))
    >>> model.recipe
    'exact'
    """

    name: ClassVar[str] = "exact"
    later: ClassVar[tuple[str, ...]] = (*Regression.later, "rounds_left")
    may_be_zero: ClassVar[tuple[str, ...]] = ("seed", "rounds_left")
    may_be_undiscounted: ClassVar[bool] = True

    arms: int = 256
    """Arms, each at a price and in a state, of a step's sample."""
    prices: int = 8
    """Prices at which the answers of an arm are computed."""
    horizon: int = 12
    """Rounds that value iteration looks ahead."""
    rounds_left: int = 0
    """The most rounds left for which the model can decide in a programme that ends, by a second
    network; 0: for ongoing programmes only."""

    def check(self, domain: Domain) -> None:
        if self.rounds_left and domain.targets is not None:
            raise InputError(
                f"rounds_left needs states that are always seen, and those of '{domain.name}' are "
                "not: leave it out."
            )

    @property
    def learner(self) -> Learning[Answers]:
        ongoing = Learner(
            self.lessons, self.steps, self.width, self.depth, self.learning_rate, self.target_rate,
            self.focus,
        )  # fmt: skip
        return LearnerToEnd(ongoing, self.rounds_left) if self.rounds_left else ongoing

    @property
    def lessons(self) -> "ValueIteration":
        """What is learned for an ongoing programme."""
        return ValueIteration(self.arms, self.prices, self.masked, self.discount, self.horizon)

    @property
    def rounds_ahead(self) -> float:
        return self.horizon if self.discount == 1 else min(1 / (1 - self.discount), self.horizon)

    def samples_per_round(self, domain: Domain) -> int:
        """None: the dynamics are known."""
        return 0


@dataclasses.dataclass(frozen=True)
class ValueIteration(Answered):
    """The answers of value iteration."""

    discount: float
    horizon: int
    work: ClassVar[int] = 1

    def answers(self, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Answers:
        prices = sample_prices(key, slow.perception.highest_price, (n_arms, self.prices))
        worth = jax.vmap(self.worths_of_arm, in_axes=(None, 0, 0))(domain, arms, prices)
        return Answers(domain.features(arms), prices, worth, jax.vmap(domain.costs)(arms))

    def worths_of_arm(
        self, domain: Domain, arm: Arm, prices: Float[Array, "price"]
    ) -> Float[Array, "price state act"]:
        """What each action is worth before its own cost, in every state of an arm at each price."""
        chances, rewards = domain.successors(arm), domain.rewards(arm)
        return self.worths(chances, rewards, domain.costs(arm), prices, domain.targets)

    def worths(
        self,
        table: Float[Array, "state act next"],
        reward: Float[Array, "state"],
        cost: Float[Array, "act"],
        prices: Float[Array, "price"],
        targets: Targets | None = None,
    ) -> Float[Array, "price state act"]:
        """`worths_of_arm` from an arm's transitions (to `targets`, or to all states), rewards and
        costs: the backward induction above."""
        expected = functools.partial(expectations, table, targets)

        def one_round(worth, _):
            value = jnp.max(worth - prices[:, None, None] * cost, axis=2)
            return expected(reward + self.discount * value), None

        last = expected(jnp.broadcast_to(reward, (prices.shape[0], *reward.shape)))
        return jax.lax.scan(one_round, last, None, length=self.horizon - 1)[0]
