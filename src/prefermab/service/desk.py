"""The programme as the service uses it: one open in each thread, the newest lists in memory."""

import dataclasses
import json
import threading
from typing import Any

import polars as pl
import sqlalchemy as sa
from fastapi import Request

from prefermab.errors import InputError, unknown
from prefermab.programme.store import Planned, Programme
from prefermab.programme.store.audit import put_audit
from prefermab.programme.store.plans import find_plan
from prefermab.programme.store.schema import (
    ACTIONS,
    AUDIT,
    DEVIATIONS,
    MODELS,
    PEOPLE,
    PLANS,
    SEEN_STATES,
    STAYS,
)
from prefermab.service.access import Account, RefusedError
from prefermab.service.database import Kept, Records
from prefermab.service.jobs import Jobs
from prefermab.service.settings import Clock, Settings
from prefermab.service.signing import SignIns
from prefermab.storage import load, shipped_models

MOST_LISTS_KEPT = 4
"""Lists that a process keeps in memory."""

MOST_MINE = 500
"""Field workers whose own rows of a list are kept in memory."""

ABOUT_PEOPLE = ("begin", "migrate", "join", "leave", "observe", "record", "correct", "model")
"""Changes in the audit log after which the roster is another one."""

MOST_PLANNED_AT_ONCE = 5_000
"""People in a programme whose plan is made while the request waits; above, it is a job."""


@dataclasses.dataclass(frozen=True)
class Head:
    """Where the programme stands: the current round, its plan if it has one, and the model."""

    round: int
    attempt: int | None
    model: str | None


