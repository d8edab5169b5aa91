"""Receipts on SQLite: one writer thread, group commits with full synchronisation, and the log integrated behind them.

The writer takes whatever is queued, commits it in one transaction (WAL, `synchronous=FULL`: durable when COMMIT
returns) and then wakes the requests that wait for it. Entries are given their place in the log in the order of their
commits by whichever process holds the integrator's lease; `BEGIN IMMEDIATE` makes that safe for several processes.
"""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.errors import ReceiptUnavailable
from gateway.receipts.record import ReceiptFilter, ReceiptRecord, StoredReceipt

_BATCH = 512
_MAX_QUEUED = 20_000
_COLUMNS = (
    "id, tenant, key_id, time_ms, endpoint, session, deployment, provider, model, requested, outcome, integrity, "
    "status, prompt_tokens, completion_tokens, cost_nano_usd, fingerprint, tags, kid, payload, signature"
)
_INSERT = f"INSERT INTO receipts ({_COLUMNS}) VALUES ({', '.join('?' * 21)})"  # noqa: S608 - constants only
_INSERT_KEY = "INSERT INTO commitment_keys (receipt_id, tenant, name, key) VALUES (?, ?, ?, ?)"
_STORED = (
    "r.id, r.tenant, r.key_id, r.session, r.kid, r.payload, r.signature, "
    "(SELECT l.idx FROM log_entries l WHERE l.ref = r.id) FROM receipts r"
)
_DICTIONARY = (
    b'{"_type":"https://in-toto.io/Statement/v1","predicate":{"attempts":[{"deployment":"","ended":"2026-","error":null,'
    b'"host":"","model":"","provider":"","received_id":"chatcmpl-","region":"","sent_id":"","started":"2026-","status":200,'
    b'"tls_spki":null}],"candidates":[{"deployment":"","permitted":true,"reasons":["deployment-listed"]}],"checks":['
    b'{"detail":"","name":"completeness","verdict":"passed"}],"client_request_id":null,"commitments":{"request":"",'
    b'"response":"","upstream_request":"","upstream_response":""},"cost_usd":"0.000","effective":{"deployment":"",'
    b'"evidence":{"fingerprint":{"grade":"none","source":"none"},"model":{"grade":"asserted","source":"body.model"},'
    b'"provider":{"grade":"observed","source":"origin"},"region":{"grade":"declared","source":"config"}},"fingerprint":'
    b'null,"model":"","provider":"","region":"","response_id":"chatcmpl-"},"endpoint":"/v1/chat/completions",'
    b'"first_candidate":"","id":"rcpt_","integrity":"passed","key":"k_","outcome":"completed","policy":{"decision":'
    b'"permit","determining":["deployment-listed"],"digest":"","version":""},"repairs":[],"requested":{"model":"",'
    b'"parameters_digest":"","workload":null},"session":null,"stream":false,"substituted":false,"tenant":"t_","time":'
    b'"2026-","timing_ms":{"gateway":0,"queue":0,"total":0,"upstream_first_byte":0},"tokens":{"counted":{"method":'
    b'"estimated","prompt":0},"reported":{"cached":null,"completion":0,"prompt":0,"reasoning":null},"residual":0}},'
    b'"predicateType":"urn:assay:receipt:v1","subject":[{"digest":{"sha256":""},"name":"rcpt_"}]}'
)


def pack(payload: bytes) -> bytes:
    """A statement compressed against the shape all statements share."""
    packer = zlib.compressobj(6, zdict=_DICTIONARY)
    return packer.compress(payload) + packer.flush()


def unpack(data: bytes) -> bytes:
    """The statement again, byte for byte."""
    unpacker = zlib.decompressobj(zdict=_DICTIONARY)
    return unpacker.decompress(data) + unpacker.flush()


