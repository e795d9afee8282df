"""Several accelerators: eight virtual CPU devices in a process of their own, against one."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

RUN = """
import json
import jax, numpy as np
import prefermab as pm
from prefermab.training import pretraining as training
from prefermab.common.sharding import all_devices

domain, model, devices = pm.domains.Armman(), pm.load("armman"), jax.devices()
sweep = pm.recipes.Sweep(steps=5, arms=64, width=16)
exact = pm.recipes.Exact(steps=5, arms=64, width=16)
paper = pm.recipes.Paper(epochs=4, rounds=10, passes=2, freeze=2)
keys, budget = jax.random.split(jax.random.key(0), 1), jax.numpy.asarray(7.0)
rng = np.random.default_rng(0)
features = rng.normal(size=(70_003, 6)).astype(np.float32)
states = rng.integers(0, 3, 70_003)
for number in (1, 8):
    jax.devices = lambda number=number: devices[:number]
    found = {"devices": len(jax.devices())}
    for recipe in (sweep, exact, paper):
        network = pm.pretrain(domain, recipe, n_arms=24, budget=7).network
        layers = network.actor if recipe is paper else network.layers
        found[recipe.name] = [layer.weight.tolist() for layer in layers.layers]
    with all_devices():
        state = training._init(sweep, domain, 24, keys)
        compiled = training._step.lower(sweep, domain, 24, budget, 5, state, keys).compile()
    found["gradients cross"] = "all-reduce" in compiled.compiled.as_text()
    found["chosen"] = np.flatnonzero(model.act(states, features, 7000)).tolist()
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def on_one_and_eight():
    """What is found on one of eight devices and on all of them."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        capture_output=True,
        text=True,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_there_are_eight_devices_and_gradients_cross_them(on_one_and_eight):
    one, eight = on_one_and_eight
    assert (one["devices"], eight["devices"]) == (1, 8)
    assert not one["gradients cross"]
    assert eight["gradients cross"]


@pytest.mark.parametrize("recipe", ["sweep", "exact", "paper"])
def test_eight_devices_learn_the_same_weights(recipe, on_one_and_eight):
    one, eight = on_one_and_eight
    for alone, spread in zip(one[recipe], eight[recipe], strict=True):
        np.testing.assert_allclose(alone, spread, atol=2e-4)


def test_eight_devices_decide_the_same(on_one_and_eight):
    one, eight = on_one_and_eight
    assert len(one["chosen"]) == 7000
    assert len(set(one["chosen"]) ^ set(eight["chosen"])) <= 4  # rounding at the margin
