"""Features that are missing or noisy: a domain with blurred features, and the best possible policy.

On Synthetic with identity features, the parameters are independent. So the distribution of the
parameters given the blurred features is known exactly, and with it the mean value of an action over
all arms that look alike. To decide by that mean is the best that a rule for a single arm and a
price can do without memory of the arm's past.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, Float, Int

from prefermab.arms.budget import by_price, cost_of, lowest_price, preferred
from prefermab.arms.features import FeatureMap
from prefermab.arms.observation import Actions, Arm, Key, Observation, State
from prefermab.common import plots
from prefermab.common.plots import svg_of
from prefermab.domains import Domain, Synthetic
from prefermab.domains.base import FiniteDomain, range_ends
from prefermab.policies.base import Memory, Policy
from prefermab.recipes import Exact

BAYES_DRAWS = 64
HIGHEST_PRICE = 5.0


class Blurred(FiniteDomain):
    """Arms of another domain whose features have normal noise with the standard deviation `noise`;
    `hidden` of them, at random for each arm, are missing."""

    inner: FiniteDomain
    noise: Any = eqx.field(converter=jnp.float32, default=0.0)
    hidden: Any = eqx.field(converter=jnp.asarray, default=0)

    @property
    def state_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.state_names

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.action_names

    @property
    def parameter_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.inner.feature_names

    def draw(self, key: Key) -> Arm:
        key_arm, key_noise, key_hide = jax.random.split(key, 3)
        size = (len(self.parameter_names),)
        return {
            "arm": self.inner.draw(key_arm),
            "noise": self.noise * jax.random.normal(key_noise, size),
            "hidden": jax.random.permutation(key_hide, size[0]) < self.hidden,
        }

    def parameters(self, arm: Arm) -> Float[Array, "param"]:
        return self.observe(arm, 0)

    def observe(self, arm: Arm, round: int | Int[Array, ""]) -> Float[Array, "feat"]:
        seen = self.inner.observe(arm["arm"], round) + arm["noise"]
        return jnp.where(arm["hidden"], jnp.nan, seen)

    def costs(self, arm: Arm) -> Float[Array, "act"]:
        return self.inner.costs(arm["arm"])

    def reward_at(self, arm: Arm, state: State) -> Float[Array, ""]:
        return self.inner.reward_at(arm["arm"], state)

    def row(self, arm: Arm, cell: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, "state"]:
        return self.inner.row(arm["arm"], cell, action)


class ByBayes(Policy):
    """Decides on Synthetic by the mean value of actions over all arms with the same features."""

    noise: Any = eqx.field(converter=jnp.float32)
    config: Exact = Exact()

    def act(self, seen: Observation, memory: Memory, key: Key) -> tuple[Actions, Memory]:
        likely = jax.vmap(self.draws)(seen.features)

        def gains(price: Float[Array, ""]) -> Float[Array, "arm act"]:
            each = jax.vmap(jax.vmap(self.gain, in_axes=(0, None, None)), in_axes=(0, 0, None))
            return each(likely, seen.state, price).mean(axis=1)

        def spending(price: Float[Array, ""]) -> Float[Array, ""]:
            return cost_of(preferred(gains(price), seen.costs, price, seen.opt_in), seen.costs)

        price = lowest_price(spending, seen.budget, HIGHEST_PRICE, halvings=10)
        return by_price(gains(price), seen.costs, seen.budget, seen.opt_in), memory

    def draws(self, features: Float[Array, "feat"]) -> Float[Array, "draw feat"]:
        """Parameters that an arm with these features may have: uniform where a feature is hidden,
        otherwise normal around the feature, within the parameter's range."""
        low, high = range_ends((0.4, 0.6), (0.4, 0.6), (0.8, 1.0), (0.0, 1.0))
        # The same evenly spread points for all arms, shuffled in each dimension.
        even = (jnp.arange(BAYES_DRAWS) + 0.5) / BAYES_DRAWS
        keys = jax.random.split(jax.random.key(0), low.size)
        shares = jax.vmap(lambda key: jax.random.permutation(key, even))(keys).T
        hidden = jnp.isnan(features)
        spread = jnp.where(hidden, 1.0, jnp.maximum(self.noise, 1e-4))
        middle = jnp.where(hidden, low, features)
        # The parameter's range in units of the noise; beyond 5 the normal tails are negligible.
        left, right = (jnp.clip((end - middle) / spread, -5.0, 5.0) for end in (low, high))
        between = norm.cdf(left) + shares * (norm.cdf(right) - norm.cdf(left))
        guess = middle + spread * norm.ppf(jnp.clip(between, 1e-7, 1 - 1e-7))
        return jnp.where(hidden, low + shares * (high - low), jnp.clip(guess, low, high))

    def gain(self, arm: Arm, state: State, price: Float[Array, ""]) -> Float[Array, "act"]:
        """The value of each action over that of no action, for an arm with these parameters."""
        worth = self.config.lessons.worths_of_arm(IDENTITY, arm, price[None])[0, state]
        return worth - worth[0]


IDENTITY = Synthetic(feature_map=FeatureMap("identity"))


def blurred(domain: Domain, **how: Any) -> Blurred:
    """A domain with blurred features."""
    assert isinstance(domain, FiniteDomain)
    return Blurred(domain, **how, feature_map=FeatureMap("identity"))


def reward_curves(hidden: Sequence[Sequence[str]], noisy: Sequence[Sequence[str]]) -> str:
    """Reward by the number of hidden features, and by the noise on features, on Synthetic, as SVG.

    Rows are those of the study's tables: what varies, `exact`, `sweep`, their difference and Bayes.
    """
    figure = plots.blank(8, 3)
    panels = zip(
        figure.subplots(1, 2, sharey=True),
        ((hidden, "features hidden, of 4"), (noisy, "noise on every feature")),
        strict=True,
    )
    for panel, (rows, what) in panels:
        along = [float(row[0].split("/")[0]) for row in rows]
        for column, name, style in (
            (1, "exact", {"color": plots.BLUE, "marker": "o", "ms": 5}),
            (2, "sweep", {"color": plots.GREY, "marker": "s", "ms": 4}),
            (4, "Bayes", {"color": plots.INK, "ls": "--", "lw": 1}),
        ):
            panel.plot(along, [float(row[column]) for row in rows], label=name, **style)
        panel.set_xlabel(what, fontsize=9)
        plots.tidy_panel(panel)
        panel.legend(fontsize=8, frameon=False)
    figure.supylabel("reward per arm", fontsize=9)
    return svg_of(figure, "uncertainty")
