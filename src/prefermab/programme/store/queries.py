"""Reads and writes a programme's tables. Each function runs in a transaction of `Database`."""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import polars as pl
import sqlalchemy as sa
from polars.datatypes import DataTypeClass
from sqlalchemy import Connection

from prefermab.errors import DamageError, InputError, brief, list_names
from prefermab.programme.planning.roster import SINCE_ACTION, SINCE_SEEN
from prefermab.programme.store.comparing import check_last_states, check_stored
from prefermab.programme.store.frames import (
    BEFORE,
    column_kinds,
    from_json,
    to_json,
)
from prefermab.programme.store.models import Planner, is_earlier_model
from prefermab.programme.store.rows import MOST_IDS_PER_STATEMENT, fetch, put_rows, rows_of, select
from prefermab.programme.store.schema import (
    COLUMNS,
    META,
    MODELS,
    PEOPLE,
    PLANS,
    SEEN_STATES,
    STAYS,
    Id,
)
from prefermab.programme.tables.columns import is_continuous, source_columns
from prefermab.programme.tables.naming import find_name
from prefermab.programme.tables.table import row_in

MEMBERS = sa.text("""
SELECT p.id AS id,
    (SELECT s.state FROM states s WHERE s.id = p.id AND s.round >= t.joined
     ORDER BY s.round DESC LIMIT 1),
    (SELECT max(s.round) FROM states s WHERE s.id = p.id AND s.round >= t.joined),
    (SELECT max(a.round) FROM actions a WHERE a.id = p.id),
    p.details, t.joined
FROM stays t JOIN people p ON p.id = t.id
WHERE t.gone IS NULL ORDER BY p.number
""").columns(sa.column("id", Id))

ABOUT_MEMBERS = "meta models columns people stays actions plans"
"""Tables that say who takes part and what is known of them, besides states."""


def current_round(sql: Connection) -> int:
    """The round after the last recorded one; the first is 1."""
    closed = sa.select(sa.func.max(PLANS.c.round)).where(PLANS.c.status == "recorded")
    last = sql.execute(closed).scalar()
    return 1 + (last or 0)


def get_meta(sql: Connection, key: str) -> Any:
    """The value of a key in the table `meta`, or None."""
    found = sql.execute(select(META, "value").where(META.c.key == key)).scalar()
    try:
        return None if found is None else json.loads(found)
    except ValueError:
        raise DamageError(f"meta: the value of {key} cannot be read") from None


def set_meta(sql: Connection, key: str, value: Any) -> bool:
    """Stores the value of a key in the table `meta`; returns whether this changed it."""
    if get_meta(sql, key) == value:
        return False
    put_rows(sql, META, {"key": [key], "value": [json.dumps(value)]}, "value")
    return True


def check_key(sql: Connection, mark: str | None) -> bool:
    """Raises an error unless ids are pseudonyms by the key with this mark (plain ids for None).

    Before anybody joins, stores the mark instead. Returns whether the stored mark changed.
    """
    new = get_meta(sql, "ids") is None and set_meta(sql, "key", mark)
    stored = get_meta(sql, "key")
    if stored == mark:
        return new
    if stored is None:
        raise InputError("the ids of this programme are not pseudonyms: leave out --pseudonymise.")
    raise InputError(
        "the ids of this programme are pseudonyms: add --pseudonymise with the file of their key."
        if mark is None
        else "the ids of this programme are pseudonyms made with another key than that of "
        "--pseudonymise."
    )


def id_type(sql: Connection) -> DataTypeClass:
    """The type of the ids in this programme."""
    return pl.String if get_meta(sql, "ids") == "text" else pl.Int64


def is_member(sql: Connection, ids: pl.Series, where: str) -> pl.Series:
    """Which of these people take part now. Ids must be of the same kind as those of all others."""
    if not len(ids):
        return pl.Series(dtype=pl.Boolean)
    kind = get_meta(sql, "ids")
    new = "text" if ids.dtype == pl.String else "whole numbers"
    if kind is None:
        set_meta(sql, "ids", new)
    elif kind != new:
        raise InputError(f"{where}: ids are {kind} in this programme, but {ids[0]!r} is not.")
    here = select(STAYS, "id").where(STAYS.c.gone.is_(None))
    members = [who for (who,) in rows_of(sql, here, ids.to_list())]
    return ids.is_in(pl.Series(members, dtype=ids.dtype).implode())


