"""Imports point one way: from the programme side to the science, and never in a circle."""

import ast
import re
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float, TypeCheckError, jaxtyped

import conftest
from prefermab.paper.runner import NO_RESULT_DEPENDS_ON

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "prefermab"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
PROGRAMME_SIDE = ("programme", "service", "cli", "bench", "__main__")
"""The half that is built on the other; everything else is the science."""

DOOR = ("prefermab.model", "prefermab.programme.planning.plan")
"""`Model.plan` and `Model.what_if`: the one import of the programme side by the science."""


def module_name(file: Path) -> str:
    """src/prefermab/oracles/__init__.py is prefermab.oracles."""
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports() -> set[tuple[str, str]]:
    """All imports between modules, those inside functions included; not those for types alone."""
    files = {module_name(file): file for file in SOURCE.rglob("*.py")}
    found = set()
    for here, file in files.items():
        tree = ast.parse(file.read_text())
        for_types = {
            id(inner)
            for node in ast.walk(tree)
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }  # fmt: skip
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in for_types and node.module:
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {(here, name if name in files else node.module) for name in names}
            elif isinstance(node, ast.Import):
                found |= {(here, alias.name) for alias in node.names}
    return {(here, other) for here, other in found if other in files and other != "prefermab"}


SEVERAL = {
    "BY_NAME": "registries: what can be asked for by name, of domains, policies and recipes",
    "T": "a type variable",
    "main": "entry points",
    "router": "routes of a part of the service",
}
"""Public names that several modules define, and why: each is looked up in its module."""


