"""Engines that run the parts of a large job: in this process, or on a Ray cluster."""

import abc
import contextlib
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from prefermab.errors import InputError, PrefermabError, count, optional, unknown

Item = TypeVar("Item")
Result = TypeVar("Result")

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "PJRT_NPROC": "1",
}
"""Environment of a worker: it has one core, so its libraries must use one thread only."""


class Engine(abc.ABC):
    """Calls a function for many items."""

    @abc.abstractmethod
    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yields the results in the order of the items."""


class Local(Engine):
    """Calls the function for one item after the other, in this process.

    >>> from prefermab.common.engines import Local
    >>> list(Local().map(abs, [-1, 2]))
    [1, 2]
    """

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        return map(function, items)


class Ray(Engine):
    """Runs each call as a task on one core of a Ray cluster.

    If a worker is lost, its tasks run again. So a result must depend on the item alone, and a task
    must write its files atomically.
    """

    def __init__(self, workers: int | None = None):
        self.ray, self.workers = _ray(), workers

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        task = self.ray.remote(num_cpus=1, max_retries=-1, runtime_env={"env_vars": ONE_THREAD})(
            result_or_error
        )
        running: deque[Any] = deque()
        try:
            for item in items:
                running.append(task.remote(function, item))
                # Two tasks for each worker, so that no worker waits for this process.
                if len(running) >= 2 * self.size:
                    yield self._result(running.popleft())
            while running:
                yield self._result(running.popleft())
        finally:
            for reference in running:
                self.ray.cancel(reference)

    @property
    def size(self) -> int:
        """Number of tasks at once: `workers`, but at most the cores that the cluster has now."""
        cores = int(self.ray.cluster_resources().get("CPU", 1))
        return max(1, cores if self.workers is None else min(self.workers, cores))

    def _result(self, reference: Any) -> Any:
        return result_or_raise(self.ray.get(reference))


@contextlib.contextmanager
def engine(name: str, workers: int | None = None) -> Iterator[Engine]:
    """The engine with this name: `local` or `ray`.

    `ray` joins the cluster that runs on this machine or that RAY_ADDRESS names. If there is none,
    it starts one on this machine, which ends with the work.

    >>> from prefermab.common.engines import engine
    >>> with engine("local") as here:
    ...     list(here.map(len, ["a", "bc"]))
    [1, 2]
    """
    check_engine(name, workers)
    if name == "local":
        yield Local()
        return
    ray = _ray()
    joined_here = not ray.is_initialized()
    if joined_here:
        _join(ray, workers)
    try:
        yield Ray(workers)
    finally:
        if joined_here:
            ray.shutdown()


def check_engine(name: str, workers: int | None) -> None:
    """Raises an error, before the work, if the engine or the number of workers is wrong."""
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
    """The result of `function`, or the `PrefermabError` that it raised."""
    try:
        return function(item), None
    except PrefermabError as error:
        return None, error


def result_or_raise(answer: tuple[Any, PrefermabError | None]) -> Any:
    """The result that `result_or_error` returned; raises the error instead if there is one."""
    result, error = answer
    if error is not None:
        raise error
    return result


def _join(ray: Any, workers: int | None) -> None:
    """Connects to a running cluster, or starts one on this machine."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    with warnings.catch_warnings():
        # JAX warns of forks. It does not matter here: Ray's processes start a new program at once.
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        try:
            ray.init(address="auto", **quiet)
        except ConnectionError:
            ray.init(num_cpus=workers, include_dashboard=False, **quiet)


def _ray() -> Any:
    return optional("ray", "ray", "the engine ray")
