"""Runs migrations on the connection it is handed, one process at a time, without waiting long for locks."""

from __future__ import annotations

from alembic import context
from sqlalchemy import text

from gateway.storage.tables import metadata

_ADVISORY_LOCK = 7_235_001


def run() -> None:
    """Applies what is pending inside one transaction."""
    connection = context.config.attributes["connection"]
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET lock_timeout = '5s'"))
        connection.execute(text("SET statement_timeout = '120s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    context.configure(
        connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite"
    )
    with context.begin_transaction():
        context.run_migrations()


run()
