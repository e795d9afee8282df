"""Where the parts of a large job run: in this process, or on a Ray cluster."""

import abc
import contextlib
import importlib
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from prefermab.errors import InputError, PrefermabError, count, unknown

Item = TypeVar("Item")
Result = TypeVar("Result")

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "PJRT_NPROC": "1",
}
"""A worker has one core: its libraries must not use all of them."""


class Engine(abc.ABC):
    """Calls a function for many items."""

    @abc.abstractmethod
    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results in the order of the items, whichever is ready first."""


class Local(Engine):
    """One after the other, in this process.

    >>> from prefermab.engines import Local
    >>> list(Local().map(abs, [-1, 2]))
    [1, 2]
    """

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        return map(function, items)


class Ray(Engine):
    """Tasks on a Ray cluster, each on one core. The work of a lost worker is done again.

    Results must depend on the item alone, and what a task writes must be whole or not there.
    """

    def __init__(self, workers: int | None = None):
        self.ray, self.workers = _ray(), workers

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        task = self.task()
        under_way: deque[Any] = deque()
        try:
            for item in items:
                under_way.append(task.remote(function, item))
                # Twice as many as there are workers: none waits for the driver.
                if len(under_way) >= 2 * self.size:
                    yield self._result(under_way.popleft())
            while under_way:
                yield self._result(under_way.popleft())
        finally:
            for reference in under_way:
                self.ray.cancel(reference)

    def task(self, calls: int = 0) -> Any:
        """`result_or_error` as a task of Ray, on one core, done again where a worker is lost. A
        process ends after so many `calls`, if any."""
        alone = {"env_vars": ONE_THREAD}
        return self.ray.remote(num_cpus=1, max_retries=-1, max_calls=calls, runtime_env=alone)(
            result_or_error
        )

    @property
    def size(self) -> int:
        """How many tasks run at once: what was asked for, or the cores there are now."""
        cores = int(self.ray.cluster_resources().get("CPU", 1))
        return max(1, cores if self.workers is None else min(self.workers, cores))

    def _result(self, reference: Any) -> Any:
        return result_or_raise(self.ray.get(reference))


@contextlib.contextmanager
def engine(name: str, workers: int | None = None) -> Iterator[Engine]:
    """The engine of that name: `local`, or `ray` for the cluster that runs here or that
    RAY_ADDRESS names, or else one of this machine's cores that ends with the work.

    >>> from prefermab.engines import engine
    >>> with engine("local") as here:
    ...     list(here.map(len, ["a", "bc"]))
    [1, 2]
    """
    check_engine(name, workers)
    if name == "local":
        yield Local()
        return
    ray = _ray()
    ours = not ray.is_initialized()
    if ours:
        _join(ray, workers)
    try:
        yield Ray(workers)
    finally:
        if ours:
            ray.shutdown()


def check_engine(name: str, workers: int | None) -> None:
    """Refuses an engine that does not exist, before any work."""
    if name not in ("local", "ray"):
        raise unknown("engine", name, ("local", "ray"))
    if workers is not None:
        count(workers, "workers")
        if name == "local":
            raise InputError("workers are for the engine ray; the engine local has none.")
    if name == "ray":
        _ray()


def result_or_error(
    function: Callable[[Item], Result], item: Item
) -> tuple[Result | None, PrefermabError | None]:
    """The result of `function`, or the error of ours that it raised."""
    try:
        return function(item), None
    except PrefermabError as error:
        return None, error


def result_or_raise(answer: tuple[Any, PrefermabError | None]) -> Any:
    """The result that `result_or_error` returned; its error is raised."""
    result, error = answer
    if error is not None:
        raise error
    return result


def _join(ray: Any, workers: int | None) -> None:
    """Connects to a running cluster, or starts one on this machine."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    with warnings.catch_warnings():
        # Ray's own processes are new programs at once, which JAX's warning is not about.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        try:
            ray.init(address="auto", **quiet)
        except ConnectionError:
            ray.init(num_cpus=workers, include_dashboard=False, **quiet)


def _ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise InputError(
            "the engine ray needs the package ray: pip install 'prefermab[ray]'."
        ) from None
