import pickle

import pytest

import prefermab as pm
from prefermab import cli
from prefermab.errors import Busy, BusyError, StorageError

OTHERS = [pm.TrainingError, BusyError, StorageError]


def test_input_error_is_for_wrong_input_only():
    assert issubclass(pm.InputError, pm.PrefermabError)
    assert issubclass(pm.InputError, ValueError)
    for kind in OTHERS:
        assert issubclass(kind, pm.PrefermabError)
        assert not issubclass(kind, pm.InputError)
    assert Busy is BusyError


@pytest.mark.parametrize("kind", [pm.InputError, *OTHERS])
def test_every_error_of_ours_ends_the_command_line_with_one_sentence(kind, monkeypatch, capsys):
    def fail(_):
        raise pickle.loads(pickle.dumps(kind("it went wrong.")))

    monkeypatch.setattr(cli, "dispatch", fail)
    with pytest.raises(SystemExit) as end:
        cli.run(["models"])
    assert end.value.code == 2
    assert capsys.readouterr().err == "prefermab: it went wrong.\n"
