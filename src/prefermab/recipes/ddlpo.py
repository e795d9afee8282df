"""DDLPO, the paper's topline: an actor and a critic for every arm, trained on the arms they are
tested on.

Everything but the networks is recipe `paper`: all arms are in throughout and none is replaced, and
the arms' networks learn side by side in one computation.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from prefermab.arms import Arms, Key
from prefermab.config import Paper
from prefermab.domains.base import Domain
from prefermab.networks import OwnNetworks, Perception
from prefermab.recipes import paper


def start(
    config: Paper, domain: Domain, arms: Arms, n_arms: int, with_features: bool, key: Key
) -> paper.Learner:
    """Untrained networks for each of these arms. Without features, arms are seen by their state
    and the price only."""
    perception = Perception.of(domain, domain.features(arms), jnp.ones(()), plain=True)
    if not with_features:
        blind = jnp.zeros_like(perception.whitening)
        perception = eqx.tree_at(lambda it: it.whitening, perception, blind)
    keys = jax.random.split(key, n_arms)
    each = eqx.filter_vmap(lambda key: paper.network(config, perception, domain.n_actions, key))
    own = each(keys)
    shared = paper.network(config, perception, domain.n_actions, keys[0])
    networks = OwnNetworks(perception, own.actor, own.critic, shared.pricing)
    return paper.learner_of(config, networks, arms, n_arms)
