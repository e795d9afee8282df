"""Every Python block in the README and the docs runs as printed."""

import importlib
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import prefermab as pm
from prefermab.cli import dispatch

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_code_runs(page, capsys):
    names: dict = {"__name__": "docs"}
    for block in blocks(page):
        exec(compile(block, page.name, "exec"), names)
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert target.startswith("http") or (page.parent / target).exists(), target


def test_the_machines_of_the_docs_do_what_they_say():
    import jax.numpy as jnp
    import numpy as np

    names: dict = {"__name__": "docs"}
    for block in blocks(ROOT / "docs" / "domains.md")[:2]:
        exec(block, names)
    machines = names["Machines"]()
    table = machines.transitions(jnp.array([0.5, 0.8, 0.9, 1.5]))
    np.testing.assert_allclose(table[2, 0], [0, 0.5, 0.5, 0], rtol=1e-5)  # worn by one step
    np.testing.assert_allclose(table[2, 1], [0, 0.1, 0.9, 0], rtol=1e-5)  # 0.5 · (1 - 0.8)
    np.testing.assert_allclose(table[2, 2], [0, 0, 0.1, 0.9], rtol=1e-5)
    np.testing.assert_allclose(machines.costs(jnp.array([0.5, 0.8, 0.9, 1.5])), [0, 1, 6])


def test_all_that_is_public_is_in_the_reference():
    public = {name: getattr(pm, name) for name in pm.__all__}
    modules = {name: found for name, found in public.items() if inspect.ismodule(found)}
    for name, module in {**modules, "gym": importlib.import_module("prefermab.gym")}.items():
        page = (ROOT / "docs" / "api" / f"{name}.md").read_text()
        assert f".. automodule:: {module.__name__}\n   :members:" in page
    for name, module in {**modules, "prefermab": pm}.items():
        for public_name in getattr(module, "__all__", []):
            assert inspect.getdoc(getattr(module, public_name)), f"{name}.{public_name}"


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    build = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    done = subprocess.run([*build, ROOT / "docs", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "api" / "prefermab.html").read_text()
    assert all(f'id="prefermab.{name}"' in reference for name in ("evaluate", "load", "Model.act"))
    elsewhere = re.compile(r'<(script|link|img|iframe)[^>]+(src|href)="([a-z]+:)?//')
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 10
    assert not [page.name for page in pages if elsewhere.search(page.read_text())]


def test_the_commands_of_the_tutorial_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "tutorial.md").read_text()
    commands = re.findall(r"^```sh\n(.*?)\n```", page, flags=re.DOTALL | re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "prefermab"
        dispatch(words)
    plan = pl.read_csv(tmp_path / "clinic" / "plan.csv").filter(pl.col("list") == "chosen")
    assert len(plan) == 30
    assert (plan["region"] == "north").mean() >= 0.34
    assert (plan["nurse"] == "Ana").sum() <= 12
    assert (plan["do_not_call"] == "no").all()
    assert (plan["rounds_since_action"].fill_null(99) > 2).all()
    for made in ("report/index.html", "budgets.svg"):
        assert (tmp_path / "clinic" / made).stat().st_size > 1000
