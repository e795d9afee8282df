"""How much a plan could gain at best under its budget and rules."""

from typing import cast

import numpy as np
from scipy.optimize import OptimizeResult, linprog, minimize_scalar
from scipy.sparse import csr_array, vstack

from prefermab.programme.planning.rules import Limits

LARGEST_PROGRAMME = 20_000
"""Pairs of person and action up to which a linear programme with shared rules is solved."""


def gain_bound(
    gains: np.ndarray,
    costs: np.ndarray,
    budget: float,
    limits: Limits,
    locked: np.ndarray,
    price: float,
) -> float:
    """No plan that keeps the budget and the rules gains more.

    Here actions may be taken in part. Under the budget alone this is a Lagrangian bound, at the
    price that makes it lowest. With shares or workers' budgets it is a linear programme; for a
    large table these rules are left out.
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
    if not shared or arms.size > LARGEST_PROGRAMME:
        return fixed + lagrangian_gain_bound(
            gains[open], costs[open], max(budget - paid, 0.0), price
        )
    rows, most = linear_programme(arms, actions, costs, budget, limits, locked)
    found = linprog(-gains[arms, actions], A_ub=rows, b_ub=most, bounds=(0, 1), method="highs")
    return fixed - float(found.fun) if found.success else float("nan")


def lagrangian_gain_bound(gains: np.ndarray, costs: np.ndarray, room: float, price: float) -> float:
    """The lowest Lagrangian bound over prices: what everyone gains at most beyond what they pay,
    and the price of the whole budget. `price` is a guess.

    >>> import numpy as np
    >>> from prefermab.programme.planning.bound import lagrangian_gain_bound
    >>> gains, costs = np.array([[0.0, 3.0], [0.0, 2.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    >>> round(lagrangian_gain_bound(gains, costs, 1.5, 0.0), 6)
    4.0
    """
    useful = np.isfinite(gains[:, 1:])
    worth, paid = np.where(useful, gains[:, 1:], 0.0), np.where(useful, costs[:, 1:], 1.0)

    def bound(at: float) -> float:
        return float(np.maximum((worth - at * paid).max(axis=1), 0.0).sum()) + at * room

    rates = np.where(paid > 0, worth / np.where(paid > 0, paid, 1.0), 0.0)
    highest = float(np.max(rates, initial=0.0))
    best = min(bound(0.0), bound(price), bound(highest))
    if highest > 0:
        search = {"xatol": 1e-11 * highest, "maxiter": 100}
        found = minimize_scalar(bound, bounds=(0.0, highest), method="bounded", options=search)
        best = min(best, bound(float(cast(OptimizeResult, found)["x"])))
    return best


def linear_programme(
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
