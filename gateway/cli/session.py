"""What commands over the database of a configuration share: it is opened, migrated, used and closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from gateway.cli import fail
from gateway.cli.configuration import valid_configuration
from gateway.config.loader import on_kubernetes
from gateway.config.root_secret import KeysUnavailable, RootSecret, open_root
from gateway.config.settings import Settings
from gateway.config.snapshot import Snapshot
from gateway.errors import AssayError
from gateway.identity.keys import Authenticator
from gateway.keyring import KeyService
from gateway.policy.source import PolicyProblem
from gateway.policy.source import load as load_policies
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
    found = valid_configuration(config)
    settings, folder = found.settings, found.folder
    load_policies(found.policies, default_policies=settings.default_policies)
    root = open_root(folder / settings.keys_dir, may_create=not on_kubernetes())
    database = Database(settings.database, folder)
    try:
        revision, head = await database.state()
        if revision != head:
            if database.sqlite is None:
                fail("the database schema is behind; run `assay db upgrade`")
            await database.upgrade()
        repository = KeyRepository(database)
        authenticator = Authenticator(root.derive("api-key-pepper"), repository)
        stored = TenantRepository(database)
        snapshot = merged(found.snapshot, await stored.all())
        service = KeyService(repository, lambda: snapshot, authenticator.digest, lambda _: None)
        receipts = Receipts(Source(settings.database, database.sqlite))
        yield Session(
            settings,
            snapshot,
            root,
            database,
            service,
            TenantService(stored, repository),
            AuditRepository(database),
            receipts,
            folder / settings.keys_dir,
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
