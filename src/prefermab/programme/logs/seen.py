"""A log as its judge sees it: who was where, what was done, and how likely that was."""

import dataclasses

import numpy as np

from prefermab.programme.logs.crowd import Crowd
from prefermab.programme.logs.fitting import Terms
from prefermab.programme.logs.reading import Log, Transitions
from prefermab.programme.logs.shrinkage import likeliest, log_chances


@dataclasses.dataclass(frozen=True, eq=False)
class Seen:
    """A log as its judge sees it. A unit is a person with what was known of them at a time: most
    people are one. `chance` (unit, state, action) is how often the log did what."""

    log: Log
    transitions: Transitions
    unit: np.ndarray
    person: np.ndarray
    profile: np.ndarray
    start: np.ndarray
    weight: np.ndarray
    chance: np.ndarray

    @classmethod
    def of(cls, log: Log, transitions: Transitions) -> "Seen":
        """Units, where they were, and the log's choices."""
        n_states = log.shape[0]
        own = transitions.person * len(log.profiles) + transitions.profile
        which, unit = np.unique(own, return_inverse=True)
        person, profile = np.divmod(which, len(log.profiles))
        visits = np.zeros((len(which), n_states))
        np.add.at(visits, (unit, transitions.state), 1.0)
        weight = visits.sum(axis=1)
        start = visits / weight[:, None]
        chance = chances_of_actions(log, transitions)[profile]
        return cls(log, transitions, unit, person, profile, start, weight, chance)

    def crowd(self, chances: np.ndarray, budget: float) -> Crowd:
        """Its people as a crowd that moves by these chances (profile, state, action, next)."""
        meaning = self.log.meaning
        return Crowd(
            chances[self.profile], self.start, self.weight, meaning.rewards, meaning.costs, budget
        )


def chances_of_actions(log: Log, transitions: Transitions) -> np.ndarray:
    """(profile, state, action): how often the log did what, by the state and the features."""
    n_states, n_actions, _ = log.shape
    known = Terms.of(log.columns, log.features, log.profiles)(log.profiles)[:, 1:]

    def design(profile: np.ndarray, state: np.ndarray) -> np.ndarray:
        return np.concatenate([np.eye(n_states)[state], known[profile]], axis=1)

    rows = design(transitions.profile, transitions.state)
    start = np.zeros((n_actions - 1, rows.shape[1]))
    taken = np.eye(n_actions)[transitions.action]
    fit = likeliest(rows, taken, np.full(rows.shape[1], 1.0), start)
    everybody = np.arange(len(log.profiles))
    each = [
        np.exp(log_chances(design(everybody, np.full(len(known), state)), fit.mean))
        for state in range(n_states)
    ]
    return np.stack(each, axis=1)


def shuffled(moves: Transitions, seed: int) -> Transitions:
    """Actions dealt out again at random among the people who were in the same state in the same
    round: whatever acting does is gone, and all else is as it was."""
    chance = np.random.default_rng(seed).random(len(moves))
    as_is = np.lexsort((np.arange(len(moves)), moves.state, moves.round))
    mixed = np.lexsort((chance, moves.state, moves.round))
    action = moves.action.copy()
    action[as_is] = moves.action[mixed]
    return dataclasses.replace(moves, action=action)
