"""The one error a user's input can cause, and the checks that raise it."""

import difflib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np


class InputError(ValueError):
    """What was given cannot be used; the message is one sentence that says what was expected.

    >>> import prefermab as pm
    >>> pm.domains.get("arman")
    Traceback (most recent call last):
        ...
    prefermab.errors.InputError: unknown domain 'arman': did you mean 'armman'?
    """


class Busy(InputError):  # noqa: N818 - says what is, not that something failed
    """Another process keeps the file to itself; nothing was changed, so try again later.

    >>> from prefermab.errors import Busy, InputError
    >>> issubclass(Busy, InputError)
    True
    """


class StorageError(InputError):
    """The file or its disk is at fault, not what was asked: full, damaged, or not to be written.

    >>> from prefermab.errors import InputError, StorageError
    >>> issubclass(StorageError, InputError)
    True
    """


def unknown(kind: str, name: str, known: Iterable[str], of: str = "") -> InputError:
    """The error for a name that is not one of `known`, with the nearest of them suggested; `of`
    says what it would belong to."""
    known = sorted(known)
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(known)}."
    return InputError(f"unknown {kind} '{name}'{of}: {hint}")


def number(value: Any, name: str, *, at_least: float = 0.0) -> float:
    """A finite real number that is at least `at_least`."""
    try:
        real = float(value)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a number, not {value!r}.") from None
    if not math.isfinite(real) or real < at_least:
        raise InputError(f"{name} must be a finite number of at least {at_least:g}, not {real:g}.")
    return real


def count(value: Any, name: str, *, at_least: int = 1) -> int:
    """A whole number that is at least `at_least`."""
    real = number(value, name, at_least=at_least)
    if real != int(real):
        raise InputError(f"{name} must be a whole number, not {real:g}.")
    return int(real)


def share(value: Any, name: str) -> float:
    """A number in [0, 1]."""
    real = number(value, name)
    if real > 1:
        raise InputError(f"{name} must lie between 0 and 1, not {real:g}.")
    return real


def reals(value: Any, name: str, *, ndim: tuple[int, ...] | None = None) -> np.ndarray:
    """An array of finite numbers, with one of the given numbers of axes."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} must be an array of numbers.") from None
    if ndim is not None and array.ndim not in ndim:
        wanted = " or ".join(str(n) for n in ndim)
        raise InputError(f"{name} must have {wanted} axes, not {array.ndim}.")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise InputError(f"{name} must be finite, but {name}{list(where)} is {array[where]}.")
    return array
