"""SIS (Yaesoubi and Cohen 2011, as in the paper): an epidemic in the population of each arm, with
messaging and masks; with discrete and with continuous states."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import xlogy
from jaxtyping import Array, Float, Int
from scipy.special import gammaln

from prefermab.arms.observation import Arm, Key, State
from prefermab.domains.base import (
    WAYS_TO_DRAW,
    ContinuousDomain,
    Domain,
    FiniteDomain,
    check_draws,
    check_range,
    range_ends,
)
from prefermab.errors import count, number

Range = tuple[float, float]


class _Epidemic(Domain):
    """What both forms share: an arm is (κ, r_infect, a₁, a₂), in the ranges of the paper's
    appendix."""

    contacts: Range = eqx.field(kw_only=True, default=(1.0, 10.0))
    infectiousness: Range = eqx.field(kw_only=True, default=(0.5, 0.99))
    messaging_effect: Range = eqx.field(kw_only=True, default=(1.0, 10.0))
    masks_effect: Range = eqx.field(kw_only=True, default=(1.0, 10.0))
    draws: str = eqx.field(kw_only=True, default="subinterval")

    later: ClassVar[tuple[str, ...]] = ("draws",)
    action_names: ClassVar[tuple[str, ...]] = ("none", "messaging", "masks")
    parameter_names: ClassVar[tuple[str, ...]] = (
        "contacts",
        "infectiousness",
        "messaging_effect",
        "masks_effect",
    )
    usual_arms: ClassVar[int] = 20
    usual_budget: ClassVar[float] = 16.0

    def __check_init__(self) -> None:
        for name in self.parameter_names:
            check_range(getattr(self, name), name)
        check_draws(self.draws)

    def draw(self, key: Key) -> Arm:
        low, high = range_ends(*(getattr(self, name) for name in self.parameter_names))
        return WAYS_TO_DRAW[self.draws](key, low, high)

    def parameters(self, arm: Arm) -> Float[Array, "param"]:
        return arm

    def costs(self, arm: Arm) -> Float[Array, "act"]:
        return jnp.array([0.0, 1.0, 2.0])

    def exposure(
        self, arm: Arm, infected: Float[Array, ""], action: Int[Array, ""]
    ) -> Float[Array, ""]:
        """κ · share infected · r_infect / effect of the action: an uninfected person stays
        uninfected with probability e^-this."""
        contacts, infectiousness, messaging, masks = arm
        divided = jnp.stack([jnp.ones_like(messaging), messaging, masks])[action]
        return contacts * infected * infectiousness / divided


class SIS(_Epidemic, FiniteDomain):
    """An epidemic; the state is the number of uninfected people, and the reward their share.

    Of s uninfected, Binomial(s, q) are infected in a round; everyone who was infected recovers.

    Args:
        population: Number of people in an arm.
        contacts: Range of the contacts of a person in a round, κ.
        infectiousness: Range of the probability of infection at a contact, r_infect.
        messaging_effect: Range of the factor by which messaging reduces exposure, a₁.
        masks_effect: Range of the factor by which masks reduce exposure, a₂.
        draws: How a parameter is drawn: from a random `subinterval` of its range, or `uniform`.
        feature_map: How features are made from the parameters.

    >>> import prefermab as pm
    >>> pm.domains.SIS(population=50, messaging_effect=(1, 7), masks_effect=(1, 7)).n_cells
    51
    """

    population: int = 150

    name: ClassVar[str] = "sis"

    def __check_init__(self) -> None:
        count(self.population, "population")

    @property
    def state_names(self) -> tuple[str, ...]:
        return tuple(str(uninfected) for uninfected in range(self.population + 1))

    def reward_at(self, arm: Arm, state: State) -> Float[Array, ""]:
        return state / self.population

    def encode(self, state: State) -> Float[Array, "code"]:
        return (state / self.population)[None]

    def row(self, arm: Arm, cell: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, "state"]:
        exposure = self.exposure(arm, (self.population - cell) / self.population, action)
        infected = self.population - jnp.arange(self.population + 1)
        spared = cell - infected
        log_factorial = jnp.asarray(gammaln(np.arange(self.population + 1) + 1.0), jnp.float32)
        log_ways = log_factorial[cell] - log_factorial[infected] - log_factorial[spared]
        log_p = log_ways + xlogy(infected, -jnp.expm1(-exposure)) - spared * exposure
        p = jnp.where(spared >= 0, jnp.exp(log_p), 0.0)
        return p / jnp.sum(p)


class ContinuousSIS(_Epidemic, ContinuousDomain):
    """SIS with the uninfected share of `population` as its state.

    A normal distribution of the same mean and variance, clipped to [0, 1], replaces the binomial.

    Args:
        population: Number of people in an arm; more people mean less variance.
        grid: Number of grid points that oracles use for the state.
        contacts: Range of the contacts of a person in a round, κ.
        infectiousness: Range of the probability of infection at a contact, r_infect.
        messaging_effect: Range of the factor by which messaging reduces exposure, a₁.
        masks_effect: Range of the factor by which masks reduce exposure, a₂.
        draws: How a parameter is drawn: from a random `subinterval` of its range, or `uniform`.
        feature_map: How features are made from the parameters.

    >>> import prefermab as pm
    >>> pm.domains.ContinuousSIS(grid=51).n_cells
    51
    """

    population: float = 150.0

    name: ClassVar[str] = "continuous-sis"

    def __check_init__(self) -> None:
        number(self.population, "population", at_least=1.0)

    @property
    def cells(self) -> Float[Array, "state"]:
        # Denser towards 1: few infected multiply fast, and with none the epidemic is over.
        return 1 - jnp.linspace(1.0, 0.0, self.grid) ** 2

    def reward_at(self, arm: Arm, state: State) -> Float[Array, ""]:
        return state

    def moments(
        self, arm: Arm, state: State, action: Int[Array, ""]
    ) -> tuple[Float[Array, ""], Float[Array, ""]]:
        spared = jnp.exp(-self.exposure(arm, 1 - state, action))
        variance = state * (1 - spared) * spared / self.population
        return 1 - state * (1 - spared), jnp.sqrt(variance)
