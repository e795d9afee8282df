"""The work behind the report, in tasks that are done once.

A task is named by everything that determines its result: what it is, how thorough, the code and
the versions it runs on. A result that is there is not worked out again, so a run that was
interrupted goes on where it stopped, and tables that need the same model share it.
"""

import abc
import ast
import dataclasses
import hashlib
import os
import signal
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as pack

import prefermab
from prefermab.checkpoints import fingerprint
from prefermab.config import PAPER_EXCEPTIONS
from prefermab.errors import InputError, PrefermabError
from prefermab.evaluation import Progress
from prefermab.files import use_compilation_cache, write_atomically
from prefermab.paper.tables import Setting

Result = dict[str, np.ndarray]
EVALUATION_SEED = 1

APART = (
    "bench", "cli", "engines.py", "gym", "pages.py", "paper", "plots.py", "programme",
)  # fmt: skip
"""Source that no result depends on."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """How thorough: training seeds, trials, and whether everything is made small to save time."""

    seeds: int = 8
    trials: int = 1000
    quick: bool = False

    def trials_of(self, setting: Setting) -> int:
        """A fifth on epidemics, whose trials are dear and differ less."""
        return max(2, self.trials // 5) if setting.epidemic else self.trials

    def bounded_trials_of(self, setting: Setting) -> int:
        """How many of the trials get a bound: all where states are few."""
        share = {"whittle": 1, "lagrangian": 5}[setting.knows]
        return max(2, self.trials_of(setting) // share)

    def hyperparameters(self, recipe: str, setting: Setting) -> dict[str, Any]:
        """What a training departs in from the recipe's own settings."""
        own: dict[str, Any] = {}
        if recipe == "paper":
            own = {"shaping": setting.shaping, **PAPER_EXCEPTIONS.get(setting.domain, {})}
            given = {"epochs": setting.epochs, "freeze": setting.freeze}
            own |= {name: value for name, value in given.items() if value is not None}
        return own | (QUICK[recipe] if self.quick else {})


QUICK: dict[str, dict[str, Any]] = {
    "paper": {"epochs": 8, "rounds": 20, "passes": 4, "freeze": 4},
    "sweep": {"steps": 60, "arms": 64, "width": 16},
    "exact": {"steps": 60, "arms": 64, "width": 16},
}


class Task(abc.ABC):
    """A piece of work with a result; a subclass is a frozen dataclass of what determines it."""

    setting: Setting
    scale: Scale

    @property
    def group(self) -> tuple[Any, ...]:
        """Tasks with the same share compiled code."""
        fixed = {key: value for key, value in self.setting.train if isinstance(value, int | str)}
        return self.setting.domain, *fixed.items()

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """What it does, in a few words."""

    @property
    @abc.abstractmethod
    def cost(self) -> float:
        """About how long it takes beside others."""

    def needs(self) -> tuple["Task", ...]:
        """What has to be done before."""
        return ()

    @abc.abstractmethod
    def work(self, store: "Store") -> Result:
        """Does it."""


class Store:
    """Results on disk, each in a file of its own that is whole or not there."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, task: Task) -> Path:
        """Where a task's result is kept."""
        return self.folder / f"{type(task).__name__.lower()}-{_name(task)}.safetensors"

    def has(self, task: Task) -> bool:
        """Whether the result is there."""
        return self.path(task).exists()

    def get(self, task: Task) -> Result:
        """A result that is there; one that cannot be read is as good as none."""
        try:
            return load_file(self.path(task))
        except (OSError, SafetensorError):
            self.path(task).unlink(missing_ok=True)
            raise InputError(f"{task.title}: its result is gone, run again.") from None

    def put(self, task: Task, result: Result) -> None:
        """Keeps a result."""
        plain = {name: np.ascontiguousarray(array) for name, array in result.items()}
        write_atomically(self.path(task), lambda draft: draft.write_bytes(pack(plain)))


