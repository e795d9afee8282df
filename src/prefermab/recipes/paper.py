"""Recipe `paper`: PreFeRMAB as published (Algorithm 1).

Lines are those of the paper's pseudocode. The budget is not enforced here, so that the estimate of
spending that moves the price stays unbiased; deciding enforces it. Opted-out arms are played along,
which is cheaper than leaving holes, and masked out of every loss.
"""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from prefermab.arms import Arms, Features, Key, OptIn, States
from prefermab.config import Paper
from prefermab.domains.base import Domain
from prefermab.losses import advantages, clipped_gain, entropy, mean_over, price_slope
from prefermab.networks import ActorCritic, Perception, PriceNetwork, mlp
from prefermab.opt_in import redraw
from prefermab.recipes.metrics import Metrics
from prefermab.sharding import spread

PROBED_ARMS = 20_000
"""Arms drawn to learn the scale of features."""


class Learner(eqx.Module):
    """Everything that changes while training. `settled` is the mean of the actor over the epochs
    in which the price stays: one epoch's actor is a throw of the dice around it."""

    network: ActorCritic
    settled: eqx.nn.MLP
    actor_state: optax.OptState
    critic_state: optax.OptState
    arms: Arms
    opt_in: OptIn
    epoch: Int[Array, ""]


class Trajectory(eqx.Module):
    """What an epoch saw, round by round, and the price it was played at."""

    state: Float[Array, "round arm"] | Int[Array, "round arm"]
    action: Int[Array, "round arm"]
    reward: Float[Array, "round arm"]
    cost: Float[Array, "round arm"]
    last_state: States
    features: Features
    opt_in: OptIn
    price: Float[Array, ""]


class Block(eqx.Module):
    """What came of a block: metrics and networks of each epoch, and what the last one saw."""

    metrics: Metrics
    networks: ActorCritic
    last: Trajectory


def network(config: Paper, perception: Perception, n_actions: int, key: Key) -> ActorCritic:
    """Untrained networks behind a given perception."""
    keys = jax.random.split(key, 4)
    code, n_features = perception.codes.shape[1], perception.mean.shape[0]
    sizes = (config.width, config.depth, jnp.tanh)
    each = mlp(code + n_features + 1, config.width, config.width, 1, jnp.tanh, keys[0])
    together = mlp(config.width, 1, config.width, 1, jnp.tanh, keys[1])
    # A price that comes down from above sorts arms by who is worth it at all; one that starts too
    # low teaches the actor to serve everyone, with odds that it cannot unlearn.
    together = eqx.tree_at(lambda net: net.layers[-1].bias, together, replace_fn=lambda b: b + 0.5)
    return ActorCritic(
        perception,
        mlp(perception.size, n_actions, *sizes, keys[2]),
        mlp(perception.size, 1, *sizes, keys[3]),
        PriceNetwork(each, together),
    )


def start(config: Paper, domain: Domain, n_arms: int, key: Key) -> Learner:
    """Lines 1 to 3: networks, arms, and everyone in."""
    key_arms, key_net, key_probe = jax.random.split(key, 3)
    arms = domain.draw_arms(key_arms, n_arms)
    probed = domain.features(domain.draw_arms(key_probe, PROBED_ARMS))
    perception = Perception.of(domain, probed, jnp.ones(()), plain=True)
    made = network(config, perception, domain.n_actions, key_net)
    return learner_of(config, made, arms, n_arms)


def learner_of(config: Paper, made: ActorCritic, arms: Arms, n_arms: int) -> Learner:
    """These networks about to learn from these arms, everyone in."""
    actor_state = optax.adam(config.actor_rate).init(eqx.filter(made.actor, eqx.is_array))
    critic_state = optax.adam(config.critic_rate).init(eqx.filter(made.critic, eqx.is_array))
    everyone = jnp.ones(n_arms, bool)
    zero = jnp.zeros((), int)
    return Learner(made, made.actor, actor_state, critic_state, arms, everyone, zero)


