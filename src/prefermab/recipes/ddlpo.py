"""DDLPO, the paper's topline: an actor and a critic for every arm, trained on the arms they are
tested on.

Everything but the networks is recipe `paper`: all arms are in throughout and none is replaced, and
the arms' networks learn side by side in one computation.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from prefermab.arms import Arms, Key
from prefermab.domains.base import Domain
from prefermab.networks import ActorCritic, OwnNetworks
from prefermab.recipes.paper import Paper, PaperState


@eqx.filter_jit
def start(
    recipe: Paper, domain: Domain, arms: Arms, n_arms: int, with_features: bool, key: Key
) -> PaperState:
    """Untrained networks for each of these arms. Without features, arms are seen by their state
    and the price only."""
    perception = recipe.perception(domain, domain.features(arms))
    if not with_features:
        blind = jnp.zeros_like(perception.whitening)
        perception = eqx.tree_at(lambda it: it.whitening, perception, blind)

    def untrained(key: Key) -> ActorCritic:
        return recipe.untrained(perception, domain.n_actions, n_arms, key)

    keys = jax.random.split(key, n_arms)
    own, shared = eqx.filter_vmap(untrained)(keys), untrained(keys[0])
    networks = OwnNetworks(perception, own.actor, own.critic, shared.pricing)
    return recipe.learner(networks, arms)
