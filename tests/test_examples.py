"""The scripts in examples/ run and print what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(capsys):
    def lines(name: str) -> list[str]:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return lines


def share_of_bound(lines: list[str]) -> dict[str, int]:
    """'random   output 0.4, 72% of the upper bound' is {"random": 72}."""
    return {line[:20].strip(): int(line.split("%")[0].split()[-1]) for line in lines}


def test_a_new_domain(run):
    shares = share_of_bound(run("new_domain.py"))
    assert shares["do nothing"] < shares["random"] < shares["model"] <= 100


def test_a_policy_of_ones_own(run):
    shares = share_of_bound(run("own_policy.py"))
    assert shares["do nothing"] < shares["persuadable first"] < shares["whittle index"] <= 100


def test_a_programme(run):
    weeks = [set(line.partition("call ")[2].split(", ")) for line in run("programme.py")]
    assert [len(week) for week in weeks] == [5, 5, 5]
    assert not weeks[0] & weeks[1]
    assert not weeks[1] & weeks[2]


def test_every_example_is_tested():
    names = {file.name for file in EXAMPLES.glob("*.py")}
    assert names == {"new_domain.py", "own_policy.py", "programme.py"}
