"""Spends a budget on people who are divided into chunks, without having all of them in memory.

An increment is the step from one action of a person to the next better one. Its rate is what it
gains divided by what it costs, both compared with the action before. Increments are taken by
falling rate, ties in the order of the table, while they fit the budget. Every chunk reports what it
would spend on increments of each rate: first by the cells of a grid of rates, then by the rates
within the cell where the budget ends. So the answers stay small however many people there are, and
everyone's action is the same however people are divided into chunks.

Rates are rounded to 32 bits, of which the upper 16 name the grid cell. Costs are whole units
(`prefermab.arms.amounts.DecimalUnits`), so that sums are exact.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from prefermab.arms.amounts import UNAFFORDABLE, DecimalUnits

FILLING = 1000
"""How many increments after the first that does not fit are tried, to spend what is left."""

GRID_CELLS = 1 << 16
"""The number of cells of the grid, and of rates in a cell: each takes half of a rate's 32 bits."""


@dataclasses.dataclass(frozen=True)
class Cut:
    """The increment where the budget ends: all before it are taken, and the `filling` ones after.

    Increments are identified by rate, row and stage, and ordered by falling rate, row and stage.
    """

    rate: float = 0.0
    row: int = 0
    stage: int = 0
    filling: tuple[tuple[int, int], ...] = ()
    waiting: tuple[int, ...] = ()
    """Rows of people who get nothing and would be next."""


Ask = Callable[..., Sequence[Any]]
"""`ask(question, *about, chunk=None)` calls a method of `Increments` on every chunk, or on one, and
returns the answers in the order of the chunks."""


@dataclasses.dataclass(frozen=True)
class Increments:
    """The increments of some people, as arrays (row, stage): each stage starts from the action of
    the stage before. Rate 0 means that there is no increment."""

    rates: np.ndarray
    extras: np.ndarray
    """The additional cost of an increment, in units."""
    actions: np.ndarray
    """The action that an increment leads to."""
    first: int
    """The number of the first of these rows among all people."""

    @classmethod
    def of(
        cls,
        gains: np.ndarray,
        costs: np.ndarray,
        open: np.ndarray,
        units: DecimalUnits,
        first: int = 0,
    ) -> "Increments":
        """The increments of those who are `open` to be chosen: the concave hull of gain over cost.

        >>> import numpy as np
        >>> from prefermab.arms.amounts import DecimalUnits
        >>> from prefermab.programme.planning.increments import Increments
        >>> gains, costs = np.array([[0.0, 3.0, 5.0, 1.0]]), np.array([[0.0, 1.0, 2.0, 3.0]])
        >>> found = Increments.of(gains, costs, np.array([True]), DecimalUnits(0))
        >>> found.rates.tolist(), found.actions.tolist(), found.extras.tolist()
        ([[3.0, 2.0, 0.0]], [[1, 2, 0]], [[1, 1, 0]])
        """
        size, n_actions = gains.shape
        rates = np.zeros((size, n_actions - 1), np.float32)
        extras = np.zeros((size, n_actions - 1), np.int64)
        actions = np.zeros((size, n_actions - 1), np.int8)
        exact = units.of_costs(costs)
        gain, before = np.zeros(size), np.full(size, np.inf, np.float32)
        now = np.zeros(size, np.int8)
        for stage in range(n_actions - 1):
            action, rate = _steepest(gains, costs, exact, gain, now)
            # Rounding must not put an increment before the one it builds on.
            rate = np.where(open, np.minimum(rate.astype(np.float32), before), np.float32(0))
            there = rate > 0
            if not there.any():
                break
            action = np.where(there, action, now)
            rates[:, stage], actions[:, stage] = rate, np.where(there, action, 0)
            extras[:, stage] = _value_at(exact, action) - _value_at(exact, now)
            gain, now, before = np.where(there, _value_at(gains, action), gain), action, rate
        return cls(rates, extras, actions, first)

    def spending(self) -> tuple[np.ndarray, np.ndarray]:
        """The grid cells that hold increments, and the total cost of each cell's increments."""
        return _sums(_bits(self.rates[self.rates > 0]) >> 16, self.extras[self.rates > 0])

    def within(self, cell: int) -> tuple[np.ndarray, np.ndarray]:
        """The rates in a cell, numbered from its lowest, and the total cost of each rate."""
        bits = _bits(self.rates)
        here = (bits >> 16 == cell) & (bits > 0)
        return _sums(bits[here] & (GRID_CELLS - 1), self.extras[here])

    def first_not_fitting(self, rate: float, room: int) -> tuple[int, int, int]:
        """The row and stage of the first increment of this rate that does not fit, and the room
        that is left before it."""
        rows, stages = np.nonzero(self.rates == np.float32(rate))
        total = np.cumsum(self.extras[rows, stages])
        place = int(np.argmax(total > room))
        left = room - (int(total[place - 1]) if place else 0)
        return self.first + int(rows[place]), int(stages[place]), left

    def after(self, cut: Cut, most: int, people: int) -> tuple[np.ndarray, ...]:
        """The next increments from a cut on, at most `most`: rates, rows, stages and costs. Then
        the next people without an increment before it, at most `people`: rates and rows."""
        rest = (self.rates > 0) & ~self._before(cut)
        rows, stages = np.nonzero(rest)
        chosen = _largest(self.rates[rows, stages], most)
        rows, stages = rows[chosen], stages[chosen]
        new = np.flatnonzero(rest[:, 0])
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


