"""Reads and writes tables (files, databases and frames), and makes logs from events.

>>> import pathlib, tempfile
>>> import polars as pl
>>> import prefermab as pm
>>> file = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
>>> pm.tables.write_table(pl.DataFrame({"id": [7, 8], "state": ["good", "bad"]}), file)
>>> pm.tables.read_table(file)["state"].to_list()
['good', 'bad']
"""

from prefermab.errors import InputWarning
from prefermab.programme.events.convert import Counts, EventLog, from_events
from prefermab.programme.tables.privacy import pseudonyms
from prefermab.programme.tables.table import as_frame, read_table, write_table

__all__ = [
    "Counts",
    "EventLog",
    "InputWarning",
    "as_frame",
    "from_events",
    "pseudonyms",
    "read_table",
    "write_table",
]
