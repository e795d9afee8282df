"""Files that versions before Alembic's wrote: their tables, brought to user_version 4."""

import json
from collections.abc import Callable

from sqlalchemy import Connection

DEVIATIONS = """
CREATE TABLE deviations (
    round INTEGER NOT NULL,
    id NOT NULL REFERENCES people (id),
    planned TEXT NOT NULL,
    done TEXT NOT NULL,
    allowed INTEGER NOT NULL CHECK (allowed IN (0, 1)),
    why TEXT,
    PRIMARY KEY (round, id)
) WITHOUT ROWID
"""

LAST = 4
"""The last version that was counted in this way."""


def bring_up(sql: Connection, version: int) -> None:
    """Migrates the tables of a file from a version of 1 to 4 to version 4."""
    for step in STEPS[version - 1 :]:
        step(sql)


def _add_reached(sql: Connection) -> None:
    """From version 1 to 2: adds whether an action reached its person; old ones count as reached."""
    sql.exec_driver_sql(
        "ALTER TABLE actions ADD COLUMN reached INTEGER NOT NULL DEFAULT 1 "
        "CHECK (reached IN (0, 1))"
    )
    stored = sql.exec_driver_sql("SELECT value FROM meta WHERE key = 'corrections'").scalar()
    if stored is None:
        return
    corrections = json.loads(stored)
    for old in corrections:
        old["actions"] = [[*row, 1] for row in old["actions"]]
    sql.exec_driver_sql(
        "UPDATE meta SET value = ? WHERE key = 'corrections'", (json.dumps(corrections),)
    )


def _add_deviations(sql: Connection) -> None:
    """From version 2 to 3: adds who was not treated as planned; of past rounds that is unknown."""
    sql.exec_driver_sql(DEVIATIONS)
    last = sql.exec_driver_sql("SELECT max(round) FROM plans WHERE status = 'recorded'").scalar()
    first = json.dumps(1 + (last or 0))
    sql.exec_driver_sql("INSERT INTO meta VALUES ('deviations_from', ?)", (first,))


def _add_layout(sql: Connection) -> None:
    """From version 3 to 4: adds how people and list of a plan are stored; old ones are whole."""
    sql.exec_driver_sql("ALTER TABLE plans ADD COLUMN layout TEXT")


STEPS: tuple[Callable[[Connection], None], ...] = (_add_reached, _add_deviations, _add_layout)
"""The first goes from version 1 to 2, and so on."""
