"""Plans for a folder of parts: the same as for one table, however it is cut, or refused."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import prefermab as pm
from commands import run, run_apart
from prefermab.arms.amounts import DecimalUnits, fits
from prefermab.common.engines import Local
from prefermab.errors import StorageError
from prefermab.models.loading import fingerprint, shipped_models
from prefermab.policies import learned
from prefermab.programme.bulk import driver
from prefermab.programme.bulk.chunks import _models
from prefermab.programme.bulk.driver import plan_folder
from prefermab.programme.planning import scoring
from prefermab.programme.planning.increments import Cut, Increments, ask_one, find_cut
from prefermab.programme.planning.reasons import reasons
from prefermab.programme.planning.roster import read_roster
from prefermab.programme.planning.scoring import gains_at

MODEL = pm.load("armman")
MODEL_FOLDER = shipped_models()["armman"]
TOGETHER, LARGE = 8192, 8750
"""How many people go through the network together in these tests, and more than that, so that the
price is found on a sample."""

MEAN = np.asarray(MODEL.network.perception.mean)
SPREAD = np.linalg.pinv(np.asarray(MODEL.network.perception.whitening))
"""How features of the training spread."""

COLUMNS = ["id", "action", "cost", "score"]


def people(size: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(size, len(MODEL.feature_names))).astype(np.float32)
    features = MEAN + drawn @ SPREAD
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
    ).with_columns(pl.when(pl.lit("call") != "must").then("stop").otherwise(False))


def in_parts(table: pl.DataFrame, folder: Path, ends: list[int]) -> Path:
    folder.mkdir()
    begins = [0, *ends]
    for place, (begin, end) in enumerate(zip(begins, [*ends, table.height], strict=True)):
        table[begin:end].write_parquet(folder / f"people-{place}.parquet")
    return folder


def whole(folder: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(part) for part in sorted(folder.glob("part-*.parquet"))])


ALONE = pm.Rules(exclude_column="stop", exclude_ids=("p5", "p7500"), cooldown=1)
FORCED = pm.Rules(exclude_column="stop", lock_ids=("p12",))
SHARED = pm.Rules(
    group_column="region", min_share={"north": 0.5}, max_share={"west": 0.1}, worker_column="nurse",
    budgets={"Ana": 112},
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def few_together():
    """As for large tables, with an eighth of the people; test_plan_folder_on_ray.py has enough."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (learned, scoring, driver):
            patch.setattr(module, "CHUNK", TOGETHER)
        yield


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    return people(LARGE).with_columns(
        pl.when(pl.col("id") == "p12").then(True).otherwise("opt_in").alias("opt_in"),
        pl.when(pl.col("id") == "p12").then(False).otherwise("stop").alias("stop"),
    )


def test_each_file_of_a_large_folder_may_spell_columns_in_its_own_way(tmp_path, table):
    parts = in_parts(table, tmp_path / "parts", [5000])
    table[5000:].rename(str.upper).write_parquet(parts / "people-1.parquet")
    made = MODEL.plan(table, 625.3, rules=ALONE)
    summary = plan_folder(MODEL, parts, tmp_path / "plan", 625.3, ALONE, waiting=0)
    written = [pl.read_parquet(file) for file in sorted((tmp_path / "plan").glob("*.parquet"))]
    chosen = pl.concat([part.select(COLUMNS) for part in written])["action"]
    assert chosen.to_list() == made.frame["action"].to_list()
    assert summary.opted_out == made.summary.opted_out > 0
    table[5000:].rename({"opt_in": "opt_inn"}).write_parquet(parts / "people-1.parquet")
    with pytest.raises(pm.InputError, match=r"people-1\.parquet: the column 'opt_inn' is not read"):
        plan_folder(MODEL, parts, tmp_path / "other", 625.3)


