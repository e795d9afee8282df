import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from hypothesis import given, settings
from safetensors.numpy import load as parse
from safetensors.numpy import save as pack

import prefermab as pm
from prefermab.models import loading, saving
from prefermab.models.saving import named_arrays

STATES, FEATURES = [0, 1, 2, 1, 0, 2], np.linspace(-1, 1, 36).reshape(6, 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    model = pm.pretrain(pm.domains.Armman(mix=(0.4, 0.2, 0.4)), steps=3, arms=16, width=8)
    path = tmp_path_factory.mktemp("models") / "tiny"
    model.save(path)
    return path


@pytest.mark.parametrize("recipe", ["sweep", "paper"])
def test_a_model_comes_back_as_it_was(tmp_path, recipe):
    small = {"steps": 2, "arms": 8} if recipe == "sweep" else {"epochs": 4, "rounds": 3}
    domain = pm.domains.SIS(population=7, masks_effect=(2.0, 3.0))
    model = pm.pretrain(domain, n_arms=5, budget=2.5, recipe=recipe, seed=4, **small)
    model.save(tmp_path / "m")
    again = pm.load(tmp_path / "m")
    assert again.config == model.config
    assert again.config.seed == 4
    assert (again.n_arms, again.budget, again.recipe) == (5, 2.5, recipe)
    assert again.domain == model.domain
    assert again.feature_names == model.feature_names
    for name, array in named_arrays(model.network).items():
        np.testing.assert_array_equal(named_arrays(again.network)[name], array)
    states, features = np.arange(6), np.zeros((6, 4))
    np.testing.assert_array_equal(
        model.act(states, features, budget=3), again.act(states, features, budget=3)
    )


def test_saving_replaces_a_model_but_nothing_else(folder, tmp_path):
    model = pm.load(folder)
    model.save(tmp_path / "m")
    model.save(tmp_path / "m")
    assert sorted(p.name for p in (tmp_path / "m").iterdir()) == [
        "README.md", "config.json", "metrics.parquet", "model.safetensors",
    ]  # fmt: skip
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious.txt").write_text("mine")
    with pytest.raises(pm.InputError, match="not a model"):
        model.save(tmp_path / "other")
    assert (tmp_path / "other" / "precious.txt").read_text() == "mine"


def test_a_model_of_an_own_domain_decides_and_asks_for_its_domain(tmp_path):
    table = np.random.default_rng(0).dirichlet(np.ones(2), size=(5, 2, 2))
    domain = pm.domains.Tabular(table, [0, 1], [0, 1.5])
    pm.pretrain(domain, n_arms=5, budget=3, steps=2, arms=8).save(tmp_path / "own")
    model = pm.load(tmp_path / "own")
    assert model.domain is None
    assert model.act([0, 1, 1], np.zeros((3, 4)), budget=3).shape == (3,)
    for ask in (
        lambda: pm.simulate(model, trials=2),
        lambda: pm.finetune(model, arms=domain.draw_arms(jax.random.key(0), 5)),
    ):
        with pytest.raises(pm.InputError, match="holds no domain of your own: give domain="):
            ask()
    assert pm.load(tmp_path / "own", domain=domain).domain is domain
    assert b"table" not in (tmp_path / "own" / "model.safetensors").read_bytes()[:4096]


@given(position=st.floats(0, 1), bit=st.integers(0, 7), name=st.sampled_from(["w", "c"]))
@settings(max_examples=60)
def test_a_flipped_bit_is_found(folder, tmp_path_factory, position, bit, name):
    copy = tmp_path_factory.mktemp("flip") / "m"
    shutil.copytree(folder, copy)
    target = copy / {"w": "model.safetensors", "c": "config.json"}[name]
    data = bytearray(target.read_bytes())
    data[int(position * (len(data) - 1))] ^= 1 << bit
    target.write_bytes(data)
    try:
        model = pm.load(copy)
    except pm.InputError:
        return
    # The one harmless flip: white space of the JSON.
    assert name == "c"
    np.testing.assert_array_equal(
        model.act(STATES, FEATURES, budget=2), pm.load(folder).act(STATES, FEATURES, budget=2)
    )


@given(st.floats(0, 0.999), st.sampled_from(["model.safetensors", "config.json"]))
@settings(max_examples=40)
def test_a_truncated_file_is_found(folder, tmp_path_factory, share, name):
    copy = tmp_path_factory.mktemp("cut") / "m"
    shutil.copytree(folder, copy)
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[: int(share * (len(data) - 2))])
    with pytest.raises(pm.InputError):
        pm.load(copy)


