"""Recipe `exact`: learn what value iteration says, where the simulator's dynamics are known.

For every arm that is drawn, backward induction at each of several prices gives

    y(s, a) = Σ P(s'|s,a) (R(s') + discount·max_b [y'(s', b) - price·cost(b)])

exactly, what an action is worth before its own cost with `horizon` rounds to go. The network is
fitted to y(s, a) - y(s, 0) given what will be seen when deciding: state, features (some hidden)
and price. Its answer is the mean over all arms that look alike, so features that are missing, or
say little, and dynamics that are uncertain are allowed for by construction.

Answers take long where states are many. Each step works out those of a few fresh arms, which take
the place of the oldest, and learns from a sample of all that are kept.
"""

import dataclasses
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms import Arm, Arms, Features, Key
from prefermab.domains.base import Domain, Targets
from prefermab.networks import Worth
from prefermab.oracles.dynamic_programming import expectation_of_few
from prefermab.recipes.regression import Batch, Regression, mask_some, some_prices

KEPT, FRESH, TABLE = 512, 64, 1 << 17
"""Arms whose answers are kept; the most that are worked out in a step; and the most transition
probabilities that this may take: fewer arms where they have many states."""


class Answers(eqx.Module):
    """What every action is worth in every state of some arms, each at several prices."""

    features: Features
    prices: Float[Array, "arm price"]
    worth: Float[Array, "arm price state act"]


@dataclasses.dataclass(frozen=True)
class Exact(Regression):
    """Value iteration's answers are learned at swept prices; for simulators that know dynamics.

    >>> import prefermab as pm
    >>> model = pm.pretrain(pm.domains.Synthetic(), pm.recipes.Exact(steps=20))
    >>> model.recipe
    'exact'
    """

    name: ClassVar[str] = "exact"
    may_be_undiscounted: ClassVar[bool] = True

    steps: int = 6000
    """Gradient steps, each on some new arms."""
    arms: int = 256
    """Arms, each at a price and in a state, of a step's sample."""
    prices: int = 8
    """Prices at which the answers of an arm are worked out."""
    horizon: int = 12
    """Rounds that value iteration looks ahead."""

    @property
    def rounds_ahead(self) -> float:
        return min(super().rounds_ahead, self.horizon)

    def prepare(self, domain: Domain, slow: Worth, key: Key) -> Answers:
        """The first answers to learn from."""
        fresh = fresh_arms(domain)
        keys = jax.random.split(key, KEPT // fresh)
        several = jax.lax.map(lambda key: self.draw(domain, slow, fresh, key), keys)
        return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), several)

    def teach(
        self, domain: Domain, slow: Worth, memory: Answers, step: Int[Array, ""], key: Key
    ) -> tuple[Answers, Batch]:
        """The oldest answers replaced by fresh ones, and a sample of all."""
        key_arms, key_rows = jax.random.split(key)
        fresh = fresh_arms(domain)
        new = self.draw(domain, slow, fresh, key_arms)
        place = (step % (KEPT // fresh)) * fresh
        kept = jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, place, 0), memory, new
        )
        return kept, self.sample(domain, kept, key_rows, slow.perception.by_cell)

    def draw(self, domain: Domain, slow: Worth, n_arms: int, key: Key) -> Answers:
        """Answers for new arms."""
        key_arms, key_prices = jax.random.split(key)
        return self.answers(domain, slow, domain.draw_arms(key_arms, n_arms), n_arms, key_prices)

    def answers(self, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Answers:
        """Answers for these arms, each at prices of its own."""
        prices = some_prices(key, slow.perception.highest_price, (n_arms, self.prices))
        worth = jax.vmap(self.worths_of_arm, in_axes=(None, 0, 0))(domain, arms, prices)
        return Answers(domain.features(arms), prices, worth)

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
            mask_some(key_mask, among.features[arm], self.masked),
            among.prices[arm, price],
            everywhere if by_cell else everywhere[jnp.arange(self.arms), cell],
        )

    def batch(self, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Batch:
        """A sample of these arms, of as many of them as fit the table."""
        key_used, key_prices, key_rows = jax.random.split(key, 3)
        used = min(n_arms, fresh_arms(domain))
        chosen = jax.random.choice(key_used, n_arms, (used,), replace=False)
        arms = jax.tree.map(lambda x: x[chosen], arms)
        answers = self.answers(domain, slow, arms, used, key_prices)
        return self.sample(domain, answers, key_rows, slow.perception.by_cell)

    def worths_of_arm(
        self, domain: Domain, arm: Arm, prices: Float[Array, "price"]
    ) -> Float[Array, "price state act"]:
        """What every action is worth in every state of one arm at each price, before its own
        cost."""
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
        """The same by an arm's transitions (to `targets`, or to all states), rewards and costs:
        backward induction."""

        def expected(ahead: Float[Array, "price state"]) -> Float[Array, "price state act"]:
            if targets is None:
                return jnp.einsum("sat,pt->psa", table, ahead)
            few = expectation_of_few(table[..., None], targets)
            return jnp.moveaxis(few(ahead.T), -1, 0)

        def one_round(worth, _):
            value = jnp.max(worth - prices[:, None, None] * cost, axis=2)
            return expected(reward + self.discount * value), None

        last = expected(jnp.broadcast_to(reward, (prices.shape[0], *reward.shape)))
        return jax.lax.scan(one_round, last, None, length=self.horizon - 1)[0]

    def samples_per_round(self, domain: Domain) -> int:
        """None: the dynamics are known."""
        return 0


def fresh_arms(domain: Domain) -> int:
    """How many arms are worked out in a step."""
    return max(1, min(FRESH, TABLE // (domain.table_size * (1 if domain.targets is None else 10))))
