"""The errors and warnings of this package, and functions that check input and raise them."""

import difflib
import importlib
import math
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Characters that move the cursor, change colours or change the direction of text."""

MOST_NAMED = 12
"""Largest number of names in a message."""

EXACT = 2**53
"""Whole numbers below this are held exactly by floating-point numbers."""

SMALLEST_AMOUNT, LARGEST_AMOUNT = 1e-30, 1e30
"""Costs and budgets beyond these are mistakes, and do not fit into single precision."""


def visible(text: str) -> str:
    """A text with its control characters escaped, so that it stays on one line.

    >>> from prefermab.errors import visible
    >>> visible("Ana\\x1b[2J")
    'Ana\\\\x1b[2J'
    """
    return UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text)


def list_names(names: Iterable[str]) -> str:
    """Names separated by commas. A long list ends with the number of the names left out.

    >>> from prefermab.errors import list_names
    >>> list_names(["a", "b"]), list_names(map(str, range(1_000_000)))[-16:]
    ('a, b', 'and 999,988 more')
    """
    known = list(names)
    more = f" and {len(known) - MOST_NAMED:,} more" if len(known) > MOST_NAMED else ""
    return ", ".join(brief(name) for name in known[:MOST_NAMED]) + more


def brief(text: object, most: int = 80) -> str:
    """A value as text for a message; only the beginning of a long text, with its length."""
    shown = str(text)
    return shown if len(shown) <= most else f"{shown[:most]}… ({len(shown):,} characters)"


class PrefermabError(Exception):
    """Base class of every error that this package raises; the message is one sentence.

    The message may quote text from a file: control characters in it are escaped.

    >>> import prefermab as pm
    >>> issubclass(pm.InputError, pm.PrefermabError)
    True
    """

    def __str__(self) -> str:
        return visible(super().__str__())


class InputError(PrefermabError, ValueError):
    """Wrong input; the message says what was given and what is expected.

    >>> import prefermab as pm
    >>> pm.domains.get("arman")
    Traceback (most recent call last):
        ...
    prefermab.errors.InputError: unknown domain 'arman': did you mean 'armman'?
    """


class InputWarning(UserWarning):
    """Says how an ambiguous table was read; commands print it as one line."""

    def __str__(self) -> str:
        return visible(super().__str__())


class UnlikeTrainingWarning(InputWarning):
    """A model is used for arms that differ from those it was trained on."""


class BusyError(PrefermabError):
    """Another process has locked the file. Nothing was changed: the caller can try again later."""


class OutdatedError(PrefermabError):
    """Somebody has changed what a request is about since the caller looked at it. Nothing was
    changed: the caller can look again."""


class StorageError(PrefermabError):
    """A file or disk failed: it is full, damaged or not writable."""


class DamageError(StorageError):
    """What is stored is not what was written: it is damaged, or was changed by something else."""


def unknown(kind: str, name: str, known: Iterable[str], of: str = "") -> InputError:
    """The error for a name that is not in `known`; it suggests the closest known name.

    `of` is text that follows the name in the message, such as " in mine.py".
    """
    known = sorted(known)
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(known)}."
    return InputError(f"unknown {kind} '{name}'{of}: {hint}")


def optional(package: str, extra: str, what: str) -> Any:
    """A package that only an extra installs; raises an error that says how to install it.

    `what` is what needs it.

    >>> from prefermab.errors import optional
    >>> optional("a_package", "gym", "a game")
    Traceback (most recent call last):
        ...
    prefermab.errors.InputError: a game needs the package a_package: pip install 'prefermab[gym]'.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise
        raise missing(error, extra, what) from None


def missing(error: ImportError, extra: str, what: str) -> InputError:
    """The error if a package of an extra is not installed."""
    package = (error.name or "").partition(".")[0]
    return InputError(f"{what} needs the package {package}: pip install 'prefermab[{extra}]'.")


def number(value: Any, name: str, *, at_least: float = 0.0) -> float:
    """Returns `value` as a float; raises unless it is finite and at least `at_least`."""
    try:
        real = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, not {brief(repr(value))}.") from None
    except OverflowError:
        real = math.inf
    if not math.isfinite(real) or real < at_least:
        raise InputError(f"{name} must be a finite number of at least {at_least:g}, not {real:g}.")
    check_exact(value, real, name)
    return real


def check_exact(value: Any, real: float, name: str) -> None:
    """Raises if `value`, a large whole number or its text, became another one when it was read as
    the number `real`."""
    if not EXACT <= abs(real) < math.inf or isinstance(value, float | np.floating):
        return
    try:
        given = Decimal(str(value).strip())
    except InvalidOperation:
        return
    if given not in (Decimal(real), Decimal(repr(real))):
        raise InputError(
            f"{name} is {brief(value)}, which has more digits than a number can hold here: round "
            f"it, such as to {real:.0f}."
        )


def amount(value: Any, name: str) -> float:
    """Returns a cost or a budget as a float; raises unless it is 0, or in the range of amounts."""
    real = number(value, name)
    if not is_amount(real):
        raise InputError(
            f"{name} must be 0, or from {SMALLEST_AMOUNT:g} to {LARGEST_AMOUNT:g}, not {real:g}."
        )
    return real


def is_amount(value: Any) -> Any:
    """Whether a number, or each of several, is 0 or in the range of amounts.

    >>> import numpy as np
    >>> from prefermab.errors import is_amount
    >>> is_amount(np.array([0.0, 0.1, -1.0, 1e-310, 1e300]))
    array([ True,  True, False, False, False])
    """
    return (value == 0) | ((value >= SMALLEST_AMOUNT) & (value <= LARGEST_AMOUNT))


def count(value: Any, name: str, *, at_least: int = 1) -> int:
    """Returns `value` as an int; raises unless it is a whole number of at least `at_least`."""
    real = number(value, name, at_least=at_least)
    if real != int(real):
        raise InputError(f"{name} must be a whole number, not {real:g}.")
    return int(real)


def share(value: Any, name: str) -> float:
    """Returns `value` as a float; raises unless it is between 0 and 1."""
    real = number(value, name)
    if real > 1:
        raise InputError(f"{name} must lie between 0 and 1, not {real:g}.")
    return real


def floats(value: Any, name: str) -> np.ndarray:
    """Returns `value` as an array of numbers, which may be NaN."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be an array of numbers.") from None


def reals(value: Any, name: str, *, ndim: tuple[int, ...] | None = None) -> np.ndarray:
    """Returns `value` as an array; raises unless its numbers are finite, and its number of axes is
    one of `ndim`."""
    array = floats(value, name)
    if ndim is not None and array.ndim not in ndim:
        wanted = " or ".join(str(n) for n in ndim)
        raise InputError(f"{name} must have {wanted} axes, not {array.ndim}.")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise InputError(f"{name} must be finite, but {name}{list(where)} is {array[where]}.")
    large = np.abs(array) >= EXACT
    if large.any():
        for one in set(np.asarray(value, dtype=object)[large].tolist()):
            check_exact(one, float(one), f"a number in {name}")
    return array
