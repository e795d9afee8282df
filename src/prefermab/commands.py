"""What the verbs of the command line do."""

import ast
import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import platformdirs
import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from prefermab import cli, domains, opt_in, plots, policies
from prefermab.config import RECIPES
from prefermab.domains import Domain
from prefermab.errors import InputError, count, unknown
from prefermab.evaluation import Progress as Report
from prefermab.evaluation import evaluate as compare
from prefermab.model import Model
from prefermab.oracles.lagrangian import joins
from prefermab.rollout import draw_world, play
from prefermab.storage import describe, domain_settings, load, shipped_models
from prefermab.training import pretrain_seeds


def demo(options: cli.Demo) -> None:
    """Runs a streaming programme with the shipped model, then compares and draws."""
    use_compilation_cache()
    picture = plots.check_target(options.out)
    model = load("armman")
    domain = domains.Armman()
    console = Console(highlight=False)
    console.print(
        "Up to 25 mothers hear health messages and drift in and out of listening. There\n"
        "is time for 7 calls a week: whom to call? The model has never seen any of them.\n"
    )
    console.print(weeks(model, domain, options.seed))
    console.print(
        f"\n{options.trials:,} programmes of 25 mothers and 9 weeks. Every policy meets the same\n"
        "people and the same luck; whittle and myopic know everyone's true dynamics.\n"
    )
    compared = {"prefermab": model}
    compared |= {name: policies.BY_NAME[name]() for name in ("none", "random", "myopic", "whittle")}
    with progress() as report:
        frame = compare(
            domain,
            compared,
            n_arms=25,
            budget=7,
            opt_in=(0.8, 1.0),
            trials=options.trials,
            seed=options.seed,
            progress=report,
        )
    console.print(table(frame))
    plots.save(plots.comparison(frame, "Whom to call: 25 mothers, 7 calls a week"), picture)
    console.print(
        f"\nThe picture is in {picture}.\nNext, on another domain: prefermab evaluate sis"
    )


def weeks(model: Model, domain: Domain, seed: int) -> Table:
    """Ten weeks of a programme with 25 places in which people come and go, one row a week."""
    key_people, key_world, key_policy = jax.random.split(jax.random.key(seed), 3)
    process = opt_in.Streaming(stay=0.9, newcomers=2.5)
    schedule = process.schedule(key_people, n_arms=25, n_rounds=10)
    world = draw_world(key_world, domain, schedule)
    played = play(model.policy, domain, world, jnp.asarray(7.0), key_policy)
    joined = np.asarray(joins(schedule)).sum(axis=1)
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("week", "in the programme", "joined", "calls", "mean engagement"):
        shown.add_column(heading, justify="right")
    for week, (there, new, calls, reward) in enumerate(
        zip(played.opted_in, joined, played.spent, played.reward, strict=True), start=1
    ):
        shown.add_row(
            str(week), str(int(there)), str(int(new)), f"{calls:.0f}", f"{reward / there:.2f}"
        )
    return shown


def models(options: cli.Models) -> None:
    """Lists what ships, or prints a card."""
    if options.name is not None:
        model = load(options.name)
        print(json.dumps(describe(model), indent=2) if options.json else model.card)
        return
    found = {name: load(name) for name in shipped_models()}
    if options.json:
        print(json.dumps({name: describe(model) for name, model in found.items()}, indent=2))
        return
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("model", "domain", "recipe", "features", "actions"):
        shown.add_column(heading)
    for name, model in found.items():
        features, actions = str(len(model.feature_names)), ", ".join(model.action_names)
        shown.add_row(name, model.domain_name, model.recipe, features, actions)
    Console().print(shown)
    print("\nA model's card: prefermab models NAME")


def pretrain(options: cli.Pretrain) -> None:
    """Trains and saves."""
    use_compilation_cache()
    domain = domains.get(options.domain, **settings(options.settings))
    if options.recipe not in RECIPES:
        raise unknown("recipe", options.recipe, RECIPES)
    hyper = dataclasses.asdict(getattr(options, options.recipe))
    del hyper["seed"]
    seeds = range(options.seed, options.seed + count(options.seeds, "seeds"))
    if options.out.is_file():
        raise InputError(f"cannot save to {options.out}: it is a file.")
    with progress() as report:
        trained = pretrain_seeds(
            domain,
            list(seeds),
            options.n_arms,
            options.budget,
            options.recipe,
            progress=report,
            **hyper,
        )
    folders = (
        [options.out / f"seed-{seed}" for seed in seeds] if options.seeds > 1 else [options.out]
    )
    for folder, model in zip(folders, trained, strict=True):
        model.save(folder)
        print(f"saved {folder}")
    print(f"See how good it is: prefermab evaluate {folders[0]}")


