"""Every Python block in the README and the docs runs as printed."""

import inspect
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import prefermab as pm
from prefermab.cli import dispatch
from prefermab.evaluation import compare
from prefermab.programme.evidence import power
from prefermab.programme.learning import gain
from prefermab.recipes.regression import Regression

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITH_CODE = [page for page in PAGES if "```python" in page.read_text()]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


@pytest.fixture
def little_work(monkeypatch):
    """What is printed is run as it is, but with few trials, training steps and random orders."""
    few, whole = 5, compare.evaluate

    def evaluate(*given, trials=few, **settings):
        return whole(*given, trials=min(trials, few), **settings)

    monkeypatch.setattr(compare, "evaluate", evaluate)
    monkeypatch.setattr(Regression, "pieces", property(lambda self: (min(self.steps, few),)))
    monkeypatch.setattr(gain, "MOST_TRANSITIONS", 0)
    monkeypatch.setattr(gain, "PREDICTION_DRAWS", 2)
    simulate = power.simulate_effects

    def simulate_few(pool, design, tried, people, clusters, trials, rng):
        return simulate(pool, design, tried, people, clusters, min(trials, few), rng)

    monkeypatch.setattr(power, "simulate_effects", simulate_few)


@pytest.mark.usefixtures("little_work")
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
    for block in blocks(ROOT / "docs" / "domains.md"):
        exec(block, names)
        if "Machines" in names:
            break
    machines = names["Machines"]()
    table = machines.transitions(jnp.array([0.5, 0.8, 0.9, 1.5]))
    np.testing.assert_allclose(table[2, 0], [0, 0.5, 0.5, 0], rtol=1e-5)  # worn by one step
    np.testing.assert_allclose(table[2, 1], [0, 0.1, 0.9, 0], rtol=1e-5)  # 0.5 · (1 - 0.8)
    np.testing.assert_allclose(table[2, 2], [0, 0, 0.1, 0.9], rtol=1e-5)
    np.testing.assert_allclose(machines.costs(jnp.array([0.5, 0.8, 0.9, 1.5])), [0, 1, 6])


def public_names() -> dict[str, object]:
    """Everything that `prefermab` and its public modules export, by full name."""
    exported = {f"prefermab.{name}": getattr(pm, name) for name in pm.__all__}
    for module in filter(inspect.ismodule, list(exported.values())):
        for name in getattr(module, "__all__", []):
            exported[f"{module.__name__}.{name}"] = getattr(module, name)
    return exported


def test_everything_public_has_a_docstring():
    assert not [name for name, found in public_names().items() if not inspect.getdoc(found)]


INTERFACES = (pm.domains.Domain, pm.policies.Policy, pm.recipes.Recipe)
"""Classes that users fill in. The class says what the arguments of its methods are, once."""


def public_methods(kind: type) -> dict[str, Callable]:
    """The methods that a class defines itself, by name."""
    methods = {name: getattr(method, "__func__", method) for name, method in vars(kind).items()}
    return {n: f for n, f in methods.items() if inspect.isfunction(f) and not n.startswith("_")}


def public_functions() -> dict[str, Callable]:
    """Functions that users call: public ones, and the methods of public classes."""
    functions = {}
    for name, thing in public_names().items():
        if inspect.isfunction(thing):
            functions[name] = thing
        elif inspect.isclass(thing) and not issubclass(thing, INTERFACES):
            methods = public_methods(thing).items()
            functions |= {f"{name}.{method}": function for method, function in methods}
    return functions


def parameters(function: Callable) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self", "cls"}


def missing_sections(function: Callable) -> list[str]:
    """`Args:` and `Returns:`, where a docstring lacks what its function has."""
    docstring, signature = inspect.getdoc(function) or "", inspect.signature(function)
    if not parameters(function):
        return []
    returns = signature.return_annotation not in (None, "None")
    wanted = ["Args:", *["Returns:"] * returns]
    return [section for section in wanted if section not in docstring]


def test_public_functions_say_what_they_take_and_return():
    functions = public_functions()
    assert len(functions) > 60
    missing = {name: missing_sections(function) for name, function in functions.items()}
    assert not {name: sections for name, sections in missing.items() if sections}


@pytest.mark.parametrize("interface", INTERFACES)
def test_interfaces_say_what_the_arguments_of_their_methods_are(interface):
    methods = public_methods(interface)
    assert len(methods) > 2
    assert all(method.__doc__ for method in methods.values())
    used = set().union(*map(parameters, methods.values()))
    assert not {name for name in used if f"`{name}`" not in interface.__doc__}


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^version: (.+)$", citation, flags=re.MULTILINE) == [pm.__version__]
    assert re.findall(r"^## (\d[\w.]*)", changes, flags=re.MULTILINE)[0] == pm.__version__


def test_the_oldest_versions_are_those_that_are_promised_and_have_no_known_holes():
    root = Path(__file__).parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = [one for name, many in project["optional-dependencies"].items() if name != "dev"
              for one in many if not one.startswith("prefermab[")]  # fmt: skip
    bounds = dict(re.match(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", one).groups()  # pyright: ignore
                  for one in [*project["dependencies"], *extras])  # fmt: skip
    lines = (root / "constraints-lowest.txt").read_text().splitlines()
    lowest = dict(one.lower().split("==") for one in lines if "==" in one and one[0] != "#")
    numbers = lambda text: [int(part) for part in re.sub(r"(\.0)+$", "", text).split(".")]  # noqa: E731
    for name, bound in bounds.items():
        if name not in ("furo", "myst-parser", "sphinx"):  # which make no tests
            assert numbers(lowest[name.lower()]) == numbers(bound), name
    sound = {"starlette": "0.49.1", "h11": "0.16", "python-multipart": "0.0.27", "jinja2": "3.1.6"}
    for name, first in sound.items():
        assert numbers(bounds[name]) >= numbers(first)


def test_the_site_builds_has_all_that_is_public_and_loads_nothing_from_elsewhere(tmp_path):
    build = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    done = subprocess.run([*build, ROOT / "docs", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {page: page.read_text() for page in tmp_path.rglob("*.html")}
    assert len(pages) > 10
    reference = "".join(text for page, text in pages.items() if page.parent.name == "api")
    documented = {name for name, found in public_names().items() if callable(found)}
    assert not {name for name in documented if f'id="{name}"' not in reference}
    elsewhere = re.compile(r'<(script|link|img|iframe)[^>]+(src|href)="([a-z]+:)?//')
    assert not [page.name for page, text in pages.items() if elsewhere.search(text)]


@pytest.mark.usefixtures("little_work")
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
    for made in ("report/index.html", "budgets.svg", "trial/index.html", "analysis/index.html"):
        assert (tmp_path / "clinic" / made).stat().st_size > 1000


def test_each_sentence_on_security_names_tests_that_are_there():
    tests = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    text = (ROOT / "SECURITY.md").read_text()
    rows = re.findall(r"^\| (?!what holds)[^|]+\. \|([^|]*)\|$", text, re.MULTILINE)
    assert len(rows) > 25
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named
        assert all(f"def {name}(" in tests for name in named), row


def test_the_list_of_decisions_is_that_of_its_pages():
    index = (ROOT / "docs" / "decisions.md").read_text()
    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        _, _, listed = index.partition(f"(decisions/{page.name})")
        titles = re.findall(r"^- (.*)$", listed.partition("\n## ")[0], re.MULTILINE)
        assert titles == re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE), page.name
