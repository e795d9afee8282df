"""Verbs that show what it can do: the demo, the paper, speed."""

import dataclasses
import os
from pathlib import Path
from typing import Annotated

from prefermab.verbs.options import Flag, Json, Many, Names, shown


@dataclasses.dataclass(frozen=True)
class Demo:
    """The main job in a minute: ten weeks of a health programme, then the comparison."""

    out: Path = Path("prefermab-demo.png")
    """Where the picture goes (.png, .svg or .pdf)."""
    trials: int = 1000
    """How many programmes are drawn."""
    seed: int = 0
    """Where all randomness starts."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.demo import demo

        demo(self)


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Every table and figure of the paper, worked out again and laid beside the published ones."""

    out: Path = Path("report")
    """Folder to write the report to: index.html, README.md, cells.json and the figures."""
    only: Names = ()
    """Parts of it: table1 to table16, figure1 to figure4, prop1."""
    recipe: str = "all"
    """paper, sweep, exact, both (paper and sweep) or all."""
    seeds: int = 8
    """Training seeds."""
    trials: int = 1000
    """Paired trials of each cell; a fifth of them on epidemics."""
    quick: Flag = False
    """A small version of everything, to see that it works."""
    cache: Annotated[Path | None, shown("PATH")] = None
    """Where what is done is kept, so that a second run goes on; the user's cache if left out."""
    engine: str = "local"
    """local, or ray to use a Ray cluster whose machines share the folder of --cache."""
    workers: Many = None
    """For the engine ray: cores to use; all if left out."""
    json: Json = False

    def run(self) -> None:
        """Runs the verb."""
        if self.quick:
            # Small work is mostly compiling: better code would cost more than it saves.
            os.environ.setdefault(
                "XLA_FLAGS",
                "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
                "--xla_cpu_parallel_codegen_split_count=1",
            )
        from prefermab.commands.reproduce import reproduce

        reproduce(self)


@dataclasses.dataclass(frozen=True)
class Bench:
    """Measure how fast this machine trains, decides and plans, beside what it could do at most."""

    only: Names = ()
    """start, train, evaluate, act, plan, whittle, bound; all if left out."""
    largest: int = 10_000_000
    """The most arms at once."""
    out: Annotated[Path | None, shown("PATH")] = None
    """Where to write the figures as JSON."""
    compare: Annotated[Path | None, shown("PATH")] = None
    """Figures of an earlier run to compare with."""
    threshold: float = 1.5
    """How many times the seconds of before are too many."""
    json: Json = False

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.bench import bench

        bench(self)
