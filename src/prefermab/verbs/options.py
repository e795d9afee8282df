"""Kinds of options that several verbs have, and how they are shown."""

from pathlib import Path
from typing import Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg


def shown(metavar: str, help: str | None = None, name: str | None = None) -> object:
    """An option shown with this word for its value, and no default: its help says what holds
    without it."""
    return arg(metavar=metavar, help=help, name=name, help_behavior_hint="")


Model = Annotated[
    Positional[str], arg(metavar="MODEL", help="A model that ships, or a model's folder.")
]
ModelOrDomain = Annotated[
    Positional[str],
    arg(
        metavar="MODEL",
        help="A model that ships, a model's folder, or a domain (then only policies are compared), "
        "also one of your own such as presses.py:Presses.",
    ),
]
Own = Annotated[
    str | None,
    shown(
        "DOMAIN",
        "The domain to meet it on, such as presses.py:Presses for a model trained on a domain of "
        "your own; the model's if left out. The file is executed: name only files that you trust.",
    ),
]
Settings = Annotated[
    tuple[str, ...],
    shown("NAME=VALUE ...", "Settings of the domain, such as mix=0.4,0.2,0.4.", "set"),
]
Plot = Annotated[Path | None, shown("FILE", "Also draw it to this file (.png, .svg or .pdf).")]
Flag = Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")]
Json = Annotated[
    bool,
    FlagCreatePairsOff,
    arg(help="Print JSON and nothing else on standard output.", help_behavior_hint=""),
]
Column = Annotated[str | None, shown("COLUMN")]
Many = Annotated[int | None, shown("N")]
Money = Annotated[float | None, shown("AMOUNT")]
Names = Annotated[tuple[str, ...], shown("NAME ...")]
