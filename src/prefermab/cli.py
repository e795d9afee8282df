"""The command line: reads what was typed, runs the verb, and ends with its status.

Nothing heavy is imported before `main` has begun, so that Ctrl-C is understood from the start.
"""

import contextlib
import os
import signal
import sys
from typing import Annotated, Any, NoReturn, Union

import prefermab

DESCRIPTION = (
    "Give a limited resource, round after round, to some of many. Begin with: prefermab demo"
)
BROKEN_PIPE = 128 + 13


class Terminated(KeyboardInterrupt):
    """Somebody asked the process to end: all that holds for Ctrl-C holds for it."""


def verbs() -> dict[str, Any]:
    """The verbs by what is typed."""
    from prefermab.verbs.models import Evaluate, Finetune, Models, Pretrain
    from prefermab.verbs.programmes import Example, Learn, Plan, Simulate, WhatIf
    from prefermab.verbs.rounds import Programme
    from prefermab.verbs.studies import Bench, Demo, Reproduce

    return {
        "demo": Demo,
        "models": Models,
        "example": Example,
        "learn": Learn,
        "plan": Plan,
        "what-if": WhatIf,
        "programme": Programme,
        "simulate": Simulate,
        "pretrain": Pretrain,
        "finetune": Finetune,
        "evaluate": Evaluate,
        "reproduce": Reproduce,
        "bench": Bench,
    }


def main() -> None:
    """Runs the command line; exit status 0, 2 on bad input, 130 on Ctrl-C, 143 on SIGTERM, and 141
    where nobody reads standard output any more."""
    try:
        with contextlib.suppress(ValueError):  # not in the main thread
            signal.signal(signal.SIGTERM, _terminate)
        run(sys.argv[1:])
    except KeyboardInterrupt as error:
        _say("interrupted.")
        with contextlib.suppress(OSError):
            _flush()
        # JAX may still be computing in threads of its own, which an ordinary end can crash into.
        os._exit(143 if isinstance(error, Terminated) else 130)


def run(typed: list[str]) -> None:
    """Runs what was typed, and ends the process where it cannot."""
    from prefermab.errors import PrefermabError

    try:
        try:
            obey(typed)
        finally:
            _flush()
    except PrefermabError as error:
        _end(2, str(error))
    except BrokenPipeError:
        _end(BROKEN_PIPE)
    except SystemExit as end:
        # Rich ends the process by itself.
        if isinstance(end.__context__, BrokenPipeError):
            _end(BROKEN_PIPE)
        raise
    except OSError as error:
        why = error.strerror or str(error)
        _end(2, f"{error.filename or 'cannot write the output'}: {why}.")


def obey(typed: list[str]) -> None:
    """Understands what was typed, and does it."""
    import tyro
    from tyro.conf import subcommand

    from prefermab.errors import unknown

    known, words = verbs(), typed or ["--help"]
    if words[0] == "--version":
        print(f"prefermab {prefermab.__version__}")
        return
    if words[0] in known:
        # Alone, so that a mistake is answered with this verb's options only.
        verb = tyro.cli(known[words[0]], prog=f"prefermab {words[0]}", args=words[1:])
    elif words[0].startswith("-"):
        named = [Annotated[kind, subcommand(name)] for name, kind in known.items()]
        asked: Any = Union[tuple(named)]  # noqa: UP007
        verb = tyro.cli(asked, prog="prefermab", description=DESCRIPTION, args=words)
    else:
        raise unknown("verb", words[0], known)
    verb.run()


def _terminate(*_: object) -> NoReturn:
    raise Terminated


def _end(status: int, why: str | None = None) -> NoReturn:
    if why is not None:
        _say(why)
    try:
        _flush()
    except OSError:
        # What could not be written would be tried once more at the very end, and complained about.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _say(what: str) -> None:
    with contextlib.suppress(OSError):
        print(f"prefermab: {what}", file=sys.stderr, flush=True)
