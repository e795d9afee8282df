"""Options that several commands share, and functions that parse their values."""

import ast
import dataclasses
import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, arg
from tyro.constructors import PrimitiveConstructorSpec

from prefermab.errors import InputError, brief, check_exact, list_names, visible

if TYPE_CHECKING:
    import polars as pl

    from prefermab.programme.planning.rules import Rules


def option(metavar: str, help: str | None = None, name: str | None = None) -> object:
    """An option whose value is shown as `metavar`; its help text itself gives the default."""
    return arg(metavar=metavar, help=help, name=name, help_behavior_hint="")


ModelName = Annotated[
    Positional[str],
    arg(
        metavar="MODEL",
        help="Name of a model in the package (see prefermab models), or folder of a model.",
    ),
]
ModelOrDomain = Annotated[
    Positional[str],
    arg(
        metavar="MODEL",
        help="Name of a model in the package, folder of a model, or a domain: its name, or a class "
        "in your own file, such as presses.py:Presses. With a domain, only policies are compared.",
    ),
]
OtherDomain = Annotated[
    str | None,
    option(
        "DOMAIN",
        "Domain to use the model on: its name, or a class in your own file, such as "
        "presses.py:Presses. Default: the model's domain. The file is executed: name only files "
        "that you trust.",
    ),
]
SettingsOption = Annotated[
    tuple[str, ...],
    option("NAME=VALUE ...", "Settings of the domain, such as mix=0.4,0.2,0.4.", "set"),
]
PlotFile = Annotated[
    Path | None, option("FILE", "Also write a figure to this file (.png, .svg or .pdf).")
]
Flag = Annotated[bool, FlagCreatePairsOff, arg(help_behavior_hint="")]
KeyFile = Annotated[
    Path | None,
    option(
        "KEYFILE",
        "Replace ids by hashes that are made with the key in this file. If the file does not "
        "exist, it is created with a new key.",
    ),
]
TableFile = Annotated[Positional[str], arg(metavar="TABLE")]
JsonFlag = Annotated[
    bool,
    FlagCreatePairsOff,
    arg(help="Print JSON and nothing else on standard output.", help_behavior_hint=""),
]
ColumnName = Annotated[str | None, option("COLUMN")]
Whole = Annotated[int | None, option("N")]
RoundsLeft = Annotated[
    int | None,
    option(
        "N",
        "Number of rounds left in the programme, including this one. Default: no known end.",
    ),
]
KnownEnd = Annotated[
    bool,
    FlagCreatePairsOff,
    arg(
        help="Also run the model with knowledge of how many rounds are left.",
        help_behavior_hint="",
    ),
]


def parse_amount(text: str) -> float:
    """A number as it is typed; a whole one with more digits than a number holds is refused.

    >>> from prefermab.cli.options import parse_amount
    >>> parse_amount("700")
    700.0
    """
    try:
        real = float(text)
    except ValueError:
        raise InputError(f"expected a number, not '{text}'.") from None
    check_exact(text, real, "it")
    return real


EXACTLY = PrimitiveConstructorSpec(
    nargs=1,
    metavar="AMOUNT",
    instance_from_str=lambda typed: parse_amount(typed[0]),
    is_instance=lambda value: value is None or isinstance(value, int | float),
    str_from_instance=lambda value: [str(value)],
)
Amount = Annotated[float | None, EXACTLY, option("AMOUNT")]
RequiredAmount = Annotated[float, EXACTLY]
Explore = Annotated[
    float,
    option(
        "SHARE",
        "Share of the people who may be acted on, such as 0.1, among whom actions are exchanged at "
        "random. The list gives the probability of each person's action. Default: 0.",
    ),
]
LotSeed = Annotated[
    int | None, option("N", "Random seed for --explore. Default: a new one, given in the summary.")
]
Names = Annotated[tuple[str, ...], option("NAME ...")]


class RuleOptions:
    """Rules that the plan must follow."""

    def rules(self) -> "Rules":
        """The rules as planning takes them."""
        from prefermab.programme.planning.rules import Rules
        from prefermab.programme.planning.rules.base import holds_numbers

        given = {}
        for name, field in Rules.__dataclass_fields__.items():
            given[name] = getattr(self, name)
            if holds_numbers(field):
                given[name] = parse_named_numbers(given[name], f"--{option_name(field)}")
        return Rules(**given)


