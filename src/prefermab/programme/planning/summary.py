"""The summary of a plan, in numbers and in words, and an upper bound on what any plan could gain
under the same budget and rules.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import cast

import numpy as np
from scipy.optimize import OptimizeResult, linprog, minimize_scalar
from scipy.sparse import csr_array, vstack

from prefermab.errors import list_names
from prefermab.models.familiarity import unlike_sentence
from prefermab.models.model import Model
from prefermab.programme.planning.rules.limits import Limits
from prefermab.programme.tables.table import format_number, format_people

LARGEST_LINEAR_PROGRAMME = 20_000
"""The most pairs of person and action for which a linear programme is solved."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """A plan in numbers. Gains are in expected reward; None for recipes that do not predict it."""

    people: int
    chosen: int
    by_action: Mapping[str, int]
    budget: float
    spent: float
    left: float
    price: float
    gain: float | None
    bound: float | None
    """No plan that keeps the budget and the rules gains more."""
    one_more: float | None
    """What one more unit of budget would gain."""
    opted_out: int
    excluded: int
    resting: int
    locked: int
    incomplete: int
    """People with an unknown feature."""
    unknown: Mapping[str, int]
    """For each column, how many cells are empty or hold a value that the model does not know."""
    rules: Mapping[str, float | None]
    """The cost of each rule: how much more would be gained without it, with all others kept."""
    outside_training: int = 0
    """People unlike those that the model was trained on, who are judged cautiously."""
    outside: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """For each column, how many people lie outside of the training's range."""
    states_read: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The names of states that the table gives as numbers."""
    usual_share: float | None = None
    """Budget per person in training, if the model depends on it and the plan's is far from it."""
    explore: float = 0.0
    """Share of the actions that was dealt by lot; `gain` is then the mean over all lots."""
    seed: int | None = None
    """Random seed of the lots."""
    explore_cost: float | None = None
    """Expected reward that the lots cost on average."""
    could_change: int = 0
    """People whose action the lots could change."""
    kept_out: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """People whom further rules keep out, by the reason."""
    rounds_left: int | None = None
    """Rounds that the programme has left, this one included; None if it goes on without an end."""

    def __str__(self) -> str:
        bought = (
            ", ".join(f"{number:,} {name}" for name, number in self.by_action.items()) or "nobody"
        )
        lines = [
            f"{self.chosen:,} of {format_people(self.people)} ({bought}); "
            f"{format_number(self.spent)} spent, {format_number(self.left)} left of "
            f"{format_number(self.budget)}; price {self.price:.3g}"
        ]
        if self.gain is not None and self.one_more is not None:
            lines.append(
                f"expected gain {format_number(self.gain)}, at best {format_number(self.bound)} "
                f"under the same rules; one more unit of budget would gain {self.one_more:.3g}"
            )
        if self.explore:
            lost = "?" if self.explore_cost is None else format_number(self.explore_cost)
            lines.append(
                f"{self.explore:.0%} by lot among {format_people(self.could_change)}, seed "
                f"{self.seed}: this gives up {lost} of expected gain on average"
            )
        if self.rounds_left is not None:
            lines.append(self._ending())
        counts = {
            "opted out": self.opted_out,
            "excluded": self.excluded,
            "in cooldown": self.resting,
            "locked in": self.locked,
            "with unknown features": self.incomplete,
            **self.kept_out,
        }
        lines.append(", ".join(f"{number:,} {what}" for what, number in counts.items()))
        nowhere = [name for name, number in self.unknown.items() if number == self.people]
        some = {name: number for name, number in self.unknown.items() if number < self.people}
        if some:
            cells = ", ".join(f"{name} of {number:,}" for name, number in some.items())
            lines.append(f"unknown: {cells}")
        if nowhere:
            lines.append(
                f"the model uses {' and '.join(nowhere)}, which is missing for everyone here: "
                "check the names of the columns"
            )
        lines += self._doubts()
        for rule, cost in self.rules.items():
            lines.append(f"the rule {rule} costs {'?' if cost is None else format_number(cost)}")
        return "\n".join(lines)

    def _ending(self) -> str:
        """What the end of the programme means for this round."""
        text = "this is the last round"
        if self.rounds_left != 1:
            text = f"{self.rounds_left} rounds left, this one included"
        if self.gain is not None and not self.chosen and self.left > 0:
            text += ": no action that may be taken would still pay before the end"
        return text

    def _doubts(self) -> list[str]:
        """Lines about what should be checked before the list is used."""
        lines = []
        if self.outside_training:
            unlike = unlike_sentence(dict(self.outside), self.outside_training)
            lines.append(f"{unlike}: they are judged cautiously, by what is inside its range")
        if self.usual_share is not None:
            lines.append(
                f"the model was trained for a budget of {self.usual_share:.3g} per person, and "
                f"here it is {self.budget / self.people:.3g}: its price may be far off"
            )
        if self.states_read:
            meant = list_names(f"{number} = {name}" for number, name in self.states_read.items())
            lines.append(f"states given as numbers are read as {meant}")
        return lines

    def as_json(self) -> str:
        """The numbers as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2)


def unusual_share(model: Model, budget: float, people: int) -> float | None:
    """The training's budget per person if the model's decisions depend on it, and this budget per
    person is less than half or more than double of it; else None.

    >>> import prefermab as pm
    >>> from prefermab.programme.planning.summary import unusual_share
    >>> unusual_share(pm.load("armman-paper"), 10, 1000), unusual_share(pm.load("armman"), 10, 1000)
    (0.28, None)
    """
    usual = model.budget / model.n_arms
    # Other recipes see all prices in training, and so all budgets.
    if model.policy.gains_are_rewards or usual / 2 <= budget / people <= usual * 2:
        return None
    return usual


def gain_bound(
    gains: np.ndarray,
    costs: np.ndarray,
    budget: float,
    limits: Limits,
    locked: np.ndarray,
    price: float,
) -> float:
    """An upper bound on the gain of any plan that keeps the budget and the rules.

    The bound allows actions in part. Under the budget alone it is the Lagrangian bound at the price
    that makes it lowest. With limits that people share it is a linear programme; for a large
    table these rules are left out.
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
    shared = any(one.shares or one.binds for one in limits.shared)
    if not shared or arms.size > LARGEST_LINEAR_PROGRAMME:
        return fixed + lagrangian_gain_bound(
            gains[open], costs[open], max(budget - paid, 0.0), price
        )
    rows, most = linear_programme(arms, actions, costs, budget, limits, locked)
    found = linprog(-gains[arms, actions], A_ub=rows, b_ub=most, bounds=(0, 1), method="highs")
    return fixed - float(found.fun) if found.success else float("nan")


