"""A running programme in one SQLite file: who is in, what was seen, planned and done."""

from prefermab.programme.history import History
from prefermab.programme.keeper import Programme
from prefermab.programme.ledger import Planned

__all__ = ["History", "Planned", "Programme"]
