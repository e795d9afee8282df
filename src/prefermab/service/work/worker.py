"""The process that runs a job: `python -m prefermab.service.work.worker`.

It reads its settings from its input, runs one job and ends. It may be killed at any moment.
"""

import contextlib
import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefermab.common.files import use_compilation_cache
from prefermab.errors import PrefermabError
from prefermab.programme.store import Programme
from prefermab.programme.store.connections import parse_place
from prefermab.service.auth.database import Records
from prefermab.service.auth.settings import Clock, Settings, from_text
from prefermab.service.http.tables import quiet
from prefermab.service.work import jobs
from prefermab.service.work.changes import ListChange, change_list
from prefermab.service.work.plan_requests import compare_budgets, facts_of, make_plan, rules_of

OnProgress = Callable[[float, str], None]
NICENESS = 10
"""The niceness of job processes: requests get the processors first."""

PATIENCE = 100.0
"""Seconds that a job waits for other plans and writers, if the server waits less: nobody waits for
its answer at a page. It is less than `jobs.LOST_AFTER`."""

REPORT_EVERY = 1.0
"""Least seconds between two reports of progress."""

BEAT_EVERY = 10.0
"""Seconds between two signs of life to other machines."""


def main() -> None:
    """Runs the job of this process."""
    text = sys.stdin.read()
    if not text:
        return  # the server ended before the job was stored
    lower_priority()
    use_compilation_cache()
    settings = from_text(text)[0]
    records = Records(settings.place, settings.wait)
    try:
        work(records, settings, time.time)
    finally:
        records.close()


def lower_priority() -> None:
    """Lowers the priority of this process, so that requests get the processors first."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    # Linux may share processors between sessions first, and a job is a session of its own.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS))


def work(records: Records, settings: Settings, clock: Clock, model: Any = None) -> bool:
    """Runs the job of this process, or else the one that has waited longest; returns whether there
    was one.

    Args:
        records: The tables of the service.
        settings: The server's settings.
        clock: Returns the time in seconds since 1970.
        model: The model of the programme; by default the one stored with it.
    """
    with records.writing() as sql:
        job = jobs.claim(sql, settings, clock())
    if job is None:
        return False
    ended, last = threading.Event(), [0.0]
    # On other machines nobody can see whether this process is alive, or kill it.
    if parse_place(settings.place).path is None:
        given = (settings, job.number, clock, ended)
        threading.Thread(target=beat, args=given, daemon=True).start()

    def progress(share: float, doing: str) -> None:
        now = clock()
        if now - last[0] >= REPORT_EVERY or share >= 1:
            last[0] = now
            # A job must not fail because its progress could not be stored.
            with contextlib.suppress(PrefermabError), records.writing() as sql:
                jobs.update_job(sql, job.number, now, share=min(share, 0.99), doing=doing)

    try:
        progress(0.01, "opening the programme")
        given = {"wait": max(settings.wait, PATIENCE), "who": job.name}
        with quiet(), Programme.open(settings.place, model, **given) as programme:
            folder = jobs.folder_of(settings, job.number)
            answer = JOB_FUNCTIONS[job.kind](programme, json.loads(job.asked), progress, folder)
        end = {"status": "done", "share": 1.0, "doing": "done", "answer": json.dumps(answer)}
    except PrefermabError as error:
        end = {"status": "failed", "doing": "failed", "answer": json.dumps(jobs.failure(error))}
    except Exception:
        logging.getLogger("prefermab.service").exception("job %s failed", job.number)
        why = {"detail": "something failed here; the server's log has more."}
        end = {"status": "failed", "doing": "failed", "answer": json.dumps(why)}
    finally:
        ended.set()
    with records.writing() as sql:
        jobs.update_job(sql, job.number, clock(), ended=clock(), **end)
    return True


def beat(settings: Settings, number: int, clock: Clock, ended: threading.Event) -> None:
    """Gives signs of life until the job has ended; ends this process if the job was cancelled."""
    records = Records(settings.place, settings.wait)
    while not ended.wait(BEAT_EVERY):
        with contextlib.suppress(PrefermabError), records.writing() as sql:
            if not jobs.update_job(sql, number, clock()) and not ended.is_set():
                os._exit(1)


def plan_job(
    programme: Programme, asked: dict[str, Any], progress: OnProgress, _: Path
) -> dict[str, Any]:
    """Plans the current round, or changes its list by hand."""
    progress(0.1, "planning")
    if "change" in asked:
        return facts_of(change_list(programme, ListChange(**asked["change"])))
    return facts_of(make_plan(programme, asked))


def replay_job(
    programme: Programme, asked: dict[str, Any], progress: OnProgress, _: Path
) -> dict[str, Any]:
    """Makes a plan again and compares it."""
    progress(0.1, "planning again")
    plan = programme.replay(asked["round"], asked.get("attempt"))
    return facts_of(plan) | {"people": plan.frame.height}


def what_if_job(
    programme: Programme, asked: dict[str, Any], progress: OnProgress, _: Path
) -> dict[str, Any]:
    """Compares budgets."""
    progress(0.1, "planning")
    return {"budgets": compare_budgets(programme, asked["budgets"], rules_of(asked)).to_dicts()}


def learn_job(
    programme: Programme, asked: dict[str, Any], progress: OnProgress, folder: Path
) -> dict[str, Any]:
    """Learns a model from the programme's own log. Its folder appears complete, with the report, or
    not at all."""
    from prefermab.programme.learning.learn import learn

    progress(0.02, "reading the log")
    log = programme.history().log
    passive = programme.model.action_names[0]
    result = learn(
        log, passive=passive, **asked,
        progress=lambda share, doing: progress(0.05 + 0.9 * share, doing),
    )  # fmt: skip
    draft = jobs.draft_of(folder) / folder.name
    shutil.rmtree(draft.parent, ignore_errors=True)
    result.model.save(draft)
    result.report(draft / "report")
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    draft.parent.rmdir()
    return {"model": folder.name, "verdict": str(result.verdict), **result.as_data()}


JOB_FUNCTIONS: dict[
    str, Callable[[Programme, dict[str, Any], OnProgress, Path], dict[str, Any]]
] = {
    "plan": plan_job,
    "replay": replay_job,
    "what-if": what_if_job,
    "learn": learn_job,
}
assert set(JOB_FUNCTIONS) == set(jobs.JOB_KINDS)

if __name__ == "__main__":
    main()
