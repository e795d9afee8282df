"""The cases to measure: start, training, evaluation, decisions, plans, Whittle indices, bound."""

import atexit
import contextlib
import functools
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

from benchmarks.measuring import Case
from prefermab import domains, oracles, policies
from prefermab.arms.observation import Observation
from prefermab.evaluation.compare import evaluate
from prefermab.models.loading import load
from prefermab.models.model import Model
from prefermab.programme.bulk.driver import plan_folder
from prefermab.recipes import Exact, Paper, Sweep
from prefermab.training.pretraining import pretrain_seeds

EPOCHS, TIMED_STEPS = 8, 300
"""Epochs and steps of the timed trainings; a complete training has more of them."""

SIZES = ((21, 1), (21, 8), (21, 64), (96, 1), (96, 8), (96, 64), (1000, 1), (1000, 8), (10_000, 1))
"""Numbers of arms and seeds."""

DISCOUNT = 0.9

PART = 1 << 20
"""People in one file of a folder that is planned."""

REFERENCE_ARMS = 200
"""Number of arms for the other package, whose time is proportional to the number of arms."""


def cases(largest: int) -> Iterator[Case]:
    """All cases with at most `largest` arms."""
    yield from start_cases()
    yield from training_cases(largest)
    yield from evaluation_cases()
    yield from decision_cases(largest)
    yield from plan_cases(largest)
    yield from whittle_cases()
    yield from bound_cases()


def start_cases() -> Iterator[Case]:
    """Time to start a new process, beside a Python process that does nothing."""
    for name, given in (
        ("python", ["-c", "pass"]),
        ("import prefermab", ["-c", "import prefermab"]),
        ("prefermab --help", ["-m", "prefermab", "--help"]),
    ):
        yield Case(
            "start", name, "starts", 1,
            lambda g=given: subprocess.run(
                [sys.executable, *g], check=True, stdout=subprocess.DEVNULL
            ).returncode,
        )  # fmt: skip


def training_cases(largest: int) -> Iterator[Case]:
    """Arm-steps per second. An arm-step is one round of one arm in `paper`, one arm of a batch in
    the other recipes."""
    domain = domains.Armman()
    sizes = [(n, s) for n, s in SIZES if n * s <= largest]
    for n_arms, seeds in sizes:
        work = EPOCHS * Paper.rounds * n_arms * seeds
        yield Case(
            "train",
            f"paper, {n_arms} arms, {seeds} seeds",
            "arm-steps",
            work,
            lambda n=n_arms, s=seeds: _trained(
                domain, n, s, "paper", epochs=EPOCHS, freeze=0, rounds=Paper.rounds
            ),
            # The actor acts once; then, in every pass, actor and critic run forwards and backwards.
            flops=_network(16, 2, 13, 2) * (1 + Paper.passes * 3 * 2),
        )
    usual = [("exact", Exact.arms, 1), ("exact", Exact.arms, 8)]
    for recipe, arms, seeds in [*(("sweep", *size) for size in sizes), *usual]:
        # In `sweep` a step runs the slow copy for two actions, then the network forwards and
        # backwards, which counts as three passes.
        passes = 5 if recipe == "sweep" else 3
        yield Case(
            "train",
            f"{recipe}, {arms} arms a step, {seeds} seeds",
            "arm-steps",
            TIMED_STEPS * arms * seeds,
            lambda r=recipe, n=arms, s=seeds: _trained(domain, 25, s, r, steps=TIMED_STEPS, arms=n),
            flops=_network(Sweep.width, Sweep.depth, 16, 2) * passes,
        )
    if jax.default_backend() != "cpu":
        yield from accelerator_cases()


