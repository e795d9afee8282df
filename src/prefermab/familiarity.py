"""What a model was trained on, and how people unlike that are judged.

A network says something about any numbers, however far they lie from all it has learned from. So a
model knows the range of each feature of its training, and how far the features of one arm lay from
the mean together (after whitening). Outside of that it is asked about somebody less unusual:
each feature is moved to the end of its range, then all of them towards the mean until they are as
near to it together as those of training. Of somebody with no feature inside, nothing is known.
"""

import dataclasses
import warnings
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from prefermab.arms import Features, Key
from prefermab.domains.base import Domain
from prefermab.errors import UnlikeTrainingWarning, list_names
from prefermab.networks import Perception

ARMS_SAMPLED = 1 << 14
"""Arms that are drawn to find the ranges."""

MARGIN = 0.05
"""A range is wider than what was drawn by this share of its width on either side: the next arms of
the same kind lie a little further out."""

MOST_UNLIKE = 0.01
"""A domain is like that of the training if at most this share of its arms is not."""

TOGETHER = "features together"
"""What a count of people is called whose features are unusual together only."""


@dataclasses.dataclass(frozen=True, eq=False)
class JudgedFeatures:
    """Features as a model is to judge them."""

    features: np.ndarray
    outside: np.ndarray
    """Whether each feature of each arm lies outside of its range, (arm, feature)."""
    far: np.ndarray
    """Whether the features of each arm are further from the mean together than any in training."""

    @property
    def unlike(self) -> np.ndarray:
        """Who is unlike all arms of the training, (arm,)."""
        return self.far | self.outside.any(axis=1)

    def counts(self, names: tuple[str, ...]) -> dict[str, int]:
        """How many lie outside, for each feature by name; those who are unusual in no feature but
        together have an entry of their own.

        >>> import numpy as np
        >>> from prefermab.familiarity import JudgedFeatures
        >>> far = np.array([True, True, False])
        >>> outside = np.array([[True], [False], [False]])
        >>> JudgedFeatures(np.zeros((3, 1)), outside, far).counts(("age",))
        {'age': 1, 'features together': 1}
        """
        times = dict(zip(names, self.outside.sum(axis=0).tolist(), strict=True))
        times[TOGETHER] = int((self.far & ~self.outside.any(axis=1)).sum())
        return {name: number for name, number in times.items() if number}


@dataclasses.dataclass(frozen=True, eq=False)
class FeatureRanges:
    """The features of a training: the range of each, NaN where it was never known, and how far
    those of an arm lay from the mean together; None where that was not measured."""

    low: np.ndarray
    high: np.ndarray
    radius: float | None

    @classmethod
    def of(cls, domain: Domain, perception: Perception) -> "FeatureRanges":
        """What a domain draws.

        >>> import prefermab as pm
        >>> from prefermab.familiarity import FeatureRanges
        >>> model = pm.load("armman")
        >>> known = FeatureRanges.of(model.domain, model.network.perception)
        >>> bool((known.low < known.high).all())
        True
        """
        return cls.from_features(draw_features(domain), perception)

    @classmethod
    def from_features(cls, drawn: np.ndarray, perception: Perception) -> "FeatureRanges":
        """What these features of many arms say."""
        drawn = drawn.astype(float)
        known = ~np.isnan(drawn)
        low = np.where(known, drawn, np.inf).min(axis=0, initial=np.inf)
        high = np.where(known, drawn, -np.inf).max(axis=0, initial=-np.inf)
        ever = known.any(axis=0)
        low, high = np.where(ever, low, np.nan), np.where(ever, high, np.nan)
        slack = MARGIN * (high - low) + 1e-6 * np.maximum(np.abs(low), np.abs(high))
        furthest = distance(drawn, perception).max(initial=0.0) * (1 + 2 * MARGIN)
        radius = float(furthest) if is_whitened(perception) else None
        return cls(low - slack, high + slack, radius)

    @classmethod
    def guess(cls, perception: Perception) -> "FeatureRanges | None":
        """What can be told of a model that came without ranges: within four standard deviations,
        which its whitening knows; None where it does not whiten."""
        if not is_whitened(perception):
            return None
        matrix, mean = np.asarray(perception.whitening, float), np.asarray(perception.mean, float)
        unmixing = np.linalg.pinv(matrix)
        spread = 4 * np.sqrt((unmixing**2).sum(axis=0)) + 1e-6 * np.abs(mean)
        used = int((np.abs(matrix).sum(axis=0) > 0).sum())
        return cls(mean - spread, mean + spread, float(np.sqrt(used) + 4))

    def as_json(self) -> dict[str, Any]:
        """The same as plain numbers, None for NaN."""
        ends = {"low": self.low, "high": self.high}
        plain = {
            name: [None if np.isnan(x) else float(x) for x in end] for name, end in ends.items()
        }
        return {**plain, "radius": self.radius}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "FeatureRanges":
        """From what `as_json` gave."""
        low, high = (np.array(stored[end], float) for end in ("low", "high"))
        return cls(low, high, stored["radius"])

    def judge(self, features: np.ndarray, perception: Perception) -> JudgedFeatures:
        """Features as the model is to judge them: those inside as they are."""
        with np.errstate(invalid="ignore"):
            outside = np.asarray((features < self.low) | (features > self.high))
        known = ~np.isnan(features) & ~np.isnan(self.low)
        within = np.clip(features, self.low, self.high)
        # A feature that training never knew says nothing, whatever it is.
        nothing = np.asarray(known.any(axis=1) & ~(known & ~outside).any(axis=1))
        within = np.where(known & ~nothing[:, None], within, np.nan).astype(np.float32)
        far = np.zeros(len(features), bool)
        if self.radius is not None and len(features):
            far = distance(features, perception) > self.radius
            away = np.maximum(distance(within, perception), 1e-9)
            share = np.minimum(self.radius / away, 1.0).astype(np.float32)[:, None]
            mean = np.asarray(perception.mean)
            within = np.where(share < 1, mean + share * (within - mean), within)
        return JudgedFeatures(within, outside, far)


