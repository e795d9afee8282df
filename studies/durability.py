"""Checks that a programme loses nothing when its process or server is killed, or many use it."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from prefermab.pages import table_as_markdown

TESTS = Path(__file__).parent.parent / "tests"
KILLS, OUTAGES, PROCESSES, SECONDS, SEED, FLIPS = 200, 20, 8, 120, 1000, 1500


def durability() -> str:
    """Processes and servers killed at random moments, many processes at once, and flipped bits."""
    sys.path.insert(0, str(TESTS))
    from servers import running  # type: ignore[import-not-found]

    killed, crowds = [], []
    with tempfile.TemporaryDirectory() as folder, running() as server:
        flips = _run("damage", folder, FLIPS, SEED)
        for name, place in (("SQLite", folder), ("PostgreSQL", server.address)):
            counts = _run("kill", place, KILLS, SEED)
            killed.append([name, "the process", *_kills(counts)])
            crowds.append([name, *_crowd(_run("crowd", place, PROCESSES, SECONDS))])
    counts = _run("outage", "own", OUTAGES, SEED)
    killed.append(["PostgreSQL", "the server", *_kills(counts)])
    head = ["database", "killed", "times", "calls confirmed", "lost", "under way", "of them kept"]
    many = ["database", "changes confirmed", "lost", "reads", "refused", "busy", "other errors",
            "rounds", "plans valid in a round"]  # fmt: skip
    return (
        "A process joins, leaves, observes, plans and records without end, says before each call "
        "what it will do and after it that it was confirmed, and is killed (SIGKILL) at a random "
        "moment; then plain SQL must find all that was confirmed, and the call that was under way "
        "wholly or not at all. In the last row all processes of the PostgreSQL server are killed "
        "instead, and it is started again. A run stops at the first thing that is lost.\n\n"
        + table_as_markdown(head, killed)
        + f"\n{PROCESSES} processes do any of this to one programme for {SECONDS} seconds. "
        "Refused are calls at a wrong moment, such as a record of a round without a plan; each "
        "waits at most 5 seconds for the others and is busy then. Afterwards everybody who joined "
        "is there, each round has one valid plan, and the audit log has a row for each change and "
        "verifies.\n\n" + table_as_markdown(many, crowds) + _flips(flips)
    )


def _flips(counts: dict[str, int]) -> str:
    head = ["bits flipped", "one sentence", "all as before", "of these found by verify",
            "silently different", "tracebacks"]  # fmt: skip
    names = ("trials", "told", "same", "verify", "silent", "traceback")
    return (
        "\nIn each trial one random bit of a SQLite file is flipped: a programme with people, "
        "plans, records, a correction and its audit log. Then everything is read: people, states, "
        "logs, plans, and the plan of the round again. Either one sentence says that the file is "
        "damaged, or all is as before, because nothing of it uses that bit.\n\n"
        + table_as_markdown(head, [[f"{counts[name]:,}" for name in names]])
    )


def _run(*arguments: object) -> dict[str, Any]:
    """Runs a test program of `tests/programmes.py`, which fails if something is lost."""
    command = [sys.executable, str(TESTS / "programmes.py"), *map(str, arguments)]
    limited = {**os.environ, "POLARS_MAX_THREADS": "1"}
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=limited)
    print(*arguments[:1], ran.stdout.strip(), flush=True)
    return json.loads(ran.stdout)


def _kills(counts: dict[str, int]) -> list[str]:
    names = ("kills", "confirmed", "lost", "under_way", "of_them_held")
    return [f"{counts.get(name, 0):,}" for name in names]


def _crowd(counts: dict[str, int]) -> list[str]:
    changes = sum(counts.get(what, 0) for what in ("join", "leave", "observe", "plan", "record"))
    rest = [counts.get(what, 0) for what in ("look", "refused", "busy", "error")]
    # Nothing lost and one valid plan in each round: otherwise the program fails.
    return [f"{number:,}" for number in (changes, 0, *rest, counts["rounds"])] + ["1"]
