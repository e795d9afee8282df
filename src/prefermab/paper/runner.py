"""Runs the tasks of the report, each once, in worker processes.

A result is stored under a name made from everything that determines it: the task, its scale, the
code, and the versions of libraries. A stored result is not computed again. So an interrupted run
continues where it stopped, and tables that need the same model share it.
"""

import abc
import ast
import dataclasses
import hashlib
import os
import signal
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from graphlib import TopologicalSorter
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import jax
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file
from safetensors.numpy import save as pack

import prefermab
from prefermab.common.files import use_compilation_cache, write_atomically
from prefermab.errors import InputError
from prefermab.evaluation.compare import Progress
from prefermab.paper.tables import PAPER_EXCEPTIONS, Setting
from prefermab.training.checkpoints import training_fingerprint

TaskResult = dict[str, np.ndarray]
EVALUATION_SEED = 1

PAPER_RECIPES = ("paper", "paper-literal")
"""Recipes that are trained for the number of arms and the settings of a table."""

NO_RESULT_DEPENDS_ON = (
    "__init__.py", "__main__.py", "cli", "common/engines.py", "common/intervals.py",
    "common/pages.py", "common/plots.py", "evaluation/simulation.py", "gym", "paper", "programme",
    "service",
)  # fmt: skip
"""Files and folders of the package on which no result depends."""


