"""The programme as the service uses it: one open in each thread, the newest list kept in memory."""

import dataclasses
import threading
from typing import Any

import polars as pl
import sqlalchemy as sa
from fastapi import Request

from prefermab.errors import InputError
from prefermab.programme.store import Planned, Programme
from prefermab.service.access import Account, RefusedError
from prefermab.service.database import Records
from prefermab.service.settings import Clock, Settings
from prefermab.service.signing import SignIns


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
        self.local, self.lock = threading.local(), threading.Lock()
        self.model, self.lists = model, {}
        with self.open():
            pass

    def open(self, who: str | None = None) -> Programme:
        """The programme, newly opened; the model is loaded once a process."""
        del who
        with self.lock:
            programme = Programme.open(self.settings.place, self.model, wait=self.settings.wait)
            self.model = programme.model
        return programme

    def programme(self) -> Programme:
        """The programme of this thread."""
        known: Programme | None = getattr(self.local, "programme", None)
        if known is None or known.model is not self.model:
            known = self.local.programme = self.open()
        return known

    def head(self) -> Head:
        """Where the programme stands; cheap, so that every request may ask."""
        with self.records.reading() as sql:
            last = sql.execute(
                sa.text("SELECT max(round) FROM plans WHERE status = 'recorded'")
            ).scalar()
            now = 1 + (last or 0)
            attempt = sql.execute(
                sa.text("SELECT attempt FROM plans WHERE round = :now AND status = 'planned'"),
                {"now": now},
            ).scalar()
            model = sql.execute(
                sa.text("SELECT hash FROM models ORDER BY number DESC LIMIT 1")
            ).scalar()
        return Head(now, attempt, model)

    def planned(self, round: int, attempt: int) -> Planned:
        """A plan; those that were asked for last are kept, since a plan never changes."""
        key = (round, attempt)
        if key not in self.lists:
            found = self.programme().planned(round, attempt)
            with self.lock:
                while len(self.lists) >= 4:
                    self.lists.pop(next(iter(self.lists)))
                self.lists[key] = found
        return self.lists[key]

    def week(self, account: Account) -> tuple[Head, pl.DataFrame | None]:
        """This round's list as somebody may see it, in the order of work; None if there is none."""
        head = self.head()
        if head.attempt is None:
            return head, None
        return head, self.own(self.planned(head.round, head.attempt).frame, account)

    def own(self, frame: pl.DataFrame, account: Account) -> pl.DataFrame:
        """The rows of a frame of people that somebody may see."""
        if not account.own_only:
            return frame
        column = self.settings.worker_column
        if column not in frame.columns:
            return frame.clear()
        return frame.filter(pl.col(column).cast(pl.String) == account.name)

    def check_own(self, person: Any, account: Account) -> None:
        """Raises unless somebody may see this person."""
        if not account.own_only:
            return
        head = self.head()
        if head.attempt is not None:
            seen = self.own(self.planned(head.round, head.attempt).frame, account)
            if (seen["id"].cast(pl.String) == str(person)).any():
                return
        raise RefusedError(f"{person} is not one of your people.")


def desk_of(request: Request) -> Desk:
    """The desk of the server that answers a request."""
    return request.app.state.desk


def as_id(text: str, kind: str | None) -> str | int:
    """An id that stands in an address or a form, as the programme has it."""
    if kind == "text":
        return text
    try:
        return int(text)
    except ValueError:
        raise InputError(f"ids are whole numbers in this programme, not '{text}'.") from None
