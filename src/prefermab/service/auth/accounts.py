"""Users, one-time links to set a password, and tokens for programs."""

import hashlib
import re
import secrets
import unicodedata
from collections.abc import Iterable
from typing import Any

import argon2
import polars as pl
import sqlalchemy as sa

from prefermab.errors import InputError, list_names, unknown
from prefermab.programme.store.comparing import check_stored
from prefermab.service.auth.access import OWN_PEOPLE, RIGHTS, ROLES, Account
from prefermab.service.auth.database import LINKS, SESSIONS, TOKENS, USERS
from prefermab.service.auth.incoming import OpenError

HASHER = argon2.PasswordHasher()
SHORTEST_PASSWORD, LONGEST_PASSWORD = 10, 200
"""Characters of a password."""

MOST_DAYS = 3660
"""Days for which a token is valid at most, if it ends at all."""

LINK_LASTS = 3 * 24 * 3600.0
INVISIBLE = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
"""Kinds of characters (Unicode's general categories) that show nothing or are not assigned."""

BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks of other kinds that show nothing either."""

USER_NAME = re.compile(r"[^\x00-\x1f\x7f<>\"'`\\/]{1,80}")


def new_secret() -> str:
    """A random text that nobody can guess."""
    return secrets.token_urlsafe(32)


def hash_secret(secret: str) -> str:
    """The hash of a secret; only this is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


RESERVED = ("the service", "nobody", "none")
"""Names that the audit log uses for others than users, and the text of an empty cell."""

LOOK_ALIKES = str.maketrans(
    "авекмнорстухѕіјԁԛԝһӏүԍαβεζηικμνορτυχγ01",
    "abekmhopctyxsijdqwhlygabeznikmvoptuxyol",
)
"""Cyrillic and Greek letters, and digits, with the Latin letters that look like them."""


def check_name(name: str) -> str:
    """A user's name as it is stored; raises if it is not allowed."""
    name = " ".join(unicodedata.normalize("NFKC", name).split())
    if not USER_NAME.fullmatch(name):
        raise OpenError("a user's name must have 1 to 80 characters, without quotes or < > / \\.")
    hidden = any(unicodedata.category(sign) in INVISIBLE for sign in name) or BLANK.search(name)
    if hidden or not looks_of(name):
        raise OpenError("a user's name may not have invisible characters.")
    if looks_of(name) in {looks_of(one) for one in RESERVED}:
        raise OpenError(f"'{name}' means something else in the audit log: choose another name.")
    return name


def looks_of(name: str) -> str:
    """What a name looks like: names that are easily taken for each other have the same.

    >>> from prefermab.service.auth.accounts import looks_of
    >>> looks_of("\u0410n\u0430") == looks_of("ana")  # with Cyrillic letters
    True
    """
    plain = unicodedata.normalize("NFKC", name).casefold().translate(LOOK_ALIKES)
    return "".join(sign for sign in plain if unicodedata.category(sign) not in INVISIBLE).strip()


def check_password(password: str) -> str:
    """Raises if a password is too short or too long."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise OpenError(
            f"a password must have {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters."
        )
    return password


def check_role(role: str) -> str:
    """Raises if there is no such role."""
    if role not in ROLES:
        raise unknown("role", role, ROLES)
    return role


def get_user(sql: sa.Connection, name: str) -> Any:
    """The row of a user, or None."""
    return sql.execute(sa.select(USERS).where(USERS.c.name == name)).one_or_none()


def has_users(sql: sa.Connection) -> bool:
    """Whether anybody has set a password yet."""
    found = sa.select(USERS.c.name).where(USERS.c.password.is_not(None))
    return sql.execute(found.limit(1)).first() is not None


def all_users(sql: sa.Connection) -> pl.DataFrame:
    """Every user: name, role, whether they may sign in, and whether they have set a password."""
    names = {"name": pl.String, "role": pl.String, "active": pl.Boolean, "ready": pl.Boolean}
    rows = sql.execute(
        sa.select(USERS.c.name, USERS.c.role, USERS.c.active, USERS.c.password.is_not(None))
        .order_by(USERS.c.name)
    )  # fmt: skip
    return pl.DataFrame([tuple(row) for row in rows], schema=names, orient="row")


def first_link(sql: sa.Connection, now: float) -> str | None:
    """A link that makes the first admin, as its secret; None if a user has set a password already.
    Earlier links of this kind become invalid."""
    if has_users(sql):
        return None
    sql.execute(LINKS.delete().where(LINKS.c.name.is_(None)))
    return _put_link(sql, None, "admin", now)


def add_user(sql: sa.Connection, name: str, role: str, now: float) -> str:
    """Adds a user and returns the secret of the link with which they set their password."""
    name = check_name(name)
    for known in sql.execute(sa.select(USERS.c.name)).scalars():
        if looks_of(known) == looks_of(name):
            raise InputError(
                f"there is a user {known} already."
                if known == name
                else f"'{name}' looks like the user '{known}': choose another name."
            )
    sql.execute(USERS.insert().values(name=name, role=check_role(role), active=True, made=now))
    return _put_link(sql, name, role, now)


def new_link(sql: sa.Connection, name: str, now: float) -> str:
    """A link for a user who has forgotten their password. The old password works until the link is
    used."""
    user = known_user(sql, name)
    return _put_link(sql, user.name, user.role, now)


def known_user(sql: sa.Connection, name: str) -> Any:
    """The row of a user; raises if there is none."""
    user = get_user(sql, name)
    if user is None:
        raise InputError(f"there is no user {name}.")
    return user


def change_user(
    sql: sa.Connection, name: str, role: str | None = None, active: bool | None = None
) -> None:
    """Changes a user's role, or whether they may sign in; ends their sessions."""
    check_stored(sql, "users")  # what is not given stays, and goes into the audit log again
    user = known_user(sql, name)
    role = user.role if role is None else check_role(role)
    active = user.active if active is None else active
    sql.execute(USERS.update().where(USERS.c.name == name).values(role=role, active=active))
    admins = sa.select(USERS.c.name).where(
        USERS.c.role == "admin", USERS.c.active, USERS.c.password.is_not(None)
    )
    if sql.execute(admins.limit(1)).first() is None:
        raise InputError(f"{name} is the only admin: make another one first.")
    sql.execute(SESSIONS.delete().where(SESSIONS.c.name == name))


