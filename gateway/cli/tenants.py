"""`assay tenants`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from gateway.cli import fail
from gateway.cli.keys import CONFIG
from gateway.cli.session import Session, with_session
from gateway.config.document import read
from gateway.config.snapshot import Tenant


@click.group("tenants")
def command() -> None:
    """Makes, lists, shows and removes tenants.

    Example: assay tenants create beta --allow-model gpt-4o --allow-provider openai --allow-region us
    """


@command.command("create")
@CONFIG
@click.argument("id")
@click.option("--allow-model", "models", multiple=True, help="May be repeated; wildcards by whole segments.")
@click.option("--allow-provider", "providers", multiple=True)
@click.option("--allow-region", "regions", multiple=True)
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The tenant's block as in assay.yaml: allow, require, workloads, limits.",
)
def create(
    config: str | None,
    id: str,
    models: tuple[str, ...],
    providers: tuple[str, ...],
    regions: tuple[str, ...],
    file: Path | None,
) -> None:
    """Makes a tenant in the database; running gateways serve it within a second.

    Example: assay tenants create beta --file beta.yaml
    """
    block: dict[str, Any] = {}
    if file is not None:
        document = read(file, {})
        if document.problems or not isinstance(document.value, dict):
            fail(str(document.problems[0]) if document.problems else f"{file}: must be a mapping", 2)
        block = document.value
    allow = block.setdefault("allow", {})
    for name, values in (("models", models), ("providers", providers), ("regions", regions)):
        if values:
            allow[name] = list(values)

    async def work(session: Session) -> None:
        await session.tenants.create(session.snapshot, id, block)
        await session.audit.add("cli", "tenant.create", id, {})

    with_session(config, work)
    click.echo(f"{id} is made; next: assay keys create --tenant {id}")


@command.command("remove")
@CONFIG
@click.argument("id")
def remove(config: str | None, id: str) -> None:
    """Ends a tenant of the database and revokes its keys. Its receipts stay.

    Example: assay tenants remove beta
    """

    async def work(session: Session) -> int:
        revoked = await session.tenants.remove(session.snapshot, id)
        await session.audit.add("cli", "tenant.remove", id, {"keys": revoked})
        return revoked

    click.echo(f"{id} is removed, {with_session(config, work)} key(s) revoked")


async def _all(session: Session) -> dict[str, Tenant]:
    return dict(session.snapshot.tenants)


@command.command("list")
@CONFIG
def list_(config: str | None) -> None:
    """One tenant a line.

    Example: assay tenants list
    """
    for tenant in with_session(config, _all).values():
        click.echo(f"{tenant.id:24} {tenant.origin:9} models {', '.join(tenant.allow.models) or 'none'}")


@command.command("show")
@CONFIG
@click.argument("id")
def show(config: str | None, id: str) -> None:
    """A tenant's rules as JSON; secrets are never shown.

    Example: assay tenants show acme
    """
    tenant = with_session(config, _all).get(id)
    if tenant is None:
        fail(f"there is no tenant `{id}`")
    rules: dict[str, Any] = {
        "id": tenant.id,
        "origin": tenant.origin,
        "allow": asdict(tenant.allow),
        "require": asdict(tenant.require),
        "workloads": {name: asdict(workload) for name, workload in tenant.workloads.items()},
        "keys": [key.id for key in tenant.keys],
    }
    click.echo(json.dumps(rules, indent=2, default=str))
