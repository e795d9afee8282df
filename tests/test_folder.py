"""Plans for a folder of parts: the same as for one table, however it is cut, or refused."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import prefermab as pm
from prefermab.engines import Local
from prefermab.planning.folder import plan_folder
from prefermab.planning.steps import Cut, Steps, alone, cut_of, unit_of

MODEL = pm.load("armman")
LARGE = 70_000
"""More than go through the network together, so that the price is found on a sample."""

COLUMNS = ["id", "action", "cost", "score"]


def people(size: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(size, len(MODEL.feature_names))).astype(np.float32)
    return pl.DataFrame(
        {
            "id": [f"p{i}" for i in range(size)],
            "state": rng.integers(0, 3, size).astype(np.int8),
            "region": np.array(["north", "south", "west"])[rng.integers(0, 3, size)],
            "nurse": np.array(["Ana", "Bo"])[rng.integers(0, 2, size)],
            "cost_call": rng.choice([0.1, 0.7, 1.0, 2.3], size),
            "stop": rng.random(size) < 0.05,
            "must": np.where(rng.random(size) < 0.01, "call", ""),
            "opt_in": rng.random(size) < 0.9,
            "rounds_since_action": rng.integers(0, 9, size),
            **{name: features[:, i] for i, name in enumerate(MODEL.feature_names)},
        }
    ).with_columns(pl.when("must" != pl.lit("call")).then("stop").otherwise(False))


def in_parts(table: pl.DataFrame, folder: Path, ends: list[int]) -> Path:
    folder.mkdir()
    begins = [0, *ends]
    for place, (begin, end) in enumerate(zip(begins, [*ends, table.height], strict=True)):
        table[begin:end].write_parquet(folder / f"people-{place}.parquet")
    return folder


def whole(folder: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(part) for part in sorted(folder.glob("part-*.parquet"))])


ALONE = pm.Rules(exclude="stop", exclude_ids=("p5", "p60000"), cooldown=1)
FORCED = pm.Rules(exclude="stop", lock_ids=("p12",))
SHARED = pm.Rules(
    group="region", min_share={"north": 0.5}, max_share={"west": 0.1}, worker="nurse",
    budgets={"Ana": 900},
)  # fmt: skip


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return people(LARGE).with_columns(
        pl.when(pl.col("id") == "p12").then(True).otherwise("opt_in").alias("opt_in"),
        pl.when(pl.col("id") == "p12").then(False).otherwise("stop").alias("stop"),
    )


@pytest.mark.parametrize(
    ("rules", "budget"),
    [(None, 0), (ALONE, 5000.3), (FORCED, 10**9), (SHARED, 5000.3)],
    ids=["nothing to spend", "rules for each", "more than enough", "shared rules"],
)
def test_every_cut_gives_the_plan_of_the_whole_table(tmp_path, table, rules, budget):
    made = MODEL.plan(table, budget, rules)
    summaries = []
    for name, ends, rows in (
        ("one", [], 1 << 19), ("three", [10, 40_000], 1 << 19), ("seven", [33_333], 11_000),
    ):  # fmt: skip
        arms = in_parts(table, tmp_path / f"arms-{name}", ends)
        out = tmp_path / name
        summary = plan_folder("armman", arms, out, budget, rules, reasons=False, rows=rows)
        found = whole(out)
        assert found.select(COLUMNS).equals(made.frame.select(COLUMNS))
        assert not (out / ".unfinished").exists()
        assert json.loads((out / "summary.json").read_text()) == dataclasses.asdict(summary)
        summaries.append((summary, found))
    (first, plan), others = summaries[0], summaries[1:]
    assert all(found.equals(plan) for _, found in others)
    for summary, told in ((summary, made.summary) for summary, _ in summaries):
        for field in dataclasses.fields(summary):
            if field.name not in ("rules", "bound"):
                own, other = getattr(summary, field.name), getattr(told, field.name)
                assert own == (
                    pytest.approx(other, abs=1e-2) if isinstance(own, float) else other
                ), field
    # Without shared rules the bound is that of the linear programme.
    assert first.gain - 1e-6 <= first.bound
    if rules is not SHARED:
        assert first.bound == pytest.approx(made.summary.bound, rel=1e-5, abs=1e-6)
    assert first.spent <= budget * (1 + 1e-6)
    chosen = plan.filter(pl.col("list") == "chosen")
    assert first.chosen == chosen.height == (plan["action"] == "call").sum()
    assert (plan["list"] == "waiting").sum() == (20 if 0 < budget < 10**9 else 20 * (budget == 0))
    assert plan.columns[6:] == [name for name in table.columns if name != "id"]
