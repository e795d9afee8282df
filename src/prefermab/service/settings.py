"""What a server is told when it starts; every worker process gets the same."""

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

from prefermab.errors import InputError

VARIABLE = "PREFERMAB_SERVICE"
"""Environment variable with which `prefermab serve` hands its settings to worker processes."""

LOCAL = ("localhost", "127.0.0.1", "[::1]")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a programme is served.

    Args:
        place: The programme's file, or the address of its database.
        hosts: Names under which browsers may ask for it, besides this machine's own.
        https: Whether browsers reach it by https: cookies are then sent by https only.
        worker_column: Column of the roster that says which field worker a person belongs to.
        most_bytes: The most bytes that a request may have.
        idle: Seconds without a request after which somebody has to sign in again.
        longest: Seconds after which somebody has to sign in again in any case.
        wait: Seconds to wait while another process writes.
        jobs: How many jobs may run at the same time.
        models: Folder for the models that jobs learn; beside the programme's file if left out.

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

    @property
    def models_folder(self) -> Path:
        """Where models are that jobs have learned."""
        beside = "prefermab-models" if "://" in self.place else f"{self.place}-models"
        return Path(self.models or beside)

    def allows(self, host: str) -> bool:
        """Whether a request's Host header names this server."""
        name = host.strip().lower()
        name = name[: name.index("]") + 1] if name.startswith("[") and "]" in name else name
        name = name if name.startswith("[") else name.partition(":")[0]
        return name in {known.lower() for known in (*LOCAL, *self.hosts)}

    def to_environment(self) -> None:
        """Puts the settings where worker processes find them."""
        os.environ[VARIABLE] = json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_environment(cls) -> "Settings":
        """The settings of the process that started this one."""
        if VARIABLE not in os.environ:
            raise InputError("a worker process is started by `prefermab serve`.")
        given = json.loads(os.environ[VARIABLE])
        return cls(**{**given, "hosts": tuple(given["hosts"])})


Clock = Callable[[], float]
"""Seconds since 1970; tests have one of their own."""
