"""Recipe `exact`: learn what value iteration says, where the simulator's dynamics are known.

For every arm that is drawn, backward induction at each of several prices gives

    y(s, a) = Σ P(s'|s,a) (R(s') + discount·max_b [y'(s', b) - price·cost(b)])

exactly, what an action is worth before its own cost with `horizon` rounds to go. The network is
fitted to y(s, a) - y(s, 0) given what will be seen when deciding: state, features (some hidden)
and price. Its answer is the mean over all arms that look alike, so features that are missing, or
say little, and dynamics that are uncertain are allowed for by construction.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from prefermab.arms import Arm, Arms, Key
from prefermab.config import Exact
from prefermab.domains.base import Domain
from prefermab.networks import Worth
from prefermab.recipes.regression import Batch, mask_some, some_prices

TABLE = 1 << 20
"""Transition probabilities worked out in a step: few arms of many states, or many of few."""


def compute(config: Exact, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Batch:
    """Each arm at several prices and in several states, or in all if they are few. Only as many
    of the arms are used as fit the table."""
    used = max(1, min(n_arms, TABLE // (domain.n_cells**2 * domain.n_actions)))
    n_states = min(config.states, domain.n_cells)
    n_prices = -(-config.arms // (used * n_states))
    key_price, key_state, key_mask, key_used = jax.random.split(key, 4)
    chosen = jax.random.choice(key_used, n_arms, (used,), replace=False)
    arms = jax.tree.map(lambda x: x[chosen], arms)
    prices = some_prices(key_price, slow.perception.highest_price, (used, n_prices))
    worth = jax.vmap(worths_of_arm, in_axes=(None, None, 0, 0))(config, domain, arms, prices)

    keys = jax.random.split(key_state, (used, n_prices))
    some = jax.vmap(jax.vmap(lambda key: jax.random.permutation(key, domain.n_cells)[:n_states]))
    cells = some(keys)
    worth = jnp.take_along_axis(worth, cells[..., None], axis=2)
    shape = (used, n_prices, n_states)
    features = jnp.broadcast_to(
        domain.features(arms)[:, None, None], (*shape, len(domain.feature_names))
    )
    return Batch(
        domain.cells[cells].reshape(-1),
        mask_some(key_mask, features.reshape(-1, features.shape[-1]), config.masked),
        jnp.broadcast_to(prices[:, :, None], shape).reshape(-1),
        worth.reshape(-1, domain.n_actions),
    )


def worths_of_arm(
    config: Exact, domain: Domain, arm: Arm, prices: Float[Array, "price"]
) -> Float[Array, "price state act"]:
    """What every action is worth in every state of one arm at each price, before its own cost."""
    table, reward, cost = domain.transitions(arm), domain.rewards(arm), domain.costs(arm)

    def one_round(worth, _):
        value = jnp.max(worth - prices[:, None, None] * cost, axis=2)
        ahead = reward + config.discount * value
        return jnp.einsum("sat,pt->psa", table, ahead), None

    last = jnp.broadcast_to(table @ reward, (prices.shape[0], *table.shape[:2]))
    return jax.lax.scan(one_round, last, None, length=config.horizon - 1)[0]
