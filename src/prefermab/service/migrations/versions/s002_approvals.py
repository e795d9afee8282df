"""Lists that a planner has approved."""

from alembic import op

revision, down_revision = "s002", "s001"

WORDS = {
    "sqlite": {"whole": "INTEGER", "real": "REAL"},
    "postgresql": {"whole": "BIGINT", "real": "DOUBLE PRECISION"},
}


def upgrade() -> None:
    """Makes the table."""
    words = WORDS[op.get_bind().dialect.name]
    op.get_bind().exec_driver_sql(
        "CREATE TABLE approvals (round {whole} NOT NULL, attempt {whole} NOT NULL, "
        "name TEXT NOT NULL, at {real} NOT NULL, PRIMARY KEY (round, attempt))".format(**words)
    )
