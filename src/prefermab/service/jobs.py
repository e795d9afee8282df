"""Jobs: long tasks that run in a separate process, which can be killed at any time.

A job is a row of a table: its arguments, its progress and its answer. The server starts a process
(`worker.py`) that takes waiting jobs one after the other. If the process dies, the next request
that reads its job marks it as lost. A programme is never left half changed, because every change is
one transaction.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import sqlalchemy as sa

from prefermab.errors import InputError, brief
from prefermab.service.database import JOBS, Records
from prefermab.service.settings import Clock, Settings, to_environment

JOB_KINDS = ("plan", "replay", "what-if", "learn")
UNFINISHED = ("waiting", "running")
MOST_WAITING = 20
LOST_AFTER = 120.0
"""Seconds without a sign of life after which a job on another machine counts as lost."""

JOB_COLUMNS = {
    "number": pl.Int64, "kind": pl.String, "name": pl.String, "status": pl.String,
    "share": pl.Float64, "doing": pl.String, "made": pl.Float64, "ended": pl.Float64,
}  # fmt: skip
"""Columns of a list of jobs."""


class Jobs:
    """The jobs of a server."""

    def __init__(self, records: Records, settings: Settings, clock: Clock):
        self.records, self.settings, self.clock = records, settings, clock

    def submit(self, kind: str, asked: dict[str, Any], name: str) -> dict[str, Any]:
        """Adds a job, and starts a process for it unless enough are running. Returns the job."""
        now = self.clock()
        with self.records.writing() as sql:
            self._mark_lost_jobs(sql)
            rows = sql.execute(
                sa.select(JOBS.c.status).where(JOBS.c.status.in_(UNFINISHED))
            ).scalars()
            statuses = list(rows)
            if statuses.count("waiting") >= MOST_WAITING:
                raise InputError(f"{MOST_WAITING} jobs are waiting already: cancel some first.")
            last = sql.execute(sa.select(sa.func.max(JOBS.c.number))).scalar() or 0
            sql.execute(
                JOBS.insert().values(
                    number=last + 1, kind=kind, asked=json.dumps(asked), name=name,
                    status="waiting", share=0.0, doing="waiting", made=now, beat=now,
                )
            )  # fmt: skip
        if statuses.count("running") < self.settings.jobs:
            start_worker(self.settings)
        return self.get(last + 1)

    def get(self, number: int) -> dict[str, Any]:
        """The present state of a job, with its arguments, and its answer if it has ended."""
        with self.records.reading() as sql:
            row = find_job(sql, number)
        if row.status == "running" and not is_alive(row, self.clock()):
            with self.records.writing() as sql:
                self._mark_lost_jobs(sql)
                row = find_job(sql, number)
        found = {name: getattr(row, name) for name in JOB_COLUMNS}
        asked, answer = json.loads(row.asked), row.answer and json.loads(row.answer)
        return {**found, "asked": asked, "answer": answer}

    def all(self) -> pl.DataFrame:
        """The latest 200 jobs, the newest first."""
        with self.records.reading() as sql:
            columns = [JOBS.c[name] for name in JOB_COLUMNS]
            rows = sql.execute(sa.select(*columns).order_by(JOBS.c.number.desc()).limit(200))
            return pl.DataFrame([tuple(row) for row in rows], schema=JOB_COLUMNS, orient="row")

    def cancel(self, number: int) -> dict[str, Any]:
        """Cancels a job, and kills its process if it runs. What the job has stored already
        stays."""
        with self.records.reading() as sql:
            row = find_job(sql, number)
        if row.status not in UNFINISHED:
            raise InputError(f"job {number} is {row.status} already.")
        if row.status == "running":
            host, pid, _ = row.process.split()
            if host != socket.gethostname():
                raise InputError(f"job {number} runs on {host}: cancel it there.")
            if is_alive(row, self.clock()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        with self.records.writing() as sql:
            mine = (JOBS.c.number == number) & JOBS.c.status.in_(UNFINISHED)
            given = {"status": "cancelled", "doing": "cancelled", "ended": self.clock()}
            sql.execute(JOBS.update().where(mine).values(given))
            waiting = sql.execute(sa.select(JOBS.c.number).where(JOBS.c.status == "waiting"))
            others = waiting.first() is not None
            if find_job(sql, number).status == "cancelled":
                clear_folder(self.settings, number, whole=True)
        if row.status == "running" and others:
            start_worker(self.settings)
        return self.get(number)

    def _mark_lost_jobs(self, sql: sa.Connection) -> None:
        now = self.clock()
        for row in sql.execute(sa.select(JOBS).where(JOBS.c.status == "running")).all():
            if not is_alive(row, now):
                why = "its process ended before the work was done; ask for it again."
                given = {"status": "lost", "doing": "lost", "ended": now,
                         "answer": json.dumps({"detail": why})}  # fmt: skip
                sql.execute(JOBS.update().where(JOBS.c.number == row.number).values(given))
                clear_folder(self.settings, row.number)


def folder_of(settings: Settings, number: int) -> Path:
    """The folder for the model that a job learns."""
    return settings.models_folder / f"job-{number}"


def draft_of(folder: Path) -> Path:
    """The folder in which a model is written before it is moved to `folder` as a whole."""
    return folder.with_name(f"draft-of-{folder.name}")


def clear_folder(settings: Settings, number: int, *, whole: bool = False) -> None:
    """Deletes the half-written files of a job; with `whole` its finished model too."""
    folder = folder_of(settings, number)
    for one in (draft_of(folder), *([folder] if whole else [])):
        shutil.rmtree(one, ignore_errors=True)


def find_job(sql: sa.Connection, number: int) -> Any:
    """The row of a job; raises if there is none."""
    row = sql.execute(sa.select(JOBS).where(JOBS.c.number == number)).one_or_none()
    if row is None:
        raise InputError(f"there is no job {number}.")
    return row


def claim(sql: sa.Connection, now: float) -> Any:
    """Assigns the job that has waited longest to this process; returns it, or None if none
    waits."""
    rows = sa.select(JOBS).where(JOBS.c.status == "waiting").order_by(JOBS.c.number).limit(1)
    row = sql.execute(rows).one_or_none()
    if row is None:
        return None
    here = f"{socket.gethostname()} {os.getpid()} {process_start(os.getpid())}"
    given = {"status": "running", "process": here, "beat": now, "doing": "starting"}
    mine = (JOBS.c.number == row.number) & (JOBS.c.status == "waiting")
    done = sql.execute(JOBS.update().where(mine).values(given)).rowcount
    return row if done else None


def update_job(sql: sa.Connection, number: int, now: float, **values: Any) -> None:
    """Stores new values of a running job; does nothing if it was cancelled."""
    mine = (JOBS.c.number == number) & (JOBS.c.status == "running")
    sql.execute(JOBS.update().where(mine).values(beat=now, **values))


def is_alive(row: Any, now: float) -> bool:
    """Whether the process of a running job is alive."""
    host, pid, since = row.process.split()
    if host != socket.gethostname():
        return now - row.beat < LOST_AFTER
    return process_start(int(pid)) == since


def process_start(pid: int) -> str:
    """When a process was started; empty if there is no such process or it is a zombie.

    Process numbers are used again, so number and start time together identify a process.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        pass
    else:
        return "" if fields[0] in "ZX" else fields[19]
    if Path("/proc/self/stat").exists():
        return ""
    try:  # a system without /proc
        os.kill(pid, 0)
    except OSError:
        return ""
    return "running"


def start_worker(settings: Settings) -> None:
    """Starts a process that runs jobs until none waits; it goes on if this process ends."""
    child = subprocess.Popen(
        # -P: a file in the present folder must not be imported in place of a module.
        [sys.executable, "-P", "-m", "prefermab.service.worker"],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **to_environment(settings)},
        start_new_session=True,
    )
    threading.Thread(target=child.wait, daemon=True, name=f"job {child.pid}").start()


def failure(error: BaseException) -> dict[str, str]:
    """The answer of a job that failed."""
    return {"detail": brief(str(error), 1000)}
