"""The command line: each verb is a dataclass whose fields are its options.

JAX is imported by the verb that needs it, so that help is instant.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import FlagCreatePairsOff, Positional

from prefermab.errors import InputError


@dataclasses.dataclass(frozen=True)
class Demo:
    """The main job in a minute: policies compared on a health programme, and the picture."""

    out: Path = Path("prefermab-demo.png")
    """Where the picture goes (.png, .svg or .pdf)."""
    trials: int = 1000
    """How many programmes are drawn."""
    seed: int = 0
    """Where all randomness starts."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands import demo

        demo(self)


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Compare policies on the same arms, starts, opt-ins and luck."""

    domain: Positional[str]
    """synthetic, armman, sis, continuous-synthetic or continuous-sis."""
    against: tuple[str, ...] = ()
    """none, random, round-robin, myopic, whittle, lagrangian; all that fit if left out."""
    n_arms: int | None = None
    """Number of arms; the paper's for the domain if left out."""
    budget: float | None = None
    """What may be spent in each round; the paper's for the domain if left out."""
    opt_in: tuple[float, ...] = (1.0,)
    """Shares of the arms that are in, each evaluated."""
    trials: int = 1000
    """How many times new arms are drawn and played."""
    rounds: int = 9
    """Decisions in a trial."""
    seed: int = 0
    """Where all randomness starts; the same seed gives the same figures."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE")] = ()
    """Settings of the domain, such as population=50 or mix=0.4,0.2,0.4."""
    bound: bool = True
    """Compute the upper bound that no policy can pass."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Print JSON and nothing else on standard output."""
    plot: Path | None = None
    """Also draw the comparison to this file (.png, .svg or .pdf)."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands import evaluate

        evaluate(self)


Verb = Demo | Evaluate


def main() -> None:
    """Runs the command line; exit status 0, 2 on bad input, 130 on Ctrl-C."""
    try:
        verb = tyro.cli(
            Verb,
            prog="prefermab",
            description="Give a limited resource, round after round, to some of many.",
            args=sys.argv[1:] or ["--help"],
        )
        verb.run()
    except InputError as error:
        print(f"prefermab: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("prefermab: interrupted.", file=sys.stderr)
        sys.exit(130)
