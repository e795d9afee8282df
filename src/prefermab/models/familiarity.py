"""Finds arms unlike those of the training, and makes their features less unusual for the network.

A network gives some answer for any features, however far they lie from its training. So a model
stores the range of each feature in training, and the largest distance of an arm's features from
their mean (after whitening). Before the network sees an arm outside of these, each feature is moved
to the end of its range, then all of them towards the mean until they are no further from it than in
training. Where no feature of an arm lies inside its range, all of them count as unknown.
"""

import dataclasses
import warnings
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from prefermab.arms.observation import Features, Key
from prefermab.domains.base import Domain
from prefermab.errors import UnlikeTrainingWarning, list_names
from prefermab.networks.worth import Perception

ARMS_SAMPLED = 1 << 14
"""Arms that are drawn to find the ranges."""

MARGIN = 0.05
"""Each range is widened by this share of its width on either side, because further arms of the same
kind lie a little further out."""

MOST_UNLIKE = 0.01
"""A domain counts as like the training if at most this share of its arms is unlike it."""

TOGETHER = "features together"
"""The name of the count of people whose features are unusual only in combination."""


@dataclasses.dataclass(frozen=True, eq=False)
class JudgedFeatures:
    """Features as a network is to see them, and which of the given ones were unusual."""

    features: np.ndarray
    outside: np.ndarray
    """Whether each feature of each arm lies outside of its range, (arm, feature)."""
    far: np.ndarray
    """Whether the features of each arm together are further from the mean than any in training."""

    @property
    def unlike(self) -> np.ndarray:
        """Whether each arm is unlike all arms of the training, (arm,)."""
        return self.far | self.outside.any(axis=1)

    def counts(self, names: tuple[str, ...]) -> dict[str, int]:
        """How many arms lie outside, for each feature by name. Arms whose features are unusual only
        in combination have an entry of their own.

        >>> import numpy as np
        >>> from prefermab.models.familiarity import JudgedFeatures
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
    """The range of each feature in training, NaN where it was never known, and the `radius`: the
    largest distance of an arm's features from their mean, None where that was not measured."""

    low: np.ndarray
    high: np.ndarray
    radius: float | None

    @classmethod
    def of(cls, domain: Domain, perception: Perception) -> "FeatureRanges":
        """The ranges of arms that a domain draws.

        >>> import prefermab as pm
        >>> from prefermab.models.familiarity import FeatureRanges
        >>> model = pm.load("armman")
        >>> known = FeatureRanges.of(model.domain, model.network.perception)
        >>> bool((known.low < known.high).all())
        True
        """
        return cls.from_features(draw_features(domain), perception)

    @classmethod
    def from_features(cls, drawn: np.ndarray, perception: Perception) -> "FeatureRanges":
        """The ranges of these features of many arms."""
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
        """Ranges for a model that has none stored: four standard deviations on either side of the
        mean, as its whitening gives them; None where it does not whiten."""
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
        """The ranges that `as_json` returned."""
        low, high = (np.array(stored[end], float) for end in ("low", "high"))
        return cls(low, high, stored["radius"])

    def judge(self, features: np.ndarray, perception: Perception) -> JudgedFeatures:
        """Features as the network is to see them; those of ordinary arms stay as they are."""
        with np.errstate(invalid="ignore"):
            outside = np.asarray((features < self.low) | (features > self.high))
        known = ~np.isnan(features) & ~np.isnan(self.low)
        within = np.clip(features, self.low, self.high)
        # A feature that was never known in training is treated as unknown.
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
    """Distance of each arm's known features from the mean, in units in which the features of
    training have standard deviation 1 in every direction."""
    away = np.where(np.isnan(features), 0.0, features - np.asarray(perception.mean))
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.sqrt(((away @ np.asarray(perception.whitening)) ** 2).sum(axis=1))
    return np.where(np.isfinite(found), found, np.inf)  # too far for single precision


def is_whitened(perception: Perception) -> bool:
    """Whether a perception whitens features, and so knows how those of training vary."""
    matrix: Float[Array, "feat feat"] = perception.whitening
    return not np.array_equal(np.asarray(matrix), np.eye(len(matrix)))


def unlike_sentence(counts: dict[str, int], people: int, what: str = "people") -> str:
    """How many are unlike the training, as a sentence without its full stop.

    >>> from prefermab.models.familiarity import unlike_sentence
    >>> unlike_sentence({"age": 1200, "income": 3}, 1201)
    '1,201 people are unlike those that the model was trained on (age of 1,200, income of 3)'
    """
    named = list_names(f"{name} of {number:,}" for name, number in counts.items())
    one = {"people": "1 person is", "arms": "1 arm is"}[what]
    who = one if people == 1 else f"{people:,} {what} are"
    return f"{who} unlike those that the model was trained on ({named})"


def warn_of_arms(judged: JudgedFeatures, names: tuple[str, ...], present: np.ndarray) -> None:
    """Warns if some opted-in arms are unlike those of the training."""
    rows = np.flatnonzero(judged.unlike & present)
    if rows.size:
        some = JudgedFeatures(judged.features[rows], judged.outside[rows], judged.far[rows])
        text = unlike_sentence(some.counts(names), rows.size, "arms")
        warnings.warn(f"{text}, and are judged cautiously.", UnlikeTrainingWarning, stacklevel=3)


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
