"""Marks: what was done with one person in the current round, before the round is recorded.

Staff mark one person after the other, on a phone that may be offline for a while. On pages a mark
is called a tick. A mark has the time at which it was made: of two marks of a person the later one
counts, in whatever order they arrive, and a mark that is sent twice changes nothing. When the round
is closed, all marks become its record.
"""

import math
from collections.abc import Sequence
from typing import Any

import polars as pl
import sqlalchemy as sa

from prefermab.errors import InputError, brief, unknown
from prefermab.programme.store import Planned
from prefermab.service.auth.database import ROUND_MARKS

LONGEST_MARK_REASON = 500
"""Characters of a reason."""

SCHEMA = {"round": pl.Int64, "id": pl.String, "action": pl.String, "reached": pl.Boolean,
          "why": pl.String, "who": pl.String, "at": pl.Float64}  # fmt: skip
"""Columns of the marks of a round."""


def check_marks(
    marks: Sequence[dict[str, Any]], plan: Planned, actions: Sequence[str], own: pl.DataFrame
) -> None:
    """Raises unless all marks are valid: people in the plan, actions of the model, times, reasons.

    Args:
        marks: Each with `id`, `action` (None takes a mark back), `reached`, `why` and `at`.
        plan: The plan of the round.
        actions: The names of the actions, the passive one first.
        own: The rows of the plan that the user who marks may see.
    """
    known = set(own["id"].cast(pl.String))
    for mark in marks:
        who, action, why = str(mark["id"]), mark["action"], mark["why"] or ""
        if who not in known:
            raise InputError(
                f"{brief(who)} is not among your people in the plan of round {plan.round}."
            )
        if action is not None and action not in actions:
            raise unknown("action", action, actions)
        if action == actions[0] and mark["reached"] is False:
            raise InputError(f"{brief(who)}: reached cannot be false with the action '{action}'.")
        if mark["at"] is not None and not 0 <= mark["at"] < math.inf:
            raise InputError(f"{brief(who)}: at must be seconds since 1970.")
        if len(why) > LONGEST_MARK_REASON or any(
            ord(sign) < 32 and sign not in "\t\n\r" for sign in why
        ):
            raise InputError(
                f"{brief(who)}: why must be a text of at most {LONGEST_MARK_REASON} characters."
            )


def put_marks(
    sql: sa.Connection, round: int, marks: Sequence[dict[str, Any]], name: str, now: float
) -> dict[str, str]:
    """Stores marks; leaves out marks that are older than the stored ones.

    Returns:
        The new marks in words, by person, for the audit log.
    """
    new = {}
    for mark in marks:
        at = min(now if mark["at"] is None else float(mark["at"]), now)
        reached, who = mark["reached"] is not False, str(mark["id"])
        here = (ROUND_MARKS.c.round == round) & (ROUND_MARKS.c.person == who)
        known = sql.execute(sa.select(ROUND_MARKS.c.at).where(here)).scalar()
        if known is not None and known >= at and mark["at"] is not None:
            continue
        sql.execute(ROUND_MARKS.delete().where(here))
        new[who] = "taken back"
        if mark["action"] is not None:
            new[who] = mark_in_words(mark["action"], reached, mark["why"])
            sql.execute(
                ROUND_MARKS.insert().values(
                    round=round, person=who, action=mark["action"], reached=reached,
                    why=(mark["why"] or "").strip() or None, name=name, at=at,
                )
            )  # fmt: skip
    return new


def get_marks(sql: sa.Connection, round: int) -> pl.DataFrame:
    """The marks of a round."""
    columns = ROUND_MARKS.c["round", "person", "action", "reached", "why", "name", "at"]
    rows = sql.execute(
        sa.select(*columns).where(ROUND_MARKS.c.round == round).order_by(ROUND_MARKS.c.person)
    )
    return pl.DataFrame([tuple(row) for row in rows], schema=SCHEMA, orient="row")


def as_record(
    marks: pl.DataFrame, plan: Planned, passive: str, *, as_planned: bool
) -> pl.DataFrame:
    """The record of a round from its marks.

    Args:
        marks: The marks of the round.
        plan: Its plan.
        passive: The passive action.
        as_planned: Whether people on the list without a mark got their planned action; if False,
            nothing was done with them.

    Returns:
        A table for `Programme.record`: id, action, reached and why.
    """
    ids = plan.frame.select("id", key=pl.col("id").cast(pl.String), planned="action")
    rows = ids.join(marks.rename({"id": "key"}), on="key", how="left", maintain_order="left")
    marked = pl.col("action").is_not_null()
    due = (pl.col("planned") != passive) & as_planned
    rows = rows.filter(marked | due)
    action = pl.col("action").fill_null(pl.col("planned"))
    reached = pl.when(action != passive).then(pl.col("reached").fill_null(True))
    return rows.select("id", action=action, reached=reached, why="why")


def mark_in_words(action: str, reached: bool, why: str | None = None) -> str:
    """A mark as a short text.

    >>> from prefermab.service.work.marks import mark_in_words
    >>> mark_in_words("call", reached=False)
    'call, not reached'
    """
    return action + ("" if reached else ", not reached") + (f" ({why.strip()})" if why else "")
