"""Late marks: they arrive after their round was closed, for example from a phone that was offline.

A late mark (on pages: a tick) waits until somebody with the right `record` decides. Either the
record of that round is corrected for these people only, or it stays as it is. In both cases the
audit log says who marked what, who decided and why.
"""

from collections.abc import Collection, Sequence
from typing import Any

import polars as pl
import sqlalchemy as sa

from prefermab.errors import InputError, list_names
from prefermab.programme.store import Planned
from prefermab.programme.store.queries import current_round
from prefermab.programme.store.recording import get_actions
from prefermab.programme.store.schema import PLANS
from prefermab.programme.tables import format_people
from prefermab.service import marks as marking
from prefermab.service.access import Account
from prefermab.service.database import LATE_MARKS, ROUND_MARKS
from prefermab.service.desk import Desk
from prefermab.service.exchange import quiet
from prefermab.service.marks import mark_in_words

Recorded = dict[str, tuple[str, bool]]
"""The people acted on in a round, by id as text: their action, and whether it reached them."""


def closed_plan(desk: Desk, round: int) -> Planned:
    """The plan that was in force when a round was closed; raises if the round is not closed."""
    found, attempt = (PLANS.c.round == round) & (PLANS.c.status == "recorded"), None
    if 0 < round < desk.head().round:
        with desk.records.reading() as sql:
            attempt = sql.execute(sa.select(PLANS.c.attempt).where(found)).scalar()
    if attempt is None:
        raise InputError(f"round {round} is neither the current one nor a closed one.")
    return desk.planned(round, attempt)


def is_closed(sql: sa.Connection, round: int) -> bool:
    """Whether a round is recorded already."""
    return round < current_round(sql)


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
        valid = (PLANS.c.round == plan.round) & (PLANS.c.status == "planned")
        if sql.execute(sa.select(PLANS.c.attempt).where(valid)).scalar() != plan.attempt:
            raise InputError(f"the list of round {plan.round} was made again just now: look again.")
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


def add_late(desk: Desk, account: Account, round: int, given: Sequence[dict[str, Any]]) -> int:
    """Stores marks of a closed round as late marks, and returns how many are new.

    Args:
        desk: The desk of the server.
        account: The user who marked.
        round: The round.
        given: Marks, each with `id`, `action` (None takes a late mark back), `reached`, `why` and
            `at`.
    """
    plan = closed_plan(desk, round)
    own = desk.visible_rows(plan.frame, account)
    actions = desk.programme().model.action_names
    marking.check_marks(given, plan, actions, own)
    with desk.records.writing() as sql:
        settle_marks(desk, sql, actions[0])
        done, ticks, new = recorded(sql, round), {}, 0
        for one in given:
            put = put_late(sql, round, one, account.name, desk.clock(), done, actions[0])
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
    passive: str,
) -> tuple[bool, str] | None:
    """Stores one late mark, unless this or a later one is stored, or the record says the same.

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
        raise InputError(
            f"round {round} is closed, and what was recorded of {who} cannot be taken back: say "
            "what was done instead."
        )
    as_recorded = (mark["action"], reached) == done.get(who, (passive, True))
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
    """Decides on late marks: corrects the record of their round, or leaves it as it is.

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
    plan, programme = closed_plan(desk, round), desk.programme(account)
    passive = programme.model.action_names[0]
    with programme.database.writing() as sql, quiet():
        settle_marks(desk, sql, passive)
        chosen = get_late(sql, passive).filter(pl.col("id").is_in(list(ids)), round=round)
        if not chosen.height:
            raise InputError(f"no late tick of round {round} waits for these people: look again.")
        if seen is not None and (chosen["came"] > seen).any():
            raise InputError(f"another late tick of round {round} has arrived: look again.")
        if accept:
            _check_in_plan(chosen["id"], plan)
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
            f"{list_names(strange.to_list())} not in the plan by which round {plan.round} was "
            "closed, so its record cannot have them: leave the record as it is for them."
        )
