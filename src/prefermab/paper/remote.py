"""Tasks of the report on a Ray cluster, whose machines share the folder of results."""

import functools
from concurrent.futures import Future
from typing import Any

from prefermab.engines import Ray, answered
from prefermab.paper.lab import Store, Task, Worker, do

CALLS = 8
"""Tasks after which a process is replaced: compiled code fills up its memory maps."""


class RayWorker(Worker):
    """A core of a cluster that does one task after the other. A task whose machine is lost is done
    again on another."""

    def __init__(self, engine: Ray, store: Store, threads: int):
        self.engine, self.reference = engine, None
        super().__init__(Store(store.folder.absolute()), threads)

    def stop(self) -> None:
        """Gives up the task that is under way."""
        if self.task is not None and self.reference is not None:
            self.engine.ray.cancel(self.reference, force=True)

    def _begin(self, task: Task) -> Future[Any]:
        work = functools.partial(do, store=self.store)
        self.reference = self.engine.task(CALLS).remote(work, task)
        return self.reference.future()

    def _end(self, task: Task, future: Future[Any]) -> None:
        answered(future.result())

    def _hire(self) -> Any:
        return None
