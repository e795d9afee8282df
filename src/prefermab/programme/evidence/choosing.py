"""Actions of a simulated round, chosen within the budget in many trials at once.

With one action that costs the same for everybody, the people with the highest index are acted on,
as many as the budget allows. With several actions, or costs that differ, a model changes to a more
expensive action as the price falls. Each such change is a step, and its price is the highest one at
which the model prefers it. Steps are taken in the order of falling prices; a step that does not fit
the remaining budget is skipped.
"""

import dataclasses

import numpy as np

from prefermab.models.model import Model
from prefermab.programme.planning.scoring import gains_at

PRICES_TRIED = 32
"""Number of prices at which the model's actions are computed; the prices of steps are interpolated
between them."""

NOT_WORTH_IT = -1e12
"""Value of an action that must not be taken."""


@dataclasses.dataclass(frozen=True, eq=False)
class Quotas:
    """Rules about several people together: shares of groups, or budgets of workers. `label`
    (person,) is the number of each person's group or worker; people without one have the last
    number. The other arrays are by number: the least and the largest share of the actions, and the
    number of actions of a worker in a round, per person of that worker."""

    label: np.ndarray
    least: np.ndarray
    largest: np.ndarray
    per_person: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class ActionSteps:
    """The model's actions as the price falls. Arrays are (person, state, step): the `price` of a
    step (0 where there is no such step), the `action` after it, and its additional cost (`extra`).
    `costs` is (person, action)."""

    price: np.ndarray
    action: np.ndarray
    extra: np.ndarray
    costs: np.ndarray

    @property
    def cheapest(self) -> float:
        """The mean cost of everyone's cheapest action."""
        return float(self.costs[:, 1:].min(axis=1).mean())

    @classmethod
    def from_model(
        cls, model: Model, features: np.ndarray, costs: np.ndarray, may: np.ndarray, n_states: int
    ) -> "ActionSteps":
        """The steps in each state of the people who may be acted on (`may`), from the actions that
        the model prefers at falling prices."""
        size, n_actions = costs.shape
        rows, shape = np.arange(size * n_states), (size, n_states, n_actions - 1)
        states = np.tile(np.arange(n_states, dtype=np.int32), size)
        seen, paid, open = (np.repeat(x, n_states, axis=0) for x in (features, costs, may))
        price, extra = np.zeros((2, len(rows), n_actions - 1))
        action = np.zeros((len(rows), n_actions - 1), np.int8)
        now, step, before = np.zeros(len(rows), int), np.zeros(len(rows), int), np.zeros_like(paid)
        # An action without a gain at price 0 is never taken.
        useful = gains_at(model, states, seen, 0.0) > float(model.policy.least_gain)

        def worth(price: float) -> np.ndarray:
            net = gains_at(model, states, seen, price).astype(float) - price * paid
            net = np.where(useful, net, NOT_WORTH_IT)
            net[:, 0] = 0.0
            return net

        highest = float(model.policy.price_ceiling)
        while highest > 1e-6 and not (worth(highest / 2)[:, 1:] > 0).any():
            highest /= 2
        for at in np.linspace(highest, 0, PRICES_TRIED):
            net = worth(at)
            costlier = np.where(paid > paid[rows, now][:, None], net, NOT_WORTH_IT)
            best = costlier.argmax(axis=1)
            lead, lag = (x[rows, best] - x[rows, now] for x in (net, before))
            up = np.flatnonzero(open & (costlier[rows, best] > NOT_WORTH_IT) & (lead > 0))
            # Interpolate between the last price, at which the step was not taken, and this one.
            part = lead[up] / (lead[up] + np.maximum(-lag[up], 0))
            found = at + part * (highest / (PRICES_TRIED - 1) if at < highest else 0.0)
            price[up, step[up]] = np.maximum(found, 1e-9)
            action[up, step[up]] = best[up]
            extra[up, step[up]] = paid[up, best[up]] - paid[up, now[up]]
            now[up], before = best[up], net
            step[up] += 1
        price, action, extra = (x.reshape(shape) for x in (price, action, extra))
        return cls(price, action, extra, costs)

    def choose(
        self,
        who: np.ndarray,
        state: np.ndarray,
        may: np.ndarray,
        by_model: np.ndarray,
        unit: np.ndarray,
        budget: np.ndarray,
        control: str,
        rng: np.random.Generator,
    ) -> np.ndarray:
        """(person,): the action of each person in a round, within the budget of their unit: the
        action of the model, or a random action in random order (control `random`)."""
        price = np.where((by_model & may)[:, None], self.price[who, state], 0.0)
        action, extra = self.action[who, state].copy(), self.extra[who, state].copy()
        if control == "random":
            lot = np.flatnonzero(~by_model & may)
            drawn = rng.integers(1, self.costs.shape[1], len(lot))
            price[lot, 0] = 1 - rng.random(len(lot))
            action[lot, 0], extra[lot, 0] = drawn, self.costs[who[lot], drawn]
        taken = take_steps(price, extra, unit, budget, rng.random(len(who)))
        last = action[np.arange(len(who)), np.maximum(taken - 1, 0)]
        return np.where(taken > 0, last, 0).astype(int)


