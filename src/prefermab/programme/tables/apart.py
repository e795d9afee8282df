"""Reads a table in a process of its own, with a limit of memory and of time.

A file can be made so that reading it takes all memory, or ends the process. The process that reads
imports only what reading needs: it starts in a fifth of a second.
"""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import polars as pl

from prefermab.errors import InputError, InputWarning, PrefermabError
from prefermab.programme.tables.objects import read_objects
from prefermab.programme.tables.table import read_table

REFUSED, WARNING = 3, "warning: "
"""The exit status of a process that refused its file, and how its lines with warnings begin."""


def read_any(file: Path) -> pl.DataFrame:
    """Reads a table as `read_table` does, or from JSON if the file's name ends in .json."""
    return read_objects(file) if file.suffix.lower() == ".json" else read_table(file)


def read_apart(file: Path, *, memory: int, seconds: float) -> pl.DataFrame:
    """Reads a table in another process.

    Args:
        file: A file that `read_any` reads.
        memory: The most bytes of memory that the process may take, where the system can limit it.
        seconds: The most seconds that it may take.

    Returns:
        The table.

    >>> import pathlib, tempfile
    >>> from prefermab.programme.tables.apart import read_apart
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = file.write_text("id,state\\n7,good\\n")
    >>> read_apart(file, memory=1 << 30, seconds=10)["state"].to_list()
    ['good']
    """
    with tempfile.TemporaryDirectory(prefix="prefermab-") as folder:
        out = Path(folder) / "table.arrow"
        given = (str(file), str(out), str(memory), str(seconds))
        command = [sys.executable, "-P", "-m", "prefermab.programme.tables.apart", *given]
        # Each thread of polars takes memory of its own.
        environment = {**os.environ, "POLARS_MAX_THREADS": "2", "PYTHONIOENCODING": "utf-8"}
        try:
            ran = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, env=environment,
                timeout=seconds, check=False, encoding="utf-8", errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise InputError(f"{file}: reading it takes longer than {seconds:g} seconds.") from None
        said = ran.stdout.splitlines()
        if ran.returncode == REFUSED and said:
            raise InputError(said[-1])
        if ran.returncode:
            raise InputError(
                f"{file}: it cannot be read with {memory >> 20:,} MB of memory; it is too large, "
                "or damaged."
            )
        for line in said:
            warnings.warn(line.removeprefix(WARNING), InputWarning, stacklevel=2)
        return pl.read_ipc(io.BytesIO(out.read_bytes()))


def main(file: str, out: str, memory: str, seconds: str) -> int:
    """What the other process does: it writes the table to `out`, and says why if it cannot."""
    _limit(int(memory), float(seconds))
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            frame = read_any(Path(file))
        frame.rechunk().write_ipc(out)
    except PrefermabError as error:
        print(error)
        return REFUSED
    for one in found:
        if issubclass(one.category, InputWarning):
            print(f"{WARNING}{one.message}")
    return 0


def _limit(memory: int, seconds: float) -> None:
    """Limits memory and processor time of this process; no memory is written out if it ends."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # If whoever waits is gone, this process ends too: two threads take twice the time.
        resource.setrlimit(resource.RLIMIT_CPU, (int(3 * seconds) + 1, int(3 * seconds) + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
