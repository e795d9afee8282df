"""Tables of the service, beside those of the programme in the same database.

Times are seconds since 1970. Secrets (sessions, tokens, links) are stored as SHA-256 of a random
text of 256 bits; passwords by argon2. A person's id is stored as text.
"""

import sqlalchemy as sa

METADATA = sa.MetaData()

USERS = sa.Table(
    "users",
    METADATA,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("role", sa.String, nullable=False),
    sa.Column("password", sa.String),
    sa.Column("active", sa.Boolean, nullable=False, default=True),
    sa.Column("made", sa.Float, nullable=False),
)
LINKS = sa.Table(
    "links",
    METADATA,
    sa.Column("secret", sa.String, primary_key=True),
    sa.Column("name", sa.String),
    sa.Column("role", sa.String),
    sa.Column("ends", sa.Float, nullable=False),
)
"""One-time links to set a password: for a user, or without a name for the first admin."""

SESSIONS = sa.Table(
    "sessions",
    METADATA,
    sa.Column("secret", sa.String, primary_key=True),
    sa.Column("name", sa.String, sa.ForeignKey("users.name"), nullable=False, index=True),
    sa.Column("begun", sa.Float, nullable=False),
    sa.Column("seen", sa.Float, nullable=False),
)
TOKENS = sa.Table(
    "tokens",
    METADATA,
    sa.Column("secret", sa.String, primary_key=True),
    sa.Column("number", sa.Integer, nullable=False, unique=True),
    sa.Column("label", sa.String, nullable=False),
    sa.Column("name", sa.String, sa.ForeignKey("users.name"), nullable=False, index=True),
    sa.Column("scopes", sa.String, nullable=False),
    sa.Column("made", sa.Float, nullable=False),
    sa.Column("ends", sa.Float),
)
ATTEMPTS = sa.Table(
    "attempts",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("who", sa.String, nullable=False, index=True),
    sa.Column("at", sa.Float, nullable=False, index=True),
)
"""Sign-ins that failed, or are under way: one row for each thing that is limited."""

MARKS = sa.Table(
    "marks",
    METADATA,
    sa.Column("round", sa.Integer, primary_key=True),
    sa.Column("person", sa.String, primary_key=True),
    sa.Column("action", sa.String, nullable=False),
    sa.Column("reached", sa.Boolean, nullable=False),
    sa.Column("why", sa.String),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
)
"""What was done so far in a round that is not recorded yet."""

JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("kind", sa.String, nullable=False),
    sa.Column("asked", sa.String, nullable=False),
    sa.Column("name", sa.String, nullable=False),
    sa.Column("status", sa.String, nullable=False, index=True),
    sa.Column("share", sa.Float, nullable=False),
    sa.Column("doing", sa.String, nullable=False),
    sa.Column("answer", sa.String),
    sa.Column("process", sa.String),
    sa.Column("made", sa.Float, nullable=False),
    sa.Column("beat", sa.Float, nullable=False),
    sa.Column("ended", sa.Float),
)
