"""Who really answered, from where each provider really says it, with the grade that place deserves.

Grades (contract): `declared` is only our configuration; `asserted` is a claim of the provider in body or header;
`observed` is what the gateway saw itself (the origin it dialled, a binding id that came back); `verified` is signed.
Nothing here reads the request: what was asked for is never evidence of what was served.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.config.snapshot import Deployment
from gateway.exchange import AnswerView, Effective, EventView, Evidence, Grade

_NONE = Evidence(None, "none", Grade.none)
_REQUEST_ID_HEADERS = (
    "x-request-id",
    "request-id",
    "apim-request-id",
    "x-amzn-requestid",
    "x-goog-request-id",
    "mistral-correlation-id",
    "cf-ray",
)
_EXTRA_HEADERS = ("x-together-traceid", "x-cluster", "x-engine-pod", "openai-processing-ms", "openai-version")
_DATE = r"-(\d{4}-\d{2}-\d{2}|\d{8})"


def effective(
    deployment: Deployment, headers: Sequence[tuple[str, str]], view: AnswerView | EventView, *, bound: bool = False
) -> Effective:
    """The effective identity of an answer or of a stream so far. `bound`: a signed binding of the engine verified."""
    names = dict(headers)
    body = view.body
    kind = deployment.provider.kind
    model = _model(kind, names, view, bound)
    provider, region = _place(deployment, names, body)
    fingerprint = Evidence(view.fingerprint, "body.system_fingerprint", Grade.asserted) if view.fingerprint else _NONE
    return Effective(
        deployment.id,
        provider,
        region,
        model,
        fingerprint,
        next((names[name] for name in _REQUEST_ID_HEADERS if name in names), None),
        view.id,
        tuple(_extra(names, body)),
    )


def _model(kind: str, headers: Mapping[str, str], view: AnswerView | EventView, bound: bool) -> Evidence:
    if kind == "azure" and headers.get("x-ms-served-model"):
        return Evidence(headers["x-ms-served-model"], "header:x-ms-served-model", Grade.asserted)
    if view.model:
        return Evidence(view.model, "body.model", Grade.verified if bound else Grade.asserted)
    return _NONE


def _place(deployment: Deployment, headers: Mapping[str, str], body: Mapping[str, Any]) -> tuple[Evidence, Evidence]:
    """Provider and region: the origin dialled for direct providers, the provider's own word for aggregators."""
    provider = deployment.provider
    region = Evidence(deployment.region, "config", Grade.declared)
    if provider.kind == "openrouter":
        metadata = body.get("openrouter_metadata")
        named = _chosen_provider(metadata) or (body.get("provider") if isinstance(body.get("provider"), str) else None)
        who = (
            Evidence(f"{provider.id}/{named}", "body.openrouter_metadata", Grade.asserted)
            if named
            else Evidence(provider.id, "origin", Grade.observed)
        )
        if isinstance(metadata, Mapping) and isinstance(metadata.get("region"), str):
            region = Evidence(metadata["region"], "body.openrouter_metadata.region", Grade.asserted)
        return who, region
    if provider.kind == "litellm":
        return Evidence(provider.id, "config", Grade.declared), region
    if provider.kind == "azure" and headers.get("x-ms-region"):
        region = Evidence(headers["x-ms-region"], "header:x-ms-region", Grade.asserted)
    elif provider.kind == "anthropic":
        usage = body.get("usage") or (body.get("message") or {}).get("usage")
        if isinstance(usage, Mapping) and isinstance(usage.get("inference_geo"), str):
            region = Evidence(usage["inference_geo"], "body.usage.inference_geo", Grade.asserted)
    elif headers.get("x-groq-region"):
        region = Evidence(headers["x-groq-region"], "header:x-groq-region", Grade.asserted)
    return Evidence(provider.id, "origin", Grade.observed), region


def _chosen_provider(metadata: Any) -> str | None:
    if not isinstance(metadata, Mapping):
        return None
    attempts = metadata.get("attempts")
    if isinstance(attempts, list):
        for attempt in reversed(attempts):
            if isinstance(attempt, Mapping) and isinstance(attempt.get("provider"), str):
                return str(attempt["provider"])
    return None


def _extra(headers: Mapping[str, str], body: Mapping[str, Any]) -> list[tuple[str, str]]:
    extra = [(name, headers[name][:200]) for name in _EXTRA_HEADERS if name in headers]
    if isinstance(body.get("service_tier"), str):
        extra.append(("service_tier", body["service_tier"][:64]))
    metadata = body.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(metadata.get("weight_version"), str):
        extra.append(("weight_version", metadata["weight_version"][:64]))
    for name in ("cf-aig-cache-status", "x-litellm-cache-key"):
        if name in headers:
            extra.append((name, headers[name][:64]))
    return extra


def merge(first: Effective | None, later: Effective) -> Effective:
    """What a stream has shown so far: the first statement of each field stands, later events fill what was missing."""
    if first is None:
        return later
    return Effective(
        first.deployment,
        first.provider if first.provider.value else later.provider,
        later.region if later.region.grade > first.region.grade else first.region,
        first.model if first.model.value else later.model,
        first.fingerprint if first.fingerprint.value else later.fingerprint,
        first.upstream_request_id or later.upstream_request_id,
        first.response_id or later.response_id,
        tuple(dict((*first.extra, *later.extra)).items()),
    )


def served_is_accepted(deployment: Deployment, served: str | None) -> bool | None:
    """Whether the deployment may serve this model; None when the upstream said nothing.

    Without `accept_models` the asked-for model and its dated snapshots are accepted (contract, section 2).
    """
    if not served:
        return None
    if deployment.accept_models is None:
        model = deployment.model
        return served == model or re.fullmatch(re.escape(model) + _DATE, served) is not None
    return any(matches(pattern, served) for pattern in deployment.accept_models)


def matches(pattern: str, name: str) -> bool:
    """Exact, `*` (all), or whole-segment wildcards: `prov/*` matches `prov/m`, never `provz/m` or `prov/a/b`."""
    if pattern in ("*", name):
        return True
    if "*" not in pattern:
        return False
    wanted, given = pattern.split("/"), name.split("/")
    return len(wanted) == len(given) and all(w in ("*", g) and g for w, g in zip(wanted, given, strict=True))
