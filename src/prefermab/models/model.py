"""A trained model: what was learned, what it was learned on, and how to ask it."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
from jaxtyping import Array, Int

from prefermab.arms.amounts import exact_amounts
from prefermab.arms.observation import Actions, Observation, hide_opted_out
from prefermab.domains.base import Domain
from prefermab.domains.sightings import Sightings
from prefermab.errors import InputError, amount, count
from prefermab.models.checks import check_fits, checked_costs, checked_features, checked_places
from prefermab.models.familiarity import (
    FeatureRanges,
    JudgedFeatures,
    draw_features,
    warn_of_arms,
    warn_of_domain,
)
from prefermab.models.saving import Stored, default_card, describe_model, named_arrays, write_folder
from prefermab.networks.worth import Network
from prefermab.policies.learned import NO_END, TRIAL, Learned
from prefermab.recipes.base import Recipe, Tuned

if TYPE_CHECKING:
    from prefermab.programme.planning.plan import Plan
    from prefermab.programme.planning.rules import Rules


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """Decides for any number of arms and any budget. Made by `pretrain` or `load`.

    `domain` is None where the model was trained on a domain that cannot be rebuilt by its name.

    >>> import numpy as np
    >>> import prefermab as pm
    >>> model = pm.load("armman")
    >>> model.state_names
    ('motivated', 'persuadable', 'lost cause')
    >>> features = np.full((4, 6), np.nan)                   # nothing is known of them
    >>> int(model.act([0, 1, 2, 1], features, budget=2).sum())
    2
    """

    config: Recipe
    """The recipe by which it was trained, with its hyperparameters."""
    network: Network
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
    sightings: Sightings | None = None
    """What may be known of an arm, where its state is not always seen."""
    seen: FeatureRanges | None = None
    """The features of its training; None in files of older versions, for which `familiar` finds
    them."""
    rounds_left: int | str | None = None
    """For how many rounds it decides, see `with_rounds_left`; no part of what it has learned."""

    def __repr__(self) -> str:
        states = f"{len(self.state_names)} states"
        if self.network.perception.continuous:
            states = "a state from 0 to 1"
        return (
            f"Model({self.domain_name}, {self.recipe}: {states}, {len(self.action_names)} actions, "
            f"{len(self.feature_names)} features; {self.n_arms} arms, budget {self.budget:g})"
        )

    @property
    def recipe(self) -> str:
        """The name of the recipe by which it was trained."""
        return self.config.name

    @property
    def policy(self) -> Learned:
        """The model as a policy for the evaluator."""
        policy = self.config.policy(self.network)
        return policy if self.rounds_left is None else policy.with_rounds_left(self.rounds_left)

    @functools.cached_property
    def familiar(self) -> FeatureRanges | None:
        """The features of its training; where they are not stored, as its domain draws them, else
        guessed from what the network knows of their spread; None where nothing is known."""
        if self.seen is not None:
            return self.seen
        perception = self.network.perception
        if self.domain is None:
            return FeatureRanges.guess(perception)
        return FeatureRanges.of(self.domain, perception)

    def judge_cautiously(self, features: np.ndarray) -> JudgedFeatures:
        """Features as the network is to see them: values outside of what it was trained on are
        moved inside; see `prefermab.models.familiarity`.

        Args:
            features: Features (arm, feature), NaN where unknown.

        Returns:
            The features to use, which of the given ones lie outside their range, and which arms are
            unlike those of the training.

        >>> import numpy as np
        >>> import prefermab as pm
        >>> judged = pm.load("armman").judge_cautiously(np.full((1, 6), 100.0))
        >>> bool(np.isnan(judged.features).all()), judged.unlike
        (True, array([ True]))
        """
        if self.familiar is None or not len(self.feature_names):
            size = len(features)
            return JudgedFeatures(features, np.zeros(features.shape, bool), np.zeros(size, bool))
        return self.familiar.judge(features, self.network.perception)

    def warn_if_unlike(self, domain: Domain, name: str) -> None:
        """Warns if more than one in a hundred arms of a domain are unlike those of the training.

        Args:
            domain: The domain whose arms the model is to decide about.
            name: What the warning calls the model.
        """
        if self.domain is domain or eqx.tree_equal(self.domain, domain) is True:
            return
        judged = self.judge_cautiously(draw_features(domain))
        warn_of_domain(judged, self.feature_names, domain.name, name)

    def check_fits(self, domain: Domain) -> None:
        """Raises `InputError` if the domain has other numbers of states, actions or features.

        Args:
            domain: The domain whose arms the model is to decide about.
        """
        check_fits(self, domain)

    def with_rounds_left(self, rounds_left: int | str | None) -> "Model":
        """The same model for a programme that ends.

        With more rounds left than it was trained for it decides as for an ongoing programme.

        Args:
            rounds_left: How many rounds are left, the present one included; None for an ongoing
                programme; or "trial": those of the trial that `pm.evaluate` or `pm.simulate` plays.

        Returns:
            The model, of which `act` and `plan` allow for the end.

        >>> import prefermab as pm
        >>> pm.load("armman").with_rounds_left(4).rounds_left
        4
        """
        if rounds_left is None:
            return dataclasses.replace(self, rounds_left=None)
        longest = self.network.longest
        if longest is None:
            raise InputError(NO_END)
        if rounds_left != TRIAL and count(rounds_left, "rounds_left") > longest:
            rounds_left = None
        return dataclasses.replace(self, rounds_left=rounds_left)

    def act(
        self,
        states: Any,
        features: Any,
        budget: float,
        *,
        opt_in: Any = None,
        costs: Any = None,
        rounds_since_seen: Any = None,
        action_seen: Any = None,
        rounds_left: int | None = None,
    ) -> np.ndarray:
        """An action for each arm, within the budget.

        Arms unlike those of the training are judged cautiously, as in a plan, with a warning.

        Args:
            states: The state of each arm, as numbers (arm,). For a model of states that are not
                always seen: the state last seen, NaN where none ever was.
            features: Features (arm, feature), NaN where unknown.
            budget: What the actions may cost together.
            opt_in: True or false for each arm; everyone is in if left out.
            costs: Costs (action,) or (arm, action); the model's own if left out.
            rounds_since_seen: For states that are not always seen: how many rounds ago each was;
                0 if left out.
            action_seen: For states that are not always seen: the number of the action in the round
                in which each was; if left out, 1 where acting shows states, else 0.
            rounds_left: How many rounds the programme has left, the present one included; it goes
                on without an end if left out.

        Returns:
            Actions by number (arm,); 0 is doing nothing.

        >>> import numpy as np
        >>> import prefermab as pm
        >>> features = np.full((3, 6), 0.5)
        >>> pm.load("armman").act([1, 1, 1], features, budget=5, opt_in=[True, False, True])
        array([1, 0, 1], dtype=int32)
        """
        if rounds_left is not None:
            return self.with_rounds_left(rounds_left).act(
                states, features, budget, opt_in=opt_in, costs=costs,
                rounds_since_seen=rounds_since_seen, action_seen=action_seen,
            )  # fmt: skip
        state = checked_places(self, states, rounds_since_seen, action_seen)
        n_arms = len(state)
        seen = checked_features(self, features, n_arms)
        present = np.ones(n_arms, bool) if opt_in is None else np.asarray(opt_in)
        if present.shape != (n_arms,) or present.dtype.kind not in "biu":
            raise InputError(f"opt_in must hold true or false for each of {n_arms} arms.")
        paid = checked_costs(self, costs, n_arms)
        if n_arms == 0:
            return np.zeros(0, np.int32)
        limit = amount(budget, "budget")
        judged = self.judge_cautiously(seen)
        warn_of_arms(judged, self.feature_names, present.astype(bool))
        actions = _decide(
            self.policy,
            jnp.asarray(state),
            jnp.asarray(judged.features, jnp.float32),
            jnp.asarray(present.astype(bool)),
            jnp.asarray(paid, jnp.float32),
            jnp.asarray(limit, jnp.float32),
            exact_amounts(paid, limit),
        )
        return np.asarray(actions)

    def plan(
        self, frame: Any, budget: float, *, rules: "Rules | None" = None, waiting: int = 20,
        explore: float = 0.0, seed: int | None = None, rounds_left: int | None = None,
    ) -> "Plan":  # fmt: skip
        """A round's plan for a table of people.

        Args:
            frame: A polars or pandas frame with the columns id, state (by name or number) and the
                features by name, and optionally `opt_in`. Features may be empty; a category that
                the model never saw counts as unknown. Other columns are copied to the plan.
            budget: What may be spent in this round.
            rules: Rules that the plan must keep.
            waiting: Length of the waiting list.
            explore: Share of those who may be acted on, among whom actions are exchanged at random;
                the plan then has a column `probability`, the chance of each person's action.
            seed: Random seed of the lots; a new one if left out.
            rounds_left: How many rounds the programme has left, this one included; it goes on
                without an end if left out.

        Returns:
            A `Plan`: `frame` has a row for each person with action, rank and reason, `summary` the
            spending and the expected gain.

        >>> import polars as pl
        >>> import prefermab as pm
        >>> people = pl.DataFrame({"id": [1, 2, 3], "state": ["persuadable"] * 3,
        ...                        "feature_0": [0.3, 0.1, None]})
        >>> plan = pm.load("armman").plan(people, budget=1)
        >>> plan.frame["action"].to_list().count("call"), plan.summary.spent
        (1, 1.0)
        """
        from prefermab.programme.planning.plan import plan

        return plan(
            self, frame, budget, rules, waiting, explore=explore, seed=seed, rounds_left=rounds_left
        )

    def what_if(
        self,
        frame: Any,
        budgets: Sequence[float],
        *,
        rules: "Rules | None" = None,
        rounds_left: int | None = None,
    ) -> pl.DataFrame:
        """What each of several budgets would do for a table of people.

        Args:
            frame: People, as for `plan`.
            budgets: The budgets to compare.
            rules: Rules that every plan must keep.
            rounds_left: How many rounds the programme has left; it goes on without an end if left
                out.

        Returns:
            A row for each budget: what is spent, how many people are chosen, the price, and the
            expected reward gained over doing nothing.

        >>> import polars as pl
        >>> import prefermab as pm
        >>> people = pl.DataFrame({"id": [1, 2], "state": ["persuadable", "motivated"],
        ...                        "feature_0": [0.3, 0.1]})
        >>> pm.load("armman").what_if(people, budgets=[0, 1, 2])["chosen"].to_list()
        [0, 1, 2]
        """
        from prefermab.programme.planning.plan import what_if

        return what_if(self, frame, budgets, rules, rounds_left=rounds_left)

    def save(self, path: str | Path) -> None:
        """Writes the model to a folder, whole or not at all.

        Args:
            path: Where there is nothing yet, or a model that is to be replaced.

        >>> import pathlib, tempfile
        >>> import prefermab as pm
        >>> folder = pathlib.Path(tempfile.mkdtemp()) / "mine"
        >>> pm.load("armman").save(folder)
        >>> sorted(file.name for file in folder.iterdir())
        ['README.md', 'config.json', 'model.safetensors']
        """
        card = self.card or default_card(self)
        arrays = named_arrays(self.network)
        # Not in `describe`, on which the fingerprint rests: models of older versions keep theirs.
        seen = {} if self.seen is None else {"seen": self.seen.as_json()}
        config = {**self.describe(), **seen}
        write_folder(Path(path), Stored(config, arrays, card, self.history))

    def describe(self) -> dict[str, Any]:
        """Everything about the model but its arrays.

        Returns:
            JSON values, as in `config.json` of its folder. The fingerprint of the model is computed
            from them and the arrays.
        """
        return describe_model(self)


@eqx.filter_jit
def _decide(policy, state, features, opt_in, costs, budget, amounts) -> Actions:
    """Algorithm 3 on one round's arms."""
    state, features = hide_opted_out(opt_in, state, features)
    zero: Int[Array, ""] = jnp.zeros((), int)
    seen = Observation(state, features, opt_in, costs, budget, zero, amounts)
    return policy.act(seen, policy.memory(state.shape[0]), jax.random.key(0))[0]
