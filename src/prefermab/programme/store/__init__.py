"""A running programme in one SQLite file: who takes part, what was seen, planned and done."""

from prefermab.programme.store.history import History
from prefermab.programme.store.programme import Programme
from prefermab.programme.store.queries import Planned

__all__ = ["History", "Planned", "Programme"]
