"""The paper as data, its claims, the tasks behind the report, and the report itself."""

import json
import sys
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from prefermab import cli, domains, errors, policies
from prefermab.arms.features import FeatureMap
from prefermab.common import pages
from prefermab.evaluation.compare import evaluate
from prefermab.paper import (
    cells,
    claims,
    given_arms,
    report,
    results,
    runner,
    tables,
    tasks,
    verdicts,
)
from prefermab.paper.runner import Scale, Store
from prefermab.paper.tables import Figure, Setting
from prefermab.recipes import Paper
from studies.uncertainty import IDENTITY, ByBayes, blurred

CELLS = {
    "table1": 15, "table2": 30, "table3": 30, "table4": 30, "table5": 8, "table6": 30,
    "table7": 48, "table9": 45, "table10": 45, "table11": 45, "table12": 6, "table13": 48,
    "table14": 48, "table15": 48, "table16": 15, "prop1": 0, "pools": 0,
}  # fmt: skip
"""Counted in the paper; the n/a of the topline left out."""


def test_no_published_cell_is_left_out():
    found = {
        name: sum(cell is not None for s in table.sections for r in s.rows for cell in r.published)
        for name, table in tables.published_tables().items()
    }
    assert found == CELLS
    assert len(tables.published_hyperparameters()["settings"]) == 11


@pytest.mark.parametrize(
    ("table", "section", "row", "column", "mean", "sd"),
    [
        ("table1", 0, 2, 0, 3.81, 0.23),
        ("table2", 1, 2, 4, 3.75, 0.12),
        ("table3", 0, 2, 2, 7.96, 0.18),
        ("table4", 1, 2, 0, 5.06, 0.36),
        ("table5", 0, 3, 0, 5.28, 0.55),
        ("table6", 1, 2, 4, 7.82, 0.12),
        ("table7", 2, 3, 4, 4.68, 0.09),
        ("table9", 0, 2, 3, 4.52, 0.54),
        ("table10", 1, 2, 1, 4.08, 0.34),
        ("table11", 1, 2, 4, 3.73, 0.16),
        ("table12", 0, 1, 2, 4.21, 0.11),
        ("table13", 2, 2, 3, 4.74, 0.26),
        ("table14", 2, 2, 0, 8.51, 0.08),
        ("table15", 2, 3, 4, 4.08, 0.26),
        ("table16", 0, 2, 4, 3.60, 0.30),
    ],
)
def test_published_figures(table, section, row, column, mean, sd):
    figure = tables.published_tables()[table].sections[section].rows[row].published[column]
    assert figure is not None
    assert (figure.mean, figure.sd) == (mean, sd)


def test_settings_are_what_section_column_and_row_say_together():
    row = tables.published_tables()["table1"].sections[0].rows[2]
    assert row.settings[1] == Setting(
        "synthetic", 21, 7, test=(("shift", 0.05),), own_maps=True, masked=(2, 3), unique_arms=33
    )
    shifted = tables.published_tables()["table3"].sections[0].rows[2].settings[0]
    trained, tried = shifted.trained_on(), shifted.tried_on()
    assert isinstance(trained, domains.SIS)
    assert isinstance(tried, domains.SIS)
    assert float(trained.messaging_effect[1]) == 7
    assert float(tried.messaging_effect[1]) == 8
    # Half the Wasserstein distance above the column.
    assert dict(tables.published_tables()["table2"].sections[0].rows[0].settings[4].test) == {
        "shift": 0.125
    }


def test_columns_divided_by_too_few_arms_are_corrected():
    """0.8·21 = 16.8: 17 arms were in and 16 was divided by; 0.9·25 = 22.5 is 22 either way."""

    def corrections(table, section):
        row = tables.published_tables()[table].sections[section].rows[2]
        return [figure.corrected / figure.mean for figure in row.published if figure]

    assert corrections("table13", 2) == pytest.approx([16 / 17, 17 / 18, 18 / 19, 19 / 20, 1])
    assert corrections("table15", 0) == pytest.approx([1, 1, 1, 23 / 24, 1])
    assert corrections("table9", 0) == [1, 1, 1, 1, 1]


def test_recipe_paper_has_the_published_hyperparameters():
    for entry in tables.published_hyperparameters()["settings"]:
        assert getattr(Paper(), entry["field"]) == entry["published"]


def test_better_same_and_worse():
    """The published standard error is .14/√50 = .0198; ours .01; two of both together .044."""
    pairs = [
        cells.pair_of(Figure(4.0, 0.14), results.Mean(value, 0.01))
        for value in (4.05, 4.04, 3.96, 3.95)
    ]
    assert [pair.mark(1.0) for pair in pairs] == ["better", "same", "same", "worse"]
    assert pairs[-1].mark(1.0, bound=3.99) == "beyond"
    # With twice the published error two of both together are .081.
    assert {pair.mark(2.0) for pair in pairs} == {"same"}