@dataclasses.dataclass(frozen=True)
class Scale:
    """The size of the computations: training seeds, trials, and whether all is small (`quick`)."""

    seeds: int = 8
    trials: int = 1000
    quick: bool = False

    def trials_of(self, setting: Setting) -> int:
        """Number of trials; a fifth for epidemics, whose trials take long and vary less."""
        return max(2, self.trials // 5) if setting.epidemic else self.trials

    def bounded_trials_of(self, setting: Setting) -> int:
        """Number of trials for which the bound is computed: all if there are few states."""
        share = {"whittle": 1, "lagrangian": 5}[setting.knows]
        return max(2, self.trials_of(setting) // share)

    def hyperparameters(self, recipe: str, setting: Setting) -> dict[str, Any]:
        """The hyperparameters of a training that differ from its recipe's defaults."""
        own: dict[str, Any] = {}
        if recipe in PAPER_RECIPES:
            own = {"shaping": setting.shaping, **PAPER_EXCEPTIONS.get(setting.domain, {})}
            given = {"epochs": setting.epochs, "freeze": setting.freeze}
            own |= {name: value for name, value in given.items() if value is not None}
        return own | (QUICK_HYPERPARAMETERS[recipe] if self.quick else {})


QUICK_HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    **{name: {"epochs": 8, "rounds": 20, "passes": 4, "freeze": 4} for name in PAPER_RECIPES},
    "sweep": {"steps": 60, "arms": 64, "width": 16},
    "exact": {"steps": 60, "arms": 64, "width": 16},
}


class Task(abc.ABC):
    """A computation with a result; the fields of a subclass determine the result."""

    setting: Setting
    scale: Scale

    @property
    def group(self) -> tuple[Any, ...]:
        """Tasks of the same group share compiled code."""
        fixed = {key: value for key, value in self.setting.train if isinstance(value, int | str)}
        return self.setting.domain, *fixed.items()

    @property
    @abc.abstractmethod
    def title(self) -> str:
        """A short description for progress and messages."""

    @property
    @abc.abstractmethod
    def cost(self) -> float:
        """Approximate duration, compared with other tasks."""

    def needs(self) -> tuple["Task", ...]:
        """The tasks whose results this task reads."""
        return ()

    @abc.abstractmethod
    def work(self, store: "Store") -> TaskResult:
        """Computes the result."""


class Store:
    """Results on disk: one file each, written atomically."""

    def __init__(self, folder: Path):
        self.folder = folder

    def path(self, task: Task) -> Path:
        """The file of a task's result."""
        return self.folder / f"{type(task).__name__.lower()}-{_name(task)}.safetensors"

    def has(self, task: Task) -> bool:
        """Whether the result is stored."""
        return self.path(task).exists()

    def get(self, task: Task) -> TaskResult:
        """A stored result. A file that cannot be read is deleted, and an error is raised."""
        try:
            return load_file(self.path(task))
        except (OSError, SafetensorError):
            self.path(task).unlink(missing_ok=True)
            raise InputError(
                f"{task.title}: its result is missing or damaged: run the command again."
            ) from None

    def put(self, task: Task, result: TaskResult) -> None:
        """Stores a result."""
        plain = {name: np.ascontiguousarray(array) for name, array in result.items()}
        write_atomically(self.path(task), lambda draft: draft.write_bytes(pack(plain)))


def run_all(
    tasks: list[Task],
    store: Store,
    workers: int,
    progress: Progress | None,
    hire: "Callable[[Store, int], Worker] | None" = None,
) -> None:
    """Runs all tasks and the tasks they need, several at once, unless their results are stored.

    Each worker is a separate process, because computations that JAX runs side by side in one
    process can wait for each other forever. A worker prefers tasks that share its compiled code.
    """
    graph = task_graph(tasks)
    missing = {task: None for task in graph if not store.has(task)}
    order = TopologicalSorter(
        {it: [need for need in graph[it] if need in missing] for it in missing}
    )
    order.prepare()
    total, done = sum(task.cost for task in missing), 0.0
    left, ready = len(missing), []
    threads = max(1, (os.cpu_count() or 1) // workers)
    crew = [(hire or Worker)(store, threads) for _ in range(min(workers, len(missing)))]
    try:
        while order.is_active():
            ready += order.get_ready()
            for worker in [worker for worker in crew if worker.task is None]:
                if ready:
                    others = [it.group for it in crew if it is not worker and it.task]
                    ready.remove(worker.take(ready, others))
            if progress is not None:
                titles = " and ".join(worker.task.title for worker in crew if worker.task)
                progress(done / total, f"{len(graph) - left} of {len(graph)} tasks: {titles}")
            wait([it.future for it in crew if it.future], return_when=FIRST_COMPLETED)
            for ended in [task for worker in crew if (task := worker.collect())]:
                order.done(ended)
                done, left = done + ended.cost, left - 1
    finally:
        for worker in crew:
            worker.stop()


def task_graph(tasks: Iterable[Task]) -> dict[Task, tuple[Task, ...]]:
    """All tasks and the tasks they need, each with the tasks that it needs directly."""
    found: dict[Task, tuple[Task, ...]] = {}
    for task in tasks:
        found |= {**task_graph(task.needs()), task: task.needs()}
    return found


class Worker:
    """A process with `threads` threads that runs one task after the other."""

    def __init__(self, store: Store, threads: int):
        self.store, self.threads = store, threads
        self.group, self.task, self.future = None, None, None
        self.pool = self._hire()

    def take(self, ready: list[Task], others: list[Any]) -> Task:
        """Begins a task: if possible one of the same group as the last one, otherwise one of a
        group that no other worker has."""
        same_group = [task for task in ready if task.group == self.group]
        free_group = [task for task in ready if task.group not in others]
        self.task = task = (same_group or free_group or ready)[0]
        self.group = task.group
        self.future = self._begin(task)
        return task

    def collect(self) -> Task | None:
        """The task, if it has ended."""
        ended, future = self.task, self.future
        if ended is None or future is None or not future.done():
            return None
        self._end(ended, future)
        self.task = self.future = None
        return ended

    def stop(self) -> None:
        """Ends the process, even in the middle of a task."""
        self.lifeline.close()
        self.pool.shutdown(wait=True, cancel_futures=True)

    def _begin(self, task: Task) -> Future[Any]:
        return self.pool.submit(run_task, task, self.store)

    def _end(self, task: Task, future: Future[Any]) -> None:
        try:
            to_replace = future.result()
        except BrokenProcessPool:
            raise InputError(
                f"{task.title}: its process was killed, perhaps because memory ran out; finished "
                "results are kept: run the command again to continue."
            ) from None
        if to_replace:
            self.stop()
            self.pool = self._hire()

    def _hire(self) -> ProcessPoolExecutor:
        context = get_context("spawn")
        self.lifeline, worker_end = context.Pipe()
        given = self.threads, worker_end
        return ProcessPoolExecutor(1, context, initializer=_set_up_worker, initargs=given)


def _set_up_worker(threads: int, lifeline: Any) -> None:
    """Prepares a worker process.

    The worker ignores Ctrl-C, which reaches every process at a terminal, and leaves it to the main
    process. It ends when the main process ends or closes the other end of `lifeline`. Its number of
    threads is limited, because workers that each use the whole machine slow each other down.
    """
    os.environ["PJRT_NPROC"] = str(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=lambda: (lifeline.poll(None), os._exit(1)), daemon=True).start()


def run_task(task: Task, store: Store) -> bool:
    """Runs a task and stores its result; returns True if the process should be replaced."""
    use_compilation_cache()
    try:
        store.put(task, task.work(store))
    except InputError as error:
        # Only the message is sent to the other process, not the models that an error may contain.
        raise InputError(f"{task.title}: {error}") from None
    return has_many_maps()


def has_many_maps() -> bool:
    """Whether compiled code uses half of the memory maps that Linux allows a process."""
    try:
        with Path("/proc/self/maps").open() as maps:
            return sum(1 for _ in maps) > 30_000
    except OSError:
        return False


@cache
def _name(task: Task) -> str:
    precision = getattr(jax.config, "jax_default_matmul_precision", None)
    where = jax.default_backend(), jax.__version__, precision
    return training_fingerprint(_source(), repr(task), where)[:24]


@cache
def _source() -> str:
    return source_checksum(Path(prefermab.__file__).parent)


def source_checksum(package: Path) -> str:
    """A checksum of the code on which results depend.

    It is that of all definitions, in whatever file they are: results outlive code that is moved,
    and comments, docstrings and imports that change.
    """
    definitions = []
    for file in package.rglob("*.py"):
        path = file.relative_to(package).as_posix()
        if not any(f"{path}/".startswith(f"{other}/") for other in NO_RESULT_DEPENDS_ON):
            tree = _DefinitionsOnly().visit(ast.parse(file.read_text()))
            definitions += [ast.dump(statement) for statement in tree.body]
    return hashlib.sha256("\n".join(sorted(definitions)).encode()).hexdigest()


class _DefinitionsOnly(ast.NodeTransformer):
    """Leaves out docstrings, imports, and what says where names are."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node

    def visit_Import(self, node: ast.Import) -> None:
        return None

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        return None

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        return None if ast.unparse(node.targets[0]) in ("__all__", "__module__") else node
