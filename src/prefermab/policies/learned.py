"""Policies that decide with a trained network: `ByPrice`, and the paper's `ByGreedyProba`."""

import abc
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prefermab.arms.budget import Scores, by_price, clearing_price, greedy
from prefermab.arms.observation import Actions, Key, Observation, State
from prefermab.errors import InputError
from prefermab.networks.worth import ActorCritic, Worth
from prefermab.policies.base import Memory, Policy, Problem

PROBES = 3
"""Number of prices after 0 at which the network is evaluated, to find the one that fits."""

HALVINGS = 16
"""Halvings that find the price at which given gains fit; they cost no pass of the network."""

CHUNK = 1 << 16
"""Arms that go through the network together; with more arms, so many of them find the price."""


TRIAL = "trial"
"""Given as `rounds_left`, stands for the rounds left of the trial that is played."""

NO_END = (
    "this model was not trained for rounds_left: train one by the recipe exact with rounds_left=12 "
    "(`pretrain --exact.rounds-left 12`, `learn --rounds-left 12`), or leave rounds_left out."
)

ONLY_TRIALS = (
    "the rounds left of a trial are known in an evaluation only: give a number as rounds_left."
)


class JudgedRound(eqx.Module):
    """A round as a network judges it: the price, and the gain of each arm and action over the
    passive one. A gain of -inf forbids the action, even if budget remains."""

    price: Float[Array, ""]
    gains: Scores


class Learned(Policy):
    """A policy that judges a round with a trained network, then chooses actions by the gains."""

    gains_are_rewards: ClassVar[bool]
    """Whether gains are expected rewards before an action's own cost, so that they can be compared
    with costs times a price; then an arm's gain at a price does not depend on the other arms."""

    @property
    @abc.abstractmethod
    def price_ceiling(self) -> Float[Array, ""]:
        """Above this price no arm prefers any action; infinite where that is not known."""

    @property
    @abc.abstractmethod
    def least_gain(self) -> Float[Array, ""]:
        """An action that gains no more than this is not taken, even if budget remains."""

    @abc.abstractmethod
    def with_rounds_left(self, left: int | str) -> "Learned":
        """The policy for a programme with `left` rounds left, or for its trial (`TRIAL`)."""

    @abc.abstractmethod
    def gain(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "act"]:
        """The gain of each action on one arm at a price."""

    @abc.abstractmethod
    def judge(self, seen: Observation) -> JudgedRound:
        """The price of the round, and the gain of each action."""

    @abc.abstractmethod
    def choose_actions(self, judged: JudgedRound, seen: Observation) -> Actions:
        """Actions within the budget."""

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        return self.choose_actions(self.judge(seen), seen), memory


class ByPrice(Learned):
    """Finds the price at which the actions that arms prefer fit the budget, and takes the best
    gains per cost at that price.

    The gains at one price tell which price would fit if gains were the same at every price. They
    nearly are, so a few secant steps find the price that its own gains confirm. An action without
    a gain at price 0 is never taken, even if budget remains. Of more than `CHUNK` arms, a sample of
    `CHUNK` finds the price, which is the same for all; the choice among all arms then corrects what
    the sample misses of the budget.

    A network for the last rounds decides with `left` rounds of the programme to go, this one
    included.
    """

    worth: Worth
    left: Int[Array, ""] | None = None
    gains_are_rewards = True

    @property
    def price_ceiling(self) -> Float[Array, ""]:
        return self.worth.perception.highest_price

    @property
    def least_gain(self) -> Float[Array, ""]:
        if self.left is None or self.worth.usual is None:
            return jnp.zeros(())
        return self.worth.usual.least_gain(self.left)

    def with_rounds_left(self, left: int | str) -> Learned:
        if self.worth.to_end is None or self.worth.longest is None:
            raise InputError(NO_END)
        if left == TRIAL:
            return UntilEnd(self)
        return ByPrice(self.worth.to_end, jnp.asarray(left))

    def gain(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "act"]:
        return self.worth(state, features, price, self.left)[1]

    def judge(self, seen: Observation) -> JudgedRound:
        if seen.n_arms <= CHUNK:
            return self.search(seen)
        price = self.search(_sample_arms(seen, CHUNK)).price
        return _without_worthless(price, gains := self.gains(price, seen), gains, self.least_gain)

    def choose_actions(self, judged: JudgedRound, seen: Observation) -> Actions:
        return by_price(judged.gains, seen.costs, seen.budget, seen.opt_in, seen.amounts)

    def gains(self, price: Float[Array, ""], seen: Observation) -> Scores:
        """Worth of each action over the passive one, before its own cost is paid."""
        one = lambda arm: self.gain(arm[0], arm[1], price)  # noqa: E731
        arms = (seen.state, seen.features)
        if seen.n_arms > CHUNK:
            return jax.lax.map(one, arms, batch_size=CHUNK)
        return jax.vmap(one)(arms)

    def search(self, seen: Observation) -> JudgedRound:
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
            # Gains change less than the price does: a flatter slope is a rounding error.
            slope = jnp.where(step == 0, -1.0, jnp.minimum(slope, -0.2))
            before, missed_before = price, missed
            price = jnp.clip(price - missed / slope, 0.0, highest)
        if self.left is not None and (usual := self.worth.usual) is not None:
            price = usual.expected(price, seen.budget, jnp.sum(seen.opt_in), self.left)
        return _without_worthless(price, self.gains(price, seen), free, self.least_gain)