def test_the_error_of_a_mean_counts_seeds_and_trials():
    rewards = np.array([[1.0, 3.0], [2.0, 4.0]])
    # Trials' means 1.5 and 3.5: standard error 1; seeds' means 2 and 3: standard error 0.5.
    assert results.Mean.of(rewards).stderr == pytest.approx(np.sqrt(1.25))


def test_a_claim_holds_fails_or_is_open():
    rising = np.array([0.9, 1.1, 1.0, 1.2])
    assert claims.trend("c", "m", rising).verdict == claims.HOLDS
    assert claims.trend("c", "m", -rising).verdict == claims.FAILS
    assert claims.trend("c", "m", rising - 1.0).verdict == claims.OPEN
    assert claims.trend("c", "m", -rising, below=True).verdict == claims.HOLDS


def test_t_interval_by_hand():
    """Mean 2, standard deviation 1, four values: 2 ± 3.182·1/2."""
    low, high = claims.t_interval(np.array([1.0, 1.5, 2.5, 3.0]))
    spread = np.std([1.0, 1.5, 2.5, 3.0], ddof=1)
    assert (low + high) / 2 == pytest.approx(2.0)
    assert (high - low) / 2 == pytest.approx(3.1824 * spread / 2, rel=1e-4)


def test_samples_that_are_never_enough_are_not_hidden():
    pairs = np.array([[np.inf, 100.0]] * 4)
    found = claims.trend("c", "m", pairs, 0.125, below=True, of=verdicts.share_of_samples)
    assert found.estimate == np.inf
    assert found.verdict == claims.FAILS


def test_slope_of_a_power_law():
    sizes = np.array([21.0, 63.0, 189.0])
    assert claims.slope(sizes, 3 / np.sqrt(sizes)) == pytest.approx(-0.5)


def test_a_pool_has_its_arms_and_no_others():
    pool = tasks.arm_pool(IDENTITY, 5, seed=0)
    drawn = np.asarray(pool.draw_arms(jax.random.key(0), 5))
    assert sorted(drawn) == [0, 1, 2, 3, 4]
    many = np.asarray(pool.draw_arms(jax.random.key(1), 2000))
    assert set(many) == {0, 1, 2, 3, 4}
    arms = IDENTITY.draw_arms(jax.random.key(tasks.POOL_SEED), tasks.LARGEST_POOL)
    np.testing.assert_allclose(pool.features(drawn), IDENTITY.features(arms)[drawn], rtol=1e-6)


@pytest.mark.parametrize("kind", ["identity", "linear", "sigmoid"])
def test_maps_that_share_code_are_the_maps_they_stand_for(kind):
    domain = Setting("synthetic", 4, 1, map=kind, masked=(1,)).trained_on()
    plain = domains.Synthetic(feature_map=FeatureMap(kind, 0, (1,)))
    arms = domain.draw_arms(jax.random.key(0), 50)
    np.testing.assert_allclose(domain.features(arms), plain.features(arms), rtol=1e-6)


def test_trainings_and_baselines_are_shared_between_tables():
    scale = Scale(2, 20)
    at = Setting("synthetic", 21, 7, opt_in=0.8, test=(("shift", 0.1),))
    other = Setting("synthetic", 48, 16)
    assert tasks.Train.of("sweep", at, scale) == tasks.Train.of("sweep", other, scale)
    assert tasks.Train.of("paper", at, scale) != tasks.Train.of("paper", other, scale)
    plain = Setting("synthetic", 21, 7, opt_in=0.8, train=(("shift", 0.1),))
    masked = Setting("synthetic", 21, 7, opt_in=0.8, test=(("shift", 0.1),), masked=(3,))
    assert tasks.Play.of("none", masked, scale) == tasks.Play.of("none", plain, scale)


def test_results_outlive_the_run_and_follow_what_determines_them(tmp_path):
    store, task = Store(tmp_path), tasks.Play.of("none", Setting("synthetic", 4, 1), Scale(2, 10))
    assert not store.has(task)
    store.put(task, {"reward": np.ones((1, 10))})
    assert store.get(task)["reward"].sum() == 10
    assert not store.has(tasks.Play.of("none", Setting("synthetic", 4, 2), Scale(2, 10)))
    assert not store.has(tasks.Play.of("none", Setting("synthetic", 4, 1), Scale(2, 11)))
    store.path(task).write_bytes(b"cut short")
    with pytest.raises(errors.InputError, match="run the command again"):
        store.get(task)
    assert not store.has(task)


