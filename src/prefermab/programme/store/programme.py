"""The programme: people join and leave, are observed, planned for and acted on, round by round."""

from collections.abc import Iterable
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import polars as pl

from prefermab.errors import InputError, count, number
from prefermab.programme.columns import column, state_numbers
from prefermab.programme.planning.rules import Rules
from prefermab.programme.store import queries, recording
from prefermab.programme.store.database import Database
from prefermab.programme.store.history import History, read_history, read_plans
from prefermab.programme.store.identity import check_model, hash_of, keep_place, take_over, versions
from prefermab.programme.store.people import acted_before, ids_of, read_details, read_ids
from prefermab.programme.store.queries import Planned
from prefermab.programme.store.questions import (
    ask,
    asked_otherwise,
    change,
    check_replay,
    check_rules,
    question,
    since_column,
)
from prefermab.programme.tables import as_frame, first_row, row_in


class Programme:
    """A programme that runs for many rounds, kept in a SQLite file.

    Each call is a transaction: when it returns, what it did is on the disk; when the process is
    killed before, nothing of it was done. Rounds are counted from 1: `plan` plans the round that
    is on, and `record` closes it. A Programme belongs to the thread that opened it. `where`, in
    several calls, is what messages call the table.

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
        model: Any,
        *,
        change_model: bool = False,
        wait: float = 60.0,
        begin: bool = True,
    ):
        """Begins a programme in a new file, or goes on with the one that is there.

        One that was run by another model is opened with `change_model=True` only. `wait` says for
        how many seconds another process may keep the file to itself. With `begin=False` there has
        to be a programme.
        """
        check_model(model)
        self.model, self.hash = model, hash_of(model)
        self._database = Database(path, number(wait, "wait"), begin=begin)
        try:
            with self._database.writing() as sql:
                take_over(sql, model, self._database.path, change_model)
        except BaseException:
            self._database.close()
            raise

    @classmethod
    def open(
        cls, path: str | Path, model: Any, *, change_model: bool = False, wait: float = 60.0
    ) -> "Programme":
        """Goes on with the programme that is there; where there is none, nothing is begun."""
        return cls(path, model, change_model=change_model, wait=wait, begin=False)

    def __enter__(self) -> "Programme":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the file."""
        self._database.close()

    @property
    def round(self) -> int:
        """The round that is on."""
        with self._database.reading() as sql:
            return queries.current_round(sql)

    @property
    def ids(self) -> str | None:
        """What ids are in this programme, "whole numbers" or "text"; None before anybody joins."""
        with self._database.reading() as sql:
            return queries.get_meta(sql, "ids")

    def keep_place(self, name: str) -> None:
        """Notes the folder of the model, or the name of one that ships, for the command line."""
        with self._database.writing() as sql:
            keep_place(sql, name)

    def join(self, frame: pl.DataFrame | Any, *, where: str = "join") -> int:
        """Takes people in, and returns how many.

        `frame`, polars or pandas, has `id`, the features by name (empty where unknown), `state`
        where it is known, and whatever else is to be kept, such as the columns that rules speak
        of. `rounds_since_action` says when they were last acted on before they joined. Who has an
        empty `opt_in` is out; whom no table ever gave one is in.
        """
        frame = as_frame(frame)
        with self._database.writing() as sql:
            now, ids = queries.current_round(sql), read_ids(frame, where)
            there = queries.present(sql, ids, where)
            if there.any():
                row = first_row(there)
                raise InputError(
                    f"{where}: {row_in(where, row)}: {ids[row]} is in the programme already."
                )
            if not len(ids):
                return 0
            frame, last = acted_before(frame, ids, now, where)
            known = self._details(sql, frame, ids, where).get_columns()
            details = pl.DataFrame([*known, *last])
            queries.put_details(sql, ids, details, where)
            queries.put_stays(sql, ids, now)
            if any(name.strip().lower() == "state" for name in frame.columns):
                self._see(sql, frame, ids, now, where)
        return len(ids)

    def leave(self, ids: str | int | Iterable[Any]) -> int:
        """Lets people go, and returns how many; they may join again."""
        gone = ids_of(ids, "leave")
        with self._database.writing() as sql:
            row = _first_missing(sql, gone, "leave")
            if row is not None:
                raise InputError(f"leave: {gone[row]} is not in the programme.")
            queries.end_stays(sql, gone, queries.current_round(sql))
        return len(gone)

    def observe(self, frame: pl.DataFrame | Any, *, where: str = "observe") -> int:
        """Notes the states seen in this round, and returns how many; an empty one is not noted.

        `frame` has `id` and `state`; other columns replace what was known of these people. Who is
        not observed in a round counts as in the state last seen; the column `rounds_since_seen` of
        a plan says how long ago that was.
        """
        frame = as_frame(frame)
        with self._database.writing() as sql:
            now, ids = queries.current_round(sql), read_ids(frame, where)
            row = _first_missing(sql, ids, where)
            if row is not None:
                raise InputError(
                    f"{where}: {row_in(where, row)}: {ids[row]} is not in the programme: leave the "
                    "row out, or let them join first."
                )
            details = self._details(sql, frame, ids, where)
            seen = self._see(sql, frame, ids, now, where)
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
        """Plans the round that is on for everyone who is in.

        The same question is answered once, and after that by what is stored. One that differs,
        be it because somebody joined since, is refused unless `again=True`: then the new plan
        takes the place of the old one, which is kept. No other process can change the programme
        meanwhile. A script that names the `round` it means may be run twice. What `more` holds
        (a seed, where a model draws lots) is kept and handed to the model's `plan` as well.
        """
        asked = question(self.model, budget, rules, waiting, more)
        with self._database.writing() as sql:
            now = queries.current_round(sql)
            if round is not None and count(round, "round") != now:
                return self._planned_before(sql, count(round, "round"), now, asked)
            inputs = self._inputs(sql, asked, now)
            check_rules(self.model, asked, inputs, f"round {now}")
            old = queries.get_plan(sql, now)
            told = None if old is None else change(old, asked, inputs, self.hash)
            if old is not None and told is None:
                return old
            if old is not None and not again:
                raise InputError(
                    f"round {now} is planned already, and {told} since: record it, or plan with "
                    "again=True (--again) to put a new plan in its place."
                )
            attempt = queries.attempts(sql, now) + 1
            frame, facts = ask(self.model, inputs, asked)
            made = Planned(
                now, attempt, "planned", self.hash, asked, versions(), facts, inputs, frame
            )
            queries.put_plan(sql, made)
        return made

    def record(
        self,
        actions: pl.DataFrame | Any = None,
        *,
        round: int | None = None,
        correct: bool = False,
        over_budget: bool = False,
        where: str = "record",
    ) -> int:
        """Notes what was done in the round that is on, closes it, and returns its number.

        `actions` is a frame with `id` and `action`, the whole of what was done: who is not in it
        got the passive action. Its column `reached`, if there is one, is false where an action was
        tried and reached nobody. Without a frame all was done as planned. Recording a `round` once
        more with the same actions changes nothing; with others it is refused, unless `correct=True`
        says that what was recorded is wrong: then these take its place, and `history` keeps both.
        """
        if correct and round is None:
            raise InputError("record: name the round that is to be corrected, such as round=3.")
        with self._database.writing() as sql:
            which = queries.current_round(sql) if round is None else count(round, "round")
            recording.record(
                sql, self.model, actions, which,
                correct=correct, over_budget=over_budget, where=where,
            )  # fmt: skip
        return which

    def planned(self, round: int | None = None, attempt: int | None = None) -> Planned:
        """A plan that was made: that of the round that is on, of another, or a superseded one."""
        with self._database.reading() as sql:
            which = queries.current_round(sql) if round is None else count(round, "round")
            found = queries.get_plan(sql, which, attempt)
        if found is None:
            raise InputError(
                f"round {which} is not planned yet."
                if attempt is None
                else f"round {which} has no plan with the number {attempt}."
            )
        return found

    def replay(self, round: int, attempt: int | None = None) -> Planned:
        """Makes a plan again from what is stored, and checks that every bit of it is the same."""
        old = self.planned(round, attempt)
        if old.model != self.hash:
            raise InputError(
                f"the plan of round {round} was made by the model {old.model[:12]}, but this one "
                f"is {self.hash[:12]}: open the programme with that model to replay it."
            )
        check_replay(old, *ask(self.model, old.inputs, old.asked))
        return old

    def roster(self) -> pl.DataFrame:
        """Everyone who is in, as a plan made now would see them."""
        with self._database.reading() as sql:
            return queries.roster(sql, self.model)

    def plans(self) -> pl.DataFrame:
        """A row for each plan: its round, budget, what was spent, and how many were acted on."""
        with self._database.reading() as sql:
            return read_plans(sql)

    def history(self) -> History:
        """Everything that is kept."""
        with self._database.reading() as sql:
            return read_history(sql, self.model)

    def _details(
        self, sql: Connection, frame: pl.DataFrame, ids: pl.Series, where: str
    ) -> pl.DataFrame:
        return read_details(self.model, frame, ids, where, queries.known_kinds(sql))

    def _see(
        self, sql: Connection, frame: pl.DataFrame, ids: pl.Series, now: int, where: str
    ) -> int:
        states = state_numbers(self.model, column(frame, "state", where), ids, where)
        queries.put_states(sql, ids, states, now)
        return len(states) - states.null_count()

    def _inputs(self, sql: Connection, asked: dict[str, Any], now: int) -> pl.DataFrame:
        """Everyone a plan is made for; who is in has to have been seen."""
        if queries.current_model(sql) != self.hash:
            raise InputError("another model has taken over this programme since it was opened.")
        inputs = queries.roster(sql, self.model, since_column(asked))
        if not inputs.height:
            raise InputError(f"round {now} cannot be planned: nobody is in the programme.")
        here = pl.col("opt_in") if "opt_in" in inputs.columns else pl.lit(True)
        unseen = inputs.filter(pl.col("state").is_null() & here)["id"]
        if len(unseen):
            raise InputError(
                f"round {now} cannot be planned: the state of {unseen[0]} was never observed."
            )
        return inputs

    def _planned_before(
        self, sql: Connection, round: int, now: int, asked: dict[str, Any]
    ) -> Planned:
        """The plan of a round that is over, where the same is asked."""
        old = queries.get_plan(sql, round) if round < now else None
        if old is None:
            raise InputError(f"round {round} cannot be planned: the round that is on is {now}.")
        check_rules(self.model, asked, old.inputs, f"round {round}")
        told = asked_otherwise(old.asked, asked)
        if told is not None:
            raise InputError(f"round {round} is recorded already, and {told} since.")
        return old


def _first_missing(sql: Connection, ids: pl.Series, where: str) -> int | None:
    """The row of the first who is not in, or None."""
    there = queries.present(sql, ids, where)
    return None if there.all() else first_row(~there)
