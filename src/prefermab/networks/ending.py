"""Usual prices of the last rounds of a programme, and the number of rounds left as network input.

With k rounds left an action is worth what it changes in these k rounds, and that depends on the
price of spending in each of them. The budget of a round stays the same, but towards the end there
is less to gain, so prices fall. The Lagrangian relaxation of a programme of training arms
(`oracles.lagrangian`) gives one price for each round and budget. The network for the last rounds
is trained at these usual prices, and expects them in later rounds when it decides.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms.observation import Key
from prefermab.domains.base import ContinuousDomain, Domain
from prefermab.oracles.dynamic_programming import Sparse, Transitions
from prefermab.oracles.lagrangian import relax

LEVELS = 10
"""Number of budgets with usual prices, from one that serves all arms to one that serves few."""

FEWEST_ARMS_PRICED, MOST_ARMS_PRICED = 12, 512
"""Fewest and most arms of the programme that gives the usual prices."""

MOST_PROBABILITIES_PRICED, MOST_CELLS_PRICED = 1 << 18, 31
"""About the most transition probabilities of these arms together, and the most points of a grid:
prices need less detail than decisions."""

PRICE_STEPS = 40
"""Steps of the search for the prices of a programme."""

NEGLIGIBLE_GAIN = 1e-4
"""A gain below this share of the largest one counts as a rounding error."""

TRUSTED_ARMS = 30
"""With this many arms, the price that fits them now and the usual price have equal weight. The
states of a few arms are chance, and soon change."""


class UsualPrices(eqx.Module):
    """Usual prices by budget and rounds left, and the largest gain of any action."""

    prices: Float[Array, "level left"]
    """The first column is that of the last round, with one round left."""
    budgets: Float[Array, "level"]
    """Budget per arm and round of each level, falling."""
    most: Float[Array, "left"]
    """Largest gain of any action in training, by rounds left."""

    @classmethod
    def blank(cls, longest: int) -> "UsualPrices":
        """All zeros, for up to `longest` rounds left: the shapes that a model file fills."""
        return cls(jnp.zeros((LEVELS, longest)), jnp.zeros(LEVELS), jnp.zeros(longest))

    @classmethod
    def of(cls, domain: Domain, longest: int, key: Key) -> "UsualPrices":
        """Computes the usual prices of a domain in a programme of `longest` rounds."""
        if isinstance(domain, ContinuousDomain):
            # The constructor would check numbers that are not known inside compiled code.
            domain = eqx.tree_at(lambda it: it.grid, domain, min(MOST_CELLS_PRICED, domain.grid))
        size = max(
            FEWEST_ARMS_PRICED,
            min(MOST_ARMS_PRICED, MOST_PROBABILITIES_PRICED // domain.table_size),
        )
        key_arms, key_start = jax.random.split(key)
        arms = domain.draw_arms(key_arms, size)
        starts = jax.vmap(domain.start)(jax.random.split(key_start, size), arms)
        chances, targets = jax.vmap(domain.successors)(arms), domain.targets
        table: Transitions = chances if targets is None else Sparse(chances, targets)
        costs = jax.vmap(domain.costs)(arms)
        rewards, cells = jax.vmap(domain.rewards)(arms), jax.vmap(domain.cell)(starts)
        everyone = jnp.ones((longest, size), bool)
        shares = jnp.linspace(1.0, 0.06, LEVELS) ** 2
        budgets = shares * jnp.mean(jnp.max(costs, axis=1))

        def prices(budget):
            return relax(table, rewards, costs, budget * size, cells, everyone, PRICE_STEPS)[1][
                ::-1
            ]

        found = jax.lax.map(prices, budgets)
        # A smaller budget never lowers the price: where it seems to, the search has not converged.
        return cls(jax.lax.cummax(found, axis=0), budgets, jnp.zeros(longest))

    @property
    def longest(self) -> int:
        """The most rounds left that have a price."""
        return self.prices.shape[1]

    def least_gain(self, left: Int[Array, ""]) -> Float[Array, ""]:
        """The gain above which a free action is worth taking: 0, or infinite where no action pays
        before the end, so that a network's small errors do not count as gains."""
        pays = self.most[left - 1] > NEGLIGIBLE_GAIN * jnp.max(self.most)
        return jnp.where(pays, 0.0, jnp.inf)

    def path(self, level: Float[Array, ""]) -> Float[Array, "left"]:
        """Prices by rounds left, at a budget level from 0 (serves all arms) to `LEVELS` - 1."""
        places = jnp.arange(LEVELS, dtype=jnp.float32)
        return jax.vmap(lambda prices: jnp.interp(level, places, prices))(self.prices.T)

    def price(self, budget: Float[Array, ""], left: Int[Array, ""]) -> Float[Array, ""]:
        """The usual price with `left` rounds left, at a budget per arm."""
        return jnp.interp(budget, self.budgets[::-1], self.prices[::-1, left - 1])

    def expected(
        self,
        price: Float[Array, ""],
        budget: Float[Array, ""],
        n_arms: Int[Array, ""],
        left: Int[Array, ""],
    ) -> Float[Array, ""]:
        """The price to decide at: a weighted mean of `price`, which fits these arms now, and the
        usual price."""
        usual = self.price(budget / jnp.maximum(n_arms, 1), left)
        weight = n_arms / (n_arms + TRUSTED_ARMS)
        return weight * price + (1 - weight) * usual


def encode_rounds_left(left: Int[Array, ""]) -> Float[Array, "3"]:
    """The number of rounds left as three numbers from -1 to 1. They settle at different speeds:
    one more round adds less and less, for some arms sooner than for others.

    >>> import jax.numpy as jnp
    >>> from prefermab.networks.ending import encode_rounds_left
    >>> [[f"{number:.1f}" for number in encode_rounds_left(jnp.array(left))] for left in (1, 2)]
    [['1.0', '1.0', '1.0'], ['0.0', '0.0', '0.6']]
    """
    more = left - 1
    return 2 * jnp.stack([1.0 / left, 0.5**more, 0.8**more]) - 1


def worths_to_end(
    expected,
    reward: Float[Array, "state"],
    cost: Float[Array, "act"],
    paths: Float[Array, "price left"],
    left: Int[Array, "price several"],
) -> Float[Array, "price several state act"]:
    """What every action is worth with `left` rounds left, undiscounted and before its own cost, by
    backward induction. Each row of `paths` has the prices of later rounds, by rounds left, and
    each path is combined with several numbers of rounds. `expected` turns values of the next state
    (price, state) into their expectations (price, state, action)."""

    def one_round(carry, at):
        value, kept = carry
        price, now = at
        worth = expected(reward + value)
        kept = jnp.where((left == now)[..., None, None], worth[:, None], kept)
        return (jnp.max(worth - price[:, None, None] * cost, axis=2), kept), None

    size = (paths.shape[0], reward.shape[0])
    begin = jnp.zeros(size), jnp.zeros((*left.shape, reward.shape[0], cost.shape[0]))
    rounds = paths.T, 1 + jnp.arange(paths.shape[1])
    return jax.lax.scan(one_round, begin, rounds)[0][1]
