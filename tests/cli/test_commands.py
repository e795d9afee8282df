"""The command line. Most tests run it in this process; some need a process of their own: signals,
pipes, exit status, and what is imported."""

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import jax
import pytest
from rich.console import Console

import prefermab as pm
from prefermab import cli
from prefermab.cli.terminal import progress, progress_bar, shortened
from prefermab.cli.train import FinetuneCommand, PretrainCommand, check_folder
from prefermab.common.files import use_compilation_cache

PUMPS = f"{Path(__file__).parents[1] / 'own_domain.py'}:Pumps"
"""A domain of three actions, without a model."""

NEEDS_JAX = ("pretrain", "finetune")
"""Commands whose options are the hyperparameters of recipes."""


@pytest.fixture
def prefermab(capsys):
    """Runs the command line in this process; returns status, standard output and error."""

    def typed(*arguments):
        capsys.readouterr()
        status = 0
        try:
            cli.run_command([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return typed


def process(*arguments, **environment):
    """Runs the command line in a process of its own."""
    return python("-m", "prefermab", *arguments, **environment)


def python(*arguments, **environment):
    """A process with these changes of its environment; None is for a name that is taken out."""
    changed = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={name: value for name, value in changed.items() if value is not None},
        check=False,
        timeout=300,
    )


def test_the_list_of_commands_is_printed_without_importing_any():
    code = (
        "import sys, prefermab.cli as cli\n"
        "cli.run_command(sys.argv[1:])\n"
        "heavy = {'jax', 'polars', 'numpy', 'tyro', 'rich', 'prefermab.errors'}\n"
        "assert not heavy & set(sys.modules)\n"
        "assert [m for m in sys.modules if m.startswith('prefermab.')] == ['prefermab.cli']"
    )
    for asked in ([], ["--help"], ["-h"]):
        ran = python("-c", code, *asked)
        assert ran.returncode == 0, ran.stderr
        assert all(f"\n  {name} " in ran.stdout for name in cli.COMMANDS)


def test_help_of_a_command_imports_neither_jax_nor_polars():
    code = (
        "import sys, prefermab.cli as cli\n"
        "for name in sys.argv[1:]:\n"
        "    try: cli.run_command([*name.split(), '--help'])\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "assert not {'jax', 'polars'} & set(sys.modules)"
    )
    light = [name for name in cli.COMMANDS if name not in NEEDS_JAX]
    ran = python("-c", code, *light, "programme plan")
    assert ran.returncode == 0, ran.stderr
    assert "waiting list" in ran.stdout


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_is_listed_with_the_first_line_of_its_help(name):
    command = cli.load_command(name)
    assert dataclasses.is_dataclass(command)
    assert cli.COMMANDS[name].summary == (command.__doc__ or "").splitlines()[0]


def test_the_version_is_printed():
    assert process("--version").stdout == f"prefermab {pm.__version__}\n"


def test_a_misspelt_command_is_corrected():
    ran = process("pla", "armman")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == "prefermab: unknown command 'pla': did you mean 'plan'?\n"


def test_an_option_without_a_command_is_an_error(prefermab):
    message = "prefermab: expected a command before --json: see prefermab --help.\n"
    assert prefermab("--json") == (2, "", message)


def test_a_misspelt_option_is_answered_with_those_of_its_command(prefermab):
    status, _, errors = prefermab("models", "--seeed", "3")
    assert status == 2
    assert "prefermab models --help" in errors
    assert not any(other in errors for other in ("--seeds", "--arms-seed", "evaluate"))


def test_every_recipe_has_its_own_options(prefermab):
    status, printed, _ = prefermab("pretrain", "--help")
    assert status == 0
    for option in ("--exact.horizon", "--sweep.steps", "--paper.epochs", "--paper.price-rate"):
        assert option in printed
    assert ".seed" not in printed


@pytest.mark.parametrize("arguments", ["plan --help", "--help", "--version", "models", "pla"])
def test_a_broken_pipe_ends_it_quietly(arguments):
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
def test_a_full_disk_is_reported_in_one_sentence(arguments, tmp_path):
    code = (
        "import resource, sys, prefermab.cli as cli\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        f"sys.argv = ['prefermab', *{arguments.split()}]\n"
        "cli.main()"
    )
    with (tmp_path / "out").open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-c", code],
            # Compiled code would be cut off as well, in the folder that other tests read from.
            env={**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert ran.returncode == 2
    assert ran.stderr == "prefermab: cannot write the output: File too large.\n"


@pytest.mark.parametrize(("number", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_is_handled_before_anything_heavy_is_imported(number, status):
    code = (
        "import os, signal, sys, prefermab.cli as cli\n"
        "assert not {'tyro', 'numpy', 'rich', 'prefermab.errors'} & set(sys.modules)\n"
        f"cli.dispatch = lambda _: os.kill(os.getpid(), signal.{number})\n"
        "cli.main()"
    )
    ran = python("-c", code)
    assert (ran.returncode, ran.stderr) == (status, "prefermab: interrupted.\n")


LOST = """
import ctypes, gc, os, signal, sys, time, prefermab.cli as cli
def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
{case}
def work(_):
    {lose}
    for _ in range(1000):
        time.sleep(0.01)
cli.dispatch = work
cli.main()
"""


@pytest.mark.parametrize(
    ("case", "lose"),
    [
        ("gc.callbacks.append(interrupt)", "gc.collect(); gc.callbacks.clear()"),
        ("call = ctypes.CFUNCTYPE(None)(interrupt)", "call()"),
        (
            "",
            "try: interrupt()\n    except KeyboardInterrupt: raise ValueError from None",
        ),
    ],
    ids=["garbage collector", "C", "another error"],
)
def test_ctrl_c_is_not_lost_where_no_exception_can_be_raised(case, lose):
    ran = python("-c", LOST.format(case=case, lose=lose))
    assert (ran.returncode, ran.stderr) == (130, "prefermab: interrupted.\n")


def test_ctrl_c_while_jax_works_ends_with_130_and_no_traceback():
    with subprocess.Popen(
        [sys.executable, "-m", "prefermab", "evaluate", "sis", "--trials", "5000"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "JAX_LOG_COMPILES": "1"},
    ) as running:
        assert running.stderr is not None
        assert any("compil" in line for line in running.stderr), "it ended before JAX worked"
        running.send_signal(signal.SIGINT)
        errors = running.stderr.read()
    assert running.returncode == 130
    assert errors.endswith("prefermab: interrupted.\n")
    assert "Traceback" not in errors


def test_a_process_prints_json_only_and_keeps_compiled_code_in_the_users_cache(tmp_path):
    options = "--trials 10 --against none --no-bound --json"
    places = {"XDG_CACHE_HOME": str(tmp_path), "JAX_COMPILATION_CACHE_DIR": None}
    places |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}  # Fast machines keep all as well.
    cut_off = tmp_path / "prefermab" / "jax" / "jit_f-cache"
    cut_off.parent.mkdir(parents=True)
    cut_off.touch()
    ran = process("evaluate", PUMPS, *options.split(), **places)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["domain"] == "pumps"
    assert list(cut_off.parent.iterdir())
    assert not cut_off.exists()


def test_a_cache_folder_that_cannot_be_written_is_not_used(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    before = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        use_compilation_cache()
        assert jax.config.jax_compilation_cache_dir is None  # pyright: ignore
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


EVALUATE = "evaluate synthetic --n-arms 5 --budget 2 --trials 40 --against none"


def test_evaluate_prints_json_and_nothing_else(prefermab, tmp_path):
    picture = tmp_path / "new folder" / "c.svg"
    options = ["random", "--opt-in", "0.6", "1.0", "--no-bound", "--json", "--plot"]
    status, printed, errors = prefermab(*EVALUATE.split(), *options, picture)
    assert status == 0, errors
    facts = json.loads(printed)
    assert (facts["domain"], facts["n_arms"], facts["budget"]) == ("synthetic", 5, 2)
    assert [row["policy"] for row in facts["rows"]].count("random") == 2
    assert picture.read_text().startswith("<?xml")
    assert [path.name for path in picture.parent.iterdir()] == ["c.svg"]


def test_evaluate_prints_a_table(prefermab):
    status, printed, errors = prefermab(*EVALUATE.split(), "--set", "shift=0.1")
    assert status == 0, errors
    assert "mean ± stderr" in printed
    assert "of bound" in printed


def test_a_model_is_trained_saved_and_evaluated(prefermab, tmp_path):
    out = tmp_path / "runs" / "mine"
    small = "--exact.steps 10 --exact.arms 16 --set mix=0.4,0.2,0.4 --n-arms 6 --budget 2"
    status, printed, errors = prefermab("pretrain", "armman", "--out", out, *small.split())
    assert status == 0, errors
    assert printed == f"saved {out}\nCompare it with other policies: prefermab evaluate {out}\n"
    small = "--trials 20 --no-bound --against none --json"
    status, printed, errors = prefermab("evaluate", out, *small.split())
    assert status == 0, errors
    facts = json.loads(printed)
    assert (facts["n_arms"], facts["budget"]) == (6, 2)
    assert {row["policy"] for row in facts["rows"]} == {"mine", "none"}
    assert facts["model"] == "mine"
    for again in (PretrainCommand("armman", out=out), FinetuneCommand("armman", out=out)):
        with pytest.raises(pm.InputError, match="mine holds a model already: add --overwrite"):
            again.run()
    check_folder(out, overwrite=True)


def test_models_lists_the_models_and_prints_cards(prefermab):
    status, printed, _ = prefermab("models", "--json")
    assert status == 0
    assert set(json.loads(printed)) >= set(pm.domains.BY_NAME)
    assert "of bound" in prefermab("models", "armman")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("models arman", "did you mean 'armman'?"),
        ("pretrain arman --out x", "did you mean 'armman'?"),
        ("pretrain armman --out x --recipe swep", "did you mean 'sweep'?"),
        ("pretrain armman --out x --exact.steps 0", "steps must be"),
        ("pretrain armman --out x --sweep.steps 5", "the recipe is exact"),
        ("finetune armman --out x --epochs 0", "epochs must be"),
        ("finetune nothing --out x", "unknown model or domain"),
        ("pretrain armman --out .", "holds something that is not a model"),
        ("evaluate nowhere/at/all", "unknown model or domain"),
        ("evaluate arman", "did you mean 'armman'?"),
        ("evaluate armman --against witle", "did you mean 'whittle'?"),
        ("evaluate sis --set population=8", "knows 151 states, the domain 'sis' has 9"),
        ("pretrain armman --out x --resume", "no interrupted training at x.checkpoint"),
        ("evaluate armman --budget nan", "budget must be a finite number"),
        ("evaluate armman --budget -3", "budget must be a finite number of at least 0"),
        ("evaluate armman --set mix", "--set takes name=value"),
        ("evaluate armman --set mix=1,1,1", "add up to 1"),
        ("evaluate armman --plot picture.bmp", "must end in .png, .svg, .pdf"),
        ("evaluate PUMPS --against whittle --trials 2 --no-bound", "use Lagrangian"),
        ("demo --out nowhere.txt", "must end in .png"),
        (
            "plan armman --arms a.csv --budget 1 --out b.csv --worker-budgets Ana=1 Ana=2",
            "--worker-budgets has two numbers for 'Ana'",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_exit_status_2(
    arguments, message, prefermab, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "something").write_text("")
    status, printed, errors = prefermab(*arguments.replace("PUMPS", PUMPS).split())
    assert (status, printed) == (2, "")
    assert errors.startswith("prefermab: ")
    assert message in errors
    assert len(errors.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["something"]


def test_a_picture_that_cannot_be_written_is_reported(prefermab, tmp_path):
    (tmp_path / "file").write_text("")
    picture = tmp_path / "file" / "p.png"
    status, _, errors = prefermab(*EVALUATE.split(), "--no-bound", "--plot", picture)
    assert status == 2
    assert "cannot write" in errors


def test_an_existing_picture_survives_a_failed_one(tmp_path):
    from prefermab.common.files import write_atomically

    target = tmp_path / "p.txt"
    target.write_text("before")

    def fail(draft: Path) -> None:
        draft.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_atomically(target, fail)
    assert target.read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["p.txt"]


def test_without_a_terminal_a_line_is_printed_every_few_seconds(capsys):
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


def test_every_public_name_is_there_and_says_what_it_is():
    for name in pm.__all__:
        assert getattr(pm, name).__doc__
    with pytest.raises(AttributeError):
        _ = pm.nothing  # pyright: ignore[reportAttributeAccessIssue]
