"""`assay keys`."""

from __future__ import annotations

import json

import click

from gateway.cli.session import Session, with_session

CONFIG = click.option(
    "--config", "config", metavar="FILE", help="The configuration; else ./assay.yaml, else $ASSAY_CONFIG."
)


@click.group("keys")
def command() -> None:
    """Makes, lists, rotates and revokes API keys.

    Example: assay keys create --tenant acme
    """


@command.command("create")
@CONFIG
@click.option("--tenant", required=True)
@click.option("--workload", help="Pins the key to one workload.")
@click.option("--model", "models", multiple=True, help="Limits the key to these models; may be repeated.")
@click.option("--expires-in-days", type=click.IntRange(1))
@click.option("--json", "as_json", is_flag=True)
def create(
    config: str | None,
    tenant: str,
    workload: str | None,
    models: tuple[str, ...],
    expires_in_days: int | None,
    as_json: bool,
) -> None:
    """Makes a key and prints its secret, this once.

    Example: assay keys create --tenant acme --model gpt-4o
    """

    async def work(session: Session) -> dict[str, object]:
        lifetime = expires_in_days * 86_400 if expires_in_days else None
        made = await session.keys.create(tenant, workload, list(models) or None, None, lifetime)
        await session.audit.add("cli", "key.create", made["id"], {"tenant": tenant})
        return made

    made = with_session(config, work)
    click.echo(json.dumps(made, indent=2) if as_json else f"{made['id']}\n{made['secret']}")


@command.command("list")
@CONFIG
@click.option("--tenant")
@click.option("--json", "as_json", is_flag=True)
def list_(config: str | None, tenant: str | None, as_json: bool) -> None:
    """Lists keys; secrets are not kept anywhere.

    Example: assay keys list --tenant acme
    """

    async def work(session: Session) -> list[dict[str, object]]:
        return await session.keys.every(tenant)

    rows = with_session(config, work)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    for row in rows:
        state = "revoked" if row.get("revoked_ms") else "active"
        click.echo(f"{row['id']:42} {row['tenant']:20} {row['origin']:9} {state}")


@command.command("revoke")
@CONFIG
@click.argument("id")
def revoke(config: str | None, id: str) -> None:
    """Revokes a key for good; every process refuses it within a second.

    Example: assay keys revoke key_0123
    """

    async def work(session: Session) -> None:
        await session.keys.revoke(id)
        await session.audit.add("cli", "key.revoke", id, {})

    with_session(config, work)
    click.echo(f"{id} is revoked")


@command.command("rotate")
@CONFIG
@click.argument("id")
@click.option("--overlap-s", type=click.IntRange(0), default=86_400, help="How long the old key stays valid.")
def rotate(config: str | None, id: str, overlap_s: int) -> None:
    """Makes a successor of a key; the old one ends after the overlap.

    Example: assay keys rotate key_0123 --overlap-s 3600
    """

    async def work(session: Session) -> dict[str, object]:
        made = await session.keys.rotate(id, overlap_s)
        await session.audit.add("cli", "key.rotate", id, {"successor": made["id"]})
        return made

    made = with_session(config, work)
    click.echo(f"{made['id']}\n{made['secret']}")
