"""The main job in a minute."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from prefermab import domains, opt_in, plots, policies
from prefermab.commands.shared import progress, table
from prefermab.compiled import use_compilation_cache
from prefermab.domains import Domain
from prefermab.evaluation import evaluate as compare
from prefermab.model import Model
from prefermab.oracles.lagrangian import joins
from prefermab.rollout import draw_world, play
from prefermab.storage import load
from prefermab.verbs import studies as verbs


def demo(options: verbs.Demo) -> None:
    """Runs a streaming programme with the shipped model, then compares and draws."""
    use_compilation_cache()
    picture = None
    with contextlib.suppress(plots.NoPlotsError):
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
    if picture is None:
        print("\nFor a picture of it: pip install 'prefermab[plot]'")
    else:
        plots.save(plots.comparison(frame, "Whom to call: 25 mothers, 7 calls a week"), picture)
        console.print(f"\nThe picture is in {picture}.")
    console.print("Next, on another domain: prefermab evaluate synthetic")


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
