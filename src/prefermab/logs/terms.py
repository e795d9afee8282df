"""Features as the terms of a linear model: the one place where they are scaled."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from prefermab.logs.columns import Column


@dataclasses.dataclass(frozen=True, eq=False)
class Terms:
    """From features (person, feature) to 1, the scaled features, and a flag for each column that
    is unknown of somebody. Numbers have mean 0 and unit spread; categories are centred only, so
    that a rare one is shrunk as a common one is. Unknown is the mean.

    >>> import numpy as np
    >>> from prefermab.logs.columns import Column
    >>> from prefermab.logs.terms import Terms
    >>> terms = Terms.of([Column("age")], np.array([[20.0], [40.0], [np.nan]]))
    >>> terms(np.array([[40.0], [np.nan]])).tolist()
    [[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    """

    mean: np.ndarray
    spread: np.ndarray
    numeric: np.ndarray
    flagged: tuple[int, ...]
    """The first feature of each column that is unknown of somebody."""

    @classmethod
    def of(cls, columns: Sequence[Column], features: np.ndarray) -> "Terms":
        """Scaled by the people of a log."""
        known = ~np.isnan(features)
        seen = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, features, 0.0).sum(axis=0) / seen
        spread = np.sqrt(np.where(known, (features - mean) ** 2, 0.0).sum(axis=0) / seen)
        sizes = [len(column.feature_names) for column in columns]
        numeric = np.repeat([column.levels is None for column in columns], sizes)
        useful = numeric & (spread > 1e-9 * np.abs(mean)) & (spread > 0)
        first = np.cumsum([0, *sizes])[:-1]
        flagged = tuple(int(at) for at in first if not known[:, at].all())
        return cls(mean, np.where(useful, spread, 1.0), useful, flagged)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        unknown = np.isnan(features)
        scaled = np.where(unknown, 0.0, (features - self.mean) / self.spread)
        one = np.ones((len(features), 1))
        return np.concatenate([one, scaled, unknown[:, list(self.flagged)]], axis=1)
