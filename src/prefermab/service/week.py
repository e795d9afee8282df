"""This week's list as people see it: whom, why, what it costs, and how staff change it.

A change by hand (somebody off the list, somebody on it, a swap) is a new attempt of the round's
plan, with that person among the excluded or the locked-in of its rules. The audit log has who asked
for it and why.
"""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import polars as pl
import sqlalchemy as sa

from prefermab.errors import InputError
from prefermab.programme.planning.printed import PLANNED
from prefermab.programme.planning.roster import SINCE_ACTION, SINCE_SEEN
from prefermab.programme.planning.rules import Rules
from prefermab.programme.planning.summary import Summary
from prefermab.programme.store import Planned
from prefermab.programme.store.rows import select
from prefermab.programme.store.schema import AUDIT, PLANS
from prefermab.programme.tables import format_number, format_people
from prefermab.service.access import Account
from prefermab.service.database import APPROVALS
from prefermab.service.desk import Desk
from prefermab.service.planning import make_plan, rules_of

NAMES = ("name", "full_name", "fullname")
PHONES = ("phone", "telephone", "mobile", "tel", "phone_number")
MOST_FACTS = 4
"""Columns of the people's table that a line of the list shows."""

UNSAID = (None, "", False, "no")
"""What a line does not say of somebody."""

MOST_VALUES = 100
"""A column with more values than this is none to filter by."""

TRIES = 5
"""How often a change is put on top of those that others made meanwhile."""

RULES_IN_WORDS = {
    "exclude": "people who are excluded",
    "lock": "people who are locked in",
    "cooldown": "rest after an action",
    "min_share": "least shares of groups",
    "max_share": "largest shares of groups",
    "budgets": "budgets of workers",
}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Which columns of the people's table are shown, and as what."""

    name: str | None
    phone: str | None
    worker: str | None
    group: str | None
    facts: tuple[str, ...]

    @classmethod
    def of(cls, frame: pl.DataFrame, worker: str, group: str | None) -> "Columns":
        """The columns of a list or a roster."""
        by_name = {name.lower(): name for name in frame.columns}
        name = next((by_name[one] for one in NAMES if one in by_name), None)
        phone = next((by_name[one] for one in PHONES if one in by_name), None)
        if phone is not None and not is_phone(frame[phone].drop_nulls().first()):
            phone = None
        fractions = frame.select(pl.selectors.float()).columns
        apart = {*PLANNED, *fractions, name, phone, worker, "opt_in", SINCE_ACTION, SINCE_SEEN}
        facts = [one for one in frame.columns if one not in apart]
        return cls(
            name, phone, worker if worker in frame.columns else None,
            group if group in frame.columns else None, tuple(facts[:MOST_FACTS]),
        )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Filter:
    """Which lines of a list are wanted; empty texts want all."""

    worker: str = ""
    group: str = ""
    find: str = ""

    def apply(self, frame: pl.DataFrame, columns: Columns) -> pl.DataFrame:
        """The rows that are wanted."""
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
    """Whether a cell holds a number to call, rather than what kind of telephone somebody has.

    >>> from prefermab.service.week import is_phone
    >>> is_phone("+91 555 1000"), is_phone("shared")
    (True, False)
    """
    return sum(sign.isdigit() for sign in str(value)) >= 5


def values_of(frame: pl.DataFrame, column: str | None) -> list[str]:
    """The values of a column to filter by; none if there are too many."""
    if column is None or column not in frame.columns:
        return []
    found = frame[column].drop_nulls().unique().cast(pl.String).sort().to_list()
    return found if 1 < len(found) <= MOST_VALUES else []


def lines(frame: pl.DataFrame, columns: Columns) -> list[dict[str, Any]]:
    """People for a page: id, name, phone, worker and facts, beside what a plan says of them."""
    found = []
    for row in frame.iter_rows(named=True):
        told = [(one, row[one]) for one in columns.facts if row[one] not in UNSAID]
        told = [(one, "yes" if value is True else value) for one, value in told]
        line = {one: row.get(one) for one in ("id", "action", "cost", "rank", "reason", "list")}
        line |= {"facts": told, "unlike": bool(row.get("outside")), "state": row.get("state")}
        for part in ("name", "phone", "worker"):
            column = getattr(columns, part)
            line[part] = None if column is None or row[column] is None else str(row[column])
        found.append(line)
    return found