@pytest.mark.parametrize(
    ("rules", "budget"),
    [(None, 0), (ALONE, 625.3), (FORCED, 10**9), (SHARED, 625.3)],
    ids=["nothing to spend", "rules for each", "more than enough", "shared rules"],
)
def test_every_cut_gives_the_plan_of_the_whole_table(tmp_path, table, rules, budget, monkeypatch):
    # The linear programme of a table takes long where it has much to weigh.
    monkeypatch.setattr(
        "prefermab.programme.planning.summary.LARGEST_LINEAR_PROGRAMME",
        0 if budget == 625.3 else 100_000,
    )
    made = MODEL.plan(table, budget, rules=rules)
    summaries = []
    for name, ends, rows in (
        ("one", [], 1 << 19), ("three", [10, 5_000], 1 << 19), ("seven", [4_167], 1_375),
    ):  # fmt: skip
        arms = in_parts(table, tmp_path / f"arms-{name}", ends)
        out = tmp_path / name
        summary = plan_folder("armman", arms, out, budget, rules, reasons=False, rows=rows)
        found = whole(out)
        assert found.select(COLUMNS).equals(made.frame.select(COLUMNS))
        assert not (out / ".unfinished").exists()
        kept = json.loads((out / "summary.json").read_text())
        assert kept.pop("origin")["model"] == "armman"
        assert kept == dataclasses.asdict(summary)
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
    # Without shared rules the bound is that of the linear programme: nearly reached.
    assert made.summary.bound is not None
    assert first.gain - 1e-6 <= first.bound <= made.summary.bound * (1 + 3e-5) + 1e-6
    if rules is not SHARED:
        assert first.bound == pytest.approx(first.gain, rel=1e-4, abs=1e-6)
    assert first.spent <= budget * (1 + 1e-6)
    chosen = plan.filter(pl.col("list") == "chosen")
    assert first.chosen == chosen.height == (plan["action"] == "call").sum()
    assert (plan["list"] == "waiting").sum() == (20 if budget < 10**9 else 0)
    assert plan.columns[7:] == [name for name in table.columns if name != "id"]


def test_reasons_are_those_of_the_table_for_people_on_the_list(tmp_path, table):
    arms = in_parts(table, tmp_path / "arms", [6_250])
    price = plan_folder("armman", arms, tmp_path / "out", 20, FORCED, waiting=2).price
    found = whole(tmp_path / "out").filter(pl.col("list") != "")
    assert found["list"].value_counts(sort=True).height == 2
    some = table.filter(pl.col("id").is_in(found["id"].to_list()))
    assert (found["reason"].str.starts_with("locked in; ") == (found["id"] == "p12")).all()
    roster, size = read_roster(MODEL, some, "some"), some.height
    gains = gains_at(MODEL, roster.states, roster.features, price, wide=True)
    told = reasons(
        MODEL, roster, np.zeros(size, int), some, price, np.ones(size, int), gains,
        (some["id"] == "p12").to_numpy(), wide=True,
    )  # fmt: skip
    assert found["reason"].to_list() == told.to_list()
    kept_out = whole(tmp_path / "out").filter("stop", "opt_in")
    assert set(kept_out["reason"]) == {"excluded"}
    other = in_parts(table, tmp_path / "other", [10])
    plan_folder("armman", other, tmp_path / "out-other", 20, FORCED, waiting=2, rows=4_125)
    assert whole(tmp_path / "out-other").equals(whole(tmp_path / "out"))


def test_a_small_folder_is_planned_as_one_table(tmp_path):
    table = people(300)
    arms = in_parts(table, tmp_path / "arms", [7, 7, 200])
    (arms / "_SUCCESS").write_text("")
    made = MODEL.plan(table, 40, rules=SHARED)
    summary = plan_folder(str(MODEL_FOLDER), arms, tmp_path / "out", 40, SHARED, rows=50)
    found = whole(tmp_path / "out")
    same = [*COLUMNS, "list"]
    assert found.select(same).equals(made.frame.select(same))
    listed = found["list"] != ""
    assert found.filter(listed)["reason"].equals(made.frame.filter(listed)["reason"])
    assert summary == dataclasses.replace(made.summary, rules={})
    assert found.columns[6:] == [name for name in table.columns if name != "id"]


