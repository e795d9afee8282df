"""The Open Bandit data: the random policy's value, estimated from the log of Thompson sampling.

    python -m studies.open_bandit FOLDER

FOLDER holds the small samples of https://github.com/st-tech/zr-obp (folder obd): bts/men/men.csv,
random/men/men.csv and the same of women. They are not part of this package.
"""

import sys
from pathlib import Path

import numpy as np
import polars as pl

from prefermab.common.intervals import Interval, from_influence
from prefermab.common.pages import table_as_markdown
from prefermab.programme.evidence.results import OffPolicy, off_policy_rows

CAMPAIGNS = ("men", "women")


def random_policy(log: pl.DataFrame, items: int) -> OffPolicy:
    """The value, in clicks for each row, of showing one of `items` items with equal probability."""
    target = np.full(log.height, 1 / items)
    chance = log["propensity_score"].to_numpy()
    return off_policy_rows(log["click"].to_numpy(), chance, target)


def on_policy(log: pl.DataFrame) -> Interval:
    """The measured clicks for each row when items were really shown at random."""
    clicks = log["click"].to_numpy().astype(float)
    return from_influence(float(clicks.mean()), clicks - clicks.mean())


def compare_campaign(name: str, thompson: pl.DataFrame, random: pl.DataFrame) -> list[list[str]]:
    """Rows of the table for one campaign."""
    found, truth = random_policy(thompson, random["item_id"].n_unique()), on_policy(random)
    measured = f"{truth.estimate:.4f} ({truth.low:.4f} to {truth.high:.4f})"
    size = f"{found.support.effective:.0f}"
    if found.refusal:
        return [[name, size, f"refused: {found.refusal}", "", measured]]
    rows = []
    for row in found.estimates.filter(pl.col("per") == "decision").iter_rows(named=True):
        value = f"{row['value']:.4f} ({row['value_low']:.4f} to {row['value_high']:.4f})"
        holds = row["value_low"] <= truth.estimate <= row["value_high"]
        rows.append([name, size, f"{row['method']}: {value}", "yes" if holds else "no", measured])
    return rows


def open_bandit(folder: Path) -> str:
    """The table of both campaigns."""
    rows = []
    for name in CAMPAIGNS:
        logs = [pl.read_csv(folder / kind / name / f"{name}.csv") for kind in ("bts", "random")]
        rows += compare_campaign(name, *logs)
    head = ["campaign", "effective size", "from the log of Thompson sampling", "holds", "measured"]
    return table_as_markdown(head, rows)


if __name__ == "__main__":
    print(open_bandit(Path(sys.argv[1])))
