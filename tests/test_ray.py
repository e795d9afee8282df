"""Plans on a real Ray cluster of several nodes: the same files as on one machine, bit for bit."""

import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

import prefermab as pm
from prefermab.engines import Ray
from prefermab.planning.folder import plan_folder
from test_folder import in_parts, people

pytestmark = [
    # Ray leaves files and processes to its own shutdown, and warns of its own future.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]

RULES = pm.Rules(exclude="stop", cooldown=1)
ASKED = {"budget": 5000.3, "rules": RULES, "rows": 7_000}


@pytest.fixture(scope="module")
def arms(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("people") / "arms"
    return in_parts(people(70_000), folder, [20_000])


@pytest.fixture(scope="module")
def alone(arms) -> dict[str, bytes]:
    out = arms.parent / "alone"
    plan_folder("armman", arms, out, **ASKED)
    return files(out)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False}
        )
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def with_nodes(cluster: Any, number: int) -> None:
    while len(cluster.list_all_nodes()) < 1 + number:
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()


def test_one_two_and_four_nodes_write_the_same(tmp_path, cluster, arms, alone):
    for number in (1, 2, 4):
        with_nodes(cluster, number)
        out = tmp_path / str(number)
        plan_folder("armman", arms, out, engine="ray", **ASKED)
        assert files(out) == alone


class Stumbling(Ray):
    """Stands still in the middle of a pass until the node where it does is lost."""

    def __init__(self, log: Path):
        super().__init__()
        self.log = str(log)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        log, asking = self.log, getattr(function, "func", function).__name__ == "judge"

        def stumbling(item: Any) -> Any:
            if asking and item.number == 4:
                with Path(log).open("a") as file:
                    file.write(ray.get_runtime_context().get_node_id() + "\n")
                if len(Path(log).read_text().splitlines()) == 1:
                    time.sleep(60)
            return function(item)

        return super().map(stumbling, items)


def test_a_node_that_is_killed_midway_is_survived(tmp_path, cluster, arms, alone):
    with_nodes(cluster, 3)
    log, out = tmp_path / "log", tmp_path / "out"
    unfinished: list[str] = []

    def kill() -> None:
        while not log.exists() or not log.read_text().endswith("\n"):
            time.sleep(0.05)
        unfinished.extend(path.name for path in (out / ".unfinished").glob("piece-*"))
        lost = log.read_text().strip()
        node = next(node for node in cluster.list_all_nodes() if node.node_id == lost)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    plan_folder("armman", arms, out, engine=Stumbling(log), **ASKED)
    killer.join()
    assert files(out) == alone
    first, again = log.read_text().splitlines()
    assert first != again
    assert len(unfinished) < len(alone) - 1


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"exclude_ids": ("x",)}, r"^nobody has the id 'x' that exclude_ids names\.$"),
        ({"exclude": "region"}, r"people-0\.parquet: the column 'region' must hold .* row 1 holds"),
    ],
)
def test_errors_come_back_in_one_sentence(tmp_path, cluster, arms, rules, message):
    with_nodes(cluster, 1)
    with pytest.raises(pm.InputError, match=message) as error:
        plan_folder("armman", arms, tmp_path / "out", 9, pm.Rules(**rules), engine="ray")
    assert "\n" not in str(error.value)
