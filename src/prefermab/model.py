"""A trained model: what was learned, what it was learned on, and how to ask it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Array, Int

from prefermab.arms import Actions, Observation, hide_opted_out
from prefermab.domains.base import ContinuousDomain, Domain
from prefermab.errors import InputError, number, reals
from prefermab.networks import ActorCritic, Worth
from prefermab.policies.learned import Learned, policy_of
from prefermab.sharding import everywhere

if TYPE_CHECKING:
    from prefermab.programme.planning.plan import Plan
    from prefermab.programme.planning.rules import Rules


@dataclasses.dataclass(frozen=True)
class Tuned:
    """What fine-tuning used and found: mean rewards per arm on held-out trials of the arms it was
    tuned on, before and after, and the standard error of the paired difference. `kept` is false
    where the model stayed as it was, because tuning did not make it better."""

    n_arms: int
    samples_per_arm: int
    trials: int
    before: float
    after: float
    stderr: float
    kept: bool

    def __str__(self) -> str:
        done = "kept" if self.kept else "not better, so the model stays as it was"
        used = f"{self.samples_per_arm} samples" if self.samples_per_arm else "the dynamics"
        return (
            f"{used} of each of {self.n_arms} arms; reward per arm on "
            f"{self.trials} held-out trials {self.before:.3f} before and {self.after:.3f} after "
            f"(difference {self.after - self.before:+.3f} ± {self.stderr:.3f}): {done}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """Decides for any number of arms and any budget. Made by `pretrain` or `load`.

    `domain` is None where the model was trained on a domain that cannot be rebuilt by its name.

    >>> import numpy as np
    >>> import prefermab as pm
    >>> model = pm.load("armman")
    >>> model.state_names
    ('motivated', 'persuadable', 'lost cause')
    >>> features = np.zeros((4, 6))
    >>> int(model.act([0, 1, 2, 1], features, budget=2).sum())
    2
    """

    recipe: str
    config: Any
    network: Worth | ActorCritic
    domain: Domain | None
    domain_name: str
    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    costs: tuple[float, ...] | None
    n_arms: int
    budget: float
    card: str = ""
    tuned: Tuned | None = None
    history: pl.DataFrame | None = None
    """Metrics of the training it comes from, an epoch a row; no part of what it decides by."""

    def __repr__(self) -> str:
        states = f"{len(self.state_names)} states"
        if self.network.perception.continuous:
            states = "a state from 0 to 1"
        return (
            f"Model({self.domain_name}, {self.recipe}: {states}, {len(self.action_names)} actions, "
            f"{len(self.feature_names)} features; {self.n_arms} arms, budget {self.budget:g})"
        )

    @property
    def policy(self) -> Learned:
        """The model as a policy for the evaluator."""
        return policy_of(self.network)

    def check_fits(self, domain: Domain) -> None:
        """Refuses a domain that the model cannot decide on: what it knows is counted otherwise."""
        continuous = isinstance(domain, ContinuousDomain)
        if continuous != self.network.perception.continuous:
            kinds = ("finitely many states", "a state between 0 and 1")
            own, other = kinds[not continuous], kinds[continuous]
            raise InputError(f"the model knows {own}, the domain '{domain.name}' has {other}.")
        for what in ("state", "action", "feature"):
            own, other = len(getattr(self, f"{what}_names")), len(getattr(domain, f"{what}_names"))
            if own != other:
                raise InputError(
                    f"the model knows {own} {what}s, the domain '{domain.name}' has {other}."
                )

    def act(
        self,
        states: Any,
        features: Any,
        budget: float,
        opt_in: Any = None,
        costs: Any = None,
    ) -> np.ndarray:
        """An action for each arm, within the budget.

        `states` are numbers (arm,), `features` (arm, feature) with NaN for unknown ones, `opt_in`
        (arm,) of true and false, everyone if left out. `costs` are the model's own if left out:
        (action,) or (arm, action).
        """
        state = self._states(states)
        n_arms = len(state)
        seen = self._features(features, n_arms)
        present = np.ones(n_arms, bool) if opt_in is None else np.asarray(opt_in)
        if present.shape != (n_arms,) or present.dtype.kind not in "biu":
            raise InputError(f"opt_in must hold true or false for each of {n_arms} arms.")
        paid = self._costs(costs, n_arms)
        if n_arms == 0:
            return np.zeros(0, np.int32)
        limit = number(budget, "budget")
        with everywhere():
            actions = _decide(
                self.policy,
                jnp.asarray(state),
                jnp.asarray(seen, jnp.float32),
                jnp.asarray(present.astype(bool)),
                jnp.asarray(paid, jnp.float32),
                jnp.asarray(limit, jnp.float32),
            )
        return np.asarray(actions)

    def plan(
        self, frame: Any, budget: float, rules: "Rules | None" = None, waiting: int = 20
    ) -> "Plan":
        """A round's plan for a table of people, polars or pandas.

        `frame` has the columns id, state (by name or number) and the features by name; `opt_in` is
        optional. Unknown features and categories are allowed for. All other columns are carried.

        >>> import polars as pl
        >>> import prefermab as pm
        >>> people = pl.DataFrame({"id": [1, 2, 3], "state": ["persuadable"] * 3,
        ...                        "feature_0": [0.3, 0.1, None]})
        >>> plan = pm.load("armman").plan(people, budget=1)
        >>> plan.frame["action"].to_list().count("call"), plan.summary.spent
        (1, 1.0)
        """
        from prefermab.programme.planning.plan import plan

        return plan(self, frame, budget, rules, waiting)

    def what_if(
        self, frame: Any, budgets: Sequence[float], rules: "Rules | None" = None
    ) -> pl.DataFrame:
        """What each of several budgets would do for a table of people: what is spent, how many are
        chosen, the price, and the expected reward gained over doing nothing.

        >>> import polars as pl
        >>> import prefermab as pm
        >>> people = pl.DataFrame({"id": [1, 2], "state": ["persuadable", "motivated"],
        ...                        "feature_0": [0.3, 0.1]})
        >>> pm.load("armman").what_if(people, budgets=[0, 1, 2])["chosen"].to_list()
        [0, 1, 2]
        """
        from prefermab.programme.planning.plan import what_if

        return what_if(self, frame, budgets, rules)

    def save(self, path: str | Path) -> None:
        """Writes the model to a folder, whole or not at all."""
        from prefermab.storage import save

        save(self, Path(path))

    def _states(self, states: Any) -> np.ndarray:
        given = reals(states, "states", ndim=(1,))
        if self.network.perception.continuous:
            if given.size and (given.min() < 0 or given.max() > 1):
                raise InputError("states must lie between 0 and 1.")
            return given.astype(np.float32)
        top = len(self.state_names) - 1
        wrong = np.flatnonzero((given != np.round(given)) | (given < 0) | (given > top))
        if wrong.size:
            raise InputError(
                f"states must be whole numbers from 0 to {top}, "
                f"but states[{wrong[0]}] is {given[wrong[0]]:g}."
            )
        return given.astype(np.int32)

    def _features(self, features: Any, n_arms: int) -> np.ndarray:
        try:
            given = np.asarray(features, dtype=np.float32)
        except (TypeError, ValueError):
            raise InputError("features must be an array of numbers.") from None
        wanted = (n_arms, len(self.feature_names))
        if given.shape != wanted:
            raise InputError(
                f"features must have the shape (arm, feature) = {wanted}, not {given.shape}."
            )
        if np.isinf(given).any():
            raise InputError("features must be finite, or NaN where unknown.")
        return given

    def _costs(self, costs: Any, n_arms: int) -> np.ndarray:
        if costs is None and self.costs is None:
            raise InputError(
                "costs differ between the arms of this model: give costs (arm, action)."
            )
        given = reals(self.costs if costs is None else costs, "costs", ndim=(1, 2))
        n_actions = len(self.action_names)
        if given.shape not in {(n_actions,), (n_arms, n_actions)} or (given < 0).any():
            raise InputError(
                f"costs must be {n_actions} numbers of at least 0, for all or each arm."
            )
        return np.broadcast_to(given, (n_arms, n_actions))


@eqx.filter_jit
def _decide(policy, state, features, opt_in, costs, budget) -> Actions:
    """Algorithm 3 on one round's arms."""
    state, features = hide_opted_out(opt_in, state, features)
    zero: Int[Array, ""] = jnp.zeros((), int)
    seen = Observation(state, features, opt_in, costs, budget, zero)
    return policy.act(seen, policy.memory(state.shape[0]), jax.random.key(0))[0]
