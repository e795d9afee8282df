"""A running programme in a SQLite file or in PostgreSQL: who takes part, what was seen, planned and
done."""

from prefermab.programme.store.history import History
from prefermab.programme.store.plans import Planned
from prefermab.programme.store.programme import Programme

__all__ = ["History", "Planned", "Programme"]