def find_non_members(
    sql: Connection, ids: pl.Series, where: str, *, skip: bool = False
) -> pl.Series:
    """Which of these people do not take part now. If there are any, raises an error that names
    them, unless `skip` is true."""
    unknown = ~is_member(sql, ids, where)
    if unknown.any() and not skip:
        raise InputError(
            f"{where}: {name_rows(ids, unknown, where)} not in the programme: remove these rows, "
            "let the people join first, or add skip_unknown=True (--skip-unknown)."
        )
    return unknown


def check_members(sql: Connection, ids: pl.Series, where: str) -> None:
    """Raises an error that names the people who do not take part now, if there are any."""
    unknown = ids.filter(~is_member(sql, ids, where))
    if len(unknown):
        verb = "is" if len(unknown) == 1 else "are"
        names = list_names(map(str, unknown))
        raise InputError(f"{where}: {names} {verb} not in the programme.")


def name_rows(ids: pl.Series, which: pl.Series, where: str) -> str:
    """People and their rows with a verb: `row 2: 17 is` or `3 people (17 in row 2, …) are`."""
    rows = which.arg_true().to_list()
    if len(rows) == 1:
        return f"{row_in(where, rows[0])}: {brief(ids[rows[0]])} is"
    named = list_names(f"{brief(ids[row])} in {row_in(where, row)}" for row in rows)
    return f"{len(rows):,} people ({named}) are"


def known_kinds(sql: Connection) -> dict[str, str]:
    """The columns of people's details that are stored, with their kinds."""
    return dict(fetch(sql, select(COLUMNS, "name", "kind").order_by(COLUMNS.c.number)))


def put_details(sql: Connection, ids: pl.Series, details: pl.DataFrame, where: str) -> None:
    """Stores details of people; columns that are not given keep their values, so these must be as
    the audit log has them: otherwise its next entry would store damage as if it were data."""
    check_stored(sql, "people")
    kinds = column_kinds(details, known_kinds(sql), where)
    put_rows(sql, COLUMNS, {"name": list(kinds), "kind": list(kinds.values())}, "kind", key="name")
    people, given = ids.to_list(), to_json(details, len(ids))
    if sql.dialect.name == "sqlite":
        how = "json_patch(people.{name}, excluded.{name})"
        put_rows(sql, PEOPLE, {"id": people, "details": given}, "details", key="id", how=how)
        return
    known = dict(rows_of(sql, select(PEOPLE, "id", "details"), people))
    pairs = zip(people, given, strict=True)
    texts = [merge_json(known[who], text) if who in known else text for who, text in pairs]
    put_rows(sql, PEOPLE, {"id": people, "details": texts}, "details", key="id")


FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def merge_json(old: str, new: str) -> str:
    """Merges two JSON objects; the fields of the new one replace those of the old one.

    Numbers stay exactly as they are written.

    >>> from prefermab.programme.store.queries import merge_json
    >>> merge_json('{"a":-0.0,"b":1,"c":2}', '{"b":null,"c":3.50}')
    '{"a":-0.0,"b":null,"c":3.50}'
    """
    return msgspec.json.encode(FIELDS.decode(old) | FIELDS.decode(new)).decode()


def put_states(sql: Connection, ids: pl.Series, states: pl.Series, round: int) -> None:
    """Stores states seen in a round; they replace those stored for the same people and round."""
    seen = states.is_not_null()
    who, what = ids.filter(seen).to_list(), states.filter(seen).to_list()
    columns = {"id": who, "round": [round] * len(who), "state": what}
    put_rows(sql, SEEN_STATES, columns, "state")