def option_name(field: dataclasses.Field) -> str:
    """The name of the option of a rule's field, such as min-share."""
    from prefermab.programme.planning.rules.base import setting_of

    return setting_of(field).option or field.name.replace("_", "-")


def rule_options() -> type[RuleOptions]:
    """A dataclass with an option for each setting of each rule that is defined."""
    from prefermab.programme.planning.rules import RULES

    return _rule_options(tuple(RULES.values()))


@functools.cache
def _rule_options(rules: tuple[type, ...]) -> type[RuleOptions]:
    from prefermab.programme.planning.rules.base import (
        default_of,
        holds_ids,
        holds_names,
        holds_numbers,
        setting_of,
    )

    options = []
    for field in (field for rule in rules for field in dataclasses.fields(rule)):
        about, kind, default = setting_of(field), field.type, default_of(field)
        if holds_ids(field) or holds_names(field) or holds_numbers(field):
            kind, default = tuple[str, ...], ()
        metavar = about.metavar or ("COLUMN" if about.column else None)
        shown = arg(name=option_name(field), metavar=metavar, help=about.help,
                    help_behavior_hint=None if default else "")  # fmt: skip
        options.append((field.name, Annotated[kind, shown], default))
    made = dataclasses.make_dataclass("RuleOptions", options, bases=(RuleOptions,), frozen=True)
    made.__doc__ = RuleOptions.__doc__
    return made


def no_rules() -> RuleOptions:
    """The options without any rule."""
    return rule_options()()


RuleFields = Annotated[RuleOptions, arg(name="", constructor_factory=rule_options)]


def parse_settings(pairs: tuple[str, ...]) -> dict[str, Any]:
    """Settings of a domain from name=value. A value that is no Python literal is plain text.

    >>> from prefermab.cli.options import parse_settings
    >>> parse_settings(("population=50", "mix=0.4,0.2,0.4", "reward=identity"))
    {'population': 50, 'mix': (0.4, 0.2, 0.4), 'reward': 'identity'}
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(f"--set takes name=value, such as population=50, not '{pair}'.")
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def parse_named_numbers(pairs: tuple[str, ...], option: str) -> dict[str, float]:
    """Numbers from name=number; a name may itself contain an equals sign.

    >>> from prefermab.cli.options import parse_named_numbers
    >>> parse_named_numbers(("north=0.3", "call=1"), "--costs")
    {'north': 0.3, 'call': 1.0}
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.rpartition("=")
        if name in found:
            raise InputError(f"{option} has two numbers for '{brief(name)}'; expected one.")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(f"{option} takes name=number, such as call=1, not '{pair}'.")
        check_exact(value, found[name], f"{option}: {name}")
    return found


def load_key(path: Path | None) -> bytes:
    """The key for pseudonyms; prints a line if a new key was written."""
    from prefermab.programme.tables.privacy import read_key

    assert path is not None
    key, new = read_key(path)
    if new:
        print(
            f"prefermab: a new key was written to {path}: keep it safe and apart from the tables.",
            file=sys.stderr,
        )
    return key


def hide_ids(rules: "Rules", key: bytes) -> "Rules":
    """The rules with pseudonyms for the ids that were typed."""
    hidden = {
        name: tuple(typed_pseudonyms([str(one) for one in ids], key))
        for name, ids in rules.ids().items()
    }
    return dataclasses.replace(rules, **hidden)


def typed_pseudonyms(ids: Sequence[str], key: bytes) -> list[str]:
    """Pseudonyms of ids that were typed."""
    import polars as pl

    from prefermab.programme.tables.privacy import pseudonyms

    return pseudonyms(pl.Series("ids", list(ids), pl.String), key).to_list()


def hide_people(
    table: "pl.DataFrame", where: str, key: bytes, unused: Sequence[str], keep: Sequence[str]
) -> "pl.DataFrame":
    """The table with pseudonyms as ids. Unused columns of free text are left out, except those
    named in `keep`."""
    from prefermab.programme.tables.columns import column, named_column
    from prefermab.programme.tables.privacy import identifying_columns, pseudonyms

    kept = {named_column(table, name, where).name for name in keep}
    found = identifying_columns(table)
    omitted = [name for name in found if name in unused and name not in kept]
    if omitted:
        names = visible(list_names(omitted))
        print(f"prefermab: left out, since they may identify people: {names}.", file=sys.stderr)
    return table.drop(omitted).with_columns(pseudonyms(column(table, "id", where), key))
