"""Chooses actions under limits that people share: shares of groups, budgets of workers.

People are taken in the order of gain per cost, while every rule allows it. Shares are of the number
of people acted on, which is not known before the choice. So a first choice keeps the budgets
alone, and its number of people is lowered until a choice keeps every share exactly.
"""

import dataclasses
import functools

import numpy as np

from prefermab.amounts import DecimalUnits, add_up
from prefermab.errors import InputError
from prefermab.programme.planning.rules import Limits


@dataclasses.dataclass
class Ledger:
    """The actions chosen so far, and the budget that they use, in units."""

    actions: np.ndarray
    spent: int
    of_group: list[int]
    of_worker: list[int]
    chosen: int


@dataclasses.dataclass(frozen=True)
class Selection:
    """The actions to choose from, with their gains and costs, and the limits to keep.

    With `per_cost`, actions are ordered by gain per cost, else by gain.
    """

    gains: np.ndarray
    costs: np.ndarray
    budget: float
    limits: Limits
    locked: np.ndarray
    per_cost: bool

    @functools.cached_property
    def units(self) -> np.ndarray:
        """Costs in units of the budget."""
        return DecimalUnits.of(self.budget).of_costs(self.costs)

    @functools.cached_property
    def room(self) -> int:
        """The budget in units."""
        return DecimalUnits.of(self.budget).of_budget(self.budget)

    @functools.cached_property
    def worker_units(self) -> np.ndarray:
        """Costs in units of the worker's own budget; 0 if the worker has no budget."""
        found = np.zeros(self.costs.shape, np.int64)
        for worker, budget in enumerate(self.limits.budgets):
            if np.isfinite(budget):
                rows = self.limits.worker == worker
                found[rows] = DecimalUnits.of(budget).of_costs(self.costs[rows])
        return found

    @functools.cached_property
    def worker_rooms(self) -> list[int]:
        """The workers' budgets in their own units; 0 for workers without a budget."""
        return [
            DecimalUnits.of(b).of_budget(b) if np.isfinite(b) else 0 for b in self.limits.budgets
        ]

    @functools.cached_property
    def order(self) -> np.ndarray:
        """The pairs of person and action, best first: by gain, or by gain per cost with `per_cost`;
        ties in the order of the table."""
        gains, costs = self.gains[:, 1:], self.costs[:, 1:]
        key = gains / np.where(costs > 0, costs, 1e-9) if self.per_cost else gains
        free = self.limits.may & (self.locked == 0)
        key = np.where(free[:, None], key, -np.inf).ravel()
        order = np.argsort(-key, kind="stable")
        return order[key[order] > -np.inf]

    def without_above(self, cost: float) -> "Selection":
        """The selection without the actions that cost more than this."""
        allowed = np.where(self.costs <= cost, self.gains.astype(float), -np.inf)
        return dataclasses.replace(self, gains=allowed)

    def gained(self, actions: np.ndarray) -> float:
        """The total gain of these actions."""
        taken = self.gains[np.arange(len(actions)), actions]
        return float(np.where(np.isfinite(taken), taken, 0.0).sum(dtype=float))

    def start(self) -> Ledger:
        """The ledger of those who are locked in."""
        limits, acted = self.limits, self.locked > 0
        each = np.arange(len(self.locked))
        worker_costs = self.worker_units[each, self.locked]
        return Ledger(
            actions=self.locked.copy(),
            spent=add_up(self.units[each, self.locked]),
            of_group=[
                int((acted & (limits.group == group)).sum())
                for group in range(len(limits.group_names))
            ],
            of_worker=[
                add_up(worker_costs[limits.worker == worker])
                for worker in range(len(limits.worker_names))
            ],
            chosen=int(acted.sum()),
        )

    def take(
        self, ledger: Ledger, most: int, caps: list[int], group: int | None = None, need: int = 0
    ) -> None:
        """Takes pairs in order, while all limits allow, until `most` people are acted on. With a
        `group`, takes only its people, until `need` of them are acted on."""
        people, actions = np.divmod(self.order, self.costs.shape[1] - 1)
        actions = actions + 1
        if group is not None:
            here = self.limits.group[people] == group
            people, actions = people[here], actions[here]
        costs = self.units[people, actions]
        columns = (
            people, actions, costs, self.limits.group[people], self.limits.worker[people],
            self.worker_units[people, actions],
        )  # fmt: skip
        cheapest = int(costs.min(initial=self.room + 1))
        for person, action, cost, in_group, worker, worker_cost in zip(
            *(c.tolist() for c in columns), strict=True
        ):
            if ledger.chosen >= most or ledger.spent + cheapest > self.room:
                break
            if group is not None and ledger.of_group[group] >= need:
                break
            if ledger.actions[person] or ledger.spent + cost > self.room:
                continue
            if in_group >= 0 and ledger.of_group[in_group] >= caps[in_group]:
                continue
            if worker >= 0 and ledger.of_worker[worker] + worker_cost > self.worker_rooms[worker]:
                continue
            ledger.actions[person] = action
            ledger.spent += cost
            ledger.chosen += 1
            if in_group >= 0:
                ledger.of_group[in_group] += 1
            if worker >= 0:
                ledger.of_worker[worker] += worker_cost

    def improve(self, ledger: Ledger) -> None:
        """Spends what is left on better actions for people who are chosen already."""
        for _ in range(self.costs.shape[1] - 2):
            people = np.flatnonzero((ledger.actions > 0) & (self.locked == 0))
            now = ledger.actions[people]
            more = self.gains[people] - self.gains[people, now][:, None]
            extra = self.costs[people] - self.costs[people, now][:, None]
            rate = np.where((more > 0) & (extra >= 0), more / np.maximum(extra, 1e-9), -np.inf)
            for pair in np.argsort(-rate.ravel(), kind="stable"):
                row, action = divmod(int(pair), rate.shape[1])
                if rate[row, action] == -np.inf:
                    break
                if ledger.actions[people[row]] == now[row]:
                    self._upgrade(ledger, int(people[row]), int(now[row]), action)

    def _upgrade(self, ledger: Ledger, person: int, now: int, action: int) -> None:
        """Replaces a person's action by a better one if all budgets allow it."""
        worker = int(self.limits.worker[person])
        cost = int(self.units[person, action] - self.units[person, now])
        worker_cost = int(self.worker_units[person, action] - self.worker_units[person, now])
        if ledger.spent + cost > self.room:
            return
        if worker >= 0:
            if ledger.of_worker[worker] + worker_cost > self.worker_rooms[worker]:
                return
            ledger.of_worker[worker] += worker_cost
        ledger.actions[person] = action
        ledger.spent += cost


