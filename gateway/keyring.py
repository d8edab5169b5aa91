"""API keys as an administrator handles them: made, listed, rotated, revoked. Used by CLI and admin API alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gateway.config.snapshot import Snapshot
from gateway.errors import InvalidValue, ManagedByConfig, NotFound
from gateway.identity.keys import new_secret
from gateway.ids import uuid7_hex
from gateway.storage.keys import KeyRepository, StoredKey


class KeyService:
    """Keys of the database, beside those of the configuration, which are read-only here."""

    def __init__(
        self,
        repository: KeyRepository,
        snapshot: Callable[[], Snapshot],
        digest: Callable[[bytes], bytes],
        forget: Callable[[bytes], None],
    ) -> None:
        self._repository = repository
        self._snapshot = snapshot
        self._digest = digest
        self._forget = forget

    async def create(
        self,
        tenant: str,
        workload: str | None = None,
        models: list[str] | None = None,
        limits: dict[str, Any] | None = None,
        expires_in_s: int | None = None,
    ) -> dict[str, Any]:
        """A new key; its secret is in this answer and nowhere else."""
        rules = self._snapshot().tenants.get(tenant)
        if rules is None:
            raise NotFound(f"there is no tenant `{tenant[:64]}`")
        if workload is not None and workload != "default" and workload not in rules.workloads:
            raise InvalidValue(f"the tenant has no workload `{workload}`", param="workload")
        secret = new_secret()
        now = int(time.time() * 1000)
        key = StoredKey(
            f"key_{uuid7_hex()}",
            tenant,
            self._digest(secret.encode()),
            "database",
            workload,
            tuple(models) if models is not None else None,
            limits,
            now,
            now + expires_in_s * 1000 if expires_in_s else None,
            None,
        )
        await self._repository.add(key)
        return {**_shown(key), "secret": secret}

    async def every(self, tenant: str | None) -> list[dict[str, Any]]:
        """All keys without secrets, those of the configuration among them."""
        rows = [_shown(key) for key in await self._repository.every(tenant) if key.origin == "database"]
        for rules in self._snapshot().tenants.values():
            if tenant not in (None, rules.id):
                continue
            rows += [
                {"id": k.id, "tenant": rules.id, "origin": "config", "workload": k.workload, "models": k.models}
                for k in rules.keys
            ]
        return rows

    async def revoke(self, id: str) -> None:
        """Ends a key for good."""
        key = await self._repository.by_id(id)
        if key is None or key.origin != "database":
            if any(k.id == id for rules in self._snapshot().tenants.values() for k in rules.keys):
                raise ManagedByConfig("this key is managed by the configuration file; remove it there")
            raise NotFound("there is no such key")
        await self._repository.revoke(id)
        self._forget(key.hash)

    async def rotate(self, id: str, overlap_s: int) -> dict[str, Any]:
        """A new key with the rules of an old one, which ends after the overlap."""
        old = await self._repository.by_id(id)
        if old is None or old.revoked_ms is not None:
            raise NotFound("there is no such key")
        made = await self.create(old.tenant, old.workload, list(old.models) if old.models else None, old.limits)
        await self._repository.expire(id, int((time.time() + overlap_s) * 1000))
        return made


def _shown(key: StoredKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "tenant": key.tenant,
        "origin": key.origin,
        "workload": key.workload,
        "models": key.models,
        "limits": key.limits,
        "created_ms": key.created_ms,
        "expires_ms": key.expires_ms,
        "revoked_ms": key.revoked_ms,
    }
