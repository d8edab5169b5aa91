"""What the operator may write in `assay.yaml`, field by field: validated, frozen, unknown keys refused.

These models are the file; `snapshot.py` is what traffic reads. Units are in the names; money is USD as Decimal.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints

from gateway.config.secrets import Secret
from gateway.config.snapshot import Fallback, ProviderKind, Strategy


def _to_secret(value: Any) -> Any:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("must be text that is not empty")
    return Secret(value)


def _to_decimal(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise ValueError("must be a number")
    return Decimal(str(value))


SecretText = Annotated[Secret, BeforeValidator(_to_secret), PlainSerializer(lambda _: "****", return_type=str)]
Money = Annotated[Decimal, BeforeValidator(_to_decimal), Field(ge=0)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}$")]


def _pattern(value: str) -> str:
    segments = value.split("/")
    if any("*" in segment and segment != "*" for segment in segments):
        raise ValueError("`*` stands for a whole segment between slashes, as in `prov/*`")
    if not value or any(not segment for segment in segments):
        raise ValueError("must be a name, `*`, or a name with `*` as a whole segment")
    return value


Pattern = Annotated[str, AfterValidator(_pattern)]


class Model(BaseModel):
    """Base of every block: frozen, unknown keys refused, no silent change of type."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, strict=False)


class Server(Model):
    host: str = "127.0.0.1"
    port: int = Field(8080, ge=0, le=65535)
    workers: int = Field(1, ge=1, le=256)
    max_body_mb: float = Field(32, gt=0, le=1024)
    max_upstream_body_mb: float = Field(64, gt=0, le=4096)
    cors_origins: tuple[str, ...] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    trusted_hosts: tuple[str, ...] = ()
    metrics_bind: str | None = None
    drain_s: float = Field(30, ge=0, le=3600)
    max_connections: int = Field(20_000, ge=1)
    secure_cookies: bool | None = None  # None: Secure when the request came over TLS


class StreamSettings(Model):
    header_wait_s: float = Field(10, gt=0, le=600)
    keep_alive_s: float = Field(10, gt=0, le=600)


class Oidc(Model):
    issuer: str
    client_id: str
    client_secret: SecretText
    role_groups: RoleGroups
    scopes: tuple[str, ...] = ("openid", "email", "groups")
    groups_claim: str = "groups"
    redirect_uri: str | None = None


class RoleGroups(Model):
    admin: tuple[str, ...] = ()
    operator: tuple[str, ...] = ()
    auditor: tuple[str, ...] = ()
    tenant_admin: dict[Name, tuple[str, ...]] = Field(default_factory=dict)


class Admin(Model):
    token: SecretText
    oidc: Oidc | None = None


class AssurancesSettings(Model):
    dpa: bool | None = None
    incident_notice_hours: int | None = Field(None, ge=0)
    cache_scope: Literal["request", "tenant", "account", "global"] | None = None
    context_checked: bool | None = None
    output_validated: bool | None = None
    reviewed: Annotated[str, StringConstraints(pattern=r"^\d{4}-\d{2}-\d{2}$")] | None = None


class NetworkSettings(Model):
    proxy: str | None = None
    ca_file: str | None = None
    client_certificate: str | None = None
    client_key: str | None = None


class ProviderSettings(Model):
    kind: ProviderKind
    base_url: str | None = None
    api_key: SecretText | tuple[SecretText, ...] | None = None
    region: str = "unknown"
    zero_retention: bool | None = None
    trains_on_data: bool | None = None
    assurances: AssurancesSettings = AssurancesSettings()
    network: NetworkSettings = NetworkSettings()
    binding_key: SecretText | None = None
    options: dict[str, str] = Field(default_factory=dict)


class PriceSettings(Model):
    input: Money
    output: Money
    cached_input: Money | None = None
    cache_write: Money | None = None
    reasoning: Money | None = None
    audio_input: Money | None = None
    audio_output: Money | None = None


class TimeoutSettings(Model):
    connect_s: float = Field(5, gt=0, le=600)
    first_byte_s: float = Field(60, gt=0, le=3600)
    idle_s: float = Field(60, gt=0, le=3600)


EndpointName = Literal["chat", "completions", "embeddings", "responses", "messages"]


class DeploymentSettings(Model):
    id: Name
    provider: Name
    model: Annotated[str, StringConstraints(min_length=1, max_length=300)]
    region: str | None = None
    accept_models: tuple[Pattern, ...] | None = None
    context_window: int | None = Field(None, ge=1)
    max_output_tokens: int | None = Field(None, ge=1)
    price: PriceSettings | None = None
    timeouts: TimeoutSettings = TimeoutSettings()
    retries: int = Field(1, ge=0, le=10)
    endpoints: tuple[EndpointName, ...] | None = None
    same_as: str | None = None
    weight: int = Field(1, ge=0, le=1_000_000)
    quantization: str | None = None
    tokenizer: str | None = None


class AliasSettings(Model):
    deployments: Annotated[tuple[Name, ...], Field(min_length=1)]
    strategy: Strategy = "ordered"
    fallback: Fallback = "deny"


