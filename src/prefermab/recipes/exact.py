"""Recipe `exact`: learns from value iteration what actions are worth, where dynamics are known.

For every arm that is drawn, backward induction at each of several prices computes exactly

    y(s, a) = Σ P(s'|s,a) (R(s') + discount·max_b [y'(s', b) - price·cost(b)])

This is what an action is worth before its own cost, with `horizon` rounds to go. The network is
fitted to the gain y(s, a) - y(s, 0) given what a decision can use: state, features (some hidden)
and price. Its output is the mean over all arms that look alike, which allows for features that are
missing or say little, and for uncertain dynamics.

With many states these answers take long to compute. Each step computes them for a few fresh arms,
which replace the oldest, and learns from a sample of all that are kept.
"""

import dataclasses
import functools
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from prefermab.arms import Arm, Arms, Budget, Features, Key
from prefermab.domains.base import Domain, Targets
from prefermab.ending import LEVELS, UsualPrices, encode_rounds_left, worths_to_end
from prefermab.errors import InputError
from prefermab.networks import Perception, Shape, Worth, mlp
from prefermab.oracles.dynamic_programming import expectation_of_few
from prefermab.recipes.base import Metrics, Tuning
from prefermab.recipes.regression import (
    Batch,
    Regression,
    RegressionState,
    hide_features,
    sample_prices,
)

ARMS_KEPT, MOST_FRESH_ARMS, MOST_FRESH_PROBABILITIES = 512, 64, 1 << 17
"""Arms whose answers are kept; the most arms that a step computes; and the most transition
probabilities that these may have, so that they are fewer where states are many."""


END_SAMPLES, END_LEFTS, END_MASKED, END_FOCUS = 4, 3, 0.1, 0.3
"""Settings of `ExactToEnd`: how many times larger a step's sample is, how many numbers of rounds
left are kept for each arm and price, and its `masked` and `focus`."""


class Answers(eqx.Module):
    """What every action is worth in every state of some arms, each at several prices."""

    features: Features
    prices: Float[Array, "arm price"]
    worth: Float[Array, "arm price state act"]
    costs: Float[Array, "arm act"]
    left: Int[Array, "arm price"] | None = None
    """Rounds left; None: the programme goes on."""


