"""Commands that train: `pretrain` and `finetune`."""

import contextlib
import dataclasses
import inspect
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, Suppress, arg

from prefermab.cli.options import (
    Amount,
    Flag,
    ModelName,
    OtherDomain,
    SettingsOption,
    Whole,
    option,
    parse_settings,
)
from prefermab.errors import InputError, count, optional, unknown
from prefermab.recipes import BY_NAME, Tuning
from prefermab.recipes.base import choices

if TYPE_CHECKING:
    import polars as pl

    from prefermab.models.model import Model


RECIPES = {name: kind for name, kind in BY_NAME.items() if kind.__module__.startswith("prefermab.")}
"""The recipes that have options here. A recipe that a user defines is used from Python only."""


def as_options(kind: type, doc: str, hidden: tuple[str, ...] = ()) -> type:
    """A dataclass of hyperparameters as options of a command.

    Values are checked when the work starts, not while they are parsed, so that a wrong value gives
    a one-line message. Fields that may be a function in Python accept only a name here.
    """
    texts, values = field_comments(kind), choices(kind)
    options = []
    for field in dataclasses.fields(kind):
        plain = field.type in (int, float, str)
        if field.name in texts or not plain:
            known = values.get(field.name)
            metavar = f"{{{','.join(known)}}}" if known else None
            shown = arg(help=texts.get(field.name), metavar=metavar)
            kept: Any = field.type if plain else str
            options.append((field.name, Annotated[kept, shown], field.default))
    return dataclasses.make_dataclass(
        f"{kind.__name__}Options",
        [*((name, Annotated[int, Suppress], 0) for name in hidden), *options],
        bases=(kind,),
        namespace={"__doc__": doc, "__post_init__": lambda _: None},
        frozen=True,
    )


def field_comments(kind: type) -> dict[str, str]:
    """The texts that stand behind the fields of a dataclass as comments `#: text`, by field; for
    the values of a preset, why they differ."""
    sources = []
    for base in reversed(kind.__mro__[:-1]):
        with contextlib.suppress(OSError):  # without sources there is no help
            sources.append(inspect.getsource(base))
    found = re.findall(r"^    (\w+): .*  #: (.*)$", "\n".join(sources), re.MULTILINE)
    told = {f.name: f.metadata["why"] for f in dataclasses.fields(kind) if "why" in f.metadata}
    return {**dict(found), **told}


def recipe_options() -> type:
    """A dataclass with a field for each recipe; the seed is an option of the command itself."""
    fields = []
    for name, recipe in RECIPES.items():
        summary = (recipe.__doc__ or "").partition("\n\n")[0]
        kind = as_options(recipe, f"Recipe {name}: {summary}", hidden=("seed",))
        fields.append((name.replace("-", "_"), kind, dataclasses.field(default_factory=kind)))
    return dataclasses.make_dataclass("RecipeOptions", fields, frozen=True)


RecipeOptions = recipe_options()
TuningOptions = as_options(Tuning, "Settings of the training.")


@dataclasses.dataclass(frozen=True)
class PretrainCommand:
    """Train a model on a domain."""

    domain: Annotated[Positional[str], arg(metavar="DOMAIN")]
    """synthetic, armman, sis, continuous-synthetic, continuous-sis,
    or a class in your own file, such as presses.py:Presses.
    The file is executed: name only files that you trust."""
    out: Path
    """Folder to write the model to; with --seeds, it gets one folder for each model."""
    n_arms: Whole = None
    """Number of arms to train for. Default: as in the paper for this domain."""
    budget: Amount = None
    """Budget of each round. Default: as in the paper for this domain."""
    recipe: Annotated[str, arg(metavar=f"{{{','.join(RECIPES)}}}")] = "exact"
    """Training method; each recipe is described below."""
    seed: int = 0
    """Random seed; the same seed gives the same model."""
    seeds: int = 1
    """Train this many models at once, with seeds from --seed upwards."""
    resume: Flag = False
    """Continue an interrupted training; the weights become the same as without a break."""
    overwrite: Flag = False
    """Replace the model in the folder."""
    tensorboard: Annotated[Path | None, option("PATH")] = None
    """Also write TensorBoard event files to this folder."""
    settings: SettingsOption = ()
    recipes: Annotated[object, arg(name="", constructor=RecipeOptions)] = dataclasses.field(
        default_factory=RecipeOptions
    )
    """Hyperparameters of the recipes."""

    def run(self) -> None:
        """Trains and saves; an interrupted training can be resumed."""
        from prefermab import domains
        from prefermab.cli.terminal import progress
        from prefermab.common.files import use_compilation_cache
        from prefermab.training.pretraining import TrainingError, pretrain_seeds

        use_compilation_cache()
        domain = domains.get(self.domain, **parse_settings(self.settings))
        hyper = chosen_hyperparameters(self)
        seeds = range(self.seed, self.seed + count(self.seeds, "seeds"))
        for seed in seeds:
            check_folder(self.folder(seed), self.overwrite)
        if self.tensorboard is not None:
            check_events()
        checkpoint = self.out.with_name(self.out.name + ".checkpoint")
        check_checkpoint(checkpoint, self.resume)
        failure = None
        with progress() as report, hint_to_resume(checkpoint):
            try:
                trained = pretrain_seeds(
                    domain, list(seeds), self.recipe, n_arms=self.n_arms, budget=self.budget,
                    progress=report, checkpoint=checkpoint, resume=self.resume, **hyper,
                )  # fmt: skip
            except TrainingError as error:
                trained, failure = list(error.sound), error
        for model in trained:
            save_model(model, self.folder(model.config.seed), self.tensorboard)
        if failure is not None:
            raise failure
        more = "" if self.domain in domains.BY_NAME else domain_options(self)
        print(f"Compare it with other policies: prefermab evaluate {self.folder(self.seed)}{more}")

    def folder(self, seed: int) -> Path:
        """The folder of the model with this seed."""
        return self.out if self.seeds == 1 else self.out / f"seed-{seed}"


