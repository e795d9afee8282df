"""A programme in Python: three weeks of calls, kept in one file.

Run it with `python examples/programme.py`. Each week the programme plans whom to call, records
what was done, and observes the new states. Here the new states are invented; yours are measured.
"""

import random
import tempfile
from pathlib import Path

import polars as pl

import prefermab as pm

STATES = ("motivated", "persuadable", "lost cause")


def people(n: int, rng: random.Random) -> pl.DataFrame:
    """A table of people: an id, a state, and what is known of the features of the model."""
    return pl.DataFrame(
        {
            "id": [f"person {i}" for i in range(n)],
            "state": [rng.choice(STATES) for _ in range(n)],
            "feature_0": [rng.uniform(0.0, 0.3) for _ in range(n)],  # the others are unknown
        }
    )


def main() -> None:
    """Run three rounds with the model that ships for maternal health calls."""
    rng = random.Random(0)
    table = people(20, rng)
    rules = pm.Rules(cooldown=1)  # nobody is called two weeks in a row
    with (
        tempfile.TemporaryDirectory() as folder,
        pm.Programme(Path(folder) / "calls.db", pm.load("armman")) as programme,
    ):
        programme.join(table)
        for week in range(1, 4):
            plan = programme.plan(budget=5, rules=rules)
            called = plan.frame.filter(pl.col("action") == "call")["id"].to_list()
            print(f"week {week}: call {', '.join(sorted(called))}")
            programme.record()  # everything was done as planned; the next round begins
            states = [rng.choice(STATES) for _ in table["id"]]
            programme.observe(table.select("id").with_columns(state=pl.Series(states)))


if __name__ == "__main__":
    main()