class AllowSettings(Model):
    providers: tuple[Pattern, ...] = ()
    regions: tuple[Pattern, ...] = ()
    models: tuple[Pattern, ...] = ()
    deployments: tuple[Pattern, ...] | None = None


class AssuranceRequirements(Model):
    dpa: bool | None = None
    incident_notice_hours: int | None = Field(None, ge=0)
    cache_scope: tuple[Literal["request", "tenant", "account", "global"], ...] | None = None
    context_checked: bool | None = None
    output_validated: bool | None = None
    reviewed_within_days: int | None = Field(None, ge=1)


class RequireSettings(Model):
    zero_retention: bool = False
    no_training: bool = False
    pinned_models: bool = False
    evidence: Literal["none", "declared", "asserted", "observed", "verified"] = "none"
    assurances: AssuranceRequirements = AssuranceRequirements()


class WorkloadSettings(Model):
    fallback: Fallback | None = None
    providers: tuple[Pattern, ...] | None = None
    regions: tuple[Pattern, ...] | None = None
    models: tuple[Pattern, ...] | None = None
    deployments: tuple[Pattern, ...] | None = None
    require: RequireSettings | None = None


class ModelLimits(Model):
    requests_per_minute: int | None = Field(None, ge=0)
    tokens_per_minute: int | None = Field(None, ge=0)
    parallel_requests: int | None = Field(None, ge=0)


class LimitSettings(ModelLimits):
    budget_usd: Money | None = None
    budget_period: Literal["day", "week", "month"] = "month"
    models: dict[ModelName, ModelLimits] = Field(default_factory=dict)


class KeySettings(Model):
    id: Name
    secret: SecretText
    workload: Name | None = None
    models: tuple[Pattern, ...] | None = None
    limits: LimitSettings | None = None
    expires: str | None = None


class TenantSettings(Model):
    id: Name
    allow: AllowSettings = AllowSettings()
    require: RequireSettings = RequireSettings()
    workloads: dict[Name, WorkloadSettings] = Field(default_factory=dict)
    limits: LimitSettings = LimitSettings()
    keys: tuple[KeySettings, ...] = ()


class CanarySample(Model):
    base_rate: float = Field(0.01, ge=0, le=1)
    per_length_bucket_per_hour: int = Field(4, ge=0)


class CanarySettings(Model):
    enabled: bool = True
    interval_s: float = Field(60, gt=0)
    daily_tokens: int = Field(200_000, ge=0)
    daily_usd: Money | None = None
    sample: CanarySample = CanarySample()


class QuarantineSettings(Model):
    automatic: bool = True


class Webhook(Model):
    url: str
    secret: SecretText


class IntegritySettings(Model):
    leak_scan: Literal["disabled", "observe", "guard"] = "observe"
    preflight: Literal["required", "measured", "disabled"] = "required"
    on_substitution: Literal["block", "flag"] = "block"
    on_unknown_model: Literal["block", "flag"] = "flag"
    on_violation: Literal["block", "flag"] = "block"
    canaries: CanarySettings = CanarySettings()
    quarantine: QuarantineSettings = QuarantineSettings()
    webhooks: tuple[Webhook, ...] = ()


class WitnessSettings(Model):
    name: str
    url: str
    public_key: str


class ReceiptSettings(Model):
    durability: Literal["before_last_byte", "background"] = "before_last_byte"
    checkpoint_interval_s: float = Field(1, gt=0, le=60)
    log_origin: Annotated[str, StringConstraints(pattern=r"^[^\s+]{1,200}$")] = "assay.example/log"
    witnesses: tuple[WitnessSettings, ...] = ()
    witness_quorum: int = Field(0, ge=0)
    journal_mb: float = Field(64, gt=0)
    outage_grace_s: float = Field(60, ge=0)


class CacheSettings(Model):
    enabled: bool = False
    ttl_s: float = Field(300, gt=0)
    max_mb: float = Field(64, gt=0)


class SharedStateSettings(Model):
    timeout_ms: int = Field(200, ge=10, le=5000)
    limits_on_outage: Literal["local_share", "closed"] = "local_share"
    expected_replicas: int = Field(2, ge=1)


class Settings(Model):
    """A whole `assay.yaml`."""

    server: Server = Server()
    stream: StreamSettings = StreamSettings()
    database: str = "sqlite:///assay.db"
    redis: SecretText | None = None
    keys_dir: str = "./assay-keys"
    admin: Admin
    policies: tuple[str, ...] = ()
    default_policies: bool = True
    providers: dict[Name, ProviderSettings] = Field(default_factory=dict)
    deployments: tuple[DeploymentSettings, ...] = ()
    models: dict[ModelName, AliasSettings] = Field(default_factory=dict)
    tenants: tuple[TenantSettings, ...] = ()
    integrity: IntegritySettings = IntegritySettings()
    receipts: ReceiptSettings = ReceiptSettings()
    cache: CacheSettings = CacheSettings()
    shared_state: SharedStateSettings = SharedStateSettings()