def choose_under_rules(selection: Selection) -> np.ndarray:
    """Chooses an action for everyone so that all limits hold; raises an error if none can.

    An expensive action can use the budget of several people who would gain more together. So
    choices without the most expensive actions are made too, and the best choice is returned.
    """
    ceilings = [np.inf]
    if selection.per_cost:
        ceilings = np.unique(selection.costs[:, 1:].max(axis=0))[::-1]
    found, refused = [], []
    for cost in ceilings:
        try:
            found.append(_by_gain_per_cost(selection.without_above(float(cost))))
        except InputError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return max(found, key=selection.gained)


def _by_gain_per_cost(selection: Selection) -> np.ndarray:
    """Chooses greedily, by gain per cost."""
    check_locks(selection)
    ledger, everyone = selection.start(), len(selection.locked)
    selection.take(ledger, everyone, [everyone] * len(selection.limits.group_names))
    # Largest shares first: they may lower the number of people, and then least shares need fewer.
    ledger = _fewer_until_shares_hold(selection, ledger.chosen, least_shares=False)
    ledger = _fewer_until_shares_hold(selection, ledger.chosen, least_shares=True)
    selection.improve(ledger)
    return ledger.actions


def _fewer_until_shares_hold(selection: Selection, most: int, least_shares: bool) -> Ledger:
    """Lowers the number of people until a choice of exactly that many keeps the shares."""
    locked, target = int((selection.locked > 0).sum()), most
    while target >= locked:
        found = _with_shares(selection, target, least_shares)
        if isinstance(found, Ledger) and found.chosen == target:
            return found
        target = min(found.chosen if isinstance(found, Ledger) else found, target - 1)
    raise InputError(
        "no plan can keep both the people who are locked in and all shares of the groups: remove a "
        "lock or a share."
    )


