"""What is known of an arm whose state is not always seen, as a finite tree of sightings.

A place in the tree is the state last seen (or "never seen") and the action of each round since.
Where acting shows the state, only the action at the sighting matters: in the rounds since, no
action reached the arm. Otherwise all actions since the sighting matter.
"""

import dataclasses
import functools
from typing import Any

import numpy as np

from prefermab.errors import EXACT, InputError, count, floats, unknown

WAYS_SEEN = ("acted", "some", "never")
"""When states are seen: on an action, now and then whatever the action, or never."""

ROUNDS_TOLD_APART = {"acted": 12, "some": 5, "never": 7}
"""Default number of rounds since a sighting that are told apart. Where actions are taken unseen,
each round multiplies the size of the tree by the number of actions."""

MOST_PLACES = 1 << 14
NEVER_SEEN = "never seen"


@dataclasses.dataclass(frozen=True)
class Sightings:
    """All places of the tree, numbered: first those seen in this very round, then `never seen`.

    Args:
        states: Names of the states.
        actions: Names of the actions, the passive one first.
        seen: How states are seen: `acted`, `some` or `never`.
        rounds: Most rounds since a sighting that are told apart; more count as this many.

    >>> from prefermab.domains.sightings import Sightings
    >>> tree = Sightings(("good", "bad"), ("none", "call"), "acted", 3)
    >>> tree.names[:4]
    ('good', 'bad', 'never seen', 'good, none, 1 ago')
    >>> tree.names[tree.place([0], [2], [1])[0]]
    'good, call, 2 ago'
    """

    states: tuple[str, ...]
    actions: tuple[str, ...]
    seen: str = "acted"
    rounds: int = 12

    def __post_init__(self) -> None:
        if self.seen not in WAYS_SEEN:
            raise unknown("way to see", str(self.seen), WAYS_SEEN)
        count(self.rounds, "rounds")
        if self.size_at(self.rounds) > MOST_PLACES:
            raise InputError(
                f"rounds={self.rounds} makes a tree of {self.size_at(self.rounds):,} places, and "
                f"{MOST_PLACES:,} are the most: give fewer rounds."
            )

    def as_json(self) -> dict[str, Any]:
        """How states are seen, as a model's file holds it."""
        return {"seen": self.seen, "rounds": self.rounds}

    @classmethod
    def from_json(cls, config: dict[str, Any]) -> "Sightings | None":
        """From a model's configuration; None where states are always seen."""
        if not config.get("sightings"):
            return None
        names = tuple(config["state_names"]), tuple(config["action_names"])
        made = cls(*names, **config["sightings"])
        if len(made.places) != config["shape"]["cells"]:
            raise InputError("config.json has other sightings than the weights are for.")
        return made

    def fill_unknown(
        self, states: np.ndarray, since: Any = None, actions: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fills in unknown rounds since a sighting and unknown actions at it: the most rounds for
        arms never seen; the first active action where acting is what shows a state.

        Args:
            states: State last seen, -1 for never.
            since: Rounds since, NaN for unknown; required for every arm that was ever seen.
            actions: What was done in that round, by number, NaN for unknown.

        Returns:
            Both, without unknowns.
        """
        ago = np.full(len(states), np.nan) if since is None else floats(since, "rounds_since_seen")
        done = np.full(len(states), np.nan) if actions is None else floats(actions, "action_seen")
        for name, given in (("rounds_since_seen", ago), ("action_seen", done)):
            if given.shape != states.shape:
                raise InputError(f"{name} must hold a number for each of {len(states)} arms.")
        odd = (ago < 0) | (ago >= EXACT) | (ago != np.round(ago))
        wrong = np.flatnonzero(np.where(np.isnan(ago), states >= 0, odd))
        if wrong.size:
            raise InputError(
                "rounds_since_seen must be whole numbers from 0 for arms whose state was seen, "
                f"but that of arm {wrong[0]} is {ago[wrong[0]]:g}."
            )
        odd = (done < 0) | (done >= len(self.actions)) | (done != np.round(done))
        if (odd & ~np.isnan(done)).any():
            raise InputError(f"action_seen must be actions from 0 to {len(self.actions) - 1}.")
        usual = np.where((self.seen == "acted") & (states >= 0), 1, 0)
        rounds = np.where(np.isnan(ago), self.rounds, ago)
        return rounds.astype(int), np.where(np.isnan(done), usual, done).astype(int)

    def size_at(self, rounds: int) -> int:
        """The number of places in a tree of `rounds` rounds."""
        n_states, n_actions = len(self.states), len(self.actions)
        if self.seen == "acted":
            return n_states * (1 + n_actions * rounds) + 1 + rounds
        return (n_states + 1) * sum(n_actions**depth for depth in range(rounds + 1))

    @functools.cached_property
    def places(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """Each place: the state last seen (the number of states stands for never) and the actions
        since, the oldest first."""
        level = [(root, ()) for root in range(len(self.states) + 1)]
        found: list[tuple[int, tuple[int, ...]]] = list(level)
        for _ in range(self.rounds):
            level = [(root, (*done, a)) for root, done in level for a in self._next(root, done)]
            found += level
        return tuple(found)

    def _next(self, root: int, done: tuple[int, ...]) -> range:
        """The actions by which a place has a successor without a new sighting."""
        if self.seen == "acted" and (done or root == len(self.states)):
            return range(1)
        return range(len(self.actions))

    @functools.cached_property
    def _numbers(self) -> dict[tuple[int, tuple[int, ...]], int]:
        return {place: number for number, place in enumerate(self.places)}

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """A name for each place."""
        return tuple(self._name(root, done) for root, done in self.places)

    def _name(self, root: int, done: tuple[int, ...]) -> str:
        last = (*self.states, NEVER_SEEN)[root]
        if self.seen == "acted":
            done_then = f", {self.actions[done[0]]}" if done and root < len(self.states) else ""
            return f"{last}{done_then}, {len(done)} ago" if done else last
        return ", ".join([last, *(self.actions[a] for a in done)])

    @functools.cached_property
    def after(self) -> np.ndarray:
        """(place, action): the next place if the action shows nothing. Rounds further back than
        `rounds` are forgotten."""
        return np.array(
            [
                [self._numbers[root, self._longer(root, done, a)] for a in range(len(self.actions))]
                for root, done in self.places
            ],
            np.int32,
        )

    def _longer(self, root: int, done: tuple[int, ...], action: int) -> tuple[int, ...]:
        longer = (*done, action if action in self._next(root, done) else 0)
        if len(longer) <= self.rounds:
            return longer
        # The oldest unseen action goes; where acting is seen, the one at the sighting stays.
        return done if self.seen == "acted" else longer[1:]

    @functools.cached_property
    def before(self) -> np.ndarray:
        """The place one round earlier; -1 for a sighting itself."""
        return np.array(
            [self._numbers[root, done[:-1]] if done else -1 for root, done in self.places], np.int32
        )

    @functools.cached_property
    def paths(self) -> np.ndarray:
        """(place, round): the actions since, the last round last; -1 before the sighting."""
        rows = [(-1,) * (self.rounds - len(done)) + done for _, done in self.places]
        return np.array(rows, np.int32)

    @functools.cached_property
    def rounds_since(self) -> np.ndarray:
        """Rounds since the state was seen, or since the start, of each place."""
        return np.array([len(done) for _, done in self.places], np.int32)

    @functools.cached_property
    def roots(self) -> np.ndarray:
        """The state last seen of each place; the number of states for never."""
        return np.array([root for root, _ in self.places], np.int32)

    def place(self, states: Any, since: Any, actions: Any) -> np.ndarray:
        """The place of each arm.

        Args:
            states: State last seen, -1 for never.
            since: Rounds since then: 0 if it is seen now.
            actions: What was done in that round, 0 for nothing; nothing was done later.

        Returns:
            The number of each place.
        """
        known = np.asarray(states), np.minimum(np.asarray(since), self.rounds + 1)
        table = np.stack([*known, np.asarray(actions)], axis=1).astype(int)
        different, which = np.unique(table, axis=0, return_inverse=True)
        return np.array([self._place(*row) for row in different.tolist()], np.int32)[which]

    def _place(self, state: int, since: int, action: int) -> int:
        root, done = (len(self.states) if state < 0 else state), ()
        for number in range(since):
            done = self._longer(root, done, action if number == 0 else 0)
        return self._numbers[root, done]
