"""Verbs for models: what ships, training, tuning, comparing."""

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, Suppress, arg

from prefermab.config import Exact, Paper, Sweep, Tuning
from prefermab.verbs.options import (
    Flag,
    Json,
    Many,
    Model,
    ModelOrDomain,
    Money,
    Names,
    Own,
    Plot,
    Settings,
    shown,
)


@dataclasses.dataclass(frozen=True)
class Models:
    """The models that ship with the package; with a name, that model's card."""

    name: Annotated[Positional[str | None], shown("MODEL")] = None
    """A model that ships, or a folder."""
    json: Json = False

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.reports import models

        models(self)


@dataclasses.dataclass(frozen=True)
class SweepOptions(Sweep):
    """Of the recipe sweep."""

    seed: Annotated[int, Suppress] = 0


@dataclasses.dataclass(frozen=True)
class ExactOptions(Exact):
    """Of the recipe exact."""

    seed: Annotated[int, Suppress] = 0


@dataclasses.dataclass(frozen=True)
class PaperOptions(Paper):
    """Of the recipe paper."""

    seed: Annotated[int, Suppress] = 0


@dataclasses.dataclass(frozen=True)
class Pretrain:
    """Train a model on a domain."""

    domain: Annotated[Positional[str], arg(metavar="DOMAIN")]
    """synthetic, armman, sis, continuous-synthetic, continuous-sis, or a domain of your own such as
    presses.py:Presses (the file is executed: name only files that you trust)."""
    out: Path
    """Folder to write the model to; with --seeds, one folder in it for each."""
    n_arms: Many = None
    """Number of arms the model is meant for; the paper's for the domain if left out."""
    budget: Money = None
    """What may be spent in each round; the paper's for the domain if left out."""
    recipe: str = "exact"
    """How to train: exact; sweep, where dynamics can only be sampled; or paper, Algorithm 1."""
    seed: int = 0
    """Where all randomness starts; the same seed gives the same model."""
    seeds: int = 1
    """Train this many models at once, from `seed` upwards."""
    resume: Flag = False
    """Go on with a training that was cut short; it ends in the same weights."""
    overwrite: Flag = False
    """Replace the model that the folder holds."""
    tensorboard: Annotated[Path | None, shown("PATH")] = None
    """Also write TensorBoard event files into this folder."""
    settings: Settings = ()
    sweep: SweepOptions = dataclasses.field(default_factory=SweepOptions)
    """Hyperparameters of the recipe sweep."""
    exact: ExactOptions = dataclasses.field(default_factory=ExactOptions)
    """Hyperparameters of the recipe exact."""
    paper: PaperOptions = dataclasses.field(default_factory=PaperOptions)
    """Hyperparameters of the recipe paper."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.train import pretrain

        pretrain(self)


@dataclasses.dataclass(frozen=True)
class Finetune:
    """Let a model learn further from arms of its domain; it never gets worse on them."""

    model: Model
    out: Path
    """Folder to write the model to."""
    overwrite: Flag = False
    """Replace the model that the folder holds."""
    n_arms: Many = None
    """Number of arms to learn from; the model's if left out."""
    arms_seed: int = 0
    """Which arms: those that the domain draws from this seed."""
    budget: Money = None
    """What may be spent in each round; the model's if left out."""
    domain: Own = None
    settings: Settings = ()
    """Settings of the domain that the arms come from, such as shift=0.1, where it differs."""
    tuning: Annotated[Tuning, arg(name="")] = dataclasses.field(default_factory=Tuning)
    """How to learn."""

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.train import finetune

        finetune(self)


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Compare a model and policies on the same arms, starts, opt-ins and luck."""

    model: ModelOrDomain
    against: Names = ()
    """none, random, round-robin, myopic, whittle, lagrangian; all that fit if left out, lagrangian
    only where there are not very many states."""
    n_arms: Many = None
    """Number of arms; the model's or the paper's if left out."""
    budget: Money = None
    """What may be spent in each round; the model's or the paper's if left out."""
    opt_in: tuple[float, ...] = (1.0,)
    """Shares of the arms that are in, each evaluated."""
    trials: int = 1000
    """How many times new arms are drawn and played."""
    rounds: int = 9
    """Decisions in a trial."""
    seed: int = 0
    """Where all randomness starts; the same seed gives the same figures."""
    domain: Own = None
    settings: Settings = ()
    bound: bool = True
    """Work out the upper bound that no policy passes on average; with very many states, as in sis,
    for a fifth of the trials, since it takes longer than all the rest."""
    json: Json = False
    plot: Plot = None

    def run(self) -> None:
        """Runs the verb."""
        from prefermab.commands.reports import evaluate

        evaluate(self)
