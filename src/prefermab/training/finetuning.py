"""Fine-tuning: a pretrained model learns further from given arms."""

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Array, Float

from prefermab.arms.observation import Arms, Budget, number_of_arms
from prefermab.domains.base import Domain
from prefermab.domains.validate import check_once
from prefermab.errors import InputError, amount
from prefermab.evaluation.compare import Progress, Trials, everyone_in, play_trials
from prefermab.evaluation.rollout import reward_per_arm
from prefermab.models.model import Model
from prefermab.networks.worth import Network
from prefermab.policies.base import Policy
from prefermab.recipes import Tuned, Tuning
from prefermab.recipes.base import check_settings

T = TypeVar("T")
CURVE_SEED, TEST_SEED = 10_001, 20_001
"""Added to the seed of learning: for the trials that choose the epoch, and for the final test."""


def finetune(
    model: Model,
    domain: Domain | None = None,
    *,
    arms: Arms = None,
    budget: float | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Model:
    """Fine-tunes a model on these very arms, and keeps the result only if it tests better.

    Each epoch gives a network. The one that earns most on a first set of trials is compared with
    the given model on a second set. It is kept if it earns more there, by more than one standard
    error of the paired difference; otherwise the model stays as it was. `Model.tuned` says what was
    used and found.

    Models of the recipes `sweep` and `paper` learn from sampled steps of the arms; those of `exact`
    learn from the arms' dynamics, which the domain must know.

    Args:
        model: A pretrained model.
        domain: The domain of the arms; the model's if left out.
        arms: Those to learn from, as `domain.draw_arms` draws them.
        budget: Budget of a round; the model's if left out.
        progress: Called with the share that is done and a line of text.
        **settings: Fields of `pm.recipes.Tuning`, such as `epochs` and `seed`.

    Returns:
        The fine-tuned model, or the model as it was.

    >>> import jax
    >>> import prefermab as pm
    >>> domain = pm.domains.Synthetic()
    >>> arms = domain.draw_arms(jax.random.key(7), 21)
    >>> model = pm.finetune(pm.load("synthetic-paper"), domain, arms=arms, epochs=2, trials=50)
    >>> model.tuned.samples_per_arm
    40
    """
    domain, n_arms = _checked(model, domain, arms)
    check_settings(Tuning, "of fine-tuning", settings)
    tuning, recipe = Tuning(**settings), model.config
    money = jnp.asarray(amount(model.budget if budget is None else budget, "budget"), jnp.float32)

    report = progress or (lambda *_: None)
    report(0.0, "learning")
    key = jax.random.key(tuning.seed)
    networks = recipe.finetune(tuning, domain, model.network, arms, money, key)
    policies = recipe.policy(networks)
    # Independent draws: one to learn from (above), one to choose the epoch, one to test it.
    choosing, testing = (
        everyone_in(tuning.seed + shift, tuning.trials, n_arms, arms)
        for shift in (CURVE_SEED, TEST_SEED)
    )
    report(0.3, "choosing an epoch")
    curve = np.asarray(earned_each(policies, domain, choosing, money)).mean(axis=1)
    best = int(curve.argmax())
    report(0.8, "held-out trials")
    chosen = at_place(networks, best)
    tuned = _tested(model, chosen, tuning, domain, testing, money)
    report(1.0, "done")
    epochs = 1 + np.arange(tuning.epochs)
    used = epochs * tuned.samples_per_arm // tuning.epochs
    history = pl.DataFrame({"epoch": epochs, "samples_per_arm": used, "mean": curve})
    network = chosen if tuned.kept else model.network
    return dataclasses.replace(
        model, network=network, domain=domain, tuned=tuned, history=history, card=""
    )


@eqx.filter_jit
def earned_each(
    policies: Policy, domain: Domain, trials: Trials, budget: Budget
) -> Float[Array, "policy trial"]:
    """Reward per arm in every trial under each of several policies, stacked in one."""
    arrays, fixed = eqx.partition(policies, eqx.is_array)

    def one_policy(arrays):
        played = play_trials(eqx.combine(arrays, fixed), domain, trials, budget)
        return reward_per_arm(played)

    return jax.lax.map(one_policy, arrays)


def _tested(
    model: Model,
    network: Network,
    tuning: Tuning,
    domain: Domain,
    trials: Trials,
    budget: Budget,
) -> Tuned:
    """What the fine-tuned network and the model before it earn on the same held-out trials."""
    before, after = (
        np.asarray(reward_per_arm(play_trials(policy, domain, trials, budget)))
        for policy in (model.policy, model.config.policy(network))
    )
    gain = after - before
    stderr = float(gain.std(ddof=1) / np.sqrt(gain.size))
    samples = model.config.samples_per_round(domain)
    return Tuned(
        n_arms=number_of_arms(trials.arms),
        samples_per_arm=tuning.epochs * tuning.rounds * samples,
        trials=tuning.trials,
        before=float(before.mean()),
        after=float(after.mean()),
        stderr=stderr,
        kept=bool(gain.mean() > stderr),
    )


def _checked(model: Model, domain: Domain | None, arms: Arms) -> tuple[Domain, int]:
    if not isinstance(model, Model):
        raise InputError(f"model must be a Model, as pm.load returns, not {type(model).__name__}.")
    own = check_once(model.domain if domain is None else domain)
    if arms is None:
        raise InputError("arms must be given: those to learn from, as domain.draw_arms draws them.")
    model.check_fits(own)
    return own, number_of_arms(arms)


def at_place(stacked: T, place: int) -> T:
    """One of several networks that are stacked along their first axis.

    >>> import equinox as eqx, jax
    >>> from prefermab.training.finetuning import at_place
    >>> both = eqx.filter_vmap(lambda key: eqx.nn.Linear(2, 3, key=key))(
    ...     jax.random.split(jax.random.key(0)))
    >>> at_place(both, 1).weight.shape
    (3, 2)
    """
    arrays, fixed = eqx.partition(stacked, eqx.is_array)
    return eqx.combine(jax.tree.map(lambda x: jax.device_put(np.asarray(x)[place]), arrays), fixed)