def test_one_person_and_everyone_out(tmp_path):
    one = in_parts(people(1).with_columns(opt_in=True, cost_call=1.0), tmp_path / "one", [])
    assert plan_folder("armman", one, tmp_path / "plan", 1).people == 1
    out = in_parts(people(LARGE).with_columns(opt_in=False), tmp_path / "out", [])
    summary = plan_folder("armman", out, tmp_path / "plan-out", 100)
    assert (summary.chosen, summary.spent, summary.opted_out) == (0, 0, LARGE)
    assert set(whole(tmp_path / "plan-out")["reason"]) == {"opted out"}


@pytest.mark.parametrize("rows", [1 << 19, 40], ids=["whole parts", "chunks"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop("state"), "b.parquet: the column 'state' is missing; found id, region"),
        (
            lambda t: with_cell(t, "state", 60, None),
            r"b.parquet: row 61 has no state",
        ),
        (lambda t: with_cell(t, "state", 99, 7), "b.parquet: row 100, id q99, has the state '7'"),
        (
            lambda t: t.with_columns(feature_0=pl.lit("tall")),
            "b.parquet: the column 'feature_0' must hold numbers, but row 1 holds 'tall'",
        ),
        (
            lambda t: with_cell(t, "feature_1", 55, float("inf")),
            "b.parquet: the column 'feature_1' must hold finite numbers, but row 56",
        ),
        (
            lambda t: with_cell(t, "id", 70, "p3"),
            r"the id p3 is in row 4 of .*a.parquet and again in row 71 of .*b.parquet",
        ),
        (
            lambda t: with_cell(t, "id", 60, "q59"),
            "b.parquet: the id q59 is in row 60 and again in row 61",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_file_and_row(tmp_path, change, message, rows):
    arms = tmp_path / "arms"
    arms.mkdir()
    table = people(100)
    table.write_parquet(arms / "a.parquet")
    other = table.with_columns(pl.col("id").str.replace("p", "q"))
    change(other).write_parquet(arms / "b.parquet")
    with pytest.raises(pm.InputError, match=message) as error:
        plan_folder("armman", arms, tmp_path / "out", 9, rows=rows)
    assert "\n" not in str(error.value)
    assert not any((tmp_path / "out").iterdir())


def test_large_rosters_are_checked_as_well(tmp_path, table):
    twice = in_parts(with_cell(table, "id", 8_749, "p17"), tmp_path / "twice", [5_000])
    told = r"p17 is in row 18 of .*people-0.parquet and again in row 3750 of .*people-1.parquet"
    with pytest.raises(pm.InputError, match=told):
        plan_folder("armman", twice, tmp_path / "out", 9)
    late = in_parts(with_cell(table, "state", 7_501, 9), tmp_path / "late", [5_000])
    with pytest.raises(pm.InputError, match=r"people-1.parquet: row 2502, id p7501, has the"):
        plan_folder("armman", late, tmp_path / "out-late", 9, rows=1_875)
    arms = in_parts(table.with_columns(opt_in=True), tmp_path / "arms", [])
    with pytest.raises(pm.InputError, match="nobody has the id 'p8750' that exclude_ids names"):
        plan_folder("armman", arms, tmp_path / "out-2", 9, pm.Rules(exclude_ids=("p8750",)))
    with pytest.raises(pm.InputError, match=r"locked in cost \d+.*, more than the budget of 9\."):
        plan_folder("armman", arms, tmp_path / "out-3", 9, pm.Rules(lock_column="must"))


def with_cell(table: pl.DataFrame, name: str, row: int, value: object) -> pl.DataFrame:
    values = table[name].to_list()
    values[row] = value
    return table.with_columns(pl.Series(name, values))


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (Path.touch, "the folder is empty; expected Parquet files"),
        (lambda arms: (arms / "a.csv").write_text("id"), "a.csv: expected only Parquet files"),
        (lambda arms: (arms / "more").mkdir(), "more: expected only Parquet files"),
        (lambda arms: (arms / "a.parquet").write_text("no"), "a.parquet: it is not a Parquet file"),
        (lambda arms: people(0).write_parquet(arms / "a.parquet"), "there are no rows"),
        (lambda arms: arms.rmdir(), "there is no such folder"),
    ],
)
def test_folders_that_hold_no_parts_are_refused(tmp_path, prepare, message):
    arms = tmp_path / "arms"
    arms.mkdir()
    prepare(arms)
    with pytest.raises(pm.InputError, match=message):
        plan_folder("armman", arms, tmp_path / "out", 9)
    if arms.exists():
        told = run("plan", "armman", "--arms", "arms", "--budget", 9, "--out", "o", folder=tmp_path)
        assert (told.returncode, message in told.stderr.splitlines()[-1]) == (2, True)


