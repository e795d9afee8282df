"""Stores the rows that each entry of the audit log wrote, and finds entries by who and what."""

from alembic import op

revision, down_revision = "0003_changes", "0002"

STATEMENTS = (
    "CREATE TABLE changes (number {whole} NOT NULL, name TEXT NOT NULL, part {whole} NOT NULL, "
    "data {bytes} NOT NULL, PRIMARY KEY (number, name, part))",
    "CREATE INDEX changes_of_table ON changes (name, number, part)",
    "CREATE INDEX audit_who ON audit (who, number)",
    "CREATE INDEX audit_what ON audit (what, number)",
)
WORDS = {
    "sqlite": {"whole": "INTEGER", "bytes": "BLOB"},
    "postgresql": {"whole": "BIGINT", "bytes": "BYTEA"},
}


def upgrade() -> None:
    """Makes the table and the indices."""
    for statement in STATEMENTS:
        words = WORDS[op.get_bind().dialect.name]
        op.get_bind().exec_driver_sql(statement.format(**words))