def accelerator_cases() -> Iterator[Case]:
    """Trainings that would take too long without an accelerator."""
    domain = domains.Armman()
    yield Case(
        "train", "sweep, 25 arms a step, 1024 seeds, 10000 steps, 2x16", "arm-steps",
        1024 * 10_000 * 25,
        lambda: _trained(domain, 25, 1024, "sweep", steps=10_000, arms=25, width=16),
        flops=_network(16, 2, 16, 2) * 5,
    )  # fmt: skip
    yield Case(
        "train", "sweep, 1000000 arms a step, 1 seeds", "arm-steps", TIMED_STEPS * 1_000_000,
        lambda: _trained(domain, 25, 1, "sweep", steps=TIMED_STEPS, arms=1_000_000),
        flops=_network(Sweep.width, Sweep.depth, 16, 2) * 5,
    )  # fmt: skip
    yield Case(
        "train", "paper, 1000000 arms, 1 seeds, 20 rounds", "arm-steps", EPOCHS * 20 * 1_000_000,
        lambda: _trained(domain, 1_000_000, 1, "paper", epochs=EPOCHS, freeze=0, rounds=20),
        flops=_network(16, 2, 13, 2) * (1 + Paper.passes * 3 * 2),
    )  # fmt: skip


def evaluation_cases() -> Iterator[Case]:
    """Decisions per second in a comparison of policies: one for each arm, round and trial."""
    model, trials = load("armman"), 1000
    for name, policy in (("exact", model), ("whittle", policies.Whittle())):
        yield Case(
            "evaluate",
            f"{name}, 25 arms, {trials} trials",
            "decisions",
            25 * 9 * trials,
            lambda p=policy: evaluate(
                domains.Armman(), {"it": p}, n_arms=25, budget=7, trials=trials, bound=False
            )["mean"].to_list(),
        )


def decision_cases(largest: int) -> Iterator[Case]:
    """Arms per second in `act`, with NumPy arrays and with arrays on the device, beside one forward
    pass of the network."""
    model = load("armman")
    for size in _sizes(largest):
        state, features, _ = _people(model, size)
        # The network is an argument, as in `act`: weights compiled in as constants are slower.
        forward = eqx.filter_jit(
            lambda p, s, f: jax.lax.map(
                lambda arm: p.gain(arm[0], arm[1], jnp.float32(0.5)), (s, f), batch_size=1 << 16
            )
        )
        on_device = jnp.asarray(state), jnp.asarray(features)
        flops = _network(64, 2, 16, 2)
        seen = _observation(*on_device)
        decide = eqx.filter_jit(lambda p, seen: p.choose_actions(p.judge(seen), seen))
        yield Case(
            "act", f"one pass, {size:,} arms", "arms", size,
            lambda f=forward, a=on_device: f(model.policy, *a), flops,
        )  # fmt: skip
        yield Case(
            "act", f"on the device, {size:,} arms", "arms", size,
            lambda d=decide, o=seen: d(model.policy, o), flops,
        )  # fmt: skip
        yield Case(
            "act", f"act, {size:,} arms", "arms", size,
            lambda s=state, f=features: model.act(s, f, budget=len(s) / 10), flops,
        )  # fmt: skip


def plan_cases(largest: int) -> Iterator[Case]:
    """People per second in a plan for a table with reasons, and for a folder without reasons."""
    model = load("armman")
    for size in _sizes(min(largest, 1_000_000)):
        state, features, names = _people(model, size)
        frame = pl.DataFrame(
            {"id": np.arange(size), "state": state}
            | {name: features[:, i] for i, name in enumerate(names)}
        )
        yield Case(
            "plan", f"plan, {size:,} people", "people", size,
            lambda f=frame: model.plan(f, budget=f.height / 10).summary.spent,
        )  # fmt: skip
    for size in [size for size in _sizes(largest) if size >= 1_000_000]:
        yield Case(
            "plan", f"a folder, {size:,} people", "people", size, lambda n=size: _plan_folder(n)
        )