def test_what_else_is_refused(tmp_path):
    arms = in_parts(people(20), tmp_path / "arms", [])
    for given, message in (
        ({"model": "armman-paper"}, "of the recipe paper"),
        ({"engine": "rey"}, "unknown engine 'rey': did you mean 'ray'"),
        ({"workers": 2}, "workers are for the engine ray"),
        ({"rows": 0}, "rows must be"),
    ):
        asked = {"model": "armman", "arms": arms, "out": tmp_path / "out", "budget": 9, **given}
        with pytest.raises(pm.InputError, match=message):
            plan_folder(**asked)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("all of it")
    with pytest.raises(pm.InputError, match="theirs is not empty"):
        plan_folder("armman", arms, theirs, 9)
    assert [path.name for path in theirs.iterdir()] == ["thesis.txt"]
    with pytest.raises(pm.InputError, match="it is a file"):
        plan_folder("armman", arms, theirs / "thesis.txt", 9)
    plan_folder("armman", arms, tmp_path / "done", 9)
    with pytest.raises(pm.InputError, match="done is not empty"):
        plan_folder("armman", arms, tmp_path / "done", 8)


def test_a_full_disk_is_told_and_what_is_done_stays(tmp_path, table, monkeypatch):
    arms = in_parts(table, tmp_path / "arms", [])
    asked = {"budget": 500, "reasons": False}

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pl.DataFrame, "write_parquet", full)
        with pytest.raises(StorageError, match=r"cannot write .*out.*: No space left"):
            plan_folder("armman", arms, tmp_path / "out", **asked)
    assert list((tmp_path / "out" / ".unfinished").glob("chunk-*"))
    assert plan_folder("armman", arms, tmp_path / "out", **asked).people == LARGE


class Interrupted(Local):
    """Ends, as Ctrl-C would, in the middle of a pass."""

    def __init__(self, where: str):
        self.where = where

    def map(self, function, items):
        for place, item in enumerate(items):
            if place and getattr(function, "func", function).__name__ == self.where:
                raise KeyboardInterrupt
            yield function(item)


def test_what_was_interrupted_goes_on(tmp_path, table):
    arms = in_parts(table, tmp_path / "arms", [6_250])
    asked = {"budget": 500, "rows": 3_125, "reasons": False}
    plan_folder("armman", arms, tmp_path / "at-once", **asked)
    for where in ("price_sample", "score_chunk", "answer_question", "write_part"):
        with pytest.raises(KeyboardInterrupt):
            plan_folder("armman", arms, tmp_path / "out", engine=Interrupted(where), **asked)
    out = tmp_path / "out"
    assert [path.name for path in out.iterdir()] == [".unfinished"]
    done = {path.name: path.stat().st_mtime_ns for path in out.glob(".unfinished/part-*")}
    assert len(done) == 1
    with pytest.raises(pm.InputError, match="an unfinished plan of other people"):
        plan_folder("armman", arms, tmp_path / "out", **{**asked, "budget": 501})
    plan_folder("armman", arms, tmp_path / "out", **asked)
    for path in (tmp_path / "at-once").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    assert all((out / name).stat().st_mtime_ns == time for name, time in done.items())


