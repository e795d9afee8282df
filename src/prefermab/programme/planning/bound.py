"""How much a plan could gain at best under its budget and rules."""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from prefermab.programme.planning.rules import Limits

LARGEST = 20_000
"""Pairs of person and action up to which a linear programme with shared rules is solved."""

NARROWINGS = 50
"""Of the price that gives the lowest bound, each to 0.62 of what it was."""


def gain_bound(
    gains: np.ndarray,
    costs: np.ndarray,
    budget: float,
    limits: Limits,
    locked: np.ndarray,
    price: float,
) -> float:
    """No plan that keeps the budget and the rules gains more.

    Actions may be taken in part. Under the budget alone that is the lowest of the bounds that
    paying for the budget at some price gives; with shares or workers' budgets it is a linear
    programme, and for a large table they are left out.
    """
    gains, costs = gains.astype(float), costs.astype(float)
    forced = np.flatnonzero(locked)
    paid = costs[forced, locked[forced]].sum()
    fixed = gains[forced, locked[forced]]
    fixed = float(np.where(np.isfinite(fixed), fixed, 0.0).sum())
    open = limits.may & (locked == 0)
    arms, actions = np.nonzero(open[:, None] & (gains[:, 1:] > -np.inf))
    actions = actions + 1
    if arms.size == 0:
        return fixed
    shared = np.isfinite(limits.budgets).any() or limits.group_names
    if not shared or arms.size > LARGEST:
        return fixed + paid_at_best(gains[open], costs[open], max(budget - paid, 0.0), price)
    rows, most = programme(arms, actions, costs, budget, limits, locked)
    found = linprog(-gains[arms, actions], A_ub=rows, b_ub=most, bounds=(0, 1), method="highs")
    return fixed - float(found.fun) if found.success else float("nan")


def paid_at_best(gains: np.ndarray, costs: np.ndarray, room: float, price: float) -> float:
    """What is gained beyond what is paid, and the whole budget paid for, at the price at which that
    is least; `price` is a guess that may be the best.

    >>> import numpy as np
    >>> from prefermab.programme.planning.bound import paid_at_best
    >>> gains, costs = np.array([[0.0, 3.0], [0.0, 2.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    >>> round(paid_at_best(gains, costs, 1.5, 0.0), 6)
    4.0
    """
    useful = np.isfinite(gains[:, 1:])
    worth, paid = np.where(useful, gains[:, 1:], 0.0), np.where(useful, costs[:, 1:], 1.0)

    def bound(at: float) -> float:
        return float(np.maximum((worth - at * paid).max(axis=1), 0.0).sum()) + at * room

    low = 0.0
    high = float(
        np.max(np.where(paid > 0, worth / np.where(paid > 0, paid, 1.0), 0.0), initial=0.0)
    )
    best, golden = min(bound(0.0), bound(price), bound(high)), (5**0.5 - 1) / 2
    for _ in range(NARROWINGS):
        first, second = high - golden * (high - low), low + golden * (high - low)
        at_first, at_second = bound(first), bound(second)
        best = min(best, at_first, at_second)
        low, high = (low, second) if at_first < at_second else (first, high)
    return float(best)


def programme(
    arms: np.ndarray,
    actions: np.ndarray,
    costs: np.ndarray,
    budget: float,
    limits: Limits,
    locked: np.ndarray,
) -> tuple[csr_array, np.ndarray]:
    """The rows of the linear programme: one action each, the budgets, the shares."""
    pairs, forced = np.arange(arms.size), np.flatnonzero(locked)
    cost, paid = costs[arms, actions], costs[forced, locked[forced]]
    one_each = csr_array((np.ones(arms.size), (arms, pairs)), shape=(len(costs), arms.size))
    rows, most = [cost], [budget - paid.sum()]
    for worker, room in enumerate(limits.budgets):
        if np.isfinite(room):
            rows.append(np.where(limits.worker[arms] == worker, cost, 0.0))
            most.append(room - paid[limits.worker[forced] == worker].sum())
    for group, (least, largest) in enumerate(zip(limits.min_share, limits.max_share, strict=True)):
        member = (limits.group[arms] == group).astype(float)
        here, all_locked = (limits.group[forced] == group).sum(), forced.size
        if least > 0:
            rows.append(least - member)
            most.append(here - least * all_locked)
        if largest < 1:
            rows.append(member - largest)
            most.append(largest * all_locked - here)
    together = vstack([one_each, csr_array(np.stack(rows))], format="csr")
    return csr_array(together), np.concatenate([np.ones(len(costs)), most])
