"""What commands over the database of a configuration share: it is opened, migrated, used and closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

from gateway.app import current_from
from gateway.cli import fail
from gateway.config.loader import default_path, load, on_kubernetes
from gateway.config.root_secret import KeysUnavailable, RootSecret, open_root
from gateway.config.settings import Settings
from gateway.config.snapshot import Snapshot
from gateway.errors import AssayError
from gateway.identity.keys import Authenticator
from gateway.keyring import KeyService
from gateway.policy.source import PolicyProblem
from gateway.storage.database import Database, DatabaseUnusable
from gateway.storage.keys import AuditRepository, KeyRepository, TenantRepository
from gateway.storage.receipts_store import Receipts
from gateway.storage.sql import Source
from gateway.tenancy import TenantService, merged

T = TypeVar("T")


@dataclass(slots=True)
class Session:
    """An opened installation."""

    settings: Settings
    snapshot: Snapshot
    root: RootSecret
    database: Database
    keys: KeyService
    tenants: TenantService
    audit: AuditRepository
    receipts: Receipts
    keys_dir: Path


@asynccontextmanager
async def _open(config: str | None) -> AsyncIterator[Session]:
    loaded = load(default_path(config))
    for problem in loaded.problems:
        click.echo(str(problem), err=True)
    if loaded.settings is None:
        fail("the configuration is not valid; see `assay check`")
    current = current_from(loaded)
    folder = loaded.path.parent
    root = open_root(folder / current.settings.keys_dir, may_create=not on_kubernetes())
    database = Database(current.settings.database, folder)
    try:
        revision, head = await database.state()
        if revision != head:
            if database.sqlite is None:
                fail("the database schema is behind; run `assay db upgrade`")
            await database.upgrade()
        repository = KeyRepository(database)
        authenticator = Authenticator(root.derive("api-key-pepper"), repository)
        stored = TenantRepository(database)
        snapshot = merged(current.snapshot, await stored.all())
        service = KeyService(repository, lambda: snapshot, authenticator.digest, lambda _: None)
        receipts = Receipts(Source(current.settings.database, database.sqlite))
        yield Session(
            current.settings,
            snapshot,
            root,
            database,
            service,
            TenantService(stored, repository),
            AuditRepository(database),
            receipts,
            folder / current.settings.keys_dir,
        )
        receipts.source.close()
    finally:
        await database.close()


def with_session(config: str | None, work: Callable[[Session], Awaitable[T]]) -> T:
    """Runs `work` with an opened installation; every expected failure is one line."""

    async def run() -> T:
        async with _open(config) as session:
            return await work(session)

    try:
        return asyncio.run(run())
    except AssayError as error:
        fail(error.message)
    except (KeysUnavailable, DatabaseUnusable, PolicyProblem) as error:
        fail(str(error))
    raise AssertionError("unreachable")