def test_a_plan_that_was_killed_on_the_way_to_its_place_goes_on(tmp_path, monkeypatch):
    arms = in_parts(people(30), tmp_path / "arms", [10, 20])
    out, move = tmp_path / "out", Path.replace
    summary = plan_folder("armman", arms, tmp_path / "at-once", 4)
    for last, moved in (("part-00001.parquet", 1), ("summary.json", 3)):

        def killed(path, target, last=last):
            if path.name == last and target.parent == out:
                raise KeyboardInterrupt
            return move(path, target)

        monkeypatch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            plan_folder("armman", arms, out, 4)
        assert len(list(out.glob("part-*"))) == moved
        assert not (out / "summary.json").exists()
    monkeypatch.setattr(Path, "replace", move)
    monkeypatch.setattr("prefermab.programme.bulk.driver.plan_small", None)
    assert plan_folder("armman", arms, out, 4) == summary
    for path in (tmp_path / "at-once").iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()
    assert not (out / ".unfinished").exists()


def test_a_finished_plan_is_told_again_and_says_what_it_is_of(tmp_path, monkeypatch):
    arms, out = in_parts(people(30), tmp_path / "arms", []), tmp_path / "out"
    summary = plan_folder("armman", arms, out, 4)
    origin = json.loads((out / "summary.json").read_text())["origin"]
    assert origin["package"] == pm.__version__
    assert origin["fingerprint"] == fingerprint(MODEL)
    (out / ".unfinished").mkdir()  # as if killed at the very end
    with monkeypatch.context() as patch:
        patch.setattr("prefermab.programme.bulk.driver.plan_small", None)
        assert plan_folder("armman", arms, out, 4) == summary
    assert not (out / ".unfinished").exists()
    people(30, seed=1).write_parquet(arms / "people-0.parquet")
    with pytest.raises(pm.InputError, match="out is not empty"):
        plan_folder("armman", arms, out, 4)
    plan_folder("armman", arms, tmp_path / "other", 4)
    other = json.loads((tmp_path / "other" / "summary.json").read_text())["origin"]
    assert {name for name in origin if origin[name] != other[name]} == {"inputs"}
    (tmp_path / "other" / "part-00000.parquet").unlink()
    with pytest.raises(pm.InputError, match="other is not empty"):
        plan_folder("armman", arms, tmp_path / "other", 4)


def test_people_who_change_while_the_plan_is_made_are_refused(tmp_path, monkeypatch):
    arms, out = in_parts(people(30), tmp_path / "arms", []), tmp_path / "out"
    made = driver.plan_small

    def meanwhile(*given):
        people(30, seed=1).write_parquet(arms / "people-0.parquet")
        return made(*given)

    with monkeypatch.context() as patch:
        patch.setattr(driver, "plan_small", meanwhile)
        with pytest.raises(pm.InputError, match="changed while the plan was made"):
            plan_folder("armman", arms, out, 4)
    assert not any(out.iterdir())
    assert plan_folder("armman", arms, out, 4).people == 30


def test_two_who_make_the_same_plan_at_once(tmp_path, monkeypatch):
    arms, out = in_parts(people(30), tmp_path / "arms", []), tmp_path / "out"
    made = driver.plan_small

    def meanwhile(*given):
        again = run_apart("plan", "armman", "--arms", "arms", "--budget", 4, "--out", "out",
                          folder=tmp_path)  # fmt: skip
        assert (again.returncode, again.stdout) == (2, "")
        assert "another process is making this plan" in again.stderr.splitlines()[-1]
        with pytest.raises(pm.InputError, match="an unfinished plan of other people"):
            plan_folder("armman", arms, out, 5)
        return made(*given)

    monkeypatch.setattr(driver, "plan_small", meanwhile)
    assert plan_folder("armman", arms, out, 4).people == 30
    assert sorted(path.name for path in out.iterdir()) == ["part-00000.parquet", "summary.json"]