def connect(path: Path, *, timeout_s: float = 5.0) -> sqlite3.Connection:
    """A connection with the pragmas everything here relies on; autocommit, transactions are explicit."""
    connection = sqlite3.connect(path, timeout=timeout_s, isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "temp_store=MEMORY", "cache_size=-8000"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


class SqliteReceipts:
    """The store of contract section 6 for one process; several processes of one host may share the file."""

    def __init__(self, path: Path, after_commit: Callable[[sqlite3.Connection], None] | None = None) -> None:
        self._path = path
        self._after_commit = after_commit
        self._queue: queue.SimpleQueue[tuple[ReceiptRecord, asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._local = threading.local()
        self.lag = 0

    def start(self) -> None:
        """Starts the writer; call from the event loop that submits."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_forever, name="receipt-writer", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Commits what is queued and ends the writer."""
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join, 30)
            self._thread = None

    def submit(self, record: ReceiptRecord) -> asyncio.Future[None]:
        """Queues a record; the future is done when it is durable."""
        assert self._loop is not None
        future: asyncio.Future[None] = self._loop.create_future()
        if self._queue.qsize() > _MAX_QUEUED or self._thread is None:
            future.set_exception(ReceiptUnavailable("receipts cannot be recorded now"))
            return future
        self._queue.put((record, future))
        return future

    def _write_forever(self) -> None:
        connection: sqlite3.Connection | None = None
        stopping = False
        while not stopping:
            try:
                items = [self._queue.get(timeout=0.2)]
            except queue.Empty:
                items = []
            while items and items[-1] is not None and len(items) < _BATCH:
                try:
                    items.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            stopping = bool(items) and items[-1] is None
            batch = [item for item in items if item is not None]
            try:
                connection = connection or connect(self._path)
                if batch:
                    _write(connection, [record for record, _ in batch])
                    self._resolve(batch, None)
                    batch = []
                if self._after_commit is not None:
                    self._after_commit(connection)
            except sqlite3.Error:
                self._resolve(batch, ReceiptUnavailable("receipts cannot be recorded now"))
                if connection is not None:
                    connection.close()
                connection = None
                time.sleep(0.05)
        if connection is not None:
            connection.close()

    def _resolve(self, batch: list[tuple[ReceiptRecord, asyncio.Future[None]]], problem: Exception | None) -> None:
        if not batch or self._loop is None or self._loop.is_closed():
            return
        futures = [future for _, future in batch]

        def resolve() -> None:
            for future in futures:
                if future.done():
                    continue
                if problem is None:
                    future.set_result(None)
                else:
                    future.set_exception(problem)

        self._loop.call_soon_threadsafe(resolve)

    def reader(self) -> sqlite3.Connection:
        """This thread's connection for reading."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = connect(self._path)
        return connection

    async def get(self, id: str, tenant: str | None) -> StoredReceipt | None:
        """One receipt; with `tenant` only if it is that tenant's."""

        def read() -> StoredReceipt | None:
            row = self.reader().execute(f"SELECT {_STORED} WHERE r.id = ?", (id,)).fetchone()
            return _stored(row) if row is not None and tenant in (None, row[1]) else None

        return await asyncio.to_thread(read)

    async def openings(self, id: str) -> dict[str, bytes]:
        """The commitment keys of a receipt that still exist."""

        def read() -> dict[str, bytes]:
            rows = self.reader().execute("SELECT name, key FROM commitment_keys WHERE receipt_id = ?", (id,))
            return {name: bytes(key) for name, key in rows}

        return await asyncio.to_thread(read)

    async def search(self, wanted: ReceiptFilter) -> tuple[list[StoredReceipt], bool]:
        """A page, newest first, and whether there is more."""
        conditions, values = _conditions(wanted)
        limit = max(1, min(wanted.limit, 1000))
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        sql = f"SELECT {_STORED}{where} ORDER BY r.time_ms DESC, r.id DESC LIMIT ?"

        def read() -> list[Any]:
            return self.reader().execute(sql, (*values, limit + 1)).fetchall()

        rows = await asyncio.to_thread(read)
        return [_stored(row) for row in rows[:limit]], len(rows) > limit

    async def erase(self, tenant: str, before_ms: int | None) -> int:
        """Removes a tenant's commitment keys; the log and its proofs stay as they are."""

        def run() -> int:
            sql = "DELETE FROM commitment_keys WHERE tenant = ?"
            values: tuple[Any, ...] = (tenant,)
            if before_ms is not None:
                sql += " AND receipt_id IN (SELECT id FROM receipts WHERE tenant = ? AND time_ms < ?)"
                values = (tenant, tenant, before_ms)
            connection = connect(self._path)
            try:
                connection.execute("PRAGMA secure_delete=ON")
                return connection.execute(sql, values).rowcount
            finally:
                connection.close()

        return await asyncio.to_thread(run)


def _write(connection: sqlite3.Connection, records: list[ReceiptRecord]) -> None:
    rows = [
        (
            r.id,
            r.tenant,
            r.key,
            r.time_ms,
            r.endpoint,
            r.session,
            r.deployment,
            r.provider,
            r.model,
            r.requested,
            r.outcome,
            r.integrity,
            r.status,
            r.prompt_tokens,
            r.completion_tokens,
            r.cost_nano_usd,
            r.fingerprint,
            r.tags,
            r.kid,
            pack(r.payload),
            r.signature,
        )
        for r in records
    ]
    keys = [(r.id, r.tenant, name, key) for r in records for name, key in r.openings]
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(_INSERT, rows)
        connection.executemany(_INSERT_KEY, keys)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _conditions(wanted: ReceiptFilter) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    equal = ("tenant", "session", "deployment", "model", "outcome", "integrity")
    for name in equal:
        value = getattr(wanted, name)
        if value is not None:
            conditions.append(f"r.{name} = ?")
            values.append(value)
    for condition, value in (
        ("r.time_ms >= ?", wanted.since_ms),
        ("r.time_ms < ?", wanted.until_ms),
        ("r.prompt_tokens >= ?", wanted.min_prompt_tokens),
        ("r.prompt_tokens <= ?", wanted.max_prompt_tokens),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    if wanted.after is not None:
        conditions.append("(r.time_ms, r.id) < (SELECT time_ms, id FROM receipts WHERE id = ?)")
        values.append(wanted.after)
    return conditions, values


def _stored(row: Any) -> StoredReceipt:
    return StoredReceipt(row[0], row[1], row[2], row[3], row[4], unpack(row[5]), bytes(row[6]), row[7])
