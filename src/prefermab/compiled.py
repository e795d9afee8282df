"""Compiled code, kept between runs."""

import os
from pathlib import Path

import jax
import platformdirs


def use_compilation_cache() -> None:
    """Keeps compiled code between runs in the user's cache folder, unless JAX was told another."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    folder = Path(platformdirs.user_cache_dir("prefermab")) / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if os.access(folder, os.W_OK):
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
