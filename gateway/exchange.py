"""The values that travel the line: authenticate, admit, decide, plan, dispatch, inspect, seal, reply.

Each is frozen and typed; a stage takes the values before it and returns one of these. Standard library only.
Quantities carry their unit last (`_s`, `_ms`, `_usd`); counts of tokens are plain integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal

Dialect = Literal["chat", "completions", "embeddings", "responses", "messages"]
Outcome = Literal["completed", "interrupted", "cancelled", "refused", "failed"]
Integrity = Literal["passed", "flagged", "failed", "inconclusive", "pending"]
VerdictName = Literal["passed", "failed", "inconclusive"]
CountMethod = Literal["exact", "estimated", "unknown"]


class Grade(IntEnum):
    """Evidence grade: how we know who really answered. Ordered; compare with `<`."""

    none = 0
    declared = 1
    asserted = 2
    observed = 3
    verified = 4


class Endpoint(Enum):
    """An inference endpoint: its canonical path (as the receipt names it) and its dialect."""

    chat = "/v1/chat/completions"
    completions = "/v1/completions"
    embeddings = "/v1/embeddings"
    responses = "/v1/responses"
    messages = "/v1/messages"

    @property
    def dialect(self) -> Dialect:
        return self.name  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Principal:
    """Who calls, after authentication. `workload` is set when the key is pinned to one; `models` narrows further."""

    tenant: str
    key: str
    workload: str | None = None
    scopes: frozenset[str] = frozenset({"inference"})
    models: tuple[str, ...] | None = None
    limits: KeyLimits | None = None
    canary: bool = False  # a reserved tenant of the gateway's own canaries


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """Limits of one key, beside its tenant's."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    parallel_requests: int | None = None
    budget_usd: Decimal | None = None
    budget_period: Literal["day", "week", "month"] = "month"


@dataclass(frozen=True, slots=True)
class Narrowing:
    """The client's `provider` field with OpenRouter's meaning: it can only shrink or reorder the permitted set.

    Names are provider ids or deployment ids. `max_price` is USD per million tokens by kind (prompt, completion).
    """

    order: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    allow_fallbacks: bool = True
    data_collection: Literal["allow", "deny"] | None = None
    zdr: bool = False
    require_parameters: bool = False
    quantizations: tuple[str, ...] = ()
    sort: Literal["price", "throughput", "latency"] | None = None
    max_price: tuple[tuple[str, Decimal], ...] = ()


@dataclass(frozen=True, slots=True)
class Span:
    """A byte range in the client's body: where a value stands, so that an edit splices and copies nothing else."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class InferenceRequest:
    """One parsed request. `body` are the client's bytes as received; `fields` is the one parse of them (read only)."""

    endpoint: Endpoint
    body: bytes
    fields: Mapping[str, Any]
    model: str
    stream: bool
    include_usage: bool  # the client itself asked for the usage chunk
    model_span: Span  # of the value of top-level "model", quotes included
    stream_options_span: Span | None  # of the value of top-level "stream_options"
    provider_span: Span | None  # of the whole top-level member "provider", with the comma that goes with it
    narrowing: Narrowing | None
    workload: str | None
    session: str | None
    client_request_id: str | None
    choices: int  # n
    max_output_tokens: int | None  # what the client allowed, if it said so
    has_media: bool  # images, audio or files: the token count is `unknown`
    parameters_digest: str  # sha256 hex of the canonical request without its content
    forwarded_headers: tuple[tuple[str, str], ...] = ()  # openai-beta, anthropic-*, trace context
    idempotency_key: str | None = None
    cost_tags: tuple[tuple[str, str], ...] = ()
    remote_media: bool = False  # some media is named by a URL that is not `data:`
    references: tuple[tuple[str, str], ...] = ()  # (kind, id) of provider-side state that the body names


@dataclass(frozen=True, slots=True)
class TokenCount:
    """How long the prompt is, and how we know."""

    prompt: int | None
    method: CountMethod


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a candidate was permitted or dropped: a policy's @id or a routing rule's name, and its sentence."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """A deployment considered for one request; a dropped one keeps its reasons."""

    deployment: str
    permitted: bool
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What policy says of every deployment behind one alias. Pure: the same facts give the same decision."""

    visible: bool  # False: answer 404 as if the model did not exist
    candidates: tuple[Candidate, ...]  # in the alias's order
    policy_digest: str  # sha256 hex of the policy set
    policy_version: str
    determining: tuple[str, ...] = ()  # policy ids that decided

    @property
    def permitted(self) -> tuple[str, ...]:
        return tuple(c.deployment for c in self.candidates if c.permitted)


