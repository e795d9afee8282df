"""What follows from gains and costs for each person alone, and what a choice costs."""

import numpy as np

from prefermab.programme.planning.limits import ANY


def locked_actions(
    gains: np.ndarray, costs: np.ndarray, price: float, locked: np.ndarray
) -> np.ndarray:
    """The actions of those who are locked in: the best at the going price where it is open."""
    net = (gains - price * costs)[:, 1:]
    cheapest = costs[:, 1:].argmin(axis=1)
    best = np.where(np.isneginf(net).all(axis=1), cheapest, net.argmax(axis=1)) + 1
    return np.where(locked == ANY, best, locked)


def best_actions(
    gains: np.ndarray, costs: np.ndarray, price: float, actions: np.ndarray
) -> np.ndarray:
    """What somebody gets, or, of those who get nothing, what would be best for them."""
    return np.where(actions > 0, actions, (gains - price * costs)[:, 1:].argmax(axis=1) + 1)


def paid(actions: np.ndarray, costs: np.ndarray) -> float:
    """What a choice costs."""
    return float(costs[np.arange(len(actions)), actions].astype(float).sum())


def units(actions: np.ndarray, costs: np.ndarray, unit: float) -> float:
    """What a choice costs, each in whole units, so that the sum does not depend on its order."""
    cost = costs[np.arange(len(actions)), actions].astype(float)
    return float((np.round(cost / unit) * unit).sum())
