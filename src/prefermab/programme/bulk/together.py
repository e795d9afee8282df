"""Shares of groups and budgets of workers, which need everyone at once, over many pieces.

Those who are of some use are gathered in short: about 200 bytes each while the choice is made.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from prefermab.files import write_atomically
from prefermab.programme.bulk import passes
from prefermab.programme.bulk.passes import Job, Report
from prefermab.programme.bulk.pieces import Piece
from prefermab.programme.planning.limits import Limits, table
from prefermab.programme.planning.selection import Task, choose
from prefermab.programme.planning.steps import Cut, Steps, unit_of

Each = Callable[[str, Callable[[Piece], Any]], list[Any]]


def choose_together(
    job: Job, pieces: Sequence[Piece], reports: Sequence[Report], each: Each, waiting: int
) -> tuple[Cut, float]:
    """Writes down everyone's action; who waits, and what one more unit of budget would gain."""
    parts = each("choosing", functools.partial(passes.candidates, job))
    groups, workers = union(reports, "groups"), union(reports, "workers")
    for part, report in zip(parts, reports, strict=True):
        part["group"] = recoded(part["group"], report.groups, groups)
        part["worker"] = recoded(part["worker"], report.workers, workers)
    people = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    limits = limits_of(job, people, groups, workers)
    gains, costs, locked = people["gains"], people["costs"], people["locked"].astype(int)

    task = Task(gains, costs, job.budget, limits, locked, per_cost=True)
    actions = choose(task)
    for piece in pieces:
        begin, end = np.searchsorted(people["rows"], (piece.start, piece.start + piece.rows))
        own = np.zeros(piece.rows, np.int8)
        own[people["rows"][begin:end] - piece.start] = actions[begin:end]
        write_atomically(job.actions(piece), functools.partial(passes.save_array, array=own))
    left = (actions == 0) & (locked == 0)
    steps = Steps.of(gains, costs, left, unit_of(job.budget))
    queue = steps.after(Cut(np.inf), 0, waiting)[-1]
    cut = Cut(waiting=tuple(people["rows"][queue].tolist()))
    richer = choose(dataclasses.replace(task, budget=job.budget + 1))
    return cut, task.gained(richer) - task.gained(actions)


def limits_of(
    job: Job, people: dict[str, np.ndarray], groups: tuple[str, ...], workers: tuple[str, ...]
) -> Limits:
    """The shared limits of those who were gathered, all of whom may be acted on."""
    rules = job.rules
    return Limits(
        standing=np.zeros(len(people["rows"]), int),
        locked=people["locked"],
        group=people["group"],
        min_share=table(rules.min_share, groups, 0.0, "group", f"'{rules.group}'"),
        max_share=table(rules.max_share, groups, 1.0, "group", f"'{rules.group}'"),
        worker=people["worker"],
        budgets=table(rules.budgets, workers, np.inf, "worker", f"'{rules.worker}'"),
        group_names=groups,
        worker_names=workers,
    )


def union(reports: Sequence[Report], kind: str) -> tuple[str, ...]:
    """The labels of all pieces, in order."""
    return tuple(sorted({label for report in reports for label in getattr(report, kind)}))


def recoded(codes: np.ndarray, own: Sequence[str], labels: tuple[str, ...]) -> np.ndarray:
    """Numbers of a piece's own labels as numbers of all labels; -1 stays -1."""
    places = np.array([*(labels.index(label) for label in own), -1])
    return places[codes]
