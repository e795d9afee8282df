import os
import signal
import struct
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

import prefermab as pm
from prefermab.cli import dispatch
from prefermab.cli.train import write_events
from prefermab.models.saving import named_arrays

SWEEP = {"steps": 900, "arms": 16, "width": 8}
PAPER = {"recipe": "paper", "epochs": 11, "rounds": 10, "freeze": 0}


def stop_after(pieces):
    """A progress callback that ends the training like Ctrl-C does."""
    calls = []

    def report(share, what):
        calls.append((share, what))
        if len(calls) == pieces:
            raise KeyboardInterrupt

    return report


def same(one, other):
    for name, array in named_arrays(one.network).items():
        np.testing.assert_array_equal(named_arrays(other.network)[name], array)


@pytest.mark.parametrize(
    ("domain", "settings"),
    [
        (pm.domains.Synthetic(), SWEEP),
        (pm.domains.Synthetic(), PAPER),
        (pm.domains.ContinuousSynthetic(), {**PAPER, "shaping": "isotonic"}),
    ],
)
def test_a_training_cut_in_two_is_the_same_training(domain, settings, tmp_path):
    file = tmp_path / "x.checkpoint"
    whole = pm.pretrain(domain, n_arms=6, budget=2, seed=4, **settings)
    with pytest.raises(KeyboardInterrupt):
        pm.pretrain(
            domain, n_arms=6, budget=2, seed=4, checkpoint=file, progress=stop_after(1), **settings
        )
    assert file.exists()
    resumed = pm.pretrain(
        domain, n_arms=6, budget=2, seed=4, checkpoint=file, resume=True, **settings
    )
    same(whole, resumed)
    assert whole.history is not None
    assert resumed.history is not None
    assert whole.history.equals(resumed.history)
    assert not file.exists()


def test_a_checkpoint_is_neither_overwritten_nor_taken_for_another(tmp_path):
    domain, file = pm.domains.Synthetic(), tmp_path / "x.checkpoint"
    asked = {"n_arms": 6, "budget": 2, "checkpoint": file, **SWEEP}
    with pytest.raises(KeyboardInterrupt):
        pm.pretrain(domain, seed=4, progress=stop_after(1), **asked)
    with pytest.raises(pm.InputError, match="interrupted training"):
        pm.pretrain(domain, seed=4, **asked)
    with pytest.raises(pm.InputError, match="another training"):
        pm.pretrain(domain, seed=5, resume=True, **asked)
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(pm.InputError, match="not a checkpoint that can be read"):
        pm.pretrain(domain, seed=4, resume=True, **asked)


def test_a_killed_training_resumes_to_identical_weights(tmp_path):
    """SIGKILL from outside, at a moment that is nobody's choice."""
    options = "--recipe sweep --sweep.steps 12000 --sweep.arms 16 --sweep.width 8 --seed 3"
    cut, whole = tmp_path / "cut", tmp_path / "whole"

    def train(out):
        return ["pretrain", "synthetic", "--out", str(out), *options.split()]

    command = [sys.executable, "-m", "prefermab", *train(cut)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ)
    file = tmp_path / "cut.checkpoint"
    for _ in range(3000):
        if file.exists() or running.poll() is not None:
            break
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    assert file.exists()
    assert not cut.exists()
    with pytest.raises(pm.InputError, match="--resume"):
        dispatch(train(cut))
    dispatch([*train(cut), "--resume"])
    dispatch(train(whole))
    same(pm.load(cut), pm.load(whole))
    assert not file.exists()
    assert pl.read_parquet(cut / "metrics.parquet")["step"].to_list()[-1] == 12000


def test_a_loss_that_is_not_a_number_names_the_epoch():
    with pytest.raises(pm.TrainingError, match=r"seed 2 broke down by epoch \d"):
        pm.pretrain(pm.domains.Synthetic(), seed=2, **{**PAPER, "critic_rate": 1e30})


def test_a_collapsed_policy_names_the_epoch_and_spares_the_others(monkeypatch):
    found = iter((7, None))
    monkeypatch.setattr(pm.recipes.Paper, "collapsed", lambda *_: next(found))
    with pytest.raises(pm.TrainingError, match="seed 2 since epoch 7") as caught:
        pm.pretrain_seeds(pm.domains.Synthetic(), [2, 3], n_arms=6, budget=2, **PAPER)
    assert [model.config.seed for model in caught.value.sound] == [3]


@pytest.mark.parametrize(
    ("acted", "spending", "since"),
    [
        ([0.4, 0.0, 0.2, 0.0, 0.0, 0.0, 0.0], 0.0, 4),
        ([0.0] * 7, 0.0, 1),
        ([0.4, 0.0, 0.2, 0.0, 0.0, 0.0, 0.01], 0.1, None),
        ([0.5, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0], 6.0, 3),
        ([0.5, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0], 2.2, None),
    ],
)
def test_collapse_is_the_same_action_for_everyone_to_the_end(acted, spending, since):
    config = pm.recipes.Paper(epochs=7)
    rows = {
        "epoch": np.arange(1, 8),
        "acted": np.array(acted),
        "spending": np.full(7, spending),
    }
    assert config.collapsed(rows, budget=2.0) == since
    if since is not None and acted[-1] == 0:
        assert config.collapsed(rows, budget=0.0) is None


def test_the_history_counts_every_step_and_says_what_was_spent():
    model = pm.pretrain(pm.domains.Armman(), n_arms=8, budget=3, steps=700, arms=32, width=8)
    assert model.history is not None
    assert model.history["step"].to_list() == [300, 600, 700]
    assert (model.history["spending"] <= 3.00001).all()
    assert pm.recipes.Sweep(steps=700).pieces == (300, 300, 100)


def test_metrics_are_written_as_tensorboard_events(tmp_path):
    history = pl.DataFrame({"epoch": [1, 2], "reward": [0.5, 0.75], "seed": [0, 0]})
    write_events(history, tmp_path / "run")
    (file,) = (tmp_path / "run").iterdir()
    written = file.read_bytes()
    assert b"reward" in written
    assert struct.pack("<f", 0.75) in written
    assert b"seed" not in written
