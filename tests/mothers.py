"""A table of people as ARMMAN draws them, for tests of plans and tables."""

import jax
import numpy as np
import polars as pl

import prefermab as pm

MODEL = pm.load("armman")


def people(size: int = 30, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    domain = pm.domains.Armman()
    seen = np.asarray(domain.features(domain.draw_arms(jax.random.key(seed), size)))
    return pl.DataFrame(
        {
            "id": [f"p{i}" for i in range(size)],
            "state": np.array(MODEL.state_names)[rng.integers(0, 3, size)],
            "region": np.array(["north", "south"])[rng.integers(0, 2, size)],
            "nurse": np.array(["Ana", "Bo"])[rng.integers(0, 2, size)],
            **{name: seen[:, i] for i, name in enumerate(MODEL.feature_names)},
        }
    )
