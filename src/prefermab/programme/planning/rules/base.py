"""What a rule of a plan is: its settings, what it needs of people, and what it limits.

A rule is a class whose fields are made by `setting`; it becomes a frozen dataclass. It is of one
kind: `Bars` (some people are not acted on), `Forces` (some people get a certain action) or `Ties`
(people with the same label share limits). As soon as a class with a `name` is defined, its settings
are arguments of `pm.Rules`, options of the commands, fields of the API and of the form for a plan;
plans keep it, their summaries say what it costs, and programmes store and replay it.
"""

import abc
import dataclasses
import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform, get_origin

import numpy as np

from prefermab.errors import InputError, amount, count, number, unknown
from prefermab.programme.planning.rules.shared import SharedLimits

if TYPE_CHECKING:  # commands list rules in their help, which should not wait for polars
    from prefermab.programme.planning.rules.people import People

RULES: dict[str, type["Rule"]] = {}
"""All rules that are defined, by name."""

ANY = -1
"""Instead of an action: the person must get some action, whichever is best."""

IN, OUT = 0, 1
"""A person may be acted on (IN) or has opted out; each rule that bars people has a further number.
"""


@dataclasses.dataclass(frozen=True)
class Setting:
    """How a field of a rule is given and named, whoever asks for it.

    Args:
        help: What it means, in a sentence.
        part: The rule, or the part of a rule, that the setting puts in force: a summary says what
            each part costs. None for a setting that only says how another one is read.
        option: Its option on the command line, if that is not the name of the field.
        metavar: The value as the help of the command line shows it.
        label: Its label in the form for a plan; fields without one are not in the form.
        hint: What the form says beside it.
        column: For the name of a column, what is in it: "truths", "texts" or "numbers".
        percent: Whether numbers are shares, shown as per cent.
    """

    help: str
    part: str | None
    option: str | None = None
    metavar: str | None = None
    label: str = ""
    hint: str = ""
    column: str | None = None
    percent: bool = False


