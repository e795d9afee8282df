"""Imports point one way: down the floors that docs/architecture.md lists, and never in a circle."""

import ast
import re
from collections import defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from prefermab.experiments.lab import APART

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "prefermab"
LATE = {("model", "planning"), ("model", "storage")}
"""What a room takes from a floor above, inside a function."""


def floors() -> dict[str, int]:
    """The floor of every room, from the document."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = re.search(r"```text\n(.*?)```", text, re.DOTALL)
    assert block
    found, floor = {}, 0
    for line in block[1].splitlines():
        words = line.split()
        if not line.startswith(" "):
            floor, words = floor - 1, words[1:]
        found |= dict.fromkeys(words, floor)
    return found


def room(module: str) -> str:
    """prefermab.planning.plan is in planning."""
    return module.split(".")[1]


def imports() -> tuple[dict[str, set[str]], set[tuple[str, str]]]:
    """What rooms import from each other: at once, and late."""
    at_once, late = defaultdict(set), set()
    for file in SOURCE.rglob("*.py"):
        here = file.relative_to(SOURCE).with_suffix("").parts[0]
        if here == "__init__":
            continue
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module == "prefermab":
                names = [
                    f"prefermab.{alias.name}" for alias in node.names
                    if alias.name != "__version__"
                ]  # fmt: skip
            elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("prefermab."):
                names = [str(node.module)]
            for name in names:
                if room(name) != here and node in tree.body:
                    at_once[here].add(room(name))
                elif room(name) != here:
                    late.add((here, room(name)))
    return at_once, late


def test_every_room_is_on_a_floor_and_every_floor_has_rooms():
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert there - {"__init__", "__pycache__", "weights", "data", "py"} == set(floors())


def test_source_that_no_result_depends_on_is_named_as_it_is_now():
    assert all((SOURCE / name).exists() for name in APART)


def test_no_room_imports_from_a_floor_above():
    floor, (at_once, late) = floors(), imports()
    upwards = {
        (here, other) for here, others in at_once.items() for other in others
        if floor[other] > floor[here]
    }  # fmt: skip
    assert not upwards
    assert {pair for pair in late if floor[pair[1]] > floor[pair[0]]} == LATE


def test_no_rooms_import_each_other():
    at_once, _ = imports()
    order = list(TopologicalSorter(at_once).static_order())
    assert order.index("errors") < order.index("commands")


@pytest.mark.parametrize("hop", re.findall(r"`([a-z_]+(?:/[a-z_]+)?)\.([A-Za-z_.]+)`", (
    ROOT / "docs" / "architecture.md").read_text().partition("## From a CSV")[2]))  # fmt: skip
def test_every_hop_of_a_walk_is_there(hop):
    where, name = hop
    file = SOURCE / f"{where}.py"
    if not file.exists():  # a name such as `Plan.write`, of the room that the walk is in
        return
    names = {node.name for node in ast.walk(ast.parse(file.read_text()))
             if isinstance(node, ast.FunctionDef | ast.ClassDef)}  # fmt: skip
    assert name == "py" or set(name.split(".")) <= names
