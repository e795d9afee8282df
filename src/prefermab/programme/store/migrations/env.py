"""Runs the scripts on the connection of `migrating.upgrade`, within its transaction."""

from alembic import context

given = context.config.attributes
context.configure(connection=given["connection"], version_table=given["version_table"])
context.run_migrations()
