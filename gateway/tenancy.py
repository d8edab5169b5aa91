"""Tenants of the database, beside those of the configuration: made, removed, and merged into what traffic reads."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from gateway.config.build import tenant as resolved
from gateway.config.loader import RESERVED_TENANTS
from gateway.config.settings import TenantSettings
from gateway.config.snapshot import Snapshot, Tenant
from gateway.errors import Conflict, InvalidValue, ManagedByConfig, NotFound
from gateway.storage.keys import KeyRepository, TenantRepository


def validated(id: str, settings: dict[str, Any]) -> Tenant:
    """A tenant's block as rules; raises with the first thing that is wrong. Keys are never part of it."""
    if "keys" in settings:
        raise InvalidValue("keys are made on their own, with `assay keys create`", param="keys")
    try:
        block = TenantSettings.model_validate({**settings, "id": id})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidValue(f"{place}: {first['msg']}", param=place or None) from None
    return replace(resolved(block), origin="database")


def merged(snapshot: Snapshot, stored: dict[str, dict[str, Any]]) -> Snapshot:
    """The snapshot with the database's tenants; the configuration's win, a block that no longer fits is out."""
    tenants = {name: tenant for name, tenant in snapshot.tenants.items() if tenant.origin == "config"}
    for name, settings in stored.items():
        if name not in tenants:
            try:
                tenants[name] = validated(name, settings)
            except InvalidValue:
                continue
    return replace(snapshot, version=snapshot.version + 1, tenants=MappingProxyType(tenants))


class TenantService:
    """What CLI and admin API do with tenants."""

    def __init__(self, tenants: TenantRepository, keys: KeyRepository) -> None:
        self._tenants = tenants
        self._keys = keys

    async def create(self, snapshot: Snapshot, id: str, settings: dict[str, Any]) -> None:
        """Makes a tenant; it is served everywhere within a second."""
        if id in RESERVED_TENANTS:
            raise InvalidValue("this name is reserved for the gateway's own canaries", param="id")
        validated(id, settings)
        if id in snapshot.tenants or id in await self._tenants.all():
            raise Conflict(f"the tenant `{id}` exists already")
        await self._tenants.put(id, settings)

    async def remove(self, snapshot: Snapshot, id: str) -> int:
        """Ends a tenant and revokes its keys; its receipts stay. Returns how many keys were revoked."""
        known = snapshot.tenants.get(id)
        if known is not None and known.origin == "config":
            raise ManagedByConfig("this tenant is managed by the configuration file; remove it there")
        if not await self._tenants.remove(id):
            raise NotFound("there is no such tenant")
        revoked = 0
        for key in await self._keys.every(id):
            revoked += await self._keys.revoke(key.id)
        return revoked