def sentences(plan: Planned) -> list[str]:
    """What is to be known before the list is trusted, as the command line says it."""
    if not isinstance(plan.summary, Summary):
        return []
    told = [line for line in str(plan.summary).splitlines()[1:] if not line.startswith(
        ("the rule", "expected gain"))]  # fmt: skip
    told += stale_states(plan.inputs)
    return [f"{line[0].upper()}{line[1:]}." for line in told if line]


def stale_states(people: pl.DataFrame) -> list[str]:
    """How old the states are that a plan goes by, in words; nothing if all are of this round."""
    if SINCE_SEEN not in people.columns:
        return []
    since = people[SINCE_SEEN]
    earlier, never = int((since > 0).sum()), since.null_count()
    told = []
    if earlier:
        oldest = int(since.max() or 0)  # type: ignore[arg-type]
        rounds = "1 round" if oldest == 1 else f"{oldest} rounds"
        told.append(
            f"{format_people(earlier)} planned for by a state of an earlier round, the oldest of "
            f"{rounds} ago"
        )
    if never:
        told.append(f"the state of {format_people(never)} was never seen")
    return told


@dataclasses.dataclass(frozen=True)
class RuleCost:
    """A rule of a plan, and what would be gained more without it."""

    name: str
    told: str
    cost: float | None
    share: float | None
    """Of the expected gain."""


def rule_costs(plan: Planned) -> list[RuleCost]:
    """Each rule in force in words, with its cost."""
    rules, gain = rules_of(plan.asked) or Rules(), plan.facts.get("gain")
    given = {
        "exclude": _told_columns(rules.exclude_column, rules.exclude_ids),
        "lock": _told_columns(rules.lock_column, rules.lock_ids),
        "cooldown": f"{rules.cooldown} round{'s' * (rules.cooldown != 1)}",
        "min_share": _told_shares(rules.min_share),
        "max_share": _told_shares(rules.max_share),
        "budgets": ", ".join(f"{name} {format_number(b)}" for name, b in rules.budgets.items()),
    }
    costs: dict[str, float | None] = plan.facts.get("rules", {})
    return [
        RuleCost(
            RULES_IN_WORDS.get(name, name), given.get(name) or "", cost,
            None if cost is None or not gain else cost / gain,
        )
        for name, cost in costs.items()
    ]  # fmt: skip


def _told_columns(column: str | None, ids: Sequence[str | int]) -> str:
    by_hand = f"{len(ids)} by hand" if ids else ""
    return ", ".join(one for one in (f"column {column}" if column else "", by_hand) if one)


def _told_shares(shares: Any) -> str:
    return ", ".join(f"{group} {value:.0%}" for group, value in shares.items())


@dataclasses.dataclass(frozen=True)
class ListChange:
    """A change of the list by hand.

    Args:
        person: Whom it is about.
        kind: "off" the list, "on" it, or "free": neither any more.
        instead: Who takes the place (off), or gives it up (on); None if the plan decides.
        why: The reason.
    """

    person: str | int
    kind: str
    why: str
    instead: str | int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("off", "on", "free"):
            raise InputError(f"a change is off, on or free, not '{self.kind[:40]}'.")
        if not self.why.strip():
            raise InputError("say why the list is changed: the reason is kept.")

    def rules(self, before: Rules) -> Rules:
        """The rules with this change."""
        off, on = list(before.exclude_ids), list(before.lock_ids)
        for person, kind in ((self.person, self.kind), (self.instead, OPPOSITE[self.kind])):
            if person is None or kind is None:
                continue
            off = [one for one in off if str(one) != str(person)]
            on = [one for one in on if str(one) != str(person)]
            if kind != "free":
                (off if kind == "off" else on).append(person)
        return dataclasses.replace(before, exclude_ids=tuple(off), lock_ids=tuple(on))


OPPOSITE = {"off": "on", "on": "off", "free": None}


def asked_with(plan: Planned, change: ListChange) -> dict[str, Any]:
    """What a plan was asked for, with a change by hand."""
    rules = dataclasses.asdict(change.rules(rules_of(plan.asked) or Rules()))
    return {**plan.asked, "rules": rules, "again": True, "why": change.why.strip()}


