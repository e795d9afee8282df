"""Verbs for models: what ships, training, tuning, comparing."""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import FlagCreatePairsOff, Positional

from prefermab.config import Exact, Paper, Sweep, Tuning


@dataclasses.dataclass(frozen=True)
class Models:
    """The models that ship with the package; with a name, that model's card."""

    name: Positional[str | None] = None
    """A model that ships, or a folder."""
    json: Annotated[bool, FlagCreatePairsOff] = False
    """Print JSON and nothing else on standard output."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.reports import models

        models(self)


@dataclasses.dataclass(frozen=True)
class Pretrain:
    """Train a model on a domain."""

    domain: Positional[str]
    """synthetic, armman, sis, continuous-synthetic or continuous-sis."""
    out: Path
    """Folder to write the model to; with --seeds, one folder in it for each."""
    n_arms: int | None = None
    """Number of arms the model is meant for; the paper's for the domain if left out."""
    budget: float | None = None
    """What may be spent in each round; the paper's for the domain if left out."""
    recipe: str = "exact"
    """How to train: exact, sweep where dynamics can only be sampled, or the paper's Algorithm 1 by
    paper."""
    seed: int = 0
    """Where all randomness starts; the same seed gives the same model."""
    seeds: int = 1
    """Train this many models at once, from `seed` upwards."""
    resume: Annotated[bool, FlagCreatePairsOff] = False
    """Go on with a training that was cut short; it ends in the same weights."""
    tensorboard: Path | None = None
    """Also write TensorBoard event files into this folder."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE")] = ()
    """Settings of the domain, such as population=50 or mix=0.4,0.2,0.4."""
    sweep: Sweep = dataclasses.field(default_factory=Sweep)
    """Hyperparameters of the recipe sweep."""
    exact: Exact = dataclasses.field(default_factory=Exact)
    """Hyperparameters of the recipe exact."""
    paper: Paper = dataclasses.field(default_factory=Paper)
    """Hyperparameters of the recipe paper."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.train import pretrain

        pretrain(self)


@dataclasses.dataclass(frozen=True)
class Finetune:
    """Let a model learn further from arms of its domain; it never gets worse on them."""

    model: Positional[str]
    """A model that ships, or a model's folder."""
    out: Path
    """Folder to write the model to."""
    n_arms: int | None = None
    """Number of arms to learn from; the model's if left out."""
    arms_seed: int = 0
    """Which arms: those that the domain draws from this seed."""
    budget: float | None = None
    """What may be spent in each round; the model's if left out."""
    settings: Annotated[tuple[str, ...], tyro.conf.arg(name="set", metavar="NAME=VALUE")] = ()
    """Settings of the domain that the arms come from, such as shift=0.1, where it differs."""
    tuning: Annotated[Tuning, tyro.conf.arg(name="")] = dataclasses.field(default_factory=Tuning)
    """How to learn."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.train import finetune

        finetune(self)


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Compare a model and policies on the same arms, starts, opt-ins and luck."""

    model: Positional[str]
    """A model that ships, a model's folder, or a domain (then only policies are compared)."""
    against: tuple[str, ...] = ()
    """none, random, round-robin, myopic, whittle, lagrangian; all that fit if left out."""
    n_arms: int | None = None
    """Number of arms; the model's or the paper's if left out."""
    budget: float | None = None
    """What may be spent in each round; the model's or the paper's if left out."""
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
        from prefermab.commands.reports import evaluate

        evaluate(self)
