"""Receipts in the database: one writer thread with group commits, and reads beside it. SQLite and PostgreSQL alike.

The writer takes whatever is queued, commits it in one transaction (durable when COMMIT returns) and then wakes the
requests that wait for it. Appends of several processes are serialised by one lock, so that the order of `seq` is the
order of commits: the log may rely on never seeing a smaller one later.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from gateway.errors import ReceiptUnavailable
from gateway.receipts.record import ReceiptFilter, ReceiptRecord, StoredReceipt, UsageRow
from gateway.storage import receipts_rows as rows
from gateway.storage.sql import Source, Sql, SqlError

LOG = logging.getLogger("assay.receipts")
APPEND_LOCK = 7_235_002
_BATCH = 512
_GATHER_S = 0.003
_MAX_QUEUED = 20_000
_EXPORT = 500
_USAGE = (
    "SELECT r.tenant, r.deployment, r.model, COUNT(*), SUM(r.prompt_tokens), SUM(r.completion_tokens), "
    "SUM(r.cost_nano_usd), SUM(CASE WHEN r.cost_nano_usd IS NULL AND r.outcome <> 'refused' THEN 1 ELSE 0 END) "
    "FROM receipts r"
)
_ERASE = 20_000  # sequence numbers in one statement
_ERASE_SQL = (
    "DELETE FROM openings WHERE tenant = ? AND receipt_id IN "
    "(SELECT id FROM receipts WHERE tenant = ? AND time_ms < ? AND seq > ? AND seq <= ?)"
)
T = TypeVar("T")
Waiting = tuple[ReceiptRecord, asyncio.Future[None]]


class Receipts:
    """The store of contract section 6 for one process; several processes may share the database."""

    def __init__(self, source: Source, after_commit: Callable[[Sql], None] | None = None) -> None:
        self.source = source
        self._after_commit = after_commit
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._crowded = False
        self.failures = 0
        self.digests: dict[str, bytes] = {}  # of what was just committed, for the log; the writer's thread only

    def start(self) -> None:
        """Starts the writer; call from the event loop that submits."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write_forever, name="receipt-writer", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Commits what is queued, ends the writer and closes the connections."""
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join, 30)
            self._thread = None
        await asyncio.to_thread(self.source.close)

    @property
    def queued(self) -> int:
        """How many records wait for their commit."""
        return self._queue.qsize()

    def submit(self, record: ReceiptRecord) -> asyncio.Future[None]:
        """Queues a record; the future is done when it is durable, or fails with `ReceiptUnavailable`."""
        assert self._loop is not None
        future: asyncio.Future[None] = self._loop.create_future()
        if self._thread is None or self._queue.qsize() > _MAX_QUEUED:
            future.set_exception(ReceiptUnavailable("receipts cannot be recorded now"))
        else:
            self._queue.put((record, future))
        return future

    # the writer's thread

    def _take(self) -> tuple[list[Waiting], bool]:
        """A batch, and whether it is the last one."""
        batch: list[Waiting] = []
        try:
            item = self._queue.get(timeout=0.2)
            if self._crowded:
                # Several requests wait at once: a moment's patience makes one commit of many.
                time.sleep(_GATHER_S)
            while True:
                if item is None:
                    return batch, True
                batch.append(item)
                if len(batch) >= _BATCH:
                    return batch, False
                item = self._queue.get_nowait()
        except queue.Empty:
            return batch, False

    def _write_forever(self) -> None:
        connection: Sql | None = None
        last = False
        while not last:
            batch, last = self._take()
            self._crowded = len(batch) > 2
            try:
                connection = connection or self.source.connect()
                if batch:
                    self._commit(connection, batch)
                    batch = []
                if self._after_commit is not None:
                    self._after_commit(connection)
            except Exception as error:
                self._fail(batch, error)
                if connection is not None:
                    connection.close()
                connection = None
                time.sleep(0.05)
        if connection is not None:
            connection.close()

    def _commit(self, connection: Sql, batch: list[Waiting]) -> None:
        try:
            write(connection, [record for record, _ in batch])
        except SqlError as error:
            if not error.data:
                raise
            # One record that can never be stored must not take its neighbours with it.
            for item in batch:
                try:
                    write(connection, [item[0]])
                except SqlError as own:
                    if not own.data:
                        raise
                    self._fail([item], own)
                else:
                    self._committed([item])
            return
        self._committed(batch)

    def _committed(self, batch: list[Waiting]) -> None:
        if self._after_commit is not None:
            if len(self.digests) > _MAX_QUEUED:  # another process integrates
                self.digests.clear()
            for record, _ in batch:
                self.digests[record.id] = hashlib.sha256(record.payload).digest()
        self._resolve(batch, None)

    def _fail(self, batch: list[Waiting], error: Exception) -> None:
        self.failures += 1
        LOG.error("receipts could not be written: %s", str(error)[:300])
        self._resolve(batch, ReceiptUnavailable("receipts cannot be recorded now"))

    def _resolve(self, batch: list[Waiting], problem: Exception | None) -> None:
        if not batch or self._loop is None or self._loop.is_closed():
            return

        def resolve() -> None:
            for _, future in batch:
                if future.done():
                    continue
                if problem is None:
                    future.set_result(None)
                else:
                    future.set_exception(problem)

        self._loop.call_soon_threadsafe(resolve)

    async def replay(self, records: list[ReceiptRecord]) -> None:
        """Stores records that may be there already, a journal's."""
        for start in range(0, len(records), _BATCH):
            part = records[start : start + _BATCH]
            await self.read(lambda connection, part=part: write(connection, part, once=True))  # type: ignore[misc]

    # reading

    async def read(self, work: Callable[[Sql], T]) -> T:
        """Runs a query beside the event loop; a lost database is `ReceiptUnavailable`."""

        def run() -> T:
            with self.source.reading() as connection:
                return work(connection)

        try:
            return await asyncio.to_thread(run)
        except SqlError as error:
            raise ReceiptUnavailable("receipts cannot be read now") from error

    async def get(self, id: str, tenant: str | None) -> StoredReceipt | None:
        """One receipt; with `tenant` only if it is that tenant's."""

        def work(connection: Sql) -> StoredReceipt | None:
            found = connection.rows(f"SELECT {rows.STORED} WHERE r.id = ?", (id,))
            return rows.stored(found[0]) if found and tenant in (None, found[0][1]) else None

        return await self.read(work)

    async def openings(self, id: str) -> dict[str, bytes]:
        """The commitment keys of a receipt that still exist."""
        found = await self.read(
            lambda connection: connection.rows("SELECT keys FROM openings WHERE receipt_id = ?", (id,))
        )
        return rows.unpack_keys(bytes(found[0][0])) if found else {}

    async def search(self, wanted: ReceiptFilter) -> tuple[list[StoredReceipt], bool]:
        """A page, newest first, and whether there is more."""
        where, values = rows.conditions(wanted)
        limit = max(1, min(wanted.limit, 1000))
        statement = f"SELECT {rows.STORED}{where} ORDER BY r.time_ms DESC, r.id DESC LIMIT ?"
        found = await self.read(lambda connection: connection.rows(statement, (*values, limit + 1)))
        return [rows.stored(item) for item in found[:limit]], len(found) > limit

    async def usage(self, tenant: str | None, since_ms: int, until_ms: int) -> list[UsageRow]:
        """Requests, tokens and cost by tenant, deployment and effective model, within a time."""
        where, values = rows.conditions(ReceiptFilter(tenant, since_ms=since_ms, until_ms=until_ms))
        statement = _USAGE + where + " GROUP BY r.tenant, r.deployment, r.model ORDER BY 1, 2, 3"
        found = await self.read(lambda connection: connection.rows(statement, values))
        return [UsageRow(*row[:3], *(int(value or 0) for value in tuple(row)[3:])) for row in found]

    async def spent_nano_usd(self, tenant: str, key: str | None, since_ms: int) -> int:
        """What a tenant (or one of its keys) has spent since a time, from its receipts."""
        statement = "SELECT COALESCE(SUM(cost_nano_usd), 0) FROM receipts WHERE tenant = ? AND time_ms >= ?"
        values: tuple[str | int, ...] = (tenant, since_ms)
        if key is not None:
            statement, values = statement + " AND key_id = ?", (*values, key)
        return await self.read(lambda connection: int(connection.rows(statement, values)[0][0]))

    async def erase(self, tenant: str, before_ms: int | None) -> int:
        """Removes a tenant's commitment keys; the log and its proofs stay as they are. Returns how many receipts can no
        longer be opened. On PostgreSQL the next VACUUM reclaims the bytes, and backups hold them until they expire.
        """
        last = (await self.read(lambda connection: connection.rows("SELECT COALESCE(MAX(seq), 0) FROM receipts")))[0][0]
        until = 2**62 if before_ms is None else before_ms
        erased = 0
        for start in range(0, last, _ERASE):
            values = (tenant, tenant, until, start, start + _ERASE)
            erased += await self.read(lambda connection, values=values: connection.run(_ERASE_SQL, values))  # type: ignore[misc]
        if not self.source.postgres:  # what was overwritten must not stay readable in the write-ahead log
            await self.read(lambda connection: connection.rows("PRAGMA wal_checkpoint(TRUNCATE)"))
        return erased


def write(connection: Sql, records: list[ReceiptRecord], *, once: bool = False) -> None:
    """Commits records in one transaction. `once` leaves those alone that are there already (a replay)."""
    values = [rows.row(record) for record in records]
    keys = [key for record in records for key in rows.key_rows(record)]
    connection.begin(APPEND_LOCK)
    try:
        connection.many(rows.INSERT_ONCE if once else rows.INSERT, values)
        if keys:
            connection.many(rows.INSERT_KEYS_ONCE if once else rows.INSERT_KEYS, keys)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def pages(connection: Sql, wanted: ReceiptFilter) -> Iterator[StoredReceipt]:
    """Every receipt a filter matches, oldest first, a few hundred at a time."""
    where, values = rows.conditions(wanted)
    joined = f"{where} AND r.seq > ?" if where else " WHERE r.seq > ?"
    statement = f"SELECT r.seq, {rows.STORED}{joined} ORDER BY r.seq LIMIT ?"
    position = 0
    while found := connection.rows(statement, (*values, position, _EXPORT)):
        for item in found:
            yield rows.stored(tuple(item)[1:])
        position = found[-1][0]
