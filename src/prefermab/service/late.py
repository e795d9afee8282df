"""Ticks that arrive after their round was closed, such as from a phone that was offline.

They wait until somebody who may record decides: the record of that round is corrected for these
people and nobody else, or stays as it is. Either way the audit log has who ticked what, who decided
and why.
"""

from collections.abc import Collection, Sequence
from typing import Any

import polars as pl
import sqlalchemy as sa

from prefermab.errors import InputError
from prefermab.programme.store import Planned, queries
from prefermab.programme.store.recording import get_actions
from prefermab.programme.store.schema import PLANS
from prefermab.service import marks as marking
from prefermab.service.access import Account
from prefermab.service.desk import Desk
from prefermab.service.exchange import quiet
from prefermab.service.tables import LATE, MARKS

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
    return round < queries.current_round(sql)


def recorded(sql: sa.Connection, round: int) -> Recorded:
    """What was recorded of a closed round."""
    return {str(who): done for who, done in get_actions(sql, round).items()}


def get_late(sql: sa.Connection, round: int | None = None) -> pl.DataFrame:
    """The ticks that wait for a decision, of one round or of all."""
    columns = LATE.c["round", "person", "action", "reached", "why", "name", "at"]
    rows = sa.select(*columns).order_by(LATE.c.round, LATE.c.at, LATE.c.person)
    rows = rows if round is None else rows.where(LATE.c.round == round)
    found = [tuple(row) for row in sql.execute(rows)]
    return pl.DataFrame(found, schema=marking.SCHEMA, orient="row")


def count_late(desk: Desk, account: Account) -> int:
    """How many ticks wait for a decision; of a field worker's own, if that is who asks."""
    rows = sa.select(sa.func.count()).select_from(LATE)
    with desk.records.reading() as sql:
        mine = LATE.c.name == account.name
        return sql.execute(rows.where(mine) if account.own_only else rows).scalar_one()


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
        return False, f"{name} takes back: {in_words(waiting.action, waiting.reached)}"
    sql.execute(LATE.delete().where(here))
    sql.execute(
        LATE.insert().values(
            round=round, person=who, action=mark["action"], reached=reached,
            why=(mark["why"] or "").strip() or None, name=name, at=at, came=now,
        )
    )  # fmt: skip
    new = f"{name}: {in_words(mark['action'], reached)}"
    if waiting is None:
        return True, new
    return True, f"{new}; before, {waiting.name}: {in_words(waiting.action, waiting.reached)}"


def keep_missed(desk: Desk, round: int, seen: pl.DataFrame) -> None:
    """Keeps ticks that were made while a round was being closed, and so are not in its record.

    Args:
        desk: The desk of the server.
        round: The round that was closed.
        seen: The marks of which its record was made.
    """
    passive = desk.programme().model.action_names[0]
    known = set(seen.select("id", "who", "at").rows())
    with desk.records.writing() as sql:
        done = recorded(sql, round)
        for mark in marking.get_marks(sql, round).iter_rows(named=True):
            if (mark["id"], mark["who"], mark["at"]) not in known:
                here = (MARKS.c.round == round) & (MARKS.c.person == mark["id"])
                sql.execute(MARKS.delete().where(here))
                put_late(sql, round, mark, mark["who"], desk.clock(), done, passive)


def decide(
    desk: Desk,
    account: Account,
    round: int,
    ids: Collection[str],
    *,
    accept: bool,
    why: str,
    over_budget: bool = False,
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

    Returns:
        How many ticks were decided on.
    """
    if not why.strip():
        raise InputError("say why: the reason is kept.")
    plan = closed_plan(desk, round)
    with desk.records.reading() as sql:
        chosen = get_late(sql, round).filter(pl.col("id").is_in(list(ids)))
    if not chosen.height:
        raise InputError(f"none of these ticks of round {round} waits any more: look again.")
    programme = desk.programme(account)
    if accept:
        passive = programme.model.action_names[0]
        frame = marking.as_record(chosen, plan, passive, as_planned=False)
        with quiet():
            programme.record(
                frame, round=round, correct=True, partial=True, over_budget=over_budget,
                why=why.strip(), where="late ticks",
            )  # fmt: skip
    with desk.records.writing() as sql:
        for one in chosen.iter_rows(named=True):
            here = (LATE.c.round == round) & (LATE.c.person == one["id"])
            sql.execute(LATE.delete().where(here, LATE.c.at == one["at"]))
        what = "accept late marks" if accept else "dismiss late marks"
        ticks = chosen.select("id", "who", "action", "reached").rows()
        told = {id: f"{who}: {in_words(action, reached)}" for id, who, action, reached in ticks}
        desk.note(sql, account.name, what, {"round": round, "ticks": told}, why.strip())
    return chosen.height


def in_words(action: str, reached: bool) -> str:
    """An action as people say it.

    >>> from prefermab.service.late import in_words
    >>> in_words("call", reached=False)
    'call, not reached'
    """
    return action + ("" if reached else ", not reached")
