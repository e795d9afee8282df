"""Exact amounts: costs and budgets as whole numbers of a decimal unit.

Seven times 0.1 fits a budget of 0.7, and 16,777,216 plus 1 does not fit 16,777,216. Binary
fractions get the first wrong, single precision the second. So a whole amount is read as it is and
others as the shortest decimal number that gives them, in units of a power of ten: the smallest in
which 18 digits hold the budget. A finer cost is rounded up, so that nothing is overspent.

Plans count in 64-bit integers (`DecimalUnits`). JAX has 32 bits by default, so in compiled code a
number has two parts of nine digits each (`Digits`).
"""

import dataclasses
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

LIMIT = 10**18
"""Every budget has fewer units than this."""

UNAFFORDABLE = 2 * LIMIT
"""Stands for a cost that is above every budget."""

BASE = 10**9
"""The high part of `Digits` counts this many units."""

BLOCK, MOST_AT_ONCE = 64, 20_000
"""Longest vectors that `cumsum` and `sum` add in one step: 31 bits hold 20,000 times 10**5."""


@dataclasses.dataclass(frozen=True)
class DecimalUnits:
    """Whole units of 10 to the power of minus `decimals`.

    >>> from prefermab.arms.amounts import DecimalUnits
    >>> units = DecimalUnits.of(700.0)
    >>> units.decimals, units.of_costs([0.1, 250]), units.of_budget(700.0)
    (15, array([   100000000000000, 250000000000000000]), 700000000000000000)
    """

    decimals: int

    @classmethod
    def of(cls, budget: float) -> "DecimalUnits":
        """The smallest unit in which 18 digits hold the budget."""
        return cls(min(17 - math.floor(math.log10(budget)), 300) if budget > 0 else 0)

    def of_costs(self, costs: Any) -> np.ndarray:
        """Costs in units, rounded up; `UNAFFORDABLE` where a cost has `LIMIT` units or more."""
        given = np.asarray(costs, float)
        if given.ndim == 2 and len(given) > 1 and (given == given[:1]).all():
            return np.broadcast_to(self.of_costs(given[:1]), given.shape)
        amounts, where = np.unique(given, return_inverse=True)
        digits, places = read_decimals(amounts)
        shift = self.decimals - places
        fine, coarse = 10 ** np.clip(shift, 0, 18), 10 ** np.clip(-shift, 0, 18)
        rounded = np.where(shift < 0, -(-digits // coarse), digits * fine)
        units = np.where(amounts * 10.0**self.decimals < LIMIT, rounded, UNAFFORDABLE)
        return np.where(digits == 0, 0, units)[where].reshape(given.shape)

    def of_budget(self, budget: float) -> int:
        """A budget in units, rounded down."""
        return math.floor(Fraction(_decimal(budget)) * Fraction(10) ** self.decimals)

    def amount(self, units: int) -> float:
        """This number of units as the nearest floating-point number."""
        return float(Decimal(int(units)).scaleb(-self.decimals))


def add_up(units: np.ndarray) -> int:
    """The exact sum of some units, even if it is above 64 bits.

    >>> import numpy as np
    >>> from prefermab.arms.amounts import add_up
    >>> add_up(np.full(10, 10**18))
    10000000000000000000
    """
    return (int((units >> 30).sum()) << 30) + int((units & (2**30 - 1)).sum())


def fits(costs: Any, budget: float) -> bool:
    """Whether some costs together are within a budget.

    >>> from prefermab.arms.amounts import fits
    >>> fits([0.1] * 7, 0.7), fits([16_777_216.0, 1.0], 16_777_216.0)
    (True, False)
    """
    return _total(costs) <= Fraction(_decimal(budget))


def total(costs: Any) -> float:
    """The sum of some amounts, exact before it becomes a floating-point number.

    >>> from prefermab.arms.amounts import total
    >>> total([0.1] * 3), 0.1 + 0.1 + 0.1
    (0.3, 0.30000000000000004)
    """
    return float(_total(costs))


def remaining(budget: float, costs: Any) -> float:
    """What some costs leave of a budget.

    >>> from prefermab.arms.amounts import remaining
    >>> remaining(1.0, [0.1] * 7), 1.0 - 0.7
    (0.3, 0.30000000000000004)
    """
    return float(Fraction(_decimal(budget)) - _total(costs))


def _total(costs: Any) -> Fraction:
    amounts, times = np.unique(np.asarray(costs, float), return_counts=True)
    pairs = zip(amounts.tolist(), times.tolist(), strict=True)
    return sum((Fraction(_decimal(amount)) * number for amount, number in pairs), Fraction(0))


def read_decimals(amounts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Digits and decimal places of amounts: digits / 10**places is the shortest decimal number
    that gives the amount. An amount that fits single precision may be read in single precision.

    >>> import numpy as np
    >>> from prefermab.arms.amounts import read_decimals
    >>> digits, places = read_decimals(np.array([7.0, 0.25, np.float32(0.1)]))
    >>> digits.tolist(), places.tolist()
    ([7, 25, 1], [0, 2, 1])
    """
    digits, places = np.zeros(len(amounts), np.int64), np.zeros(len(amounts), np.int64)
    single = amounts.astype(np.float32)
    open = np.ones(len(amounts), bool)
    # Up to 15 digits are tried in double precision, then up to 9 in single precision. The smallest
    # number of places that gives the amount back is right.
    for largest, kind in ((1e15, np.float64), (1e9, np.float32)):
        given = amounts if kind is np.float64 else single
        open &= given == amounts
        for place in range(16):
            found = np.rint(amounts * 10.0**place)
            right = open & (found < largest) & ((found / 10.0**place).astype(kind) == given)
            digits[right], places[right] = found[right], place
            open &= ~right
        open = (digits == 0) & (amounts > 0)
    for row in np.flatnonzero(open):
        _, figures, exponent = _decimal(amounts[row]).as_tuple()
        number, more = int("".join(map(str, figures))), max(len(figures) - 18, 0)
        digits[row], places[row] = -(-number // 10**more), -int(exponent) - more  # rounded up
    return digits, places


def _decimal(amount: float) -> Decimal:
    """The shortest decimal number that gives an amount; a whole one of many digits as it is."""
    double, single = Decimal(repr(float(amount))), np.float32(amount)
    many = len(double.as_tuple().digits) > 15
    if many and float(amount).is_integer():
        return Decimal(float(amount))
    return Decimal(str(single)) if many and float(single) == float(amount) else double


def as_single(budget: float) -> Float[Array, ""]:
    """A budget in single precision, which is never read as more than the budget.

    >>> from prefermab.arms.amounts import as_single
    >>> float(as_single(16_777_219.0)), round(float(as_single(0.1)), 8)
    (16777218.0, 0.1)
    """
    with np.errstate(over="ignore"):
        single = np.float32(budget)
    if Decimal(str(single)) > _decimal(budget):
        single = np.nextafter(single, np.float32(0))
    return jnp.asarray(single)


class Digits(eqx.Module):
    """Whole numbers of up to 18 digits, in two parts of nine; larger ones become 10**18."""

    high: Int[Array, "*shape"]
    low: Int[Array, "*shape"]

    def __add__(self, other: "Digits") -> "Digits":
        low = self.low + other.low
        carry = (low >= BASE).astype(jnp.int32)
        return Digits(jnp.minimum(self.high + other.high + carry, BASE), low - carry * BASE)

    def __sub__(self, other: "Digits") -> "Digits":
        low = self.low - other.low
        borrow = (low < 0).astype(jnp.int32)
        return Digits(self.high - other.high - borrow, low + borrow * BASE)

    def __le__(self, other: "Digits") -> Bool[Array, "..."]:
        return (self.high < other.high) | ((self.high == other.high) & (self.low <= other.low))

    def __getitem__(self, index: Any) -> "Digits":
        return Digits(self.high[index], self.low[index])

    def where(self, condition: Bool[Array, "..."]) -> "Digits":
        """These numbers where a condition holds, 0 elsewhere."""
        return Digits(jnp.where(condition, self.high, 0), jnp.where(condition, self.low, 0))

    def cumsum(self) -> "Digits":
        """Running sums along the only axis."""
        if len(self.high) <= BLOCK:
            until = np.tri(len(self.high), dtype=bool)
            return self._sum_with_carry(lambda part: jnp.sum(jnp.where(until, part, 0), axis=1))
        rows = self._in_rows()
        nothing = rows[:, 0].where(jnp.zeros((), bool))
        total, sums = jax.lax.scan(
            lambda before, now: (before + now,) * 2, nothing, jax.tree.map(jnp.transpose, rows)
        )
        before = jax.tree.map(lambda part: jnp.pad(part[:-1], (1, 0)), total.cumsum())
        sums = jax.tree.map(jnp.transpose, sums) + before[:, None]
        return jax.tree.map(lambda part: part.ravel()[: len(self.high)], sums)

    def sum(self) -> "Digits":
        """The sum along the only axis."""
        numbers = self
        if len(self.high) > MOST_AT_ONCE:
            rows = jax.tree.map(jnp.transpose, self._in_rows())
            nothing = rows[0].where(jnp.zeros((), bool))
            numbers, _ = jax.lax.scan(lambda sums, row: (sums + row, None), nothing, rows)
        return numbers._sum_with_carry(jnp.sum)

    def _sum_with_carry(self, add: Callable[[Array], Array]) -> "Digits":
        """Sums by `add`, of four and of five digits at a time, with carries."""
        high, low = (_divide(part, 10**4) for part in (self.high, self.low))
        carry, fours = _divide(add(low[1]), 10**4)
        carry, fives = _divide(add(low[0]) + carry, 10**5)
        low = fives * 10**4 + fours
        carry, fours = _divide(add(high[1]) + carry, 10**4)
        fives = add(high[0]) + carry
        return Digits(jnp.where(fives < 10**5, fives * 10**4 + fours, BASE), low)

    def _in_rows(self) -> "Digits":
        """A long vector as rows, filled with 0: adding row by row compiles to little code."""
        size = len(self.high)
        columns = math.isqrt(size)
        fill = -size % columns
        return jax.tree.map(lambda part: jnp.pad(part, (0, fill)).reshape(-1, columns), self)


class Amounts(eqx.Module):
    """The costs of a round and its budget in the same units."""

    costs: Digits
    budget: Digits


def exact_amounts(costs: np.ndarray, budget: float, paid: int = 0) -> Amounts:
    """Exact costs (arm, action) and budget, from numbers of double precision; `paid` units of the
    budget are spent already.

    >>> import numpy as np
    >>> from prefermab.arms.amounts import exact_amounts
    >>> exact_amounts(np.array([[0.0, 16_777_217.0]]), 16_777_217.5).costs.high
    Array([[        0, 167772170]], dtype=int32)
    """
    units = DecimalUnits.of(budget)
    parts = np.divmod(np.minimum(units.of_costs(costs), LIMIT), BASE)
    left = divmod(max(units.of_budget(budget) - paid, 0), BASE)
    whole = lambda array: jnp.asarray(array, jnp.int32)  # noqa: E731
    return Amounts(Digits(*map(whole, parts)), Digits(*map(whole, left)))


def read_amounts(costs: Float[Array, "arm act"], budget: Float[Array, ""]) -> Amounts:
    """Exact costs and budget, from numbers of single precision inside compiled code.

    A whole number below 2**31 is taken as it is. Any other number is read as the shortest decimal
    number of about seven digits that gives it. Where there is none, a cost is rounded up and the
    budget down, by less than a millionth.

    >>> import jax.numpy as jnp
    >>> from prefermab.arms.amounts import read_amounts
    >>> amounts = read_amounts(jnp.array([[0.0, 0.1]]), jnp.array(0.7))
    >>> tenth = amounts.costs[0, 1]
    >>> bool(tenth + tenth + tenth <= amounts.budget), amounts.budget.high
    (True, Array(70000000, dtype=int32))
    """
    # Costs and budget are read together, which halves what is compiled.
    given = jnp.append(costs, budget)
    digits, places = _read_single(given, up=np.arange(given.size) < costs.size)
    unit = 17 - jnp.sum(digits[-1] >= _POWERS) + places[-1]
    units = _scale(digits, unit - places)
    paid = jax.tree.map(lambda part: part[:-1].reshape(costs.shape), units)
    high, low = (jnp.where(costs > budget, *parts) for parts in ((BASE, paid.high), (0, paid.low)))
    return Amounts(Digits(high, low), units[-1])


_POWERS = 10 ** np.arange(10, dtype=np.int32)
_TENS = np.float32(10.0) ** np.arange(38, dtype=np.float32)
"""Powers of ten in single precision, exact up to 10**10."""


def _times_ten_to(
    amounts: Float[Array, "*#ways n"], power: Int[Array, "*ways n"]
) -> Float[Array, "*ways n"]:
    ten = jnp.asarray(_TENS)[jnp.abs(power)]
    return jnp.where(power < 0, amounts / ten, amounts * ten)


_FIGURES, _OFFSETS = np.array([[7, 7, 7, 6], [1, -1, 0, 0]], np.int32)
"""Ways to round: the digits kept, and an offset in the last. The last way that is exact counts."""


def _read_single(
    amounts: Float[Array, "n"], up: np.ndarray
) -> tuple[Int[Array, "n"], Int[Array, "n"]]:
    """Digits and decimal places; without a short decimal number rounded, `up` or else down."""
    size = jnp.floor(jnp.log10(jnp.where(amounts > 0, amounts, 1.0))).astype(jnp.int32) + 1
    # Fallback for an amount that no short decimal number gives: eight digits, rounded up or down.
    places = jnp.clip(8 - size, -37, 37)
    scaled = _times_ten_to(amounts, places)
    digits = jnp.floor(scaled * jnp.where(up, 1 + 3e-7, 1 - 3e-7)) + up
    found, power = _round_to_figures(amounts, size, _FIGURES[:, None], _OFFSETS[:, None])
    right = (_times_ten_to(found, -power) == amounts) & (found > 0) & (found <= 2**24)
    way = jnp.max(jnp.where(right, np.arange(len(right))[:, None], -1), axis=0)
    figures, offsets = jnp.asarray(_FIGURES)[way], jnp.asarray(_OFFSETS)[way]
    found, power = _round_to_figures(amounts, size, figures, offsets)
    digits, places = jnp.where(way < 0, digits, found), jnp.where(way < 0, places, power)
    whole = (amounts == jnp.floor(amounts)) & (amounts < 2.0**31)
    as_it_is = jnp.where(whole, amounts, 0.0).astype(jnp.int32)
    digits = jnp.where(whole, as_it_is, digits.astype(jnp.int32))
    return digits, jnp.where(whole, 0, places).astype(jnp.int32)


def _round_to_figures(
    amounts: Float[Array, "n"], size: Int[Array, "n"], figures: Any, offsets: Any
) -> tuple[Float[Array, "*ways n"], Int[Array, "*ways n"]]:
    """Amounts rounded to some digits, and the power of ten that they were multiplied by."""
    power = jnp.clip(figures - size, -10, 10)
    return jnp.round(_times_ten_to(amounts, power)) + offsets, power


def _divide(whole: Int[Array, "*shape"], by: Any) -> tuple[Array, Array]:
    """Quotients and remainders of whole numbers from 0; `//` compiles to more code."""
    by = jnp.broadcast_to(jnp.asarray(by, whole.dtype), whole.shape)
    return jax.lax.div(whole, by), jax.lax.rem(whole, by)


def _scale(digits: Int[Array, "*shape"], power: Int[Array, "*shape"]) -> Digits:
    """Whole numbers times a power of ten, rounded up where the power is negative."""
    powers = jnp.asarray(_POWERS)
    quotient, rest = _divide(digits, powers[jnp.clip(-power, 0, 9)])
    digits = jnp.where(power < 0, quotient + (rest > 0), digits)
    high, low = _divide(digits, powers[jnp.clip(9 - power, 0, 9)])
    high, low = high * powers[jnp.clip(power - 9, 0, 9)], low * powers[jnp.clip(power, 0, 9)]
    return Digits(jnp.where(power < 0, 0, high), jnp.where(power < 0, digits, low))
