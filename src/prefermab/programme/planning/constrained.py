"""Chooses actions under limits that people share, such as shares of groups, budgets of workers.

People are taken in the order of gain per cost, while every rule allows it. Shares are of the number
of people acted on, which is not known before the choice. So a first choice keeps the budgets
alone, and its number of people is lowered until a choice keeps every share exactly.
"""

import dataclasses
import functools

import numpy as np

from prefermab.arms.amounts import DecimalUnits, add_up
from prefermab.errors import InputError
from prefermab.programme.planning.rules import SharedLimits
from prefermab.programme.planning.rules.limits import Limits


@dataclasses.dataclass
class Ledger:
    """The actions chosen so far, and the budget that they use, in units."""

    actions: np.ndarray
    spent: int
    people: list[list[int]]
    """For each of the shared limits and each label, how many people are chosen."""
    paid: list[list[int]]
    """For each of the shared limits and each label, what is spent, in units of its budget."""
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
    def own_units(self) -> list[np.ndarray]:
        """For each of the shared limits, costs in units of the label's own budget; 0 if the label
        has no budget."""
        found = []
        for shared in self.limits.shared:
            units = np.zeros(self.costs.shape, np.int64)
            for place in np.flatnonzero(np.isfinite(shared.budget)):
                rows = shared.label == place
                units[rows] = DecimalUnits.of(shared.budget[place]).of_costs(self.costs[rows])
            found.append(units)
        return found

    @functools.cached_property
    def own_rooms(self) -> list[list[int]]:
        """For each of the shared limits, the budgets of labels in their own units; 0 for labels
        without a budget."""
        return [
            [DecimalUnits.of(b).of_budget(b) if np.isfinite(b) else 0 for b in shared.budget]
            for shared in self.limits.shared
        ]

    @functools.cached_property
    def unlimited(self) -> list[list[int]]:
        """For each of the shared limits, how many people of each label may be chosen, whatever the
        shares."""
        everyone = len(self.locked)
        return [
            [everyone if np.isinf(most) else int(most) for most in shared.people]
            for shared in self.limits.shared
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
        acted, each = self.locked > 0, np.arange(len(self.locked))
        shared = list(zip(self.limits.shared, self.own_units, strict=True))
        return Ledger(
            actions=self.locked.copy(),
            spent=add_up(self.units[each, self.locked]),
            people=[
                [int((acted & (one.label == place)).sum()) for place in range(len(one.names))]
                for one, _ in shared
            ],
            paid=[
                [
                    add_up(units[each, self.locked][one.label == place])
                    for place in range(len(one.names))
                ]
                for one, units in shared
            ],
            chosen=int(acted.sum()),
        )

    def take(
        self,
        ledger: Ledger,
        most: int,
        caps: list[list[int]],
        only: tuple[int, int] | None = None,
        need: int = 0,
    ) -> None:
        """Takes pairs in order, while all limits allow, until `most` people are acted on; `caps`
        has the most people for each of the shared limits and each label. With `only`, takes only
        people of one label (the number of the shared limits, and of the label), until `need` of
        them are acted on."""
        people, actions = np.divmod(self.order, self.costs.shape[1] - 1)
        actions = actions + 1
        if only is not None:
            here = self.limits.shared[only[0]].label[people] == only[1]
            people, actions = people[here], actions[here]
        costs = self.units[people, actions]
        cheapest = int(costs.min(initial=self.room + 1))
        # Of each shared limit: the label of each pair, its cost, and what is taken and allowed.
        ties = [
            (shared.label[people].tolist(), units[people, actions].tolist(), *counts)
            for shared, units, *counts in zip(
                self.limits.shared, self.own_units, ledger.people, caps, ledger.paid,
                self.own_rooms, strict=True,
            )
        ]  # fmt: skip
        pairs = zip(people.tolist(), actions.tolist(), costs.tolist(), strict=True)
        for pair, (person, action, cost) in enumerate(pairs):
            if ledger.chosen >= most or ledger.spent + cheapest > self.room:
                break
            if only is not None and ledger.people[only[0]][only[1]] >= need:
                break
            if ledger.actions[person] or ledger.spent + cost > self.room:
                continue
            if any(
                label[pair] >= 0
                and (
                    count[label[pair]] >= cap[label[pair]]
                    or paid[label[pair]] + own[pair] > room[label[pair]]
                )
                for label, own, count, cap, paid, room in ties
            ):
                continue
            ledger.actions[person] = action
            ledger.spent += cost
            ledger.chosen += 1
            for label, own, count, _, paid, _ in ties:
                if label[pair] >= 0:
                    count[label[pair]] += 1
                    paid[label[pair]] += own[pair]

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
        cost = int(self.units[person, action] - self.units[person, now])
        if ledger.spent + cost > self.room:
            return
        further = []
        for shared, units, paid, rooms in zip(
            self.limits.shared, self.own_units, ledger.paid, self.own_rooms, strict=True
        ):
            place, more = int(shared.label[person]), int(units[person, action] - units[person, now])
            if place >= 0 and paid[place] + more > rooms[place]:
                return
            further.append((paid, place, more))
        for paid, place, more in further:
            if place >= 0:
                paid[place] += more
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
    selection.take(ledger, everyone, selection.unlimited)
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
    ledger, caps = selection.start(), []
    for shared, most, have in zip(
        selection.limits.shared, selection.unlimited, ledger.people, strict=True
    ):
        largest = np.floor(shared.largest * target + 1e-9).astype(int)
        caps.append(np.minimum(largest, most).tolist())
        for place in np.flatnonzero(have > largest):
            raise InputError(
                f"{have[place]} people of the group '{shared.names[place]}' are locked in, more "
                f"than its largest share, {shared.largest[place]:.0%} of {target} people."
            )
    for number, shared in enumerate(selection.limits.shared if least_shares else ()):
        need = np.ceil(shared.least * target - 1e-9).astype(int)
        for group in np.flatnonzero(need):
            only = number, int(group)
            selection.take(ledger, len(selection.locked), caps, only, int(need[group]))
            reached = ledger.people[number][group]
            if reached < need[group]:
                _refuse_impossible_share(selection, ledger, only, int(need[group]), target)
                return int(reached / shared.least[group] + 1e-9)
    selection.take(ledger, target, caps)
    return ledger


def _refuse_impossible_share(
    selection: Selection, ledger: Ledger, group: tuple[int, int], need: int, target: int
) -> None:
    """Raises an error if no plan can keep this share; returns if a smaller plan may keep it."""
    number, place = group
    shared, limits = selection.limits.shared[number], selection.limits.shared
    name, members = shared.names[place], shared.label == place
    able = np.unique(selection.order // (selection.costs.shape[1] - 1))
    able = able[members[able]]
    here = len(able) + int(np.sum((selection.locked > 0) & members))
    share = f"at least {shared.least[place]:.0%} of {target} people"
    if here < need:
        raise InputError(
            f"the group '{name}' must get {share}, that is {need}, but only {here} of its people "
            "may be acted on with any gain: lower its share or the budget."
        )
    open = able[ledger.actions[able] == 0]
    refused = np.zeros(open.size, bool)
    for one, units, counts, most, spent, rooms in zip(
        limits, selection.own_units, ledger.people, selection.unlimited, ledger.paid,
        selection.own_rooms, strict=True,
    ):  # fmt: skip
        label, cheapest = one.label[open], units[open][:, 1:].min(axis=1)
        paid, room = np.asarray([*spent, 0])[label], np.asarray([*rooms, 0])[label]
        refused |= paid + cheapest > room
        refused |= np.asarray([*counts, 0])[label] >= np.asarray([*most, 1])[label]
    if open.size and refused.all():
        raise InputError(
            f"the group '{name}' must get {share}, that is {need}, but the limits of its workers "
            f"are enough for {ledger.people[number][place]}: lower its share or raise those limits."
        )


def check_locks(selection: Selection) -> None:
    """Raises an error if those who are locked in exceed a budget, or largest shares add up to less
    than 1."""
    ledger = selection.start()
    if ledger.spent > selection.room:
        raise InputError(
            "those who are locked in cost "
            f"{DecimalUnits.of(selection.budget).amount(ledger.spent):g}, more than the budget of "
            f"{selection.budget:g}."
        )
    for number, shared in enumerate(selection.limits.shared):
        _check_shared_limits(
            shared, ledger.people[number], selection.unlimited[number], ledger.paid[number],
            selection.own_rooms[number],
        )  # fmt: skip


def _check_shared_limits(
    shared: SharedLimits, people: list[int], most: list[int], paid: list[int], rooms: list[int]
) -> None:
    """Raises an error if those who are locked in exceed one of the limits that they share, or if
    largest shares add up to less than 1."""
    for name, budget, spent, room in zip(shared.names, shared.budget, paid, rooms, strict=True):
        if spent > room:
            raise InputError(
                f"those who are locked in with '{name}' cost "
                f"{DecimalUnits.of(budget).amount(spent):g}, more than its budget of {budget:g}."
            )
    for name, number, cap in zip(shared.names, people, most, strict=True):
        if number > cap:
            raise InputError(f"{number} people of '{name}' are locked in, more than {cap}.")
    if (shared.label >= 0).all() and shared.names and shared.largest.sum() < 1 - 1e-9:
        raise InputError(
            f"the largest shares of the groups add up to {shared.largest.sum():.0%}, less than "
            "100%: no plan can keep them."
        )
