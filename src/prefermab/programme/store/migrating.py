"""Creates and migrates the tables of a programme by Alembic scripts, when the programme is opened.

All scripts run in one transaction, so that nothing is changed if the process is killed. They are in
the folder `migrations`, and the table `prefermab_version` has the version of a programme's tables.
SQLite files have the user_version 5: prefermab 0.1.0, whose files had 1 to 4, refuses them.

To keep other tables beside those of a programme, write a folder of scripts like `migrations`
(`env.py`, and scripts in `versions`), choose a table for its version, and call `upgrade` within
`Database.writing`.
"""

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import Connection

from prefermab.errors import InputError, list_names
from prefermab.programme.store.audit import put_audit
from prefermab.programme.store.changes import note_tables
from prefermab.programme.store.connections import Place

APPLICATION = 0x70726D62
"""The application id that marks a SQLite file as a programme."""

FILE_VERSION = 5
"""SQLite's user_version of files whose tables are versioned by Alembic."""

NEWEST_VERSION = "0003_changes"
"""The last script."""

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
    if version < FILE_VERSION:
        raise InputError(
            f"{place.shown} was written by prefermab 0.1.0, whose plans later versions make "
            "otherwise: open it once with prefermab 0.2.0, which updates it."
        )
    return version_of(sql, VERSION_TABLE)


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


def upgrade(sql: Connection, scripts: Path, table: str, shown: str) -> None:
    """Runs the Alembic scripts that have not run yet, in the transaction of this connection.

    The next entry of the audit log stores the tables of these scripts whole.

    Args:
        sql: A connection within `Database.writing`.
        scripts: The folder with `env.py` and `versions`.
        table: The table that holds the version.
        shown: The name of the place in messages.
    """
    # Most programmes need no script, and Alembic is slow to import.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes.update(connection=sql, version_table=table)
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
