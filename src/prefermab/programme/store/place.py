"""Where a programme is: a file, or a name in a PostgreSQL database.

    calls.db                                      a SQLite file
    postgresql://anna@db.example.org/health#calls   the programme `calls` of a database

Of an address, messages show no password and no settings.
"""

import dataclasses
import re
from pathlib import Path
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from prefermab.errors import InputError, brief

SCHEMES = ("postgresql+psycopg", "postgresql", "postgres")
EXAMPLE = "postgresql://anna@db.example.org/health#calls"
NAME = re.compile(r"(?!pg_|information_schema$|public$)[a-z][a-z0-9_]{0,47}")


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a programme is: a path, or the address of a database and a name in it."""

    path: Path | None
    url: URL | None = None
    name: str = ""

    @property
    def shown(self) -> str:
        """What messages call it: never with a password."""
        if self.url is None:
            return str(self.path)
        url = self.url.set(drivername="postgresql", query={})
        return f"{url.render_as_string(hide_password=True)}#{self.name}"

    def without_password(self, text: str) -> str:
        """A message of the database's, without the password if it should hold one."""
        secret = None if self.url is None else self.url.password
        return text.replace(str(secret), "***") if secret else text


def parse_place(place: str | Path) -> Place:
    """The place that somebody wrote: a path or an address.

    >>> from prefermab.programme.store.place import parse_place
    >>> parse_place("postgresql://anna:secret@localhost/health#calls").shown
    'postgresql://anna:***@localhost/health#calls'
    """
    text = str(place)
    scheme, colon, _ = text.partition("://")
    if not colon and not text.startswith(("sqlite:", *(f"{one}:" for one in SCHEMES))):
        return Place(Path(place))
    if not colon or scheme not in SCHEMES:
        raise InputError(
            f"expected the path of a file, such as calls.db, or an address, such as {EXAMPLE}, "
            f"not '{brief(text.partition(':')[0])}:…'."
        )
    address, mark, name = text.rpartition("#")
    if not mark:
        raise InputError(
            f"the address of the database names no programme; write one after it, as in {EXAMPLE}."
        )
    if not NAME.fullmatch(name):
        raise InputError(
            f"a programme in a database has a name of small letters, digits and _, at most 48, "
            f"such as calls, not '{brief(name)}'."
        )
    return Place(None, _url(address), name)


def _url(address: str) -> URL:
    try:
        url = make_url(address).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        raise InputError(
            f"the address of the database cannot be read; expected {EXAMPLE}."
        ) from None
    given: dict[str, Any] = dict(url.query)
    secret = given.pop("password", None)
    if isinstance(secret, str):
        url = url.set(password=secret)
    if not url.database and "dbname" not in given:
        raise InputError(f"the address names no database; expected one as in {EXAMPLE}.")
    return url.set(query=given)
