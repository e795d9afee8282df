"""Creates and migrates the tables of a programme by Alembic scripts, when the programme is opened.

All scripts run in one transaction, so that nothing is changed if the process is killed. They are in
the folder `migrations`, and the table `prefermab_version` has the version of a programme's tables.
Files of prefermab 0.1.0 have a SQLite user_version of 1 to 4 instead, and `migrate_old_file` brings
them to 4. Files with Alembic's table have 5, which earlier versions of prefermab refuse.

To keep other tables beside those of a programme, write a folder of scripts like `migrations`
(`env.py`, and scripts in `versions`), choose a table for its version, and call `upgrade` within
`Database.writing`.
"""

import json
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from prefermab.common.errors import InputError, list_names
from prefermab.programme.store.audit import put_audit
from prefermab.programme.store.changes import note_tables
from prefermab.programme.store.connections import Place

APPLICATION = 0x70726D62
"""The application id that marks a SQLite file as a programme."""

FILE_VERSION = 5
"""SQLite's user_version of files whose tables are versioned by Alembic."""

FIRST_VERSION, NEWEST_VERSION = "0001", "0003_changes"
"""The script that makes the tables of files of user_version 4, and the last one."""

VERSION_TABLE = "prefermab_version"
SCRIPTS = Path(__file__).parent / "migrations"


def is_ready(sql: Connection) -> bool:
    """Whether the tables are those of this version."""
    if sql.dialect.name == "sqlite" and _marks(sql) != (APPLICATION, FILE_VERSION):
        return False
    return version_of(sql, VERSION_TABLE) == NEWEST_VERSION


def version_of(sql: Connection, table: str) -> str | None:
    """The version in a version table of Alembic; None if there is no such table."""
    if not sa.inspect(sql).has_table(table):
        return None
    return sql.execute(sa.select(sa.column("version_num")).select_from(sa.table(table))).scalar()


def prepare_tables(sql: Connection, place: Place, *, begin: bool, who: str | None) -> None:
    """Creates the tables of a new programme, and migrates those of earlier versions."""
    if sql.dialect.name == "sqlite":
        before = _prepare_file(sql, place, begin)
    else:
        before = _prepare_schema(sql, place, begin)
    upgrade(sql, SCRIPTS, VERSION_TABLE, place.shown)
    if before is None:
        put_audit(sql, who, "begin")
    elif before != NEWEST_VERSION:
        put_audit(sql, who, "migrate", details={"from": before, "to": NEWEST_VERSION})


def _prepare_file(sql: Connection, place: Place, begin: bool) -> str | None:
    """Checks a SQLite file, and migrates tables that are older than the scripts. Returns the file's
    version before that, None if it is new."""
    known, version = _marks(sql)
    tables = sql.exec_driver_sql("SELECT count(*) FROM sqlite_master").scalar()
    if known == 0 and version == 0 and tables == 0:
        if not begin:
            raise no_programme_error(place.shown)
        sql.exec_driver_sql(f"PRAGMA application_id = {APPLICATION}")
        sql.exec_driver_sql(f"PRAGMA user_version = {FILE_VERSION}")
        return None
    if known != APPLICATION:
        raise InputError(f"{place.shown} is a SQLite file, but not the file of a programme.")
    if version > FILE_VERSION:
        raise later_version_error(place.shown, str(version), str(FILE_VERSION))
    if version == FILE_VERSION:
        return version_of(sql, VERSION_TABLE)
    migrate_old_file(sql, version)
    upgrade(sql, SCRIPTS, VERSION_TABLE, place.shown, stamp=FIRST_VERSION)
    sql.exec_driver_sql(f"PRAGMA user_version = {FILE_VERSION}")
    return f"file {version}"


def _prepare_schema(sql: Connection, place: Place, begin: bool) -> str | None:
    """Checks a schema of PostgreSQL, and creates it if it is missing. Returns its version, None if
    it is new."""
    version = version_of(sql, VERSION_TABLE)
    if version is not None:
        return version
    there = sql.exec_driver_sql(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) ORDER BY 1",
        (place.name,),
    )
    names = list(there.scalars())
    if names:
        raise InputError(
            f"{place.shown}: '{place.name}' holds tables that are not a programme's "
            f"({list_names(names)}): expected a programme, or a new name."
        )
    if not begin:
        raise no_programme_error(place.shown)
    sql.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{place.name}"')
    return None


def upgrade(
    sql: Connection, scripts: Path, table: str, shown: str, *, stamp: str | None = None
) -> None:
    """Runs the Alembic scripts that have not run yet, in the transaction of this connection.

    The next entry of the audit log stores the tables of these scripts whole.

    Args:
        sql: A connection within `Database.writing`.
        scripts: The folder with `env.py` and `versions`.
        table: The table that holds the version.
        shown: The name of the place in messages.
        stamp: If given, only stores this version, and runs no script.
    """
    # Most programmes need no script, and Alembic is slow to import.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes.update(connection=sql, version_table=table)
    if stamp is not None:
        command.stamp(config, stamp)
        return
    known, version = ScriptDirectory.from_config(config), version_of(sql, table)
    if version is not None and version not in {one.revision for one in known.walk_revisions()}:
        raise later_version_error(shown, version, str(known.get_current_head()))
    command.upgrade(config, "head")
    note_tables(sql, table)


def no_programme_error(shown: str) -> InputError:
    """The error for a place without a programme."""
    return InputError(
        f"there is no programme at {shown}; Programme(path, model), or `prefermab "
        "programme begin`, begins one."
    )


def later_version_error(shown: str, version: str, known: str) -> InputError:
    """The error for tables of a later version."""
    return InputError(
        f"{shown} has tables of version {version}, but this prefermab reads version {known}: the "
        "programme was written by a later prefermab."
    )


def _marks(sql: Connection) -> tuple[int, int]:
    known = sql.exec_driver_sql("PRAGMA application_id").scalar_one()
    return known, sql.exec_driver_sql("PRAGMA user_version").scalar_one()


MAKE_DEVIATIONS = """
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


def migrate_old_file(sql: Connection, version: int) -> None:
    """Migrates the tables of a file from a version of 1 to 4 to version 4."""
    for step in OLD_FILE_STEPS[version - 1 :]:
        step(sql)


def _add_reached(sql: Connection) -> None:
    """From version 1 to 2: adds whether an action reached its person; stored actions count as
    reached."""
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
    """From version 2 to 3: adds deviations from the plan, which are unknown for past rounds."""
    sql.exec_driver_sql(MAKE_DEVIATIONS)
    last = sql.exec_driver_sql("SELECT max(round) FROM plans WHERE status = 'recorded'").scalar()
    first = json.dumps(1 + (last or 0))
    sql.exec_driver_sql("INSERT INTO meta VALUES ('deviations_from', ?)", (first,))


def _add_layout(sql: Connection) -> None:
    """From version 3 to 4: adds how the frames of a plan are stored; old ones are stored whole."""
    sql.exec_driver_sql("ALTER TABLE plans ADD COLUMN layout TEXT")


OLD_FILE_STEPS: tuple[Callable[[Connection], None], ...] = (
    _add_reached,
    _add_deviations,
    _add_layout,
)
"""The first step goes from version 1 to 2, the next from 2 to 3, and so on."""
