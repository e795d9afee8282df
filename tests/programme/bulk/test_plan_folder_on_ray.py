"""Plans on a real Ray cluster of several nodes: the same files as on one machine, bit for bit."""

import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import cloudpickle
from test_plan_folder import in_parts, people

import prefermab as pm
from prefermab.common.engines import Ray
from prefermab.programme.bulk.driver import plan_folder
from prefermab.programme.bulk.passes import score_chunk

pytestmark = [
    # Ray leaves files and processes to its own shutdown, and warns of its own future.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]

RULES = pm.Rules(exclude_column="stop", cooldown=1)
ASKED = {"budget": 5000.3, "rules": RULES, "rows": 17_500}


@pytest.fixture(scope="module")
def arms(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("people") / "arms"
    return in_parts(people(70_000), folder, [35_000])


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


@pytest.fixture(autouse=True, scope="module")
def sent_whole() -> Iterator[None]:
    """Workers cannot import this file: what they need of it is sent to them."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def with_nodes(cluster: Any, number: int) -> None:
    while len(cluster.list_all_nodes()) < 1 + number:
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()


def test_a_cluster_writes_the_same(tmp_path, cluster, arms, alone):
    with_nodes(cluster, 1)
    plan_folder("armman", arms, tmp_path / "out", engine="ray", **ASKED)
    assert files(tmp_path / "out") == alone


def test_an_error_comes_back_in_one_sentence(tmp_path, cluster, arms):
    with_nodes(cluster, 1)
    message = r"people-0\.parquet: the column 'region' must hold .* row 1 holds"
    with pytest.raises(pm.InputError, match=message) as error:
        plan_folder(
            "armman", arms, tmp_path / "out", 9, pm.Rules(exclude_column="region"), engine="ray"
        )
    assert "\n" not in str(error.value)


def stumble(log: str) -> None:
    """Writes down the node, and the first time stays there until it is lost."""
    with Path(log).open("a") as file:
        file.write(ray.get_runtime_context().get_node_id() + "\n")
    if len(Path(log).read_text().splitlines()) == 1:
        time.sleep(60)


def kill_at(cluster: Any, log: Path) -> None:
    """Kills the node that somebody stumbled on."""
    while not log.exists() or not log.read_text().endswith("\n"):
        time.sleep(0.05)
    lost = log.read_text().strip()
    node = next(node for node in cluster.list_all_nodes() if node.node_id == lost)
    cluster.remove_node(node, allow_graceful=False)


class Stumbling(Ray):
    """Stands still in the middle of a pass until the node where it does is lost."""

    def __init__(self, log: Path):
        super().__init__()
        self.log = str(log)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        log, asking = self.log, getattr(function, "func", function) is score_chunk

        def stumbling(item: Any) -> Any:
            if asking and item.number == 2:
                stumble(log)
            return function(item)

        return super().map(stumbling, items)


def test_two_nodes_write_the_same_though_one_is_killed_midway(tmp_path, cluster, arms, alone):
    with_nodes(cluster, 2)
    log, out = tmp_path / "log", tmp_path / "out"
    killer = threading.Thread(target=kill_at, args=(cluster, log), daemon=True)
    killer.start()
    plan_folder("armman", arms, out, engine=Stumbling(log), **ASKED)
    killer.join(60)
    assert not killer.is_alive(), "no worker came to the place where its node is lost"
    assert files(out) == alone
    first, again = log.read_text().splitlines()
    assert first != again
