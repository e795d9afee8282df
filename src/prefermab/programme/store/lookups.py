"""What pages and other programs ask of a programme: its head, a person, the lists of a round.

They ask here, so that nobody outside of this folder knows a table of a programme. Each function
reads within a transaction that the caller began.
"""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from prefermab.programme.store.plans import SUPERSEDED
from prefermab.programme.store.rows import distinct_values, fetch, select
from prefermab.programme.store.schema import (
    ACTIONS,
    AUDIT,
    DEVIATIONS,
    MODELS,
    PEOPLE,
    PLANS,
    SEEN_STATES,
    STAYS,
)


def valid_attempt(sql: Connection, round: int) -> int | None:
    """The number of the list of a round that is in force; None if the round is not planned."""
    here = (PLANS.c.round == round) & (PLANS.c.status != SUPERSEDED)
    return sql.execute(select(PLANS, "attempt").where(here)).scalar()


def recorded_attempts(sql: Connection) -> dict[int, int]:
    """The number of the list that was recorded, by round."""
    rows = select(PLANS, "round", "attempt").where(PLANS.c.status == "recorded")
    return dict(fetch(sql, rows))


def newest_request(sql: Connection) -> str | None:
    """The arguments of the newest list as JSON; None if there was none."""
    rows = select(PLANS, "asked").order_by(PLANS.c.round.desc(), PLANS.c.attempt.desc())
    return sql.execute(rows.limit(1)).scalar()


def requests_of(sql: Connection, round: int) -> dict[int, dict[str, Any]]:
    """The arguments of all lists of a round, by number."""
    rows = select(PLANS, "attempt", "asked").where(PLANS.c.round == round)
    return {attempt: json.loads(asked) for attempt, asked in fetch(sql, rows)}


def notes_of_plans(sql: Connection, round: int, most: int) -> dict[int, Any]:
    """The row of the audit log about each list of a round, by number; of the newest `most` rows
    about lists."""
    rows = select(AUDIT, "at", "who", "why", "details").where(AUDIT.c.what == "plan")
    found: dict[int, Any] = {}
    for row in sql.execute(rows.order_by(AUDIT.c.number.desc()).limit(most)):
        facts = json.loads(row.details)
        if facts.get("round") == round:
            found.setdefault(facts["attempt"], row)
    return found


def newest_note(sql: Connection, kinds: Sequence[str]) -> Any:
    """The newest row of the audit log of these kinds; None if there is none."""
    rows = select(AUDIT, "number", "at", "who", "details").where(AUDIT.c.what.in_(kinds))
    return sql.execute(rows.order_by(AUDIT.c.number.desc()).limit(1)).one_or_none()


def size_of_log(sql: Connection) -> int:
    """How many rows the audit log has."""
    return sql.execute(sa.select(sa.func.max(AUDIT.c.number))).scalar() or 0


def names_in_log(sql: Connection) -> dict[str, list[Any]]:
    """Who changed something, and the kinds of changes."""
    return {key: distinct_values(sql, AUDIT.c[key]) for key in ("who", "what")}


def count_members(sql: Connection) -> int:
    """How many people take part."""
    rows = sa.select(sa.func.count()).select_from(STAYS).where(STAYS.c.gone.is_(None))
    return sql.execute(rows).scalar_one()


def models_of(sql: Connection) -> list[dict[str, Any]]:
    """All models that the programme had, the first one first."""
    rows = sql.execute(sa.select(MODELS).order_by(MODELS.c.number)).mappings()
    return [dict(row) for row in rows]


def acted_on(sql: Connection, round: int) -> list[Any]:
    """The ids of the people who were acted on in a recorded round."""
    return [one for (one,) in fetch(sql, select(ACTIONS, "id").where(ACTIONS.c.round == round))]


def details_of(sql: Connection, person: str | int) -> dict[str, Any] | None:
    """The stored columns of a person; None if there is no such person."""
    found = sql.execute(select(PEOPLE, "details").where(PEOPLE.c.id == person)).scalar()
    return None if found is None else json.loads(found)


def stays_of(sql: Connection, person: str | int) -> list[dict[str, Any]]:
    """From which round to which a person took part, each time."""
    rows = select(STAYS, "joined", "gone").where(STAYS.c.id == person).order_by(STAYS.c.joined)
    return [dict(row._mapping) for row in sql.execute(rows)]


def rounds_of(sql: Connection, person: str | int) -> dict[int, dict[str, Any]]:
    """What was seen and done with a person, by round: `state` as it is stored, `action`, `cost` and
    `reached`, and `planned` and `why` where the plan was not followed."""
    found: dict[int, dict[str, Any]] = {}
    for row in sql.execute(sa.select(SEEN_STATES).where(SEEN_STATES.c.id == person)):
        found.setdefault(row.round, {})["state"] = row.state
    for row in sql.execute(sa.select(ACTIONS).where(ACTIONS.c.id == person)):
        done = {"action": row.action, "cost": row.cost, "reached": bool(row.reached)}
        found.setdefault(row.round, {}).update(done)
    for row in sql.execute(sa.select(DEVIATIONS).where(DEVIATIONS.c.id == person)):
        found.setdefault(row.round, {}).update(planned=row.planned, why=row.why)
    return found