def forge(folder, target, change_tensors=None, change_config=None):
    """A model whose checksums are right although its content was changed."""
    shutil.copytree(folder, target)
    tensors = parse((target / "model.safetensors").read_bytes())
    config = json.loads((target / "config.json").read_text())
    if change_tensors:
        change_tensors(tensors)
    if change_config:
        change_config(config)
    data = pack(tensors)
    (target / "model.safetensors").write_bytes(data)
    config["weights_sha256"] = saving.digest(data)
    config["checksum"] = saving.config_checksum(config)
    (target / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("tensors", "config", "message"),
    [
        (lambda t: t.pop("perception.mean"), None, "missing"),
        (lambda t: t.update(extra=np.zeros(3)), None, r"extra \['extra'\]"),
        (lambda t: t.update({"perception.mean": np.zeros(7, np.float32)}), None, r"float32\[6\]"),
        (lambda t: t.update({"perception.mean": np.zeros(6)}), None, "not float64"),
        (lambda t: t["perception.mean"].fill(np.nan), None, "not finite"),
        (None, lambda c: c["config"].update(width=10**9), "width must be at most 65536"),
        (None, lambda c: c["config"].update(depth=10**9), "depth must be at most 64"),
        (None, lambda c: c["config"].update(width="64"), "must be a number"),
        (None, lambda c: c["config"].update(bogus=1), "unknown setting"),
        (None, lambda c: c.update(recipe="../../etc"), "unknown recipe"),
        (None, lambda c: c.update(format=99), "format 99"),
        (None, lambda c: c["domain"].update(name="../x"), "unknown domain"),
        (None, lambda c: c.pop("action_names"), "cannot be read|can be read"),
        (None, lambda c: c["shape"].update(cells=5), r"must be float32\[5"),
        (None, lambda c: c["shape"].update(cells=10**9), "impossible size"),
    ],
)
def test_a_forged_model_is_refused_with_a_sentence(folder, tmp_path, tensors, config, message):
    forge(folder, tmp_path / "m", tensors, config)
    with pytest.raises(pm.InputError, match=message) as caught:
        pm.load(tmp_path / "m")
    assert "\n" not in str(caught.value)


def test_garbage_and_absent_models_are_said_to_be_so(tmp_path):
    with pytest.raises(pm.InputError, match="did you mean 'armman'"):
        pm.load("arman")
    with pytest.raises(pm.InputError, match="there is no model at"):
        pm.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(pm.InputError, match="empty holds no model"):
        pm.load(tmp_path / "empty")
    with pytest.raises(pm.InputError, match="the name of the model is empty"):
        pm.load("")
    with pytest.raises(pm.InputError, match="'mine', and there is no folder 'mine': expected one"):
        pm.load("mine")
    (tmp_path / "good.zip").write_text("")
    with pytest.raises(pm.InputError, match=r"good\.zip is a file; a model is a folder with"):
        pm.load(tmp_path / "good.zip")
    (tmp_path / "empty" / "config.json").write_text("[" * 100_000)
    with pytest.raises(pm.InputError, match="not the JSON"):
        pm.load(tmp_path / "empty")


