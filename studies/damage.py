"""Damaged files: how often a flipped bit is noticed, and how readers meet files that are traps."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from prefermab.common.pages import table_as_markdown

TESTS = Path(__file__).parent.parent / "tests"
TRIALS, SEED = 1500, 2026
OUTCOMES = ("the same", "one sentence", "different")


def damage() -> str:
    """Damaged files of every kind, and small files that are very large in memory."""
    sys.path.insert(0, str(TESTS))
    from damage import UNSEEN, write_bombs  # type: ignore[import-not-found]

    rows = [
        [kind, "no" if kind in UNSEEN else "yes", *counts]
        for kind, counts in _counts("flips").items()
    ]
    fuzz = [[kind, *counts] for kind, counts in _counts("fuzz").items()]
    with tempfile.TemporaryDirectory() as folder:
        sizes = write_bombs(Path(folder))
        bombs = [[name, f"{sizes[name]:,}", found] for name, found in _run("bombs", folder).items()]
    return (
        f"One bit of a file is flipped, {TRIALS:,} times over all kinds of file, and the file is "
        "read. *Different* means that it was read as something else without a word: that is "
        "possible only where a file has no checksum of what it holds.\n\n"
        + table_as_markdown(["file", "checksum", *OUTCOMES, "anything else"], rows)
        + f"\nOne to four parts of a file are cut out, repeated or overwritten, {TRIALS:,} times. "
        "A text that was cut short is often a table too.\n\n"
        + table_as_markdown(["file", *OUTCOMES, "anything else"], fuzz)
        + "\nSmall files that are very large in memory, or keep their reader busy, read with 1 GB "
        "of memory and 10 seconds for each.\n\n"
        + table_as_markdown(["file", "bytes", "answer"], bombs)
    )


def _counts(what: str) -> dict[str, list[str]]:
    """How often each outcome came, by kind of file."""
    found = {}
    for kind, counts in _run(what, TRIALS, SEED).items():
        known = [counts.get(outcome, 0) for outcome in OUTCOMES]
        found[kind] = [f"{number:,}" for number in (*known, sum(counts.values()) - sum(known))]
    return found


def _run(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, str(TESTS / "damage.py"), *map(str, arguments)]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    print(*arguments[:1], ran.stdout.strip()[:300], flush=True)
    return json.loads(ran.stdout)
