"""Jobs: long tasks, each in a process of its own, which can be killed at any time.

A job is a row of a table: its arguments, its progress and its answer. A row that is running takes
one of the server's places, and the table has the process that runs it. Places are counted and given
in one transaction, so that all servers of a programme together keep the limit; the other jobs wait
in order. If a process dies, its job is marked as lost and the next one gets its place. A programme
is never left half changed, because every change is one transaction.
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

from prefermab.errors import BusyError, InputError, PrefermabError, brief
from prefermab.service.auth.database import JOBS, Records
from prefermab.service.auth.settings import Clock, Settings, as_text
from prefermab.service.http.problems import QueueFullError

JOB_KINDS = ("plan", "replay", "what-if", "learn")
UNFINISHED = ("waiting", "running")
MOST_UNFINISHED = 10
"""Jobs of one user that may wait or run at the same time."""

LOST_AFTER = 120.0
"""Seconds without a sign of life after which a job on another machine counts as lost."""

JOB_COLUMNS = {
    "number": pl.Int64, "kind": pl.String, "name": pl.String, "status": pl.String,
    "share": pl.Float64, "doing": pl.String, "made": pl.Float64, "ended": pl.Float64,
}  # fmt: skip
"""Columns of a list of jobs."""


class Jobs:
    """The jobs of a server. Those that waited when the last server ended are started."""

    def __init__(self, records: Records, settings: Settings, clock: Clock):
        self.records, self.settings, self.clock = records, settings, clock
        self.start_waiting()

    def submit(self, kind: str, asked: dict[str, Any], name: str) -> dict[str, Any]:
        """Adds a job, and starts a process for it if a place is free. Returns the job."""
        now = self.clock()
        self.start_waiting()
        with self.records.writing() as sql:
            mine = (JOBS.c.name == name) & JOBS.c.status.in_(UNFINISHED)
            if sql.execute(sa.select(sa.func.count()).where(mine)).scalar_one() >= MOST_UNFINISHED:
                raise QueueFullError(
                    f"{MOST_UNFINISHED} jobs of {name} are waiting or running already: ask again "
                    "when one of them has ended."
                )
            number = 1 + (sql.execute(sa.select(sa.func.max(JOBS.c.number))).scalar() or 0)
            sql.execute(
                JOBS.insert().values(
                    number=number, kind=kind, asked=json.dumps(asked), name=name,
                    status="waiting", share=0.0, doing="waiting", made=now, beat=now,
                )
            )  # fmt: skip
        self.start_waiting()
        return self._read(number)

    def get(self, number: int) -> dict[str, Any]:
        """The present state of a job, with its arguments, and its answer if it has ended."""
        self.start_waiting()
        return self._read(number)

    def _read(self, number: int) -> dict[str, Any]:
        with self.records.reading() as sql:
            row = find_job(sql, number)
        found = {name: getattr(row, name) for name in JOB_COLUMNS}
        asked, answer = json.loads(row.asked), row.answer and json.loads(row.answer)
        return {**found, "asked": asked, "answer": answer}

    def all(self) -> pl.DataFrame:
        """The latest 200 jobs, the newest first."""
        self.start_waiting()
        with self.records.reading() as sql:
            columns = [JOBS.c[name] for name in JOB_COLUMNS]
            rows = sql.execute(sa.select(*columns).order_by(JOBS.c.number.desc()).limit(200))
            return pl.DataFrame([tuple(row) for row in rows], schema=JOB_COLUMNS, orient="row")

    def cancel(self, number: int) -> dict[str, Any]:
        """Cancels a job and ends its process. What the job has stored already stays.

        The process of a job on another machine ends itself within `worker.BEAT_EVERY` seconds.
        """
        with self.records.reading() as sql:
            row = find_job(sql, number)
        if row.status not in UNFINISHED:
            raise InputError(f"job {number} is {row.status} already.")
        kill(row)  # before the transaction, for which its process might let us wait
        with self.records.writing() as sql:
            row = find_job(sql, number)
            mine = (JOBS.c.number == number) & JOBS.c.status.in_(UNFINISHED)
            given = {"status": "cancelled", "doing": "cancelled", "ended": self.clock()}
            if sql.execute(JOBS.update().where(mine).values(given)).rowcount:
                kill(row)  # it may have been started meanwhile
                clear_folder(self.settings, number, whole=True)
        self.start_waiting()
        return self._read(number)

    def start_waiting(self) -> None:
        """Marks lost jobs, and starts a process for each waiting job, in order, as long as places
        are free. While somebody else writes for long, this is left to the next request."""
        with contextlib.suppress(BusyError):
            while self._is_due() and self._start_next():
                pass

    def _is_due(self) -> bool:
        """Whether there is anything to do: most requests need not lock the programme for it."""
        rows = sa.select(JOBS.c.status, JOBS.c.process, JOBS.c.beat)
        with self.records.reading() as sql:
            found = sql.execute(rows.where(JOBS.c.status.in_(UNFINISHED))).all()
        running = [row for row in found if row.status == "running"]
        if len(found) > len(running) and len(running) < self.settings.jobs:
            return True
        now = self.clock()
        return not all(is_alive(row, now) for row in running)

    def _start_next(self) -> bool:
        """Starts a process for the job that has waited longest; returns whether one was started.

        The process waits for its settings, which are sent when the job is stored with the process:
        so no process runs without a place, and no job is running without a process.
        """
        child = None
        try:
            with self.records.writing() as sql:
                job = next_job(sql, self.settings, self.clock())
                if job is None or (child := start_worker(self.settings)) is None:
                    return False
                assign(sql, job.number, child.pid, self.clock())
        except BaseException:
            if child is not None:
                child.kill()
                child.wait()
            raise
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
            pipe.write(as_text(self.settings))
        threading.Thread(target=self._follow, args=(child,), daemon=True).start()
        return True

    def _follow(self, child: subprocess.Popen[str]) -> None:
        """Waits until a process ends, then gives its place to the next job."""
        child.wait()
        # The server may be gone, and the programme with it; the next request tries again.
        with contextlib.suppress(PrefermabError):
            self.start_waiting()


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


def next_job(sql: sa.Connection, settings: Settings, now: float) -> Any:
    """The job that has waited longest; None if no place is free or no job waits. Jobs whose process
    has ended are marked as lost before, which frees their places."""
    unfinished = sa.select(JOBS).where(JOBS.c.status.in_(UNFINISHED)).order_by(JOBS.c.number)
    running, waiting = 0, []
    for row in sql.execute(unfinished).all():
        if row.status == "waiting":
            waiting.append(row)
        elif is_alive(row, now):
            running += 1
        else:
            why = "its process ended before the work was done; ask for it again."
            given = {"status": "lost", "doing": "lost", "ended": now,
                     "answer": json.dumps({"detail": why})}  # fmt: skip
            sql.execute(JOBS.update().where(JOBS.c.number == row.number).values(given))
            clear_folder(settings, row.number)
    return waiting[0] if waiting and running < settings.jobs else None


def assign(sql: sa.Connection, number: int, pid: int, now: float) -> None:
    """Gives a job to a process of this machine."""
    process = f"{socket.gethostname()} {pid} {process_start(pid)}"
    given = {"status": "running", "process": process, "beat": now, "doing": "starting"}
    sql.execute(JOBS.update().where(JOBS.c.number == number).values(given))


def claim(sql: sa.Connection, settings: Settings, now: float) -> Any:
    """The job that is assigned to this process, or else the one that has waited longest, if a place
    is free; None if there is neither."""
    here = f"{socket.gethostname()} {os.getpid()} {process_start(os.getpid())}"
    mine = sa.select(JOBS).where((JOBS.c.status == "running") & (JOBS.c.process == here))
    job = sql.execute(mine).one_or_none() or next_job(sql, settings, now)
    if job is not None:
        assign(sql, job.number, os.getpid(), now)
    return job


def update_job(sql: sa.Connection, number: int, now: float, **values: Any) -> bool:
    """Stores new values of a running job; returns False, and does nothing, if it was cancelled."""
    mine = (JOBS.c.number == number) & (JOBS.c.status == "running")
    return sql.execute(JOBS.update().where(mine).values(beat=now, **values)).rowcount > 0


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


def kill(row: Any) -> None:
    """Ends the process of a job, if it runs on this machine. A process runs only one job."""
    if row.status == "running":
        host, pid, since = row.process.split()
        if host == socket.gethostname() and process_start(int(pid)) == since:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def start_worker(_: Settings) -> subprocess.Popen[str] | None:
    """Starts a process that reads its settings from its input, where no other process can see them,
    and then runs its job, also if this process ends. None if the system has no room for it."""
    # -P: a file in the present folder must not be imported in place of a module.
    command = [sys.executable, "-P", "-m", "prefermab.service.work.worker"]
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
    except OSError:
        return None


def failure(error: BaseException) -> dict[str, str]:
    """The answer of a job that failed."""
    return {"detail": brief(str(error), 1000)}
