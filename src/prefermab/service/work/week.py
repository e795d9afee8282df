"""This week's list: lines for pages, notes, costs of rules, and how the list came about."""

import dataclasses
from typing import Any

import polars as pl

from prefermab.programme.planning.printed import PLANNED
from prefermab.programme.planning.roster import SINCE_ACTION, SINCE_SEEN
from prefermab.programme.planning.rules import Rules
from prefermab.programme.planning.summary import Summary
from prefermab.programme.store import Planned, lookups
from prefermab.programme.tables.naming import find_named, first_named
from prefermab.programme.tables.table import format_number, format_people
from prefermab.service.work.approval import approvals
from prefermab.service.work.desk import Desk
from prefermab.service.work.plan_requests import rules_of

NAMES = ("name", "full_name")
PHONES = ("phone", "telephone", "mobile", "tel", "phone_number")
MOST_FACTS = 4
"""Most other columns of the people's table that a line of the list shows."""

NOT_SHOWN = (None, "", False, "no")
"""Values of such columns that a line leaves out."""

MOST_VALUES = 100
"""A column with more values than this gets no filter."""


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of the people's table that pages show, by their role."""

    name: str | None
    phone: str | None
    worker: str | None
    group: str | None
    facts: tuple[str, ...]

    @classmethod
    def of(cls, frame: pl.DataFrame, worker: str, group: str | None) -> "Columns":
        """The columns of a list or a roster."""
        name, phone = (first_named(frame.columns, known) for known in (NAMES, PHONES))
        if phone is not None and not is_phone(frame[phone].drop_nulls().first()):
            phone = None
        fractions = frame.select(pl.selectors.float()).columns
        mine = find_named(frame.columns, worker)
        apart = {*PLANNED, *fractions, name, phone, mine, "opt_in", SINCE_ACTION, SINCE_SEEN}
        facts = [one for one in frame.columns if one not in apart]
        return cls(
            name, phone, mine, find_named(frame.columns, group) if group else None,
            tuple(facts[:MOST_FACTS]),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Filter:
    """A filter for lines of a list; an empty text matches all."""

    worker: str = ""
    group: str = ""
    find: str = ""

    def apply(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        """The rows of a table that match."""
        for value, column in ((self.worker, columns.worker), (self.group, columns.group)):
            if value and column is not None:
                frame = frame.filter(pl.col(column).cast(pl.String) == value)
        wanted = self.find.strip().lower()
        if wanted:
            places = ["id", *[one for one in (columns.name, columns.phone) if one]]
            text = pl.concat_str(
                [pl.col(one).cast(pl.String).fill_null("") for one in places], separator="\n"
            )
            frame = frame.filter(text.str.to_lowercase().str.contains(wanted, literal=True))
        return frame


def is_phone(value: Any) -> bool:
    """Whether a cell holds a telephone number, rather than the kind of telephone somebody has.

    >>> from prefermab.service.work.week import is_phone
    >>> is_phone("+91 555 1000"), is_phone("shared")
    (True, False)
    """
    return sum(sign.isdigit() for sign in str(value)) >= 5


def values_of(frame: pl.DataFrame, column: str | None) -> list[str]:
    """The values of a column for a filter; empty if there is one, or too many."""
    if column is None or column not in frame.columns:
        return []
    found = frame[column].drop_nulls().unique().cast(pl.String).sort().to_list()
    return found if 1 < len(found) <= MOST_VALUES else []


def lines(frame: pl.DataFrame, columns: Columns) -> list[dict[str, Any]]:
    """People as lines of a page: id, name, phone, worker, other columns, and the plan's columns."""
    found = []
    for row in frame.iter_rows(named=True):
        facts = [(one, row[one]) for one in columns.facts if row[one] not in NOT_SHOWN]
        facts = [(one, "yes" if value is True else value) for one, value in facts]
        line = {one: row.get(one) for one in ("id", "action", "cost", "rank", "reason", "list")}
        line |= {"facts": facts, "unlike": bool(row.get("outside")), "state": row.get("state")}
        for part in ("name", "phone", "worker"):
            column = getattr(columns, part)
            line[part] = None if column is None or row[column] is None else str(row[column])
        found.append(line)
    return found


def sentences(plan: Planned) -> list[str]:
    """Notes on a plan, such as people unlike the training's: the lines of its printed summary
    without rules and gain, and the age of states."""
    if not isinstance(plan.summary, Summary):
        return []
    found = [line for line in str(plan.summary).splitlines()[1:] if not line.startswith(
        ("the rule", "expected gain"))]  # fmt: skip
    found += stale_states(plan.inputs)
    return [f"{line[0].upper()}{line[1:]}." for line in found if line]


def stale_states(people: pl.DataFrame) -> list[str]:
    """The age of the states that a plan used, in words; empty if all are of this round."""
    if SINCE_SEEN not in people.columns:
        return []
    since = people[SINCE_SEEN]
    earlier, never = int((since > 0).sum()), since.null_count()
    found = []
    if earlier:
        oldest = int(since.max() or 0)  # type: ignore[arg-type]
        rounds = "1 round" if oldest == 1 else f"{oldest} rounds"
        found.append(
            f"{format_people(earlier)} planned with a state of an earlier round, the oldest from "
            f"{rounds} ago"
        )
    if never:
        found.append(f"the state of {format_people(never)} was never seen")
    return found


@dataclasses.dataclass(frozen=True)
class RuleCost:
    """A rule of a plan in words, and the gain that it costs: how much more a plan without it
    gains."""

    name: str
    text: str
    cost: float | None
    share: float | None
    """The cost divided by the expected gain."""


def rule_costs(plan: Planned) -> list[RuleCost]:
    """The rules of a plan in words, with their costs."""
    words, gain = (rules_of(plan.asked) or Rules()).words(), plan.facts.get("gain")
    costs: dict[str, float | None] = plan.facts.get("rules", {})
    return [
        RuleCost(
            *words.get(name, (name, "")), cost, None if cost is None or not gain else cost / gain
        )
        for name, cost in costs.items()
    ]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """An attempt of a round's plan: who made it and why, and what differs from the attempt
    before."""

    number: int
    who: str
    at: str
    why: str | None
    changes: str
    approved: str | None = None


def attempts(desk: Desk, round: int) -> list[Attempt]:
    """All attempts of a round's plan, the newest first."""
    with desk.records.reading() as sql:
        asked = lookups.requests_of(sql, round)
        noted = lookups.notes_of_plans(sql, round, len(asked) + 20)
        approved = approvals(sql, round)
    found = []
    for number in sorted(asked, reverse=True):
        row = noted.get(number)
        changes = describe_change(asked.get(number - 1), asked[number])
        who, at, why = ("", "", None) if row is None else (row.who, row.at, row.why)
        found.append(Attempt(number, who, at, why, changes, approved.get(number, (None,))[0]))
    return found


def describe_change(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    """How the arguments of a plan differ from those of the attempt before, in words."""
    if before is None:
        return f"budget {format_number(after['budget'])}"
    changes = []
    if before["budget"] != after["budget"]:
        changes.append(
            f"budget {format_number(after['budget'])} instead of {format_number(before['budget'])}"
        )
    old, new = (rules_of(one) or Rules() for one in (before, after))
    for field, words in (("exclude_ids", "off the list"), ("lock_ids", "on the list")):
        was, now = ({str(one) for one in getattr(one_rules, field)} for one_rules in (old, new))
        changes += [f"{', '.join(sorted(now - was))} {words}"] if now - was else []
        changes += [f"{', '.join(sorted(was - now))} free again"] if was - now else []
    plain = {"exclude_ids": (), "lock_ids": ()}
    if dataclasses.replace(old, **plain) != dataclasses.replace(new, **plain):
        changes.append("other rules")
    return ", ".join(dict.fromkeys(changes)) or "what is known of people changed"


def moved(plan: Planned, before: Planned) -> tuple[list[Any], list[Any]]:
    """The ids that came onto the list, and those that went off it, since an earlier attempt."""
    now, was = (one.frame.filter(pl.col("list") == "chosen")["id"] for one in (plan, before))
    return now.filter(~now.is_in(was.implode())).to_list(), was.filter(
        ~was.is_in(now.implode())
    ).to_list()
