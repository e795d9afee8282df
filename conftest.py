"""Run-time shape checks, repeatable examples, and fast compilation."""

import os
from importlib.metadata import version
from pathlib import Path

import hypothesis
import pytest
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# Tests compile much and compute little. Without optimisations and with XLA's older code generator,
# compiling takes about half the time. Commands that tests start inherit both. A version of XLA that
# does not know a flag ends the process, so the last one is for the version in constraints.txt.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1"
    + " --xla_cpu_use_fusion_emitters=false" * (version("jaxlib") == "0.10.2"),
)
# Two test processes with as many threads each as there are cores only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("PJRT_NPROC", "1")
import jax

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
install_import_hook("prefermab", "conftest.checked")

CACHE = Path(__file__).parent / ".pytest_cache" / "jax"
jax.config.update("jax_compilation_cache_dir", os.environ.get("PREFERMAB_TEST_CACHE", str(CACHE)))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

MOST_MAPS, MOST_PAGES = 30_000, 3 << 18
"""Of a test process: half the memory maps that Linux grants by default, and 3 GiB in pages."""


def is_large() -> bool:
    """Whether this process holds much memory; False where the system does not tell."""
    try:
        maps = Path("/proc/self/maps").read_bytes().count(b"\n")
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return False
    return maps > MOST_MAPS or pages > MOST_PAGES


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code():
    """Compiled functions stay in memory, and a process can have only so many of them."""
    yield
    if is_large():
        jax.clear_caches()


@pytest.fixture(autouse=True)
def optimise_compiled_code(request):
    """Tests marked `computes_much` run longer than they compile: those are compiled for speed."""
    if request.node.get_closest_marker("computes_much") is None:
        yield
        return
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")