class Desk:
    """All that requests need; one for each process, shared by its threads."""

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
        """The programme, newly opened; the model is loaded once a process."""
        with self.lock:
            given = {"wait": self.settings.wait, "who": "the service"}
            programme = Programme.open(self.settings.place, self.model, **given)
            self.model, self.hash = programme.model, programme.hash
        return programme

    def programme(self, account: Account | None = None) -> Programme:
        """The programme of this thread, whose changes are made in the name of an account.

        If another process has let another model take over, that one is loaded.
        """
        known: Kept | None = getattr(self.local, "programme", None)
        now = self.head().model
        if self.hash != now:
            self.model = None
        if known is None or known.value.hash != now:
            known = self.local.programme = Kept(self.open())
        known.value.who = "the service" if account is None else account.name
        return known.value

    def close(self) -> None:
        """Closes what this thread has open."""
        self.local.__dict__.pop("programme", None)
        self.records.close()

    def head(self) -> Head:
        """Where the programme stands; cheap, so that every request may ask."""
        last = sa.select(sa.func.max(PLANS.c.round)).where(PLANS.c.status == "recorded")
        model = sa.select(MODELS.c.hash).order_by(MODELS.c.number.desc()).limit(1)
        with self.records.reading() as sql:
            now = 1 + (sql.execute(last).scalar() or 0)
            valid = (PLANS.c.round == now) & (PLANS.c.status == "planned")
            attempt = sql.execute(sa.select(PLANS.c.attempt).where(valid)).scalar()
            return Head(now, attempt, sql.execute(model).scalar())

    def count_people(self) -> int:
        """How many take part."""
        with self.records.reading() as sql:
            rows = sa.select(sa.func.count()).select_from(STAYS).where(STAYS.c.gone.is_(None))
            return sql.execute(rows).scalar_one()

    def is_large(self) -> bool:
        """Whether plans are made by a job."""
        return self.count_people() > MOST_PLANNED_AT_ONCE

    def planned(self, round: int, attempt: int) -> Planned:
        """A plan; those that were asked for last are kept, since its list never changes."""
        key = (round, attempt)
        found = self.lists.get(key)
        if found is not None:
            return found
        with self.unpacking:  # one thread unpacks a new list, and all that want it wait for that
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
        """Everyone in the programme; kept until somebody joins, leaves or is seen."""
        rows = sa.select(AUDIT.c.number).where(AUDIT.c.what.in_(ABOUT_PEOPLE))
        with self.records.reading() as sql:
            newest = sql.execute(rows.order_by(AUDIT.c.number.desc()).limit(1)).scalar() or 0
        known, people = self.people
        if known != newest:
            people = self.programme().roster()
            self.people = (newest, people)
        return people

    def week(self, account: Account) -> tuple[Head, pl.DataFrame | None]:
        """This round's list as somebody may see it; None if there is none."""
        head = self.head()
        if head.attempt is None:
            return head, None
        frame = self.planned(head.round, head.attempt).frame
        if not account.own_only:
            return head, frame
        key = (head.round, head.attempt, account.name)
        mine = self.mine.get(key)
        if mine is None:
            mine = self.own(frame, account)
            with self.lock:
                if len(self.mine) >= MOST_MINE:
                    self.mine.clear()
                self.mine[key] = mine
        return head, mine

    def own(self, frame: pl.DataFrame, account: Account) -> pl.DataFrame:
        """The rows of a frame of people that somebody may see."""
        if not account.own_only:
            return frame
        column = self.settings.worker_column
        if column not in frame.columns:
            return frame.clear()
        return frame.filter(pl.col(column).cast(pl.String) == account.name)

    def check_own(self, person: str | int, account: Account) -> None:
        """Raises unless somebody may see this person."""
        if not account.own_only:
            return
        details = self.details(person)
        if str(details.get(self.settings.worker_column)) != account.name:
            raise RefusedError(f"{person} is not one of your people.")

    def details(self, person: str | int) -> dict[str, Any]:
        """What is stored of a person, by column; nothing if there is no such person."""
        with self.records.reading() as sql:
            rows = sa.select(PEOPLE.c.details).where(PEOPLE.c.id == person)
            found = sql.execute(rows).scalar()
        return {} if found is None else json.loads(found)

    def timeline(self, person: str | int) -> dict[str, Any]:
        """What is known of a person: details, stays, and states and actions round by round."""
        with self.records.reading() as sql:
            known = sa.select(PEOPLE.c.details).where(PEOPLE.c.id == person)
            found = sql.execute(known).scalar()
            if found is None:
                raise InputError(f"there is no {person} in this programme.")
            stays = sa.select(STAYS.c.joined, STAYS.c.gone).where(STAYS.c.id == person)
            rounds: dict[int, dict[str, Any]] = {}
            names = self.states
            for row in sql.execute(sa.select(SEEN_STATES).where(SEEN_STATES.c.id == person)):
                place = row.state
                name = names[int(place)] if len(names) else place
                rounds.setdefault(row.round, {})["state"] = name
            for row in sql.execute(sa.select(ACTIONS).where(ACTIONS.c.id == person)):
                done = {"action": row.action, "cost": row.cost, "reached": bool(row.reached)}
                rounds.setdefault(row.round, {}).update(done)
            for row in sql.execute(sa.select(DEVIATIONS).where(DEVIATIONS.c.id == person)):
                other = {"planned": row.planned, "why": row.why}
                rounds.setdefault(row.round, {}).update(other)
            lived = [dict(row._mapping) for row in sql.execute(stays.order_by(STAYS.c.joined))]
        told = [{"round": round, **rounds[round]} for round in sorted(rounds)]
        return {"id": person, "details": json.loads(found), "stays": lived, "rounds": told}

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states; none where they are numbers."""
        return () if self.model is None else tuple(self.model.state_names)

    def note(
        self,
        sql: sa.Connection,
        who: str,
        what: str,
        details: dict[str, Any] | None = None,
        why: str | None = None,
    ) -> None:
        """Adds a line to the audit log, in the transaction of the change that it tells of."""
        put_audit(sql, who, what, why, details)

    def change_model(self, name: str, account: Account, why: str | None) -> None:
        """Lets another model run the programme: one that ships, or one that a job learned."""
        learned = {folder.name: folder for folder in self.settings.models_folder.glob("job-*")}
        known = {**shipped_models(), **learned}
        if name not in known:
            raise unknown("model", name, known)
        given = {"change_model": True, "wait": self.settings.wait, "who": account.name, "why": why}
        with Programme.open(self.settings.place, load(known[name]), **given) as programme:
            programme.keep_place(name if name not in learned else str(learned[name]))


def desk_of(request: Request) -> Desk:
    """The desk of the server that answers a request."""
    return request.app.state.desk


def as_id(text: str, kind: str | None) -> str | int:
    """An id that stands in an address or a form, as the programme has it.

    >>> from prefermab.service.desk import as_id
    >>> as_id("007", "text"), as_id("7", "whole numbers")
    ('007', 7)
    """
    if kind == "text":
        return text
    if not text.lstrip("-").isdecimal() or len(text) > 19:
        raise InputError(f"ids are whole numbers in this programme, not '{text[:40]}'.")
    return int(text)