def block(
    config: Paper,
    domain: Domain,
    budget: Float[Array, ""],
    n_epochs: int,
    learner: Learner,
    key: Key,
) -> tuple[Learner, Block]:
    """Lines 4 to 25 for the epochs between two price updates, the update included."""
    key = jax.random.fold_in(key, learner.epoch)
    key_requests, key_epochs = jax.random.split(key)
    learner = requests(config, domain, learner, key_requests)
    arrays, fixed = eqx.partition(learner, eqx.is_array)

    def one_epoch(arrays, key):
        key_play, key_start = jax.random.split(key)
        before = eqx.combine(arrays, fixed)
        trajectory = collect(config, domain, before, key_play, key_start)
        after, loss = improve(config, before, trajectory)
        arrays = eqx.filter(after, eqx.is_array)
        return arrays, (measure(trajectory, loss), arrays.network, trajectory)

    keys = jax.random.split(key_epochs, n_epochs)
    arrays, (metrics, networks, trajectories) = jax.lax.scan(one_epoch, arrays, keys)
    learner = eqx.combine(arrays, fixed)
    last = jax.tree.map(lambda x: x[-1], trajectories)
    seen = Block(metrics, eqx.combine(networks, fixed.network), last)
    return update_price(config, budget, learner, last), seen


def requests(config: Paper, domain: Domain, learner: Learner, key: Key) -> Learner:
    """Lines 5 to 10: who is in is drawn anew, and newcomers bring dynamics of their own. Places
    are as many as arms, so that every request is accepted; the rest are dummies."""
    key_opt_in, key_arms = jax.random.split(key)
    n_arms = learner.opt_in.shape[0]
    opt_in = redraw(key_opt_in, n_arms, config.opt_in)
    opt_in = jnp.where(jnp.any(opt_in), opt_in, True)
    new = opt_in & ~learner.opt_in
    fresh = domain.draw_arms(key_arms, n_arms)

    def taken(old, drawn):
        return jnp.where(new.reshape(-1, *[1] * (old.ndim - 1)), drawn, old)

    arms = jax.tree.map(taken, learner.arms, fresh)
    return eqx.tree_at(lambda it: (it.arms, it.opt_in), learner, (arms, opt_in))


def collect(
    config: Paper, domain: Domain, learner: Learner, key: Key, key_start: Key
) -> Trajectory:
    """Lines 11 to 20: the price of the epoch, and every arm played by the actor's own odds."""
    net, arms, n_arms = learner.network, spread(learner.arms), learner.opt_in.shape[0]
    state = spread(jax.vmap(domain.start)(jax.random.split(key_start, n_arms), arms))
    features = jnp.where(learner.opt_in[:, None], domain.features(arms), 0.0)
    costs = jax.vmap(domain.costs)(arms)
    price = net.price(jnp.where(learner.opt_in, state, 0), features, learner.opt_in)

    def one_round(state, key):
        key_action, key_step = jax.random.split(key)
        action = jax.random.categorical(key_action, net.logits_of(state, features, price))
        after = jax.vmap(domain.step)(jax.random.split(key_step, n_arms), arms, state, action)
        reward = jax.vmap(domain.reward_at)(arms, after)
        cost = jnp.take_along_axis(costs, action[:, None], axis=1)[:, 0]
        return after, (state, action, reward, cost)

    last, (states, action, reward, cost) = jax.lax.scan(
        one_round, state, jax.random.split(key, config.rounds)
    )
    return Trajectory(states, action, reward, cost, last, features, learner.opt_in, price)


def improve(config: Paper, learner: Learner, seen: Trajectory) -> tuple[Learner, Float[Array, ""]]:
    """Line 21: PPO with feature-based values, several passes over the epoch's data."""
    net = learner.network
    over_rounds = functools.partial(in_every_round, seen, net.perception)
    values = over_rounds(net.values_of)
    last = net.values_of(seen.last_state, seen.features, seen.price)
    paid = seen.reward - seen.price * seen.cost
    gain = advantages(paid, values, last, config.discount, config.trace)
    inside = jnp.broadcast_to(seen.opt_in, gain.shape)
    target = gain + values
    chosen = seen.action[..., None]
    before = jax.nn.log_softmax(over_rounds(net.logits_of))
    before = jnp.take_along_axis(before, chosen, axis=-1)[..., 0]
    weight = entropy_weight(config, learner.epoch)

    def actor_loss(actor: eqx.nn.MLP) -> Float[Array, ""]:
        moved = eqx.tree_at(lambda n: n.actor, net, actor)
        logits = over_rounds(moved.logits_of)
        now = jnp.take_along_axis(jax.nn.log_softmax(logits), chosen, axis=-1)[..., 0]
        gained = clipped_gain(jnp.exp(now - before), gain, config.clip)
        return -mean_over(inside, gained + weight * entropy(logits))

    def critic_loss(critic: eqx.nn.MLP) -> Float[Array, ""]:
        moved = eqx.tree_at(lambda n: n.critic, net, critic)
        error = over_rounds(moved.values_of) - target
        return mean_over(inside, error**2)

    actor, actor_state, _ = descend(
        actor_loss, net.actor, learner.actor_state, config.actor_rate, config.passes
    )
    critic, critic_state, loss = descend(
        critic_loss, net.critic, learner.critic_state, config.critic_rate, config.passes
    )
    epoch = learner.epoch + 1
    after = Learner(
        eqx.tree_at(lambda n: (n.actor, n.critic), net, (actor, critic)),
        mean_so_far(learner.settled, actor, epoch - (config.epochs - config.freeze)),
        actor_state,
        critic_state,
        learner.arms,
        learner.opt_in,
        epoch,
    )
    return after, loss