def take_steps(
    price: np.ndarray, extra: np.ndarray, unit: np.ndarray, budget: np.ndarray, ties: np.ndarray
) -> np.ndarray:
    """(person,): how many steps of each person are taken: in the order of falling prices, those
    that fit the remaining budget of the person's unit. `ties` order steps of equal price.

    >>> import numpy as np
    >>> from prefermab.programme.evidence.choosing import take_steps
    >>> price, cost = np.array([[3.0, 1.0], [2.0, 0.0], [0.5, 0.0]]), np.array([[1.0, 1.0]] * 3)
    >>> take_steps(price, cost, np.zeros(3, int), np.array([3.0]), np.zeros(3)).tolist()
    [2, 1, 0]
    """
    person, step = np.nonzero(price > 0)
    order = np.lexsort((step, ties[person], -price[person, step], unit[person]))
    person, step = person[order], step[order]
    here, cost = unit[person], extra[person, step]
    left, taken = budget.astype(float) * (1 + 1e-9), np.zeros(price.shape, bool)
    while len(person):
        # Cumulative costs within each unit. Costs are not negative, so that all steps after the
        # first one that does not fit do not fit either. The first one is dropped, the others are
        # tried again with what is left.
        total, first = np.cumsum(cost), np.flatnonzero(np.diff(here, prepend=-1))
        sizes = np.diff(first, append=len(here))
        fits = total - np.repeat(total[first] - cost[first], sizes) <= left[here]
        taken[person[fits], step[fits]] = True
        left -= np.bincount(here[fits], cost[fits], len(left))
        open = ~fits & (cost <= left[here])
        reached = taken.copy()
        reached[person[open], step[open]] = True
        # A step needs all earlier steps of the person.
        open &= np.logical_and.accumulate(reached, axis=1)[person, step]
        person, step, here, cost = (x[open] for x in (person, step, here, cost))
    return taken.sum(axis=1)


def choose_people(
    key: np.ndarray,
    unit: np.ndarray,
    budget: np.ndarray,
    ties: np.ndarray,
    quotas: Quotas | None = None,
    label: np.ndarray | None = None,
) -> np.ndarray:
    """(person,): whether they are acted on: in each unit the people with the highest key, as many
    as its budget, and nobody whose key is -inf. `ties` order people of equal key. Quotas are kept
    as in a plan: shares are of the people acted on, whose number is reduced until all shares hold.

    >>> import numpy as np
    >>> from prefermab.programme.evidence.choosing import choose_people
    >>> key, both = np.array([3.0, 1.0, 2.0, -np.inf]), np.array([0, 0, 0, 1])
    >>> choose_people(key, both, np.array([2, 1]), np.zeros(4)).tolist()
    [True, False, True, False]
    """
    able = key > -np.inf
    if quotas is None or label is None:
        return (_ranks(unit, -key, ties) < budget[unit]) & able
    units, labels = len(budget), len(quotas.least)
    cell = unit * labels + label
    counted = lambda x: np.bincount(x, minlength=units * labels).reshape(units, labels)  # noqa: E731
    there = counted(cell[able])
    with np.errstate(invalid="ignore"):
        room = np.nan_to_num(np.round(quotas.per_person * counted(cell)), nan=np.inf, posinf=np.inf)
    target = np.minimum(budget, np.minimum(there, room).sum(axis=1)).astype(int)
    while True:
        most = np.minimum(np.floor(quotas.largest * target[:, None] + 1e-9), room)
        need = np.ceil(quotas.least * target[:, None] - 1e-9)
        enough = np.where(quotas.least > 0, there / quotas.least.clip(1e-9), np.inf)
        reached = np.floor(enough + 1e-9).min(axis=1)
        fewer = np.minimum(np.minimum(there, most).sum(axis=1), reached)
        if (fewer >= target).all():
            break
        target = np.minimum(target, fewer).astype(int)
    place = _ranks(cell, -key, ties)
    allowed = able & (place < most.ravel()[cell])
    first = place < need.ravel()[cell]
    order = np.where(allowed, -key, np.inf)
    return (_ranks(unit, ~(allowed & first), order, ties) < target[unit]) & allowed


def _ranks(unit: np.ndarray, *keys: np.ndarray) -> np.ndarray:
    """(person,): the rank within the unit, from 0, by the keys; the first key counts most."""
    order = np.lexsort((*keys[::-1], unit))
    sizes = np.bincount(unit)
    rank = np.empty(len(unit), int)
    rank[order] = np.arange(len(unit))
    return rank - (np.cumsum(sizes) - sizes)[unit]
