"""Sessions: signing in and out, and a limit on wrong passwords.

A session is a random text in a cookie of the browser; the database stores its hash. Signing in
always begins a new session and ends the one that the browser had before.
"""

from collections.abc import Callable
from typing import Any

import argon2
import sqlalchemy as sa
from fastapi import Request, Response

from prefermab.errors import PrefermabError
from prefermab.service import accounts
from prefermab.service.access import ROLES, Account
from prefermab.service.database import ATTEMPTS, SESSIONS, USERS, Records
from prefermab.service.settings import Clock, Settings

WINDOW = 900.0
"""Seconds over which failed sign-ins are counted."""

LIMITS = {"pair": 5, "name": 30, "address": 60}
"""Failed sign-ins that are allowed within the window, per name and address, per name, per address.
The first stops guessing; the others stop it from many addresses, or for many names."""

TOUCH = 60.0
"""Least seconds between two updates of the time of a session's last request."""


Note = Callable[[sa.Connection, str, str, dict[str, Any]], None]
"""Writes a row of the audit log: who, what and details."""


class TooManyError(PrefermabError):
    """Too many sign-ins have failed."""


class SignIns:
    """The sessions of a programme, stored in its tables."""

    def __init__(self, records: Records, settings: Settings, clock: Clock):
        self.records, self.settings, self.clock = records, settings, clock
        # Unknown users are compared with this hash, so that their answer takes equally long.
        self.nobody = accounts.HASHER.hash(accounts.new_secret())

    @property
    def cookie(self) -> str:
        """The name of the cookie, different for each programme. Browsers accept the prefix __Host-
        only by https and for one host."""
        name = f"prefermab-{self.settings.name}" if self.settings.name else "prefermab"
        return f"__Host-{name}" if self.settings.https else name

    def identify(self, request: Request) -> Account | None:
        """The account that sends a request, by its bearer token, or else by its session cookie."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind:
            if kind.lower() != "bearer" or not token.strip():
                return None
            with self.records.reading() as sql:
                return accounts.by_token(sql, token.strip(), self.clock())
        secret = request.cookies.get(self.cookie)
        return None if not secret else self._by_session(accounts.hash_secret(secret))

    def _by_session(self, hashed: str) -> Account | None:
        now, settings = self.clock(), self.settings
        rows = sa.select(SESSIONS.c.begun, SESSIONS.c.seen, USERS).where(
            USERS.c.name == SESSIONS.c.name
        )
        with self.records.reading() as sql:
            found = sql.execute(rows.where(SESSIONS.c.secret == hashed)).one_or_none()
        if found is None or not found.active:
            return None
        if now - found.seen > settings.idle or now - found.begun > settings.longest:
            return None
        if now - found.seen > TOUCH:
            self._touch(hashed, now)
        return Account(found.name, found.role, ROLES[found.role])

    def _touch(self, hashed: str, now: float) -> None:
        with self.records.writing() as sql:
            sql.execute(SESSIONS.update().where(SESSIONS.c.secret == hashed).values(seen=now))

    def sign_in(self, name: str, password: str, address: str, note: Note) -> str | None:
        """Begins a session and returns its secret; None if name or password are wrong. Both
        outcomes are written to the audit log by `note`.

        An attempt is counted before the password is checked, so that parallel attempts count too.
        After a success it is deleted.
        """
        name, now = name.strip(), self.clock()
        keys = {"pair": f"{name}\n{address}", "name": name, "address": f"\n{address}"}
        with self.records.writing() as sql:
            sql.execute(ATTEMPTS.delete().where(ATTEMPTS.c.at <= now - WINDOW))
            for kind, key in keys.items():
                failed = sa.select(sa.func.count()).where(ATTEMPTS.c.who == key)
                if sql.execute(failed).scalar_one() >= LIMITS[kind]:
                    raise TooManyError(
                        f"too many sign-ins have failed: wait {WINDOW / 60:.0f} minutes and try "
                        "again."
                    )
            sql.execute(ATTEMPTS.insert(), [{"who": key, "at": now} for key in keys.values()])
            user = accounts.get_user(sql, name)
        stored = None if user is None or not user.active else user.password
        if not verify(stored or self.nobody, password) or stored is None:
            with self.records.writing() as sql:
                note(sql, user.name if user else "nobody", "failed sign-in", {"address": address})
            return None
        with self.records.writing() as sql:
            mine = ATTEMPTS.c.who.in_(list(keys.values())) & (ATTEMPTS.c.at == now)
            sql.execute(ATTEMPTS.delete().where(mine | (ATTEMPTS.c.who == keys["pair"])))
            note(sql, name, "sign in", {"address": address})
            return self.begin(sql, name)

    def begin(self, sql: sa.Connection, name: str) -> str:
        """Begins a session and returns its secret; deletes expired sessions."""
        secret, now = accounts.new_secret(), self.clock()
        over = (SESSIONS.c.seen < now - self.settings.idle) | (
            SESSIONS.c.begun < now - self.settings.longest
        )
        sql.execute(SESSIONS.delete().where(over))
        sql.execute(
            SESSIONS.insert().values(
                secret=accounts.hash_secret(secret), name=name, begun=now, seen=now
            )
        )
        return secret

    def sign_out(self, request: Request) -> None:
        """Ends the session of the browser, if it has one."""
        secret = request.cookies.get(self.cookie)
        if secret:
            with self.records.writing() as sql:
                sql.execute(
                    SESSIONS.delete().where(SESSIONS.c.secret == accounts.hash_secret(secret))
                )

    def give_cookie(self, response: Response, secret: str) -> None:
        """Sets the session cookie: scripts cannot read it, and other sites' requests do not send
        it."""
        response.set_cookie(
            self.cookie, secret, max_age=int(self.settings.longest), path="/",
            secure=self.settings.https, httponly=True, samesite="lax",
        )  # fmt: skip

    def take_cookie(self, response: Response) -> None:
        """Deletes the session cookie."""
        response.delete_cookie(
            self.cookie, path="/", secure=self.settings.https, httponly=True, samesite="lax"
        )


def verify(stored: str, password: str) -> bool:
    """Whether a password matches the stored hash."""
    try:
        return accounts.HASHER.verify(stored, password[: accounts.LONGEST_PASSWORD + 1])
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
