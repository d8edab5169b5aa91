"""`assay tenants`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click

from gateway.cli import fail
from gateway.cli.keys import CONFIG
from gateway.config.loader import default_path, load
from gateway.config.snapshot import Tenant


@click.group("tenants")
def command() -> None:
    """Lists and shows tenants of the configuration.

    Example: assay tenants list
    """


def _tenants(config: str | None) -> dict[str, Tenant]:
    loaded = load(default_path(config))
    if loaded.snapshot is None:
        for problem in loaded.problems:
            click.echo(str(problem), err=True)
        fail("the configuration is not valid; see `assay check`")
    assert loaded.snapshot is not None
    return dict(loaded.snapshot.tenants)


@command.command("list")
@CONFIG
def list_(config: str | None) -> None:
    """One tenant a line.

    Example: assay tenants list
    """
    for tenant in _tenants(config).values():
        click.echo(f"{tenant.id:24} models {', '.join(tenant.allow.models) or 'none'}")


@command.command("show")
@CONFIG
@click.argument("id")
def show(config: str | None, id: str) -> None:
    """A tenant's rules as JSON; secrets are never shown.

    Example: assay tenants show acme
    """
    tenant = _tenants(config).get(id)
    if tenant is None:
        fail(f"there is no tenant `{id}`")
    assert tenant is not None
    rules: dict[str, Any] = {
        "id": tenant.id,
        "origin": tenant.origin,
        "allow": asdict(tenant.allow),
        "require": asdict(tenant.require),
        "workloads": {name: asdict(workload) for name, workload in tenant.workloads.items()},
        "keys": [key.id for key in tenant.keys],
    }
    click.echo(json.dumps(rules, indent=2, default=str))
