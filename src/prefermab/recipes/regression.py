"""What the recipes that learn by regression share: the network of worths, its training loop, and
how it is measured on the way. They differ in where a batch's worths come from: `sweep` samples
them, `exact` computes them.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from prefermab.arms import Arms, Features, Key, States
from prefermab.config import Regression, Tuning
from prefermab.domains.base import Domain
from prefermab.networks import Perception, Worth, mlp
from prefermab.policies.learned import BySweep
from prefermab.recipes.metrics import Metrics
from prefermab.rollout import observe
from prefermab.sharding import spread

PROBED_ARMS = 20_000
MEASURED_ARMS, MEASURED_ROUNDS = 64, 30


class Learner(eqx.Module):
    """Everything that changes while training."""

    worth: Worth
    slow: Worth
    optimiser: optax.OptState
    step: Int[Array, ""]
    kept: Any = None
    """What a recipe keeps from step to step."""


class Batch(eqx.Module):
    """Arms at a price in a state, and what each action is worth there before its own cost."""

    state: States
    features: Features
    price: Float[Array, "arm"]
    worth: Float[Array, "arm act"]


class Teacher(NamedTuple):
    """Where the worths that a recipe learns come from. `slow` is the network's slow copy, for who
    needs a value of next states."""

    prepare: Callable[[Any, Domain, Worth, Key], Any]
    """(config, domain, slow, key) to what is kept from step to step."""
    teach: Callable[[Any, Domain, Worth, Any, Int[Array, ""], Key], tuple[Any, Batch]]
    """(config, domain, slow, kept, step, key) to what is kept now, and a batch."""
    of_arms: Callable[[Any, Domain, Worth, Arms, int, Key], Batch]
    """(config, domain, slow, arms, n_arms, key) to a batch of these very arms."""
    value_weight: float
    """How much the value of waiting counts in the loss; deciding does without it."""


def network(config: Regression, perception: Perception, n_actions: int, key: Key) -> Worth:
    """An untrained network behind a given perception."""
    layers = mlp(perception.size, n_actions, config.width, config.depth, jax.nn.silu, key)
    return Worth(perception, layers)


def start(teacher: Teacher, config: Regression, domain: Domain, key: Key) -> Learner:
    """An untrained network that sees arms of this domain rightly scaled."""
    key_probe, key_net = jax.random.split(key)
    arms = domain.draw_arms(key_probe, PROBED_ARMS)
    dearest = highest_price(config, domain, key_probe)
    perception = Perception.of(domain, domain.features(arms), dearest)
    made = learner_of(config, network(config, perception, domain.n_actions, key_net))
    kept = teacher.prepare(config, domain, made.slow, jax.random.fold_in(key, 1))
    return dataclasses.replace(made, kept=kept)


def learner_of(config: Regression, worth: Worth) -> Learner:
    """This network about to learn."""
    state = optimiser(config).init(eqx.filter(worth.layers, eqx.is_array))
    return Learner(worth, worth, state, jnp.zeros((), int))


def highest_price(config: Regression, domain: Domain, key: Key) -> Float[Array, ""]:
    """No action is worth more, per unit of cost: at most it moves an arm from the worst state to
    the best for good, which earns (highest reward - lowest) / (1 - discount), or that times the
    horizon."""
    arms = domain.draw_arms(key, PROBED_ARMS)
    states = jax.vmap(domain.start)(jax.random.split(key, PROBED_ARMS), arms)
    rewards = jax.vmap(domain.reward_at)(arms, states)
    costs = jax.vmap(domain.costs)(arms)
    cheapest = jnp.min(jnp.where(costs > 0, costs, jnp.inf))
    ahead = 1 / (1 - config.discount) if config.discount < 1 else math.inf
    ahead = min(ahead, getattr(config, "horizon", math.inf))
    price = (rewards.max() - rewards.min()) * ahead / cheapest
    return jnp.where(jnp.isfinite(price) & (price > 0), price, 1.0)


def optimiser(config: Regression) -> optax.GradientTransformation:
    """Adam on clipped gradients, its step size falling to 0."""
    schedule = optax.cosine_decay_schedule(config.learning_rate, config.steps)
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))


def train(
    teacher: Teacher,
    config: Regression,
    domain: Domain,
    learner: Learner,
    key: Key,
    n_steps: Int[Array, ""],
) -> tuple[Learner, Float[Array, ""]]:
    """`n_steps` more steps, and their mean loss. The key is the whole training's: a step's
    randomness depends on its number only, so a training cut in two is the same training."""

    arrays, fixed = eqx.partition(learner, eqx.is_array)

    def one_step(_, carry):
        arrays, total = carry
        before = eqx.combine(arrays, fixed)
        key_step = jax.random.fold_in(key, before.step)
        kept, batch = teacher.teach(config, domain, before.slow, before.kept, before.step, key_step)
        ready = dataclasses.replace(before, kept=kept)
        loss, after = improve(teacher, config, ready, spread(batch))
        return eqx.filter(after, eqx.is_array), total + loss

    arrays, total = jax.lax.fori_loop(0, n_steps, one_step, (arrays, jnp.zeros(())))
    return eqx.combine(arrays, fixed), total / n_steps


def improve(
    teacher: Teacher, config: Regression, learner: Learner, batch: Batch
) -> tuple[Float[Array, ""], Learner]:
    """One gradient step on a batch; the slow copy follows. Gives the loss before the step."""
    perception = learner.worth.perception
    error = eqx.filter_value_and_grad(fit_error)
    loss, slope = error(learner.worth.layers, perception, batch, teacher.value_weight)
    update, state = optimiser(config).update(slope, learner.optimiser)
    layers = eqx.apply_updates(learner.worth.layers, update)
    slow = eqx.apply_updates(
        learner.slow.layers,
        jax.tree.map(
            lambda new, old: config.target_rate * (new - old),
            eqx.filter(layers, eqx.is_array),
            eqx.filter(learner.slow.layers, eqx.is_array),
        ),
    )
    worth, slow = Worth(perception, layers), Worth(perception, slow)
    return loss, Learner(worth, slow, state, learner.step + 1, learner.kept)


def tune(
    teacher: Teacher,
    config: Regression,
    tuning: Tuning,
    domain: Domain,
    worth: Worth,
    arms: Arms,
    n_arms: int,
    key: Key,
) -> Worth:
    """The network after each epoch of learning from these arms only, stacked. In an epoch every
    action is tried in `rounds` states of every arm; later epochs look at earlier tries again."""
    many = jax.tree.map(lambda x: jnp.repeat(x, tuning.rounds, axis=0), arms)
    arrays, fixed = eqx.partition(learner_of(config, worth), eqx.is_array)

    def one_epoch(arrays, epoch):
        def one_pass(number, arrays):
            before = eqx.combine(arrays, fixed)
            # A try is a function of its epoch's key: asking again with an old one costs nothing.
            again = jax.random.randint(jax.random.fold_in(key, before.step), (), 0, epoch + 1)
            chosen = jnp.where(number == 0, epoch, again)
            key_tries = jax.random.fold_in(jax.random.fold_in(key, 1), chosen)
            tries = teacher.of_arms(
                config, domain, before.slow, many, n_arms * tuning.rounds, key_tries
            )
            return eqx.filter(improve(teacher, config, before, tries)[1], eqx.is_array)

        arrays = jax.lax.fori_loop(0, tuning.passes, one_pass, arrays)
        return arrays, arrays.slow

    _, slow = jax.lax.scan(one_epoch, arrays, jnp.arange(tuning.epochs))
    return eqx.combine(slow, fixed.slow)


def mask_some(key: Key, features: Features, share: float) -> Features:
    """Hides features of a share of the arms, in each of those from none to all of them."""
    key_arm, key_rate, key_hide = jax.random.split(key, 3)
    n_arms = features.shape[0]
    chosen = jax.random.bernoulli(key_arm, share, (n_arms, 1))
    rate = jax.random.uniform(key_rate, (n_arms, 1))
    hidden = chosen & (jax.random.uniform(key_hide, features.shape) < rate)
    return jnp.where(hidden, jnp.nan, features)


def some_prices(key: Key, highest: Float[Array, ""], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Prices up to the highest, uniform in their root: most decisions are made at prices far below
    the highest conceivable."""
    return highest * jax.random.uniform(key, shape) ** 2


