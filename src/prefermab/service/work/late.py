"""Late marks, for example from a phone that was offline: their round was closed or list changed.

A mark (on pages: a tick) is late if its round was closed before it arrived, or if it was made by an
approved list and a newer list waits for its approval. It waits until somebody with the right
`record` decides. Either it counts (the record of a closed round is corrected for these people
only), or it does not. In both cases the audit log says who marked what, who decided and why.
"""

from collections.abc import Collection, Sequence
from typing import Any

import polars as pl
import sqlalchemy as sa

from prefermab.errors import InputError, OutdatedError, list_names
from prefermab.programme.store import Planned
from prefermab.programme.store.queries import current_round
from prefermab.programme.store.recording import get_actions
from prefermab.programme.tables.table import format_people
from prefermab.service.auth.access import Account
from prefermab.service.auth.database import LATE_MARKS, ROUND_MARKS
from prefermab.service.http.tables import quiet
from prefermab.service.work import marks as marking
from prefermab.service.work.approval import RoundLists
from prefermab.service.work.desk import Desk
from prefermab.service.work.marks import mark_in_words

Recorded = dict[str, tuple[str, bool]]
"""The people acted on in a round, by id as text: their action, and whether it reached them."""


def plan_in_force(desk: Desk, round: int) -> Planned:
    """The valid plan of the current round, or the plan by which a round was closed."""
    with desk.records.reading() as sql:
        lists = RoundLists.read(sql, round)
    if lists.valid is None:
        raise InputError(f"round {round} is not planned yet.")
    return desk.planned(round, lists.valid)


def check_in_force(sql: sa.Connection, plan: Planned) -> RoundLists:
    """Raises if another list is in force than this one; returns the lists of the round."""
    lists = RoundLists.read(sql, plan.round)
    if lists.valid != plan.attempt:
        raise OutdatedError(f"the list of round {plan.round} was made again just now: look again.")
    return lists


def close_by_marks(
    desk: Desk,
    account: Account,
    plan: Planned,
    *,
    rest: str | None,
    over_budget: bool,
    why: str | None,
) -> None:
    """Records the current round from its marks and closes it, in one transaction.

    Args:
        desk: The desk of the server.
        account: The user who closes it.
        plan: The plan of the round.
        rest: What was done with people on the list without a mark: `planned` or `nothing`. With
            any other value, such people are an error.
        over_budget: Accept a record that exceeds the budget.
        why: The reason, for the audit log.
    """
    programme = desk.programme(account)
    passive = programme.model.action_names[0]
    with programme.database.writing() as sql, quiet():
        lists = check_in_force(sql, plan)
        if lists.is_closed:
            raise OutdatedError(f"round {plan.round} is closed already.")
        lists.check()
        marks = marking.get_marks(sql, plan.round)
        due = plan.frame.filter(pl.col("action") != passive)["id"].cast(pl.String)
        open = int((~due.is_in(marks["id"].implode())).sum())
        if open and rest not in ("planned", "nothing"):
            raise InputError(f"say what was done with {format_people(open)} without a tick.")
        frame = marking.as_record(marks, plan, passive, as_planned=rest == "planned")
        programme.record(frame, round=plan.round, over_budget=over_budget, why=why)
        settle_marks(desk, sql, passive)


def recorded(sql: sa.Connection, round: int) -> Recorded:
    """The actions that were recorded for a closed round."""
    return {str(who): done for who, done in get_actions(sql, round).items()}


def done_so_far(sql: sa.Connection, lists: RoundLists) -> Recorded:
    """The actions that were recorded for a closed round, or the marks of an open one."""
    if lists.is_closed:
        return recorded(sql, lists.round)
    marks = marking.get_marks(sql, lists.round).select("id", "action", "reached")
    return {who: (action, reached) for who, action, reached in marks.iter_rows()}


def get_unrecorded_marks(sql: sa.Connection, passive: str) -> pl.DataFrame:
    """Marks of closed rounds that differ from the record and are not late marks yet.

    They exist when a round was closed by a table, in the service or on the command line, and nobody
    has marked anything since.
    """
    now, found = current_round(sql), []
    for round in sql.execute(
        sa.select(ROUND_MARKS.c.round).where(ROUND_MARKS.c.round < now).distinct()
    ):
        done = recorded(sql, round[0])
        found += [
            row for row in marking.get_marks(sql, round[0]).iter_rows(named=True)
            if (row["action"], row["reached"]) != done.get(row["id"], (passive, True))
        ]  # fmt: skip
    return pl.DataFrame(found, schema=marking.SCHEMA).with_columns(came="at")


