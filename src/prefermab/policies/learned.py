"""Policies made of trained networks."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from prefermab.arms import Actions, Key, Observation, State
from prefermab.budget import Scores, by_price, clearing_price, greedy
from prefermab.networks import ActorCritic, Worth
from prefermab.policies.base import Memory, Policy
from prefermab.sharding import on_each

PROBES = 3
"""Prices at which the network is asked, after 0, in search of the one that fits."""

HALVINGS = 16
"""To find the price that gains ask for; it costs no pass of the network."""

CHUNK = 1 << 16
"""Arms that go through the network together; the price of more arms is found on so many of them."""


class Judged(eqx.Module):
    """A round as a network sees it: the price, and for each arm and action how much it would gain
    over the passive one (-inf: not to be taken though budget be left)."""

    price: Float[Array, ""]
    gains: Scores


class Learned(Policy):
    """A trained network that judges a round, and a way to choose by its judgement."""

    gains_are_rewards: ClassVar[bool]
    """Whether gains are expected rewards before an action's own cost, so that they can be compared
    with costs times a price; then an arm's gain at a price does not depend on the other arms."""

    @property
    def price_ceiling(self) -> Float[Array, ""]:
        """Above this price no arm prefers any action; infinite where that is not known."""
        return jnp.asarray(jnp.inf)

    @abc.abstractmethod
    def gain(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "act"]:
        """What each action would gain of one arm at a price."""

    @abc.abstractmethod
    def judge(self, seen: Observation) -> Judged:
        """The price of the round, and what each action would gain."""

    @abc.abstractmethod
    def settle(self, judged: Judged, seen: Observation) -> Actions:
        """Actions within the budget."""

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        return self.settle(self.judge(seen), seen), memory


class BySweep(Learned):
    """Finds the price at which what every arm prefers fits the budget, and takes the best gains
    per cost there.

    The gains at one price say which price would fit, were they the same at every price. They
    nearly are, so a few secants lead to the price that its own gains ask for. An action worth less
    than nothing at price 0 is never taken, though budget be left. Of more than `CHUNK` arms, as
    many find the price together: it is the same for all, and what their choice misses of the
    budget, the choice among all arms mends.
    """

    worth: Worth
    gains_are_rewards = True

    @property
    def price_ceiling(self) -> Float[Array, ""]:
        return self.worth.perception.highest_price

    def gain(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "act"]:
        return self.worth(state, features, price)[1]

    def judge(self, seen: Observation) -> Judged:
        if seen.n_arms <= CHUNK:
            return self.search(seen)
        price = self.search(_some(seen, CHUNK)).price
        return _useful(price, gains := self.gains(price, seen), gains)

    def settle(self, judged: Judged, seen: Observation) -> Actions:
        return by_price(judged.gains, seen.costs, seen.budget, seen.opt_in, seen.amounts)

    def gains(self, price: Float[Array, ""], seen: Observation) -> Scores:
        """Worth of each action over the passive one, before its own cost is paid."""
        one = lambda arm: self.gain(arm[0], arm[1], price)  # noqa: E731
        arms = (seen.state, seen.features)
        if seen.n_arms > CHUNK:
            chunked = lambda arms: jax.lax.map(one, arms, batch_size=CHUNK)  # noqa: E731
            return on_each(chunked, arms, seen.n_arms)
        return jax.vmap(one)(arms)

    def search(self, seen: Observation) -> Judged:
        """The price that fits, and the gains there."""
        highest = self.price_ceiling

        def missing(price: Float[Array, ""]) -> tuple[Float[Array, ""], Scores]:
            gains = self.gains(price, seen)
            fitting = clearing_price(gains, seen.costs, seen.budget, seen.opt_in, HALVINGS)
            return jnp.minimum(fitting, highest) - price, gains

        before = jnp.zeros(())
        missed_before, free = missing(before)
        price = missed_before
        for _ in range(PROBES - 1):
            missed, _ = missing(price)
            step = price - before
            slope = (missed - missed_before) / jnp.where(step == 0, 1.0, step)
            # Gains change less than the price itself: a slope that says more is rounding.
            slope = jnp.where(step == 0, -1.0, jnp.minimum(slope, -0.2))
            before, missed_before = price, missed
            price = jnp.clip(price - missed / slope, 0.0, highest)
        return _useful(price, self.gains(price, seen), free)


class ByGreedyProba(Learned):
    """The paper's inference (Algorithm 3): the price of the round from the price network, then
    actions by highest log-odds until the budget is reached.
    """

    network: ActorCritic
    gains_are_rewards = False

    def gain(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "act"]:
        return _odds(self.network.logits(state, features, price))

    def judge(self, seen: Observation) -> Judged:
        price = self.network.price(seen.state, seen.features, seen.opt_in)
        logits = self.network.logits_of(seen.state, seen.features, price)
        return Judged(price, jax.vmap(_odds)(logits))

    def settle(self, judged: Judged, seen: Observation) -> Actions:
        return greedy(judged.gains, seen.costs, seen.budget, seen.opt_in, seen.amounts)


def _useful(price: Float[Array, ""], gains: Scores, free: Scores) -> Judged:
    """The gains of what is worth something when it is free."""
    return Judged(price, jnp.where(free > 0, gains, -jnp.inf).at[:, 0].set(0.0))


def _some(seen: Observation, n_arms: int) -> Observation:
    """Some of the arms, with their part of the budget; always the same ones."""
    chosen = sample(seen.n_arms, n_arms)
    part = seen.budget * (n_arms / seen.n_arms)
    return Observation(
        seen.state[chosen], seen.features[chosen], seen.opt_in[chosen], seen.costs[chosen], part,
        seen.round,
    )  # fmt: skip


def sample(size: int, rows: int = CHUNK) -> np.ndarray:
    """Rows that stand for many: a random one out of each of so many equal stretches.

    >>> from prefermab.policies.learned import sample
    >>> rows = sample(200_000)
    >>> len(rows), bool(rows[0] < 4), bool(rows[-1] > 199_995)
    (65536, True, True)
    """
    ends = np.arange(rows + 1) * size // rows
    return np.random.default_rng(0).integers(ends[:-1], ends[1:])


def _odds(logits: Float[Array, "act"]) -> Float[Array, "act"]:
    """log p - log(1 - p): probabilities round to 1 and tie long before their odds do."""
    log_p = jax.nn.log_softmax(logits)
    others = jnp.where(jnp.eye(log_p.size, dtype=bool), -jnp.inf, log_p)
    return log_p - jax.nn.logsumexp(others, axis=1)
