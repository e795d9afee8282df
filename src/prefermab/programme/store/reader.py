"""What can be read of a programme; nothing here changes it."""

import polars as pl

from prefermab.errors import count
from prefermab.programme.store import queries, request
from prefermab.programme.store.audit import AuditProof, read_audit, verify_audit
from prefermab.programme.store.database import Database
from prefermab.programme.store.history import History, read_deviations, read_history, read_plans
from prefermab.programme.store.models import Planner
from prefermab.programme.store.plans import Planned, find_plan


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