def public_names(tree: ast.Module) -> set[str]:
    """Classes, functions and constants at the top of a module, but for names with an underscore."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            inner = [each for target in targets for each in ast.walk(target)]
            stored = [it for it in inner if isinstance(it, ast.Name)]
            names |= {it.id for it in stored if isinstance(it.ctx, ast.Store)}
    return {name for name in names if not name.startswith("_")}


def is_science(module: str) -> bool:
    return module.split(".")[1] not in PROGRAMME_SIDE


def test_the_science_does_not_import_the_programme_side():
    upwards = {(a, b) for a, b in imports() if a != "prefermab" and is_science(a)} & {
        (a, b) for a, b in imports() if not is_science(b)
    }
    assert upwards == {DOOR}


def test_only_the_command_line_imports_the_service():
    found = {a for a, b in imports() if b.split(".")[1] == "service"}
    assert {name.split(".")[1] for name in found} == {"cli", "service"}


def test_no_import_cycles():
    graph = defaultdict(set)
    for here, other in imports() - {DOOR}:
        graph[here].add(other)
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
    assert order.index("prefermab.errors") < order.index("prefermab.model")


def test_source_that_no_result_depends_on_is_named_as_it_is_now():
    assert all((SOURCE / name).exists() for name in NO_RESULT_DEPENDS_ON)


EXECUTES = {
    "exec", "eval", "__import__", "import_module", "exec_module", "load_module", "run_path",
    "run_module", "entry_points", "spec_from_file_location",
}  # fmt: skip
IMPORTS_BY_NAME = {
    "__init__.py": "public names, from a table",
    "cli/__init__.py": "commands, from a table",
    "engines.py": "ray",
    "domains/loading.py": "the file of a domain, which a user typed",
}
TYPED = {
    "cli/evaluate.py": "DOMAIN and --domain",
    "cli/train.py": "DOMAIN",
    "gym/episodes.py": "the argument `domain` of an environment",
}
"""Where the name of a domain is one that a user typed, so that it may be that of a file."""


def test_only_what_a_user_typed_is_executed():
    """`domains.get` executes files; names from anywhere else go to `domains.built_in`."""
    executing, getting = set(), set()
    for file in SOURCE.rglob("*.py"):
        here = file.relative_to(SOURCE).as_posix()
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                loaded = {alias.name.partition(".")[0] for alias in node.names}
                assert not loaded & {"pickle", "marshal", "shelve", "runpy", "code", "dill"}, here
            if not isinstance(node, ast.Call):
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            owner = getattr(getattr(node.func, "value", None), "id", None)
            if called in EXECUTES:
                executing.add(here)
            if called in ("in_a_file", "class_in_file") and here != "cli/evaluate.py":
                assert here == "domains/__init__.py", here
            if (called, owner) == ("get", "domains"):
                getting.add(here)
            assert not any(word.arg == "allow_pickle" for word in node.keywords), here
    assert executing == set(IMPORTS_BY_NAME)
    assert getting == set(TYPED)


def test_every_source_file_is_short():
    long = {str(f.relative_to(ROOT)) for f in SOURCE.rglob("*.py")
            if len(f.read_text().splitlines()) > 350}  # fmt: skip
    assert not long


def test_no_public_name_is_defined_in_two_modules():
    """One name for one thing: who searches for a name finds one definition."""
    found = defaultdict(list)
    for file in sorted(SOURCE.rglob("*.py")):
        if "migrations" not in file.relative_to(SOURCE).parts:
            for name in public_names(ast.parse(file.read_text())) - set(SEVERAL):
                found[name].append(file.relative_to(SOURCE).as_posix())
    twice = {name: where for name, where in sorted(found.items()) if len(where) > 1}
    if twice:
        pytest.fail("\n".join(f"{name}: {', '.join(where)}" for name, where in twice.items()))


HALVES = re.findall(r"^About ([0-9,]+) lines", ARCHITECTURE, re.M)


@pytest.mark.parametrize(("place", "science"), [(0, True), (1, False)])
def test_the_page_says_how_long_each_half_is(place, science):
    lines = sum(
        len(file.read_text().splitlines())
        for file in SOURCE.rglob("*.py")
        if (file.relative_to(SOURCE).with_suffix("").parts[0] not in PROGRAMME_SIDE) == science
    )
    told = int(HALVES[place].replace(",", ""))
    assert abs(told - lines) <= 0.05 * lines, f"docs/architecture.md says {told}, it is {lines}"


WALKS = ARCHITECTURE.partition("## From a CSV")[2]
HOPS = re.findall(r"`([a-z_/]+)\.([A-Za-z_.]+)`", WALKS)


def test_the_walks_are_found():
    assert len(HOPS) > 10


@pytest.mark.parametrize(("where", "name"), HOPS)
def test_every_hop_of_a_walk_is_there(where, name):
    """A hop is a module, `model.py`, or what a module or package defines or imports."""
    file = SOURCE / f"{where}.py"
    if name != "py" and not file.exists():
        file = SOURCE / where / "__init__.py"
    assert file.exists(), f"{where} is no module"
    names = {"py"}
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    assert set(name.split(".")) <= names


def test_shapes_inside_functions_are_checked_each_time():
    def outer(given, answer):
        @jaxtyped(typechecker=conftest.checked)
        def inner(x: Float[np.ndarray, "arm"], y: Float[np.ndarray, "arm"]) -> int:
            return answer if len(x) == len(y) else -1

        return inner(*given)

    for size in (2, 3):
        same = (np.ones(size), np.ones(size))
        assert outer(same, 1) == 1
        with pytest.raises(TypeCheckError, match="parameters"):
            outer((np.ones(size), np.ones(4)), 1)
        with pytest.raises(TypeCheckError, match="return value"):
            outer(same, "one")


HOOKS = {"check", "between", "collapsed", "samples_per_round", "prepare", "memory"}
"""Methods of recipes and policies that do nothing unless somebody needs them."""


def test_methods_of_recipes_policies_and_networks_are_abstract_or_final():
    """What two classes share is an object that both hold, and not a method that one replaces."""
    parts = ("recipes/", "policies/", "networks.py", "pricing.py", "topline.py")
    texts = [file.read_text() for file in SOURCE.rglob("*.py")
             if file.relative_to(SOURCE).as_posix().startswith(parts)]  # fmt: skip
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    classes = {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}

    def bases(name):
        for base in classes[name].bases:
            base = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(base, ast.Name) and base.id in classes:
                yield base.id
                yield from bases(base.id)

    def concrete(name):
        methods = [one for one in classes[name].body if isinstance(one, ast.FunctionDef)]
        decorators = {one.name: [ast.unparse(how) for how in one.decorator_list] for one in methods}
        return {name for name, hows in decorators.items() if "abc.abstractmethod" not in hows}

    own = {"__post_init__", "__check_init__", "__init_subclass__"} | HOOKS
    replaced = {(name, base, method) for name in classes for base in bases(name)
                for method in concrete(name) & concrete(base) - own}  # fmt: skip
    assert not replaced
