"""Spending a budget on the best next steps of anybody, when nobody sees everyone at once.

A step is what somebody's next better action gains more, and costs more, than the action before it;
its rate is the one over the other. Steps are taken by falling rate, ties in the order of the table,
while they fit the budget. Pieces of a roster are asked what they would spend on the steps of each
rate, on a grid first and then within the part of it where the budget ends: so the answers stay
small however many people there are, and everyone's choice is the same however they are cut into
pieces.

Rates are rounded to 32 bits, of which the grid shows the upper 16. Costs are rounded to a unit in
which any sum within the budget is exact, so that sums do not depend on their order.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from prefermab.budget import limit_of

FILLING = 1000
"""Steps beyond the first that does not fit which may still use what is left of the budget."""

GRID = 1 << 16


@dataclasses.dataclass(frozen=True)
class Cut:
    """Where the budget ends: steps before this one are taken, and the `filling` ones after it.

    A step is named by its rate, its row and its stage, and comes in that order.
    """

    rate: float = 0.0
    row: int = 0
    stage: int = 0
    filling: tuple[tuple[int, int], ...] = ()
    waiting: tuple[int, ...] = ()
    """Rows of the next ones of whom no step is taken."""


Ask = Callable[[int | None, str, tuple[Any, ...]], Sequence[Any]]
"""Asks one piece, or with None every piece, what a method of its steps says of some arguments."""


@dataclasses.dataclass(frozen=True)
class Steps:
    """The steps of some people, (row, stage): later stages follow earlier ones, rate 0 is none."""

    rates: np.ndarray
    extras: np.ndarray
    """What a step costs, in whole units."""
    actions: np.ndarray
    """What a step leads to."""
    first: int
    """The number that the first of these rows has in the whole roster."""

    @classmethod
    def of(
        cls, gains: np.ndarray, costs: np.ndarray, open: np.ndarray, unit: float, first: int = 0
    ) -> "Steps":
        """The upper edge of gain over cost for everyone who is `open` to be chosen.

        >>> import numpy as np
        >>> from prefermab.programme.planning.increments import Steps
        >>> gains, costs = np.array([[0.0, 3.0, 5.0, 1.0]]), np.array([[0.0, 1.0, 2.0, 3.0]])
        >>> steps = Steps.of(gains, costs, np.array([True]), 1e-9)
        >>> steps.rates.tolist(), steps.actions.tolist()
        ([[3.0, 2.0, 0.0]], [[1, 2, 0]])
        """
        size, n_actions = gains.shape
        rates = np.zeros((size, n_actions - 1), np.float32)
        extras = np.zeros((size, n_actions - 1))
        actions = np.zeros((size, n_actions - 1), np.int8)
        gain, cost, before = 0.0, costs[:, 0].astype(float), np.float32(np.inf)
        for stage in range(n_actions - 1):
            action, rate = _steepest(gains, costs, gain, cost)
            # Rounding must not put a step before the one it builds on.
            rate = np.where(open, np.minimum(rate.astype(np.float32), before), np.float32(0))
            there = rate > 0
            if not there.any():
                break
            paid = np.where(there, _picked(costs, action), cost).astype(float)
            rates[:, stage], actions[:, stage] = rate, np.where(there, action, 0)
            extras[:, stage] = np.round((paid - cost) / unit) * unit
            gain, cost, before = np.where(there, _picked(gains, action), gain), paid, rate
        return cls(rates, extras, actions, first)

    def spending(self) -> tuple[np.ndarray, np.ndarray]:
        """What steps cost together in each cell of the grid that holds any."""
        return _sums(_bits(self.rates[self.rates > 0]) >> 16, self.extras[self.rates > 0])

    def within(self, cell: int) -> tuple[np.ndarray, np.ndarray]:
        """What steps cost together at each rate in a cell, numbered from its lowest."""
        bits = _bits(self.rates)
        here = (bits >> 16 == cell) & (bits > 0)
        return _sums(bits[here] & (GRID - 1), self.extras[here])

    def reach(self, rate: float, room: float) -> tuple[int, int, float]:
        """Row and stage of the first step of one rate for which there is no room, and what is left
        of the room before it."""
        rows, stages = np.nonzero(self.rates == np.float32(rate))
        total = np.cumsum(self.extras[rows, stages])
        place = int(np.argmax(total > room))
        left = room - (float(total[place - 1]) if place else 0.0)
        return self.first + int(rows[place]), int(stages[place]), left

    def after(self, cut: Cut, steps: int, people: int) -> tuple[np.ndarray, ...]:
        """The next steps from a cut on, and the next people of whom none is taken before it:
        rates, rows, stages and costs of both in one, each no longer than asked."""
        rest = (self.rates > 0) & ~self._before(cut)
        begun = rest.copy()
        begun[:, 1:] = False
        rows, stages = np.nonzero(rest)
        chosen = _largest(self.rates[rows, stages], steps)
        rows, stages = rows[chosen], stages[chosen]
        new = np.flatnonzero(begun[:, 0])
        new = new[_largest(self.rates[new, 0], people)]
        return (
            self.rates[rows, stages], self.first + rows, stages, self.extras[rows, stages],
            self.rates[new, 0], self.first + new,
        )  # fmt: skip

    def chosen(self, cut: Cut) -> np.ndarray:
        """Everyone's action, 0 for none."""
        taken = (self.rates > 0) & self._before(cut)
        for row, stage in cut.filling:
            if self.first <= row < self.first + len(taken):
                taken[row - self.first, stage] = True
        number = taken.sum(axis=1)
        last = self.actions[np.arange(len(number)), np.maximum(number - 1, 0)]
        return np.where(number > 0, last, 0).astype(int)

    def _before(self, cut: Cut) -> np.ndarray:
        rate = np.float32(cut.rate)
        found = self.rates > rate
        place = min(max(cut.row - self.first, 0), len(found))
        found[:place] |= self.rates[:place] == rate
        if place < len(found) and self.first + place == cut.row:
            found[place, : cut.stage] |= self.rates[place, : cut.stage] == rate
        return found


