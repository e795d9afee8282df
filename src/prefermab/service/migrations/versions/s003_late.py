"""Ticks that came after their round was closed."""

from alembic import op

revision, down_revision = "s003", "s002"

WORDS = {
    "sqlite": {"whole": "INTEGER", "real": "REAL"},
    "postgresql": {"whole": "BIGINT", "real": "DOUBLE PRECISION"},
}


def upgrade() -> None:
    """Makes the table."""
    words = WORDS[op.get_bind().dialect.name]
    op.get_bind().exec_driver_sql(
        "CREATE TABLE late (round {whole} NOT NULL, person TEXT NOT NULL, action TEXT NOT NULL, "
        "reached BOOLEAN NOT NULL, why TEXT, name TEXT NOT NULL, at {real} NOT NULL, "
        "came {real} NOT NULL, PRIMARY KEY (round, person))".format(**words)
    )
