"""Run-time shape checks, repeatable examples, and fast compilation."""

import contextlib
import ctypes
import functools
import gc
import os
import shutil
import sys
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Literal, get_origin

import hypothesis
import pytest
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# Tests compile much and compute little. Without optimisations, with XLA's older code generator and
# in one piece, compiling takes less than half the time. Commands that tests start inherit all this.
# A version of XLA that does not know a flag ends the process, so some are for the version in
# constraints.txt only.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1"
    + " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    * (version("jaxlib") == "0.10.2"),
)
# Test processes with as many threads each as there are cores only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("PJRT_NPROC", "1")
# Compiled code need not know which lines it came from.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# What one test process has compiled, the other and the commands that tests start need not.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent / ".pytest_cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.02")
import jax
from jax._src.interpreters import mlir

_make_context = functools.lru_cache(lambda _, make=mlir.make_ir_context: make())
if jax.__version__ == "0.10.2":
    # JAX loads all dialects of MLIR for everything that it compiles: about a tenth of the time of
    # tests that compile much. Here each thread does it once.
    mlir.make_ir_context = lambda: _make_context(threading.get_ident())

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))
_checks: dict = {}


def checked(function: Callable) -> Callable:
    """A check of arguments or results, as beartype makes it. jaxtyping asks for one each time that
    a function is defined, which for a function inside another is at every call. What it asks with
    has a signature and no body of its own, so the same signature gets the same check. Choices of
    hyperparameters are left to recipes, which answer a wrong one in a sentence."""
    hints = tuple(function.__annotations__.items())
    if any(get_origin(hint) is Literal for _, hint in hints):
        return function
    key = (function.__module__, function.__qualname__, function.__code__, hints)
    try:
        found = _checks.get(key)
    except TypeError:  # a hint that cannot be hashed
        return _check(function)
    if found is None:
        found = _checks[key] = _check(function)
    return found


def with_arrays() -> list[str]:
    """The modules that say which shapes their arrays have. The types of all others are checked
    without running them, by basedpyright: checks at run time took a tenth of their tests' time."""
    src = Path(__file__).parent / "src"
    files = [file for file in src.rglob("*.py") if "jaxtyping" in file.read_text("utf-8")]
    return [".".join(file.relative_to(src).with_suffix("").parts) for file in files]


# Modules with checks in them are kept apart from those that commands import.
sys.pycache_prefix = str(Path(__file__).parent / ".pytest_cache" / "modules")
install_import_hook(with_arrays(), "conftest.checked")
# Coverage is measured by an import hook as well, which has to see the modules after this one.
sys.meta_path.sort(key=lambda finder: type(finder).__name__ != "SlipcoverMetaPathFinder")

collect_ignore_glob = ["src/prefermab/*/migrations/*", "src/prefermab/*/*/migrations/*"]
"""Scripts that Alembic runs, and nobody imports."""

MOST_MAPS = 30_000
"""Of a test process: half the memory maps that Linux grants by default."""


def is_large() -> bool:
    """Whether this process holds much memory; False where the system does not tell."""
    try:
        maps = Path("/proc/self/maps").read_bytes().count(b"\n")
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        machine = os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return False
    return maps > MOST_MAPS or pages > machine // 5


def return_memory() -> None:
    """Gives freed memory back to the system, where the C library can: otherwise a process that was
    large once would look large for ever."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def pytest_collection_finish() -> None:
    """What is there before the first test stays: the garbage collector need not look at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code():
    """Compiled functions stay in memory, and a process can have only so many of them."""
    yield
    if is_large():
        jax.clear_caches()
        _make_context.cache_clear()
        gc.collect()
        return_memory()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Tests marked `computes_much` run longer than they compile: those are compiled for speed, what
    they are set up with included."""
    if item.get_closest_marker("computes_much") is None:
        return (yield)
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        return (yield)
    finally:
        jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(scope="session")
def server():
    """A real PostgreSQL server."""
    from servers import running

    with running() as server:
        yield server


hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")

# Tests in a browser need Chromium. Without it they are left out, and that is said; where
# PREFERMAB_BROWSER is "needed", as in .ci/run, nothing runs instead.
BROWSER_TESTS = "tests/service/test_browser.py"
HAS_BROWSER = bool(shutil.which("chromium") or shutil.which("chromium-browser"))
collect_ignore = [] if HAS_BROWSER else [BROWSER_TESTS]


def pytest_sessionstart() -> None:
    """Ends the run at once where a browser is needed and there is none."""
    if not HAS_BROWSER and os.environ.get("PREFERMAB_BROWSER") == "needed":
        raise pytest.UsageError("Chromium is not installed: apt-get install chromium")


def pytest_terminal_summary(terminalreporter) -> None:
    """Says that the browser tests were left out, where they were."""
    if not HAS_BROWSER:
        terminalreporter.write_line(
            f"{BROWSER_TESTS} was left out: Chromium is not installed (apt-get install chromium)."
        )
