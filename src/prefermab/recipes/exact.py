"""Recipe `exact`: learn what value iteration says, where the simulator's dynamics are known.

For every arm that is drawn, backward induction at each of several prices gives

    y(s, a) = Σ P(s'|s,a) (R(s') + discount·max_b [y'(s', b) - price·cost(b)])

exactly, what an action is worth before its own cost with `horizon` rounds to go. The network is
fitted to y(s, a) - y(s, 0) given what will be seen when deciding: state, features (some hidden)
and price. Its answer is the mean over all arms that look alike, so features that are missing, or
say little, and dynamics that are uncertain are allowed for by construction.

Answers are dear where states are many. Each step works out those of a few fresh arms, which take
the place of the oldest, and learns from a sample of all that are kept.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms import Arm, Arms, Features, Key
from prefermab.config import Exact
from prefermab.domains.base import Domain
from prefermab.networks import Worth
from prefermab.recipes.regression import Batch, mask_some, some_prices

KEPT, FRESH, TABLE = 512, 64, 1 << 17
"""Arms whose answers are kept; the most that are worked out in a step; and the most transition
probabilities that this may take: fewer arms where they have many states."""


class Answers(eqx.Module):
    """What every action is worth in every state of some arms, each at several prices."""

    features: Features
    prices: Float[Array, "arm price"]
    worth: Float[Array, "arm price state act"]


def fresh_arms(domain: Domain) -> int:
    """How many arms are worked out in a step."""
    return max(1, min(FRESH, TABLE // (domain.n_cells**2 * domain.n_actions)))


def prepare(config: Exact, domain: Domain, slow: Worth, key: Key) -> Answers:
    """The first answers to learn from."""
    fresh = fresh_arms(domain)
    several = jax.lax.map(
        lambda key: draw(config, domain, slow, fresh, key), jax.random.split(key, KEPT // fresh)
    )
    return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), several)


def teach(
    config: Exact, domain: Domain, slow: Worth, kept: Answers, step: Int[Array, ""], key: Key
) -> tuple[Answers, Batch]:
    """The oldest answers replaced by fresh ones, and a sample of all."""
    key_arms, key_rows = jax.random.split(key)
    fresh = fresh_arms(domain)
    new = draw(config, domain, slow, fresh, key_arms)
    place = (step % (KEPT // fresh)) * fresh
    kept = jax.tree.map(
        lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, place, 0), kept, new
    )
    return kept, rows(config, domain, kept, key_rows)


def draw(config: Exact, domain: Domain, slow: Worth, n_arms: int, key: Key) -> Answers:
    """Answers for new arms."""
    key_arms, key_prices = jax.random.split(key)
    arms = domain.draw_arms(key_arms, n_arms)
    return answers(config, domain, slow, arms, n_arms, key_prices)


def answers(
    config: Exact, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key
) -> Answers:
    """Answers for these arms, each at prices of its own."""
    prices = some_prices(key, slow.perception.highest_price, (n_arms, config.prices))
    worth = jax.vmap(worths_of_arm, in_axes=(None, None, 0, 0))(config, domain, arms, prices)
    return Answers(domain.features(arms), prices, worth)


def rows(config: Exact, domain: Domain, among: Answers, key: Key) -> Batch:
    """Some arms at some price in some state, features of some of them hidden."""
    key_arm, key_price, key_state, key_mask = jax.random.split(key, 4)
    size = (config.arms,)
    arm = jax.random.randint(key_arm, size, 0, among.prices.shape[0])
    price = jax.random.randint(key_price, size, 0, among.prices.shape[1])
    cell = jax.random.randint(key_state, size, 0, domain.n_cells)
    return Batch(
        domain.cells[cell],
        mask_some(key_mask, among.features[arm], config.masked),
        among.prices[arm, price],
        among.worth[arm, price, cell],
    )


def compute(config: Exact, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Batch:
    """Rows of these arms, of as many of them as fit the table."""
    key_used, key_prices, key_rows = jax.random.split(key, 3)
    used = min(n_arms, fresh_arms(domain))
    chosen = jax.random.choice(key_used, n_arms, (used,), replace=False)
    arms = jax.tree.map(lambda x: x[chosen], arms)
    return rows(config, domain, answers(config, domain, slow, arms, used, key_prices), key_rows)


def worths_of_arm(
    config: Exact, domain: Domain, arm: Arm, prices: Float[Array, "price"]
) -> Float[Array, "price state act"]:
    """What every action is worth in every state of one arm at each price, before its own cost."""
    return worths(config, domain.transitions(arm), domain.rewards(arm), domain.costs(arm), prices)


def worths(
    config: Exact,
    table: Float[Array, "state act state"],
    reward: Float[Array, "state"],
    cost: Float[Array, "act"],
    prices: Float[Array, "price"],
) -> Float[Array, "price state act"]:
    """The same by an arm's transitions, rewards and costs: backward induction."""

    def one_round(worth, _):
        value = jnp.max(worth - prices[:, None, None] * cost, axis=2)
        ahead = reward + config.discount * value
        return jnp.einsum("sat,pt->psa", table, ahead), None

    last = jnp.broadcast_to(table @ reward, (prices.shape[0], *table.shape[:2]))
    return jax.lax.scan(one_round, last, None, length=config.horizon - 1)[0]
