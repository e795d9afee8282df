"""A running programme, stored in a SQLite file or in PostgreSQL: people, states, plans, actions."""

from prefermab.programme.store.history import History
from prefermab.programme.store.plans import Planned
from prefermab.programme.store.programme import Programme

__all__ = ["History", "Planned", "Programme"]
