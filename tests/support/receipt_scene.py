"""A real store with a real log on either database, for tests of receipts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from gateway.config.root_secret import create_private
from gateway.receipts.canonical import canonical
from gateway.receipts.checkpoint import sign_checkpoint
from gateway.receipts.envelope import seal
from gateway.receipts.keycheck import KeyCheck
from gateway.receipts.record import ReceiptRecord
from gateway.receipts.signer import KeyRing, open_keys
from gateway.storage.database import Database
from gateway.storage.log_audit import Report, audit
from gateway.storage.log_store import TransparencyLog
from gateway.storage.receipts_store import Receipts
from gateway.storage.sql import Source

SERVER = os.environ.get("ASSAY_TEST_POSTGRES", "postgresql://postgres@127.0.0.1:5432")
ORIGIN = "assay.test/log"
__all__ = ["create_private"]


def record(keys: KeyRing, number: int, **changes: object) -> ReceiptRecord:
    """A signed statement that is small but shaped like one."""
    id_ = str(changes.pop("id", f"rcpt_{secrets.token_hex(12)}"))
    time_ms = int(time.time() * 1000)
    payload = canonical({"_type": "https://in-toto.io/Statement/v1", "predicate": {"id": id_, "number": number}})
    values: dict[str, object] = {
        "id": id_,
        "tenant": "acme",
        "key": "acme-key",
        "time_ms": time_ms,
        "endpoint": "/v1/chat/completions",
        "session": None,
        "deployment": "d1",
        "provider": "p1",
        "model": "m1",
        "requested": "m",
        "outcome": "completed",
        "integrity": "passed",
        "status": 200,
        "prompt_tokens": number,
        "completion_tokens": 5,
        "cost_nano_usd": 1,
        "fingerprint": None,
        "tags": None,
        "kid": keys.receipt.kid,
        "payload": payload,
        "signature": seal(payload, keys.receipt),
        "openings": (("request", b"k" * 32), ("response", b"r" * 32)),
    }
    return ReceiptRecord(**{**values, **changes})  # type: ignore[arg-type]


@dataclass
class Scene:
    """One process of an installation."""

    url: str
    sqlite: Path | None
    keys: KeyRing
    store: Receipts
    log: TransparencyLog

    async def add(self, count: int, **changes: object) -> list[ReceiptRecord]:
        made = [record(self.keys, number, **changes) for number in range(count)]
        await asyncio.gather(*(self.store.submit(item) for item in made))
        return made

    async def settled(self, size: int) -> int:
        """Waits until the log has taken in so much and signed for it."""
        async with asyncio.timeout(20):
            while True:
                newest = await self.log.latest()
                if newest is not None and newest[0] >= size:
                    return newest[0]
                await asyncio.sleep(0.02)

    async def audit(self, start: int | None = 0) -> Report:
        check = KeyCheck(self.keys)
        return await self.store.read(lambda sql: audit(sql, start, check.receipt, check.checkpoint))

    async def edit(self, statement: str, *values: object) -> int:
        """What somebody with the database's password would do."""
        return await self.store.read(lambda sql: sql.run(statement, values))


@contextlib.asynccontextmanager
async def database(kind: str, folder: Path) -> AsyncIterator[str]:
    """The URL of an empty, migrated database."""
    if kind == "sqlite":
        url = f"sqlite:///{folder}/assay.db".replace("sqlite:////", "sqlite:////")
        await _migrate(url, folder)
        yield url
        return
    name = f"assay_test_receipts_{secrets.token_hex(4)}"
    try:
        admin = await asyncpg.connect(f"{SERVER}/postgres", timeout=2)
    except OSError:
        pytest.skip("no PostgreSQL server")
    try:
        await admin.execute(f"CREATE DATABASE {name}")
        url = f"{SERVER}/{name}"
        await _migrate(url, folder)
        yield url
    finally:
        await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await admin.close()


async def _migrate(url: str, folder: Path) -> None:
    opened = Database(url, folder)
    await opened.upgrade()
    await opened.close()


@contextlib.asynccontextmanager
async def scene(url: str, folder: Path, *, interval_s: float = 0.05, quorum: int = 0) -> AsyncIterator[Scene]:
    """Opens a store and its log, and closes them."""
    keys = open_keys(folder / "keys", may_create=True)
    sqlite = folder / "assay.db" if url.startswith("sqlite") else None
    store = Receipts(Source(url, sqlite), lambda sql: log.integrate(sql))
    log = TransparencyLog(
        store,
        lambda size, root: sign_checkpoint(ORIGIN, size, root, keys.log),
        interval_s,
        manifest=keys.manifest,
        quorum=quorum,
    )
    store.start()
    try:
        yield Scene(url, sqlite, keys, store, log)
    finally:
        await store.stop()