def test_what_is_played_is_what_the_evaluator_plays(tmp_path):
    setting, scale = Setting("synthetic", 6, 2, opt_in=0.8), Scale(2, 30)
    played = tasks.Play.of("random", setting, scale).work(Store(tmp_path))["reward"]
    bounds = tasks.Bounds.of(setting, scale).work(Store(tmp_path))
    both = {"random": policies.Random(), "whittle": policies.Whittle()}
    frame = evaluate(
        setting.tried_on(),
        both,
        n_arms=6,
        budget=2,
        opt_in=0.8,
        trials=30,
        seed=runner.EVALUATION_SEED,
    )
    mean = dict(zip(frame["policy"], frame["mean"], strict=True))
    assert played.mean() == pytest.approx(mean["random"])
    assert bounds["informed"].mean() == pytest.approx(mean["whittle"])
    assert bounds["bound"].mean() == pytest.approx(frame["bound"][0])


def test_a_task_brings_what_it_needs():
    play = tasks.Play.of("sweep", Setting("synthetic", 6, 2), Scale(2, 20))
    (train,) = play.needs()
    assert runner.task_graph([play, play]) == {train: (), play: (train,)}


def test_results_outlive_comments_imports_and_moves_but_no_other_change(tmp_path):
    def checksum(**files):
        package = tmp_path / str(sum(1 for _ in tmp_path.iterdir()))
        for name, text in files.items():
            file = package / f"{name.replace('__', '/')}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return runner.source_checksum(package)

    known = checksum(one='import a\n\ndef f():\n    """F."""\n    return a.b', two="x = 1")
    moved = "from new import a\n\n\ndef f():\n    return a.b  # as before\n"
    assert checksum(folder__new=moved, folder__other="x = 1") == known
    assert checksum(both=f"x = 1\n{moved}", front='from both import f\n__all__ = ["f"]') == known
    assert checksum(one=moved, two="x = 2") != known
    assert checksum(one=moved.replace("a.b", "a.c"), two="x = 1") != known
    assert checksum(one=moved, two="x = 1", cli__three="x = 3") == known


def test_pages_are_escaped_and_marked():
    blocks = [
        pages.Text("a < b & `code`"),
        pages.Grid(
            ["", "x"], [[pages.Cell("across")], [pages.Cell("r"), pages.Cell("1", "worse")]]
        ),
    ]
    shown = pages.as_html("T", blocks)
    assert "a &lt; b &amp; <code>code</code>" in shown
    assert 'class="worse"' in shown
    assert 'colspan="2"' in shown
    assert "| r | 1 ▼ |" in pages.as_markdown("T", blocks)


@pytest.mark.computes_much
def test_bayes_with_everything_seen_is_nearly_whittle():
    compared = {"bayes": ByBayes(0.0), "whittle": policies.Whittle()}
    frame = evaluate(blurred(IDENTITY), compared, n_arms=21, budget=7, trials=60, bound=False)
    assert frame["of_best"].to_numpy().min() > 0.995


def test_blurred_features_are_hidden_and_noisy():
    domain = blurred(IDENTITY, noise=0.1, hidden=2)
    arms = domain.draw_arms(jax.random.key(0), 500)
    seen, true = np.asarray(domain.features(arms)), np.asarray(arms["arm"])
    assert (np.isnan(seen).sum(axis=1) == 2).all()
    assert np.nanstd(seen - true) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "table99"], "table99"),
        (["--recipe", "best"], "best"),
        (["--seeds", "1"], "seeds"),
        (["--trials", "3"], "trials"),
        (["--workers", "0"], "workers"),
        (["--quick", "--seeds", "4"], "--quick"),
        (["--out", __file__], "it is a file"),
    ],
)
def test_bad_requests_are_refused_at_once(options, said, tmp_path, monkeypatch, capsys):
    # A wrong word is refused before a folder or file is made.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["prefermab", "reproduce", *options])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


class MadeUp(Store):
    """Results of the right shapes for any task, without computing them."""

    def get(self, task):
        rng = np.random.default_rng(len(repr(task)))
        seeds, trials = task.scale.seeds, task.scale.trials_of(task.setting)
        rewards = lambda *shape: 5 + 0.1 * rng.random(shape)  # noqa: E731
        if isinstance(task, tasks.Bounds):
            bounded = task.scale.bounded_trials_of(task.setting)
            return {"bound": 0.2 + rewards(bounded), "informed": 0.1 + rewards(bounded)}
        if isinstance(task, given_arms.TrainTopline):
            return {"best": rewards(seeds, trials), "last": rewards(seeds, trials)}
        if isinstance(task, given_arms.Curves):
            curve = {"samples": np.arange(5) * 20, "reward": rewards(seeds, 5)}
            return curve | {"random": rewards(seeds) - 1}
        if isinstance(task, tasks.Train):
            return {"price": rewards(seeds, 12) - 5}
        if isinstance(task, tasks.BestPrice):
            return {"price": rewards(3) - 5}
        return {"reward": rewards(seeds, trials)}


