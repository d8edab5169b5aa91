"""The receipt file of contract section 6, put together from the store and the log: what `assay verify` takes."""

from __future__ import annotations

import base64
from typing import Any, Protocol

from gateway.receipts.envelope import envelope
from gateway.receipts.record import StoredReceipt


class Openings(Protocol):
    """The store's erasable part."""

    async def openings(self, id: str) -> dict[str, bytes]: ...


class Proofs(Protocol):
    """The log's part."""

    async def proof(self, index: int) -> tuple[dict[str, Any], str] | None: ...


async def document(store: Openings, log: Proofs, receipt: StoredReceipt, *, openings: bool = False) -> dict[str, Any]:
    """Envelope, proof and checkpoint (null until integrated), the owner's names, and keys where they are asked for."""
    proven = None if receipt.index is None else await log.proof(receipt.index)
    result: dict[str, Any] = {
        "id": receipt.id,
        "names": {"tenant": receipt.tenant, "key": receipt.key, "session": receipt.session},
        "envelope": envelope(receipt.payload, receipt.kid, receipt.signature),
        "proof": proven[0] if proven else None,
        "checkpoint": proven[1] if proven else None,
    }
    if openings:
        keys = await store.openings(receipt.id)
        result["openings"] = {name: base64.b64encode(key).decode() for name, key in keys.items()}
    return result