def run_all(
    tasks: list[Task],
    store: Store,
    workers: int,
    progress: Progress | None,
    hire: "Callable[[Store, int], Worker] | None" = None,
) -> None:
    """Does every task and what it needs, several at once; those that are done stay done.

    Each worker is a process of its own: computations that JAX runs side by side in one process can
    wait for each other forever. A worker stays with tasks that share compiled code.
    """
    everything = in_order(tasks)
    waiting = [task for task in everything if not store.has(task)]
    needs = {task: {need for need in task.needs() if not store.has(need)} for task in waiting}
    total, done = sum(task.cost for task in waiting), 0.0
    threads = max(1, (os.cpu_count() or 1) // workers)
    crew = [(hire or Worker)(store, threads) for _ in range(min(workers, len(waiting)))]
    try:
        while waiting or any(worker.task for worker in crew):
            for worker in [worker for worker in crew if worker.task is None]:
                ready = [task for task in waiting if not needs[task]]
                if ready:
                    others = [it.group for it in crew if it is not worker and it.task]
                    waiting.remove(worker.take(ready, others))
            busy = [worker.task for worker in crew if worker.task]
            if progress is not None:
                ended = len(everything) - len(waiting) - len(busy)
                titles = " and ".join(task.title for task in busy)
                progress(done / total, f"{ended} of {len(everything)} tasks: {titles}")
            wait([it.future for it in crew if it.future], return_when=FIRST_COMPLETED)
            for ended in [task for worker in crew if (task := worker.collect())]:
                done += ended.cost
                for unmet in needs.values():
                    unmet.discard(ended)
    finally:
        for worker in crew:
            worker.stop()


class Worker:
    """A process that does one task after the other, on so many threads."""

    def __init__(self, store: Store, threads: int):
        self.store, self.threads = store, threads
        self.group, self.task, self.future = None, None, None
        self.pool = self._hire()

    def take(self, ready: list[Task], others: list[Any]) -> Task:
        """Begins with a task: one like the last if there is one, else one unlike the others'."""
        like = [task for task in ready if task.group == self.group]
        unlike = [task for task in ready if task.group not in others]
        self.task = task = (like or unlike or ready)[0]
        self.group = task.group
        self.future = self._begin(task)
        return task

    def collect(self) -> Task | None:
        """The task if it has ended."""
        ended, future = self.task, self.future
        if ended is None or future is None or not future.done():
            return None
        self._end(ended, future)
        self.task = self.future = None
        return ended

    def stop(self) -> None:
        """Ends the process, whatever it is doing."""
        for process in list((self.pool._processes or {}).values()):
            process.terminate()
        self.pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self, task: Task) -> Future[Any]:
        return self.pool.submit(do, task, self.store)

    def _end(self, task: Task, future: Future[Any]) -> None:
        try:
            crowded = future.result()
        except BrokenProcessPool:
            raise InputError(
                f"{task.title}: its process was ended from outside, perhaps for want of memory; "
                "what is done is kept, run again to go on."
            ) from None
        if crowded:
            self.stop()
            self.pool = self._hire()

    def _hire(self) -> ProcessPoolExecutor:
        context = get_context("spawn")
        return ProcessPoolExecutor(1, context, initializer=_settle_in, initargs=(self.threads,))


def _settle_in(threads: int) -> None:
    """A worker leaves Ctrl-C, which reaches every process at a terminal, to the first one, and
    ends when that one has ended, however it did. Its threads are its own share of the machine:
    workers that each use all of it lose time to each other."""
    os.environ["PJRT_NPROC"] = str(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = parent_process()
    if first is not None:
        Thread(target=lambda: (first.join(), os._exit(1)), daemon=True).start()


def do(task: Task, store: Store) -> bool:
    """Does a task and says whether the process has had enough."""
    use_compilation_cache()
    try:
        store.put(task, task.work(store))
    except PrefermabError as error:
        # Only the message crosses processes, not the models that a TrainingError may carry.
        raise type(error)(f"{task.title}: {error}") from None
    return crowded()


def crowded() -> bool:
    """Whether compiled code has used up half of the memory maps that Linux allows a process."""
    try:
        with Path("/proc/self/maps").open() as maps:
            return sum(1 for _ in maps) > 30_000
    except OSError:
        return False


def in_order(tasks: list[Task]) -> list[Task]:
    """All tasks and what they need, each once, needs first."""
    found: dict[Task, None] = {}
    for task in tasks:
        found |= dict.fromkeys([*in_order(list(task.needs())), task])
    return list(found)


@cache
def _name(task: Task) -> str:
    precision = getattr(jax.config, "jax_default_matmul_precision", None)
    where = jax.default_backend(), jax.__version__, precision
    return fingerprint(_source(), repr(task), where)[:24]


@cache
def _source() -> str:
    """A checksum of the code that results depend on, whatever its comments and docstrings say."""
    root, digest = Path(prefermab.__file__).parent, hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        if file.relative_to(root).parts[0] not in APART:
            digest.update(ast.dump(_WithoutWords().visit(ast.parse(file.read_text()))).encode())
    return digest.hexdigest()


class _WithoutWords(ast.NodeTransformer):
    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node
