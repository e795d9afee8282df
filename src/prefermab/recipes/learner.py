"""What recipes `sweep` and `exact` hold: a learner of what each action is worth at many prices.

The worth of an action is its value before its own cost is paid. `Lessons` say where worths come
from: `sweep` samples them from steps of the simulator, `exact` computes them. A `Learner` fits a
network to the batches of its lessons.
"""

import abc
import dataclasses
from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from prefermab.arms.observation import Arms, Features, Key, States, number_of_arms
from prefermab.domains.base import Domain
from prefermab.networks.ending import UsualPrices, encode_rounds_left
from prefermab.networks.worth import Perception, Worth, mlp
from prefermab.recipes.base import Tuning

LEAST_WEIGHT, LOW_PRICE = 0.1, 0.05
"""With `focus`: the weight of an error far from a decision, and the share of the highest price that
is added to the price, because at price 0 no decision would count as near."""

Kept = TypeVar("Kept")
"""What lessons keep from step to step."""

PassedOn = TypeVar("PassedOn")
"""The memory in a state that a method only passes on."""


class RegressionState(eqx.Module, Generic[Kept]):
    """Everything that changes in training. `slow` is an average of the network over the last steps;
    `memory` is what the lessons keep; `to_end` is the training of a second network, for programmes
    that end."""

    worth: Worth
    slow: Worth
    optimiser: PyTree
    step: Int[Array, ""]
    memory: Kept
    to_end: "RegressionState[Kept] | None" = None


class Batch(eqx.Module):
    """Arms at a price in a state, and what each action is worth there before its own cost."""

    state: States
    features: Features
    price: Float[Array, "arm"]
    worth: Float[Array, "arm act"] | Float[Array, "arm cell act"]
    """In that state, or in every state."""
    cost: Float[Array, "arm act"]
    left: Int[Array, "arm"] | None = None
    """Rounds left; None: the programme goes on."""


