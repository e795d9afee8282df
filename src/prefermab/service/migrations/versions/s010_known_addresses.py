"""Addresses from which users have signed in; attempts to sign in are stored as hashes."""

from alembic import op

revision, down_revision = "s010", "s003"

WORDS = {"sqlite": "REAL", "postgresql": "DOUBLE PRECISION"}


def upgrade() -> None:
    """Makes the table, and forgets earlier attempts, which hold names of any length."""
    sql = op.get_bind()
    sql.exec_driver_sql(
        "CREATE TABLE known_addresses (who TEXT PRIMARY KEY, name TEXT NOT NULL, "
        f"at {WORDS[sql.dialect.name]} NOT NULL)"
    )
    sql.exec_driver_sql("CREATE INDEX known_addresses_of ON known_addresses (name)")
    sql.exec_driver_sql("DELETE FROM attempts")
