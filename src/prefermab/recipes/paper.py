"""Recipe `paper`: trains PreFeRMAB as published (Algorithm 1).

Line numbers are those of the paper's pseudocode. PPO is in `ppo.py`, StateShaping in `shaping.py`.
Where the paper can be read in several ways, or we depart from it, a hyperparameter chooses;
docs/decisions/paper.md says what each choice is worth. Training does not enforce the budget, so
that the estimate of spending that moves the price stays unbiased; decisions do enforce it
(Algorithm 3, in `policies/learned.py`). Opted-out arms are played too, which is cheaper than
leaving them out, and masked in every loss.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from prefermab.arms.observation import Arms, Budget, Key, OptIn, number_of_arms
from prefermab.arms.opt_in import Redrawn, Streaming
from prefermab.domains.base import Domain
from prefermab.errors import InputError
from prefermab.evaluation.rollout import Trajectory
from prefermab.networks.pricing import DECAYS, PriceKind, Pricing, price_slope
from prefermab.networks.worth import ActorCritic, Perception, Shape
from prefermab.policies.learned import ByGreedyProba
from prefermab.recipes import ppo
from prefermab.recipes.base import BY_NAME, PROBED_ARMS, Metrics, Recipe, Tuning, piece_sizes
from prefermab.recipes.shaping import Samples, abstraction_of, check_shaping, visited_states


class PaperState(eqx.Module):
    """Everything that changes in training. `settled` is the mean of the actor over the epochs in
    which the price stays fixed, because the actor of one epoch varies at random around it.
    `samples` are for StateShaping."""

    network: ActorCritic
    settled: eqx.nn.MLP
    actor_state: PyTree
    critic_state: PyTree
    arms: Arms
    opt_in: OptIn
    epoch: Int[Array, ""]
    samples: Samples | None = None


@dataclasses.dataclass(frozen=True)
class Paper(Recipe[PaperState, ActorCritic]):
    """The paper's Algorithm 1, PPO at the price of a price network, and its hyperparameters. A
    hyperparameter with two values has ours as its default; most have the other in `paper-literal`.

    >>> import prefermab as pm
    >>> pm.recipes.Paper(epochs=50).pieces[:3]
    (4, 4, 4)
    """

    name: ClassVar[str] = "paper"
    unit: ClassVar[str] = "epoch"
    may_be_zero: ClassVar[tuple[str, ...]] = ("seed", "freeze")

    epochs: int = 100  #: Rounds of collecting and learning (n_epochs).
    rounds: int = 100  #: Rounds played in an epoch (n_steps).
    subepochs: int = 4  #: Epochs between two updates of the price network (n_subepochs).
    freeze: int = 20  #: Last epochs, in which the price network is fixed (lambda freeze epochs).
    opt_in: float = 0.8  #: Chance that an arm is in (training opt-in rate).
    passes: int = 20  #: Gradient steps on an epoch's data (trains per epoch).
    clip: float = 2.0  #: How far PPO lets the probability of an action move (agent clip ratio).
    entropy_start: float = 0.5  #: Weight of the entropy bonus at the start.
    entropy_end: float = 0.0  #: Weight of the entropy bonus at the end.
    actor_rate: float = 2e-3  #: Step size of Adam for the actor (actor learning rate).
    critic_rate: float = 2e-3  #: Step size of Adam for the critic (critic learning rate).
    price_rate: float = 2e-3  #: Price network's first step size (lambda initial learning rate).
    price_decay: float = 0.99  #: Factor by which that size falls (lambda scheduler discount rate).
    discount: float = 0.9  #: Discount factor per round.
    trace: float = 0.97  #: λ of generalised advantage estimation.
    width: int = 16  #: Neurons in a hidden layer, tanh.
    depth: int = 2  #: Hidden layers.
    shaping: str | Callable = "none"  #: StateShaping: none, isotonic, knn, or in Python a function.
    features: Literal["whitened", "plain"] = "whitened"  #: Features as networks see them.
    state_code: Literal["centred", "plain"] = "centred"  #: States go from -1 to 1, or 0 to 1.
    price_network: Literal["pooled", "concatenated"] = "pooled"  #: pooled: for any number of arms.
    price_output: Literal["softplus", "plain"] = "softplus"  #: softplus: prices are at least 0.
    price_start: float = 0.5  #: Added to the price network's last bias before training.
    price_decays: Literal["update", "epoch"] = "update"  #: When the step size of the price falls.
    redraw: Literal["block", "epoch"] = "block"  #: How often it is drawn who is in.
    arrivals: Literal["redraw", "streaming"] = "redraw"  #: Who is in: drawn by place, or a stream.
    stay: float = 0.9  #: With streaming, the chance that a person who is in asks to stay.
    newcomers: float = 2.0  #: With streaming, the mean number of newcomers at each draw.
    step_on: Literal["batch", "arm"] = "batch"  #: A pass is one step on all arms, or one for each.
    advantage: Literal["plain", "standardised"] = "plain"  #: Scale of an arm's advantages.
    critic_target: Literal["advantages", "returns"] = "advantages"  #: What the critic learns.
    cooling: Literal["part", "whole"] = "part"  #: Entropy bonus in a block: to 1/subepochs, or 0.
    entropy_frozen: Literal["on", "off"] = "on"  #: The entropy bonus while the price is fixed.
    actor: Literal["mean", "last"] = "mean"  #: Mean over epochs with a fixed price, or the last.

    later: ClassVar[tuple[str, ...]] = (
        "features", "state_code", "price_network", "price_output", "price_start", "price_decays",
        "redraw", "arrivals", "stay", "newcomers", "step_on", "advantage", "critic_target",
        "cooling", "entropy_frozen", "actor",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.discount >= 1:
            raise InputError(f"discount must be below 1 for the recipe paper, not {self.discount}.")
        check_shaping(self.shaping)
        Streaming(self.stay, self.newcomers)

    @classmethod
    def literal(cls, **settings: Any) -> "Paper":
        """The paper to the letter: recipe `paper-literal`, with some hyperparameters set."""
        return cast(Paper, BY_NAME["paper-literal"](**settings))

    def check(self, domain: Domain) -> None:
        if abstraction_of(self.shaping) and jax.vmap(domain.encode)(domain.cells).shape[1] != 1:
            raise InputError("StateShaping is for states that are numbers: leave shaping at none.")

    @property
    def pieces(self) -> tuple[int, ...]:
        """A piece is a block of epochs that ends in an update of the price network."""
        return piece_sizes(self.epochs, self.subepochs)

    def init(self, domain: Domain, n_arms: int, key: Key) -> PaperState:
        """Lines 1 to 3: networks, arms, and everyone in."""
        key_arms, key_net, key_probe = jax.random.split(key, 3)
        arms = domain.draw_arms(key_arms, n_arms)
        probed = domain.features(domain.draw_arms(key_probe, PROBED_ARMS))
        perception = self.perception(domain, probed)
        learner = self.learner(self.untrained(perception, domain.n_actions, n_arms, key_net), arms)
        if abstraction_of(self.shaping) is None:
            return learner
        samples = Samples.none(self.epochs, self.rounds * n_arms)
        return dataclasses.replace(learner, samples=samples)

    def perception(self, domain: Domain, features: Float[Array, "arm feat"]) -> Perception:
        """The perception of a domain's arms, given the features of many of them."""
        centred, whitened = self.state_code == "centred", self.features == "whitened"
        return Perception.of(domain, features, jnp.ones(()), True, centred, whitened)

    def untrained(
        self, perception: Perception, n_actions: int, n_arms: int, key: Key
    ) -> ActorCritic:
        """Line 2: networks before training, for this number of arms."""
        price = PriceKind(self.price_network, self.price_output, self.price_start, n_arms)
        return ActorCritic.untrained(perception, n_actions, self.width, self.depth, key, price)

    def learner(self, networks: ActorCritic, arms: Arms) -> PaperState:
        """The state before training: these networks and arms, everyone in."""
        actor_state = optax.adam(self.actor_rate).init(eqx.filter(networks.actor, eqx.is_array))
        critic_state = optax.adam(self.critic_rate).init(eqx.filter(networks.critic, eqx.is_array))
        everyone, zero = jnp.ones(number_of_arms(arms), bool), jnp.zeros((), int)
        return PaperState(networks, networks.actor, actor_state, critic_state, arms, everyone, zero)

    def step(
        self, domain: Domain, n_arms: int, budget: Budget, size: int, state: PaperState, key: Key
    ) -> tuple[PaperState, Metrics]:
        after, metrics, _ = self.block(domain, budget, size, state, key)
        return after, metrics

    def block(
        self, domain: Domain, budget: Budget, n_epochs: int, learner: PaperState, key: Key
    ) -> tuple[PaperState, Metrics, ActorCritic]:
        """Lines 4 to 23 for the epochs between two price updates, the update included; also the
        metrics and the networks of each epoch. Line 24 is in `between`."""
        key = jax.random.fold_in(key, learner.epoch)
        key_requests, key_epochs = jax.random.split(key)
        if self.redraw == "block":
            learner = self.requests(domain, learner, key_requests)
        arrays, fixed = eqx.partition(learner, eqx.is_array)

        def one_epoch(arrays, key):
            key_play, key_start = jax.random.split(key)
            before = eqx.combine(arrays, fixed)
            if self.redraw == "epoch":
                before = self.requests(domain, before, jax.random.fold_in(key, 0))
            trajectory = self.collect(domain, before, key_play, key_start)
            after, loss = self.improve(before, trajectory)
            arrays = eqx.filter(after, eqx.is_array)
            return arrays, (ppo.measure_epoch(trajectory, loss), arrays.network, trajectory)

        keys = jax.random.split(key_epochs, n_epochs)
        arrays, (metrics, networks, trajectories) = jax.lax.scan(one_epoch, arrays, keys)
        last = jax.tree.map(lambda x: x[-1], trajectories)
        after = self.update_price(budget, eqx.combine(arrays, fixed), last)
        if after.samples is not None:
            samples = after.samples.add(*visited_states(domain, trajectories))
            after = dataclasses.replace(after, samples=samples)
        return after, metrics, eqx.combine(networks, fixed.network)

    def requests(self, domain: Domain, learner: PaperState, key: Key) -> PaperState:
        """Lines 5 to 10: who is in is decided anew, and newcomers bring dynamics of their own. The
        capacity is the number of arms; places that nobody holds are dummies."""
        key_opt_in, key_arms = jax.random.split(key)
        streaming = self.arrivals == "streaming"
        process = Streaming(self.stay, self.newcomers) if streaming else Redrawn(self.opt_in)
        opt_in, new = process.requests(key_opt_in, learner.opt_in)
        fresh = domain.draw_arms(key_arms, opt_in.shape[0])

        def replaced(old, drawn):
            return jnp.where(new.reshape(-1, *[1] * (old.ndim - 1)), drawn, old)

        arms = jax.tree.map(replaced, learner.arms, fresh)
        return eqx.tree_at(lambda it: (it.arms, it.opt_in), learner, (arms, opt_in))

    def collect(self, domain: Domain, learner: PaperState, key: Key, key_start: Key) -> Trajectory:
        """Lines 11 to 20: the price of the epoch, and all arms played with sampled actions."""
        net, arms, n_arms = learner.network, learner.arms, learner.opt_in.shape[0]
        state = jax.vmap(domain.start)(jax.random.split(key_start, n_arms), arms)
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
            one_round, state, jax.random.split(key, self.rounds)
        )
        return Trajectory(states, action, reward, cost, last, features, learner.opt_in, price)

    def improve(self, learner: PaperState, seen: Trajectory) -> tuple[PaperState, Float[Array, ""]]:
        """Line 21: PPO with feature-based values, several passes over the epoch's data."""
        net, descend = learner.network, ppo.DESCENTS[self.step_on]
        advantage = ppo.ADVANTAGES[self.advantage]
        batch = ppo.batch_of(net, seen, self.discount, self.trace, advantage, self.critic_target)
        surrogate = partial(ppo.actor_loss, net, self.clip, self.entropy_weight(learner.epoch))
        actor, actor_state, _ = descend(
            surrogate, batch, net.actor, learner.actor_state, self.actor_rate, self.passes
        )
        error = partial(ppo.critic_loss, net)
        critic, critic_state, loss = descend(
            error, batch, net.critic, learner.critic_state, self.critic_rate, self.passes
        )
        epoch = learner.epoch + 1
        after = dataclasses.replace(
            learner,
            network=eqx.tree_at(lambda n: (n.actor, n.critic), net, (actor, critic)),
            settled=ppo.running_mean(learner.settled, actor, epoch - (self.epochs - self.freeze)),
            actor_state=actor_state,
            critic_state=critic_state,
            epoch=epoch,
        )
        return after, loss

    def entropy_weight(self, epoch: Int[Array, ""]) -> Float[Array, ""]:
        """Weight of the entropy bonus: from start to end over training, falling in every block."""
        along = epoch / jnp.maximum(self.epochs - 1, 1)
        level = self.entropy_start + along * (self.entropy_end - self.entropy_start)
        weight = level * ppo.COOLINGS[self.cooling](epoch % self.subepochs, self.subepochs)
        if self.entropy_frozen == "on":
            return weight
        return jnp.where(epoch >= self.epochs - self.freeze, 0.0, weight)

    def update_price(self, budget: Budget, learner: PaperState, seen: Trajectory) -> PaperState:
        """Line 23: one step of the price network along Prop. 2, none in the last epochs."""
        spending = jnp.sum(jnp.where(seen.opt_in, seen.cost, 0.0), axis=1)
        slope = price_slope(spending, budget, self.discount)
        steps = DECAYS[self.price_decays](learner.epoch, self.subepochs)
        rate = self.price_rate * self.price_decay**steps
        rate = jnp.where(learner.epoch > self.epochs - self.freeze, 0.0, rate)
        state = jnp.where(seen.opt_in, seen.state[0], 0)

        def price(pricing: Pricing) -> Float[Array, ""]:
            net = eqx.tree_at(lambda n: n.pricing, learner.network, pricing)
            return net.price(state, seen.features, seen.opt_in)

        along = eqx.filter_grad(price)(learner.network.pricing)
        update = jax.tree.map(lambda g: -rate * slope * g, along)
        pricing = eqx.apply_updates(learner.network.pricing, update)
        return eqx.tree_at(lambda it: it.network.pricing, learner, pricing)

    def between(self, domain: Domain, states: PaperState) -> PaperState:
        """Line 24: StateShaping (Algorithm 2), fitted to all samples so far."""
        abstraction = abstraction_of(self.shaping)
        if abstraction is None or states.samples is None:
            return states
        cells = np.asarray(jax.vmap(domain.encode)(domain.cells), float)[:, 0]
        codes = states.samples.abstract(cells, abstraction)[..., None]
        codes = 2 * codes - 1 if self.state_code == "centred" else codes
        where = lambda it: it.network.perception.codes  # noqa: E731
        return eqx.tree_at(where, states, jnp.asarray(codes, jnp.float32))

    def trained(self, state: PaperState) -> ActorCritic:
        """The networks with the settled actor, or the last one."""
        if self.actor == "last":
            return state.network
        return eqx.tree_at(lambda net: net.actor, state.network, state.settled)

    def collapsed(self, rows: dict[str, np.ndarray], budget: float) -> int | None:
        """The policy has collapsed if, in each of the last epochs, no arm is acted on although
        there is a budget, or every arm although that costs far more. Then it learns no more."""
        acted = rows["acted"]
        last = acted[-self.subepochs :]
        never = (last == 0).all() and budget > 0
        always = (last == 1).all() and rows["spending"][-1] > 1.25 * budget
        if not never and not always:
            return None
        other = np.flatnonzero(acted != acted[-1])
        return int(rows[self.unit][other[-1] + 1 if other.size else 0])

    def network(self, shape: Shape, key: Key) -> ActorCritic:
        blank = Perception.blank(shape, plain=True)
        return self.untrained(blank, shape.actions, shape.arms, key)

    def policy(self, network: ActorCritic) -> ByGreedyProba:
        return ByGreedyProba(network)

    def finetune(
        self, tuning: Tuning, domain: Domain, net: ActorCritic, arms: Arms, budget: Budget, key: Key
    ) -> ActorCritic:
        """Algorithm 1 on these arms, everyone in, without an entropy bonus."""
        rate, sizes = tuning.learning_rate, (tuning.epochs, tuning.rounds, tuning.passes)
        settings = dict(zip(("epochs", "rounds", "passes"), sizes, strict=True))
        settings |= {"actor_rate": rate, "critic_rate": rate, "entropy_start": 0.0, "opt_in": 1.0}
        recipe = dataclasses.replace(self, **settings, freeze=0, shaping="none")
        return recipe.learn_on(domain, budget, recipe.learner(net, arms), key)

    def learn_on(
        self, domain: Domain, budget: Budget, learner: PaperState, key: Key,
        progress: Callable[[float, str], None] | None = None,
    ) -> ActorCritic:  # fmt: skip
        """Algorithm 1 on fixed arms; the networks after each epoch, stacked."""
        blocks, done = [], 0
        for epochs in self.pieces:
            learner, _, networks = _block(self, domain, budget, epochs, learner, key)
            blocks.append(eqx.filter(networks, eqx.is_array))
            done += epochs
            if progress is not None:
                progress(done / self.epochs, f"epoch {done}")
        # NumPy joins them: JAX would compile for each shape.
        joined = jax.tree.map(lambda *parts: jnp.asarray(np.concatenate(parts)), *blocks)
        return eqx.combine(joined, eqx.filter(learner.network, eqx.is_array, inverse=True))


_block = eqx.filter_jit(Paper.block)
