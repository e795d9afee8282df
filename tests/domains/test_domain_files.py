"""Domains in files of one's own, on the command line."""

import json
import sys
from pathlib import Path

import pytest

import prefermab as pm
from prefermab.cli import main
from prefermab.cli.evaluate import EvaluateCommand, bounded_trials, model_label, policies_for

FILE = Path(__file__).parents[1] / "own_domain.py"
ONE = """
from beside import least
from prefermab.domains import Synthetic

print("loaded")

class Base(Synthetic):
    \"\"\"Two of them.\"\"\"
    name = "two"
    times: int = 1
    usual_arms = least
"""


def typed(monkeypatch, *words):
    """Runs the command line here; its exit status."""
    monkeypatch.setattr(sys, "argv", ["prefermab", *(str(word) for word in words)])
    try:
        main()
    except SystemExit as stop:
        return stop.code
    return 0


def written(folder, text):
    (folder / "beside.py").write_text("least = 3\n")
    file = folder / "mine.py"
    file.write_text(text)
    return file


def test_a_domain_is_named_by_file_and_class():
    assert pm.domains.get(f"{FILE}:Pumps").action_names == ("none", "service", "replace")
    assert pm.domains.get(f"{FILE}:Tanks", grid=11).n_cells == 11


def test_a_file_with_one_domain_needs_no_class(tmp_path, capsys):
    domain = pm.domains.get(str(written(tmp_path, ONE)), times=2)
    assert (domain.name, domain.times, domain.usual_arms) == ("two", 2, 3)  # pyright: ignore
    assert str(tmp_path) not in sys.path
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "loaded\n")


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (None, "nowhere.py:X", r"there is no file nowhere\.py"),
        (None, str(FILE), r"defines the domains Pumps, Tanks: name one, such as .*:Pumps"),
        (None, f"{FILE}:Pump", r"unknown domain 'Pump' in .*own_domain\.py: did you mean 'Pumps'"),
        ("x = 1", "", "defines no domain"),
        ("\nx = y", "", "cannot be run: line 2: NameError: name 'y' is not defined"),
        ("\n\nclass :", "", "cannot be run: line 3: SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)", "", "cannot be run: line 2: SystemExit: 3"),
        (
            "from prefermab.domains import FiniteDomain\nclass A(FiniteDomain):\n    'A.'",
            ":A",
            "cannot be made: Can't instantiate abstract class A",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_one_sentence(tmp_path, text, name, message):
    given = name if text is None else f"{written(tmp_path, text)}{name}"
    with pytest.raises(pm.InputError, match=message) as caught:
        pm.domains.get(given)
    assert "\n" not in str(caught.value)


def test_a_model_of_ones_own_domain_is_trained_tuned_and_evaluated(tmp_path, monkeypatch, capsys):
    out, own = tmp_path / "model", f"{FILE}:Pumps"
    small = ["--exact.steps", 4, "--exact.arms", 8, "--n-arms", 4, "--budget", 3]
    assert typed(monkeypatch, "pretrain", own, "--out", out, *small) == 0
    assert f"prefermab evaluate {out} --domain {own}" in capsys.readouterr().out
    assert "evaluate FOLDER --domain own_domain.py:Pumps" in (out / "README.md").read_text()

    asked = ["--trials", 3, "--against", "none", "--no-bound"]
    assert typed(monkeypatch, "evaluate", out, *asked) == 2
    assert "the domain 'pumps', which is not part of the package" in capsys.readouterr().err
    assert typed(monkeypatch, "evaluate", out, *asked, "--domain", own, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["domain"], told["n_arms"], len(told["rows"])) == ("pumps", 4, 2)

    met = []
    monkeypatch.setattr(
        "prefermab.training.finetuning.finetune",
        lambda model, domain, **_: met.append(domain) or model,
    )
    there = tmp_path / "tuned"
    assert typed(monkeypatch, "finetune", out, "--out", there, "--domain", own) == 0
    assert [domain.name for domain in met] == ["pumps"]

    few = ["--rounds", 2, "--trials", 2, "--against", "none", "--json"]
    capsys.readouterr()
    assert typed(monkeypatch, "simulate", own, "--n-arms", 3, "--budget", 2, *few) == 0
    assert json.loads(capsys.readouterr().out)["domain"] == "pumps"
    assert typed(monkeypatch, "evaluate", own, "--domain", own) == 2
    assert "is a domain itself" in capsys.readouterr().err


def test_of_many_states_a_fifth_of_the_trials_is_bounded():
    domain = pm.domains.SIS(population=80)
    assert bounded_trials(EvaluateCommand("sis", trials=1000), domain) == 200
    assert bounded_trials(EvaluateCommand("sis", trials=30), domain) == 20
    assert bounded_trials(EvaluateCommand("sis", trials=1000, bound=False), domain) == 0
    assert (
        bounded_trials(EvaluateCommand("sis", against=("lagrangian",), trials=1000), domain) == 1000
    )
    assert bounded_trials(EvaluateCommand("armman", trials=1000), pm.domains.Armman()) == 1000
    assert "lagrangian" not in policies_for((), domain)
    assert list(policies_for(("lagrangian",), domain)) == ["lagrangian"]
    assert "lagrangian" in policies_for((), pm.domains.Armman())


def test_a_model_is_called_in_a_table_as_it_was_typed():
    assert model_label("runs/mine") == "mine"
    assert model_label("armman") == "armman"
    assert model_label("runs/random") == "prefermab"
