"""Receipts and usage of every tenant, for administrators."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any, Protocol

from fastapi import APIRouter, Depends, Request

from gateway.errors import InvalidValue, NotFound
from gateway.http.admin import administrator
from gateway.http.public import receipt_filter
from gateway.receipts.document import Proofs, document
from gateway.receipts.record import ReceiptStore, UsageRow

_DAY_MS = 86_400_000


class SearchedStore(ReceiptStore, Protocol):
    """The store, with its sums."""

    async def usage(self, tenant: str | None, since_ms: int, until_ms: int) -> list[UsageRow]: ...


def receipt_search_routes(store: SearchedStore, log: Proofs) -> APIRouter:
    """`GET /admin/api/v1/receipts`, `/receipts/{id}`, `/usage`. Keys that open commitments stay with the owner."""
    router = APIRouter(prefix="/admin/api/v1", dependencies=[Depends(administrator)])

    @router.get("/receipts")
    async def search(request: Request, tenant: str | None = None) -> dict[str, Any]:
        """By tenant, session, deployment, model, outcome, integrity, `since_ms`, `until_ms`, `min_prompt_tokens`,
        `max_prompt_tokens`; newest first.
        """
        found, more = await store.search(receipt_filter(request, tenant))
        return {"object": "list", "data": [await document(store, log, item) for item in found], "has_more": more}

    @router.get("/receipts/{id}")
    async def one(id: str) -> dict[str, Any]:
        """One receipt of any tenant, with its proof."""
        found = await store.get(id, None)
        if found is None:
            raise NotFound("there is no such receipt")
        return await document(store, log, found)

    @router.get("/usage")
    async def usage(
        tenant: str | None = None, since_ms: int | None = None, until_ms: int | None = None
    ) -> dict[str, Any]:
        """Requests, tokens and cost by tenant, deployment and effective model; the last 30 days if no time is given."""
        now = int(time.time() * 1000)
        start, end = since_ms if since_ms is not None else now - 30 * _DAY_MS, until_ms if until_ms is not None else now
        if start > end:
            raise InvalidValue("`since_ms` lies behind `until_ms`", param="since_ms")
        rows = await store.usage(tenant, start, end)
        return {"object": "list", "data": [asdict(row) for row in rows], "has_more": False}

    return router
