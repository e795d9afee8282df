"""How much a plan could gain at best under its budget and rules."""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from prefermab.planning.limits import Limits

LARGEST = 100_000
"""Pairs of person and action up to which the linear programme is solved."""


def gain_bound(
    gains: np.ndarray,
    costs: np.ndarray,
    budget: float,
    limits: Limits,
    locked: np.ndarray,
    price: float,
) -> float:
    """No plan that keeps the budget and the rules gains more.

    Actions may be taken in part: a linear programme, which knows every rule. For a larger table
    shares and workers' budgets are left out, and the budget is paid for at the going price.
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
    if arms.size > LARGEST:
        net = np.where(np.isfinite(gains), gains - price * costs, -np.inf)
        best = np.maximum(net.max(axis=1), 0.0)[open]
        return fixed + float(best.sum()) + price * max(budget - paid, 0.0)
    rows, most = programme(arms, actions, costs, budget, limits, locked)
    found = linprog(-gains[arms, actions], A_ub=rows, b_ub=most, bounds=(0, 1), method="highs")
    return fixed - float(found.fun) if found.success else float("nan")


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