def draw_features(domain: Domain) -> np.ndarray:
    """Features of many arms of a domain, always the same ones."""
    return np.asarray(_draw_features(domain, jax.random.key(0)))


# Runs once on little data: optimised code would cost more time than it saves.
_jit: Any = eqx.filter_jit


@partial(_jit, compiler_options={"xla_backend_optimization_level": 0})
def _draw_features(domain: Domain, key: Key) -> Features:
    return domain.features(domain.draw_arms(key, ARMS_SAMPLED))


def distance(features: np.ndarray, perception: Perception) -> Float[np.ndarray, "arm"]:
    """How far the known features of each arm lie from the mean together, in units in which those of
    training spread by 1 in every direction."""
    away = np.where(np.isnan(features), 0.0, features - np.asarray(perception.mean))
    return np.sqrt(((away @ np.asarray(perception.whitening)) ** 2).sum(axis=1))


def is_whitened(perception: Perception) -> bool:
    """Whether a perception knows how features of training spread."""
    matrix: Float[Array, "feat feat"] = perception.whitening
    return not np.array_equal(np.asarray(matrix), np.eye(len(matrix)))


def unlike_sentence(counts: dict[str, int], people: int, what: str = "people") -> str:
    """Who is unlike the training, in one sentence without its end.

    >>> from prefermab.familiarity import unlike_sentence
    >>> unlike_sentence({"age": 1200, "income": 3}, 1201)
    '1,201 people are unlike those that the model was trained on (age of 1,200, income of 3)'
    """
    named = list_names(f"{name} of {number:,}" for name, number in counts.items())
    one = {"people": "1 person is", "arms": "1 arm is"}[what]
    who = one if people == 1 else f"{people:,} {what} are"
    return f"{who} unlike those that the model was trained on ({named})"


def warn_of_arms(judged: JudgedFeatures, names: tuple[str, ...], present: np.ndarray) -> None:
    """Warns if some of the arms that are in are unlike those of the training."""
    rows = np.flatnonzero(judged.unlike & present)
    if rows.size:
        some = JudgedFeatures(judged.features[rows], judged.outside[rows], judged.far[rows])
        told = unlike_sentence(some.counts(names), rows.size, "arms")
        warnings.warn(f"{told}, and are judged cautiously.", UnlikeTrainingWarning, stacklevel=3)


def warn_of_domain(judged: JudgedFeatures, names: tuple[str, ...], domain: str, model: str) -> None:
    """Warns if more than a few of the arms that a domain drew are unlike those of the training."""
    share = judged.unlike.mean()
    if share <= MOST_UNLIKE:
        return
    found = judged.counts(names)
    each = (f"{column} of {times / len(judged.far):.0%}" for column, times in found.items())
    warnings.warn(
        f"{share:.0%} of the arms of '{domain}' are unlike those that the model '{model}' was "
        f"trained on ({list_names(each)}).",
        UnlikeTrainingWarning,
        stacklevel=5,
    )
