"""What is stored of one receipt, and what the store promises; storage implements it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ReceiptRecord:
    """One signed statement with the columns it can be found by. Names here are real, not pseudonyms."""

    id: str
    tenant: str
    key: str
    time_ms: int
    endpoint: str
    session: str | None
    deployment: str | None
    provider: str | None
    model: str | None  # effective
    requested: str | None
    outcome: str
    integrity: str
    status: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_nano_usd: int | None
    fingerprint: str | None
    tags: str | None
    kid: str
    payload: bytes
    signature: bytes
    openings: tuple[tuple[str, bytes], ...]  # (commitment name, key)


@dataclass(frozen=True, slots=True)
class StoredReceipt:
    """A receipt as it is read back. `index` is its place in the log, None until it is integrated."""

    id: str
    tenant: str
    key: str
    session: str | None
    kid: str
    payload: bytes
    signature: bytes
    index: int | None


@dataclass(frozen=True, slots=True)
class ReceiptFilter:
    """What to look for; None matches everything. Times are Unix milliseconds, `to` exclusive."""

    tenant: str | None = None
    session: str | None = None
    deployment: str | None = None
    model: str | None = None
    outcome: str | None = None
    integrity: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    min_prompt_tokens: int | None = None
    max_prompt_tokens: int | None = None
    after: str | None = None  # receipt id; the page after it (newest first)
    limit: int = 50


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What one tenant used of one model on one deployment. Reserved tenants (canaries) are rows of their own."""

    tenant: str
    deployment: str | None
    model: str | None
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost_nano_usd: int
    unpriced: int  # requests whose cost is not known: they are not free


class ReceiptStore(Protocol):
    """Durable receipts, their erasable openings, and the log over them."""

    def submit(self, record: ReceiptRecord) -> Any:
        """Queues a record; the returned future is done when it is durable, or fails with `ReceiptUnavailable`."""
        ...

    async def get(self, id: str, tenant: str | None) -> StoredReceipt | None:
        """One receipt; with `tenant` only if it is that tenant's."""
        ...

    async def openings(self, id: str) -> dict[str, bytes]:
        """The keys that still exist."""
        ...

    async def search(self, wanted: ReceiptFilter) -> tuple[list[StoredReceipt], bool]:
        """A page, newest first, and whether there is more."""
        ...

    async def erase(self, tenant: str, before_ms: int | None) -> int:
        """Removes a tenant's openings; returns how many receipts can no longer be opened."""
        ...