def get_late(sql: sa.Connection, passive: str) -> pl.DataFrame:
    """All late marks, with the time at which each arrived (`came`)."""
    columns = LATE_MARKS.c["round", "person", "action", "reached", "why", "name", "at", "came"]
    rows = [tuple(row) for row in sql.execute(sa.select(*columns))]
    left = get_unrecorded_marks(sql, passive)
    if not rows and left.is_empty():  # the usual case
        return left
    kept = pl.DataFrame(rows, schema=left.schema, orient="row")
    both = pl.concat([left, kept]).sort("at", maintain_order=True)
    return both.unique(["round", "id"], keep="last").sort("round", "at", "id")


def all_late(desk: Desk, account: Account) -> pl.DataFrame:
    """The late marks that an account may see: a field worker's own, or all."""
    passive = desk.programme().model.action_names[0]
    with desk.records.reading() as sql:
        found = get_late(sql, passive)
    return found.filter(who=account.name) if account.own_only else found


def check_by_lists(
    desk: Desk,
    account: Account,
    round: int,
    given: Sequence[dict[str, Any]],
    attempt: int | None,
) -> RoundLists:
    """Raises unless each mark is valid by the list by which it was made; returns the lists.

    Args:
        desk: The desk of the server.
        account: The user who marked.
        round: The round.
        given: Marks, each with `id`, `action`, `reached`, `why` and `at`.
        attempt: The number of the list that the marks name, if they name one.
    """
    with desk.records.reading() as sql:
        lists = RoundLists.read(sql, round)
    by_list: dict[int, list[dict[str, Any]]] = {}
    for one in given:
        by_list.setdefault(lists.list_of_tick(attempt, one["at"]), []).append(one)
    for number, marks in by_list.items():
        plan = desk.planned(round, number)
        own = desk.visible_rows(plan.frame, account)
        marking.check_marks(marks, plan, desk.programme().model.action_names, own)
    return lists


def add_late(
    desk: Desk, account: Account, lists: RoundLists, given: Sequence[dict[str, Any]]
) -> int:
    """Stores marks as late marks, and returns how many are new.

    Args:
        desk: The desk of the server.
        account: The user who marked.
        lists: The lists of the round, from `check_by_lists`.
        given: Marks, each with `id`, `action` (None takes a late mark back), `reached`, `why` and
            `at`.
    """
    round, passive = lists.round, desk.programme().model.action_names[0]
    with desk.records.writing() as sql:
        lists.check_same(sql)
        settle_marks(desk, sql, passive)
        done, ticks, new = done_so_far(sql, lists), {}, 0
        # Nobody knows yet what will be recorded of people without a mark in an open round.
        otherwise = passive if lists.is_closed else None
        for one in given:
            put = put_late(sql, round, one, account.name, desk.clock(), done, otherwise)
            if put is not None:
                waits, ticks[str(one["id"])] = put
                new += waits
        if ticks:
            desk.note(sql, account.name, "late mark", {"round": round, "ticks": ticks})
    return new


def put_late(
    sql: sa.Connection,
    round: int,
    mark: dict[str, Any],
    name: str,
    now: float,
    done: Recorded,
    otherwise: str | None,
) -> tuple[bool, str] | None:
    """Stores one late mark, unless this or a later one is stored, or the record says the same.
    `otherwise` is what was recorded of people who are not in `done`; None if nothing was.

    Returns:
        Whether a late mark was stored (False: one was taken back), and the change in words for the
        audit log; None if nothing changed.
    """
    who, reached = str(mark["id"]), mark["reached"] is not False
    at = min(now if mark["at"] is None else float(mark["at"]), now)
    here = (LATE_MARKS.c.round == round) & (LATE_MARKS.c.person == who)
    columns = LATE_MARKS.c["at", "name", "action", "reached"]
    waiting = sql.execute(sa.select(*columns).where(here)).one_or_none()
    if waiting is not None and mark["at"] is not None and waiting.at >= at:
        return None
    if mark["action"] is None and waiting is None:
        since = "is closed" if otherwise is not None else "has a new list without approval"
        raise InputError(
            f"round {round} {since}, and what was recorded of {who} cannot be taken back: say "
            "what was done instead."
        )
    as_recorded = (mark["action"], reached) == done.get(who, (otherwise, True))
    if mark["action"] is None or as_recorded:
        if waiting is None or waiting.name != name:  # another user's mark still waits
            return None
        sql.execute(LATE_MARKS.delete().where(here))
        return False, f"{name} takes back: {mark_in_words(waiting.action, waiting.reached)}"
    sql.execute(LATE_MARKS.delete().where(here))
    sql.execute(
        LATE_MARKS.insert().values(
            round=round, person=who, action=mark["action"], reached=reached,
            why=(mark["why"] or "").strip() or None, name=name, at=at, came=now,
        )
    )  # fmt: skip
    new = f"{name}: {mark_in_words(mark['action'], reached, mark['why'])}"
    if waiting is None:
        return True, new
    return True, f"{new}; before, {waiting.name}: {mark_in_words(waiting.action, waiting.reached)}"