class UntilEnd(Learned):
    """Decides by another policy, and at the end of a trial with the number of rounds that are left
    of it. It is prepared for a trial, which has `rounds` rounds."""

    ongoing: ByPrice
    rounds: int | None = eqx.field(static=True, default=None)
    gains_are_rewards = True

    @property
    def price_ceiling(self) -> Float[Array, ""]:
        return self.ongoing.price_ceiling

    @property
    def least_gain(self) -> Float[Array, ""]:
        raise InputError(ONLY_TRIALS)

    def with_rounds_left(self, left: int | str) -> Learned:
        return self.ongoing.with_rounds_left(left)

    def prepare(self, problem: Problem) -> "UntilEnd":
        return UntilEnd(self.ongoing, problem.opt_in.shape[0])

    def gain(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "act"]:
        raise InputError(ONLY_TRIALS)

    def judge(self, seen: Observation) -> JudgedRound:
        to_end, longest = self.ongoing.worth.to_end, self.ongoing.worth.longest
        if self.rounds is None or to_end is None or longest is None:
            raise InputError(ONLY_TRIALS)
        left = self.rounds - seen.round
        near = ByPrice(to_end, jnp.minimum(left, longest))
        if self.rounds <= longest:
            return near.judge(seen)
        choose = lambda policy: lambda: policy.judge(seen)  # noqa: E731
        return jax.lax.cond(left <= longest, choose(near), choose(self.ongoing))

    def choose_actions(self, judged: JudgedRound, seen: Observation) -> Actions:
        return self.ongoing.choose_actions(judged, seen)


class ByGreedyProba(Learned):
    """The paper's inference (Algorithm 3): the price of the round from the price network, then
    actions by highest log-odds until the budget is reached.
    """

    network: ActorCritic
    gains_are_rewards = False

    @property
    def price_ceiling(self) -> Float[Array, ""]:
        return jnp.asarray(jnp.inf)

    @property
    def least_gain(self) -> Float[Array, ""]:
        return jnp.zeros(())

    def with_rounds_left(self, left: int | str) -> Learned:
        raise InputError(NO_END)

    def gain(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "act"]:
        return _odds(self.network.logits(state, features, price))

    def judge(self, seen: Observation) -> JudgedRound:
        price = self.network.price(seen.state, seen.features, seen.opt_in)
        logits = self.network.logits_of(seen.state, seen.features, price)
        return JudgedRound(price, jax.vmap(_odds)(logits))

    def choose_actions(self, judged: JudgedRound, seen: Observation) -> Actions:
        return greedy(judged.gains, seen.costs, seen.budget, seen.opt_in, seen.amounts)


def _without_worthless(
    price: Float[Array, ""], gains: Scores, free: Scores, least: Float[Array, ""]
) -> JudgedRound:
    """Forbids actions whose gain at price 0, `free`, is at most `least`."""
    return JudgedRound(price, jnp.where(free > least, gains, -jnp.inf).at[:, 0].set(0.0))


def _sample_arms(seen: Observation, n_arms: int) -> Observation:
    """A fixed sample of the arms, with its share of the budget."""
    chosen = sample_rows(seen.n_arms, n_arms)
    part = seen.budget * (n_arms / seen.n_arms)
    return Observation(
        seen.state[chosen], seen.features[chosen], seen.opt_in[chosen], seen.costs[chosen], part,
        seen.round,
    )  # fmt: skip


def sample_rows(size: int, rows: int | None = None) -> np.ndarray:
    """A fixed random sample of `rows` rows (by default `CHUNK`) out of `size`: one from each of as
    many equal parts.

    >>> from prefermab.policies.learned import sample_rows
    >>> rows = sample_rows(200_000)
    >>> len(rows), bool(rows[0] < 4), bool(rows[-1] > 199_995)
    (65536, True, True)
    """
    rows = CHUNK if rows is None else rows
    ends = np.arange(rows + 1) * size // rows
    return np.random.default_rng(0).integers(ends[:-1], ends[1:])


def _odds(logits: Float[Array, "act"]) -> Float[Array, "act"]:
    """log p - log(1 - p): probabilities round to 1 and tie long before their odds do."""
    log_p = jax.nn.log_softmax(logits)
    others = jnp.where(jnp.eye(log_p.size, dtype=bool), -jnp.inf, log_p)
    return log_p - jax.nn.logsumexp(others, axis=1)
