"""DDLPO, the paper's topline: every arm has an actor and a critic of its own, trained on the very
arms that it is tested on.

Everything but the networks is recipe `paper`: all arms are in throughout and none is replaced, and
the networks of all arms learn side by side in one computation.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from prefermab.arms.observation import Arms, Key, number_of_arms
from prefermab.domains.base import Domain
from prefermab.domains.validate import check_once
from prefermab.errors import amount, count
from prefermab.evaluation.compare import Progress, everyone_in
from prefermab.networks.worth import ActorCritic
from prefermab.policies.base import Policy
from prefermab.recipes.base import make_recipe
from prefermab.recipes.paper import Paper, PaperState
from prefermab.training.finetuning import CURVE_SEED, at_place, earned_each


@dataclasses.dataclass(frozen=True, eq=False)
class Topline:
    """DDLPO's policies for the arms it was trained on, and their rewards along the way.

    `start` is the policy before training. `best` is that of the best epoch, chosen on the very
    trials it is tested on, as in the paper; `last`, that of the last epoch, is an honest test.
    """

    start: Policy
    best: Policy
    last: Policy
    history: pl.DataFrame


def ddlpo(
    domain: Domain,
    arms: Arms,
    *,
    budget: float | None = None,
    with_features: bool = True,
    trials: int = 50,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> Topline:
    """DDLPO, the paper's topline: networks of its own for every arm, trained and tested on these
    arms.

    Args:
        domain: The domain of the arms.
        arms: Those to train and test on, as `domain.draw_arms` draws them.
        budget: Budget of a round; the domain's usual one if left out.
        with_features: Whether the networks see features, or only the state and the price.
        trials: Trials on which every epoch is tested.
        seed: Random seed.
        progress: Called with the share that is done and a line of text.
        **settings: Hyperparameters of the recipe `paper`.

    Returns:
        The policies, to be played with `pm.evaluate(domain, ..., arms=arms)`, and a history with a
        row for each epoch: samples of each arm so far, and the mean reward of its trials.

    >>> import jax
    >>> import prefermab as pm
    >>> domain = pm.domains.Synthetic()
    >>> arms = domain.draw_arms(jax.random.key(7), 21)
    >>> topline = pm.ddlpo(domain, arms, budget=7, epochs=4, trials=20)
    >>> topline.history["samples_per_arm"].to_list()
    [100, 200, 300, 400]
    """
    check_once(domain)
    # Each arm has networks of its own, so that a step on all of them is one for each.
    recipe = make_recipe("paper", {"opt_in": 1.0, **settings, "step_on": "batch"})
    assert isinstance(recipe, Paper)
    money = jnp.asarray(
        amount(domain.usual_budget if budget is None else budget, "budget"), jnp.float32
    )
    n_arms, n_trials = number_of_arms(arms), count(trials, "trials")
    key = jax.random.key(count(seed, "seed", at_least=0))
    learner = _start(recipe, domain, arms, n_arms, with_features, key)
    start = recipe.policy(learner.network)
    networks = recipe.learn_on(domain, money, learner, key, progress)
    policies = recipe.policy(networks)
    tests = everyone_in(seed + CURVE_SEED, n_trials, n_arms, arms)
    earned = np.asarray(earned_each(policies, domain, tests, money)).mean(axis=1)
    epochs = 1 + np.arange(recipe.epochs)
    history = pl.DataFrame(
        {"epoch": epochs, "samples_per_arm": epochs * recipe.rounds, "mean": earned}
    )
    best, last = int(earned.argmax()), recipe.epochs - 1
    return Topline(start, at_place(policies, best), at_place(policies, last), history)


@eqx.filter_jit
def _start(
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
    networks = ActorCritic(perception, own.actor, own.critic, shared.pricing, own=True)
    return recipe.learner(networks, arms)
