"""A running programme in one SQLite file: who is in, what was seen, planned and done."""

from prefermab.programme.history import History
from prefermab.programme.programme import Programme
from prefermab.programme.queries import Planned

__all__ = ["History", "Planned", "Programme"]
