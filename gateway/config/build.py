"""Settings → snapshot: defaults by provider kind, references joined, everything frozen. Pure."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType

import orjson

from gateway.config import settings as s
from gateway.config import snapshot as v
from gateway.config.secrets import Secret

_BASE_URL = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "litellm": "",
}
_ALL = frozenset({"chat", "completions", "embeddings", "responses", "messages"})
_ENDPOINTS: dict[str, frozenset[str]] = {
    "openai": _ALL - {"messages"},
    "azure": _ALL - {"messages"},
    "openai-compatible": frozenset({"chat", "completions", "embeddings"}),
    "openrouter": frozenset({"chat", "completions", "embeddings"}),
    "anthropic": frozenset({"messages"}),
    "vllm": _ALL,
    "sglang": _ALL,
    "litellm": frozenset({"chat", "embeddings"}),
}


def build_snapshot(settings: s.Settings, folder: Path, version: int) -> v.Snapshot:
    """The resolved configuration. Relative paths begin at `folder`; `version` grows with each swap."""
    providers = {name: _provider(name, item, folder) for name, item in settings.providers.items()}
    deployments = {item.id: _deployment(item, providers[item.provider]) for item in settings.deployments}
    models = {
        name: v.ModelAlias(name, item.deployments, item.strategy, item.fallback)
        for name, item in settings.models.items()
    }
    tenants = {item.id: tenant(item) for item in settings.tenants}
    digest = hashlib.sha256(orjson.dumps(settings.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)).hexdigest()
    return v.Snapshot(
        version,
        digest,
        MappingProxyType(deployments),
        MappingProxyType(models),
        MappingProxyType(tenants),
        MappingProxyType(providers),
    )


def _provider(name: str, item: s.ProviderSettings, folder: Path) -> v.Provider:
    keys: tuple[Secret, ...] = ()
    if item.api_key is not None:
        keys = item.api_key if isinstance(item.api_key, tuple) else (item.api_key,)
    files = {
        key: str(folder / path) if (path := getattr(item.network, key)) else None
        for key in ("ca_file", "client_certificate", "client_key")
    }
    return v.Provider(
        name,
        item.kind,
        (item.base_url or _BASE_URL[item.kind]).rstrip("/"),
        keys,
        item.region,
        item.zero_retention,
        item.trains_on_data,
        v.Assurances(**item.assurances.model_dump()),
        v.Network(proxy=item.network.proxy, **files),
        item.binding_key,
        MappingProxyType(dict(item.options)),
    )


def _deployment(item: s.DeploymentSettings, provider: v.Provider) -> v.Deployment:
    accept = item.accept_models
    return v.Deployment(
        item.id,
        provider,
        item.model,
        item.region or provider.region,
        accept,
        item.context_window,
        item.max_output_tokens,
        v.Price(**dict(item.price)) if item.price else None,
        v.Timeouts(**dict(item.timeouts)),
        item.retries,
        frozenset(item.endpoints) if item.endpoints is not None else _ENDPOINTS[provider.kind],
        item.same_as or item.model,
        item.weight,
        item.quantization,
        accept is not None and len(accept) == 1 and "*" not in accept[0],
        item.tokenizer,
    )


def tenant(item: s.TenantSettings) -> v.Tenant:
    """A tenant's rules, as the policy engine and the limiter read them."""
    return v.Tenant(
        item.id,
        v.Allow(**dict(item.allow)),
        _require(item.require),
        MappingProxyType({name: _workload(name, block) for name, block in item.workloads.items()}),
        limits(item.limits),
        tuple(
            v.ConfigKey(k.id, k.secret, k.workload, k.models, limits(k.limits) if k.limits else None, k.expires)
            for k in item.keys
        ),
    )


def _require(item: s.RequireSettings) -> v.Require:
    return v.Require(
        item.zero_retention, item.no_training, item.pinned_models, item.evidence, **item.assurances.model_dump()
    )


def _workload(name: str, item: s.WorkloadSettings) -> v.Workload:
    return v.Workload(
        name,
        item.fallback,
        item.providers,
        item.regions,
        item.models,
        item.deployments,
        _require(item.require) if item.require else None,
    )


def limits(item: s.LimitSettings) -> v.Limits:
    """Limits of a tenant or key as values; None is unlimited."""
    return v.Limits(
        item.requests_per_minute,
        item.tokens_per_minute,
        item.parallel_requests,
        Decimal(item.budget_usd) if item.budget_usd is not None else None,
        item.budget_period,
        MappingProxyType({name: v.Limits(**dict(block)) for name, block in item.models.items()}),
    )
