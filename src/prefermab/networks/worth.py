"""Neural networks for one arm: from state, features and price to what each action is worth.

`Perception` is the only place where an observation becomes a network's input, in training and when
deciding alike.
"""

import abc
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms.observation import Features, Key, OptIn, State, States
from prefermab.domains.base import ContinuousDomain, Domain
from prefermab.networks.ending import UsualPrices, encode_rounds_left
from prefermab.networks.pricing import PriceKind, Pricing

T = TypeVar("T")


class Shape(eqx.Module):
    """Sizes that fix a network's parameters, so that a file can be checked before it is read."""

    cells: int
    code: int
    features: int
    actions: int
    continuous: bool
    arms: int = 0
    """The one number of arms that the network is made for; 0 where it takes any."""
    by_cell: bool = False
    """Whether the layers serve all cells at once (`Perception.by_cell`)."""


class Perception(eqx.Module):
    """Turns an arm's state and features and the price into inputs of about unit size.

    A state is looked up in the codes of the domain's cells; a continuous state is interpolated
    between them. A state that is a single number is repeated on two scales that stretch its ends
    (`stretch`). Features are whitened with the mean and covariance of training arms: a random
    projection leaves some directions much smaller than others, though they matter as much. An
    unknown feature (NaN) takes its mean, and a flag says so. The price enters by its square root,
    in which training draws it uniformly. A `plain` perception, the paper's, takes state and price
    as they are.
    """

    points: Float[Array, "state"]
    codes: Float[Array, "state code"]
    mean: Float[Array, "feat"]
    whitening: Float[Array, "feat feat"]
    highest_price: Float[Array, ""]
    continuous: bool
    plain: bool = False
    by_cell: bool = False

    @classmethod
    def of(
        cls,
        domain: Domain,
        features: Features,
        highest_price: Float[Array, ""],
        plain: bool = False,
        centred: bool = True,
        whitened: bool = True,
    ) -> "Perception":
        """The perception of a domain's arms, given the features of many of them. Codes of states
        are `centred` around 0 or left between 0 and 1; features are `whitened` or left alone."""
        codes = jax.vmap(domain.encode)(domain.cells)
        if not plain and codes.shape[1] == 1:
            codes = jnp.concatenate([codes, stretch(codes), stretch(1 - codes)], axis=1)
        codes = 2 * codes - 1 if centred else codes
        size, points = features.shape[1], domain.cells.astype(jnp.float32)
        scale = whitening(features) if whitened else (jnp.zeros(size), jnp.eye(size))
        continuous = isinstance(domain, ContinuousDomain)
        by_cell = not plain and domain.targets is not None
        return cls(points, codes, *scale, highest_price, continuous, plain, by_cell)

    @classmethod
    def blank(cls, shape: Shape, plain: bool) -> "Perception":
        """All zeros, of a given shape: a perception that a model file fills."""
        zeros = jnp.zeros
        return cls(
            zeros(shape.cells),
            zeros((shape.cells, shape.code)),
            zeros(shape.features),
            zeros((shape.features, shape.features)),
            zeros(()),
            shape.continuous,
            plain,
            shape.by_cell,
        )

    def __call__(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "input"]:
        return jnp.concatenate([self.code(state), self.without_state(features, price)])

    def without_state(
        self, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "input"]:
        """The inputs other than the state's code."""
        unknown = jnp.isnan(features).astype(jnp.float32)
        return jnp.concatenate([self.scaled(features), unknown, self.level(price)[None]])

    def scaled(self, features: Float[Array, "feat"]) -> Float[Array, "feat"]:
        """Features as numbers of about unit size."""
        return jnp.where(jnp.isnan(features), 0.0, features - self.mean) @ self.whitening

    def level(self, price: Float[Array, ""]) -> Float[Array, ""]:
        """The price as a number of about unit size."""
        if self.plain:
            return price
        return 2 * jnp.sqrt(jnp.clip(price / self.highest_price, 0.0, 1.0)) - 1

    def code(self, state: State) -> Float[Array, "code"]:
        """The code of a state."""
        if not self.continuous:
            return self.codes[state]
        return jax.vmap(lambda code: jnp.interp(state, self.points, code))(self.codes.T)

    @property
    def size(self) -> int:
        """Number of inputs of a network."""
        return self.codes.shape[1] + 2 * self.mean.shape[0] + 1


