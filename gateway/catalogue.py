"""What an administrator may read of the configuration: listed fields only, so that a new one is hidden."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gateway.config.snapshot import Snapshot
from gateway.policy.source import PolicySource
from gateway.routing.health import Health


def deployments(snapshot: Snapshot, health: Health, quarantined: dict[str, str]) -> list[dict[str, Any]]:
    """Deployments with their condition."""
    rows = []
    for deployment in snapshot.deployments.values():
        condition = health.condition(deployment.id)
        rows.append(
            {
                "id": deployment.id,
                "provider": deployment.provider.id,
                "region": deployment.region,
                "model": deployment.model,
                "context_window": deployment.context_window,
                "resting": health.resting(deployment.id),
                "in_flight": condition.in_flight,
                "quarantined": quarantined.get(deployment.id),
            }
        )
    return rows


def tenants(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Tenants with their lists."""
    return [
        {
            "id": tenant.id,
            "origin": tenant.origin,
            "allow": {
                "providers": tenant.allow.providers,
                "regions": tenant.allow.regions,
                "models": tenant.allow.models,
                "deployments": tenant.allow.deployments,
            },
            "workloads": sorted(tenant.workloads),
        }
        for tenant in snapshot.tenants.values()
    ]


def policies(source: PolicySource) -> list[dict[str, Any]]:
    """Policies with file, line and reason."""
    return [
        {
            "id": rule.id,
            "effect": rule.effect,
            "reason": rule.reason,
            "file": Path(rule.file).name,
            "line": rule.line,
        }
        for rule in source.rules
    ]
