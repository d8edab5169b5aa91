"""From a deployment and a request to what goes over the wire, one rule set per provider kind.

The only edits of the caller's bytes are the upstream's model name, `stream_options`, the removal of our own `provider`
field, and what a kind needs for isolation (`cache_salt`) or for a real allow-list (OpenRouter's `provider`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from itertools import count
from typing import Any

import orjson

from gateway.config.secrets import Secret
from gateway.config.snapshot import Deployment, Provider
from gateway.exchange import Dialect, InferenceRequest
from gateway.protocols.edits import splice
from gateway.providers.pool import Origin
from gateway.providers.transport import UpstreamRequest

_PATHS: dict[Dialect, str] = {
    "chat": "/chat/completions",
    "completions": "/completions",
    "embeddings": "/embeddings",
    "responses": "/responses",
    "messages": "/messages",
}
_SALTED = frozenset({"vllm", "sglang"})


@dataclass(frozen=True, slots=True)
class AttemptIds:
    """What an attempt carries besides the caller's bytes. `salt` isolates prefix caches; `idempotency` is keyed."""

    sent_id: str
    salt: str
    idempotency: str | None = None


def cache_salt(key: bytes, tenant: str, model: str) -> str:
    """A tenant's prefix-cache salt: base64url HMAC-SHA256, 43 characters (vLLM refuses `/`, `@` and over 128)."""
    digest = hmac.new(key, f"{tenant}\x00{model}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Credentials:
    """A provider's credentials, used in turn."""

    def __init__(self) -> None:
        self._turn: dict[str, count[int]] = {}

    def next(self, provider: Provider) -> Secret | None:
        """The next credential, or None for an upstream without one."""
        if not provider.credentials:
            return None
        if len(provider.credentials) == 1:
            return provider.credentials[0]
        turn = self._turn.setdefault(provider.id, count())
        return provider.credentials[next(turn) % len(provider.credentials)]


def prepare(
    deployment: Deployment,
    dialect: Dialect,
    request: InferenceRequest,
    body: bytes | None,
    ids: AttemptIds,
    credential: Secret | None,
) -> UpstreamRequest:
    """The HTTP request of one attempt. `body` is a bridged body; None means the caller's bytes, edited in place."""
    provider = deployment.provider
    content = edited(deployment, dialect, request, ids) if body is None else body
    if body is not None and provider.kind in _SALTED:
        content = _with_member(content, "cache_salt", ids.salt)
    if body is not None and provider.kind == "openrouter":
        content = _with_member(content, "provider", openrouter_routing(deployment, request))
    headers = [("content-type", "application/json"), ("accept-encoding", "identity"), ("x-request-id", ids.sent_id)]
    headers += authentication(provider, credential)
    for name, value in request.forwarded_headers:
        if name.startswith("anthropic-") and provider.kind != "anthropic":
            continue
        headers.append((name, value))
    if provider.kind == "anthropic" and not any(n == "anthropic-version" for n, _ in headers):
        headers.append(("anthropic-version", "2023-06-01"))
    if provider.kind == "openrouter":
        headers.append(("x-openrouter-metadata", "enabled"))
    if ids.idempotency:
        headers.append(("idempotency-key", ids.idempotency))
    return UpstreamRequest(_path(deployment, dialect), tuple(headers), content, request.stream)


def _path(deployment: Deployment, dialect: Dialect) -> str:
    provider = deployment.provider
    base = Origin.of(provider.base_url).path
    if provider.kind == "azure":
        version = provider.options.get("api_version", "2024-10-21")
        if base.endswith("/openai/v1"):
            return base + _PATHS[dialect]
        return f"{base}/openai/deployments/{deployment.model}{_PATHS[dialect]}?api-version={version}"
    return base + _PATHS[dialect]


def authentication(provider: Provider, credential: Secret | None) -> list[tuple[str, str]]:
    """The header in which a provider of this kind takes our credential."""
    if credential is None:
        return []
    secret = credential.reveal()
    if provider.kind == "anthropic":
        return [("x-api-key", secret)]
    if provider.kind == "azure":
        return [("api-key", secret)]
    return [("authorization", f"Bearer {secret}")]


def edited(deployment: Deployment, dialect: Dialect, request: InferenceRequest, ids: AttemptIds) -> bytes:
    """The caller's bytes with the contract's edits and nothing else changed."""
    edits: list[tuple[int, int, bytes]] = []
    kind = deployment.provider.kind
    added = b""
    if request.stream and dialect in ("chat", "completions") and not request.include_usage:
        span = request.stream_options_span
        if span is None:
            added += b',"stream_options":{"include_usage":true}'
        else:
            options: dict[str, Any] = {**(request.fields.get("stream_options") or {}), "include_usage": True}
            edits.append((span.start, span.end, orjson.dumps(options)))
    if kind in _SALTED:
        added += b',"cache_salt":"%b"' % ids.salt.encode()
    if kind == "openrouter":
        added += b',"provider":' + orjson.dumps(openrouter_routing(deployment, request))
    span = request.model_span
    edits.append((span.start, span.end, orjson.dumps(deployment.model) + added))
    if request.provider_span is not None:
        edits.append((request.provider_span.start, request.provider_span.end, b""))
    return splice(request.body, edits)


def openrouter_routing(deployment: Deployment, request: InferenceRequest) -> dict[str, Any]:
    """What makes an allow-list real there: only the named providers, no fallbacks, no silently dropped parameters."""
    only = [name.strip() for name in deployment.provider.options.get("only", "").split(",") if name.strip()]
    routing: dict[str, Any] = {"allow_fallbacks": False, "require_parameters": True}
    if only:
        routing["only"] = only
    if deployment.provider.trains_on_data is False:
        routing["data_collection"] = "deny"
    if deployment.provider.zero_retention:
        routing["zdr"] = True
    if deployment.quantization:
        routing["quantizations"] = [deployment.quantization]
    return routing


def _with_member(body: bytes, name: str, value: Any) -> bytes:
    return b'{"%b":%b,' % (name.encode(), orjson.dumps(value)) + body[1:] if len(body) > 2 else body
