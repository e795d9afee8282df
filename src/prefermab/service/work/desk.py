"""Access to the programme for requests: one open in each thread, the newest lists in memory."""

import dataclasses
import re
import threading
from typing import Any

import polars as pl
import sqlalchemy as sa
from fastapi import Request

from prefermab.errors import InputError, unknown
from prefermab.models.loading import load, shipped_models
from prefermab.programme.store import Planned, Programme, lookups
from prefermab.programme.store.audit import put_audit
from prefermab.programme.store.plans import find_plan
from prefermab.programme.store.queries import current_model, current_round
from prefermab.programme.tables.cleaning import clean_ids
from prefermab.programme.tables.naming import find_named
from prefermab.service.auth.access import Account, RefusedError
from prefermab.service.auth.database import ClosedWhenDropped, Records
from prefermab.service.auth.settings import Clock, Settings
from prefermab.service.auth.signing import SignIns
from prefermab.service.work.jobs import Jobs

MOST_LISTS_KEPT = 4
"""Plans that a process keeps in memory."""

MOST_WORKER_LISTS_KEPT = 500
"""Field workers for whom a process keeps their rows of a list in memory."""

ABOUT_PEOPLE = ("begin", "migrate", "join", "leave", "observe", "record", "correct", "model")
"""Entries of the audit log after which the roster has changed."""

MOST_PLANNED_AT_ONCE = 5_000
"""Up to this many people, a request waits for its plan; above, the plan becomes a job."""


@dataclasses.dataclass(frozen=True)
class Head:
    """The current round, the valid attempt of its plan if there is one, and the model's hash."""

    round: int
    attempt: int | None
    model: str | None


