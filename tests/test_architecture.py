"""A folder is a layer: it imports lower ones only, and no two files import each other."""

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

LAYERS = (
    "errors.py",
    "common", "arms", "domains", "oracles", "networks", "policies", "evaluation", "recipes", "gym",
    "models", "training", "paper",
    "programme/tables", "programme/events", "programme/logs", "programme/planning",
    "programme/bulk", "programme/evidence", "programme/learning", "programme/store",
    "service/auth", "service/http", "service/work", "service/pages", "service/api", "service",
    "cli", ".",
)  # fmt: skip
"""The folders of the package. Each imports only itself and those before it; the last are the files
beside the folders."""

DOOR = ("prefermab.models.model", "prefermab.programme.planning.plan")
"""`Model.plan` and `Model.what_if`: the one import of a higher layer."""


def module_name(file: Path) -> str:
    """src/prefermab/oracles/__init__.py is prefermab.oracles."""
    parts = file.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


FILES = {module_name(file): file for file in SOURCE.rglob("*.py") if "migrations" not in file.parts}


def layer(module: str) -> str:
    """A folder inside a layer is part of it."""
    file = FILES[module].relative_to(SOURCE)
    return next(it.as_posix() for it in (file, *file.parents) if it.as_posix() in LAYERS)


def imports() -> set[tuple[str, str]]:
    """All imports between modules, those inside functions included; not those for types alone."""
    found = set()
    for here, file in FILES.items():
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
                found |= {(here, name if name in FILES else node.module) for name in names}
            elif isinstance(node, ast.Import):
                found |= {(here, alias.name) for alias in node.names}
    return {(here, other) for here, other in found if other in FILES and other != "prefermab"}


def test_every_folder_is_a_layer():
    assert {layer(module) for module in FILES} == set(LAYERS)
    beside = {FILES[module].parent for module in FILES if layer(module) == "."}
    assert beside == {SOURCE, SOURCE / "programme"}


def test_a_folder_imports_lower_ones_only():
    upwards = {
        (here, other)
        for here, other in imports() - {DOOR}
        if LAYERS.index(layer(here)) < LAYERS.index(layer(other))
    }
    assert not upwards


def test_no_import_cycles():
    graph = defaultdict(set)
    for here, other in imports() - {DOOR}:
        graph[here].add(other)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


def test_the_page_lists_the_layers_in_their_order():
    assert re.findall(r"^\| `([a-z/.]+?)/?` \|", ARCHITECTURE, re.M) == list(LAYERS[:-1])


def test_source_that_no_result_depends_on_is_named_as_it_is_now():
    assert all((SOURCE / name).exists() for name in NO_RESULT_DEPENDS_ON)


WALKS = ARCHITECTURE.partition("## From a CSV")[2]
HOPS = re.findall(r"`([a-z_/]+)\.([A-Za-z_.]+)`", WALKS)


def test_the_walks_are_found():
    assert len(HOPS) > 10


@pytest.mark.parametrize(("where", "name"), HOPS)
def test_every_hop_of_a_walk_is_there(where, name):
    """A hop is a module, `plan.py`, or what a module or package defines or imports."""
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


EXECUTES = {
    "exec", "eval", "__import__", "import_module", "exec_module", "load_module", "run_path",
    "run_module", "entry_points", "spec_from_file_location",
}  # fmt: skip
IMPORTS_BY_NAME = {
    "__init__.py": "public names, from a table",
    "cli/__init__.py": "commands, from a table",
    "errors.py": "packages of extras, named in the code",
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


HOOKS = {"check", "between", "collapsed", "samples_per_round", "prepare", "memory"}
"""Methods of recipes and policies that do nothing unless somebody needs them."""


def test_methods_of_recipes_policies_and_networks_are_abstract_or_final():
    """What two classes share is an object that both hold, and not a method that one replaces."""
    parts = ("recipes/", "policies/", "networks/", "training/topline.py")
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


def test_only_the_store_knows_the_tables_of_a_programme():
    """Others ask `programme/store/lookups.py`, `queries.py` or `Programme`."""
    tables = "prefermab.programme.store.schema"
    assert {here for here, other in imports() if other == tables} <= {
        here for here, _ in imports() if here.startswith("prefermab.programme.store.")
    }