def whittle_cases() -> Iterator[Case]:
    """Arms per second for Whittle indices, beside markovianbandit-pkg, which takes arm by arm."""
    rng = np.random.default_rng(0)
    for n_states, n_arms in ((2, 100_000), (3, 100_000), (10, 10_000), (50, 200), (150, 10)):
        table = rng.dirichlet(np.ones(n_states), (n_arms, n_states, 2)).astype(np.float32)
        rewards = rng.random((n_arms, n_states)).astype(np.float32)
        yield Case(
            "whittle", f"ours, {n_states} states", "arms", n_arms,
            lambda t=table, r=rewards: oracles.whittle_indices(t, r, discount=DISCOUNT),
        )  # fmt: skip
        if find_spec("markovianbandit") is None:
            continue
        some = min(n_arms, REFERENCE_ARMS)
        yield Case(
            "whittle", f"markovianbandit-pkg, {n_states} states", "arms", some,
            lambda t=table[:some], r=rewards[:some]: _one_by_one(t, r),
        )  # fmt: skip


def bound_cases() -> Iterator[Case]:
    """Trials per second of the Lagrangian bound."""
    for name, trials in (("armman", 500), ("sis", 5)):
        domain = domains.built_in(name)
        yield Case(
            "bound", f"{name}, {domain.usual_arms} arms", "trials", trials,
            lambda d=domain, t=trials: evaluate(
                d, {"none": policies.NoAction()}, trials=t
            )["bound"].to_list(),
        )  # fmt: skip


def _sizes(largest: int) -> list[int]:
    return [size for size in (10_000, 100_000, 1_000_000, 10_000_000) if size <= largest]


def _network(width: int, depth: int, inputs: int, outputs: int) -> float:
    """Operations of one forward pass of a network for one arm."""
    return 2.0 * (inputs * width + (depth - 1) * width**2 + width * outputs)


def _observation(state: jax.Array, features: jax.Array) -> Observation:
    """An observation in which all arms are opted in and the budget pays for a tenth of them."""
    size = len(state)
    costs = jnp.tile(jnp.array([0.0, 1.0]), (size, 1))
    return Observation(
        state, features, jnp.ones(size, bool), costs, jnp.float32(size / 10), jnp.zeros((), int)
    )


def _people(model: Model, size: int) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((size, len(model.feature_names)), np.float32) / 2
    return rng.integers(0, len(model.state_names), size), features, model.feature_names


def _plan_folder(size: int) -> float:
    with tempfile.TemporaryDirectory() as out:
        people, plan = _people_folder(size), Path(out) / "plan"
        return plan_folder("armman", people, plan, size / 10, reasons=False).spent


@functools.cache
def _people_folder(size: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="prefermab-bench-"))
    atexit.register(shutil.rmtree, folder)
    for place, part in enumerate(people_tables(size)):
        part.write_parquet(folder / f"{place:05}.parquet")
    return folder


def _trained(domain, n_arms: int, seeds: int, recipe: str, **settings):
    models = pretrain_seeds(
        domain, range(seeds), recipe, n_arms=n_arms, budget=n_arms / 3, **settings
    )
    return jax.tree.leaves(models[0].network.perception.mean)


def _one_by_one(table: np.ndarray, rewards: np.ndarray) -> list[np.ndarray]:
    import markovianbandit

    found = []
    with contextlib.redirect_stdout(io.StringIO()):
        for transitions, reward in zip(table.astype(float), rewards.astype(float), strict=True):
            arm = markovianbandit.RestlessBandit(transitions, np.stack([reward, reward], axis=1))
            # The annotation of `discount` is int, but its documentation asks for a number below 1.
            found.append(arm.whittle_indices(discount=DISCOUNT))  # pyright: ignore[reportArgumentType]
    return found


def people_tables(size: int) -> Iterator[pl.DataFrame]:
    """People drawn from the domain ARMMAN, in tables of `PART` rows."""
    domain = domains.Armman()
    features = eqx.filter_jit(lambda key: domain.features(domain.draw_arms(key, PART)))
    for place, start in enumerate(range(0, size, PART)):
        rows = min(PART, size - start)
        seen = np.asarray(features(jax.random.key(place)))[:rows]
        states = np.random.default_rng(place).integers(0, 3, rows).astype(np.int8)
        yield pl.DataFrame(
            {
                "id": np.arange(start, start + rows),
                "state": states,
                **{f"feature_{i}": seen[:, i] for i in range(seen.shape[1])},
            }
        )
