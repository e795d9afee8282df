"""What an arm is, what a policy observes of it in a round, and the rules for opted-out arms.

Axis names used in every annotation: `arm`, `round`, `trial`, `state` (or a grid cell of a
continuous state), `act`, `feat`. An arm is whatever its domain draws, a pytree; N arms are the
same pytree with a leading `arm` axis. Code is written for one arm and vmapped.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Real
from jaxtyping import Key as KeyArray

from prefermab.arms.amounts import Amounts
from prefermab.errors import InputError

Arm = PyTree
"""One arm, as its domain draws it."""

Arms = PyTree
"""N arms: an `Arm` whose leaves have a leading axis `arm`."""

Key = PRNGKeyArray
TrialKeys = KeyArray[Array, "trial"]
State = Real[Array, ""]
States = Real[Array, "arm"]
Features = Float[Array, "arm feat"]
Actions = Int[Array, "arm"]
OptIn = Bool[Array, "arm"]
Costs = Float[Array, "arm act"]
Budget = Float[Array, ""]


class Observation(eqx.Module):
    """What a policy sees in one round; it does not contain the dynamics of the arms.

    Arms that are opted out show a dummy: state 0 and zeroed features. `state` holds integers
    where states are finite and reals where they are continuous.

    >>> import jax.numpy as jnp
    >>> from prefermab.arms.observation import Observation
    >>> seen = Observation(state=jnp.array([1, 0]), features=jnp.ones((2, 3)),
    ...                    opt_in=jnp.array([True, False]), costs=jnp.array([[0., 1.], [0., 1.]]),
    ...                    budget=jnp.array(1.0), round=jnp.array(0))
    >>> seen.n_arms
    2
    """

    state: States
    features: Features
    opt_in: OptIn
    costs: Costs
    budget: Budget
    round: Int[Array, ""]
    amounts: Amounts | None = None
    """Costs and budget in exact units, for `prefermab.budget`; None: read from those above."""

    @property
    def n_arms(self) -> int:
        """Number of arms, opted in or not."""
        return self.state.shape[0]


def hide_opted_out(opt_in: OptIn, state: States, features: Features) -> tuple[States, Features]:
    """Dummy states and features where an arm is opted out (Algorithm 1, line 8)."""
    return jnp.where(opt_in, state, 0), jnp.where(opt_in[:, None], features, 0.0)


def reward_of_opted_in(opt_in: OptIn, rewards: Float[Array, "arm"]) -> Float[Array, ""]:
    """Sum of the rewards of opted-in arms; the others earn nothing."""
    return jnp.sum(jnp.where(opt_in, rewards, 0.0))


def number_of_arms(arms: Arms) -> int:
    """How many arms a tree of arms holds."""
    lengths = {leaf.shape[0] if np.ndim(leaf) else 0 for leaf in jax.tree.leaves(arms)}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError("arms must be as domain.draw_arms draws them, at least one.")
    return int(lengths.pop())