def test_a_model_in_memory_plans_as_its_folder_does(tmp_path, table):
    arms = in_parts(table, tmp_path / "arms", [6_250])
    asked = {"budget": 500, "rows": 3_125, "reasons": False}
    plan_folder("armman", arms, tmp_path / "named", **asked)
    with pytest.raises(KeyboardInterrupt):
        plan_folder(MODEL, arms, tmp_path / "given", engine=Interrupted("write_part"), **asked)
    _models.clear()  # as in another process
    plan_folder(MODEL, arms, tmp_path / "given", **asked)
    for path in (tmp_path / "named").glob("part-*"):
        assert (tmp_path / "given" / path.name).read_bytes() == path.read_bytes()
    assert not (tmp_path / "given" / ".unfinished").exists()
    origin = json.loads((tmp_path / "given" / "summary.json").read_text())["origin"]
    assert (origin["model"], origin["fingerprint"]) == (MODEL.domain_name, fingerprint(MODEL))


@pytest.mark.parametrize("chunks", [1, 2, 5])
@pytest.mark.parametrize("kind", ["ties", "several actions", "free"])
def test_steps_are_taken_by_rate_until_the_budget_ends(chunks, kind):
    """Against a plain loop over all steps in order."""
    rng = np.random.default_rng(chunks)
    size, n_actions = 60, 2 if kind == "ties" else 4
    gains = np.round(rng.random((size, n_actions)) * 4, 0 if kind == "ties" else 3)
    gains = np.cumsum(gains, axis=1).astype(np.float32)
    gains[:, 0] = 0
    costs = np.cumsum(rng.integers(kind != "free", 3, (size, n_actions)), axis=1) * 0.1
    costs = (costs - costs[:, :1]).astype(np.float32)
    open = rng.random(size) < 0.9
    for budget in (0, 0.1, 1.7, 5, 1000):
        units = DecimalUnits.of(budget)
        ends = np.linspace(0, size, chunks + 1).astype(int)
        parts = [
            Increments.of(gains[a:b], costs[a:b], open[a:b], units, first=int(a))
            for a, b in itertools.pairwise(ends)
        ]

        def ask(question, *about, chunk=None, parts=parts):
            asked = parts if chunk is None else [parts[chunk]]
            return [question(part, *about) for part in asked]

        cut = find_cut(ask, units.of_budget(budget), waiting=3)
        actions = np.concatenate([part.chosen(cut) for part in parts])
        everyone = Increments.of(gains, costs, open, units)
        assert (actions == plain_choice(everyone, units.of_budget(budget))).all()
        assert fits(costs[np.arange(size), actions], budget)
        assert not actions[list(cut.waiting)].any()


def plain_choice(steps: Increments, room: int) -> np.ndarray:
    actions, passed = np.zeros(len(steps.rates), int), set()
    rows, stages = np.nonzero(steps.rates)
    for place in np.lexsort((stages, rows, -steps.rates[rows, stages])):
        row, stage = rows[place], stages[place]
        if row in passed or steps.extras[row, stage] > room:
            passed.add(row)
        else:
            actions[row] = steps.actions[row, stage]
            room -= int(steps.extras[row, stage])
    return actions


def test_what_is_left_is_spent_on_steps_that_still_fit():
    gains = np.array([[0, 9.0], [0, 8.0], [0, 0.5]])
    costs = np.array([[0, 3.0], [0, 3.0], [0, 1.0]])
    units = DecimalUnits.of(4.0)
    found = Increments.of(gains, costs, np.ones(3, bool), units)
    cut = find_cut(ask_one(found), units.of_budget(4.0), waiting=5)
    assert cut == Cut(float(np.float32(8 / 3)), 1, 0, filling=((2, 0),), waiting=(1,))


def test_the_command_plans_a_folder(tmp_path):
    in_parts(people(50), tmp_path / "arms", [20])
    done = run(
        "plan", "armman", "--arms", "arms", "--budget", 3, "--out", "out", "--json", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "out" / "summary.json").read_text())
    again = run("plan", "armman", "--arms", "arms", "--budget", 3, "--out", "out", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith(f"{json.loads(done.stdout)['chosen']} of 50 people")
    assert again.stdout.endswith("out holds this plan already\n")
    one = run("plan", "armman", "--arms", "arms/people-0.parquet", "--budget", 3, "--out", "a.csv",
              "--engine", "ray", folder=tmp_path)  # fmt: skip
    assert one.returncode == 2
    assert "--engine, --workers and --no-reasons are for a folder" in one.stderr
