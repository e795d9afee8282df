"""Run-time shape checks, repeatable examples, and compiled code kept between test runs."""

import os
from pathlib import Path

import hypothesis
import pytest
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

# Tests compile much and run little: optimising less halves their time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")
# Two test processes with as many threads each as there are cores only wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("PJRT_NPROC", "1")
import jax

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))
install_import_hook("prefermab", "conftest.checked")

jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent / ".pytest_cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code():
    """A process can map only so many pieces of compiled code; all tests together are too many."""
    yield
    jax.clear_caches()


hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")