def fit_error(
    layers: eqx.nn.MLP, perception: Perception, batch: Batch, value_weight: float
) -> Float[Array, ""]:
    """Squared error of the gains and, less important, of the value of waiting."""
    values, gains = jax.vmap(Worth(perception, layers))(batch.state, batch.features, batch.price)
    waiting = batch.worth[:, 0]
    of_acting = jnp.sum((gains - (batch.worth - waiting[:, None])) ** 2, axis=1)
    return jnp.mean(of_acting) + value_weight * jnp.mean((values - waiting) ** 2)


def measure(
    domain: Domain, worth: Worth, n_arms: int, budget: Float[Array, ""], key: Key
) -> Metrics:
    """How a programme of fresh arms fares under what has been learned. A large one is measured on
    a part of it, with its share of the budget."""
    key_arms, key_start, key_play = jax.random.split(key, 3)
    places = min(n_arms, MEASURED_ARMS)
    budget = budget * places / n_arms
    arms = domain.draw_arms(key_arms, places)
    costs = jax.vmap(domain.costs)(arms)
    policy, everyone = BySweep(worth), jnp.ones(places, bool)

    def one_round(state, at):
        now, key = at
        seen = observe(domain, arms, costs, state, everyone, budget, now)
        judged = policy.judge(seen)
        actions = policy.settle(judged, seen)
        after = jax.vmap(domain.step)(jax.random.split(key, places), arms, state, actions)
        spent = jnp.sum(jnp.take_along_axis(costs, actions[:, None], axis=1)) * n_arms / places
        reward = jnp.mean(jax.vmap(domain.reward_at)(arms, after))
        return after, Metrics(reward, spent, judged.price, jnp.mean(actions > 0), jnp.zeros(()))

    start = jax.vmap(domain.start)(jax.random.split(key_start, places), arms)
    rounds = jnp.arange(MEASURED_ROUNDS), jax.random.split(key_play, MEASURED_ROUNDS)
    return jax.tree.map(jnp.mean, jax.lax.scan(one_round, start, rounds)[1])
