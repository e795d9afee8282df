"""A running programme, stored in a SQLite file or in PostgreSQL: people, states, plans, actions."""

from prefermab.errors import missing

try:
    from prefermab.programme.store.history import History
    from prefermab.programme.store.plans import Planned
    from prefermab.programme.store.programme import Programme
except ModuleNotFoundError as error:
    raise missing(error, "programme", "a programme") from None

__all__ = ["History", "Planned", "Programme"]