def find_cut(ask: Ask, room: int, waiting: int) -> Cut:
    """Finds where a budget of `room` units ends.

    >>> import numpy as np
    >>> from prefermab.arms.amounts import DecimalUnits
    >>> from prefermab.programme.planning.increments import Increments, ask_one, find_cut
    >>> gains, costs = np.array([[0.0, 2.0], [0.0, 4.0], [0.0, 3.0]]), np.tile([0.0, 1.0], (3, 1))
    >>> found = Increments.of(gains, costs, np.ones(3, bool), DecimalUnits(0))
    >>> cut = find_cut(ask_one(found), 2, waiting=1)
    >>> found.chosen(cut).tolist(), cut.waiting
    ([0, 1, 1], (0,))
    """
    cell, room = _first_over(ask(Increments.spending), room)
    if cell is None:
        return Cut()
    answers = ask(Increments.within, cell)
    place, room = _first_over(answers, room)
    rate = float(np.array((cell << 16) | (place or 0), np.uint32).view(np.float32))
    spent = np.cumsum([int(units[rates == place].sum()) for rates, units in answers])
    chunk = int(np.argmax(spent > room))
    room -= int(spent[chunk - 1]) if chunk else 0
    row, stage, room = ask(Increments.first_not_fitting, rate, room, chunk=chunk)[0]
    return _filled(ask, Cut(rate, row, stage), room, waiting)


def ask_one(increments: Increments) -> Ask:
    """Asks one chunk that has everyone."""
    return lambda question, *about, chunk=None: [question(increments, *about)]  # noqa: ARG005


def _filled(ask: Ask, cut: Cut, room: int, waiting: int) -> Cut:
    """Spends what is left on increments that still fit, and lists who would be next."""
    answers = ask(Increments.after, cut, FILLING, FILLING + waiting)
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
            room -= int(extras[place])
    served = {row for row, _ in filling}
    in_turn = first_rows[np.lexsort((first_rows, -first_rates))].tolist()
    queue = [row for row in in_turn if row not in served]
    return dataclasses.replace(cut, filling=tuple(filling), waiting=tuple(queue[:waiting]))


def _first_over(answers: Sequence[Any], room: int) -> tuple[int | None, int]:
    """The place at which spending no longer fits, counted from the highest place down, and the room
    that is left before it; None if everything fits."""
    total = np.zeros(GRID_CELLS, np.int64)
    for places, units in answers:
        total[places] = np.minimum(total[places] + units, UNAFFORDABLE)
    # Sums can overflow only after the first place that exceeds the room: a room is below half of
    # what a single total can be, and four of these are below 2**63.
    spent = np.cumsum(total[::-1])
    over = spent > room
    if not over.any():
        return None, room
    place = int(np.argmax(over))
    return GRID_CELLS - 1 - place, room - (int(spent[place - 1]) if place else 0)


def _steepest(
    gains: np.ndarray, costs: np.ndarray, exact: np.ndarray, gain: np.ndarray, now: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The action with the highest rate compared with the present one, and its rate; 0 if none."""
    action, best = np.zeros(len(gains), np.int8), np.zeros(len(gains))
    cost, units = _value_at(costs, now).astype(float), _value_at(exact, now)
    for place in range(1, gains.shape[1]):
        more, extra = gains[:, place].astype(float) - gain, costs[:, place] - cost
        better = (more > 0) & (exact[:, place] >= units)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore", under="ignore"):
            rate = np.where(better, more / np.maximum(extra, 0.0), 0.0)
        action[rate > best] = place
        best = np.maximum(best, rate)
    return action, best


def _value_at(table: np.ndarray, action: np.ndarray) -> np.ndarray:
    return np.take_along_axis(table, action[:, None].astype(int), axis=1)[:, 0]


def _bits(rates: np.ndarray) -> np.ndarray:
    """The rates as whole numbers in the same order; no rate is below 0."""
    return rates.view(np.uint32)


def _sums(places: np.ndarray, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct places, and the sum of the units at each, at most `UNAFFORDABLE`."""
    high, low = np.zeros((2, GRID_CELLS), np.int64)
    np.add.at(high, places, units >> 30)
    np.add.at(low, places, units & (2**30 - 1))
    high += low >> 30
    total = (np.minimum(high, UNAFFORDABLE >> 30) << 30) + (low & (2**30 - 1))
    found = np.flatnonzero(total)
    return found, np.minimum(total[found], UNAFFORDABLE)


def _largest(rates: np.ndarray, most: int) -> np.ndarray:
    """The places of the largest rates in falling order, ties by place."""
    if rates.size > most > 0:
        least = np.partition(rates, rates.size - most)[rates.size - most]
        kept = np.flatnonzero(rates >= least)
    else:
        kept = np.arange(rates.size)
    return kept[np.argsort(-rates[kept], kind="stable")][:most]
