"""Unseen: arms of another domain whose state is not always seen.

The state of such an arm is what is known of it (`prefermab.domains.sightings`). With the arm's
dynamics this gives a belief, the probability of each true state: P_a[s]·P_0^(u-1) where state s was
seen u rounds ago, action a was done then, and nothing since (Mate et al. 2020 call arms like this
collapsing). The next sighting is drawn from the belief, and the reward is the expected one. So the
arms are a finite chain with few successors each, and all that holds for finite domains holds here:
indices, the bound (for policies that see no more), evaluation and all recipes.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from prefermab.arms.observation import Arm, Key, State
from prefermab.domains.base import Domain, FiniteDomain, Targets, draw_index, scatter_chances
from prefermab.domains.sightings import ROUNDS_TOLD_APART, Sightings
from prefermab.errors import InputError, share

TYPICAL = 512
"""Number of typical arms, always the same, whose mean beliefs encode a state."""


class Unseen(FiniteDomain):
    """Arms of a domain with finitely many states that are seen now and then only.

    Every arm starts never seen; its true first state is drawn as in the domain.

    Args:
        domain: The domain.
        seen: When the state is seen: `acted`, by acting (the state in which the action found the
            arm); `some`, now and then before deciding, whatever is done; `never`.
        chance: Probability that it is seen then. With `acted` below 1 some actions reach nobody and
            change nothing, such as calls that are not answered.
        rounds: Most rounds since a sighting that are told apart: 12, or 5 with `some` and 7 with
            `never`, where what was done unseen counts as well.

    >>> import prefermab as pm
    >>> domain = pm.domains.Unseen(pm.domains.Armman(), seen="acted")
    >>> domain.n_cells, domain.name
    (88, 'armman-unseen')
    >>> frame = pm.evaluate(domain, {"whittle": pm.policies.Whittle()}, trials=10, bound=False)
    """

    domain: FiniteDomain
    seen: str
    chance: float
    rounds: int
    sightings: Sightings = eqx.field(static=True)

    # Looking pays off later than acting on what is seen: rounds far ahead count more.
    suits: ClassVar[dict[str, dict[str, Any]]] = {
        "exact": {
            "steps": 4000, "arms": 512, "learning_rate": 8e-3, "masked": 0.1, "focus": 0.15,
            "discount": 0.95, "horizon": 30,
        }
    }  # fmt: skip
    own_settings: ClassVar[tuple[str, ...]] = ("seen", "chance", "rounds")

    def __init__(
        self,
        domain: Domain,
        seen: str = "acted",
        chance: float | None = None,
        rounds: int | None = None,
    ):
        if not isinstance(domain, FiniteDomain) or isinstance(domain, Unseen):
            given = getattr(domain, "name", domain)
            raise InputError(f"Unseen needs a domain with finitely many states, not '{given}'.")
        usual = {"some": 0.2, "never": 0.0}.get(seen, 1.0)
        self.domain, self.feature_map, self.seen = domain, domain.feature_map, seen
        self.chance = usual if chance is None else share(chance, "chance")
        self.rounds = ROUNDS_TOLD_APART.get(seen, 1) if rounds is None else rounds
        self.sightings = Sightings(
            tuple(domain.state_names), tuple(domain.action_names), seen, self.rounds
        )

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The domain's own name and `-unseen`."""
        return f"{self.domain.name}-unseen"

    @property
    def state_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What may be known of an arm."""
        return self.sightings.names

    @property
    def action_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the domain."""
        return self.domain.action_names

    @property
    def parameter_names(self) -> tuple[str, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the domain."""
        return self.domain.parameter_names

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self.domain.feature_names

    @property
    def usual_arms(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Those of the domain."""
        return self.domain.usual_arms

    @property
    def usual_budget(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the domain."""
        return self.domain.usual_budget

    @property
    def n_cells(self) -> int:
        return len(self.sightings.paths)

    @property
    def targets(self) -> Targets:
        """First the place that follows if nothing is seen, then one for each state that may be
        seen."""
        after = self.sightings.after
        n_states = len(self.domain.state_names)
        known = np.arange(n_states)
        seen = np.broadcast_to(known, (*after.shape, n_states)).copy()
        if self.seen == "acted":
            # The action found the arm in that state, and moved it; or missed it, and did nothing.
            seen[:] = after[known].T
            after = np.repeat(after[:, :1], self.n_actions, axis=1)
            after[:, 1:] *= self.chance < 1
        return np.concatenate([after[..., None], seen], axis=-1)

    def draw(self, key: Key) -> Arm:
        return self.domain.draw(key)

    def parameters(self, arm: Arm) -> Float[Array, "param"]:
        return self.domain.parameters(arm)

    def observe(self, arm: Arm, round: int | Int[Array, ""]) -> Float[Array, "feat"]:
        return self.domain.observe(arm, round)

    def costs(self, arm: Arm) -> Float[Array, "act"]:
        return self.domain.costs(arm)

    def start(self, key: Key, arm: Arm) -> State:
        del key, arm
        return jnp.asarray(len(self.domain.state_names), int)

    def start_belief(self, arm: Arm) -> Float[Array, "base"]:
        """Probability of each state of an arm that was never seen."""
        return self.domain.start_chances(arm)

    def beliefs(self, arm: Arm) -> Float[Array, "state base"]:
        """Probability of each true state, at every place."""
        table, tree = self.domain.transitions(arm), self.sightings
        level = jnp.concatenate([jnp.eye(table.shape[0]), self.start_belief(arm)[None]])
        levels = [level]
        for depth in range(1, tree.rounds + 1):
            here = tree.rounds_since == depth
            above = tree.before[here] - np.argmax(tree.rounds_since == depth - 1)
            level = _moved(level[above], table[:, tree.paths[here, -1]])
            levels.append(level)
        return jnp.concatenate(levels)

    def belief(self, arm: Arm, cell: Int[Array, ""]) -> Float[Array, "base"]:
        """Probability of each true state at one place; less work than `beliefs`."""
        table, tree = self.domain.transitions(arm), self.sightings
        roots = jnp.concatenate([jnp.eye(table.shape[0]), self.start_belief(arm)[None]])
        belief, path = roots[jnp.asarray(tree.roots)[cell]], jnp.asarray(tree.paths)[cell]
        for step in range(tree.rounds):
            moved = _moved(belief[None], table[:, path[step][None]])[0]
            belief = jnp.where(path[step] >= 0, moved, belief)
        return belief

    def successors(self, arm: Arm) -> Float[Array, "state act next"]:
        beliefs, actions = self.beliefs(arm), jnp.arange(self.n_actions)
        each = jax.vmap(self._sighted, in_axes=(None, 0, None))
        return jax.vmap(each, in_axes=(0, None, None))(beliefs, actions, arm)

    def _sighted(
        self, belief: Float[Array, "base"], action: Int[Array, ""], arm: Arm
    ) -> Float[Array, "next"]:
        """Probability of seeing nothing, then of seeing each state, by the belief before acting."""
        chance = jnp.asarray(self.chance)
        if self.seen == "acted":
            chance = jnp.where(action > 0, chance, 0.0)
        else:
            belief = _moved(belief[None], self.domain.transitions(arm)[:, action[None]])[0]
        return jnp.concatenate([(1 - chance)[None], chance * belief])

    def row(self, arm: Arm, cell: Int[Array, ""], action: Int[Array, ""]) -> Float[Array, "state"]:
        sighted = self._sighted(self.belief(arm, cell), action, arm)
        return jnp.zeros(self.n_cells).at[jnp.asarray(self.targets)[cell, action]].add(sighted)

    def transitions(self, arm: Arm) -> Float[Array, "state act state"]:
        return scatter_chances(self.successors(arm), self.targets)

    def step(self, key: Key, arm: Arm, state: State, action: Int[Array, ""]) -> State:
        place = draw_index(key, self._sighted(self.belief(arm, state), action, arm))
        return jnp.asarray(self.targets)[state, action, place].astype(state.dtype)

    def reward_at(self, arm: Arm, state: State) -> Float[Array, ""]:
        return self.belief(arm, state) @ self.domain.rewards(arm)

    def rewards(self, arm: Arm) -> Float[Array, "state"]:
        return self.beliefs(arm) @ self.domain.rewards(arm)

    @property
    def mean_beliefs(self) -> Float[Array, "state base"]:
        """The mean belief of typical arms at every place."""
        arms = self.domain.draw_arms(jax.random.key(0), TYPICAL)
        return jnp.mean(jax.vmap(self.beliefs)(arms), axis=0)

    def encode(self, state: State) -> Float[Array, "code"]:
        """The mean belief of typical arms, how long ago the last sighting was, and the place
        itself: a network starts from what near places have in common, and learns how each differs
        (`prefermab.networks.worth.Worth`)."""
        tree = self.sightings
        ago = jnp.log1p(jnp.asarray(tree.rounds_since)[state]) / jnp.log1p(tree.rounds)
        place = jax.nn.one_hot(state, self.n_cells)
        return jnp.concatenate([self.mean_beliefs[state], ago[None], place])


def _moved(
    beliefs: Float[Array, "some base"], tables: Float[Array, "base some base"]
) -> Float[Array, "some base"]:
    """Beliefs after a round, each by its own table. A sum is faster than tiny matrix products."""
    return jnp.sum(beliefs.T[:, :, None] * tables, axis=0)
