"""Every Python block in the README and the docs runs as printed."""

import re
from pathlib import Path

import pytest

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
