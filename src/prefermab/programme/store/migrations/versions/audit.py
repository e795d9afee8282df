"""Creates the audit log: rows can only be added at its end, and never changed or removed."""

from alembic import op

revision, down_revision = "0002", "0001"

TABLE = """
CREATE TABLE audit (
    number {whole} PRIMARY KEY,
    at TEXT NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    why TEXT,
    details TEXT NOT NULL,
    digest TEXT NOT NULL,
    hash TEXT NOT NULL
)
"""

REFUSAL = "rows of the audit log can only be added at its end"

SQLITE = [
    f"CREATE TRIGGER audit_{when.lower()} BEFORE {when} ON audit {which} "
    f"BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END"
    for when, which in (
        ("UPDATE", ""),
        ("DELETE", ""),
        # INSERT OR REPLACE would remove a row without a DELETE.
        ("INSERT", "WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM audit)"),
    )
]

POSTGRESQL = [
    f"CREATE FUNCTION refuse_audit() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{REFUSAL}'; END $$",
    "CREATE TRIGGER audit_change BEFORE UPDATE OR DELETE OR TRUNCATE ON audit "
    "FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit()",
]


def upgrade() -> None:
    """Makes the table and its triggers."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    table = TABLE.format(whole="INTEGER" if sqlite else "BIGINT")
    for statement in (table, *(SQLITE if sqlite else POSTGRESQL)):
        op.get_bind().exec_driver_sql(statement)
