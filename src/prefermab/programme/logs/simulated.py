"""Simulated logs: of any domain, for tests and studies in which the truth must be known, and of the
example programme of the tutorial."""

from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import polars as pl

from prefermab.arms.observation import Arms, Key
from prefermab.domains.base import FiniteDomain
from prefermab.errors import count
from prefermab.errors import share as checked_share
from prefermab.programme.tables.table import write_table

ENGAGEMENT_STATES = ("engaged", "drifting", "silent")
REGIONS = ("north", "south", "east")
NURSES = ("Ana", "Bo", "Chi")
CALLED = 0.08
"""The probability with which a person is called in a week."""


def simulate_log(
    domain: FiniteDomain,
    people: int = 2000,
    rounds: int = 26,
    share: float = 0.05,
    seed: int = 0,
    arms: Arms | None = None,
    stay: float = 1.0,
    missing: float = 0.0,
) -> pl.DataFrame:
    """Simulates a log of `people` arms of a domain. In each round, each arm gets a random active
    action with the probability `share`.

    With `stay` below 1 people join at a random time, and leave with the probability 1 - stay after
    each round. `missing` is the share of rows that are left out.

    >>> import prefermab as pm
    >>> from prefermab.programme.logs.simulated import simulate_log
    >>> simulate_log(pm.domains.Synthetic(), people=2, rounds=3).shape
    (6, 8)
    """
    n, length = count(people, "people"), count(rounds, "rounds", at_least=2)
    rng = np.random.default_rng(count(seed, "seed", at_least=0))
    key_arms, key_start = jax.random.split(jax.random.key(seed))
    if arms is None:
        arms = domain.draw_arms(key_arms, n)
    table, features, state = (np.asarray(x) for x in _describe_arms(domain, arms, n, key_start))
    acted = rng.random((length, n)) < checked_share(share, "share")
    actions = np.where(acted, rng.integers(1, domain.n_actions, (length, n)), 0)
    states = np.empty((length, n), int)
    for now in range(length):
        states[now] = state
        reached = np.cumsum(table[np.arange(n), state, actions[now]], axis=1)
        state = (reached <= rng.random((n, 1)) * reached[:, -1:]).sum(axis=1)
    person, time = np.meshgrid(np.arange(n), np.arange(length))
    kept = _present(rng, n, length, stay, missing)
    frame = pl.DataFrame(
        {
            "id": person[kept],
            "time": time[kept],
            "state": np.array(domain.state_names)[states[kept]],
            "action": np.array(domain.action_names)[actions[kept]],
        }
    )
    known = dict(zip(domain.feature_names, features[person[kept]].T.astype(float), strict=True))
    return frame.with_columns(**known).fill_nan(None).sort("id", "time")


def keep_seen(
    log: pl.DataFrame, passive: str, share: float | None = None, seed: int = 0
) -> pl.DataFrame:
    """Removes states from a log. States of rows with an action are kept or, if `share` is given,
    those of a random share of all rows.

    >>> import polars as pl
    >>> from prefermab.programme.logs.simulated import keep_seen
    >>> log = pl.DataFrame({"state": ["good", "bad"], "action": ["none", "call"]})
    >>> keep_seen(log, "none")["state"].to_list()
    [None, 'bad']
    """
    kept = pl.col("action") != passive
    if share is not None:
        kept = pl.lit(pl.Series(np.random.default_rng(seed).random(log.height) < share))
    return log.with_columns(state=pl.when(kept).then("state"))


@eqx.filter_jit
def _describe_arms(domain: FiniteDomain, arms: Arms, n_arms: int, key: Key):
    """Transitions, features and first states of arms."""
    start = jax.vmap(domain.start)(jax.random.split(key, n_arms), arms)
    return jax.vmap(domain.transitions)(arms), domain.features(arms), start


