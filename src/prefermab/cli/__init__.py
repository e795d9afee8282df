"""The command line: finds the command, runs it, and sets the exit status.

This module imports nothing heavy, so that Ctrl-C works from the start and the list of commands is
printed at once.
"""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol, runtime_checkable

import prefermab

BROKEN_PIPE = 128 + 13

RETRY_SECONDS = 0.05
"""A lost interrupt is raised again after this many seconds."""


@runtime_checkable
class Command(Protocol):
    """A command: its fields are the options, `run` does the work."""

    def run(self) -> None:
        """Runs the command."""


class CommandEntry(NamedTuple):
    """The place of a command in the code, and its line in the list of commands."""

    module: str
    options: str
    """Name of the dataclass of its options, in `prefermab.cli.<module>`."""
    summary: str
    """First line of that dataclass's docstring."""


COMMAND_GROUPS = {
    "to try it": {
        "demo": CommandEntry(
            "demo", "DemoCommand", "Show what it does on a health programme, in a minute."
        ),
        "models": CommandEntry(
            "evaluate", "ModelsCommand", "List the trained models, or describe one."
        ),
        "example": CommandEntry(
            "learn", "ExampleCommand", "Write example tables: people and a log."
        ),
    },
    "for your programme": {
        "events": CommandEntry(
            "events", "EventsCommand", "Make a log from visits, calls or forms."
        ),
        "learn": CommandEntry("learn", "LearnCommand", "Learn a model from a log of past actions."),
        "plan": CommandEntry(
            "plan", "PlanCommand", "Choose whom to act on in this round, from a table."
        ),
        "what-if": CommandEntry(
            "plan", "WhatIfCommand", "Compare what different budgets would achieve."
        ),
        "programme": CommandEntry(
            "programme", "ProgrammeCommand", "Run a programme round after round."
        ),
        "serve": CommandEntry("serve", "ServeCommand", "Serve programmes as web pages and an API."),
        "audit": CommandEntry(
            "audit", "AuditCommand", "Show or verify the log of who changed what."
        ),
        "trial": CommandEntry("trial", "TrialCommand", "Plan, randomise and analyse a trial."),
        "simulate": CommandEntry(
            "simulate", "SimulateCommand", "Simulate a programme over many rounds."
        ),
    },
    "for research": {
        "pretrain": CommandEntry("train", "PretrainCommand", "Train a model on a domain."),
        "finetune": CommandEntry(
            "train", "FinetuneCommand", "Train a model further on given arms."
        ),
        "evaluate": CommandEntry(
            "evaluate", "EvaluateCommand", "Compare a model with other policies."
        ),
        "reproduce": CommandEntry(
            "reproduce", "ReproduceCommand", "Reproduce the paper's results."
        ),
        "bench": CommandEntry("bench", "BenchCommand", "Measure how fast prefermab runs here."),
    },
}
COMMANDS = {name: entry for group in COMMAND_GROUPS.values() for name, entry in group.items()}


def main() -> None:
    """Runs the command line.

    Exit status: 0, 2 on bad input, 130 on Ctrl-C, 143 on SIGTERM, and 141 if the reader of standard
    output has gone.
    """
    try:
        with contextlib.suppress(ValueError):  # not in the main thread
            _handle_signals()
        run_command(sys.argv[1:])
    except KeyboardInterrupt as error:
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        number = signal.SIGINT
        if isinstance(error, Interrupted):
            number, error.arrived = error.number, True
        _print_error("interrupted.")
        with contextlib.suppress(OSError):
            _flush()
        # JAX may still be computing in its own threads; a normal exit can crash while they run.
        os._exit(128 + number)


