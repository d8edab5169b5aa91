"""Seals an exchange: statement, signature, and the record that the store makes durable."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Protocol

from gateway.errors import ReceiptUnavailable
from gateway.exchange import Exchange
from gateway.receipts.envelope import seal
from gateway.receipts.record import ReceiptRecord
from gateway.receipts.signer import KeyRing
from gateway.receipts.statement import Pseudonyms, build

_NANO = Decimal(1_000_000_000)


class Submit(Protocol):
    """The store's queue."""

    def submit(self, record: ReceiptRecord) -> asyncio.Future[None]: ...


class Accept(Protocol):
    """The journal of background durability."""

    def accept(self, record: ReceiptRecord) -> Awaitable[None]: ...


class ReceiptSealer:
    """One per process. `self_hosted` names the deployments whose host is a pseudonym; with a journal, sealing does not
    wait for the database.
    """

    def __init__(
        self,
        keys: Callable[[], KeyRing],
        pseudonyms: Pseudonyms,
        store: Submit,
        self_hosted: Callable[[], frozenset[str]],
        *,
        journal: Accept | None = None,
    ) -> None:
        self._keys = keys
        self._pseudonyms = pseudonyms
        self._store = store
        self._self_hosted = self_hosted
        self._journal = journal

    def seal(self, exchange: Exchange) -> Awaitable[None]:
        """Queues the receipt; await the result for durability. Never partly done: a failure is in the future."""
        try:
            key = self._keys().receipt
            payload = build(exchange, self._pseudonyms, time.monotonic(), self._self_hosted())
            record = _record(exchange, payload, key.kid, seal(payload, key))
            if self._journal is not None:
                return self._journal.accept(record)
            future = self._store.submit(record)
        except Exception as error:
            failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            failed.set_exception(ReceiptUnavailable("the receipt could not be made"))
            failed.exception().__cause__ = error  # type: ignore[union-attr]
            return failed
        return asyncio.shield(future)


def _record(exchange: Exchange, payload: bytes, kid: str, signature: bytes) -> ReceiptRecord:
    principal, who, usage = exchange.principal, exchange.effective, exchange.usage
    assert principal is not None
    request = exchange.request
    return ReceiptRecord(
        exchange.receipt_id,
        principal.tenant,
        principal.key,
        int(exchange.received * 1000),
        exchange.endpoint.value,
        exchange.session,
        who.deployment if who else None,
        (who.provider.value or None) if who else None,
        _text(who.model.value) if who else None,
        _text(exchange.requested_model),
        exchange.outcome,
        exchange.integrity,
        exchange.error.status if exchange.error is not None else 200,
        usage.prompt if usage else (exchange.count.prompt if exchange.count else None),
        usage.completion if usage else None,
        int(exchange.cost_usd * _NANO) if exchange.cost_usd is not None else None,
        _text(who.fingerprint.value) if who else None,
        ",".join(f"{name}={value}" for name, value in request.cost_tags) if request and request.cost_tags else None,
        kid,
        payload,
        signature,
        tuple((name, commitment.key) for name, commitment in exchange.commitments.items()),
    )


def _text(value: str | None) -> str | None:
    """Foreign text as both databases take it."""
    if value is None or (value.isascii() and len(value) <= 300 and "\x00" not in value):
        return value
    return value[:300].encode("utf-8", "replace").decode().replace("\x00", "\ufffd")