def test_only_a_folder_with_a_model_hides_one_that_ships(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shipped = loading.fingerprint(pm.load("armman"))
    (tmp_path / "armman").mkdir()
    (tmp_path / "armman" / "people.csv").write_text("id")
    assert loading.fingerprint(pm.load("armman")) == shipped
    shutil.copytree(folder, tmp_path / "armman", dirs_exist_ok=True)
    assert loading.fingerprint(pm.load("armman")) == loading.fingerprint(pm.load(folder))


def test_metrics_are_kept_through_load_and_save(folder, tmp_path):
    model = pm.load(folder)
    assert model.history is not None
    assert model.history["step"].to_list() == [3]
    model.save(tmp_path / "m")
    again = pm.load(tmp_path / "m")
    assert again.history is not None
    assert again.history.equals(model.history)
    (tmp_path / "m" / "metrics.parquet").write_text("no")
    with pytest.raises(pm.InputError, match=r"metrics\.parquet is damaged: delete it"):
        pm.load(tmp_path / "m")


def test_a_model_is_shown_in_one_line():
    told = "Model(armman, exact: 3 states, 2 actions, 6 features; 25 arms, budget 7)"
    assert repr(pm.load("armman")) == told
    assert "a state from 0 to 1" in repr(pm.load("continuous-sis"))


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (pm.domains.Synthetic(), "knows 3 states, the domain 'synthetic' has 2"),
        (pm.domains.ContinuousSynthetic(), "finitely many states, the domain .* a state between"),
        (pm.domains.Tabular(np.full((4, 3, 2, 3), 1 / 3), [0, 1, 2], [0, 1]), "knows 6 features"),
        (pm.domains.Tabular(np.full((4, 3, 4, 3), 1 / 3), [0, 1, 2], [0, 1, 2, 3]), "2 actions"),
    ],
)
def test_a_domain_that_does_not_fit_a_model_is_refused(folder, domain, message):
    with pytest.raises(pm.InputError, match=message):
        pm.load(folder, domain=domain)
    model = pm.load(folder)
    with pytest.raises(pm.InputError, match=message):
        pm.evaluate(domain, {"model": model}, n_arms=3, budget=1, trials=2)
    with pytest.raises(pm.InputError, match=message):
        pm.simulate(model, domain=domain, rounds=2, trials=2)


def test_models_ship_for_every_domain_and_are_small():
    shipped = loading.shipped_models()
    both = {name + kind for name in pm.domains.BY_NAME for kind in ("", "-paper")}
    assert set(shipped) == {*both, "armman-unseen"}
    files = [file for folder in shipped.values() for file in folder.iterdir()]
    assert sum(file.stat().st_size for file in files) < 2_000_000
    for name in shipped:
        model = pm.load(name)
        assert "of bound" in model.card
        actions = model.act(np.zeros(3), np.zeros((3, len(model.feature_names))), budget=1)
        assert actions.shape == (3,)


def test_a_shipped_model_is_rebuilt_from_its_recorded_seed():
    """The same weights on the platform they were made on, the same quality elsewhere."""
    code = (
        "import sys\nfrom tools.weights import train_shipped\n"
        "train_shipped('synthetic-paper').save(sys.argv[1])"
    )
    # Weights are made with XLA's own settings, not those of the tests.
    fast = ("XLA_FLAGS", "JAX_DISABLE_MOST_OPTIMIZATIONS")
    plain = {name: value for name, value in os.environ.items() if name not in fast}
    with tempfile.TemporaryDirectory() as folder:
        target = str(Path(folder) / "again")
        subprocess.run([sys.executable, "-c", code, target], check=True, env=plain)
        again = pm.load(target)
    shipped = pm.load("synthetic-paper")
    assert again.config == shipped.config
    ours, theirs = named_arrays(shipped.network), named_arrays(again.network)
    if all(np.array_equal(ours[name], theirs[name]) for name in ours):
        return
    compared = {"shipped": shipped, "again": again}
    frame = pm.evaluate(shipped.domain, compared, n_arms=21, budget=7, trials=300, bound=False)
    assert frame["of_best"].min() > 0.98