def run_command(typed: list[str]) -> None:
    """Runs the command that was typed; if it fails, exits with a status and a message."""
    try:
        try:
            dispatch(typed)
        except Exception:
            if Interrupted.latest is not None:  # a library turned the interrupt into this error
                raise Interrupted(Interrupted.latest) from None
            raise
        finally:
            _flush()
    except BrokenPipeError:
        _exit(BROKEN_PIPE)
    except SystemExit as end:
        # Rich exits by itself when a pipe breaks.
        if isinstance(end.__context__, BrokenPipeError):
            _exit(BROKEN_PIPE)
        raise
    except OSError as error:
        why = error.strerror or str(error)
        _exit(2, f"{error.filename or 'cannot write the output'}: {why}.")
    except Exception as error:
        from prefermab.errors import PrefermabError

        if not isinstance(error, PrefermabError):
            raise
        _exit(2, str(error))


def dispatch(typed: list[str]) -> None:
    """Parses the arguments and runs the command.

    >>> from prefermab.cli import dispatch
    >>> dispatch(["--version"])  # doctest: +ELLIPSIS
    prefermab ...
    """
    name, *arguments = typed or ["--help"]
    if name in ("--help", "-h"):
        print(help_text())
    elif name == "--version":
        print(f"prefermab {prefermab.__version__}")
    else:
        command = _parse(name, arguments)
        with _warnings_as_sentences():
            command.run()


def help_text() -> str:
    """The list of commands."""
    lines = [
        "usage: prefermab COMMAND [OPTIONS]",
        "",
        "Give a limited resource, round after round, to some of many.",
    ]
    for heading, group in COMMAND_GROUPS.items():
        lines += ["", f"{heading}:"]
        lines += [f"  {name:<11}{entry.summary}" for name, entry in group.items()]
    return "\n".join(
        [
            *lines,
            "",
            "Options of a command: prefermab COMMAND --help",
            "Version: prefermab --version",
        ]
    )


def load_command(name: str) -> type[Command]:
    """The dataclass of a command's options."""
    entry = COMMANDS[name]
    return getattr(import_module(f"prefermab.cli.{entry.module}"), entry.options)


def _parse(name: str, arguments: list[str]) -> Command:
    if name not in COMMANDS:
        from prefermab.errors import InputError, unknown

        if name.startswith("-"):
            raise InputError(f"expected a command before {name}: see prefermab --help.")
        raise unknown("command", name, COMMANDS)
    import tyro

    return tyro.cli(load_command(name), prog=f"prefermab {name}", args=arguments)


@contextlib.contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    """Prints each `InputWarning` as one line on standard error."""
    import warnings

    from prefermab.errors import InputWarning

    with warnings.catch_warnings():
        warnings.simplefilter("always", InputWarning)
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], *rest: Any) -> None:
            if issubclass(category, InputWarning):
                _print_error(str(message))
            else:
                others(message, category, *rest)

        warnings.showwarning = show
        yield


class Interrupted(KeyboardInterrupt):
    """Raised on Ctrl-C, and on SIGTERM, which is handled in the same way.

    An exception is lost if it is raised while C++ or the garbage collector calls Python: JAX then
    continues. So an `Interrupted` that is deleted before it arrives in `main` is raised again.
    """

    latest: ClassVar[int | None] = None
    """Number of the last signal."""

    def __init__(self, number: int) -> None:
        self.number = Interrupted.latest = number
        self.arrived = False

    def __del__(self) -> None:
        if not self.arrived:
            again = threading.Timer(RETRY_SECONDS, signal.raise_signal, [self.number])
            again.daemon = True
            again.start()


def _handle_signals() -> None:
    """Turns Ctrl-C and SIGTERM into `Interrupted`, unless the process ignores these signals."""

    def interrupt(number: int, _: object) -> NoReturn:
        raise Interrupted(number)

    others = sys.unraisablehook

    def report_lost(lost: "sys.UnraisableHookArgs") -> None:
        if not isinstance(lost.exc_value, Interrupted):
            others(lost)

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    sys.unraisablehook = report_lost


def _exit(status: int, why: str | None = None) -> NoReturn:
    if why is not None:
        _print_error(why)
    try:
        _flush()
    except OSError:
        # Otherwise Python writes the rest again when it exits, and prints an error.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _print_error(what: str) -> None:
    with contextlib.suppress(OSError):
        print(f"prefermab: {what}", file=sys.stderr, flush=True)
