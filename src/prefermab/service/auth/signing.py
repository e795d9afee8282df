"""Sessions: signing in and out, and a limit on wrong passwords.

A session is a random text in a cookie of the browser; the database stores its hash. Signing in
always begins a new session and ends the one that the browser had before.
"""

import ipaddress
from collections.abc import Callable
from typing import Any

import argon2
import sqlalchemy as sa
from fastapi import Request, Response

from prefermab.errors import PrefermabError
from prefermab.service.auth import accounts
from prefermab.service.auth.access import ROLES, Account
from prefermab.service.auth.database import ATTEMPTS, KNOWN_ADDRESSES, SESSIONS, USERS, Records
from prefermab.service.auth.settings import Clock, Settings

WINDOW = 900.0
"""Seconds over which failed sign-ins are counted."""

LIMITS = {"pair": 5, "name": 30, "address": 60, "all": 3000}
"""Failed sign-ins that are allowed within the window, per name and address, per name, per address,
and in all. The first stops guessing; the next two stop it from many addresses, or for many names;
the last bounds the stored attempts. Who has signed in from an address before is held up there by
the first only, so that nobody can keep others out by failing often."""

MOST_ADDRESSES = 50
"""Addresses that are remembered for each user."""

LONGEST_ADDRESS = 45
"""Characters of an IP address."""

SKEW = 60.0
"""Seconds by which the clocks of two servers may differ. Times further in the future come from a
clock that was wrong."""

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
        idle, lasted = now - found.seen, now - found.begun
        if not (-SKEW <= idle <= settings.idle and -SKEW <= lasted <= settings.longest):
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
        name, address, now = name.strip(), address[:LONGEST_ADDRESS], self.clock()
        keys = keys_of(name, address)
        refused = TooManyError(
            f"too many sign-ins have failed: wait {WINDOW / 60:.0f} minutes and try again."
        )
        with self.records.writing() as sql:
            at = ATTEMPTS.c.at
            sql.execute(ATTEMPTS.delete().where((at <= now - WINDOW) | (at > now + SKEW)))
            full = {kind for kind, key in keys.items() if _failed(sql, key) >= LIMITS[kind]}
            here = KNOWN_ADDRESSES.c.who == keys["pair"]
            known = sql.execute(sa.select(KNOWN_ADDRESSES.c.name).where(here)).first() is not None
            if "pair" in full or (full and not known):
                raise refused
            sql.execute(ATTEMPTS.insert(), [{"who": key, "at": now} for key in keys.values()])
            user = accounts.get_user(sql, name)
        stored = None if user is None or not user.active else user.password
        if not verify(stored or self.nobody, password) or stored is None:
            with self.records.writing() as sql:
                note(sql, user.name if user else "nobody", "failed sign-in", {"address": address})
            if full:  # as to everybody else, so that the answer does not tell who is known here
                raise refused
            return None
        with self.records.writing() as sql:
            mine = ATTEMPTS.c.who.in_(list(keys.values())) & (ATTEMPTS.c.at == now)
            sql.execute(ATTEMPTS.delete().where(mine | (ATTEMPTS.c.who == keys["pair"])))
            note(sql, name, "sign in", {"address": address})
            self.remember(sql, name, address)
            return self.begin(sql, name)

    def remember(self, sql: sa.Connection, name: str, address: str) -> None:
        """Remembers that a user has signed in from an address."""
        table, pair = KNOWN_ADDRESSES, keys_of(name, address)["pair"]
        sql.execute(table.delete().where(table.c.who == pair))
        mine = sa.select(table.c.who).where(table.c.name == name).order_by(table.c.at.desc())
        old = sql.execute(mine.offset(MOST_ADDRESSES - 1)).scalars().all()
        sql.execute(table.delete().where(table.c.who.in_(old)))
        sql.execute(table.insert().values(who=pair, name=name, at=self.clock()))

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


def address_of(request: Request) -> str:
    """The address from which a request comes. That of a proxy's client counts only if `serve
    --proxy` names the proxy."""
    return request.client.host if request.client else ""


def keys_of(name: str, address: str) -> dict[str, str]:
    """What the limits count, as hashes. Of an IPv6 address only the network counts, since one
    machine may use 2**64 addresses.

    >>> from prefermab.service.auth.signing import keys_of
    >>> near = keys_of("Ana", "2001:db8::1"), keys_of("Ana", "2001:db8::ffff")
    >>> near[0] == near[1], near[0] == keys_of("Bea", "2001:db8::1")
    (True, False)
    """
    try:
        ip = ipaddress.ip_address(address)
        if isinstance(ip, ipaddress.IPv6Address):
            ip = ip.ipv4_mapped or ipaddress.ip_network((int(ip), 64), strict=False)
        address = str(ip)
    except ValueError:  # a socket of this machine has no address
        pass
    counted = {"pair": (name, address), "name": (name,), "address": (address,), "all": ()}
    return {
        kind: accounts.hash_secret("\n".join((kind, *parts))) for kind, parts in counted.items()
    }


def _failed(sql: sa.Connection, key: str) -> int:
    failed = sa.select(sa.func.count()).where(ATTEMPTS.c.who == key)
    return sql.execute(failed).scalar_one()


def verify(stored: str, password: str) -> bool:
    """Whether a password matches the stored hash."""
    try:
        return accounts.HASHER.verify(stored, password[: accounts.LONGEST_PASSWORD + 1])
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
