"""Files that an earlier prefermab wrote, brought to the tables of this one when they are opened.

Each step goes from one version of the tables to the next, in the transaction that opens the file:
a process that is killed meanwhile leaves the file as it was.
"""

import json
from collections.abc import Callable
from sqlite3 import Connection


def migrate(sql: Connection, version: int) -> None:
    """Takes every step from a version of the tables to the latest."""
    for step in STEPS[version - 1 :]:
        step(sql)


def _reached(sql: Connection) -> None:
    """From 1 to 2: whether an action reached its person; version 1 did not ask, so all count as
    having done so."""
    sql.execute(
        "ALTER TABLE actions ADD COLUMN reached INTEGER NOT NULL DEFAULT 1 "
        "CHECK (reached IN (0, 1))"
    )
    kept = sql.execute("SELECT value FROM meta WHERE key = 'corrections'").fetchone()
    if kept is None:
        return
    corrections = json.loads(kept[0])
    for old in corrections:
        old["actions"] = [[*row, 1] for row in old["actions"]]
    sql.execute("UPDATE meta SET value = ? WHERE key = 'corrections'", (json.dumps(corrections),))


STEPS: tuple[Callable[[Connection], None], ...] = (_reached,)
"""The first goes from version 1 to 2, and so on."""
