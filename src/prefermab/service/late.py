"""Ticks that arrive after their round was closed, such as from a phone that was offline.

They wait until somebody who may record decides: the record of that round is corrected for these
people and nobody else, or stays as it is. Either way the audit log has who ticked what, who decided
and why.
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
from prefermab.service.database import LATE, ROUND_MARKS
from prefermab.service.desk import Desk
from prefermab.service.exchange import quiet
from prefermab.service.marks import mark_in_words

Recorded = dict[str, tuple[str, bool]]
"""Who was acted on in a round, by id as text: the action, and whether it reached the person."""


def closed_plan(desk: Desk, round: int) -> Planned:
    """The plan by which a closed round was worked."""
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
    """Records the current round from its marks and closes it; nobody can tick meanwhile.

    Args:
        desk: The desk of the server.
        account: Who closes it.
        plan: The plan of the round.
        rest: What was done with people on the list without a mark: `planned` or `nothing`; anything
            else if there must be none.
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
    """What was recorded of a closed round."""
    return {str(who): done for who, done in get_actions(sql, round).items()}


def get_left(sql: sa.Connection, passive: str) -> pl.DataFrame:
    """The marks of closed rounds that differ from the record. There are some where a round was
    closed by a table, in the command line too, and after it nobody has ticked yet."""
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
    """The ticks that wait for a decision, and when each of them came."""
    columns = LATE.c["round", "person", "action", "reached", "why", "name", "at", "came"]
    rows = [tuple(row) for row in sql.execute(sa.select(*columns))]
    left = get_left(sql, passive)
    if not rows and left.is_empty():  # as on nearly every page
        return left
    kept = pl.DataFrame(rows, schema=left.schema, orient="row")
    both = pl.concat([left, kept]).sort("at", maintain_order=True)
    return both.unique(["round", "id"], keep="last").sort("round", "at", "id")


def all_late(desk: Desk, account: Account) -> pl.DataFrame:
    """The ticks that wait for a decision; a field worker's own, if that is who asks."""
    passive = desk.programme().model.action_names[0]
    with desk.records.reading() as sql:
        found = get_late(sql, passive)
    return found.filter(who=account.name) if account.own_only else found


def add_late(desk: Desk, account: Account, round: int, given: Sequence[dict[str, Any]]) -> int:
    """Keeps ticks of a closed round for a decision, and returns how many of them are new.

    Args:
        desk: The desk of the server.
        account: Who ticked.
        round: The round.
        given: Each with `id`, `action` (None takes back a tick that waits), `reached`, `why`
            and `at`.
    """
    plan = closed_plan(desk, round)
    own = desk.own(plan.frame, account)
    actions = desk.programme().model.action_names
    marking.check_marks(given, plan, actions, own)
    with desk.records.writing() as sql:
        settle_marks(desk, sql, actions[0])
        done, told, new = recorded(sql, round), {}, 0
        for one in given:
            put = put_late(sql, round, one, account.name, desk.clock(), done, actions[0])
            if put is not None:
                waits, told[str(one["id"])] = put
                new += waits
        if told:
            desk.note(sql, account.name, "late mark", {"round": round, "ticks": told})
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
    """Keeps one tick unless it is known, older than another one, or what is recorded anyhow.

    Returns:
        Whether a tick waits now, and for the audit log what changed; None if nothing did.
    """
    who, reached = str(mark["id"]), mark["reached"] is not False
    at = min(now if mark["at"] is None else float(mark["at"]), now)
    here = (LATE.c.round == round) & (LATE.c.person == who)
    columns = LATE.c["at", "name", "action", "reached"]
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
        if waiting is None or waiting.name != name:  # What somebody else ticked still waits.
            return None
        sql.execute(LATE.delete().where(here))
        return False, f"{name} takes back: {mark_in_words(waiting.action, waiting.reached)}"
    sql.execute(LATE.delete().where(here))
    sql.execute(
        LATE.insert().values(
            round=round, person=who, action=mark["action"], reached=reached,
            why=(mark["why"] or "").strip() or None, name=name, at=at, came=now,
        )
    )  # fmt: skip
    new = f"{name}: {mark_in_words(mark['action'], reached, mark['why'])}"
    if waiting is None:
        return True, new
    return True, f"{new}; before, {waiting.name}: {mark_in_words(waiting.action, waiting.reached)}"


def settle_marks(desk: Desk, sql: sa.Connection, passive: str) -> None:
    """Ends the marks of closed rounds: one that differs from the record waits for a decision."""
    left = get_left(sql, passive)
    done = {round: recorded(sql, round) for round in left["round"].unique()}
    for mark in left.iter_rows(named=True):
        round = mark["round"]
        # It came when it was made, not now: who has looked at it may decide.
        put = put_late(sql, round, mark, mark["who"], mark["at"], done[round], passive)
        if put is not None:
            told = {"round": round, "ticks": {mark["id"]: put[1]}}
            desk.note(sql, "the service", "late mark", told)
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
    """Corrects the record of a closed round by ticks that came late, or leaves it as it is.

    Args:
        desk: The desk of the server.
        account: Who decides.
        round: The round.
        ids: The people whose ticks are meant.
        accept: Whether the record is corrected; nothing else of the round changes.
        why: The reason, for the audit log.
        over_budget: Accept a record that exceeds the budget.
        seen: When the ticks were looked at: none of them may have come later.

    Returns:
        How many ticks were decided on.
    """
    if not why.strip():
        raise InputError("say why: the reason is kept.")
    plan, programme = closed_plan(desk, round), desk.programme(account)
    passive = programme.model.action_names[0]
    with programme.database.writing() as sql, quiet():
        settle_marks(desk, sql, passive)
        chosen = get_late(sql, passive).filter(pl.col("id").is_in(list(ids)), round=round)
        if not chosen.height:
            raise InputError(f"none of these ticks of round {round} waits any more: look again.")
        if seen is not None and (chosen["came"] > seen).any():
            raise InputError(f"another tick of round {round} has come meanwhile: look again.")
        if accept:
            _check_in_plan(chosen["id"], plan)
            frame = marking.as_record(chosen, plan, passive, as_planned=False)
            programme.record(
                frame, round=round, correct=True, partial=True, over_budget=over_budget,
                why=why.strip(), where="late ticks",
            )  # fmt: skip
        decided = (LATE.c.round == round) & LATE.c.person.in_(chosen["id"].to_list())
        sql.execute(LATE.delete().where(decided))
        what = "accept late marks" if accept else "dismiss late marks"
        ticks = chosen.select("id", "who", "action", "reached").rows()
        told = {
            id: f"{who}: {mark_in_words(action, reached)}" for id, who, action, reached in ticks
        }
        desk.note(sql, account.name, what, {"round": round, "ticks": told}, why.strip())
    return chosen.height


def _check_in_plan(ids: pl.Series, plan: Planned) -> None:
    """Raises if somebody is not in a plan, whom its record cannot have."""
    strange = ids.filter(~ids.is_in(plan.frame["id"].cast(pl.String).implode()))
    if len(strange):
        raise InputError(
            f"{list_names(strange.to_list())} not in the plan by which round {plan.round} was "
            "closed, so the record cannot have them: leave it as it is for them."
        )