def settle_marks(desk: Desk, sql: sa.Connection, passive: str) -> None:
    """Removes the marks of closed rounds; those that differ from the record become late marks."""
    left = get_unrecorded_marks(sql, passive)
    done = {round: recorded(sql, round) for round in left["round"].unique()}
    for mark in left.iter_rows(named=True):
        round = mark["round"]
        # `came` is when the mark was made: whoever has read it since may decide on it.
        put = put_late(sql, round, mark, mark["who"], mark["at"], done[round], passive)
        if put is not None:
            details = {"round": round, "ticks": {mark["id"]: put[1]}}
            desk.note(sql, "the service", "late mark", details)
    sql.execute(ROUND_MARKS.delete().where(ROUND_MARKS.c.round < current_round(sql)))


def put_ticks(
    desk: Desk, account: Account, lists: RoundLists, sql: sa.Connection, given: Any
) -> dict[str, str]:
    """Stores marks of the current round, in a transaction that has checked `lists`; returns those
    that are new. They replace marks of the same user that wait for a decision."""
    stored = marking.put_marks(sql, lists.round, given, account.name, desk.clock())
    if stored:
        mine = (LATE_MARKS.c.round == lists.round) & (LATE_MARKS.c.name == account.name)
        sql.execute(LATE_MARKS.delete().where(mine, LATE_MARKS.c.person.in_(list(stored))))
        desk.note(sql, account.name, "mark", {"round": lists.round, "ticks": stored})
    return stored


def decide_late_marks(
    desk: Desk,
    account: Account,
    round: int,
    ids: Collection[str],
    *,
    accept: bool,
    why: str,
    over_budget: bool = False,
    seen: float | None = None,
) -> int:
    """Decides on late marks: corrects the record of their round, or leaves it as it is. In the
    current round, marks that are accepted count as those of this round.

    Args:
        desk: The desk of the server.
        account: The user who decides.
        round: The round.
        ids: The people whose late marks are decided on.
        accept: Whether to correct the record by these marks; the rest of the round stays as it is.
        why: The reason, for the audit log.
        over_budget: Accept a record that exceeds the budget.
        seen: The time at which the marks were read; an error if one of them arrived later.

    Returns:
        The number of marks that were decided on.
    """
    if not why.strip():
        raise InputError("say why: the reason is kept.")
    plan, programme = plan_in_force(desk, round), desk.programme(account)
    passive = programme.model.action_names[0]
    with programme.database.writing() as sql, quiet():
        lists = check_in_force(sql, plan)
        settle_marks(desk, sql, passive)
        chosen = get_late(sql, passive).filter(pl.col("id").is_in(list(ids)), round=round)
        if not chosen.height:
            raise InputError(f"no late tick of round {round} waits for these people: look again.")
        if seen is not None and (chosen["came"] > seen).any():
            raise InputError(f"another late tick of round {round} has arrived: look again.")
        if accept:
            _check_in_plan(chosen["id"], plan)
        if accept and not lists.is_closed:
            lists.check()
            for mark in chosen.iter_rows(named=True):
                marking.put_marks(sql, round, [{**mark, "at": None}], mark["who"], desk.clock())
        elif accept:
            frame = marking.as_record(chosen, plan, passive, as_planned=False)
            programme.record(
                frame, round=round, correct=True, partial=True, over_budget=over_budget,
                why=why.strip(), where="late ticks",
            )  # fmt: skip
        decided = (LATE_MARKS.c.round == round) & LATE_MARKS.c.person.in_(chosen["id"].to_list())
        sql.execute(LATE_MARKS.delete().where(decided))
        what = "accept late marks" if accept else "dismiss late marks"
        columns = chosen.select("id", "who", "action", "reached")
        ticks = {
            id: f"{who}: {mark_in_words(action, reached)}"
            for id, who, action, reached in columns.iter_rows()
        }
        desk.note(sql, account.name, what, {"round": round, "ticks": ticks}, why.strip())
    return chosen.height


def _check_in_plan(ids: pl.Series, plan: Planned) -> None:
    """Raises if somebody is not in the plan: a record cannot have people outside its plan."""
    strange = ids.filter(~ids.is_in(plan.frame["id"].cast(pl.String).implode()))
    if len(strange):
        raise InputError(
            f"{list_names(strange.to_list())} not in the plan of round {plan.round}, so its record "
            "cannot have them: leave the record as it is for them."
        )
