"""The tables of a programme for SQLAlchemy; the migrations create them.

In SQLite the columns `id` and `state` have no type. An id is a whole number or a text; a state is
the place of its name among the model's, or a number. PostgreSQL needs types: there an id is stored
as a text, in quotes if it is a text that looks like a whole number.
"""

import json
import re
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Double,
    LargeBinary,
    MetaData,
    Table,
    Text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeEngine, UserDefinedType

WHOLE = re.compile(r"-?[1-9][0-9]*|0")


class Id(UserDefinedType[Any]):
    """An id: a whole number or a text."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return ""

    def bind_processor(self, dialect: Dialect) -> Any:
        return encode_id if dialect.name == "postgresql" else None

    def result_processor(self, dialect: Dialect, coltype: object) -> Any:
        return decode_id if dialect.name == "postgresql" else None


@compiles(Id, "postgresql")
def _text(*_: Any, **__: Any) -> str:
    return "TEXT"


def encode_id(value: int | str | None) -> str | None:
    """An id as PostgreSQL stores it: a text that looks like a number is quoted.

    >>> from prefermab.programme.store.schema import encode_id
    >>> [encode_id(one) for one in (7, "7", "007", "Ana")]
    ['7', '"7"', '007', 'Ana']
    """
    if isinstance(value, str) and (value[:1] == '"' or WHOLE.fullmatch(value)):
        return json.dumps(value, ensure_ascii=False)
    return None if value is None else str(value)


def decode_id(value: str | None) -> int | str | None:
    """The id that `encode_id` turned into this text."""
    if not value or value[0] not in '"-0123456789':
        return value
    if value[0] == '"':
        return json.loads(value)
    return int(value) if WHOLE.fullmatch(value) else value


METADATA = MetaData()


def _table(name: str, key: str, /, **types: type[TypeEngine[Any]]) -> Table:
    keys = key.split()
    columns = [Column(one, kind, primary_key=one in keys) for one, kind in types.items()]
    return Table(name, METADATA, *columns)


META = _table("meta", "key", key=Text, value=Text)
MODELS = _table("models", "number", number=BigInteger, hash=Text, name=Text, since=BigInteger)
COLUMNS = _table("columns", "number", number=BigInteger, name=Text, kind=Text)
PEOPLE = _table("people", "number", number=BigInteger, id=Id, details=Text)
STAYS = _table("stays", "id joined", id=Id, joined=BigInteger, gone=BigInteger)
SEEN_STATES = _table("states", "id round", id=Id, round=BigInteger, state=Double)
PLANS = _table(
    "plans", "round attempt",
    round=BigInteger, attempt=BigInteger, status=Text, model=Text, asked=Text, versions=Text,
    made=Text, closed=Text, facts=Text, layout=Text, inputs=LargeBinary, output=LargeBinary,
)  # fmt: skip
ACTIONS = _table(
    "actions", "id round",
    id=Id, round=BigInteger, attempt=BigInteger, action=Text, cost=Double, reached=BigInteger,
)  # fmt: skip
DEVIATIONS = _table(
    "deviations", "round id",
    round=BigInteger, id=Id, planned=Text, done=Text, allowed=BigInteger, why=Text,
)  # fmt: skip
AUDIT = _table(
    "audit", "number",
    number=BigInteger, at=Text, who=Text, what=Text, why=Text, details=Text, digest=Text, hash=Text,
)  # fmt: skip
CHANGES = _table(
    "changes", "number name part", number=BigInteger, name=Text, part=BigInteger, data=LargeBinary
)
"""The rows that each entry of the audit log wrote; see `changes.py`."""