@dataclasses.dataclass(frozen=True)
class Exact(Regression):
    """Learns the answers of value iteration at many prices; for simulators with known dynamics.

    >>> import prefermab as pm
    >>> model = pm.pretrain(pm.domains.Synthetic(), pm.recipes.Exact(steps=20))
    >>> model.recipe
    'exact'
    """

    name: ClassVar[str] = "exact"
    later: ClassVar[tuple[str, ...]] = (*Regression.later, "rounds_left")
    may_be_zero: ClassVar[tuple[str, ...]] = ("seed", "rounds_left")
    may_be_undiscounted: ClassVar[bool] = True

    steps: int = 6000
    """Gradient steps, each on some new arms."""
    arms: int = 256
    """Arms, each at a price and in a state, of a step's sample."""
    prices: int = 8
    """Prices at which the answers of an arm are computed."""
    horizon: int = 12
    """Rounds that value iteration looks ahead."""
    rounds_left: int = 0
    """The most rounds left for which the model can decide in a programme that ends, by a second
    network; 0: for ongoing programmes only."""

    def check(self, domain: Domain) -> None:
        if self.rounds_left and domain.targets is not None:
            raise InputError(
                f"rounds_left needs states that are always seen, and those of '{domain.name}' are "
                "not: leave it out."
            )

    @property
    def to_end_recipe(self) -> "ExactToEnd":
        """The same recipe for the last rounds of a programme."""
        same = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        changed = {"arms": END_SAMPLES * self.arms, "masked": END_MASKED, "focus": END_FOCUS}
        return ExactToEnd(**{**same, **changed})

    def init(self, domain: Domain, n_arms: int, key: Key) -> RegressionState:
        ongoing = super().init(domain, n_arms, key)
        if not self.rounds_left:
            return ongoing
        to_end = self.to_end_recipe.begin(
            domain, ongoing.worth.perception, jax.random.fold_in(key, 2)
        )
        return dataclasses.replace(ongoing, to_end=to_end)

    def step(
        self, domain: Domain, n_arms: int, budget: Budget, size: int, state: Any, key: Key
    ) -> tuple[RegressionState, Metrics]:
        """`size` gradient steps of each network, and metrics of the one for ongoing programmes."""
        ongoing = dataclasses.replace(state, to_end=None)
        after, metrics = super().step(domain, n_arms, budget, size, ongoing, key)
        if state.to_end is None:
            return after, metrics
        to_end = self.to_end_recipe.proceed(domain, size, state.to_end, jax.random.fold_in(key, 2))
        return dataclasses.replace(after, to_end=to_end), metrics

    def trained(self, state: RegressionState) -> Worth:
        ongoing = super().trained(state)
        if state.to_end is None:
            return ongoing
        return dataclasses.replace(ongoing, to_end=state.to_end.slow)

    def network(self, shape: Shape, key: Key) -> Worth:
        ongoing = super().network(shape, key)
        if not self.rounds_left:
            return ongoing
        to_end = self.to_end_recipe.worth(ongoing.perception, shape.actions, key)
        return dataclasses.replace(ongoing, to_end=to_end)

    def finetune(
        self, tuning: Tuning, domain: Domain, net: Worth, arms: Arms, budget: Budget, key: Key
    ) -> Worth:
        ongoing = dataclasses.replace(net, to_end=None)
        tuned = super().finetune(tuning, domain, ongoing, arms, budget, key)
        if net.to_end is None:
            return tuned
        key = jax.random.fold_in(key, 2)
        to_end = Regression.finetune(
            self.to_end_recipe, tuning, domain, net.to_end, arms, budget, key
        )
        return dataclasses.replace(tuned, to_end=to_end)

    @property
    def rounds_ahead(self) -> float:
        return min(super().rounds_ahead, self.horizon)

    def prepare(self, domain: Domain, slow: Worth, key: Key) -> Answers:
        """The first answers to learn from."""
        fresh = self.fresh_arms(domain)
        keys = jax.random.split(key, ARMS_KEPT // fresh)
        several = jax.lax.map(lambda key: self.draw(domain, slow, fresh, key), keys)
        return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), several)

    def teach(
        self, domain: Domain, slow: Worth, memory: Answers, step: Int[Array, ""], key: Key
    ) -> tuple[Answers, Batch]:
        """The oldest answers replaced by fresh ones, and a sample of all."""
        key_arms, key_rows = jax.random.split(key)
        fresh = self.fresh_arms(domain)
        new = self.draw(domain, slow, fresh, key_arms)
        place = (step % (ARMS_KEPT // fresh)) * fresh
        kept = jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, place, 0), memory, new
        )
        return kept, self.sample(domain, kept, key_rows, slow.perception.by_cell)

    def draw(self, domain: Domain, slow: Worth, n_arms: int, key: Key) -> Answers:
        """Answers for new arms."""
        key_arms, key_prices = jax.random.split(key)
        return self.answers(domain, slow, domain.draw_arms(key_arms, n_arms), n_arms, key_prices)

    def answers(self, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Answers:
        """Answers for these arms, each at prices of its own."""
        prices = sample_prices(key, slow.perception.highest_price, (n_arms, self.prices))
        worth = jax.vmap(self.worths_of_arm, in_axes=(None, 0, 0))(domain, arms, prices)
        return Answers(domain.features(arms), prices, worth, jax.vmap(domain.costs)(arms))

    def sample(self, domain: Domain, among: Answers, key: Key, by_cell: bool) -> Batch:
        """Some arms at some price in some state (or in all), features of some of them hidden."""
        key_arm, key_price, key_state, key_mask = jax.random.split(key, 4)
        size = (self.arms,)
        arm = jax.random.randint(key_arm, size, 0, among.prices.shape[0])
        price = jax.random.randint(key_price, size, 0, among.prices.shape[1])
        cell = jax.random.randint(key_state, size, 0, domain.n_cells)
        everywhere = among.worth[arm, price]
        return Batch(
            domain.cells[cell],
            hide_features(key_mask, among.features[arm], self.masked),
            among.prices[arm, price],
            everywhere if by_cell else everywhere[jnp.arange(self.arms), cell],
            among.costs[arm],
            None if among.left is None else among.left[arm, price],
        )

    def batch(self, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Batch:
        """A sample of the answers of these arms, of as many as a step can compute."""
        key_used, key_prices, key_rows = jax.random.split(key, 3)
        used = min(n_arms, self.fresh_arms(domain))
        chosen = jax.random.choice(key_used, n_arms, (used,), replace=False)
        arms = jax.tree.map(lambda x: x[chosen], arms)
        answers = self.answers(domain, slow, arms, used, key_prices)
        return self.sample(domain, answers, key_rows, slow.perception.by_cell)

    def worths_of_arm(
        self, domain: Domain, arm: Arm, prices: Float[Array, "price"]
    ) -> Float[Array, "price state act"]:
        """What each action is worth before its own cost, in every state of an arm at each price."""
        chances, rewards = domain.successors(arm), domain.rewards(arm)
        return self.worths(chances, rewards, domain.costs(arm), prices, domain.targets)

    def worths(
        self,
        table: Float[Array, "state act next"],
        reward: Float[Array, "state"],
        cost: Float[Array, "act"],
        prices: Float[Array, "price"],
        targets: Targets | None = None,
    ) -> Float[Array, "price state act"]:
        """`worths_of_arm` from an arm's transitions (to `targets`, or to all states), rewards and
        costs: the backward induction above."""
        expected = functools.partial(expectations, table, targets)

        def one_round(worth, _):
            value = jnp.max(worth - prices[:, None, None] * cost, axis=2)
            return expected(reward + self.discount * value), None

        last = expected(jnp.broadcast_to(reward, (prices.shape[0], *reward.shape)))
        return jax.lax.scan(one_round, last, None, length=self.horizon - 1)[0]

    def samples_per_round(self, domain: Domain) -> int:
        """None: the dynamics are known."""
        return 0

    def fresh_arms(self, domain: Domain) -> int:
        """The number of arms that a step computes."""
        work = domain.table_size * (1 if domain.targets is None else 20)
        return max(1, min(MOST_FRESH_ARMS, MOST_FRESH_PROBABILITIES // work))


@dataclasses.dataclass(frozen=True)
class ExactToEnd(Exact):
    """Recipe `exact` for programmes that end: what actions are worth with few rounds left,
    undiscounted, where later rounds have their usual prices (`prefermab.ending`)."""

    def begin(self, domain: Domain, perception: Perception, key: Key) -> RegressionState:
        """An untrained network behind a given perception, and its first answers."""
        key_net, key_arms = jax.random.split(key)
        # The same for all seeds, so that several trainings at once compute it once.
        usual = UsualPrices.of(domain, self.rounds_left, jax.random.key(0))
        worth = self.worth(perception, domain.n_actions, key_net)
        learner = self.learner(dataclasses.replace(worth, usual=usual))
        memory = self.prepare(domain, learner.slow, key_arms)
        return dataclasses.replace(learner, memory=memory)

    def proceed(
        self, domain: Domain, size: int, state: RegressionState, key: Key
    ) -> RegressionState:
        """`size` gradient steps; also records the largest gain of an action by rounds left."""
        after, _ = self.advance(domain, size, state, key)
        known: Answers = after.memory
        assert known.left is not None
        assert after.slow.usual is not None
        gained = jnp.max(known.worth - known.worth[..., :1], axis=(2, 3)).reshape(-1)
        places = known.left.reshape(-1) - 1
        most = jax.ops.segment_max(gained, places, num_segments=self.rounds_left)
        most = jnp.maximum(after.slow.usual.most, most)
        slow = eqx.tree_at(lambda it: it.usual.most, after.slow, most)
        return dataclasses.replace(after, slow=slow)

    def fresh_arms(self, domain: Domain) -> int:
        return max(1, super().fresh_arms(domain) // 2)

    def worth(self, perception: Perception, n_actions: int, key: Key) -> Worth:
        size = perception.size + encode_rounds_left(jnp.ones((), int)).size
        layers = mlp(size, n_actions, self.width, self.depth, jax.nn.silu, key)
        return Worth(perception, layers, UsualPrices.blank(self.rounds_left))

    def answers(self, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Answers:
        """Answers for these arms, each at budgets and with rounds left of its own."""
        assert slow.usual is not None
        key_level, key_left = jax.random.split(key)
        size = (n_arms, self.prices)
        level = jax.random.uniform(key_level, size, maxval=LEVELS - 1.0)
        left = jax.random.randint(key_left, (*size, END_LEFTS), 1, self.rounds_left + 1)
        paths = jax.vmap(jax.vmap(slow.usual.path))(level)

        def one_arm(arm, paths, left):
            expected = functools.partial(expectations, domain.successors(arm), domain.targets)
            return worths_to_end(expected, domain.rewards(arm), domain.costs(arm), paths, left)

        worth = jax.vmap(one_arm)(arms, paths, left)
        prices = jnp.take_along_axis(paths, left - 1, axis=-1)
        flat = lambda array: array.reshape(n_arms, -1, *array.shape[3:])  # noqa: E731
        costs = jax.vmap(domain.costs)(arms)
        return Answers(domain.features(arms), flat(prices), flat(worth), costs, flat(left))


def expectations(
    table: Float[Array, "state act next"],
    targets: Targets | None,
    ahead: Float[Array, "price state"],
) -> Float[Array, "price state act"]:
    """Expectations of values of the next state, by an arm's transitions to `targets` or to all."""
    if targets is None:
        return jnp.einsum("sat,pt->psa", table, ahead)
    few = expectation_of_few(table[..., None], targets)
    return jnp.moveaxis(few(ahead.T), -1, 0)
