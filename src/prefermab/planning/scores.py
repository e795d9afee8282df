"""What a model makes of each person: the price at which it would choose them, and why.

Everyone goes through the network in pieces of a few sizes, so that any number of people needs
little memory and little compiling.
"""

from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import numpy as np

from prefermab.model import Model
from prefermab.planning.roster import Roster, columns_of
from prefermab.policies.learned import CHUNK, BySweep, Learned

PROBES = 8
"""Prices that are tried in search of a person's own."""

SAMPLED_STATES = 12
"""Other states that a person's state is compared with, at most."""


@eqx.filter_jit
def _gains(policy: Learned, state, features, price):
    return jax.vmap(policy.gain)(state, features, price)


def gains_of(
    model: Model, states: np.ndarray, features: np.ndarray, prices: np.ndarray | float
) -> np.ndarray:
    """What each action would gain, for every person at a price of their own."""
    size = len(states)
    prices = np.broadcast_to(np.asarray(prices, np.float32), (size,))
    found = np.empty((size, len(model.action_names)), np.float32)
    for rows in pieces(size):
        part = [padded(array[rows]) for array in (states, features, prices)]
        found[rows] = np.asarray(_gains(model.policy, *part))[: rows.stop - rows.start]
    return found


def pieces(size: int) -> Iterator[slice]:
    """Rows in pieces of at most `CHUNK`.

    >>> from prefermab.planning.scores import pieces
    >>> list(pieces(70000))
    [slice(0, 65536, None), slice(65536, 70000, None)]
    """
    for start in range(0, size, CHUNK):
        yield slice(start, min(start + CHUNK, size))


def padded(array: np.ndarray) -> np.ndarray:
    """The rows and zeros up to the next of a few sizes.

    >>> import numpy as np
    >>> from prefermab.planning.scores import padded
    >>> padded(np.ones((3, 2))).shape
    (64, 2)
    """
    size = next(s for s in (64, 1024, 8192, CHUNK) if s >= len(array))
    fill = [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1)
    return np.pad(array, fill)


def own_prices(model: Model, roster: Roster) -> np.ndarray | None:
    """The highest price at which each person would still be acted on, 0 where at none.

    None for a recipe whose network has no such price.
    """
    if not isinstance(model.policy, BySweep):
        return None
    highest = float(model.policy.worth.perception.highest_price)

    def net(roots: np.ndarray) -> np.ndarray:
        prices = (roots**2).astype(np.float32)
        gains = gains_of(model, roster.states, roster.features, prices)
        return (gains - prices[:, None] * roster.costs)[:, 1:].max(axis=1)

    return last_positive(net, roster.size, np.sqrt(highest)) ** 2


def last_positive(net: Callable[[np.ndarray], np.ndarray], size: int, highest: float) -> np.ndarray:
    """For each of several falling functions at once, where it crosses 0 in [0, highest], by a
    straight line between the ends that are known (the one that stays is halved: Illinois).

    >>> import numpy as np
    >>> from prefermab.planning.scores import last_positive
    >>> last_positive(lambda x: np.array([4.0, -1.0]) - x**2, 2, 10.0).round(2)
    array([2., 0.])
    """
    low, high = np.zeros(size), np.full(size, highest)
    at_low, at_high = net(low).astype(float), net(high).astype(float)
    never, always = at_low <= 0, at_high > 0
    side = np.zeros(size, int)
    for probe in range(PROBES):
        spread = np.where(at_low - at_high > 0, at_low - at_high, 1.0)
        middle = low + (high - low) * np.clip(at_low / spread, 0.02, 0.98)
        # What a budget leads to is far below the highest price: begin there.
        middle = np.where(probe == 0, low + (high - low) / 8, middle)
        value = net(middle)
        up = value > 0
        at_high = np.where(up & (side == 1), at_high / 2, at_high)
        at_low = np.where(~up & (side == -1), at_low / 2, at_low)
        low, at_low = np.where(up, middle, low), np.where(up, value, at_low)
        high, at_high = np.where(up, high, middle), np.where(up, at_high, value)
        side = np.where(up, 1, -1)
    return np.where(never, 0.0, np.where(always, highest, (low + high) / 2))


def effects(
    model: Model, roster: Roster, price: float, action: np.ndarray, gains: np.ndarray
) -> dict[str, np.ndarray]:
    """By how much the state, and each known column of features, moves what `action` gains: against
    the mean over states, and against not knowing the column."""
    each = np.arange(roster.size)
    own = gains[each, action]
    points = np.asarray(model.network.perception.points)
    if not model.network.perception.continuous:
        points = np.arange(len(points))
    if len(points) > SAMPLED_STATES:
        points = points[np.linspace(0, len(points) - 1, SAMPLED_STATES).astype(int)]
    elsewhere = np.zeros(roster.size)
    for point in points:
        states = np.full(roster.size, point, roster.states.dtype)
        elsewhere += gains_of(model, states, roster.features, price)[each, action]
    found = {"state": own - elsewhere / len(points)}
    for name in columns_of(model.feature_names):
        columns = [
            i
            for i, feature in enumerate(model.feature_names)
            if feature == name or feature.startswith(f"{name}=")
        ]
        hidden = roster.features.copy()
        hidden[:, columns] = np.nan
        if np.isnan(roster.features[:, columns]).all():
            continue
        found[name] = own - gains_of(model, roster.states, hidden, price)[each, action]
    return found
