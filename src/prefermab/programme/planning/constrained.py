"""Choosing under rules that tie people to each other: shares of groups, budgets of workers.

People are taken by what their action gains per cost, as long as all that limits them allows it.
Shares are of the number of people acted on, which is not known before the choice: it is begun at
what the budgets alone allow and lowered until a choice keeps every share exactly.
"""

import dataclasses
import functools

import numpy as np

from prefermab.budget import limit_of
from prefermab.errors import InputError
from prefermab.programme.planning.rules import Limits


@dataclasses.dataclass
class Ledger:
    """What has been chosen so far, and what it has used up."""

    actions: np.ndarray
    spent: float
    of_group: list[int]
    of_worker: list[float]
    chosen: int

    @classmethod
    def of(cls, locked: np.ndarray, costs: np.ndarray, limits: Limits) -> "Ledger":
        """The locked ones."""
        cost = costs[np.arange(len(locked)), locked]
        acted = locked > 0
        return cls(
            locked.copy(),
            float(cost.sum()),
            np.bincount(
                limits.group[acted & (limits.group >= 0)], minlength=len(limits.group_names)
            ).tolist(),
            np.bincount(
                limits.worker[limits.worker >= 0],
                cost[limits.worker >= 0],
                minlength=len(limits.worker_names),
            ).tolist(),
            int(acted.sum()),
        )


