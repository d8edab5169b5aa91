"""The admin API: every route demands an administrator, attached to the router and so to each route on it."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from gateway.errors import Conflict, InvalidApiKey, InvalidValue, NotFound
from gateway.keyring import KeyService


class NewKey(BaseModel):
    """A key to be made."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(min_length=1, max_length=64)]
    workload: Annotated[str, Field(max_length=64)] | None = None
    models: Annotated[list[str], Field(max_length=256)] | None = None
    limits: dict[str, Any] | None = None
    expires_in_s: Annotated[int, Field(gt=0)] | None = None


class NewTenant(BaseModel):
    """A tenant to be made; `settings` is its block as in `assay.yaml`, without keys."""

    model_config = ConfigDict(extra="forbid")

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    settings: dict[str, Any] = Field(default_factory=dict)


@dataclass(slots=True)
class AdminServices:
    """What these routes are given."""

    keys: KeyService
    deployments: Callable[[], list[dict[str, Any]]]
    tenants: Callable[[], list[dict[str, Any]]]
    create_tenant: Callable[[str, dict[str, Any]], Awaitable[None]]
    remove_tenant: Callable[[str], Awaitable[int]]
    policies: Callable[[], list[dict[str, Any]]]
    quarantine: Callable[[str, str], Awaitable[bool]]
    release: Callable[[str], Awaitable[bool]]
    audit: Callable[[int, int | None], Awaitable[list[dict[str, Any]]]]
    record: Callable[[str, str, str, dict[str, Any]], Awaitable[None]]


class Reasoned(BaseModel):
    """An action that needs a reason."""

    model_config = ConfigDict(extra="forbid")

    reason: Annotated[str, Field(min_length=1, max_length=500)]


def administrator(request: Request) -> str:
    """Who acts; raises unless the request bears the admin token, compared in constant time."""
    given = request.headers.get("authorization", "")
    scheme, _, token = given.partition(" ")
    expected = request.app.state.admin_token().reveal().encode()
    if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), expected):
        raise InvalidApiKey("an administrator's token is required")
    return "admin"


Actor = Annotated[str, Depends(administrator)]


def admin_routes(services: AdminServices) -> APIRouter:
    """`/admin/api/v1/...` for the bearer admin token."""

    router = APIRouter(prefix="/admin/api/v1", dependencies=[Depends(administrator)])

    @router.get("/keys")
    async def list_keys(tenant: str | None = None) -> dict[str, Any]:
        """API keys without their secrets, which nobody has."""
        return {"object": "list", "data": await services.keys.every(tenant), "has_more": False}

    @router.post("/keys", status_code=201)
    async def create_key(new: NewKey, who: Actor) -> dict[str, Any]:
        """Makes a key; the secret is in this answer and nowhere else."""
        made = await services.keys.create(new.tenant, new.workload, new.models, new.limits, new.expires_in_s)
        await services.record(who, "key.create", made["id"], {"tenant": new.tenant})
        return made

    @router.delete("/keys/{id}")
    async def revoke_key(id: str, who: Actor) -> dict[str, Any]:
        """Revokes a key for good, in every process within a second."""
        await services.keys.revoke(id)
        await services.record(who, "key.revoke", id, {})
        return {"id": id, "revoked": True}

    @router.get("/tenants")
    async def list_tenants() -> dict[str, Any]:
        """Tenants and their rules."""
        return {"object": "list", "data": services.tenants(), "has_more": False}

    @router.post("/tenants", status_code=201)
    async def create_tenant(new: NewTenant, who: Actor) -> dict[str, Any]:
        """Makes a tenant with its allow-lists, requirements, workloads and limits."""
        await services.create_tenant(new.id, new.settings)
        await services.record(who, "tenant.create", new.id, {})
        return {"id": new.id, "origin": "database"}

    @router.delete("/tenants/{id}")
    async def remove_tenant(id: str, who: Actor) -> dict[str, Any]:
        """Ends a tenant and revokes its keys; its receipts stay."""
        revoked = await services.remove_tenant(id)
        await services.record(who, "tenant.remove", id, {"keys": revoked})
        return {"id": id, "removed": True, "keys_revoked": revoked}

    @router.get("/deployments")
    async def list_deployments() -> dict[str, Any]:
        """Deployments with their condition."""
        return {"object": "list", "data": services.deployments(), "has_more": False}

    @router.post("/deployments/{id}/quarantine")
    async def quarantine(id: str, body: Reasoned, who: Actor) -> dict[str, Any]:
        """Takes a deployment out of service until it is released."""
        if not await services.quarantine(id, body.reason):
            raise NotFound("there is no such deployment")
        await services.record(who, "deployment.quarantine", id, {"reason": body.reason})
        return {"id": id, "quarantined": True}

    @router.post("/deployments/{id}/release")
    async def release(id: str, body: Reasoned, who: Actor) -> dict[str, Any]:
        """Lets a quarantined deployment serve again."""
        if not await services.release(id):
            raise Conflict("the deployment is not quarantined")
        await services.record(who, "deployment.release", id, {"reason": body.reason})
        return {"id": id, "quarantined": False}

    @router.get("/policies")
    async def list_policies() -> dict[str, Any]:
        """Policies with file, line and reason."""
        return {"object": "list", "data": services.policies(), "has_more": False}

    @router.get("/audit")
    async def list_audit(limit: int = 100, after: int | None = None) -> dict[str, Any]:
        """What administrators did, newest first."""
        if not 1 <= limit <= 1000:
            raise InvalidValue("`limit` must be between 1 and 1000", param="limit")
        rows = await services.audit(limit + 1, after)
        return {"object": "list", "data": rows[:limit], "has_more": len(rows) > limit}

    return router