def evaluate(options: cli.Evaluate) -> None:
    """Compares a model and policies on a domain; prints a table or JSON, and draws on request."""
    use_compilation_cache()
    if options.plot is not None:
        plots.check_target(options.plot)
    model, domain = model_and_domain(options.model, settings(options.settings))
    chosen = chosen_policies(options.against, domain)
    n_arms, budget = domain.usual_arms, domain.usual_budget
    if model is not None:
        n_arms, budget = model.n_arms, model.budget
    n_arms = n_arms if options.n_arms is None else options.n_arms
    budget = budget if options.budget is None else options.budget
    with progress() as report:
        frame = compare(
            domain,
            chosen if model is None else {"prefermab": model, **chosen},
            n_arms=n_arms,
            budget=budget,
            opt_in=options.opt_in,
            trials=options.trials,
            seed=options.seed,
            rounds=options.rounds,
            bound=options.bound,
            progress=report,
        )
    if options.json:
        told = {"domain": domain.name, "n_arms": n_arms, "budget": budget, "seed": options.seed}
        print(json.dumps({**told, "rows": frame.to_dicts()}, indent=2))
    else:
        Console().print(table(frame, f"{domain.name}: {n_arms} arms, budget {budget:g}"))
    if options.plot is not None:
        title = f"{domain.name}: {n_arms} arms, budget {budget:g}, {options.trials} trials"
        plots.save(plots.comparison(frame, title), options.plot)


def model_and_domain(name: str, changes: dict[str, Any]) -> tuple[Model | None, Domain]:
    """The model of that name or folder and the domain to meet it on, or a domain alone."""
    known = {**dict.fromkeys(domains.BY_NAME), **shipped_models()}
    if name not in known and not Path(name).exists():
        raise unknown("model or domain", name, known)
    if known.get(name, name) is None:
        return None, domains.get(name, **changes)
    model = load(name)
    if model.domain is None:
        raise InputError(
            f"the model {name} was trained on a domain of your own: evaluate it from Python, with "
            "pm.load(folder, domain=...)."
        )
    own = domain_settings(model.domain) or {}
    kept = {key: value for key, value in own.items() if key != "feature_map"}
    merged = {**kept, "feature_map": model.domain.feature_map, **changes}
    return model, domains.get(model.domain.name, **merged)


def chosen_policies(names: tuple[str, ...], domain: Domain) -> dict[str, policies.Policy]:
    """The policies that were named, or all that fit the domain."""
    for name in names:
        if name not in policies.BY_NAME:
            raise unknown("policy", name, policies.BY_NAME)
    fits = [name for name in policies.BY_NAME if name != "whittle" or domain.n_actions == 2]
    return {name: policies.BY_NAME[name]() for name in names or fits}


def settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """name=value pairs, values as Python would write them or plain words."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--set takes name=value, such as population=50, not '{pair}'.")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def table(frame: pl.DataFrame, title: str | None = None) -> Table:
    """A comparison as a table for the terminal."""
    shown = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    headings = (
        "policy",
        "opted in",
        "reward per arm",
        "of bound",
        "of best",
        "behind best",
        "spent",
    )
    for heading in headings:
        shown.add_column(heading, justify="left" if heading == "policy" else "right")
    before = None
    for row in frame.iter_rows(named=True):
        if before not in (None, row["opt_in"]):
            shown.add_section()
        before = row["opt_in"]
        shown.add_row(
            row["policy"],
            f"{row['opt_in']:.0%}" if isinstance(row["opt_in"], float) else row["opt_in"],
            f"{row['mean']:.3f} ± {row['stderr']:.3f}",
            "" if row["of_bound"] is None else f"{row['of_bound']:.1%}",
            "" if row["of_best"] is None else f"{row['of_best']:.1%}",
            f"{row['difference']:.3f} ± {row['difference_stderr']:.3f}",
            f"{row['spent']:.2f}",
        )
    return shown


@contextlib.contextmanager
def progress() -> Iterator[Report]:
    """A bar with the time left, on standard error and only where somebody watches."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
    with Progress(
        *columns, console=console, transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task("compiling", total=1.0)

        def report(done: float, what: str) -> None:
            bar.update(task, completed=done, description=what)

        yield report


def use_compilation_cache() -> None:
    """Keeps compiled code between runs in the user's cache folder, unless JAX was told another."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    folder = Path(platformdirs.user_cache_dir("prefermab")) / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
