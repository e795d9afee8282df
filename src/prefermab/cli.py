"""The command line: reads what was typed, runs the verb, and ends with its status."""

import os
import sys

import tyro

from prefermab.errors import InputError
from prefermab.verbs.models import Evaluate, Finetune, Models, Pretrain
from prefermab.verbs.programmes import Example, Learn, Plan, Simulate, WhatIf
from prefermab.verbs.studies import Bench, Demo, Reproduce

Verb = (
    Demo
    | Models
    | Example
    | Learn
    | Plan
    | WhatIf
    | Simulate
    | Pretrain
    | Finetune
    | Evaluate
    | Reproduce
    | Bench
)


def main() -> None:
    """Runs the command line; exit status 0, 2 on bad input, 130 on Ctrl-C."""
    try:
        verb = tyro.cli(
            Verb,
            prog="prefermab",
            description="Give a limited resource, round after round, to some of many. "
            "Begin with: prefermab demo",
            args=sys.argv[1:] or ["--help"],
        )
        verb.run()
    except InputError as error:
        print(f"prefermab: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("prefermab: interrupted.", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        # JAX may still be computing in threads of its own, which an ordinary end can crash into.
        os._exit(130)