def _steepest(
    gains: np.ndarray, costs: np.ndarray, gain: np.ndarray | float, cost: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The action that gains most per cost beyond a gain and a cost, and its rate; 0 for none."""
    action, best = np.zeros(len(gains), np.int8), np.zeros(len(gains))
    for place in range(1, gains.shape[1]):
        more, extra = gains[:, place].astype(float) - gain, costs[:, place] - cost
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            rate = np.where((more > 0) & (extra >= 0), more / extra, 0.0)
        action[rate > best] = place
        best = np.maximum(best, rate)
    return action, best


def _picked(table: np.ndarray, action: np.ndarray) -> np.ndarray:
    return np.take_along_axis(table, action[:, None].astype(int), axis=1)[:, 0]


def unit_of(budget: float) -> float:
    """The unit in which sums of up to a budget, and one more, are exact."""
    return 2.0 ** (math.ceil(math.log2(budget + 2)) - 52)


def cut_of(ask: Ask, budget: float, locked: float, waiting: int) -> Cut:
    """Where a budget ends, of which those who are locked in have had their part.

    >>> import numpy as np
    >>> from prefermab.programme.planning.increments import Steps, alone, cut_of
    >>> gains, costs = np.array([[0.0, 2.0], [0.0, 4.0], [0.0, 3.0]]), np.tile([0.0, 1.0], (3, 1))
    >>> steps = Steps.of(gains, costs, np.ones(3, bool), 1e-9)
    >>> cut = cut_of(alone(steps), 2.0, 0.0, waiting=1)
    >>> steps.chosen(cut).tolist(), cut.waiting
    ([0, 1, 1], (0,))
    """
    room = float(limit_of(budget)) - locked
    cell, room = _over(ask(None, "spending", ()), room)
    if cell is None:
        return Cut()
    answers = ask(None, "within", (cell,))
    place, room = _over(answers, room)
    rate = float(np.array((cell << 16) | (place or 0), np.uint32).view(np.float32))
    spent = np.cumsum([costs[rates == place].sum() for rates, costs in answers])
    piece = int(np.argmax(spent > room))
    room -= float(spent[piece - 1]) if piece else 0.0
    row, stage, room = ask(piece, "reach", (rate, room))[0]
    return _filled(ask, Cut(rate, row, stage), room, waiting)


def alone(steps: Steps) -> Ask:
    """Everyone in one piece."""
    return lambda piece, question, about: [getattr(steps, question)(*about)]  # noqa: ARG005


def _filled(ask: Ask, cut: Cut, room: float, waiting: int) -> Cut:
    """Spends what is left on steps that still fit, and names who would be next."""
    answers = ask(None, "after", (cut, FILLING, FILLING + waiting))
    rates, rows, stages, extras, first_rates, first_rows = (
        np.concatenate(parts) for parts in zip(*answers, strict=True)
    )
    filling, passed = [], set()
    for place in np.lexsort((stages, rows, -rates))[:FILLING]:
        row, stage = int(rows[place]), int(stages[place])
        if row in passed or extras[place] > room:
            passed.add(row)
        else:
            filling.append((row, stage))
            room -= float(extras[place])
    served = {row for row, _ in filling}
    in_turn = first_rows[np.lexsort((first_rows, -first_rates))].tolist()
    queue = [row for row in in_turn if row not in served]
    return dataclasses.replace(cut, filling=tuple(filling), waiting=tuple(queue[:waiting]))


def _over(answers: Sequence[Any], room: float) -> tuple[int | None, float]:
    """The highest cell at which what is spent from above no longer fits, and the room before it."""
    total = np.zeros(GRID)
    for cells, costs in answers:
        total[cells] += costs
    spent = np.cumsum(total[::-1])
    over = spent > room
    if not over.any():
        return None, room
    place = int(np.argmax(over))
    return GRID - 1 - place, room - (float(spent[place - 1]) if place else 0.0)


def _bits(rates: np.ndarray) -> np.ndarray:
    """Numbers in the same order as the rates, none of which is below 0."""
    return rates.view(np.uint32)


def _sums(places: np.ndarray, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    total = np.bincount(places, costs, minlength=1)
    cells = np.flatnonzero(total)
    return cells, total[cells]


def _largest(rates: np.ndarray, most: int) -> np.ndarray:
    """Places of the largest, in order, ties by place."""
    if rates.size > most > 0:
        least = np.partition(rates, rates.size - most)[rates.size - most]
        kept = np.flatnonzero(rates >= least)
    else:
        kept = np.arange(rates.size)
    return kept[np.argsort(-rates[kept], kind="stable")][:most]