@dataclass(frozen=True, slots=True)
class Plan:
    """The ordered permitted candidates of one request. `first` is the first permitted one, resting or not."""

    order: tuple[str, ...]
    first: str | None
    dropped: tuple[Candidate, ...] = ()
    refusal: Literal["none", "unhealthy", "quarantined", "context"] = "none"  # why `order` is empty, if it is


@dataclass(frozen=True, slots=True)
class Evidence:
    """One field of the effective identity: what it is, where it was read, and how far that can be trusted."""

    value: str | None
    source: str  # e.g. "body.model", "header:x-ms-region", "config", "origin", "binding"
    grade: Grade


@dataclass(frozen=True, slots=True)
class Effective:
    """Who really answered, from the response and never from the request. An absent model is None, shown `unknown`."""

    deployment: str
    provider: Evidence
    region: Evidence
    model: Evidence
    fingerprint: Evidence
    upstream_request_id: str | None = None
    response_id: str | None = None
    extra: tuple[tuple[str, str], ...] = ()  # further provider evidence, e.g. service tier, weight version

    @property
    def grade(self) -> Grade:
        """The grade of the effective identity as a whole: that of the model."""
        return self.model.grade


@dataclass(frozen=True, slots=True)
class Usage:
    """Token usage as the upstream reported it, normalised over dialects. `prompt` includes `cached`."""

    prompt: int
    completion: int
    cached: int | None = None
    reasoning: int | None = None
    cache_write: int | None = None
    audio_input: int | None = None
    audio_output: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One real call to one deployment."""

    deployment: str
    provider: str
    region: str
    host: str
    model: str  # what the provider was asked for
    started: float  # Unix time, s
    ended: float
    status: int | None
    error: str | None  # the failure's kind, or None
    sent_id: str
    received_id: str | None = None
    tls_spki: str | None = None  # sha256 hex of the upstream's SubjectPublicKeyInfo


@dataclass(frozen=True, slots=True)
class AnswerView:
    """What the gateway reads of a whole answer, whatever its dialect. `texts` is everything the model wrote."""

    id: str | None
    model: str | None
    created: int | None
    fingerprint: str | None
    texts: tuple[str, ...]
    finish_reasons: tuple[str | None, ...]
    usage: Usage | None
    body: Mapping[str, Any] = field(default_factory=dict)  # the parsed answer, for provider-specific evidence


@dataclass(frozen=True, slots=True)
class EventView:
    """What the gateway reads of one stream event. `error` is the upstream's own error object, if it is one."""

    kind: Literal["data", "done", "error", "ping"]
    id: str | None = None
    model: str | None = None
    created: int | None = None
    fingerprint: str | None = None
    text: str = ""
    finish_reasons: tuple[tuple[int, str], ...] = ()  # (choice index, reason) that ended with this event
    choices_seen: tuple[int, ...] = ()
    usage: Usage | None = None
    error: Mapping[str, Any] | None = None
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One integrity test of one exchange. A check that does not apply is absent, never `passed`."""

    name: str
    verdict: VerdictName
    detail: str
    hard: bool = True  # a failed hard check alarms by itself; a soft one is accumulated
    evidence: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Commitment:
    """HMAC-SHA256 of content under a random key; the key lives in an erasable table."""

    digest: str  # hex
    key: bytes


@dataclass(slots=True)
class Exchange:
    """One client request with all that becomes of it. The pipeline fills it stage by stage and seals it once."""

    request_id: str
    receipt_id: str
    endpoint: Endpoint
    received: float  # Unix time, s
    received_mono: float
    stream: bool = False
    principal: Principal | None = None
    request: InferenceRequest | None = None
    requested_model: str | None = None
    raw_body: bytes = b""
    client_request_id: str | None = None
    session: str | None = None
    workload: str | None = None
    decision: Decision | None = None
    plan: Plan | None = None
    count: TokenCount | None = None
    attempts: list[Attempt] = field(default_factory=list)
    effective: Effective | None = None
    substituted: bool = False
    usage: Usage | None = None
    usage_estimated: bool = False
    cost_usd: Decimal | None = None
    checks: list[Check] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    integrity: Integrity = "passed"
    outcome: Outcome = "failed"
    error: Any = None  # errors.AssayError of the answer, if it was one
    commitments: dict[str, Commitment] = field(default_factory=dict)  # request, response, upstream_request/response
    cache: Literal["hit", "miss"] | None = None
    first_byte_ms: int | None = None
    queue_ms: int = 0
    upstream_ms: float = 0.0  # time spent waiting for upstreams, to tell the gateway's own
