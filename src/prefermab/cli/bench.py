"""The command `bench`. Its measurements are in the folder `benchmarks` of a checkout."""

import sys
from pathlib import Path

from prefermab.errors import InputError

if not Path(__file__).parents[3].joinpath("benchmarks", "command.py").is_file():
    raise InputError(
        "bench measures a checkout of the source of prefermab, whose folder benchmarks is not "
        "installed: run `make bench` there."
    )
sys.path.insert(0, str(Path(__file__).parents[3]))
from benchmarks.command import BenchCommand

__all__ = ["BenchCommand"]