def lagrangian_gain_bound(gains: np.ndarray, costs: np.ndarray, room: float, price: float) -> float:
    """The lowest Lagrangian bound over all prices. The bound at a price adds up everyone's largest
    gain less its cost at this price, and the price of the whole budget. `price` is a first guess.

    >>> import numpy as np
    >>> from prefermab.programme.planning.summary import lagrangian_gain_bound
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
    """The rows of the linear programme and their limits: one action each, budgets and shares."""
    pairs, forced = np.arange(arms.size), np.flatnonzero(locked)
    cost, paid = costs[arms, actions], costs[forced, locked[forced]]
    one_each = csr_array((np.ones(arms.size), (arms, pairs)), shape=(len(costs), arms.size))
    rows, most = [cost], [budget - paid.sum()]
    of_labels = [(one, place) for one in limits.shared for place in range(len(one.names))]
    for shared, place in of_labels:
        member, here = shared.label[arms] == place, shared.label[forced] == place
        if np.isfinite(shared.budget[place]):
            rows.append(np.where(member, cost, 0.0))
            most.append(shared.budget[place] - paid[here].sum())
        if np.isfinite(shared.people[place]):
            rows.append(member.astype(float))
            most.append(shared.people[place] - here.sum())
    for shared, place in of_labels:
        member = (shared.label[arms] == place).astype(float)
        here, all_locked = (shared.label[forced] == place).sum(), forced.size
        least, largest = shared.least[place], shared.largest[place]
        if least > 0:
            rows.append(least - member)
            most.append(here - least * all_locked)
        if largest < 1:
            rows.append(member - largest)
            most.append(largest * all_locked - here)
    together = vstack([one_each, csr_array(np.stack(rows))], format="csr")
    return csr_array(together), np.concatenate([np.ones(len(costs)), most])