@dataclasses.dataclass(frozen=True)
class Task:
    """What is to be chosen from. `per_cost`: gains are weighed against costs."""

    gains: np.ndarray
    costs: np.ndarray
    budget: float
    limits: Limits
    locked: np.ndarray
    per_cost: bool

    @functools.cached_property
    def order(self) -> np.ndarray:
        """The pairs of person and action by gain, per cost where costs matter; ties in the order
        of the table."""
        gains, costs = self.gains[:, 1:], self.costs[:, 1:]
        key = gains / np.where(costs > 0, costs, 1e-9) if self.per_cost else gains
        free = self.limits.may & (self.locked == 0)
        key = np.where(free[:, None], key, -np.inf).ravel()
        order = np.argsort(-key, kind="stable")
        return order[key[order] > -np.inf]

    def up_to(self, dearest: float) -> "Task":
        """Without the actions that cost more; in double precision, so that sums are exact."""
        gains, costs = self.gains.astype(float), self.costs.astype(float)
        allowed = np.where(costs <= dearest, gains, -np.inf)
        return dataclasses.replace(self, gains=allowed, costs=costs)

    def gained(self, actions: np.ndarray) -> float:
        """What a choice gains together."""
        taken = self.gains[np.arange(len(actions)), actions]
        return float(np.where(np.isfinite(taken), taken, 0.0).sum(dtype=float))

    def take(
        self, ledger: Ledger, most: int, caps: list[int], group: int | None = None, need: int = 0
    ) -> None:
        """Takes pairs in order while all limits allow: until `most` people are acted on, or, of
        one `group` only, until it has `need` of them."""
        n_active = self.costs.shape[1] - 1
        limit = float(limit_of(self.budget))
        budgets = limit_of(self.limits.budgets).tolist()
        pairs = self.order
        if group is not None:
            pairs = pairs[self.limits.group[pairs // n_active] == group]
        arms, actions = (pairs // n_active).tolist(), (pairs % n_active + 1).tolist()
        costs = self.costs[pairs // n_active, pairs % n_active + 1].tolist()
        groups = self.limits.group[pairs // n_active].tolist()
        workers = self.limits.worker[pairs // n_active].tolist()
        cheapest = min(costs, default=0.0)
        for arm, action, cost, of, by in zip(arms, actions, costs, groups, workers, strict=True):
            if ledger.chosen >= most or ledger.spent + cheapest > limit:
                break
            if group is not None and ledger.of_group[group] >= need:
                break
            if ledger.actions[arm] or ledger.spent + cost > limit:
                continue
            if of >= 0 and ledger.of_group[of] >= caps[of]:
                continue
            if by >= 0 and ledger.of_worker[by] + cost > budgets[by]:
                continue
            ledger.actions[arm] = action
            ledger.spent += cost
            ledger.chosen += 1
            if of >= 0:
                ledger.of_group[of] += 1
            if by >= 0:
                ledger.of_worker[by] += cost

    def improve(self, ledger: Ledger) -> None:
        """Spends what is left on better actions for those who were chosen."""
        if self.costs.shape[1] == 2:
            return
        limit, budgets = limit_of(self.budget), limit_of(self.limits.budgets)
        for _ in range(self.costs.shape[1] - 2):
            arms = np.flatnonzero((ledger.actions > 0) & (self.locked == 0))
            now = ledger.actions[arms]
            more = self.gains[arms] - self.gains[arms, now][:, None]
            extra = self.costs[arms] - self.costs[arms, now][:, None]
            rate = np.where((more > 0) & (extra >= 0), more / np.maximum(extra, 1e-9), -np.inf)
            for pair in np.argsort(-rate.ravel(), kind="stable"):
                row, action = divmod(int(pair), rate.shape[1])
                if rate[row, action] == -np.inf:
                    break
                arm, cost = arms[row], extra[row, action]
                by = self.limits.worker[arm]
                room = budgets[by] if by >= 0 else np.inf
                paid = ledger.of_worker[by] if by >= 0 else 0.0
                if ledger.actions[arm] != now[row]:
                    continue
                if ledger.spent + cost > limit or paid + cost > room:
                    continue
                ledger.actions[arm] = action
                ledger.spent += cost
                if by >= 0:
                    ledger.of_worker[by] += cost


def choose(task: Task) -> np.ndarray:
    """An action for everyone that keeps all limits, or the reason why there is none.

    Dear actions can keep out more people than they are worth, so a choice without them is made too,
    and the better one taken.
    """
    dearest = np.unique(task.costs[:, 1:].max(axis=0))[::-1] if task.per_cost else [np.inf]
    found, refused = [], []
    for cost in dearest:
        try:
            found.append(in_order(task.up_to(float(cost))))
        except InputError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return max(found, key=task.gained)


def in_order(task: Task) -> np.ndarray:
    """The choice that takes what gains most per cost first."""
    limits = task.limits
    check_locks(task.locked, task.costs, task.budget, limits)
    unlimited = [len(task.locked)] * len(limits.group_names)
    ledger = Ledger.of(task.locked, task.costs, limits)
    locked = ledger.chosen
    task.take(ledger, len(task.locked), unlimited)
    # Largest shares first: they may leave fewer people, of whom the least shares are then less.
    for floors in (False, True):
        target = ledger.chosen
        while True:
            ledger = with_shares(task, target, floors)
            if ledger.chosen == target:
                break
            target = min(ledger.chosen, target - 1)
            if target < locked:
                raise InputError(
                    "no choice that keeps those who are locked in keeps all shares of the groups: "
                    "take a lock or a share away."
                )
    task.improve(ledger)
    return ledger.actions


def with_shares(task: Task, target: int, floors: bool) -> Ledger:
    """A choice of at most `target` people whose groups have their shares of that number."""
    limits = task.limits
    need = np.ceil(limits.min_share * target - 1e-9).astype(int)
    caps = np.floor(limits.max_share * target + 1e-9).astype(int).tolist()
    ledger = Ledger.of(task.locked, task.costs, limits)
    for group, (have, cap) in enumerate(zip(ledger.of_group, caps, strict=True)):
        if have > cap:
            raise InputError(
                f"{have} people of the group '{limits.group_names[group]}' are locked in, more "
                f"than its largest share, {limits.max_share[group]:.0%} of {target} people."
            )
    for group in np.flatnonzero(need) if floors else ():
        before = ledger.chosen
        task.take(ledger, len(task.locked), caps, int(group), int(need[group]))
        if ledger.of_group[group] < need[group]:
            explain_shortage(task, ledger, int(group), int(need[group]), target)
            # The budget does not reach so far: fewer people, and their shares of fewer.
            ledger.chosen = min(before, target - 1)
            return ledger
    task.take(ledger, target, caps)
    return ledger


def explain_shortage(task: Task, ledger: Ledger, group: int, need: int, target: int) -> None:
    """Refuses a share that no plan can keep; returns where a smaller plan may keep it."""
    limits, name = task.limits, task.limits.group_names[group]
    n_active = task.costs.shape[1] - 1
    able = np.unique(task.order // n_active)
    able = able[limits.group[able] == group]
    here = len(able) + int(np.sum((task.locked > 0) & (limits.group == group)))
    share = f"at least {limits.min_share[group]:.0%} of {target} people"
    if here < need:
        raise InputError(
            f"the group '{name}' must get {share}, that is {need}, but only {here} of it may be "
            "acted on with any gain: lower its share or the budget."
        )
    open = able[ledger.actions[able] == 0]
    blocked = limits.worker[open]
    cheapest = task.costs[open][:, 1:].min(axis=1)
    paid = np.where(blocked >= 0, np.asarray([*ledger.of_worker, 0.0])[blocked], 0.0)
    room = np.where(blocked >= 0, np.asarray([*limits.budgets, np.inf])[blocked], np.inf)
    if open.size and (paid + cheapest > limit_of(room)).all():
        raise InputError(
            f"the group '{name}' must get {share}, that is {need}, but the budgets of its workers "
            f"reach {ledger.of_group[group]} of it: lower its share or raise those budgets."
        )


def check_locks(locked: np.ndarray, costs: np.ndarray, budget: float, limits: Limits) -> None:
    """Those who are locked in must fit every budget, and the largest shares must allow a plan."""
    ledger = Ledger.of(locked, costs, limits)
    if ledger.spent > limit_of(budget):
        raise InputError(
            f"those who are locked in cost {ledger.spent:g}, more than the budget of {budget:g}."
        )
    for name, paid, room in zip(limits.worker_names, ledger.of_worker, limits.budgets, strict=True):
        if paid > limit_of(room):
            raise InputError(
                f"those who are locked in with '{name}' cost {paid:g}, more than its budget of "
                f"{room:g}."
            )
    everyone_in_a_group = (limits.group >= 0).all() and limits.group_names
    if everyone_in_a_group and limits.max_share.sum() < 1 - 1e-9:
        raise InputError(
            f"the largest shares of the groups add up to {limits.max_share.sum():.0%}, less than "
            "everyone: no plan can keep them."
        )