def stretch(level: Float[Array, "..."]) -> Float[Array, "..."]:
    """Maps [0, 1] to itself and pulls numbers near 0 apart: in a town of hundreds, one infected
    person or five makes a large difference.

    >>> import jax.numpy as jnp
    >>> from prefermab.networks.worth import stretch
    >>> [round(float(x), 2) for x in stretch(jnp.array([0.0, 0.01, 0.1, 1.0]))]
    [0.0, 0.15, 0.52, 1.0]
    """
    return jnp.log1p(100 * level) / jnp.log1p(100)


def whitening(features: Features) -> tuple[Float[Array, "feat"], Float[Array, "feat feat"]]:
    """Mean, and the matrix after which features have unit covariance (unknown ones left out).

    >>> import jax, jax.numpy as jnp
    >>> from prefermab.networks.worth import whitening
    >>> x = jax.random.normal(jax.random.key(0), (1000, 2)) @ jnp.array([[1.0, 0.9], [0.0, 0.1]])
    >>> mean, matrix = whitening(x)
    >>> abs(jnp.cov(((x - mean) @ matrix).T)).round(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    known = ~jnp.isnan(features)
    seen = jnp.maximum(known.sum(axis=0), 1)
    mean = jnp.where(known, features, 0.0).sum(axis=0) / seen
    centred = jnp.where(known, features - mean, 0.0)
    covariance = centred.T @ centred / jnp.maximum(len(features) - 1, 1)
    sizes, directions = jnp.linalg.eigh(covariance)
    # A direction in which training arms do not differ says nothing: it is left out, not blown up.
    useful = sizes > 1e-7 * jnp.max(sizes, initial=1e-30)
    scale = jnp.where(useful, 1 / jnp.sqrt(jnp.where(useful, sizes, 1.0)), 0.0)
    return mean, directions * scale


class Network(eqx.Module):
    """What every trained network has: a perception, its only view of an arm."""

    perception: Perception

    @property
    @abc.abstractmethod
    def places(self) -> int:
        """The one number of arms it can decide for; 0 for any."""

    @property
    @abc.abstractmethod
    def longest(self) -> int | None:
        """The most rounds left for which it was trained; None if it was for none."""


class Worth(Network):
    """The value of waiting (the passive action) in a state, and the gain of each action over it. A
    gain is before the action's own cost at the price, which is known and need not be learned.
    Recipe `exact` learns the gains only.

    For arms with very many states (`Perception.by_cell`) the layers turn features and price into a
    weight for each number of a state's code; value and gains are the code's weighted sums. So one
    pass serves all states, and all of them are learned from at once.

    A network for an ongoing programme may contain a second one for the last rounds of a programme
    (`to_end`), which also sees the number of rounds left and has their `usual` prices.
    """

    layers: eqx.nn.MLP
    usual: UsualPrices | None = None
    to_end: "Worth | None" = None

    @property
    def places(self) -> int:
        return 0

    @property
    def longest(self) -> int | None:
        ending = None if self.to_end is None else self.to_end.usual
        return None if ending is None else ending.longest

    def __call__(
        self,
        state: State,
        features: Float[Array, "feat"],
        price: Float[Array, ""],
        left: Int[Array, ""] | None = None,
    ) -> tuple[Float[Array, ""], Float[Array, "act"]]:
        if self.perception.by_cell:
            out = self._in_cell(state, features, price)
        else:
            seen = self.perception(state, features, price)
            if left is not None:
                seen = jnp.concatenate([seen, encode_rounds_left(left)])
            out = self.layers(seen)
        return out[0], out.at[0].set(0.0)

    def _in_cell(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "act"]:
        *hidden, last = self.layers.layers
        codes = self.perception.codes
        # The last layer of every state is computed once for all arms, and looked up.
        known = jnp.concatenate([codes, jnp.ones((codes.shape[0], 1))], axis=1)
        weights = jnp.tensordot(known, last.weight.reshape(known.shape[1], -1, last.in_features), 1)
        assert last.bias is not None
        bias = known @ last.bias.reshape(known.shape[1], -1)
        seen = self.perception.without_state(features, price)
        for layer in hidden:
            seen = self.layers.activation(layer(seen))
        return weights[state] @ seen + bias[state]

    def everywhere(
        self, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "state act"]:
        """With `by_cell`: the value of waiting in every state, and the gain of each action."""
        codes, seen = self.perception.codes, self.perception.without_state(features, price)
        # The weight of each number of a code, then a constant.
        counts = self.layers(seen).reshape(codes.shape[1] + 1, -1)
        # A code ends with one number for each state, 1 for its own and -1 for the others, so that
        # part of the product needs no matrix.
        common, own = counts[: -1 - len(codes)], counts[-1 - len(codes) : -1]
        of_all = counts[-1] - jnp.sum(own, axis=0)
        return codes[:, : len(common)] @ common + 2 * own + of_all


class ActorCritic(Network):
    """The paper's networks: a policy and a value for one arm, and a price for all of them."""

    actor: eqx.nn.MLP
    critic: eqx.nn.MLP
    pricing: Pricing
    own: bool = eqx.field(static=True, default=False)
    """Whether every arm has an actor and a critic of its own, stacked along their first axis
    (DDLPO). They can decide for these arms only, in this order."""

    @classmethod
    def untrained(
        cls,
        perception: Perception,
        n_actions: int,
        width: int,
        depth: int,
        key: Key,
        price: PriceKind,
    ) -> "ActorCritic":
        """Untrained networks behind a given perception."""
        keys = jax.random.split(key, 4)
        code, n_features = perception.codes.shape[1], perception.mean.shape[0]
        pricing = price.untrained(code, n_features, width, depth, (keys[0], keys[1]))
        actor = mlp(perception.size, n_actions, width, depth, jnp.tanh, keys[2])
        critic = mlp(perception.size, 1, width, depth, jnp.tanh, keys[3])
        return cls(perception, actor, critic, pricing)

    @property
    def places(self) -> int:
        return self.pricing.places

    @property
    def longest(self) -> None:
        """None: it knows no end."""

    def logits(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, "act"]:
        """Log-probabilities of the actions, up to a constant."""
        return self.actor(self.perception(state, features, price))

    def value(
        self, state: State, features: Float[Array, "feat"], price: Float[Array, ""]
    ) -> Float[Array, ""]:
        """Expected discounted reward less price times cost."""
        return self.critic(self.perception(state, features, price))[0]

    def logits_of(
        self, states: States, features: Features, price: Float[Array, ""]
    ) -> Float[Array, "arm act"]:
        """`logits` of every arm."""
        if self.own:
            return self._own_outputs(self.actor, states, features, price)
        return jax.vmap(self.logits, in_axes=(0, 0, None))(states, features, price)

    def values_of(
        self, states: States, features: Features, price: Float[Array, ""]
    ) -> Float[Array, "arm"]:
        """`value` of every arm."""
        if self.own:
            return self._own_outputs(self.critic, states, features, price)[:, 0]
        return jax.vmap(self.value, in_axes=(0, 0, None))(states, features, price)

    def _own_outputs(self, layers, states, features, price) -> Float[Array, "arm out"]:
        one_arm = lambda own, state, seen: own(self.perception(state, seen, price))  # noqa: E731
        each = eqx.filter_vmap(one_arm, in_axes=(eqx.if_array(0), 0, 0))
        return each(layers, states, features)

    def in_every_round(
        self,
        function: Callable,
        states: Float[Array, "round arm"] | Int[Array, "round arm"],
        features: Features,
        price: Float[Array, ""],
    ) -> Float[Array, "round arm ..."]:
        """`function`, which is `logits_of` or `values_of`, in every round; with fewer states than
        rounds it is computed once for each state."""
        n_rounds, n_arms = states.shape
        all_states = jnp.arange(self.perception.points.size)
        each = jax.vmap(function, in_axes=(0, None, None))
        if self.perception.continuous or all_states.size >= n_rounds:
            return each(states, features, price)
        everywhere = jnp.broadcast_to(all_states[:, None], (all_states.size, n_arms))
        return each(everywhere, features, price)[states, jnp.arange(n_arms)]

    def price(self, states: States, features: Features, opt_in: OptIn) -> Float[Array, ""]:
        """The price of a round, λ = Λ(s̄, {z}, ξ): Algorithm 1, line 11, and Algorithm 3, line 2."""
        codes = jax.vmap(self.perception.code)(states)
        return self.pricing(codes, jax.vmap(self.perception.scaled)(features), opt_in)


def mlp(
    size: int, out: int, width: int, depth: int, activation: Callable[[Array], Array], key: Key
) -> eqx.nn.MLP:
    """A plain network with the same width throughout."""
    return eqx.nn.MLP(size, out, width, depth, activation, key=key)
