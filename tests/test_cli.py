import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

import prefermab as pm
from prefermab.cli.terminal import progress, progress_bar, shortened
from prefermab.cli.train import FinetuneCommand, PretrainCommand, check_folder


def prefermab(*arguments, folder=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "prefermab", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
        check=False,
        timeout=300,
    )


def test_help_does_not_import_jax():
    code = (
        "import sys, prefermab.cli\n"
        "sys.argv = ['prefermab', '--help']\n"
        "try: prefermab.cli.main()\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "assert 'jax' not in sys.modules and 'polars' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "evaluate" in ran.stdout


def test_no_arguments_show_the_help():
    ran = prefermab()
    assert ran.returncode == 0
    assert "demo" in ran.stdout


def test_the_version_is_told():
    assert prefermab("--version").stdout == f"prefermab {pm.__version__}\n"


def test_a_misspelt_verb_is_put_right():
    ran = prefermab("pla", "armman")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "prefermab: unknown command 'pla': did you mean 'plan'?\n"


def test_a_misspelt_option_is_answered_with_those_of_its_verb():
    ran = prefermab("models", "--seeed", "3")
    assert ran.returncode == 2
    assert "prefermab models --help" in ran.stderr
    assert not any(other in ran.stderr for other in ("--seeds", "--arms-seed", "evaluate"))


@pytest.mark.parametrize("arguments", ["plan --help", "--help", "--version", "models", "pla"])
def test_a_reader_who_has_gone_ends_it_quietly(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(
        [sys.executable, "-m", "prefermab", *arguments.split()],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    if arguments == "pla":
        assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1)
    else:
        assert (ran.returncode, ran.stderr) == (141, "")


@pytest.mark.parametrize("arguments", ["--help", "models --json"])
def test_a_disk_that_takes_no_more_is_told_in_one_sentence(arguments, tmp_path):
    code = (
        "import resource, sys, prefermab.cli as cli\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        f"sys.argv = ['prefermab', *{arguments.split()}]\n"
        "cli.main()"
    )
    with (tmp_path / "out").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-c", code],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == 2
    assert ran.stderr == "prefermab: cannot write the output: File too large.\n"


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_is_understood_before_anything_heavy_is_imported(number, status):
    code = (
        "import os, signal, sys, prefermab.cli as cli\n"
        "assert not {'tyro', 'numpy', 'rich', 'prefermab.errors'} & set(sys.modules)\n"
        f"cli.dispatch = lambda _: os.kill(os.getpid(), signal.{number})\n"
        "cli.main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (status, "prefermab: interrupted.\n")


def test_evaluate_prints_json_and_nothing_else(tmp_path):
    picture = tmp_path / "new folder" / "c.svg"
    options = "--n-arms 5 --budget 2 --trials 40 --opt-in 0.6 1.0 --json --against none random"
    ran = prefermab("evaluate", "synthetic", *options.split(), "--plot", str(picture))
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["domain"], told["n_arms"], told["budget"]) == ("synthetic", 5, 2)
    assert [row["policy"] for row in told["rows"]].count("random") == 2
    assert picture.read_text().startswith("<?xml")
    assert [path.name for path in picture.parent.iterdir()] == ["c.svg"]


def test_evaluate_prints_a_table():
    ran = prefermab(
        "evaluate", "synthetic", "--set", "shift=0.1", "--trials", "5", "--against", "none"
    )
    assert ran.returncode == 0, ran.stderr
    assert "mean ± stderr" in ran.stdout
    assert "of bound" in ran.stdout
    assert "Traceback" not in ran.stderr


def test_a_model_is_trained_saved_and_evaluated(tmp_path):
    out = str(tmp_path / "runs" / "mine")
    small = "--exact.steps 10 --exact.arms 16 --set mix=0.4,0.2,0.4 --n-arms 6 --budget 2"
    ran = prefermab("pretrain", "armman", "--out", out, *small.split())
    assert ran.returncode == 0, ran.stderr
    ran = prefermab("evaluate", out, "--trials", "20", "--no-bound", "--against", "none", "--json")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert (told["n_arms"], told["budget"]) == (6, 2)
    assert {row["policy"] for row in told["rows"]} == {"mine", "none"}
    assert told["model"] == "mine"
    for again in (
        PretrainCommand("armman", out=Path(out)),
        FinetuneCommand("armman", out=Path(out)),
    ):
        with pytest.raises(pm.InputError, match="mine holds a model already: add --overwrite"):
            again.run()
    check_folder(Path(out), overwrite=True)


def test_models_lists_what_ships_and_prints_cards():
    listed = prefermab("models", "--json")
    assert set(json.loads(listed.stdout)) >= set(pm.domains.BY_NAME)
    assert "of bound" in prefermab("models", "armman").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("models arman", "did you mean 'armman'?"),
        ("pretrain arman --out x", "did you mean 'armman'?"),
        ("pretrain armman --out x --recipe swep", "did you mean 'sweep'?"),
        ("pretrain armman --out x --exact.steps 0", "steps must be"),
        ("pretrain armman --out x --sweep.steps 5", "the recipe is exact"),
        ("pretrain armman --out .", "holds something that is not a model"),
        ("evaluate nowhere/at/all", "unknown model or domain"),
        ("evaluate arman", "did you mean 'armman'?"),
        ("evaluate armman --against witle", "did you mean 'whittle'?"),
        ("evaluate sis --set population=8", "knows 151 states, the domain 'sis' has 9"),
        ("pretrain armman --out x --resume", "nothing to resume at x.checkpoint"),
        ("evaluate armman --budget nan", "budget must be a finite number"),
        ("evaluate armman --budget -3", "budget must be a finite number of at least 0"),
        ("evaluate armman --set mix", "--set takes name=value"),
        ("evaluate armman --set mix=1,1,1", "add up to 1"),
        ("evaluate armman --plot picture.bmp", "must end in .png, .svg, .pdf"),
        ("evaluate sis --against whittle --trials 2 --no-bound", "use Lagrangian"),
        ("demo --out nowhere.txt", "must end in .png"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_status_2(arguments, message):
    ran = prefermab(*arguments.split())
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert message in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_a_picture_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    ran = prefermab(
        "evaluate", "synthetic", "--trials", "3", "--against", "none", "--no-bound",
        "--plot", str(tmp_path / "file" / "p.png"),
    )  # fmt: skip
    assert ran.returncode == 2
    assert "cannot write" in ran.stderr


def test_an_existing_picture_survives_a_failed_one(tmp_path):
    from prefermab.files import write_atomically

    target = tmp_path / "p.txt"
    target.write_text("before")

    def fail(draft: Path) -> None:
        draft.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_atomically(target, fail)
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["p.txt"]


def test_ctrl_c_ends_with_130_and_no_traceback():
    running = subprocess.Popen(
        [sys.executable, "-m", "prefermab", "evaluate", "sis", "--trials", "5000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(3)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 130
    assert "Traceback" not in errors


def test_where_nobody_watches_a_line_is_printed_now_and_then(capsys):
    times = iter([0.0, 3.0, 10.0, 10.0, 12.0, 19.9, 25.0, 25.0])
    with progress(clock=lambda: next(times)) as report:
        for done, what in ((0.1, "a"), (0.2, "b"), (0.3, "c"), (0.4, "d"), (0.5, "e")):
            report(done, what)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.split() == ["20%", "b", "50%", "e"]


@pytest.mark.parametrize("width", [80, 50])
def test_a_long_text_does_not_push_the_bar_off_the_terminal(width):
    console = Console(width=width, force_terminal=True, color_system=None, file=io.StringIO())
    shown = progress_bar(console)
    text = "12 of 99 tasks: training [small] one and comparing " + 40 * "x"
    shown.add_task(shortened(text, width), total=1.0, completed=0.5)
    with console.capture() as capture:
        console.print(shown.get_renderable())
    (line,) = capture.get().splitlines()
    assert line.startswith(12 * "━")
    assert "-:--:-- 12 of 99 tasks" in line
    assert line.endswith("…")
    assert len(line) == width - 2  # more than ten hours have a digit more


def test_compiled_code_is_kept_in_the_users_cache_folder(tmp_path):
    options = ["evaluate", "synthetic", "--trials", "10", "--against", "none", "--no-bound"]
    ran = prefermab(*options, XDG_CACHE_HOME=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert list((tmp_path / "prefermab" / "jax").iterdir())


def test_an_unwritable_cache_folder_is_no_matter(tmp_path):
    (tmp_path / "file").write_text("")
    options = ["evaluate", "synthetic", "--trials", "10", "--against", "none", "--no-bound"]
    ran = prefermab(*options, XDG_CACHE_HOME=str(tmp_path / "file"))
    assert ran.returncode == 0, ran.stderr


def test_every_public_name_is_there_and_says_what_it_is():
    for name in pm.__all__:
        assert getattr(pm, name).__doc__
    with pytest.raises(AttributeError):
        _ = pm.nothing  # pyright: ignore[reportAttributeAccessIssue]
