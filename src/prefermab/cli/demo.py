"""The command `demo`: shows what the package does, in a minute."""

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from prefermab.domains import Domain
    from prefermab.models.model import Model


@dataclasses.dataclass(frozen=True)
class DemoCommand:
    """Show what it does on a health programme, in a minute.

    It simulates ten weeks of the programme, then compares the model with other policies.
    """

    out: Path = Path("prefermab-demo.png")
    """File for the figure (.png, .svg or .pdf)."""
    trials: int = 1000
    """Number of simulated programmes in the comparison."""
    seed: int = 0
    """Random seed; the same seed gives the same figures."""

    def run(self) -> None:
        """Runs a programme with the model in the package, then compares and draws."""
        from rich.console import Console

        from prefermab import domains, policies
        from prefermab.cli.terminal import comparison_table, progress
        from prefermab.common import plots
        from prefermab.common.files import use_compilation_cache
        from prefermab.evaluation.compare import evaluate
        from prefermab.models.loading import load

        use_compilation_cache()
        picture = None
        with contextlib.suppress(plots.NoPlotsError):
            picture = plots.check_target(self.out)
        model, domain = load("armman"), domains.Armman()
        console = Console(highlight=False)
        console.print(
            "Up to 25 mothers get health messages; some listen, some stop listening. There is\n"
            "time for 7 calls a week: whom to call? The model was not trained on these mothers.\n"
        )
        console.print(ten_weeks(model, domain, self.seed))
        console.print(
            f"\n{self.trials:,} programmes of 25 mothers and 9 weeks. Every policy meets the same\n"
            "people and the same random draws; whittle and myopic know everyone's true dynamics.\n"
        )
        names = ("none", "random", "myopic", "whittle")
        with progress() as report:
            frame = evaluate(
                domain, {"prefermab": model, **{name: policies.BY_NAME[name]() for name in names}},
                n_arms=25, budget=7, opt_in=(0.8, 1.0), trials=self.trials, seed=self.seed,
                progress=report,
            )  # fmt: skip
        console.print(comparison_table(frame))
        if picture is None:
            print("\nTo get a figure: pip install 'prefermab[plot]'")
        else:
            plots.save_figure(
                plots.comparison(frame, "Whom to call: 25 mothers, 7 calls a week"), picture
            )
            console.print(f"\nThe figure is in {picture}.")
        console.print("Next, on another domain: prefermab evaluate synthetic")


def ten_weeks(model: "Model", domain: "Domain", seed: int) -> "Table":
    """A programme with 25 places that people join and leave; one row for each week."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from prefermab.arms import opt_in
    from prefermab.arms.opt_in import joins
    from prefermab.cli.terminal import plain_table
    from prefermab.evaluation.rollout import draw_world, play

    key_people, key_world, key_policy = jax.random.split(jax.random.key(seed), 3)
    process = opt_in.Streaming(stay=0.9, newcomers=2.5)
    schedule = process.schedule(key_people, n_arms=25, n_rounds=10)
    world = draw_world(key_world, domain, schedule)
    played = play(model.policy, domain, world, jnp.asarray(7.0), key_policy)
    joined = np.asarray(joins(schedule)).sum(axis=1)
    table = plain_table("week", "in the programme", "joined", "calls", "mean engagement")
    for week, (there, new, calls, reward) in enumerate(
        zip(played.opted_in, joined, played.spent, played.reward, strict=True), start=1
    ):
        table.add_row(
            str(week), str(int(there)), str(int(new)), f"{calls:.0f}", f"{reward / there:.2f}"
        )
    return table