class Lessons(abc.ABC, Generic[Kept]):
    """Where the worths that a network learns come from; `slow` values next states."""

    @abc.abstractmethod
    def prepare(self, domain: Domain, slow: Worth, key: Key) -> Kept:
        """The memory before the first step."""

    @abc.abstractmethod
    def teach(
        self, domain: Domain, slow: Worth, memory: Kept, step: Int[Array, ""], key: Key
    ) -> tuple[Kept, Batch]:
        """The memory after a step, and the batch to learn from."""

    @abc.abstractmethod
    def batch(self, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Batch:
        """A batch of these arms only."""


class Learning(abc.ABC, Generic[Kept]):
    """What learns: a `Learner`, or two of them (`last_rounds.LearnerToEnd`)."""

    @abc.abstractmethod
    def init(self, domain: Domain, perception: Perception, key: Key) -> RegressionState[Kept]:
        """The state before the first step."""

    @abc.abstractmethod
    def advance(
        self, domain: Domain, size: int, state: RegressionState[Kept], key: Key
    ) -> tuple[RegressionState[Kept], Float[Array, ""]]:
        """`size` gradient steps, and their mean loss. What is random in a step depends on the key
        and the step's number only."""

    @abc.abstractmethod
    def untrained(self, perception: Perception, n_actions: int, key: Key) -> Worth:
        """An untrained network behind a given perception."""

    @abc.abstractmethod
    def tuned(self, tuning: Tuning, domain: Domain, worth: Worth, arms: Arms, key: Key) -> Worth:
        """The network after each epoch of learning from these arms, stacked. In an epoch each
        action is tried in `rounds` states of every arm; later epochs use earlier tries again."""


@dataclasses.dataclass(frozen=True)
class Learner(Learning[Kept]):
    """Fits a network to the batches of its lessons."""

    lessons: Lessons[Kept]
    steps: int
    width: int
    depth: int
    learning_rate: float
    target_rate: float
    focus: float
    value_weight: float = 0.0
    """Weight of the value of waiting in the loss; decisions do not use this value."""
    longest: int = 0
    """The most rounds left for which the network decides; 0: for an ongoing programme."""

    def untrained(self, perception: Perception, n_actions: int, key: Key) -> Worth:
        size, out = perception.size, n_actions
        if self.longest:
            size += encode_rounds_left(jnp.ones((), int)).size
        elif perception.by_cell:
            code = perception.codes.shape[1]
            size, out = size - code, (code + 1) * n_actions
        layers = mlp(size, out, self.width, self.depth, jax.nn.silu, key)
        return Worth(perception, layers, UsualPrices.blank(self.longest) if self.longest else None)

    def init(self, domain: Domain, perception: Perception, key: Key) -> RegressionState[Kept]:
        worth = self.untrained(perception, domain.n_actions, jax.random.split(key)[1])
        return self.start(worth, self.lessons.prepare(domain, worth, jax.random.fold_in(key, 1)))

    def start(self, worth: Worth, memory: PassedOn) -> RegressionState[PassedOn]:
        """The state before the first step, for this network and memory."""
        state = self.optimiser().init(eqx.filter(worth.layers, eqx.is_array))
        return RegressionState(worth, worth, state, jnp.zeros((), int), memory)

    def optimiser(self) -> optax.GradientTransformation:
        """Adam on clipped gradients, its step size falling to 0."""
        schedule = optax.cosine_decay_schedule(self.learning_rate, self.steps)
        return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))

    def advance(
        self, domain: Domain, size: int, state: RegressionState[Kept], key: Key
    ) -> tuple[RegressionState[Kept], Float[Array, ""]]:
        arrays, fixed = eqx.partition(state, eqx.is_array)

        def one_step(_, carry):
            arrays, total = carry
            before = eqx.combine(arrays, fixed)
            key_step = jax.random.fold_in(key, before.step)
            memory, batch = self.lessons.teach(
                domain, before.slow, before.memory, before.step, key_step
            )
            ready = dataclasses.replace(before, memory=memory)
            loss, after = self.improve(ready, batch)
            return eqx.filter(after, eqx.is_array), total + loss

        arrays, total = jax.lax.fori_loop(0, size, one_step, (arrays, jnp.zeros(())))
        return eqx.combine(arrays, fixed), total / size

    def improve(
        self, state: RegressionState[PassedOn], batch: Batch
    ) -> tuple[Float[Array, ""], RegressionState[PassedOn]]:
        """One gradient step on a batch; the slow copy follows. Gives the loss before the step."""
        worth, slow = state.worth, state.slow
        error = eqx.filter_value_and_grad(fit_error)
        loss, slope = error(worth.layers, worth.perception, batch, self.value_weight, self.focus)
        update, optimiser = self.optimiser().update(slope, state.optimiser)
        layers = eqx.apply_updates(worth.layers, update)
        new, fixed = eqx.partition(layers, eqx.is_array)
        mixed = optax.incremental_update(
            new, eqx.filter(slow.layers, eqx.is_array), self.target_rate
        )
        worth = dataclasses.replace(worth, layers=layers)
        slow = dataclasses.replace(slow, layers=eqx.combine(mixed, fixed))
        return loss, RegressionState(worth, slow, optimiser, state.step + 1, state.memory)

    def tuned(self, tuning: Tuning, domain: Domain, worth: Worth, arms: Arms, key: Key) -> Worth:
        steps = tuning.epochs * tuning.passes
        learner = dataclasses.replace(self, steps=steps, learning_rate=tuning.learning_rate)
        return _learn_from(learner, tuning, domain, worth, arms, key)