def _present(
    rng: np.random.Generator, people: int, rounds: int, stay: float, missing: float
) -> np.ndarray:
    """(round, person): who has a row."""
    kept = rng.random((rounds, people)) >= checked_share(missing, "missing")
    if checked_share(stay, "stay") == 1:
        return kept
    begun = rng.integers(0, rounds, people)
    length = rng.geometric(max(1 - stay, 1e-9), people)
    time = np.arange(rounds)[:, None]
    return kept & (time >= begun) & (time < begun + length)


def write_example(folder: Path, people: int = 400, weeks: int = 26, seed: int = 0) -> bool:
    """Writes people.csv and log.csv of the example. Returns whether it replaced files.

    Mothers get health messages; each week a few of them also get a call. The effect of a call
    depends on their features, which can be learned from the log.

    >>> import pathlib, tempfile
    >>> from prefermab.programme.logs.simulated import write_example
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> write_example(folder, people=20, weeks=4)
    False
    >>> sorted(file.name for file in folder.iterdir())
    ['log.csv', 'people.csv']
    """
    now, log = example_tables(people, weeks, seed)
    named = {folder / "people.csv": now, folder / "log.csv": log}
    replaced = any(path.exists() for path in named)
    for path, table in named.items():
        write_table(table, path)
    return replaced


def example_tables(
    people: int = 400, weeks: int = 26, seed: int = 0
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The people as they are after the last week, and the log."""
    rng = np.random.default_rng(count(seed, "seed", at_least=0))
    who = example_people(rng, count(people, "people"))
    log, state, since = _example_weeks(rng, who, count(weeks, "weeks", at_least=2))
    now = who.with_columns(
        pl.Series("state", np.array(ENGAGEMENT_STATES)[state]),
        pl.Series("rounds_since_action", since).replace(0, None),
        pl.Series("nurse", np.array(NURSES)[rng.integers(0, 3, people)]),
        pl.Series("do_not_call", np.where(rng.random(people) < 0.02, "yes", "no")),
    ).filter(pl.col("left") > weeks)
    order = ["id", "state", "age", "phone", "region", "nurse", "do_not_call", "rounds_since_action"]
    return now.select(order), log


def example_people(rng: np.random.Generator, size: int) -> pl.DataFrame:
    """Simulated people: id, age, phone, region, and the weeks in which they join and leave."""
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


def _example_weeks(
    rng: np.random.Generator, who: pl.DataFrame, weeks: int
) -> tuple[pl.DataFrame, np.ndarray, np.ndarray]:
    """The log, the state of each person after it, and the weeks since their last call (0:
    never)."""
    size = len(who)
    state, since, parts = rng.integers(0, 3, size), np.zeros(size, int), []
    for week in range(1, weeks + 1):
        here = ((who["joined"] <= week) & (who["left"] > week)).to_numpy()
        called = here & (rng.random(size) < CALLED)
        parts.append(
            who.select("id", pl.lit(week).alias("week"), "age", "phone", "region")
            .with_columns(
                pl.Series("state", np.array(ENGAGEMENT_STATES)[state]),
                pl.Series("action", np.where(called, "call", "none")),
            )
            .filter(pl.Series(here))
        )
        since = np.where(called, 1, np.where(since > 0, since + 1, 0))
        state = next_example_states(rng, who, state, called)
    return pl.concat(parts), state, since


def next_example_states(
    rng: np.random.Generator, who: pl.DataFrame, state: np.ndarray, called: np.ndarray
) -> np.ndarray:
    """(person,): the state a week later, as a number. A call helps most for people with their own
    phone, and for young people; people of the north get worse faster."""
    own, north = (who["phone"] == "own").to_numpy(), (who["region"] == "north").to_numpy()
    age = who["age"].fill_null(28).to_numpy()
    lift = np.where(called, np.where(own, 1.9, 0.5) + (30 - age) / 30, 0.0)
    better = 1 / (1 + np.exp(-(np.array([1.6, -1.2, -2.6])[state] - 0.5 * north + lift)))
    up = rng.random(len(who)) < better
    falls = rng.random(len(who)) < 0.45
    return np.where(up, np.maximum(state - 1, 0), np.minimum(state + falls, 2))
