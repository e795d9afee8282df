"""A made-up programme to try things on: its people, and the log of its past weeks.

Mothers get health messages; each week a few of them get a call as well. Whether a call helps
depends on who they are, which the log tells and nobody knows.
"""

from pathlib import Path

import numpy as np
import polars as pl

from prefermab.errors import count
from prefermab.programme.tables import write_table

STATES = ("engaged", "drifting", "silent")
REGIONS = ("north", "south", "east")
NURSES = ("Ana", "Bo", "Chi")
CALLED = 0.08
"""Share of the people who were called in a week, at random."""


def write_example(folder: Path, people: int = 400, weeks: int = 26, seed: int = 0) -> bool:
    """Writes people.csv and log.csv; whether it replaced files that were there.

    >>> import pathlib, tempfile
    >>> from prefermab.programme.logs.example import write_example
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> write_example(folder, people=20, weeks=4)
    False
    >>> sorted(file.name for file in folder.iterdir())
    ['log.csv', 'people.csv']
    """
    now, log = tables(people, weeks, seed)
    named = {folder / "people.csv": now, folder / "log.csv": log}
    replaced = any(path.exists() for path in named)
    for path, table in named.items():
        write_table(table, path)
    return replaced


def tables(people: int = 400, weeks: int = 26, seed: int = 0) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The people as they are now, and the log."""
    rng = np.random.default_rng(count(seed, "seed", at_least=0))
    who = _people(rng, count(people, "people"))
    log, state, since = _weeks(rng, who, count(weeks, "weeks", at_least=2))
    now = who.with_columns(
        pl.Series("state", np.array(STATES)[state]),
        pl.Series("rounds_since_action", since).replace(0, None),
        pl.Series("nurse", np.array(NURSES)[rng.integers(0, 3, people)]),
        pl.Series("do_not_call", np.where(rng.random(people) < 0.02, "yes", "no")),
    ).filter(pl.col("left") > weeks)
    order = ["id", "state", "age", "phone", "region", "nurse", "do_not_call", "rounds_since_action"]
    return now.select(order), log


def _people(rng: np.random.Generator, size: int) -> pl.DataFrame:
    age = rng.integers(17, 43, size).astype(float)
    return pl.DataFrame(
        {
            "id": [f"m{i:04d}" for i in range(1, size + 1)],
            "age": np.where(rng.random(size) < 0.05, np.nan, age),
            "phone": np.where(rng.random(size) < 0.6, "own", "shared"),
            "region": np.array(REGIONS)[rng.choice(3, size, p=[0.2, 0.3, 0.5])],
            "joined": np.where(rng.random(size) < 0.7, 1, rng.integers(2, 20, size)),
            "left": np.where(rng.random(size) < 0.85, 999, rng.integers(12, 26, size)),
        }
    ).with_columns(pl.col("age").fill_nan(None))


def _weeks(
    rng: np.random.Generator, who: pl.DataFrame, weeks: int
) -> tuple[pl.DataFrame, np.ndarray, np.ndarray]:
    """The log, everyone's state after it, and the weeks since their last call (0: never)."""
    size = len(who)
    own, north = (who["phone"] == "own").to_numpy(), (who["region"] == "north").to_numpy()
    age = who["age"].fill_null(28).to_numpy()
    state, since, parts = rng.integers(0, 3, size), np.zeros(size, int), []
    for week in range(1, weeks + 1):
        here = ((who["joined"] <= week) & (who["left"] > week)).to_numpy()
        called = here & (rng.random(size) < CALLED)
        parts.append(
            who.select("id", pl.lit(week).alias("week"), "age", "phone", "region")
            .with_columns(
                pl.Series("state", np.array(STATES)[state]),
                pl.Series("action", np.where(called, "call", "none")),
            )
            .filter(pl.Series(here))
        )
        since = np.where(called, 1, np.where(since > 0, since + 1, 0))
        # A call helps those with a phone of their own most, and the young; the north drifts faster.
        lift = np.where(called, np.where(own, 1.9, 0.5) + (30 - age) / 30, 0.0)
        better = 1 / (1 + np.exp(-(np.array([1.6, -1.2, -2.6])[state] - 0.5 * north + lift)))
        up = rng.random(size) < better
        falls = rng.random(size) < 0.45
        state = np.where(up, np.maximum(state - 1, 0), np.minimum(state + falls, 2))
    return pl.concat(parts), state, since
