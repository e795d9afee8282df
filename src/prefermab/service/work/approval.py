"""Approval of lists: what is done is recorded by a list that a planner has approved, and no other.

Pages, the API, ticks and the closing of a round all ask here. A list that is changed has to be
approved again; until then nothing is recorded. A tick names the list by which it was made. If that
list was approved and a newer one is not yet, the tick waits for a decision, like one that arrives
after its round was closed (`late.py`). The command line and Python have no users, so no approvals.
"""

import dataclasses

import sqlalchemy as sa

from prefermab.errors import BusyError, InputError, OutdatedError
from prefermab.programme.store.lookups import valid_attempt
from prefermab.programme.store.queries import current_round
from prefermab.programme.store.rows import select
from prefermab.service.auth.access import Account
from prefermab.service.auth.database import APPROVALS
from prefermab.service.work.desk import Desk


@dataclasses.dataclass(frozen=True)
class RoundLists:
    """The list of a round that is in force, and the lists of it that were approved."""

    round: int
    is_closed: bool
    valid: int | None
    """The number of the list in force; None if the round is not planned."""
    approved: dict[int, tuple[str, float]]
    """Who approved each list, and when."""

    @classmethod
    def read(cls, sql: sa.Connection, round: int) -> "RoundLists":
        """The lists of a round; raises if it is neither the current one nor a closed one."""
        now = current_round(sql)
        if not 0 < round <= now:
            raise InputError(f"round {round} is neither the current one nor a closed one.")
        valid = valid_attempt(sql, round)
        return cls(round, round < now, valid, approvals(sql, round))

    @property
    def is_approved(self) -> bool:
        """Whether the list in force is approved."""
        return self.valid in self.approved

    @property
    def ticks_wait(self) -> bool:
        """Whether a tick waits for a decision: its round is closed, or its list has changed."""
        return self.is_closed or not self.is_approved

    def check(self) -> None:
        """Raises unless the round is planned and its list is approved."""
        if self.valid is None:
            raise InputError(f"round {self.round} is not planned yet.")
        if not self.is_approved:
            raise InputError(
                f"the list of round {self.round} is not approved yet: ask a planner to do so."
            )

    def list_of_tick(self, attempt: int | None, at: float | None) -> int:
        """The list by which a tick was made; raises if it was never approved.

        Args:
            attempt: The number of the list that the tick names. Without one, it is the list that
                was approved last when the tick was made, or the list in force.
            at: The time of the tick; None if it is made now.
        """
        if attempt is None:
            earlier = [one for one, (_, when) in self.approved.items() if at and when <= at]
            attempt = max(earlier, default=self.valid)
        if attempt not in self.approved and not (self.is_closed and attempt == self.valid):
            self.check()
            raise InputError(f"round {self.round} has no approved list with the number {attempt}.")
        assert attempt is not None
        return attempt

    def check_same(self, sql: sa.Connection) -> None:
        """Raises if the round was closed, or its list was changed or approved, since `read`."""
        if RoundLists.read(sql, self.round) != self:
            raise BusyError(
                f"round {self.round} was closed or its list was changed just now: try again."
            )


def approvals(sql: sa.Connection, round: int) -> dict[int, tuple[str, float]]:
    """The approved lists of a round by number: who approved each, and when."""
    rows = select(APPROVALS, "attempt", "name", "at").where(APPROVALS.c.round == round)
    return {row.attempt: (row.name, row.at) for row in sql.execute(rows)}


def approve(desk: Desk, account: Account, round: int, attempt: int) -> None:
    """Approves a list: from then on staff can record what they do."""
    with desk.records.writing() as sql:
        lists = RoundLists.read(sql, round)
        if lists.is_closed or lists.valid != attempt:
            raise OutdatedError(
                "the list was changed meanwhile: look at it again before you approve it."
            )
        if not lists.is_approved:
            row = {"round": round, "attempt": attempt, "name": account.name, "at": desk.clock()}
            sql.execute(APPROVALS.insert().values(row))
            desk.note(sql, account.name, "approve", {"round": round, "attempt": attempt})