def end_sessions(sql: sa.Connection, name: str) -> dict[str, int]:
    """Ends all sessions and tokens of a user, since whoever has stolen one may have made the other;
    returns how many there were of each."""
    name = known_user(sql, name).name
    ended = {"sessions": SESSIONS, "tokens": TOKENS}
    return {
        kind: sql.execute(table.delete().where(table.c.name == name)).rowcount
        for kind, table in ended.items()
    }


def find_link(sql: sa.Connection, secret: str, now: float) -> Any:
    """The row of a link that is still valid; raises if it is not."""
    rows = sa.select(LINKS).where(LINKS.c.secret == hash_secret(secret), LINKS.c.ends > now)
    link = sql.execute(rows).one_or_none()
    if link is None or (link.name is None and has_users(sql)):
        raise OpenError("this link is not valid any more: ask an admin for another one.")
    return link


def use_link(
    sql: sa.Connection, secret: str, name: str, hashed: str, now: float
) -> tuple[str, dict[str, int]]:
    """Stores the new password of the user of a link. The link, and all sessions and tokens of the
    user, become invalid.

    Returns:
        The user's name, and how many sessions and tokens were ended.
    """
    link = find_link(sql, secret, now)
    if link.name is None:
        name = check_name(name)
        sql.execute(USERS.delete().where(USERS.c.name == name))
        sql.execute(USERS.insert().values(name=name, role="admin", active=True, made=now))
    else:
        check_stored(sql, "users")
        name = link.name
    sql.execute(USERS.update().where(USERS.c.name == name).values(password=hashed))
    sql.execute(LINKS.delete().where(LINKS.c.name.is_(None) | (LINKS.c.name == name)))
    return name, end_sessions(sql, name)


def add_token(
    sql: sa.Connection,
    name: str,
    label: str,
    scopes: Iterable[str],
    now: float,
    days: float | None = None,
) -> str:
    """Adds a token for a user and returns it. Only its hash is stored, so it cannot be shown
    again."""
    user, wanted = known_user(sql, name), sorted(set(scopes))
    if days is not None and not 0 < days <= MOST_DAYS:
        raise InputError(f"a token is valid for 1 to {MOST_DAYS:,} days, not for {days:.4g}.")
    allowed = ROLES[user.role] - {OWN_PEOPLE}
    for scope in wanted:
        if scope not in RIGHTS:
            raise unknown("scope", scope, RIGHTS)
        if scope not in allowed:
            raise InputError(
                f"{name} is a {user.role}: their tokens may have the scopes "
                f"{list_names(sorted(allowed)) or 'none'}, not {scope}."
            )
    if not wanted:
        raise InputError(f"a token needs at least one scope of {list_names(RIGHTS)}.")
    secret = new_secret()
    last = sql.execute(sa.select(sa.func.max(TOKENS.c.number))).scalar() or 0
    sql.execute(
        TOKENS.insert().values(
            secret=hash_secret(secret), number=last + 1, label=label.strip()[:80], name=name,
            scopes=" ".join(wanted), made=now, ends=None if days is None else now + 86400 * days,
        )
    )  # fmt: skip
    return secret


def all_tokens(sql: sa.Connection) -> pl.DataFrame:
    """Every token without its secret."""
    names = {"number": pl.Int64, "label": pl.String, "name": pl.String, "scopes": pl.String,
             "made": pl.Float64, "ends": pl.Float64}  # fmt: skip
    rows = sql.execute(sa.select(*(TOKENS.c[name] for name in names)).order_by(TOKENS.c.number))
    return pl.DataFrame([tuple(row) for row in rows], schema=names, orient="row")


def drop_token(sql: sa.Connection, number: int, name: str | None = None) -> None:
    """Deletes a token; with a name, only if it belongs to this user."""
    which = TOKENS.c.number == number
    if name is not None:
        which &= TOKENS.c.name == name
    if not sql.execute(TOKENS.delete().where(which)).rowcount:
        raise InputError(f"there is no token {number}.")


def by_token(sql: sa.Connection, secret: str, now: float) -> Account | None:
    """The account of a token; None if it is not valid. Its rights are those of its scopes that the
    user's role still has."""
    rows = sa.select(TOKENS.c.scopes, TOKENS.c.ends, USERS).where(USERS.c.name == TOKENS.c.name)
    found = sql.execute(
        rows.where(TOKENS.c.secret == hash_secret(secret), USERS.c.active)
    ).one_or_none()
    if found is None or (found.ends is not None and found.ends <= now):
        return None
    rights = ROLES[found.role] & frozenset(found.scopes.split())
    return Account(found.name, found.role, rights, by_token=True)


def _put_link(sql: sa.Connection, name: str | None, role: str, now: float) -> str:
    secret = new_secret()
    sql.execute(LINKS.delete().where(LINKS.c.ends <= now))
    sql.execute(
        LINKS.insert().values(
            secret=hash_secret(secret), name=name, role=role, ends=now + LINK_LASTS
        )
    )
    return secret
