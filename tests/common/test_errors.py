import contextlib
import errno
import pickle
import subprocess
import sys

import polars as pl
import pytest

import prefermab as pm
from prefermab import cli
from prefermab.common.files import locked
from prefermab.errors import BusyError, OutdatedError, StorageError

OTHERS = [pm.TrainingError, BusyError, OutdatedError, StorageError]


def test_input_error_is_for_wrong_input_only():
    assert issubclass(pm.InputError, pm.PrefermabError)
    assert issubclass(pm.InputError, ValueError)
    for kind in OTHERS:
        assert issubclass(kind, pm.PrefermabError)
        assert not issubclass(kind, pm.InputError)


def test_errors_are_called_by_a_path_that_users_import():
    assert pm.InputError.__module__ == StorageError.__module__ == "prefermab.errors"
    assert pm.TrainingError.__module__ == "prefermab"


@pytest.mark.parametrize("kind", [pm.InputError, *OTHERS])
def test_every_error_of_ours_ends_the_command_line_with_one_sentence(kind, monkeypatch, capsys):
    def fail(_):
        raise pickle.loads(pickle.dumps(kind("it went wrong.")))

    monkeypatch.setattr(cli, "dispatch", fail)
    with pytest.raises(SystemExit) as end:
        cli.run_command(["models"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "prefermab: it went wrong.\n"


HOLD = """
import pathlib, sys
from prefermab.common.files import locked
with locked(pathlib.Path(sys.argv[1]), ""):
    print(flush=True)
    input()
"""


def test_a_lock_is_released_when_its_process_is_killed(tmp_path):
    path = tmp_path / "new" / "lock"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    other.stdout.readline()
    with pytest.raises(BusyError, match="taken"), locked(path, "taken."):
        pass
    other.kill()
    other.communicate()
    with locked(path, "taken."):
        pass


@pytest.mark.parametrize(
    ("number", "outcome"),
    [
        (errno.ENOLCK, contextlib.nullcontext()),
        (errno.EROFS, pytest.raises(StorageError, match="cannot write")),
    ],
)
def test_a_folder_without_locks_is_no_error(tmp_path, monkeypatch, number, outcome):
    def fail(*_):
        raise OSError(number, "no")

    monkeypatch.setattr("prefermab.common.files.FileLock.acquire", fail)
    with outcome, locked(tmp_path / "lock", "taken."):
        pass


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [
        ("sqlalchemy", ["programme", "status", "calls.db"], "programme"),
        ("fastexcel", ["plan", "armman", "--arms", "a.xlsx", "--budget", "1", "--out", "b.csv"],
         "programme"),
        ("xlsxwriter", ["plan", "armman", "--arms", "a.csv", "--budget", "1", "--out", "b.xlsx"],
         "programme"),
        ("charset_normalizer", ["plan", "armman", "--arms", "latin.csv", "--budget", "1", "--out",
         "b.csv"], "programme"),
        ("uvicorn", ["serve", "calls.db"], "serve"),
    ],
)  # fmt: skip
def test_a_package_that_is_missing_is_named_with_its_extra(tmp_path, package, command, extra):
    """In a process of its own, in which the package cannot be imported."""
    table = pl.DataFrame({"id": [1], "state": [1], "feature_0": [0.1]})
    table.write_csv(tmp_path / "a.csv")
    table.write_excel(tmp_path / "a.xlsx")
    (tmp_path / "latin.csv").write_bytes("id,state,name\n1,1,Zoë Müller\n".encode("cp1252"))
    script = (
        f"import sys; sys.modules['{package}'] = None; sys.argv[1:] = {command}\n"
        "from prefermab.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert f"needs the package {package}: pip install 'prefermab[{extra}]'." in done.stderr
    assert "Traceback" not in done.stderr
