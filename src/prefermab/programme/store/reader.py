"""What holds for a programme as a whole: what can be read of it (`ProgrammeReader`), and how it is
opened and set up with its model, its end, and the key of its ids (`OpenProgramme`).
"""

from pathlib import Path
from typing import Any

import polars as pl
from sqlalchemy import Connection

from prefermab.errors import count, number
from prefermab.programme.store import queries, request
from prefermab.programme.store.audit import (
    AuditProof,
    check_who,
    put_audit,
    read_audit,
    verify_audit,
)
from prefermab.programme.store.database import Database
from prefermab.programme.store.history import History, read_deviations, read_history, read_plans
from prefermab.programme.store.models import Planner, check_model, load_stored, model_hash
from prefermab.programme.store.plans import Planned, find_plan

MODEL_PLACE = "model_place"


class ProgrammeReader:
    """The reading half of a `Programme`."""

    model: Planner
    hash: str
    _database: Database

    @property
    def database(self) -> Database:
        """The database of the programme, for tables of one's own beside it."""
        return self._database

    @property
    def round(self) -> int:
        """The current round."""
        with self._database.reading() as sql:
            return queries.current_round(sql)

    @property
    def ids(self) -> str | None:
        """The kind of ids, "whole numbers" or "text"; None before anybody joined."""
        with self._database.reading() as sql:
            return queries.get_meta(sql, "ids")

    def planned(self, round: int | None = None, attempt: int | None = None) -> Planned:
        """A plan that was made before.

        Args:
            round: Its round; the current one if None.
            attempt: Its number among the plans of that round; the valid one if None.

        Returns:
            The plan as it is stored.
        """
        with self._database.reading() as sql:
            which = queries.current_round(sql) if round is None else count(round, "round")
            return find_plan(sql, which, attempt)

    def replay(self, round: int, attempt: int | None = None) -> Planned:
        """Makes a plan again from what is stored; raises unless every bit of it is the same.

        Args:
            round: Its round.
            attempt: Its number among the plans of that round; the valid one if None.

        Returns:
            The stored plan.
        """
        old = self.planned(round, attempt)
        request.check_replay(old, self.model, self.hash)
        return old

    def roster(self) -> pl.DataFrame:
        """Everyone in the programme, as a plan made now would see them."""
        with self._database.reading() as sql:
            return queries.get_members(sql, self.model)

    def plans(self) -> pl.DataFrame:
        """A row for each plan: its round, budget, what was spent, and how many were acted on."""
        with self._database.reading() as sql:
            return read_plans(sql)

    def deviations(self, round: int | None = None) -> pl.DataFrame:
        """Who was not treated as planned.

        Args:
            round: One round; all of them if None.

        Returns:
            A row for each: round, id, what was `planned` and `done`, whether the rules `allowed`
            the person to be acted on, and `why`, where the record says so.
        """
        with self._database.reading() as sql:
            return read_deviations(sql, None if round is None else count(round, "round"))

    def history(self) -> History:
        """Everything that is stored, as frames; its `log` is a table to learn a model from."""
        with self._database.reading() as sql:
            return read_history(sql, self.model)

    def audit(self) -> pl.DataFrame:
        """Every change: its number, when it was made (`at`), by whom, what it was and why, with
        `details`, the `digest` of what was changed, and the `hash` of the row.

        Programmes of earlier versions have it from when they were first opened by this one.
        """
        with self._database.reading() as sql:
            return read_audit(sql)

    def verify_audit(self, head: str | None = None) -> AuditProof:
        """Checks that the audit log is as it was written, and that plans and records are those that
        it tells of; raises `StorageError` with the first row that is wrong.

        Args:
            head: The hash of a row that was kept elsewhere; the log must still have that row.
                Without it, a log that was made anew from its first row on cannot be told.

        Returns:
            How many rows there are (`rows`), the hash of the last (`head`), and the row that has
            the given hash (`kept`).
        """
        with self._database.reading() as sql:
            return verify_audit(sql, head)


class OpenProgramme(ProgrammeReader):
    """A `Programme` as it is opened, closed and set up."""

    def __init__(
        self,
        path: str | Path,
        model: Any = None,
        *,
        change_model: bool = False,
        wait: float = 60.0,
        begin: bool = True,
        who: str | None = None,
        why: str | None = None,
    ):
        """Begins a programme in a new place, or continues the one that is there.

        Args:
            path: The file, such as calls.db, or the address of a PostgreSQL database and the name
                of the programme in it, such as postgresql://anna@db.example.org/health#calls.
            model: The model that plans. It may be left out with `begin=False` if `keep_place` (or
                `prefermab programme begin`) stored where the model is.
            change_model: Continue with another model than the one that ran the programme so far.
            wait: Seconds to wait while another process changes the programme.
            begin: Whether a programme may be created; if not, it must exist.
            who: Who makes the changes, for the audit log; by default the user of the operating
                system. It is kept as the attribute `who`, which may be set.
            why: The reason for another model, for the audit log.
        """
        if model is not None or begin:
            check_model(model)
        self.who = check_who(who)
        self._database = Database(path, number(wait, "wait"), begin=begin, who=self.who)
        try:
            if model is None:
                with self._database.reading() as sql:
                    place = queries.get_meta(sql, MODEL_PLACE)
                model = load_stored(place, self._database.shown)
            self.model, self.hash = check_model(model), model_hash(model)
            self._take_over(change_model, why)
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Closes the file or the connection."""
        self._database.close()

    def _take_over(self, change_model: bool, why: str | None) -> None:
        """Makes the model run the programme, unless it does already."""
        with self._database.reading() as sql:
            if queries.current_model(sql) == self.hash:
                return
        with self._database.writing() as sql:
            changed = queries.set_model(
                sql, self.model, self.hash, self._database.shown, change_model=change_model
            )
            if changed is not None:
                self._note(sql, "model", why, changed)

    def _note(
        self, sql: Connection, what: str, why: str | None, details: dict[str, Any], digest: str = ""
    ) -> None:
        put_audit(sql, self.who, what, why, details, digest)

    def check_key(self, mark: str | None) -> None:
        """Raises an error unless the ids are pseudonyms by the key with this mark
        (`privacy.key_mark`), or plain ids for None. Who joins first decides."""
        with self._database.writing() as sql:
            if queries.check_key(sql, mark):
                self._note(sql, "key", None, {"mark": mark})

    @property
    def last_round(self) -> int | None:
        """The round with which the programme ends; None where it goes on."""
        with self._database.reading() as sql:
            return queries.get_meta(sql, request.LAST_ROUND)

    @last_round.setter
    def last_round(self, last: int | None) -> None:
        with self._database.writing() as sql:
            if request.set_last_round(sql, self.model, last):
                self._note(sql, "last round", None, {"last_round": last})

    def keep_place(self, name: str) -> None:
        """Stores where the model is, so that `Programme.open(path)` finds it.

        Args:
            name: The folder of the model, or the name of a model that ships.
        """
        folder = Path(name)
        place = str(folder.resolve()) if folder.is_dir() else name
        with self._database.writing() as sql:
            if queries.set_meta(sql, MODEL_PLACE, place):
                self._note(sql, "model place", None, {"place": place})