@eqx.filter_jit
def _learn_from(
    learner: Learner[Kept], tuning: Tuning, domain: Domain, worth: Worth, arms: Arms, key: Key
) -> Worth:
    """The network after each epoch of learning from these arms only, stacked."""
    many = jax.tree.map(lambda x: jnp.repeat(x, tuning.rounds, axis=0), arms)
    size = number_of_arms(many)
    arrays, fixed = eqx.partition(learner.start(worth, None), eqx.is_array)

    def one_epoch(arrays, epoch):
        def one_pass(number, arrays):
            before = eqx.combine(arrays, fixed)
            # Tries follow from their epoch's key, so that earlier ones need not be stored.
            again = jax.random.randint(jax.random.fold_in(key, before.step), (), 0, epoch + 1)
            chosen = jnp.where(number == 0, epoch, again)
            key_tries = jax.random.fold_in(jax.random.fold_in(key, 1), chosen)
            tries = learner.lessons.batch(domain, before.slow, many, size, key_tries)
            return eqx.filter(learner.improve(before, tries)[1], eqx.is_array)

        arrays = jax.lax.fori_loop(0, tuning.passes, one_pass, arrays)
        return arrays, arrays.slow

    _, slow = jax.lax.scan(one_epoch, arrays, jnp.arange(tuning.epochs))
    return eqx.combine(slow, fixed.slow)


def fit_error(
    layers: eqx.nn.MLP, perception: Perception, batch: Batch, value_weight: float, focus: float
) -> Float[Array, ""]:
    """Squared error of the gains, weighted by `importance`, plus `value_weight` times that of the
    value of waiting."""
    worth = Worth(perception, layers)
    if perception.by_cell and batch.worth.ndim == 3:
        out = jax.vmap(worth.everywhere)(batch.features, batch.price)
        values, gains = out[..., 0], out.at[..., 0].set(0.0)
    else:
        values, gains = jax.vmap(worth)(batch.state, batch.features, batch.price, batch.left)
    waiting = batch.worth[..., 0]
    errors = (gains - (batch.worth - waiting[..., None])) ** 2
    if focus:
        errors *= importance(gains, perception.highest_price, batch, focus)
    of_acting = jnp.sum(errors, axis=-1)
    return jnp.mean(of_acting) + value_weight * jnp.mean((values - waiting) ** 2)


def importance(
    gains: Float[Array, "arm act"] | Float[Array, "arm cell act"],
    highest_price: Float[Array, ""],
    batch: Batch,
    focus: float,
) -> Float[Array, "..."]:
    """The weight of each error, 1 on average. It is largest where an action and the best other one
    are nearly equal at the price, by the network's own estimate. It depends on the network's inputs
    only, so that what is learned is still the mean over arms that look alike."""
    every_cell = (slice(None), *[None] * (gains.ndim - 2))
    cost, price = batch.cost[every_cell], batch.price[every_cell]
    net = jax.lax.stop_gradient(gains) - price[..., None] * cost
    # Not top_k, which sorts: half of a training's time on a CPU.
    others = [jnp.max(jnp.delete(net, at, axis=-1), axis=-1) for at in range(net.shape[-1])]
    apart = net - jnp.stack(others, axis=-1)
    unit = focus * (price + LOW_PRICE * highest_price) * jnp.max(cost, axis=-1)
    weight = LEAST_WEIGHT + (1 - LEAST_WEIGHT) / (1 + (apart / unit[..., None]) ** 2)
    return weight / jnp.mean(weight)


def hide_features(key: Key, features: Features, share: float) -> Features:
    """Hides features of a random share of the arms: in each of these, from none to all."""
    key_arm, key_rate, key_hide = jax.random.split(key, 3)
    n_arms = features.shape[0]
    chosen = jax.random.bernoulli(key_arm, share, (n_arms, 1))
    rate = jax.random.uniform(key_rate, (n_arms, 1))
    hidden = chosen & (jax.random.uniform(key_hide, features.shape) < rate)
    return jnp.where(hidden, jnp.nan, features)


def sample_prices(
    key: Key, highest: Float[Array, ""], shape: tuple[int, ...]
) -> Float[Array, "..."]:
    """Random prices up to the highest, uniform in their square root: most decisions are made at
    prices far below the highest possible one."""
    return highest * jax.random.uniform(key, shape) ** 2
