"""What every answer says about itself in its headers, and the port it leaves by."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from gateway.exchange import Exchange

Pairs = list[tuple[str, str]]


class ReplyPort(Protocol):
    """An answer to one client; http implements it. Header values are encoded there."""

    @property
    def gone(self) -> bool: ...

    def on_gone(self, callback: Callable[[], object] | None) -> None: ...

    def send(self, status: int, headers: Pairs, body: bytes) -> None: ...

    def open(self, headers: Pairs) -> None: ...

    def write(self, data: bytes) -> None: ...

    def end(self, data: bytes = b"") -> None: ...

    async def drain(self) -> None: ...


def header_pairs(exchange: Exchange, extra: tuple[tuple[str, str], ...] = (), *, pending: bool = False) -> Pairs:
    """The contract's response headers, as far as it got. `pending`: a stream opened before its first event."""
    pairs: Pairs = [("x-request-id", exchange.request_id), ("x-assay-receipt", exchange.receipt_id)]
    if exchange.requested_model is not None:
        pairs.append(("x-assay-requested-model", exchange.requested_model))
    attempts = len(exchange.attempts)
    who = exchange.effective
    if pending:
        pairs += [(f"x-assay-{name}", "pending") for name in ("deployment", "provider", "region", "model", "integrity")]
    elif who is not None:
        first = exchange.plan.first if exchange.plan else None
        pairs += [
            ("x-assay-deployment", who.deployment),
            ("x-assay-provider", who.provider.value or "unknown"),
            ("x-assay-region", who.region.value or "unknown"),
            ("x-assay-model", who.model.value or "unknown"),
            ("x-assay-attempts", str(max(attempts, 1))),
            ("x-assay-fallback", "true" if first not in (None, who.deployment) else "false"),
            ("x-assay-evidence", who.grade.name),
            ("x-assay-integrity", "pending" if exchange.stream and exchange.error is None else exchange.integrity),
        ]
    else:
        pairs.append(("x-assay-attempts", str(attempts)))
    if exchange.decision is not None:
        pairs.append(("x-assay-policy", exchange.decision.policy_digest[:12]))
    if exchange.cache is not None:
        pairs.append(("x-assay-cache", exchange.cache))
    own = (time.monotonic() - exchange.received_mono) * 1000 - exchange.upstream_ms
    pairs.append(("x-assay-overhead-ms", f"{max(own, 0.0):.1f}"))
    if exchange.cost_usd is not None and not exchange.stream:
        pairs.append(("x-assay-cost-usd", f"{exchange.cost_usd:f}"))
    pairs += extra
    return pairs