@pytest.mark.parametrize("quick", [True, False])
def test_every_part_is_in_both_pages(tmp_path, quick):
    """All tables, figures and claims, in full size and in the quick version."""
    found = results.Results(MadeUp(tmp_path), Scale(3, 20, quick), ("paper", "sweep", "exact"))
    findings = report.collect_findings(report.REPORT_PARTS, found)
    assert {cell.who for cell in findings.models} == {"paper", "sweep", "exact"}
    own = {*CELLS} - {"prop1", "pools"}
    assert {cell.table.name for cell in findings.judged} == own
    assert {cell.table.name for cell in findings.models} == own - {"table12"}
    if not quick:
        assert all(findings.trends[name] for name in [*CELLS, "figure1", "prop3"])
    blocks = report.paper_report_blocks(report.REPORT_PARTS, found, findings, "the command")
    pages.write_pages(tmp_path, report.TITLE, blocks)
    page, marked = (tmp_path / "index.html").read_text(), (tmp_path / "README.md").read_text()
    for part in report.REPORT_PARTS:
        assert f'id="{part}"' in page
        assert f'id="{part}"' in marked
    # Names of SVG itself are no addresses that anything is fetched from.
    assert "http" not in page.replace("http://www.w3.org", "")
    for picture in ("figure1", "figure2", "figure3", "figure4", "prop1", "pools", "prop3"):
        assert "<svg" in (tmp_path / "figures" / f"{picture}.svg").read_text()


def test_every_setting_of_the_paper_can_be_made():
    every = results.Results(Store(Path()), Scale(2, 20), ("paper", "sweep", "exact"))
    graph = runner.task_graph(report.tasks_of(report.REPORT_PARTS, every))
    for setting in {task.setting for task in graph}:
        assert setting.trained_on().name == setting.tried_on().name == setting.domain


def test_training_on_a_few_arms(tmp_path):
    setting = Setting("synthetic", 6, 2, unique_arms=5)
    train = tasks.Train.of("exact", setting, Scale(1, 20, quick=True))
    train.work(Store(tmp_path))
    (model,) = train.models(Store(tmp_path))
    assert model.recipe == "exact"


class Here(runner.Worker):
    """Works in this process, so that code is compiled once and tests see which lines ran."""

    def _hire(self) -> Any:
        return None

    def _begin(self, task):
        done = Future()
        done.set_result(runner.run_task(task, self.store))
        return done

    def _end(self, task, future):
        future.result()

    def stop(self):
        pass


def test_quick_report(tmp_path, monkeypatch, capsys):
    """Every kind of task by the command; then again from what is kept."""
    monkeypatch.setattr(runner, "Worker", Here)
    words = ["reproduce", "--quick", "--json", "--recipe", "paper"]
    words += ["--only", "table13", "figure1", "prop3"]
    words += ["--out", str(tmp_path / "report"), "--cache", str(tmp_path / "kept")]
    monkeypatch.setattr(sys, "argv", ["prefermab", *words])
    cli.main()
    data = json.loads(capsys.readouterr().out)
    models = {cell["recipe"] for cell in data["cells"] if cell["policy"] == "prefermab"}
    assert models == {"paper"}
    others = {cell["policy"] for cell in data["cells"]} - {"prefermab"}
    assert others == {"none", "random", "ddlpo"}
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()}
    kinds = {path.name.partition("-")[0] for path in kept}
    assert kinds == {"train", "play", "bounds", "traintopline", "zeroshot", "curves", "bestprice"}
    cli.main()
    assert json.loads(capsys.readouterr().out) == data
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "kept").iterdir()} == kept
    assert (tmp_path / "report" / "index.html").exists()


def test_tasks_are_run_in_processes_of_their_own(tmp_path):
    """With the same results; an error comes back as a sentence that names the task."""
    setting, scale = Setting("synthetic", 6, 2), Scale(2, 20, quick=True)
    play = tasks.Play.of("none", setting, scale)
    runner.run_all([play], Store(tmp_path / "apart"), 1, None)
    runner.run_all([play], Store(tmp_path / "here"), 1, None, Here)
    apart, here = (Store(tmp_path / name).get(play)["reward"] for name in ("apart", "here"))
    np.testing.assert_allclose(apart, here, rtol=1e-6)
    wrong = tasks.Play.of("none", Setting("nowhere", 6, 2), scale)
    with pytest.raises(errors.InputError, match=r"playing none on nowhere, 100% in: .*nowhere"):
        runner.run_all([wrong], Store(tmp_path / "apart"), 1, None)