@dataclasses.dataclass(frozen=True)
class FinetuneCommand:
    """Train a model further on given arms.

    The new model is kept only if it earns more on these arms than the old one.
    """

    model: ModelName
    out: Path
    """Folder to write the model to."""
    overwrite: Flag = False
    """Replace the model in the folder."""
    n_arms: Whole = None
    """Number of arms to train on. Default: the model's number."""
    arms_seed: int = 0
    """Random seed for drawing the arms from the domain."""
    budget: Amount = None
    """Budget of each round. Default: the model's budget."""
    domain: OtherDomain = None
    settings: SettingsOption = ()
    tuning: Annotated[Tuning, arg(name="", constructor=TuningOptions)] = dataclasses.field(
        default_factory=TuningOptions
    )
    """Settings of the training."""

    def run(self) -> None:
        """Trains on arms drawn from the domain, and saves the model."""
        import jax

        from prefermab.cli.evaluate import model_and_domain
        from prefermab.cli.terminal import progress
        from prefermab.common.files import use_compilation_cache
        from prefermab.training.finetuning import finetune

        use_compilation_cache()
        model, domain = model_and_domain(self.model, parse_settings(self.settings), self.domain)
        if model is None:
            raise InputError(f"{self.model} is a domain, not a model: see prefermab models.")
        check_folder(self.out, self.overwrite)
        n_arms = count(model.n_arms if self.n_arms is None else self.n_arms, "n_arms")
        key = jax.random.key(count(self.arms_seed, "arms_seed", at_least=0))
        arms = domain.draw_arms(key, n_arms)
        with progress() as report:
            tuned = finetune(
                model, domain, arms=arms, budget=self.budget, progress=report,
                **dataclasses.asdict(self.tuning),
            )  # fmt: skip
        print(tuned.tuned)
        save_model(tuned, self.out, None)


def chosen_hyperparameters(options: PretrainCommand) -> dict[str, Any]:
    """The hyperparameters of the chosen recipe; raises an error if those of another were given."""
    if options.recipe not in RECIPES:
        raise unknown("recipe", options.recipe, RECIPES)
    for name in RECIPES:
        given = getattr(options.recipes, name.replace("-", "_"))
        if name != options.recipe and given != type(given)():
            raise InputError(
                f"--{name}... sets the recipe {name}, but the recipe is {options.recipe}: add "
                f"--recipe {name}."
            )
    hyper = dataclasses.asdict(getattr(options.recipes, options.recipe.replace("-", "_")))
    del hyper["seed"]  # each model has a different seed
    return hyper


def domain_options(options: PretrainCommand) -> str:
    """The options of `evaluate` for a domain from the user's file."""
    changes = "".join(f" {shlex.quote(change)}" for change in options.settings)
    return f" --domain {shlex.quote(options.domain)}{' --set' if changes else ''}{changes}"


def save_model(model: "Model", folder: Path, events: Path | None) -> None:
    """Saves a model with its metrics and a picture of them."""
    from prefermab.common import plots

    model.save(folder)
    if model.history is not None:
        with contextlib.suppress(plots.NoPlotsError):
            plots.save_figure(plots.curves(model.history), folder / "curves.svg")
        if events is not None:
            write_events(model.history, events / folder.name)
    print(f"saved {folder}")


def check_folder(out: Path, overwrite: bool) -> None:
    """Raises an error, before the work, if a model cannot be written to the folder."""
    from prefermab.models.saving import check_place

    if out.is_file():
        raise InputError(f"cannot save to {out}: it is a file.")
    check_place(out)
    if (out / "config.json").exists() and not overwrite:
        raise InputError(
            f"{out} holds a model already: add --overwrite to replace it, or choose another folder."
        )


def check_checkpoint(checkpoint: Path, resume: bool) -> None:
    """Raises an error if there is a checkpoint without --resume, or the other way round."""
    if checkpoint.exists() and not resume:
        raise InputError(
            f"{checkpoint} holds an interrupted training: add --resume to continue it, or delete "
            "it to start again."
        )
    if resume and not checkpoint.exists():
        raise InputError(f"--resume: there is no interrupted training at {checkpoint}.")


@contextlib.contextmanager
def hint_to_resume(checkpoint: Path) -> Iterator[None]:
    """After Ctrl-C, prints how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint.exists():
            print(f"{checkpoint} is kept: continue with --resume.", file=sys.stderr)
        raise


def check_events() -> None:
    """Raises an error if the extra for TensorBoard event files is not installed."""
    optional("tensorboardX", "tensorboard", "--tensorboard")


def write_events(history: "pl.DataFrame", folder: Path) -> None:
    """Writes metrics as TensorBoard event files. The first column is the step of all others."""
    check_events()
    from tensorboardX import SummaryWriter

    count, *metrics = [name for name in history.columns if name != "seed"]
    try:
        with SummaryWriter(str(folder)) as writer:
            for row in history.iter_rows(named=True):
                for name in metrics:
                    writer.add_scalar(name, row[name], row[count])
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}.") from None
