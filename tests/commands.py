"""The command line as tests call it: in this process, or in one of its own."""

import io
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

from prefermab.cli import run_command


def run(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command line, in this process."""
    words, told, errors, status = list(map(str, arguments)), io.StringIO(), io.StringIO(), 0
    with chdir(folder), redirect_stdout(told), redirect_stderr(errors):
        try:
            run_command(words)
        except SystemExit as end:
            status = int(end.code or 0)
    return subprocess.CompletedProcess(words, status, told.getvalue(), errors.getvalue())


def run_apart(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own."""
    command = [sys.executable, "-m", "prefermab", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)