def change_list(desk: Desk, account: Account, change: ListChange) -> Planned:
    """Plans the round again with a change by hand. If others changed the list meanwhile, the
    change is put on top of theirs."""
    head = desk.head()
    if head.attempt is None:
        raise InputError(f"round {head.round} is not planned yet.")
    base = newest = head.attempt
    for _ in range(TRIES):
        asked = asked_with(desk.planned(head.round, base), change)
        made = make_plan(desk.programme(account), asked)
        if made.round != head.round or made.attempt <= newest + 1:
            return made
        # Others made a plan in between: what they asked for must not be lost.
        base, newest = made.attempt - 1, made.attempt
    raise InputError("others are changing this list right now: look at it again first.")


@dataclasses.dataclass(frozen=True)
class Attempt:
    """A plan of the round: who made it and why, and what differs from the one before."""

    number: int
    who: str
    at: str
    why: str | None
    told: str
    approved: str | None = None


def attempts(desk: Desk, round: int) -> list[Attempt]:
    """The plans of a round, the newest first."""
    with desk.records.reading() as sql:
        plans = select(PLANS, "attempt", "asked").where(PLANS.c.round == round)
        asked = {row.attempt: json.loads(row.asked) for row in sql.execute(plans)}
        rows = select(AUDIT, "at", "who", "why", "details").where(AUDIT.c.what == "plan")
        noted = {}
        for row in sql.execute(rows.order_by(AUDIT.c.number.desc()).limit(len(asked) + 20)):
            facts = json.loads(row.details)
            if facts.get("round") == round:
                noted.setdefault(facts["attempt"], row)
        approved = approvals(sql, round)
    found = []
    for number in sorted(asked, reverse=True):
        row = noted.get(number)
        told = told_change(asked.get(number - 1), asked[number])
        who, at, why = ("", "", None) if row is None else (row.who, row.at, row.why)
        found.append(Attempt(number, who, at, why, told, approved.get(number)))
    return found


def told_change(before: dict[str, Any] | None, after: dict[str, Any]) -> str:
    """What was asked for otherwise than before, in words."""
    if before is None:
        return f"budget {format_number(after['budget'])}"
    told = []
    if before["budget"] != after["budget"]:
        told.append(
            f"budget {format_number(after['budget'])} instead of {format_number(before['budget'])}"
        )
    old, new = (rules_of(one) or Rules() for one in (before, after))
    for field, words in (("exclude_ids", "off the list"), ("lock_ids", "on the list")):
        was, now = ({str(one) for one in getattr(one_rules, field)} for one_rules in (old, new))
        told += [f"{', '.join(sorted(now - was))} {words}"] if now - was else []
        told += [f"{', '.join(sorted(was - now))} free again"] if was - now else []
    plain = {"exclude_ids": (), "lock_ids": ()}
    if dataclasses.replace(old, **plain) != dataclasses.replace(new, **plain):
        told.append("other rules")
    return ", ".join(dict.fromkeys(told)) or "what is known of people changed"


def moved(plan: Planned, before: Planned) -> tuple[list[Any], list[Any]]:
    """Who came on the list and who went off it since an earlier attempt."""
    now, was = (one.frame.filter(pl.col("list") == "chosen")["id"] for one in (plan, before))
    return now.filter(~now.is_in(was.implode())).to_list(), was.filter(
        ~was.is_in(now.implode())
    ).to_list()


def approve(desk: Desk, account: Account, round: int, attempt: int) -> None:
    """Approves a list: from now on what was done can be recorded."""
    head = desk.head()
    if (round, attempt) != (head.round, head.attempt):
        raise InputError("the list was changed meanwhile: look at it again before you approve it.")
    with desk.records.writing() as sql:
        if attempt not in approvals(sql, round):
            row = {"round": round, "attempt": attempt, "name": account.name, "at": desk.clock()}
            sql.execute(APPROVALS.insert().values(row))
            desk.note(sql, account.name, "approve", {"round": round, "attempt": attempt})


def approvals(sql: sa.Connection, round: int) -> dict[int, str]:
    """Which attempts of a round were approved, and by whom."""
    rows = sql.execute(select(APPROVALS, "attempt", "name").where(APPROVALS.c.round == round))
    return {row.attempt: row.name for row in rows}