def _with_shares(selection: Selection, target: int, least_shares: bool) -> Ledger | int:
    """A choice of at most `target` people in which each group has its share of that number; if the
    budget does not allow it, the number of people to try next."""
    limits = selection.limits
    need = np.ceil(limits.min_share * target - 1e-9).astype(int)
    caps = np.floor(limits.max_share * target + 1e-9).astype(int).tolist()
    ledger = selection.start()
    for group, (have, cap) in enumerate(zip(ledger.of_group, caps, strict=True)):
        if have > cap:
            raise InputError(
                f"{have} people of the group '{limits.group_names[group]}' are locked in, more "
                f"than its largest share, {limits.max_share[group]:.0%} of {target} people."
            )
    for group in np.flatnonzero(need) if least_shares else ():
        selection.take(ledger, len(selection.locked), caps, int(group), int(need[group]))
        reached = ledger.of_group[group]
        if reached < need[group]:
            _refuse_impossible_share(selection, ledger, int(group), int(need[group]), target)
            return int(reached / limits.min_share[group] + 1e-9)
    selection.take(ledger, target, caps)
    return ledger


def _refuse_impossible_share(
    selection: Selection, ledger: Ledger, group: int, need: int, target: int
) -> None:
    """Raises an error if no plan can keep this share; returns if a smaller plan may keep it."""
    limits, name = selection.limits, selection.limits.group_names[group]
    able = np.unique(selection.order // (selection.costs.shape[1] - 1))
    able = able[limits.group[able] == group]
    here = len(able) + int(np.sum((selection.locked > 0) & (limits.group == group)))
    share = f"at least {limits.min_share[group]:.0%} of {target} people"
    if here < need:
        raise InputError(
            f"the group '{name}' must get {share}, that is {need}, but only {here} of its people "
            "may be acted on with any gain: lower its share or the budget."
        )
    open = able[ledger.actions[able] == 0]
    worker = limits.worker[open]
    cheapest = selection.worker_units[open][:, 1:].min(axis=1)
    paid = np.asarray([*ledger.of_worker, 0])[worker]
    room = np.asarray([*selection.worker_rooms, 0])[worker]
    if open.size and (paid + cheapest > room).all():
        raise InputError(
            f"the group '{name}' must get {share}, that is {need}, but the budgets of its workers "
            f"are enough for {ledger.of_group[group]}: lower its share or raise those budgets."
        )


def check_locks(selection: Selection) -> None:
    """Raises an error if those who are locked in exceed a budget, or largest shares add up to less
    than 1."""
    limits, ledger = selection.limits, selection.start()
    if ledger.spent > selection.room:
        raise InputError(
            "those who are locked in cost "
            f"{DecimalUnits.of(selection.budget).amount(ledger.spent):g}, more than the budget of "
            f"{selection.budget:g}."
        )
    for worker, (paid, room) in enumerate(
        zip(ledger.of_worker, selection.worker_rooms, strict=True)
    ):
        if paid > room:
            budget = limits.budgets[worker]
            raise InputError(
                f"those who are locked in with '{limits.worker_names[worker]}' cost "
                f"{DecimalUnits.of(budget).amount(paid):g}, more than its budget of {budget:g}."
            )
    everyone_in_a_group = (limits.group >= 0).all() and limits.group_names
    if everyone_in_a_group and limits.max_share.sum() < 1 - 1e-9:
        raise InputError(
            f"the largest shares of the groups add up to {limits.max_share.sum():.0%}, less than "
            "100%: no plan can keep them."
        )
