"""A programme: people join and leave, are observed, planned for and acted on, round by round."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl

from prefermab.errors import InputError, count, number
from prefermab.programme.planning.rules import Rules
from prefermab.programme.store import queries, recording, request
from prefermab.programme.store.database import Database
from prefermab.programme.store.frames import as_ids, read_details, read_ids, split_last_action
from prefermab.programme.store.history import History, read_deviations, read_history, read_plans
from prefermab.programme.store.models import check_model, load_stored, model_hash
from prefermab.programme.store.queries import Planned
from prefermab.programme.store.request import PlanRequest
from prefermab.programme.tables import as_frame

MODEL_PLACE = "model_place"


class Programme:
    """A programme that runs for many rounds, stored in a SQLite file.
    Rounds are counted from 1: `plan` plans the current round and `record` closes it. Each call is a
    transaction: when it returns, its changes are on the disk; if the process is killed before,
    nothing was changed. A Programme can only be used in the thread that opened it.

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

    def __init__(
        self,
        path: str | Path,
        model: Any = None,
        *,
        change_model: bool = False,
        wait: float = 60.0,
        begin: bool = True,
    ):
        """Begins a programme in a new file, or continues the one that is there.

        Args:
            path: The file, such as calls.db.
            model: The model that plans. It may be left out with `begin=False` if `keep_place` (or
                `prefermab programme begin`) stored where the model is.
            change_model: Continue with another model than the one that ran the programme so far.
            wait: Seconds to wait while another process holds the file.
            begin: Whether a new file may be created; if not, the programme must exist.
        """
        if model is not None or begin:
            check_model(model)
        self._database = Database(path, number(wait, "wait"), begin=begin)
        try:
            if model is None:
                with self._database.reading() as sql:
                    place = queries.get_meta(sql, MODEL_PLACE)
                model = load_stored(place, self._database.path)
            self.model, self.hash = check_model(model), model_hash(model)
            with self._database.writing() as sql:
                queries.set_model(
                    sql, self.model, self.hash, self._database.path, change_model=change_model
                )
        except BaseException:
            self._database.close()
            raise

    @classmethod
    def open(
        cls, path: str | Path, model: Any = None, *, change_model: bool = False, wait: float = 60.0
    ) -> "Programme":
        """Continues a programme that exists; nothing is created if there is none.

        Args:
            path: The file.
            model: The model that plans; if left out, the one that the file names.
            change_model: Continue with another model than the one that ran the programme so far.
            wait: Seconds to wait while another process holds the file.

        Returns:
            The open programme.
        """
        return cls(path, model, change_model=change_model, wait=wait, begin=False)

    def __enter__(self) -> "Programme":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file."""
        self._database.close()

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

    def check_key(self, mark: str | None) -> None:
        """Raises an error unless the ids are pseudonyms by the key with this mark
        (`privacy.key_mark`), or plain ids for None. Who joins first decides."""
        with self._database.writing() as sql:
            queries.check_key(sql, mark)

    @property
    def last_round(self) -> int | None:
        """The round with which the programme ends; None where it goes on."""
        with self._database.reading() as sql:
            return queries.get_meta(sql, request.LAST_ROUND)

    @last_round.setter
    def last_round(self, last: int | None) -> None:
        with self._database.writing() as sql:
            request.set_last_round(sql, self.model, last)

    def keep_place(self, name: str) -> None:
        """Stores where the model is, so that `Programme.open(path)` finds it.

        Args:
            name: The folder of the model, or the name of a model that ships.
        """
        folder = Path(name)
        place = str(folder.resolve()) if folder.is_dir() else name
        with self._database.writing() as sql:
            queries.set_meta(sql, MODEL_PLACE, place)

    def join(self, frame: pl.DataFrame | Any, *, where: str = "join") -> int:
        """Adds people to the programme.

        Args:
            frame: A polars or pandas frame with `id`, the features by name (empty if unknown),
                `state` if it is known, and any other column to store, such as those that rules
                name. `rounds_since_action` says when people were last acted on before they joined.
                An empty `opt_in` means opted out; without that column people are opted in.
            where: What error messages call the frame.

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
            frame, last = split_last_action(frame, ids, now, where)
            details = read_details(self.model, frame, ids, where, queries.known_kinds(sql))
            queries.put_details(sql, ids, pl.DataFrame([*details.get_columns(), *last]), where)
            queries.start_stays(sql, ids, now)
            if any(name.strip().lower() == "state" for name in frame.columns):
                recording.put_states(sql, self.model, frame, ids, now, where)
        return len(ids)

    def leave(self, ids: str | int | Iterable[Any]) -> int:
        """Removes people from this round on; they may join again.

        Args:
            ids: One id or several.

        Returns:
            How many people left.
        """
        gone = as_ids(ids, "leave")
        with self._database.writing() as sql:
            queries.check_members(sql, gone, "leave")
            queries.end_stays(sql, gone, queries.current_round(sql))
        return len(gone)

    def observe(
        self, frame: pl.DataFrame | Any, *, skip_unknown: bool = False, where: str = "observe"
    ) -> int:
        """Stores the states that were seen in the current round.

        People who are not observed count as in the state last seen; the column `rounds_since_seen`
        of a plan says how long ago that was.

        Args:
            frame: A polars or pandas frame with `id` and `state`; an empty state is not stored.
                Other columns replace the stored details of these people.
            skip_unknown: Leave out people who do not take part, instead of refusing the frame.
            where: What error messages call the frame.

        Returns:
            How many states were stored.
        """
        frame = as_frame(frame)
        with self._database.writing() as sql:
            now, ids = queries.current_round(sql), read_ids(frame, where)
            known = ~queries.strangers(sql, ids, where, skip=skip_unknown)
            frame, ids = frame.filter(known), ids.filter(known)
            details = read_details(self.model, frame, ids, where, queries.known_kinds(sql))
            seen = recording.put_states(sql, self.model, frame, ids, now, where)
            if details.width and len(ids):
                queries.put_details(sql, ids, details, where)
        return seen

    def plan(
        self,
        budget: float,
        rules: Rules | None = None,
        *,
        waiting: int = 20,
        round: int | None = None,
        again: bool = False,
        **more: Any,
    ) -> Planned:
        """Plans the current round for everyone in the programme.

        The same request returns the stored plan. A request that differs, also because somebody
        joined since, is refused unless `again` is true. No other process can change the programme
        while a plan is made.

        Args:
            budget: What the round may cost.
            rules: Rules that the plan must keep.
            waiting: Length of the waiting list.
            round: The round that is meant, so that a script may run twice; the current one if None.
            again: Replace a plan of this round; the old one is stored as superseded.
            **more: Other arguments of the model's `plan`, such as `explore` and `seed`;
                `rounds_left` is counted from `last_round` where that is set.

        Returns:
            The plan as it is stored.
        """
        with self._database.writing() as sql:
            which = None if round is None else count(round, "round")
            more = request.rounds_to_end(sql, which) | more
            asked = PlanRequest.from_call(self.model, budget, rules, waiting, more)
            return request.plan_round(sql, self.model, self.hash, asked, which, again=again)

    def record(
        self,
        actions: pl.DataFrame | Any = None,
        *,
        round: int | None = None,
        correct: bool = False,
        partial: bool = False,
        yes: bool = False,
        over_budget: bool = False,
        where: str = "record",
    ) -> int:
        """Stores what was done in the current round, and closes it.

        Recording a round again with the same actions changes nothing. `deviations` has what
        differs from the plan.

        Args:
            actions: A frame with `id` and `action`: everything that was done; people who are not in
                it got the passive action. Its column `reached`, if there is one, is false if an
                action was tried and did not reach the person; its column `why` may say why the
                list was not followed. None if all was done as planned.
            round: The round that is meant, so that a script may run twice; the current one if None.
            correct: Replace what was recorded for `round`; `history` has both.
            partial: Correct only the people in the frame; all others stay as recorded.
            yes: Accept a correction in which people who were recorded as acted on have no row.
            over_budget: Accept a record that exceeds the budget.
            where: What error messages call the frame.

        Returns:
            The round that was recorded.
        """
        if correct and round is None:
            raise InputError("record: name the round that is to be corrected, such as round=3.")
        if partial and not (correct and actions is not None):
            raise InputError("record: partial goes with correct and a table of people.")
        with self._database.writing() as sql:
            which = queries.current_round(sql) if round is None else count(round, "round")
            recording.record(
                sql, self.model, actions, which,
                correct=correct, partial=partial, yes=yes, over_budget=over_budget, where=where,
            )  # fmt: skip
        return which

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
            return queries.find_plan(sql, which, attempt)

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
