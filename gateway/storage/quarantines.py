"""Deployments in quarantine: kept, so that a restart releases nobody."""

from __future__ import annotations

import time

from sqlalchemy import delete, insert, select

from gateway.storage import tables
from gateway.storage.database import Database


class QuarantineRepository:
    """Deployment ids with the reason each was taken out of service for."""

    def __init__(self, database: Database) -> None:
        self._engine = database.engine

    async def all(self) -> dict[str, str]:
        """Reasons by deployment."""
        async with self._engine.connect() as connection:
            rows = await connection.execute(select(tables.quarantines.c.deployment, tables.quarantines.c.reason))
            return {row[0]: row[1] for row in rows}

    async def put(self, deployment: str, reason: str) -> None:
        """Takes a deployment out of service, or says a new reason."""
        async with self._engine.begin() as connection:
            await connection.execute(delete(tables.quarantines).where(tables.quarantines.c.deployment == deployment))
            await connection.execute(
                insert(tables.quarantines).values(
                    deployment=deployment, reason=reason, since_ms=int(time.time() * 1000)
                )
            )

    async def remove(self, deployment: str) -> None:
        """Lets a deployment serve again."""
        async with self._engine.begin() as connection:
            await connection.execute(delete(tables.quarantines).where(tables.quarantines.c.deployment == deployment))
