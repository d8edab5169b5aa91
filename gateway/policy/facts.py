"""Facts for Cedar: tenants, models and deployments as entities, wildcards resolved into plain sets.

Cedar's `like` takes only a literal and its `*` crosses `/`, so facts carry the wildcards: a name comes with every
whole-segment pattern that matches it, and policies ask for a common member.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import product
from typing import Any

from gateway.config.snapshot import Deployment, ModelAlias, Require, Tenant, Workload
from gateway.exchange import Endpoint, Grade

UNKNOWN = 1_000_000
ANY = ["*"]
_MAX_SEGMENTS = 6
_SCOPES = ("request", "tenant", "account", "global")
#: The best grade an answer of a kind can have (contract, section 6: through litellm at most `asserted`).
_ATTAINABLE = {
    "litellm": Grade.asserted,
    "openrouter": Grade.asserted,
    "vllm": Grade.verified,
    "sglang": Grade.observed,
}


def patterns(name: str) -> list[str]:
    """The name itself, `*`, and every pattern with whole segments replaced that matches it."""
    segments = name.split("/")
    if len(segments) > _MAX_SEGMENTS or not all(segments):
        return sorted({"*", name})  # no patterns of segments, but `*` is everything
    return sorted({"*", *("/".join(choice) for choice in product(*((segment, "*") for segment in segments)))})


def today() -> date:
    """The UTC date that review ages are counted from."""
    return datetime.now(UTC).date()


def tenant_entity(tenant: Tenant, workload: Workload | None, *, canary: bool) -> dict[str, Any]:
    """A tenant's lists, and its requirements joined with its workload's: the stricter of the two."""
    require = _joined(tenant.require, workload.require if workload else None)
    allow = tenant.allow
    attributes = {
        "canary": canary,
        "providers": list(allow.providers),
        "regions": list(allow.regions),
        "models": list(allow.models),
        "deployments": ANY if allow.deployments is None else list(allow.deployments),
        "zero_retention": require.zero_retention,
        "no_training": require.no_training,
        "pinned_models": require.pinned_models,
        "evidence": int(Grade[require.evidence]),
        "dpa": bool(require.dpa),
        "context_checked": bool(require.context_checked),
        "output_validated": bool(require.output_validated),
        "incident_notice_hours": UNKNOWN if require.incident_notice_hours is None else require.incident_notice_hours,
        "reviewed_within_days": UNKNOWN if require.reviewed_within_days is None else require.reviewed_within_days,
        "cache_scopes": ANY if require.cache_scope is None else list(require.cache_scope),
    }
    return {"uid": {"type": "Tenant", "id": tenant.id}, "attrs": attributes, "parents": []}


def _joined(first: Require, second: Require | None) -> Require:
    if second is None:
        return first
    scopes = [set(r.cache_scope) for r in (first, second) if r.cache_scope is not None]
    return Require(
        first.zero_retention or second.zero_retention,
        first.no_training or second.no_training,
        first.pinned_models or second.pinned_models,
        max((first.evidence, second.evidence), key=lambda name: Grade[name]),
        first.dpa or second.dpa,
        _least(first.incident_notice_hours, second.incident_notice_hours),
        tuple(sorted(set.intersection(*scopes))) if scopes else None,
        first.context_checked or second.context_checked,
        first.output_validated or second.output_validated,
        _least(first.reviewed_within_days, second.reviewed_within_days),
    )


def _least(first: int | None, second: int | None) -> int | None:
    values = [value for value in (first, second) if value is not None]
    return min(values) if values else None


def model_entity(alias: str) -> dict[str, Any]:
    """A model as clients name it."""
    return {"uid": {"type": "Model", "id": alias}, "attrs": {"names": patterns(alias)}, "parents": []}


def deployment_entity(deployment: Deployment, on: date) -> dict[str, Any]:
    """A deployment with its provider's promises; what nobody stated satisfies nothing."""
    provider = deployment.provider
    assurances = provider.assurances
    age = UNKNOWN
    if assurances.reviewed:
        age = max((on - date.fromisoformat(assurances.reviewed)).days, 0)
    notice = assurances.incident_notice_hours
    attributes = {
        "id_names": patterns(deployment.id),
        "provider_names": patterns(provider.id),
        "region_names": patterns(deployment.region),
        "provider": provider.id,
        "region": deployment.region,
        "kind": provider.kind,
        "upstream_model": deployment.model,
        "zero_retention": provider.zero_retention is True,
        "trains_on_data": provider.trains_on_data is not False,
        "pinned": deployment.pinned,
        "evidence": int(_ATTAINABLE.get(provider.kind, Grade.asserted)),
        "dpa": assurances.dpa is True,
        "context_checked": assurances.context_checked is True,
        "output_validated": assurances.output_validated is True,
        "incident_notice_hours": UNKNOWN if notice is None else notice,
        "review_age_days": age,
        "cache_scopes": ["*", assurances.cache_scope] if assurances.cache_scope in _SCOPES else ["*"],
    }
    return {"uid": {"type": "Deployment", "id": deployment.id}, "attrs": attributes, "parents": []}


def see_context(workload: Workload | None, key_models: tuple[str, ...] | None) -> dict[str, Any]:
    """What further limits the models a caller may name."""
    return {
        "workload": workload.name if workload else "default",
        "key_models": ANY if key_models is None else list(key_models),
        "workload_models": ANY if workload is None or workload.models is None else list(workload.models),
    }


def infer_context(workload: Workload | None, endpoint: Endpoint, alias: ModelAlias) -> dict[str, Any]:
    """What further limits the deployments a request may reach."""

    def listed(names: tuple[str, ...] | None) -> list[str]:
        return ANY if names is None else list(names)

    return {
        "workload": workload.name if workload else "default",
        "endpoint": endpoint.value,
        "model": alias.name,
        "workload_providers": listed(workload.providers if workload else None),
        "workload_regions": listed(workload.regions if workload else None),
        "workload_deployments": listed(workload.deployments if workload else None),
    }