def setting(default: Any, help: str, **more: Any) -> Any:
    """A field of a rule, described by a `Setting`; a dict as default is copied.

    >>> from prefermab.programme.planning.rules.base import setting
    >>> setting(0, "Number of rounds.", part="rest").metadata["setting"].part
    'rest'
    """
    metadata = {"setting": Setting(help, **more)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def setting_of(field: dataclasses.Field) -> Setting:
    """The description of a field of a rule."""
    return field.metadata["setting"]


def default_of(field: dataclasses.Field) -> Any:
    """The value of a field that is not given."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def holds_ids(field: dataclasses.Field) -> bool:
    """Whether a field holds ids of people."""
    return field.type == Sequence[str | int]


def holds_names(field: dataclasses.Field) -> bool:
    """Whether a field holds several names."""
    return field.type == Sequence[str]


def holds_numbers(field: dataclasses.Field) -> bool:
    """Whether a field holds a number for each of several names."""
    return get_origin(field.type) is Mapping


def check_setting(field: dataclasses.Field, value: Any) -> Any:
    """A value of a setting of a rule; raises if it is of another kind."""
    name = field.name
    if isinstance(value, bool) and field.type is not bool:
        raise InputError(f"{name} must not be {value!r}; leave it out if there is no such rule.")
    if holds_ids(field):
        if isinstance(value, str | int):
            return (value,)
        several = isinstance(value, Iterable) and not isinstance(value, bytes | Mapping)
        if several and all(isinstance(one, str | int) and type(one) is not bool for one in value):
            return tuple(value)
        raise InputError(f"{name} must be ids of people, not {value!r}.")
    if holds_names(field):
        if isinstance(value, str):
            return (value,)
        if isinstance(value, Iterable) and all(isinstance(one, str) for one in value):
            return tuple(value)
        raise InputError(f"{name} must be texts, not {value!r}.")
    if holds_numbers(field):
        if not isinstance(value, Mapping):
            raise InputError(f"{name} must be numbers by name, such as {{'a': 1}}, not {value!r}.")
        read = number if setting_of(field).percent else amount
        return {str(one): read(each, f"{name} of '{one}'") for one, each in value.items()}
    if field.type is int:
        return count(value, name, at_least=0)
    if field.type is float:
        return number(value, name)
    wanted, words = (bool, "true or false") if field.type is bool else (str, "a text")
    if not isinstance(value, wanted):
        raise InputError(f"{name} must be {words}, not {value!r}.")
    return value


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
class Rule(abc.ABC):
    """Base of all rules, of the kind `Bars`, `Forces` or `Ties`;
    `tests/programme/planning/test_rules.py` has one of forty lines."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Makes a rule that has a name known to everything that lists rules."""
        if "name" in vars(cls):
            Rules.accept(dataclasses.dataclass(frozen=True)(cls))

    @abc.abstractmethod
    def words(self) -> Mapping[str, tuple[str, str]]:
        """For each part of the rule its title and what is asked, such as {"cooldown": ("rest after
        an action", "2 rounds")}."""

    def parts(self) -> dict[str, "Rule"]:
        """The parts that are in force by name, each with the rule without it."""
        found: dict[str, dict[str, Any]] = {}
        for field in dataclasses.fields(self):
            part, default = setting_of(field).part, default_of(field)
            if part is not None and getattr(self, field.name) != default:
                found.setdefault(part, {})[field.name] = default
        return {part: dataclasses.replace(self, **plain) for part, plain in found.items()}


class Bars(Rule):
    """A rule by which some people are not acted on in this round."""

    kept_out: ClassVar[str]
    """Why somebody is kept out, such as "in cooldown"."""
    standing: ClassVar[int]
    """The number that stands for it in the standing of people."""

    @abc.abstractmethod
    def barred(self, people: "People") -> np.ndarray:
        """Who is not acted on, (person,)."""


class Forces(Rule):
    """A rule by which some people must get an action in this round."""

    @abc.abstractmethod
    def forced(self, people: "People") -> np.ndarray:
        """The action that each person must get: 0 if none, `ANY` if whichever is best."""


class Ties(Rule):
    """A rule by which people with the same label share limits beyond the budget."""

    @property
    @abc.abstractmethod
    def label_column(self) -> str | None:
        """The column of the labels; None if the rule is not in force."""

    @abc.abstractmethod
    def limits(self, label: np.ndarray, names: tuple[str, ...]) -> SharedLimits:
        """The limits of each label. `label` has everyone's place in `names`, -1 for none."""


ABOUT_RULES = """Rules that a plan must keep. All columns are columns of the table of people.

Args:
{settings}

>>> import prefermab as pm
>>> rules = pm.Rules(exclude_column="do_not_call", cooldown=2, group_column="region",
...                  min_share={{"north": 0.3}})
>>> rules.last_column
'rounds_since_action'
>>> rules
Rules(exclude_column='do_not_call', cooldown=2, group_column='region', min_share={{'north': 0.3}})
"""


class Rules:  # noqa: D101 - its docstring is made from the settings
    # The fields of all rules: with them `dataclasses.replace`, `asdict` and `fields` work.
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]] = {}
    __signature__: ClassVar[inspect.Signature]
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **given: Any) -> None:
        known = type(self).__dataclass_fields__
        for name in given:
            if name not in known:
                raise unknown("rule", name, known)
        given = {
            n: check_setting(known[n], value) for n, value in given.items() if value is not None
        }
        rules = []
        for kind in RULES.values():
            own = [field.name for field in dataclasses.fields(kind)]
            rules.append(kind(**{name: given[name] for name in own if name in given}))
        vars(self)["all"] = tuple(rules)

    @classmethod
    def accept(cls, kind: type[Rule]) -> None:
        """Takes in a rule that was defined, with its settings.

        Args:
            kind: The class of the rule.
        """
        if issubclass(kind, Bars):
            others = [one for name, one in RULES.items() if name != kind.name]
            kind.standing = OUT + 1 + sum(issubclass(one, Bars) for one in others)
        RULES[kind.name] = kind
        fields = [field for one in RULES.values() for field in dataclasses.fields(one)]
        cls.__dataclass_fields__ = {field.name: field for field in fields}
        keyword = inspect.Parameter.KEYWORD_ONLY
        cls.__signature__ = inspect.Signature(
            [
                inspect.Parameter(one.name, keyword, default=default_of(one), annotation=one.type)
                for one in fields
            ]
        )
        lines = (f"    {field.name}: {setting_of(field).help}" for field in fields)
        cls.__doc__ = ABOUT_RULES.format(settings="\n".join(lines))

    def __getattr__(self, name: str) -> Any:
        if name not in type(self).__dataclass_fields__:
            raise AttributeError(f"'Rules' has no attribute '{name}'")
        for rule in self.all:
            if name in rule.__dataclass_fields__:
                return getattr(rule, name)
        return default_of(type(self).__dataclass_fields__[name])

    def __reduce__(self) -> tuple[Any, ...]:
        # Other processes need only the rules that are in force.
        return _rules, (self.given(),)

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field '{name}'")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rules):
            return NotImplemented
        return dataclasses.asdict(self) == dataclasses.asdict(other)

    def __repr__(self) -> str:
        given = (f"{name}={value!r}" for name, value in self.given().items())
        return f"Rules({', '.join(given)})"

    def given(self) -> dict[str, Any]:
        """The settings that are not as they are without rules.

        Returns:
            Their values by name, the same however many rules are defined.
        """
        return {
            name: getattr(self, name)
            for name, field in self.__dataclass_fields__.items()
            if getattr(self, name) != default_of(field)
        }

    @property
    def barring(self) -> list[Bars]:
        """The rules by which some people are not acted on."""
        return [rule for rule in self.all if isinstance(rule, Bars)]

    @property
    def forcing(self) -> list[Forces]:
        """The rules by which some people must get an action."""
        return [rule for rule in self.all if isinstance(rule, Forces)]

    @property
    def tying(self) -> list[Ties]:
        """The rules by which people with the same label share limits."""
        return [rule for rule in self.all if isinstance(rule, Ties) and rule.label_column]

    @property
    def about_groups(self) -> bool:
        """Whether people share limits beyond the budget: shares of groups, budgets of workers."""
        return any(rule.parts() for rule in self.tying)

    def named(self) -> dict[str, "Rules"]:
        """Each rule in force by name, with the rules that remain if it is removed."""
        return {
            part: dataclasses.replace(self, **vars(without))
            for rule in self.all
            for part, without in rule.parts().items()
        }

    def words(self) -> dict[str, tuple[str, str]]:
        """The title of each rule, and what is asked, by name."""
        return {part: words for rule in self.all for part, words in rule.words().items()}

    def columns(self, in_force: bool = False) -> set[str]:
        """The columns that the rules name.

        Args:
            in_force: Whether to leave out the columns of rules that are not in force.

        Returns:
            Their names.
        """
        found = set()
        for rule in self.all:
            if not in_force or rule.parts() or (isinstance(rule, Ties) and rule.label_column):
                fields = dataclasses.fields(rule)
                found |= {getattr(rule, one.name) for one in fields if setting_of(one).column}
        return {name for name in found if name}

    def about(self, ids: Collection[str]) -> "Rules":
        """The rules as they are about some people only.

        Args:
            ids: The ids of these people, as texts.

        Returns:
            The rules without the other ids that they name.
        """
        kept = {
            name: tuple(one for one in named if str(one) in ids)
            for name, named in self.ids().items()
        }
        return dataclasses.replace(self, **kept)

    def ids(self) -> dict[str, tuple[str | int, ...]]:
        """The ids of people that each setting names."""
        fields = self.__dataclass_fields__.items()
        return {name: getattr(self, name) for name, field in fields if holds_ids(field)}


def _rules(given: Mapping[str, Any]) -> Rules:
    return Rules(**given)