class Desk:
    """Everything that requests share; one for each process, used by all its threads."""

    def __init__(self, settings: Settings, records: Records, clock: Clock, model: Any = None):
        self.settings, self.records, self.clock = settings, records, clock
        self.sign_ins = SignIns(records, settings, clock)
        self.jobs = Jobs(records, settings, clock)
        self.local, self.lock = threading.local(), threading.Lock()
        self.unpacking = threading.Lock()
        self.model, self.hash = model, None
        self.lists, self.people = {}, (-1, pl.DataFrame())
        self.mine: dict[tuple[int, int, str], pl.DataFrame] = {}
        with self.open():
            pass

    def open(self) -> Programme:
        """Opens the programme anew; the model is loaded once for each process."""
        with self.lock:
            given = {"wait": self.settings.wait, "who": "the service"}
            programme = Programme.open(self.settings.place, self.model, **given)
            self.model, self.hash = programme.model, programme.hash
        return programme

    def programme(self, account: Account | None = None) -> Programme:
        """The programme of this thread; its changes are written in the name of the account.

        If another process has changed the model, the new one is loaded.
        """
        known: ClosedWhenDropped | None = getattr(self.local, "programme", None)
        now = self.head().model
        if self.hash != now:
            self.model = None
        if known is None or known.value.hash != now:
            known = self.local.programme = ClosedWhenDropped(self.open())
        known.value.who = "the service" if account is None else account.name
        return known.value

    def close(self) -> None:
        """Closes the connections of this thread."""
        self.local.__dict__.pop("programme", None)
        self.records.close()

    def head(self) -> Head:
        """The current round, plan and model; cheap enough for every request."""
        with self.records.reading() as sql:
            now = current_round(sql)
            return Head(now, lookups.valid_attempt(sql, now), current_model(sql))

    def count_people(self) -> int:
        """How many take part."""
        with self.records.reading() as sql:
            return lookups.count_members(sql)

    def is_large(self) -> bool:
        """Whether plans are made by jobs."""
        return self.count_people() > MOST_PLANNED_AT_ONCE

    def planned(self, round: int, attempt: int) -> Planned:
        """A plan. A stored plan never changes, so the latest ones are kept in memory."""
        key = (round, attempt)
        found = self.lists.get(key)
        if found is not None:
            return found
        with self.unpacking:  # only one thread unpacks a new list; the others wait for it
            found = self.lists.get(key)
            if found is None:
                near = self.lists[max(self.lists)] if self.lists else None
                with self.programme().database.reading() as sql:
                    found = find_plan(sql, round, attempt, near)
                while len(self.lists) >= MOST_LISTS_KEPT:
                    self.lists.pop(next(iter(self.lists)))
                self.lists[key] = found
        return found

    def roster(self) -> pl.DataFrame:
        """Everyone in the programme; kept in memory until an entry of `ABOUT_PEOPLE` follows."""
        with self.records.reading() as sql:
            note = lookups.newest_note(sql, ABOUT_PEOPLE)
        newest = 0 if note is None else note.number
        known, people = self.people
        if known != newest:
            people = self.programme().roster()
            self.people = (newest, people)
        return people

    def week(self, account: Account) -> tuple[Head, pl.DataFrame | None]:
        """The current round, and the rows of its list that an account may see; None without a
        list."""
        head = self.head()
        if head.attempt is None:
            return head, None
        frame = self.planned(head.round, head.attempt).frame
        if not account.own_only:
            return head, frame
        key = (head.round, head.attempt, account.name)
        mine = self.mine.get(key)
        if mine is None:
            mine = self.visible_rows(frame, account)
            with self.lock:
                if len(self.mine) >= MOST_WORKER_LISTS_KEPT:
                    self.mine.clear()
                self.mine[key] = mine
        return head, mine

    def visible_rows(self, frame: pl.DataFrame, account: Account) -> pl.DataFrame:
        """The rows of a table of people that an account may see: a field worker's own, or all."""
        if not account.own_only:
            return frame
        column = find_named(frame.columns, self.settings.worker_column)
        if column is None:
            return frame.clear()
        return frame.filter(clean_ids(frame[column].cast(pl.String)) == account.name)

    def check_visible(self, person: str | int, account: Account) -> None:
        """Raises unless the account may see this person."""
        if not account.own_only:
            return
        details = self.details(person)
        column = find_named([*details], self.settings.worker_column)
        worker = None if column is None else details[column]
        # No worker is not the worker "None".
        if worker is None or clean_ids(pl.Series([str(worker)]))[0] != account.name:
            raise RefusedError(f"{person} is not one of your people.")

    def details(self, person: str | int) -> dict[str, Any]:
        """The stored columns of a person; empty if there is no such person."""
        with self.records.reading() as sql:
            return lookups.details_of(sql, person) or {}

    def timeline(self, person: str | int) -> dict[str, Any]:
        """All that is stored about a person: details, stays, and states and actions by round."""
        with self.records.reading() as sql:
            details = lookups.details_of(sql, person)
            if details is None:
                raise InputError(f"there is no {person} in this programme.")
            rounds, stays = lookups.rounds_of(sql, person), lookups.stays_of(sql, person)
        if self.states:
            for one in rounds.values():
                if "state" in one:
                    one["state"] = self.states[int(one["state"])]
        in_order = [{"round": round, **rounds[round]} for round in sorted(rounds)]
        return {"id": person, "details": details, "stays": stays, "rounds": in_order}

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states; empty if states are numbers."""
        return () if self.model is None else tuple(self.model.state_names)

    def note(
        self,
        sql: sa.Connection,
        who: str,
        what: str,
        details: dict[str, Any] | None = None,
        why: str | None = None,
    ) -> None:
        """Adds a row to the audit log, in the transaction of the change that it describes."""
        put_audit(sql, who, what, why, details)

    def change_model(self, name: str, account: Account, why: str | None) -> None:
        """Changes the model of the programme, to one that ships or one that a job learned."""
        learned = {folder.name: folder for folder in self.settings.models_folder.glob("job-*")}
        known = {**shipped_models(), **learned}
        if name not in known:
            raise unknown("model", name, known)
        given = {"change_model": True, "wait": self.settings.wait, "who": account.name, "why": why}
        with Programme.open(self.settings.place, load(known[name]), **given) as programme:
            programme.keep_place(name if name not in learned else str(learned[name]))


def desk_of(request: Request) -> Desk:
    """The desk of the programme that a request is for."""
    return request.app.state.desk


def as_id(text: str, kind: str | None) -> str | int:
    """An id from an address or a form, as text or number like the programme's ids.

    >>> from prefermab.service.work.desk import as_id
    >>> as_id("007", "text"), as_id("7", "whole numbers")
    ('007', 7)
    """
    if kind == "text":
        return clean_ids(pl.Series([text]))[0] or text
    if not re.fullmatch("-?[0-9]{1,19}", text) or not -(2**63) <= int(text) < 2**63:
        raise InputError(f"ids are whole numbers in this programme, not '{text[:40]}'.")
    return int(text)
