"""Times a case: a first run, which includes compiling, then several more runs."""

import dataclasses
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

ENOUGH_SECONDS, MOST_REPEATS = 1.0, 7
"""Repeats stop after this many seconds, if there are at least three, or after this many repeats."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A computation to time: `run` does `amount` units of work."""

    group: str
    name: str
    unit: str
    amount: float
    run: Callable[[], object]
    flops: float | None = None
    """Operations of matrix multiplication for each unit of work."""
    moved: float | None = None
    """Bytes read or written for each unit of work."""


@dataclasses.dataclass(frozen=True)
class Machine:
    """The most that this machine can do."""

    multiplications: float
    """Operations per second in multiplying matrices."""
    memory: float
    """Bytes per second in copying."""


@dataclasses.dataclass(frozen=True)
class Measured:
    """Result of a case: `seconds` is the median of the repeats, `spread` is their range divided by
    the median."""

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
    """Units of work per second."""
    of_limit: float | None
    """Share of the machine's limit: the least time for multiplying or for moving data, whichever is
    longer, divided by `seconds`."""


def time_case(case: Case, machine: Machine) -> Measured:
    """Runs a case once, then repeatedly, and times each run."""
    first = seconds_of(case.run)
    times: list[float] = []
    while len(times) < 3 or (sum(times) < ENOUGH_SECONDS and len(times) < MOST_REPEATS):
        times.append(seconds_of(case.run))
    median = float(np.median(times))
    least = max((case.flops or 0.0) / machine.multiplications, (case.moved or 0.0) / machine.memory)
    return Measured(
        case.group,
        case.name,
        case.unit,
        case.amount,
        first,
        median,
        float((max(times) - min(times)) / median),
        len(times),
        case.amount / median,
        least * case.amount / median if least else None,
    )


def seconds_of(run: Callable[[], object]) -> float:
    """Seconds that a call takes until its results are ready."""
    begun = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - begun


def machine(size: int = 2048, length: int = 1 << 26) -> Machine:
    """Times the product of large matrices and the copy of a long array; the best of five runs."""
    matrix = jnp.ones((size, size), jnp.float32)
    multiply = jax.jit(lambda a: a @ a)
    row = jnp.ones(length, jnp.float32)
    copy = jax.jit(lambda a: a + 1)
    best = {}
    for name, call, given in (("multiply", multiply, matrix), ("copy", copy, row)):
        seconds_of(lambda call=call, given=given: call(given))
        best[name] = min(seconds_of(lambda call=call, given=given: call(given)) for _ in range(5))
    return Machine(2 * size**3 / best["multiply"], 8 * length / best["copy"])
