"""`assay db`."""

from __future__ import annotations

import asyncio

import click

from gateway.cli.configuration import valid_configuration
from gateway.cli.keys import CONFIG
from gateway.storage.database import Database


@click.group("db")
def command() -> None:
    """Migrates the database of a configuration.

    Example: assay db upgrade --config assay.yaml
    """


def _database(config: str | None) -> Database:
    found = valid_configuration(config)
    return Database(found.settings.database, found.folder)


@command.command("current")
@CONFIG
def current(config: str | None) -> None:
    """Prints the schema's revision and the newest one.

    Example: assay db current
    """

    async def run() -> tuple[str | None, str | None]:
        database = _database(config)
        try:
            return await database.state()
        finally:
            await database.close()

    revision, head = asyncio.run(run())
    click.echo(f"{revision or 'empty'} (newest: {head})")


@command.command("upgrade")
@CONFIG
def upgrade(config: str | None) -> None:
    """Brings the schema up to date; safe to run from several places at once.

    Example: assay db upgrade
    """

    async def run() -> None:
        database = _database(config)
        try:
            await database.upgrade()
        finally:
            await database.close()

    asyncio.run(run())
    click.echo("the schema is up to date")
