"""API keys: who calls. Only a keyed hash of a secret is kept; the cache is keyed by that full hash.

Keys of the configuration are checked in memory; keys of the database are cached for `MAX_AGE_S` and dropped at once
when a revocation is heard of, so that a revoked key is dead within a second everywhere. Unknown, malformed, expired
and revoked keys are refused in the same words, and nothing of a presented key is ever echoed.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Protocol

from gateway.config.snapshot import Limits, Snapshot
from gateway.errors import InvalidApiKey, Overloaded
from gateway.exchange import KeyLimits, Principal

Headers = list[tuple[bytes, bytes]]
MAX_AGE_S = 0.8
_MAX_CACHED = 100_000
_MAX_KEY_BYTES = 512
_REFUSED = "the API key is not valid"


class KeyRecord(Protocol):
    """What a stored key says of its caller."""

    @property
    def id(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def workload(self) -> str | None: ...
    @property
    def models(self) -> tuple[str, ...] | None: ...
    @property
    def limits(self) -> dict[str, Any] | None: ...
    @property
    def expires_ms(self) -> int | None: ...
    @property
    def revoked_ms(self) -> int | None: ...


class KeySource(Protocol):
    """Where keys that are not in the configuration are looked up."""

    async def by_hash(self, digest: bytes) -> KeyRecord | None:
        """The key with this keyed hash, or None; raises when the store cannot be asked."""
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    principal: Principal | None
    expires: float  # Unix time
    checked: float  # monotonic


def new_secret() -> str:
    """A fresh API key: 256 random bits."""
    return f"sk-assay-{secrets.token_urlsafe(32)}"


def presented(headers: Headers) -> bytes | None:
    """The key of a request; None when there is none or when two different ones are given."""
    found: bytes | None = None
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() != b"bearer":
                continue
            key = key.strip()
        elif name in (b"x-api-key", b"api-key"):
            key = value.strip()
        else:
            continue
        if found is not None and not hmac.compare_digest(found, key):
            return None
        found = key
    return found if found and len(found) <= _MAX_KEY_BYTES else None


class Authenticator:
    """Turns headers into a `Principal` or raises `InvalidApiKey`."""

    def __init__(
        self,
        pepper: bytes,
        source: KeySource,
        *,
        outage_grace_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pepper = pepper
        self._source = source
        self._outage_grace_s = outage_grace_s
        self._clock = clock
        self._config: dict[bytes, _Known] = {}
        self._cached: dict[bytes, _Known] = {}

    def digest(self, secret: bytes) -> bytes:
        """The keyed hash under which a secret is known."""
        return hmac.digest(self._pepper, secret, "sha256")

    def load_config(self, snapshot: Snapshot, revoked: set[str]) -> None:
        """Takes over the keys of a configuration; those that left it are gone, revoked ones stay dead."""
        fresh: dict[bytes, _Known] = {}
        for tenant in snapshot.tenants.values():
            for key in tenant.keys:
                if key.id in revoked:
                    continue
                principal = Principal(
                    tenant.id, key.id, key.workload, models=key.models, limits=_config_limits(key.limits)
                )
                ends = _timestamp(key.expires) if key.expires else float("inf")
                fresh[self.digest(key.secret.reveal().encode())] = _Known(principal, ends, 0.0)
        self._config = fresh
        self._cached.clear()

    def authenticate_cached(self, headers: Headers) -> Principal | None:
        """The caller, if that is known without asking the store."""
        key = presented(headers)
        if key is None:
            raise InvalidApiKey(_REFUSED)
        digest = self.digest(key)
        known = self._config.get(digest)
        if known is None:
            known = self._cached.get(digest)
            if known is None or self._clock() - known.checked > MAX_AGE_S:
                return None
        if known.principal is None or known.expires <= time.time():
            raise InvalidApiKey(_REFUSED)
        return known.principal

    async def authenticate(self, headers: Headers) -> Principal:
        """The caller. In an outage of the store, keys known lately are served for a bounded time, others get 503."""
        principal = self.authenticate_cached(headers)
        if principal is not None:
            return principal
        key = presented(headers)
        assert key is not None
        digest = self.digest(key)
        try:
            record = await self._source.by_hash(digest)
        except Exception as error:
            known = self._cached.get(digest)
            if known is not None and known.principal and self._clock() - known.checked < self._outage_grace_s:
                return known.principal
            raise Overloaded("keys cannot be checked now") from error
        known = _from_record(record, self._clock())
        if len(self._cached) >= _MAX_CACHED:
            self._cached.clear()
        self._cached[digest] = known
        if known.principal is None or known.expires <= time.time():
            raise InvalidApiKey(_REFUSED)
        return known.principal

    def forget(self, digest: bytes | None = None, *, key_id: str | None = None) -> None:
        """Drops what is cached of a key (both None: of every key), as when it was revoked."""
        if digest is not None:
            self._cached.pop(digest, None)
        elif key_id is not None:
            for table in (self._cached, self._config):
                for known_digest in [d for d, k in table.items() if k.principal and k.principal.key == key_id]:
                    del table[known_digest]
        else:
            self._cached.clear()


def _from_record(record: KeyRecord | None, now: float) -> _Known:
    if record is None or record.revoked_ms is not None:
        return _Known(None, 0.0, now)
    limits = _stored_limits(record.limits) if record.limits else None
    principal = Principal(record.tenant, record.id, record.workload, models=record.models, limits=limits)
    return _Known(principal, record.expires_ms / 1000 if record.expires_ms else float("inf"), now)


def _stored_limits(limits: Mapping[str, Any]) -> KeyLimits:
    budget = limits.get("budget_usd")
    return KeyLimits(
        limits.get("requests_per_minute"),
        limits.get("tokens_per_minute"),
        limits.get("parallel_requests"),
        None if budget is None else Decimal(str(budget)),
        limits.get("budget_period", "month"),
    )


def _config_limits(limits: Limits | None) -> KeyLimits | None:
    if limits is None:
        return None
    return KeyLimits(
        limits.requests_per_minute,
        limits.tokens_per_minute,
        limits.parallel_requests,
        limits.budget_usd,
        limits.budget_period,
    )


def _timestamp(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