def in_every_round(seen: Trajectory, perception: Perception, asked: Callable):
    """A network's answers in every round; where states are few, it is asked once for each."""
    n_rounds, n_arms = seen.state.shape
    states = jnp.arange(perception.points.size)
    each = jax.vmap(asked, in_axes=(0, None, None))
    if perception.continuous or states.size >= n_rounds:
        return each(seen.state, seen.features, seen.price)
    everywhere = jnp.broadcast_to(states[:, None], (states.size, n_arms))
    return each(everywhere, seen.features, seen.price)[seen.state, jnp.arange(n_arms)]


def mean_so_far(mean, new, epochs: Int[Array, ""]):
    """The mean of a network over the last so many epochs; before them, the network itself."""
    many = jnp.maximum(epochs, 1)
    return jax.tree.map(
        lambda old, now: old + (now - old) / many if eqx.is_array(now) else now, mean, new
    )


def descend(loss, part, state, rate: float, passes: int):
    """Several steps of Adam on one loss; the part, Adam's memory and the last loss."""
    adam = optax.adam(rate)
    arrays, fixed = eqx.partition(part, eqx.is_array)

    def one_pass(carry, _):
        arrays, state = carry
        value, slope = jax.value_and_grad(lambda a: loss(eqx.combine(a, fixed)))(arrays)
        update, state = adam.update(slope, state)
        return (optax.apply_updates(arrays, update), state), value

    (arrays, state), values = jax.lax.scan(one_pass, (arrays, state), None, length=passes)
    return eqx.combine(arrays, fixed), state, values[-1]


def entropy_weight(config: Paper, epoch: Int[Array, ""]) -> Float[Array, ""]:
    """From start to end over training, and from that towards 0 within every block."""
    along = epoch / jnp.maximum(config.epochs - 1, 1)
    level = config.entropy_start + along * (config.entropy_end - config.entropy_start)
    return level * (1 - (epoch % config.subepochs) / config.subepochs)


def update_price(
    config: Paper, budget: Float[Array, ""], learner: Learner, seen: Trajectory
) -> Learner:
    """Line 23: one step of the price network along Prop. 2, none in the last epochs."""
    spending = jnp.sum(jnp.where(seen.opt_in, seen.cost, 0.0), axis=1)
    slope = price_slope(spending, budget, config.discount)
    updates = learner.epoch // config.subepochs
    rate = config.price_rate * config.price_decay**updates
    rate = jnp.where(learner.epoch > config.epochs - config.freeze, 0.0, rate)
    state = jnp.where(seen.opt_in, seen.state[0], 0)

    def price(pricing: PriceNetwork) -> Float[Array, ""]:
        net = eqx.tree_at(lambda n: n.pricing, learner.network, pricing)
        return net.price(state, seen.features, seen.opt_in)

    along = eqx.filter_grad(price)(learner.network.pricing)
    step = jax.tree.map(lambda g: -rate * slope * g, along)
    pricing = eqx.apply_updates(learner.network.pricing, step)
    return eqx.tree_at(lambda it: it.network.pricing, learner, pricing)


def measure(seen: Trajectory, loss: Float[Array, ""]) -> Metrics:
    """How an epoch went, of those who are in."""
    inside = jnp.broadcast_to(seen.opt_in, seen.reward.shape)
    spending = jnp.mean(jnp.sum(jnp.where(inside, seen.cost, 0.0), axis=1))
    acted = mean_over(inside, (seen.action > 0).astype(jnp.float32))
    return Metrics(mean_over(inside, seen.reward), spending, seen.price, acted, loss)
