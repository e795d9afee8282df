"""Measuring speed: what is written, what is compared, what is refused. No test looks at a clock."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import cases, command, measuring
from benchmarks.command import BenchCommand
from prefermab.errors import InputError


@pytest.fixture
def one_case(monkeypatch):
    """One small case on a machine of known speed; what it ran is counted."""
    ran = []
    case = measuring.Case("bound", "small", "things", 10, lambda: ran.append(1), flops=5.0)
    monkeypatch.setattr(cases, "cases", lambda _: [case])
    monkeypatch.setattr(measuring, "machine", lambda: measuring.Machine(1000.0, 1000.0))
    monkeypatch.setattr(measuring, "seconds_of", lambda run: run() or 0.5)
    return ran


def test_a_case_is_warmed_up_repeated_and_set_beside_the_limit(one_case, tmp_path, capsys):
    BenchCommand(out=tmp_path / "now.json").run()
    (found,) = json.loads((tmp_path / "now.json").read_text())["cases"]
    assert len(one_case) == 1 + found["repeats"] >= 4
    assert found["seconds"] == 0.5
    assert found["rate"] == 20.0
    assert found["of_limit"] == pytest.approx(10 * 5 / 1000 / 0.5)
    assert "small" in capsys.readouterr().out


@pytest.mark.usefixtures("one_case")
@pytest.mark.parametrize(("before", "fails"), [(0.5, False), (0.2, True)])
def test_slower_than_before_past_the_threshold_fails(tmp_path, before, fails):
    old = tmp_path / "old.json"
    old.write_text(json.dumps({"cases": [{"group": "bound", "name": "small", "seconds": before}]}))
    if not fails:
        BenchCommand(compare=old, threshold=2.0).run()
        return
    with pytest.raises(InputError, match=r"bound: small takes 2\.50 times as long .* more than 2"):
        BenchCommand(compare=old, threshold=2.0).run()


@pytest.mark.usefixtures("one_case")
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"only": ("nothing",)}, "nothing"),
        ({"threshold": 0.5}, "threshold"),
        ({"largest": 0}, "largest"),
    ],
)
def test_wrong_options_are_named(options, named):
    with pytest.raises(InputError, match=named):
        BenchCommand(**options).run()


@pytest.mark.usefixtures("one_case")
def test_a_file_that_is_no_measurement_is_named(tmp_path):
    strange = tmp_path / "strange.json"
    strange.write_text("{}")
    for path in (strange, tmp_path / "missing.json"):
        with pytest.raises(InputError, match=path.name):
            BenchCommand(compare=path).run()


def test_without_a_checkout_one_sentence_says_where_it_is(tmp_path):
    import prefermab

    installed = tmp_path / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "prefermab").symlink_to(Path(prefermab.__file__).parent)
    ran = subprocess.run(
        [sys.executable, "-m", "prefermab", "bench"],
        env={**os.environ, "PYTHONPATH": str(installed)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "run `make bench` there" in ran.stderr


@pytest.mark.parametrize("name", ["cpu", "h200"])
def test_the_page_says_what_the_committed_figures_say(name):
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "performance.md").read_text()
    assert command.markdown_table(docs / "performance" / f"{name}.json") in page


def test_every_group_has_cases_and_large_ones_can_be_left_out():
    few, all_of_them = (list(cases.cases(largest)) for largest in (1000, 10_000))
    assert {case.group for case in few} | {"act", "plan"} == set(command.CASE_GROUPS)
    assert {case.group for case in all_of_them} == set(command.CASE_GROUPS)
    assert len({(case.group, case.name) for case in all_of_them}) == len(all_of_them)
