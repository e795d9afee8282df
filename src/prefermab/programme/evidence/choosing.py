"""Who gets what in a simulated round, in many trials at once.

With one action that costs the same for everybody, those with the highest index are acted on, as
many as the budget says. With several actions, or costs that differ, the model would do more for
somebody the lower the price: a few steps, each with the highest price at which it is taken. Steps
are taken by falling price while they fit the budget; one that does not fit is passed over.
"""

import dataclasses

import numpy as np

from prefermab.model import Model
from prefermab.programme.planning.scoring import gains_at

PRICES_TRIED = 32
"""Prices at which the model is asked what it would do; between them steps are interpolated."""

NOT_WORTH_IT = -1e12
"""What an action is worth that must not be taken."""


@dataclasses.dataclass(frozen=True, eq=False)
class Quotas:
    """Rules that tie people to each other: everyone's group or worker (person,), the last number
    for those without; for each number the least and largest share of those acted on, and what a
    worker can do for each of their people."""

    label: np.ndarray
    least: np.ndarray
    largest: np.ndarray
    per_person: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Offers:
    """What a model would do for people as the price falls: `price` (person, state, step), 0 where
    there is no such step, the `action` that it leads to and what it costs more than the step before
    (`extra`); and `costs` (person, action)."""

    price: np.ndarray
    action: np.ndarray
    extra: np.ndarray
    costs: np.ndarray

    @property
    def cheapest(self) -> float:
        """The mean cost of everyone's cheapest action."""
        return float(self.costs[:, 1:].min(axis=1).mean())

    @classmethod
    def of(
        cls, model: Model, features: np.ndarray, costs: np.ndarray, may: np.ndarray, n_states: int
    ) -> "Offers":
        """Asks the model what it prefers in each state at falling prices."""
        size, n_actions = costs.shape
        rows, shape = np.arange(size * n_states), (size, n_states, n_actions - 1)
        states = np.tile(np.arange(n_states, dtype=np.int32), size)
        seen, paid, open = (np.repeat(x, n_states, axis=0) for x in (features, costs, may))
        price, extra = np.zeros((2, len(rows), n_actions - 1))
        action = np.zeros((len(rows), n_actions - 1), np.int8)
        now, step, before = np.zeros(len(rows), int), np.zeros(len(rows), int), np.zeros_like(paid)
        # What is worth nothing even if it is free is never done.
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
            dearer = np.where(paid > paid[rows, now][:, None], net, NOT_WORTH_IT)
            best = dearer.argmax(axis=1)
            lead, lag = (x[rows, best] - x[rows, now] for x in (net, before))
            up = np.flatnonzero(open & (dearer[rows, best] > NOT_WORTH_IT) & (lead > 0))
            # Between the last price, at which the step was not yet taken, and this one.
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
        """(person,): everyone's action in a round: the model's, or a random one in random order
        (control `random`), within the budget of their unit."""
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
    """(person,): how many steps of price and cost (person, step) are taken, by falling price while
    they fit the budget of the person's unit; `ties` decide between equal prices.

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
        # Sums within units, which stand one after the other; costs are not negative, so that from
        # the first that does not fit none does. It costs more than is left, and is dropped.
        total, first = np.cumsum(cost), np.flatnonzero(np.diff(here, prepend=-1))
        sizes = np.diff(first, append=len(here))
        fits = total - np.repeat(total[first] - cost[first], sizes) <= left[here]
        taken[person[fits], step[fits]] = True
        left -= np.bincount(here[fits], cost[fits], len(left))
        open = ~fits & (cost <= left[here])
        reached = taken.copy()
        reached[person[open], step[open]] = True
        # A step builds on the one before it.
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
    """(person,): whether they are acted on: in each unit as many as its budget, those with the
    highest key, and nobody whose key is -inf; `ties` decide between equal keys. With quotas, as a
    plan keeps them: shares are of those acted on, who become fewer until all shares hold.

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
    """Everyone's place within their unit, from 0 on, by the keys, the first first."""
    order = np.lexsort((*keys[::-1], unit))
    sizes = np.bincount(unit)
    rank = np.empty(len(unit), int)
    rank[order] = np.arange(len(unit))
    return rank - (np.cumsum(sizes) - sizes)[unit]
