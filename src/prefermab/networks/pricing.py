"""Price networks of recipe `paper`, λ = Λ(s̄, {z}, ξ): one price for all arms of a round.

`price_slope` is the direction in which they learn (Prop. 2); `DECAYS` says when their step size
falls.
"""

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms.observation import Features, Key, OptIn
from prefermab.errors import InputError

OUTPUTS = {"softplus": jax.nn.softplus, "plain": lambda number: number}
"""What turns the output of the last layer into the price: `softplus` is never below 0."""


class Pricing(eqx.Module):
    """A price network: from the states, features and opt-in of all arms to one price."""

    @property
    @abc.abstractmethod
    def places(self) -> int:
        """The one number of arms it can be asked about; 0 for any."""

    @abc.abstractmethod
    def __call__(
        self, codes: Float[Array, "arm code"], features: Features, opt_in: OptIn
    ) -> Float[Array, ""]:
        """The price for arms in these states, with these features, of which some are in."""


class PriceNetwork(Pricing):
    """The pooled price network: one network summarises each arm with its opt-in, another turns the
    mean over places into a price. It takes any number of arms, in any order.
    """

    each: eqx.nn.MLP
    together: eqx.nn.MLP
    output: str = eqx.field(static=True, default="softplus")

    @property
    def places(self) -> int:
        return 0

    def __call__(
        self, codes: Float[Array, "arm code"], features: Features, opt_in: OptIn
    ) -> Float[Array, ""]:
        present = opt_in[:, None].astype(jnp.float32)
        arms = jnp.concatenate([codes * present, features * present, present], axis=1)
        mean = jnp.mean(jax.vmap(self.each)(arms), axis=0)
        return OUTPUTS[self.output](self.together(mean)[0])


class ConcatenatedPrice(Pricing):
    """The paper's price network: its input is the states of all arms as numbers, their features and
    their opt-in side by side. It knows arms by their place, so it works for one number of arms.
    """

    layers: eqx.nn.MLP
    n_arms: int = eqx.field(static=True)
    output: str = eqx.field(static=True, default="plain")

    @property
    def places(self) -> int:
        return self.n_arms

    def __call__(
        self, codes: Float[Array, "arm code"], features: Features, opt_in: OptIn
    ) -> Float[Array, ""]:
        if len(codes) != self.n_arms:
            raise InputError(
                f"this model has a concatenated price network, made for {self.n_arms} arms: it "
                f"cannot price {len(codes)}."
            )
        # A code of several numbers stands for one state of a list.
        numbers = codes[:, 0] if codes.shape[1] == 1 else codes @ jnp.arange(codes.shape[1])
        present = opt_in.astype(jnp.float32)
        parts = [numbers * present, (features * present[:, None]).reshape(-1), present]
        return OUTPUTS[self.output](self.layers(jnp.concatenate(parts))[0])


@dataclasses.dataclass(frozen=True)
class PriceKind:
    """Which price network to make. `start` is added to its last bias; `places` is the number of
    arms of a concatenated network."""

    network: str = "pooled"
    output: str = "softplus"
    start: float = 0.5
    places: int = 0

    def untrained(
        self, code: int, features: int, width: int, depth: int, keys: tuple[Key, Key]
    ) -> Pricing:
        """An untrained network for states of `code` numbers; needs two keys."""
        if self.network == "pooled":
            each = _layers(code + features + 1, width, width, 1, keys[0])
            together = self._raised(_layers(width, 1, width, 1, keys[1]))
            return PriceNetwork(each, together, self.output)
        layers = _layers(self.places * (features + 2), 1, width, depth, keys[0])
        return ConcatenatedPrice(self._raised(layers), self.places, self.output)

    def _raised(self, layers: eqx.nn.MLP) -> eqx.nn.MLP:
        # A price that falls from a high start shows the actor which arms are worth acting on. One
        # that starts too low teaches it to act on everyone, with odds that it cannot unlearn.
        last_bias = lambda net: net.layers[-1].bias  # noqa: E731
        return eqx.tree_at(last_bias, layers, replace_fn=lambda bias: bias + self.start)


def _layers(size: int, out: int, width: int, depth: int, key: Key) -> eqx.nn.MLP:
    return eqx.nn.MLP(size, out, width, depth, jnp.tanh, key=key)


def price_slope(
    spending: Float[Array, "round"], budget: Float[Array, ""], discount: float
) -> Float[Array, ""]:
    """Slope in λ of the relaxation (Prop. 2, with the sign of its proof): budget less spending,
    both discounted to the end of time. λ falls while spending is under budget and rises over it.

    >>> import jax.numpy as jnp
    >>> from prefermab.networks.pricing import price_slope
    >>> price_slope(jnp.full(1000, 3.0), jnp.array(7.0), 0.9).round(2)     # (7 - 3) / (1 - 0.9)
    Array(40., dtype=float32)
    """
    weights = discount ** jnp.arange(spending.shape[0])
    return budget / (1 - discount) - jnp.sum(weights * spending)


def decayed_at_updates(epoch: Int[Array, ""], every: int) -> Int[Array, ""]:
    """How often the price's step size has been reduced: at each update."""
    return epoch // every


def decayed_at_epochs(epoch: Int[Array, ""], every: int) -> Int[Array, ""]:
    """How often it has been reduced: after each epoch, and once more after each earlier update."""
    return epoch + epoch // every - 1


DECAYS = {"update": decayed_at_updates, "epoch": decayed_at_epochs}
"""What the hyperparameter `price_decays` of recipe `paper` names."""
