"""The resolved configuration that traffic reads: frozen, joined (a deployment carries its provider), swapped in whole.

`settings.py` validates what the operator wrote (pydantic); this is what the request path uses. Building a snapshot
from settings is pure, so a reload builds the new one completely before the old one is let go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

from gateway.config.secrets import Secret

ProviderKind = Literal["openai", "azure", "anthropic", "vllm", "sglang", "openai-compatible", "openrouter", "litellm"]
Strategy = Literal["ordered", "weighted", "least_busy", "lowest_cost", "lowest_latency"]
Fallback = Literal["deny", "same_model", "any"]
SELF_HOSTED: frozenset[str] = frozenset({"vllm", "sglang"})


@dataclass(frozen=True, slots=True)
class Network:
    """How to reach a provider: outbound proxy, CA bundle, client certificate (paths)."""

    proxy: str | None = None
    ca_file: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None


@dataclass(frozen=True, slots=True)
class Assurances:
    """What the operator's review of a provider established. None is `unknown` and satisfies no requirement."""

    dpa: bool | None = None
    incident_notice_hours: int | None = None
    cache_scope: str | None = None  # request | tenant | account | global
    context_checked: bool | None = None
    output_validated: bool | None = None
    reviewed: str | None = None  # YYYY-MM-DD


@dataclass(frozen=True, slots=True)
class Provider:
    """Who runs inference. `credentials` are used in turn; each is bound to this provider's origin."""

    id: str
    kind: ProviderKind
    base_url: str  # scheme://host[:port]/path, without trailing slash
    credentials: tuple[Secret, ...]
    region: str
    zero_retention: bool | None
    trains_on_data: bool | None
    assurances: Assurances = Assurances()
    network: Network = Network()
    binding_key: Secret | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # kind-specific, e.g. api_version for azure

    @property
    def self_hosted(self) -> bool:
        return self.kind in SELF_HOSTED


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens; None where the operator gave no price for that kind."""

    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    reasoning: Decimal | None = None  # default: as output
    audio_input: Decimal | None = None
    audio_output: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Deadlines of one attempt, seconds."""

    connect_s: float = 5.0
    first_byte_s: float = 60.0
    idle_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Deployment:
    """One servable unit: provider + upstream model + window + price."""

    id: str
    provider: Provider
    model: str  # what the provider is asked for
    region: str  # the deployment's own, else its provider's
    accept_models: tuple[str, ...] | None  # None: `model` and its dated snapshots
    context_window: int | None
    max_output_tokens: int | None
    price: Price | None
    timeouts: Timeouts
    retries: int
    endpoints: frozenset[str]  # dialect names that are native: chat, completions, embeddings, responses, messages
    same_as: str  # key of `same_model` fallback; default: model
    weight: int = 1
    quantization: str | None = None
    pinned: bool = False  # `model` names a dated snapshot or accept_models is one exact name
    tokenizer: str | None = None


@dataclass(frozen=True, slots=True)
class ModelAlias:
    """What clients write in `model`."""

    name: str
    deployments: tuple[str, ...]  # ids; order is preference
    strategy: Strategy = "ordered"
    fallback: Fallback = "deny"


@dataclass(frozen=True, slots=True)
class Allow:
    """Allow-lists of a tenant; an absent list is empty and allows nothing of its kind. `deployments` None: any."""

    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    deployments: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Require:
    """What a tenant demands of a deployment before its prompts may go there."""

    zero_retention: bool = False
    no_training: bool = False
    pinned_models: bool = False
    evidence: Literal["none", "declared", "asserted", "observed", "verified"] = "none"
    dpa: bool | None = None
    incident_notice_hours: int | None = None  # at most
    cache_scope: tuple[str, ...] | None = None  # one of
    context_checked: bool | None = None
    output_validated: bool | None = None
    reviewed_within_days: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """A named rule set a request may narrow itself to (`default` adds none)."""

    name: str
    fallback: Fallback | None = None
    providers: tuple[str, ...] | None = None
    regions: tuple[str, ...] | None = None
    models: tuple[str, ...] | None = None
    deployments: tuple[str, ...] | None = None
    require: Require | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a tenant. None is unlimited."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    parallel_requests: int | None = None
    budget_usd: Decimal | None = None
    budget_period: Literal["day", "week", "month"] = "month"
    models: Mapping[str, Limits] = field(default_factory=dict)  # further limits by alias


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """An API key from the file (`origin: config`)."""

    id: str
    secret: Secret
    workload: str | None = None
    models: tuple[str, ...] | None = None
    limits: Limits | None = None
    expires: str | None = None


@dataclass(frozen=True, slots=True)
class Tenant:
    """Owner of keys, limits, allow-lists and receipts: the isolation border."""

    id: str
    allow: Allow
    require: Require
    workloads: Mapping[str, Workload]
    limits: Limits
    keys: tuple[ConfigKey, ...] = ()
    origin: Literal["config", "database"] = "config"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a request may be decided by, at one moment. `version` grows with every swap."""

    version: int
    digest: str
    deployments: Mapping[str, Deployment]
    models: Mapping[str, ModelAlias]
    tenants: Mapping[str, Tenant]
    providers: Mapping[str, Provider]
