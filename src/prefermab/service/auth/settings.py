"""Settings of a server, and how its worker processes get them."""

import dataclasses
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prefermab.errors import InputError
from prefermab.programme.store.connections import parse_place

VARIABLE = "PREFERMAB_SERVICE"
"""Environment variable with the path of the settings that `prefermab serve` has written for its
worker processes. The settings may hold a password, and everybody's tools show an environment."""

LOCAL = ("localhost", "127.0.0.1", "[::1]")
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
"""A Host header: a name or an address, and perhaps a port."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a programme is served.

    Args:
        place: The programme's file, or the address of its database.
        hosts: Host names that requests may use, besides this machine's own.
        https: Whether browsers reach it by https; cookies are then sent by https only.
        worker_column: Column of the roster that says which field worker a person belongs to.
        most_bytes: The largest size of a request, in bytes.
        idle: Seconds without a request after which somebody has to sign in again.
        longest: Seconds after which somebody has to sign in again in any case.
        wait: Seconds to wait while another process writes.
        jobs: How many jobs may run at the same time.
        models: Folder for the models that jobs learn; by default beside the programme's file.
        name: Name of the programme in addresses, if the server has several; else empty.

    >>> from prefermab.service import Settings
    >>> Settings("calls.db", hosts=("calls.example",)).allows("CALLS.example:8321")
    True
    """

    place: str
    hosts: tuple[str, ...] = ()
    https: bool = False
    worker_column: str = "worker"
    most_bytes: int = 64 << 20
    idle: float = 8 * 3600.0
    longest: float = 7 * 24 * 3600.0
    wait: float = 20.0
    jobs: int = 2
    models: str = ""
    name: str = ""

    @property
    def models_folder(self) -> Path:
        """The folder for the models that jobs learn."""
        place = parse_place(self.place)
        beside = f"{place.path}-models" if place.path else f"prefermab-models/{place.name}"
        return Path(self.models or beside)

    @property
    def shown(self) -> str:
        """The place of the programme as messages show it."""
        return parse_place(self.place).shown

    @property
    def root(self) -> str:
        """The prefix of the programme's addresses: /p/NAME, or empty if it is the only one."""
        return f"/p/{self.name}" if self.name else ""

    def allows(self, host: str) -> bool:
        """Whether a request's Host header names this server."""
        found = HOST.fullmatch(host.lower())
        hosts = {f"[{one}]" if one.count(":") > 1 and one[0] != "[" else one for one in self.hosts}
        return found is not None and found[1] in {known.lower() for known in (*LOCAL, *hosts)}


def as_text(*settings: Settings) -> str:
    """The settings of one or several programmes as text, for other processes.

    >>> from prefermab.service import Settings
    >>> from prefermab.service.auth.settings import as_text, from_text
    >>> from_text(as_text(Settings("calls.db", hosts=("calls.example",))))[0].hosts
    ('calls.example',)
    """
    return json.dumps([dataclasses.asdict(one) for one in settings])


def from_text(text: str) -> list[Settings]:
    """The settings in a text of `as_text`."""
    found = []
    for one in json.loads(text):
        given: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in one.items()
        }
        found.append(Settings(**given))
    return found


def from_environment() -> list[Settings]:
    """The settings that `prefermab serve` has written for this process."""
    if VARIABLE not in os.environ:
        raise InputError("a worker process is started by `prefermab serve`.")
    return from_text(Path(os.environ[VARIABLE]).read_text("utf-8"))


def name_of(place: str) -> str:
    """The name of a programme on a server with several: from its file, or its name in the database.

    >>> from prefermab.service.auth.settings import name_of
    >>> name_of("data/first calls.db"), name_of("postgresql://anna@localhost/health#visits")
    ('first-calls', 'visits')
    """
    found = parse_place(place)
    text = found.name if found.path is None else found.path.stem
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or "programme"


def check_programme_names(settings: Sequence[Settings]) -> None:
    """Raises if two programmes of a server have the same name."""
    names = [one.name for one in settings]
    if len({name.lower() for name in names}) < len(names):
        raise InputError(
            f"the programmes of a server need different names, not {', '.join(names)}; they are "
            "called by their files, or by their names in the database."
        )


Clock = Callable[[], float]
"""Returns the time in seconds since 1970; tests pass their own."""
