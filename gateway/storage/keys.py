"""API keys and tenants of the database."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from gateway.storage import tables
from gateway.storage.database import Database
from gateway.storage.scope import EVERY_TENANT, scoped


@dataclass(frozen=True, slots=True)
class StoredKey:
    """One API key without its secret, which nobody has."""

    id: str
    tenant: str
    hash: bytes
    origin: str
    workload: str | None
    models: tuple[str, ...] | None
    limits: dict[str, Any] | None
    created_ms: int
    expires_ms: int | None
    revoked_ms: int | None


class KeyRepository:
    """Keys by hash and id. Tenant scope is a parameter of everything that lists."""

    def __init__(self, database: Database) -> None:
        self._engine = database.engine

    async def by_hash(self, digest: bytes) -> StoredKey | None:
        """The key with this keyed hash."""
        async with self._engine.connect() as connection:
            query = scoped(select(tables.api_keys), tables.api_keys, EVERY_TENANT)
            row = (await connection.execute(query.where(tables.api_keys.c.hash == digest))).first()
        return _key(row) if row else None

    async def by_id(self, id: str) -> StoredKey | None:
        """The key with this id."""
        async with self._engine.connect() as connection:
            query = scoped(select(tables.api_keys), tables.api_keys, EVERY_TENANT)
            row = (await connection.execute(query.where(tables.api_keys.c.id == id))).first()
        return _key(row) if row else None

    async def every(self, tenant: str | None) -> list[StoredKey]:
        """Keys of one tenant, or (None) of all."""
        scope = EVERY_TENANT if tenant is None else tenant
        query = scoped(select(tables.api_keys), tables.api_keys, scope).order_by(tables.api_keys.c.created_ms)
        async with self._engine.connect() as connection:
            return [_key(row) for row in await connection.execute(query)]

    async def add(self, key: StoredKey) -> None:
        """Stores a new key."""
        async with self._engine.begin() as connection:
            await connection.execute(
                insert(tables.api_keys).values(
                    id=key.id,
                    tenant=key.tenant,
                    hash=key.hash,
                    origin=key.origin,
                    workload=key.workload,
                    models=None if key.models is None else json.dumps(key.models),
                    limits=None if key.limits is None else json.dumps(key.limits),
                    created_ms=key.created_ms,
                    expires_ms=key.expires_ms,
                )
            )

    async def revoke(self, id: str, at_ms: int | None = None) -> bool:
        """Revokes for good; a revoked key never comes back."""
        now = int(time.time() * 1000)
        keys = tables.api_keys
        query = scoped(update(keys), keys, EVERY_TENANT).where(keys.c.id == id, keys.c.revoked_ms.is_(None))
        async with self._engine.begin() as connection:
            result = await connection.execute(query.values(revoked_ms=now if at_ms is None else at_ms))
            return bool(result.rowcount)

    async def expire(self, id: str, at_ms: int) -> None:
        """Lets a key end at a time: the overlap of a rotation."""
        async with self._engine.begin() as connection:
            query = scoped(update(tables.api_keys), tables.api_keys, EVERY_TENANT)
            await connection.execute(query.where(tables.api_keys.c.id == id).values(expires_ms=at_ms))

    async def tombstones(self, ids: list[str]) -> set[str]:
        """Which of these config key ids were revoked: they are never resurrected."""
        keys = tables.api_keys
        query = scoped(select(keys.c.id), keys, EVERY_TENANT)
        query = query.where(keys.c.id.in_(ids), keys.c.revoked_ms.isnot(None))
        async with self._engine.connect() as connection:
            return {row[0] for row in await connection.execute(query)}


class TenantRepository:
    """Tenants made by CLI or admin API."""

    def __init__(self, database: Database) -> None:
        self._engine = database.engine

    async def all(self) -> dict[str, dict[str, Any]]:
        """Settings blocks by tenant id."""
        query = select(tables.tenants.c.id, tables.tenants.c.settings).where(tables.tenants.c.removed_ms.is_(None))
        async with self._engine.connect() as connection:
            return {row[0]: json.loads(row[1]) for row in await connection.execute(query)}

    async def put(self, id: str, settings: dict[str, Any]) -> None:
        """Creates or replaces a tenant."""
        async with self._engine.begin() as connection:
            await connection.execute(delete(tables.tenants).where(tables.tenants.c.id == id))
            await connection.execute(
                insert(tables.tenants).values(id=id, settings=json.dumps(settings), created_ms=int(time.time() * 1000))
            )

    async def remove(self, id: str) -> bool:
        """Marks a tenant as gone; its receipts stay."""
        query = update(tables.tenants).where(tables.tenants.c.id == id, tables.tenants.c.removed_ms.is_(None))
        async with self._engine.begin() as connection:
            return bool((await connection.execute(query.values(removed_ms=int(time.time() * 1000)))).rowcount)


class AuditRepository:
    """What administrators did."""

    def __init__(self, database: Database) -> None:
        self._engine = database.engine

    async def add(self, actor: str, action: str, object: str, detail: dict[str, Any]) -> None:
        """Records one action."""
        values = {"time_ms": int(time.time() * 1000), "actor": actor, "action": action, "object": object}
        async with self._engine.begin() as connection:
            await connection.execute(insert(tables.audit).values(**values, detail=json.dumps(detail)))

    async def page(self, limit: int, after: int | None) -> list[dict[str, Any]]:
        """Newest first."""
        query = select(tables.audit).order_by(tables.audit.c.seq.desc()).limit(limit)
        if after is not None:
            query = query.where(tables.audit.c.seq < after)
        async with self._engine.connect() as connection:
            return [dict(row._mapping) for row in await connection.execute(query)]


def _key(row: Row[Any]) -> StoredKey:
    values = row._mapping
    return StoredKey(
        values["id"],
        values["tenant"],
        bytes(values["hash"]),
        values["origin"],
        values["workload"],
        tuple(json.loads(values["models"])) if values["models"] else None,
        json.loads(values["limits"]) if values["limits"] else None,
        values["created_ms"],
        values["expires_ms"],
        values["revoked_ms"],
    )
