"""Changes of this week's list by hand, by several planners at once.

A change by hand (take somebody off the list, put somebody on it, or swap two) makes a new attempt
of the round's plan, in which that person is excluded or locked in by the rules. It is always made
on the newest list, so changes that others make at the same time stay. It is refused only if
somebody else has moved the same person meanwhile. The audit log says who made it and why.
"""

import dataclasses
from typing import Any

from prefermab.errors import InputError, OutdatedError, brief
from prefermab.programme.planning.rules import Rules
from prefermab.programme.store import Planned, Programme
from prefermab.service.work.desk import Desk
from prefermab.service.work.plan_requests import rules_of

OPPOSITE = {"off": "on", "on": "off", "free": None}
PLACES = {
    "off": "off the list by hand",
    "on": "on the list by hand",
    "free": "where the plan puts them",
}


@dataclasses.dataclass(frozen=True)
class ListChange:
    """A change of the list by hand.

    Args:
        round: The round of the list.
        person: The person who is moved.
        kind: "off" takes them off the list, "on" puts them on it, "free" ends either.
        why: The reason.
        instead: Who takes their place ("off") or gives it up ("on"); None if the plan decides.
        was: Who was on or off the list by hand when the user decided: "on" or "off" by id as text.

    >>> from prefermab.service.work.changes import ListChange
    >>> swap = ListChange(1, 7, "off", "moved away", instead=9)
    >>> rules = swap.applied_to({"budget": 2.0, "rules": None})["rules"]
    >>> rules["exclude_ids"], rules["lock_ids"]
    ((7,), (9,))
    """

    round: int
    person: str | int
    kind: str
    why: str
    instead: str | int | None = None
    was: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in OPPOSITE:
            raise InputError(f"a change is off, on or free, not '{self.kind[:40]}'.")
        if not self.why.strip():
            raise InputError("say why the list is changed: the reason is kept.")
        if self.instead is not None and str(self.instead) == str(self.person):
            raise InputError(f"{brief(self.person)} cannot be moved in place of themselves.")

    def applied_to(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a list, with this change; raises if somebody else has moved the same
        people since the user decided."""
        before, now = rules_of(asked) or Rules(), by_hand(asked)
        off, on = list(before.exclude_ids), list(before.lock_ids)
        for person, kind in ((self.person, self.kind), (self.instead, OPPOSITE[self.kind])):
            if person is None or kind is None:
                continue
            here = now.get(str(person), "free")
            if here not in (kind, self.was.get(str(person), "free")):
                raise OutdatedError(
                    f"somebody changed the list meanwhile: {brief(person)} is {PLACES[here]} now. "
                    "Look at the list again."
                )
            off = [one for one in off if str(one) != str(person)]
            on = [one for one in on if str(one) != str(person)]
            if kind != "free":
                (off if kind == "off" else on).append(person)
        rules = dataclasses.replace(before, exclude_ids=tuple(off), lock_ids=tuple(on))
        return {**asked, "rules": dataclasses.asdict(rules)}


def by_hand(asked: dict[str, Any]) -> dict[str, str]:
    """People who were put on a list or taken off it by hand: "on" or "off" by id as text."""
    rules = rules_of(asked) or Rules()
    on, off = dict.fromkeys(map(str, rules.lock_ids), "on"), map(str, rules.exclude_ids)
    return on | dict.fromkeys(off, "off")


def change_for(
    desk: Desk,
    person: str | int,
    kind: str,
    why: str,
    instead: str | int | None,
    *,
    round: int | None,
    attempt: int | None,
) -> ListChange:
    """The change that a user asks for who has looked at the list `attempt` of `round`; by default
    at the valid one."""
    seen = seen_list(desk, round, attempt)
    return ListChange(seen.round, person, kind, why, instead, by_hand(seen.asked))


def seen_list(desk: Desk, round: int | None, attempt: int | None) -> Planned:
    """The list that a user looked at before they asked for a change: by default the valid one.
    Raises if the round was closed since."""
    head = desk.head()
    if round not in (None, head.round):
        raise OutdatedError(f"round {round} is not the current one, which is {head.round}.")
    if head.attempt is None:
        raise InputError(f"round {head.round} is not planned yet.")
    return desk.planned(head.round, attempt or head.attempt)


def change_list(programme: Programme, change: ListChange) -> Planned:
    """Plans the round again with a change by hand, on top of all changes that others have made."""
    return programme.replan(
        lambda _, asked: change.applied_to(asked), round=change.round, why=change.why.strip()
    )
