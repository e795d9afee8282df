"""A programme: people join and leave, are observed, planned for and acted on, round by round."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl
from sqlalchemy import Connection

from prefermab.errors import InputError, OutdatedError, count
from prefermab.programme.planning.rules import Rules
from prefermab.programme.store import queries, recording, request
from prefermab.programme.store.audit import check_why
from prefermab.programme.store.frames import (
    as_ids,
    read_details,
    read_ids,
    split_last_action,
)
from prefermab.programme.store.plans import Planned, put_plan, store_frames, valid_request
from prefermab.programme.store.reader import OpenProgramme
from prefermab.programme.store.request import PlanRequest
from prefermab.programme.tables.naming import find_name
from prefermab.programme.tables.table import as_frame


class Programme(OpenProgramme):
    """A programme that runs for many rounds, stored in a SQLite file or in PostgreSQL.

    Rounds are counted from 1: `plan` plans the current round, and `record` closes it. Each call is
    one transaction: when it returns, its changes are on the disk; if the process is killed before
    that, nothing is changed. A Programme can only be used in the thread that opened it.

    >>> import tempfile
    >>> import polars as pl
    >>> import prefermab as pm
    >>> model = pm.load("armman")
    >>> people = pl.DataFrame({"id": [7, 8], "state": ["persuadable", "motivated"]})
    >>> people = people.with_columns(pl.lit(0.5).alias(name) for name in model.feature_names)
    >>> with pm.Programme(tempfile.mkdtemp() + "/calls.db", model) as programme:
    ...     _ = programme.join(people)
    ...     plan = programme.plan(budget=1)
    ...     _ = programme.record()
    ...     programme.round
    2
    """

    @classmethod
    def open(
        cls, path: str | Path, model: Any = None, *, change_model: bool = False, wait: float = 60.0,
        who: str | None = None, why: str | None = None,
    ) -> "Programme":  # fmt: skip
        """Continues a programme, which must exist; never creates one.

        Args:
            path: The file, or the address of a database.
            model: The model that plans; if left out, the one whose place the programme stores.
            change_model: Continue with another model than the one that made the plans so far.
            wait: Seconds to wait while another process changes the programme.
            who: Who makes the changes, for the audit log.
            why: The reason for another model, for the audit log.

        Returns:
            The open programme.
        """
        given = {"change_model": change_model, "wait": wait, "who": who, "why": why}
        return cls(path, model, begin=False, **given)

    def __enter__(self) -> "Programme":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def join(
        self, frame: pl.DataFrame | Any, *, why: str | None = None, where: str = "join"
    ) -> int:
        """Adds people to the programme.

        Args:
            frame: A polars or pandas frame with `id`, the features by name (empty if unknown),
                `state` if it is known, and any other column to store, such as those that rules
                name. `rounds_since_action` says when people were last acted on before they joined.
                An empty `opt_in` means opted out; without that column people are opted in.
            why: The reason, for the audit log.
            where: The name of the frame in error messages.

        Returns:
            How many people joined.
        """
        frame = as_frame(frame)
        with self._database.writing() as sql:
            now, ids = queries.current_round(sql), read_ids(frame, where)
            known = queries.is_member(sql, ids, where)
            if known.any():
                named = queries.name_rows(ids, known, where)
                raise InputError(f"{where}: {named} in the programme already.")
            if not len(ids):
                return 0
            frame, last = split_last_action(frame, now, where)
            details = read_details(self.model, frame, where, queries.known_kinds(sql))
            details = pl.DataFrame([*details.get_columns(), *last])
            queries.put_details(sql, ids, details, where)
            queries.start_stays(sql, ids, now)
            if find_name(frame.columns, "state", where) is not None:
                recording.store_states(sql, self.model, frame, ids, now, where)
            self._note(sql, "join", why, {"round": now, "people": len(ids)})
        return len(ids)

    def leave(self, ids: str | int | Iterable[Any], *, why: str | None = None) -> int:
        """Removes people from the current round on; they may join again.

        Args:
            ids: One id or several.
            why: The reason, for the audit log.

        Returns:
            How many people left.
        """
        gone = as_ids(ids, "leave")
        with self._database.writing() as sql:
            queries.check_members(sql, gone, "leave")
            now = queries.current_round(sql)
            queries.end_stays(sql, gone, now)
            if len(gone):
                self._note(sql, "leave", why, {"round": now, "people": len(gone)})
        return len(gone)

    def observe(
        self, frame: pl.DataFrame | Any, *, skip_unknown: bool = False, why: str | None = None,
        where: str = "observe",
    ) -> int:  # fmt: skip
        """Stores the states that were seen in the current round.

        People without a new state keep the state that was last seen; the column
        `rounds_since_seen` of a plan says how long ago that was.

        Args:
            frame: A polars or pandas frame with `id` and `state`; an empty state is not stored.
                Other columns replace the stored details of these people.
            skip_unknown: Leave out people who do not take part, instead of refusing the frame.
            why: The reason, for the audit log.
            where: The name of the frame in error messages.

        Returns:
            How many states were stored.
        """
        frame = as_frame(frame)
        with self._database.writing() as sql:
            now, ids = queries.current_round(sql), read_ids(frame, where)
            known = ~queries.find_non_members(sql, ids, where, skip=skip_unknown)
            frame, ids = frame.filter(known), ids.filter(known)
            details = read_details(self.model, frame, where, queries.known_kinds(sql))
            states = recording.store_states(sql, self.model, frame, ids, now, where)
            seen, more = len(states) - states.null_count(), bool(details.width and len(ids))
            if more:
                queries.put_details(sql, ids, details, where)
            if seen or more:
                told = {"round": now, "people": len(ids), "states": seen}
                self._note(sql, "observe", why, told)
        return seen

    def plan(
        self,
        budget: float,
        rules: Rules | None = None,
        *,
        waiting: int = 20,
        round: int | None = None,
        again: bool = False,
        why: str | None = None,
        **more: Any,
    ) -> Planned:
        """Plans the current round for everyone in the programme.

        If the round is planned already, the same request returns the stored plan. A request that
        differs (also because somebody has joined since) is an error, unless `again` is true. While
        a plan is made, other processes can read and change the programme, but cannot plan. The plan
        is for the people as they were when it was started.

        Args:
            budget: What may be spent in this round.
            rules: Rules that the plan must keep.
            waiting: Length of the waiting list.
            round: The number of the round, so that a script can safely run twice; by default the
                current round.
            again: Replace the plan of this round; the old one is kept as superseded.
            why: The reason, for the audit log.
            **more: Other arguments of the model's `plan`, such as `explore` and `seed`. If
                `last_round` is set, `rounds_left` follows from it.

        Returns:
            The plan as it is stored.
        """
        which = None if round is None else count(round, "round")

        def ask(sql: Connection) -> PlanRequest:
            given = request.rounds_to_end(sql, which) | more
            return PlanRequest.from_call(self.model, budget, rules, waiting, given)

        return self._plan(ask, which, why, again=again)

    def replan(
        self,
        change: Callable[[int, dict[str, Any]], dict[str, Any]],
        *,
        round: int,
        why: str | None = None,
    ) -> Planned:
        """Changes the list of the current round: plans it again, with other arguments.

        Several people may do this at once, and no change is lost: `change` always gets the
        arguments of the list that is then the newest, and its answer is stored only if that list
        is still the newest one. It may be called several times. If it raises an error, the list
        stays as it was.

        Args:
            change: Gets the number of the valid list within its round and its arguments, as in
                `Planned.asked`, and returns the new arguments.
            round: The round. If it was closed meanwhile, this is an error.
            why: The reason, for the audit log.

        Returns:
            The new plan as it is stored; the valid one if its arguments stay the same.

        >>> import tempfile
        >>> import polars as pl
        >>> import prefermab as pm
        >>> model = pm.load("armman")
        >>> people = pl.DataFrame({"id": [7, 8, 9], "state": ["persuadable"] * 3})
        >>> people = people.with_columns(pl.lit(0.5).alias(name) for name in model.feature_names)
        >>> with pm.Programme(tempfile.mkdtemp() + "/calls.db", model) as programme:
        ...     _ = programme.join(people)
        ...     first = programme.plan(budget=1)
        ...     second = programme.replan(lambda number, asked: {**asked, "budget": 2}, round=1)
        >>> second.attempt, second.asked["budget"]
        (2, 2.0)
        """

        def ask(sql: Connection) -> PlanRequest:
            now = queries.current_round(sql)
            if round != now:
                raise OutdatedError(f"round {round} is not the current one, which is {now}.")
            valid = valid_request(sql, now)
            if valid is None:
                raise InputError(f"round {now} is not planned yet.")
            asked = request.rounds_to_end(sql, now) | change(*valid)
            return PlanRequest.from_asked(self.model, asked)

        return self._plan(ask, round, why, again=True)

    def _plan(
        self, ask: Callable[[Connection], PlanRequest], round: int | None, why: str | None,
        *, again: bool,
    ) -> Planned:  # fmt: skip
        """Makes and stores the plan that `ask` asks for, in the state of the programme that it is
        made from; starts over if the programme changes before it is stored."""
        check_why(why)
        with self._database.planning():
            while True:
                with self._database.reading() as sql:
                    found = request.plan_round(
                        sql, self.model, self.hash, ask(sql), round, again=again
                    )
                if isinstance(found, Planned):
                    return found
                made = found.make(self.model, self.hash)
                if self._store(found, made, why):
                    return made

    def _store(self, pending: request.PendingPlan, made: Planned, why: str | None) -> bool:
        """Stores a plan and returns True; returns False if the programme has changed meanwhile."""
        with self._database.reading() as sql:
            stored = store_frames(sql, made.inputs, made.frame)
        with self._database.writing() as sql:
            if not pending.can_be_stored(sql, self.hash):
                return False
            put_plan(sql, made, stored)
            details = {
                "round": made.round, "attempt": made.attempt, "budget": made.asked["budget"],
            }  # fmt: skip
            self._note(sql, "plan", why, details)
        return True

    def record(
        self,
        actions: pl.DataFrame | Any = None,
        *,
        round: int | None = None,
        correct: bool = False,
        partial: bool = False,
        yes: bool = False,
        over_budget: bool = False,
        why: str | None = None,
        where: str = "record",
    ) -> int:
        """Stores what was done in the current round, and closes the round.

        To record a round again with the same actions changes nothing. `deviations` returns where
        the record differs from the plan.

        Args:
            actions: A frame with `id` and `action` of everything that was done; people who are not
                in it got the passive action. (In a list, `action_given` is a column `action` of the
                table of people. It is not read, and a warning says so.) A column `reached` is false
                for an action that was tried and did not reach the person. A column `why` can say
                why the plan was not followed. None if everything was done as planned.
            round: The number of the round, so that a script can safely run twice; by default the
                current round.
            correct: Replace the record of `round`; `history` has the old and the new one.
            partial: Correct only the people in the frame; all others stay as recorded.
            yes: Accept a correction in which people who were recorded as acted on have no row.
            over_budget: Accept a record that exceeds the budget.
            why: The reason, for the audit log.
            where: The name of the frame in error messages.

        Returns:
            The round that was recorded.
        """
        if correct and round is None:
            raise InputError("record: a correction needs the number of its round, such as round=3.")
        if partial and not (correct and actions is not None):
            raise InputError("record: partial needs correct=True and a table of people.")
        with self._database.writing() as sql:
            which = queries.current_round(sql) if round is None else count(round, "round")
            did = recording.record(
                sql, self.model, actions, which,
                correct=correct, partial=partial, yes=yes, over_budget=over_budget, where=where,
            )  # fmt: skip
            if did is not None:
                self._note(sql, did, why, {"round": which})
        return which
