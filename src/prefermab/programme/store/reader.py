"""The base classes of `Programme`: `ProgrammeReader` has the methods that read a programme, and
`OpenProgramme` those that open it and set its model, its last round and the key of its ids.
"""

from pathlib import Path
from typing import Any

import polars as pl
from sqlalchemy import Connection

from prefermab.errors import count, number
from prefermab.programme.store import queries, request
from prefermab.programme.store.audit import check_who, put_audit, read_audit
from prefermab.programme.store.database import Database
from prefermab.programme.store.history import History, read_deviations, read_history, read_plans
from prefermab.programme.store.models import Planner, check_model, load_stored, model_hash
from prefermab.programme.store.plans import Planned, find_plan
from prefermab.programme.store.verifying import AuditProof, verify_audit

MODEL_PLACE = "model_place"


class ProgrammeReader:
    """The methods of a `Programme` that only read."""

    model: Planner
    hash: str
    _database: Database

    @property
    def database(self) -> Database:
        """The database of the programme, for code that keeps other tables in it."""
        return self._database

    @property
    def round(self) -> int:
        """The current round."""
        with self._database.reading() as sql:
            return queries.current_round(sql)

    @property
    def ids(self) -> str | None:
        """The kind of ids, "whole numbers" or "text"; None until somebody has joined."""
        with self._database.reading() as sql:
            return queries.get_meta(sql, "ids")

    def planned(self, round: int | None = None, attempt: int | None = None) -> Planned:
        """Returns a stored plan.

        Args:
            round: The round of the plan; the current one if None.
            attempt: The number of the plan within its round; the valid plan if None.

        Returns:
            The plan as it is stored.
        """
        with self._database.reading() as sql:
            which = queries.current_round(sql) if round is None else count(round, "round")
            return find_plan(sql, which, attempt)

    def replay(self, round: int, attempt: int | None = None) -> Planned:
        """Makes a stored plan again from its inputs; raises an error unless every bit is the same.

        Args:
            round: The round of the plan.
            attempt: The number of the plan within its round; the valid plan if None.

        Returns:
            The stored plan.
        """
        old = self.planned(round, attempt)
        request.check_replay(old, self.model, self.hash)
        return old

    def roster(self) -> pl.DataFrame:
        """Everyone in the programme, with the columns that a plan made now would get."""
        with self._database.reading() as sql:
            return queries.get_members(sql, self.model)

    def plans(self) -> pl.DataFrame:
        """A row for each plan: its round, budget, what was spent, and how many were acted on."""
        with self._database.reading() as sql:
            return read_plans(sql)

    def deviations(self, round: int | None = None) -> pl.DataFrame:
        """The people who were not treated as planned.

        Args:
            round: The round; all rounds if None.

        Returns:
            A row for each person and round: round, id, what was `planned` and `done`, whether the
            rules `allowed` the person to be acted on, and `why`, if the record gives a reason.
        """
        with self._database.reading() as sql:
            return read_deviations(sql, None if round is None else count(round, "round"))

    def history(self) -> History:
        """Everything that is stored, as frames; `History.log` is a log to learn a model from."""
        with self._database.reading() as sql:
            return read_history(sql, self.model)

    def audit(self) -> pl.DataFrame:
        """The audit log, with a row for each change: its number, when it was made (`at`), by whom,
        what it was and why, its `details`, the `digest` of what was changed, and the row's `hash`.

        In programmes of earlier versions it starts when they are first opened by this version.
        """
        with self._database.reading() as sql:
            return read_audit(sql)

    def verify_audit(self, head: str | None = None) -> AuditProof:
        """Checks that the audit log is as it was written, and all tables that it covers are as the
        log says. Raises a `StorageError` that names the first wrong row of the log, or the rows of
        tables that differ.

        Args:
            head: The hash of a row that was kept elsewhere; the log must still have that row.
                Without it, a log that was replaced from its first row on is not noticed.

        Returns:
            The number of rows (`rows`), the hash of the last row (`head`), the number of the row
            with the given hash (`kept`), and the first row from which on all tables are covered
            (`since`; after 1 if an earlier version wrote the first rows).
        """
        with self._database.reading() as sql:
            return verify_audit(sql, head)


class OpenProgramme(ProgrammeReader):
    """The methods of a `Programme` that open it, close it and set it up."""

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
            change_model: Continue with another model than the one that made the plans so far.
            wait: Seconds to wait while another process changes the programme.
            begin: Whether a programme may be created; if not, it must exist.
            who: Who makes the changes, for the audit log; by default the user of the operating
                system. The attribute `who` holds it, and can be changed later.
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
            self._run_with_model(change_model, why)
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Closes the file or the connection."""
        self._database.close()

    def _run_with_model(self, change_model: bool, why: str | None) -> None:
        """Makes the model the programme's model, unless it is already."""
        with self._database.reading() as sql:
            if queries.current_model(sql) == self.hash:
                return
        with self._database.writing() as sql:
            changed = queries.set_model(
                sql, self.model, self.hash, self._database.shown, change_model=change_model
            )
            if changed is not None:
                self._note(sql, "model", why, changed)

    def _note(self, sql: Connection, what: str, why: str | None, details: dict[str, Any]) -> None:
        put_audit(sql, self.who, what, why, details)

    def check_key(self, mark: str | None) -> None:
        """Raises an error unless the ids are pseudonyms by the key with this mark
        (`privacy.key_mark`), or plain ids for None. The first people who join decide which."""
        with self._database.writing() as sql:
            if queries.check_key(sql, mark):
                self._note(sql, "key", None, {"mark": mark})

    @property
    def last_round(self) -> int | None:
        """The last round of the programme; None if it goes on without an end."""
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
