"""The last rounds of a programme: how a network sees that they are few, and their usual prices.

With k rounds left an action is worth what it changes in these k rounds, and that depends on what
spending will cost in each of them. The budget of a round stays the same, but towards the end there
is less to gain, so prices fall. The relaxation of a whole programme of training arms
(`oracles.lagrangian`) says how: it has one price for each round and budget. These usual prices are
what a network for the end is taught at, and what it expects of later rounds when it decides.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms import Key
from prefermab.domains.base import ContinuousDomain, Domain
from prefermab.oracles.dynamic_programming import Sparse, Transitions
from prefermab.oracles.lagrangian import relax

LEVELS = 10
"""Budgets for which usual prices are worked out, from one that serves all to nearly none."""

FEWEST_ARMS_PRICED, MOST_ARMS_PRICED = 12, 512
"""Arms of that programme."""

MOST_PROBABILITIES_PRICED, MOST_CELLS_PRICED = 1 << 18, 31
"""About how many transition probabilities they take, and the points of a grid: prices need less
detail than decisions."""

PRICE_STEPS = 40
"""Of the search for the prices of a programme."""

NEGLIGIBLE_GAIN = 1e-4
"""A gain that is so small beside the largest one is rounding."""

TRUSTED_ARMS = 30
"""So many arms say as much about the price to come by what they ask for now as the training's do:
the states of a few arms are chance, and soon others."""


class UsualPrices(eqx.Module):
    """Prices of a programme of training arms, by its budget and the rounds that are left; and what
    an action gained at most of any of them."""

    prices: Float[Array, "level left"]
    """In the first column those of the last round."""
    budgets: Float[Array, "level"]
    """Per arm and round, falling."""
    most: Float[Array, "left"]

    @classmethod
    def blank(cls, longest: int) -> "UsualPrices":
        """One that knows nothing, of a given size."""
        return cls(jnp.zeros((LEVELS, longest)), jnp.zeros(LEVELS), jnp.zeros(longest))

    @classmethod
    def of(cls, domain: Domain, longest: int, key: Key) -> "UsualPrices":
        """The prices of programmes of so many rounds."""
        if isinstance(domain, ContinuousDomain):
            # Not by its constructor, which checks numbers that are not known inside compiled code.
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
        # A smaller budget never makes spending cheaper; what says so is an unsettled search.
        return cls(jax.lax.cummax(found, axis=0), budgets, jnp.zeros(longest))

    @property
    def longest(self) -> int:
        """The most rounds left that it knows."""
        return self.prices.shape[1]

    def least_gain(self, left: Int[Array, ""]) -> Float[Array, ""]:
        """What an action must gain to be worth taking for nothing: infinitely much where none pays
        before the end, and a network's small errors must not say otherwise."""
        pays = self.most[left - 1] > NEGLIGIBLE_GAIN * jnp.max(self.most)
        return jnp.where(pays, 0.0, jnp.inf)

    def path(self, level: Float[Array, ""]) -> Float[Array, "left"]:
        """The prices at a level between 0, where the budget serves all, and `LEVELS` - 1."""
        places = jnp.arange(LEVELS, dtype=jnp.float32)
        return jax.vmap(lambda prices: jnp.interp(level, places, prices))(self.prices.T)

    def price(self, budget: Float[Array, ""], left: Int[Array, ""]) -> Float[Array, ""]:
        """The price of a round with so many left, at a budget per arm."""
        return jnp.interp(budget, self.budgets[::-1], self.prices[::-1, left - 1])

    def expected(
        self,
        price: Float[Array, ""],
        budget: Float[Array, ""],
        n_arms: Int[Array, ""],
        left: Int[Array, ""],
    ) -> Float[Array, ""]:
        """The price to go by where these arms ask for `price` now."""
        usual = self.price(budget / jnp.maximum(n_arms, 1), left)
        weight = n_arms / (n_arms + TRUSTED_ARMS)
        return weight * price + (1 - weight) * usual


def encode_rounds_left(left: Int[Array, ""]) -> Float[Array, "3"]:
    """The number of rounds left as numbers of about unit size: what a round more adds shrinks, for
    some arms soon and for others late.

    >>> import jax.numpy as jnp
    >>> from prefermab.ending import encode_rounds_left
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
    """What every action is worth with so many rounds left, undiscounted and before its own cost,
    where later rounds have the prices of a path; with several numbers of rounds for each path.
    `expected` takes values of the next state (price, state) to their expectations (price, state,
    action)."""

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
