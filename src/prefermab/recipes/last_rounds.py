"""Learning the last rounds of a programme, beside the learning of an ongoing one.

A second network learns what actions are worth with few rounds left, undiscounted, where later
rounds have their usual prices (`prefermab.networks.ending`).
"""

import dataclasses
import functools
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from prefermab.arms.observation import Arms, Key
from prefermab.domains.base import Domain
from prefermab.networks.ending import LEVELS, UsualPrices, worths_to_end
from prefermab.networks.worth import Perception, Worth
from prefermab.recipes.answers import Answered, Answers, expectations
from prefermab.recipes.base import Tuning
from prefermab.recipes.learner import Learner, Learning, RegressionState

END_SAMPLES, END_LEFTS, END_MASKED, END_FOCUS = 4, 3, 0.1, 0.3
"""How the last rounds are learned: how many times larger a step's sample is, how many numbers of
rounds left are kept for each arm and price, and the hyperparameters `masked` and `focus`."""


@dataclasses.dataclass(frozen=True)
class LearnerToEnd(Learning[Answers]):
    """A learner of an ongoing programme, and with it one of the last `longest` rounds."""

    ongoing: Learner[Answers]
    longest: int

    @property
    def last_rounds(self) -> Learner[Answers]:
        """The learner of the last rounds."""
        ongoing = self.ongoing.lessons
        assert isinstance(ongoing, Answered)
        lessons = WorthsToEnd(END_SAMPLES * ongoing.arms, ongoing.prices, END_MASKED, self.longest)
        return dataclasses.replace(
            self.ongoing, lessons=lessons, focus=END_FOCUS, longest=self.longest
        )

    def init(self, domain: Domain, perception: Perception, key: Key) -> RegressionState[Answers]:
        ongoing = self.ongoing.init(domain, perception, key)
        to_end = self.begin(domain, perception, jax.random.fold_in(key, 2))
        return dataclasses.replace(ongoing, to_end=to_end)

    def begin(self, domain: Domain, perception: Perception, key: Key) -> RegressionState[Answers]:
        """The state of the last rounds before the first step."""
        key_net, key_arms = jax.random.split(key)
        # The same for all seeds, so that several trainings at once compute it once.
        usual = UsualPrices.of(domain, self.longest, jax.random.key(0))
        learner = self.last_rounds
        worth = learner.untrained(perception, domain.n_actions, key_net)
        worth = dataclasses.replace(worth, usual=usual)
        return learner.start(worth, learner.lessons.prepare(domain, worth, key_arms))

    def advance(
        self, domain: Domain, size: int, state: RegressionState[Answers], key: Key
    ) -> tuple[RegressionState[Answers], Float[Array, ""]]:
        """`size` gradient steps of each network, and the mean loss of the one for ongoing
        programmes."""
        assert state.to_end is not None
        ongoing = dataclasses.replace(state, to_end=None)
        after, loss = self.ongoing.advance(domain, size, ongoing, key)
        to_end = self.proceed(domain, size, state.to_end, jax.random.fold_in(key, 2))
        return dataclasses.replace(after, to_end=to_end), loss

    def proceed(
        self, domain: Domain, size: int, state: RegressionState[Answers], key: Key
    ) -> RegressionState[Answers]:
        """`size` gradient steps of the last rounds; also records the largest gain of an action by
        rounds left."""
        after, _ = self.last_rounds.advance(domain, size, state, key)
        known = after.memory
        assert known.left is not None
        assert after.slow.usual is not None
        gained = jnp.max(known.worth - known.worth[..., :1], axis=(2, 3)).reshape(-1)
        places = known.left.reshape(-1) - 1
        most = jax.ops.segment_max(gained, places, num_segments=self.longest)
        most = jnp.maximum(after.slow.usual.most, most)
        slow = eqx.tree_at(lambda it: it.usual.most, after.slow, most)
        return dataclasses.replace(after, slow=slow)

    def untrained(self, perception: Perception, n_actions: int, key: Key) -> Worth:
        to_end = self.last_rounds.untrained(perception, n_actions, key)
        ongoing = self.ongoing.untrained(perception, n_actions, key)
        return dataclasses.replace(ongoing, to_end=to_end)

    def tuned(self, tuning: Tuning, domain: Domain, worth: Worth, arms: Arms, key: Key) -> Worth:
        assert worth.to_end is not None
        ongoing = dataclasses.replace(worth, to_end=None)
        tuned = self.ongoing.tuned(tuning, domain, ongoing, arms, key)
        key = jax.random.fold_in(key, 2)
        to_end = self.last_rounds.tuned(tuning, domain, worth.to_end, arms, key)
        return dataclasses.replace(tuned, to_end=to_end)


@dataclasses.dataclass(frozen=True)
class WorthsToEnd(Answered):
    """What actions are worth with up to `longest` rounds left."""

    longest: int
    work: ClassVar[int] = 2

    def answers(self, domain: Domain, slow: Worth, arms: Arms, n_arms: int, key: Key) -> Answers:
        """Answers for these arms, each at budgets and with rounds left of its own."""
        assert slow.usual is not None
        key_level, key_left = jax.random.split(key)
        size = (n_arms, self.prices)
        level = jax.random.uniform(key_level, size, maxval=LEVELS - 1.0)
        left = jax.random.randint(key_left, (*size, END_LEFTS), 1, self.longest + 1)
        paths = jax.vmap(jax.vmap(slow.usual.path))(level)

        def one_arm(arm, paths, left):
            expected = functools.partial(expectations, domain.successors(arm), domain.targets)
            return worths_to_end(expected, domain.rewards(arm), domain.costs(arm), paths, left)

        worth = jax.vmap(one_arm)(arms, paths, left)
        prices = jnp.take_along_axis(paths, left - 1, axis=-1)
        flat = lambda array: array.reshape(n_arms, -1, *array.shape[3:])  # noqa: E731
        costs = jax.vmap(domain.costs)(arms)
        return Answers(domain.features(arms), flat(prices), flat(worth), costs, flat(left))