def get_members(sql: Connection, model: Planner, since: str = SINCE_ACTION) -> pl.DataFrame:
    """Everyone who takes part, in the order of joining, as a model plans for them.

    `since` names the column with the rounds since the last action.
    """
    check_stored(sql, ABOUT_MEMBERS, but="inputs output")
    now, rows = current_round(sql), fetch(sql, MEMBERS)
    ids, states, seen, acted, details, joined = zip(*rows, strict=True) if rows else [()] * 6
    check_last_states(sql, ids, joined, seen, states)
    known = from_json(details, known_kinds(sql))
    last = pl.Series("acted", acted, dtype=pl.Int64)
    if BEFORE in known.columns:
        last = pl.select(pl.max_horizontal(last, known[BEFORE])).to_series()
        known = known.drop(BEFORE)
    if "opt_in" in known.columns:
        # People whose table had no such column are opted in.
        known = known.with_columns(pl.col("opt_in").fill_null(True))
    rounds = [(now - last).alias(since), (now - pl.Series(seen, dtype=pl.Int64)).alias(SINCE_SEEN)]
    costs = [f"cost_{action}" for action in model.action_names[1:]]
    columns = (*known.columns, *source_columns(model.feature_names), *costs)
    taken = ["id", "state", SINCE_SEEN, *(name for name in columns if name != SINCE_ACTION)]
    if find_name(taken, since) is not None:
        raise InputError(
            f"rules.last_column names '{since}', a column of the people; the programme "
            "counts the rounds since the last action itself, so choose another name."
        )
    columns = [pl.Series("id", ids, dtype=id_type(sql)), state_names(model, states)]
    return pl.DataFrame([*columns, *rounds, *known.get_columns()])


def state_names(model: Planner, states: Sequence[Any]) -> pl.Series:
    """States by name, or as numbers if they are continuous."""
    if is_continuous(model):
        return pl.Series("state", states, dtype=pl.Float64)
    names = [None if place is None else model.state_names[int(place)] for place in states]
    return pl.Series("state", names, dtype=pl.String)


def start_stays(sql: Connection, ids: pl.Series, round: int) -> None:
    """Adds people from this round on; people who left in the same round count as never gone."""
    people = ids.to_list()
    columns = {"id": people, "joined": [round] * len(people), "gone": [None] * len(people)}
    put_rows(sql, STAYS, columns, "gone")


def end_stays(sql: Connection, ids: pl.Series, round: int) -> None:
    """Removes people from this round on."""
    here = sa.update(STAYS).where(STAYS.c.gone.is_(None)).values(gone=round)
    people = ids.to_list()
    for start in range(0, len(people), MOST_IDS_PER_STATEMENT):
        sql.execute(here.where(STAYS.c.id.in_(people[start : start + MOST_IDS_PER_STATEMENT])))


def current_model(sql: Connection) -> str | None:
    """The hash of the programme's present model."""
    return sql.execute(select(MODELS, "hash").order_by(MODELS.c.number.desc()).limit(1)).scalar()


def set_model(
    sql: Connection, model: Planner, model_hash: str, shown: str, *, change_model: bool
) -> dict[str, Any] | None:
    """Makes this the programme's model from the current round on, or raises an error if it must
    not be. Returns the details for the audit log, or None if nothing changed."""
    running = current_model(sql)
    if running == model_hash:
        return None
    for key in ("state_names", "action_names"):
        stored, names = get_meta(sql, key), list(getattr(model, key))
        if stored is None:
            set_meta(sql, key, names)
        elif stored != names:
            raise InputError(
                f"{shown}: the {key.replace('_', ' ')} of the programme are {', '.join(stored)}, "
                f"but this model's are {', '.join(names)}."
            )
    if running is not None and not change_model and not is_earlier_model(model, running):
        raise InputError(
            f"{shown}: the programme is run by the model {running[:12]}, but this one is "
            f"{model_hash[:12]}; open it with change_model=True (`programme begin` with "
            "--change-model) to go on with this one."
        )
    name, since = str(getattr(model, "domain_name", "own")), current_round(sql)
    sql.execute(sa.insert(MODELS).values(hash=model_hash, name=name, since=since))
    return {"model": model_hash, "before": running, "round": since}
