"""How a case is timed: once from nothing, then several times once it is compiled."""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

ENOUGH, MOST = 1.0, 7
"""Seconds of repeats after which no more are made, if there are three; and the most repeats."""


@dataclasses.dataclass(frozen=True)
class Case:
    """Something to time: `run` does `amount` units of work, about `flops` operations each."""

    group: str
    name: str
    unit: str
    amount: float
    run: Callable[[], Any]
    flops: float | None = None
    """Of multiplying matrices, for each unit of work."""
    moved: float | None = None
    """Bytes that have to be read or written for each unit of work."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """What the machine does when it does nothing else."""

    multiplications: float
    """Operations a second in multiplying matrices."""
    memory: float
    """Bytes a second in copying."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """What came of a case: seconds are the median of the repeats, `spread` their range over it."""

    group: str
    name: str
    unit: str
    amount: float
    first: float
    """Seconds of the first run, compiling included."""
    seconds: float
    spread: float
    repeats: int
    rate: float
    """Units a second."""
    of_limit: float | None
    """Share of what the machine could do: of multiplying or of moving, whichever takes longer."""


def measure(case: Case, machine: Machine) -> Measured:
    """Times a case."""
    first = seconds_of(case.run)
    took: list[float] = []
    while len(took) < 3 or (sum(took) < ENOUGH and len(took) < MOST):
        took.append(seconds_of(case.run))
    median = float(np.median(took))
    least = max((case.flops or 0.0) / machine.multiplications, (case.moved or 0.0) / machine.memory)
    return Measured(
        case.group,
        case.name,
        case.unit,
        case.amount,
        first,
        median,
        float((max(took) - min(took)) / median),
        len(took),
        case.amount / median,
        least * case.amount / median if least else None,
    )


def seconds_of(run: Callable[[], Any]) -> float:
    """How long a call takes until its results are there."""
    begun = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - begun


def machine(size: int = 2048, length: int = 1 << 26) -> Machine:
    """Multiplies large matrices and copies a long array, the best of several times."""
    matrix = jnp.ones((size, size), jnp.float32)
    multiply = jax.jit(lambda a: a @ a)
    row = jnp.ones(length, jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    best = {}
    for name, call, given in (("multiply", multiply, matrix), ("copy", copy, row)):
        seconds_of(lambda call=call, given=given: call(given))
        best[name] = min(seconds_of(lambda call=call, given=given: call(given)) for _ in range(5))
    return Machine(2 * size**3 / best["multiply"], 8 * length / best["copy"])
