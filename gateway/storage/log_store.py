"""The transparency log in the database: integration of committed entries, checkpoints, tiles and proofs.

Entries are receipts, audit records and statements about keys, each as the SHA-256 of its bytes. One process at a time
integrates, under a lock of the database; the others only append. A checkpoint is never signed for a tree that does
not continue the last one: that would be equivocation, and it stops the log with an alarm.
"""

from __future__ import annotations

import base64
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from gateway.receipts import merkle
from gateway.receipts.tiles import WIDTH, TileCache, entry_bundle
from gateway.storage.log_entries import audit_entries, manifest_entries, receipt_entries, state, store_state
from gateway.storage.receipts_store import Receipts
from gateway.storage.sql import Sql

LOG = logging.getLogger("assay.log")
LOG_LOCK = 7_235_003
STEP = 5000
Sign = Callable[[int, bytes], str]
Alarm = Callable[[str, str], None]


class TransparencyLog:
    """One log per installation. `integrate` runs in the writer's thread; reads share the readers' connections."""

    def __init__(
        self,
        store: Receipts,
        sign: Sign,
        interval_s: float,
        *,
        manifest: Callable[[], Sequence[bytes]] = lambda: (),
        alarm: Alarm | None = None,
        quorum: int = 0,
    ) -> None:
        self._store = store
        self._sign = sign
        self._interval_s = interval_s
        self._manifest = manifest
        self._raise = alarm
        self._quorum = quorum
        self._owner = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._next = 0.0
        self._writing: Sql | None = None
        self._manifested: set[bytes] = set()
        self._confirmed = -1  # the size of the last checkpoint this process made or has checked
        self._tree = TileCache(lambda a, b: leaves(self._own(), a, b), lambda a, b: roots(self._own(), a, b))
        self._reading = threading.local()
        self._shown = TileCache(lambda a, b: leaves(self._shared(), a, b), lambda a, b: roots(self._shared(), a, b))
        self._lock = threading.Lock()
        self.behind_s = 0.0
        self.stopped: str | None = None
        self.alarms = 0

    def alarm(self, kind: str, detail: str) -> None:
        """Equivocation, a rollback or a split view: counted, logged, and told to whoever was named. Any thread."""
        self.alarms += 1
        LOG.critical("%s: %s", kind, detail)
        if self._raise is not None:
            self._raise(kind, detail)

    # integration, in the writer's thread

    def integrate(self, connection: Sql) -> None:
        """Gives new entries their places and signs a checkpoint, at most once an interval."""
        now = time.monotonic()
        if now < self._next or self.stopped is not None:
            return
        self._next = now + self._interval_s
        if not connection.try_begin(LOG_LOCK):
            return
        self._writing = connection
        try:
            full = self._integrate(connection)
            connection.commit()
        except BaseException:
            connection.rollback()
            self._tree.clear()
            self._manifested.clear()
            self._confirmed = -1
            raise
        finally:
            self._writing = None
        if full:
            self._next = now

    def _integrate(self, connection: Sql) -> bool:
        """One step; says whether there may be more to take in at once."""
        wall = time.time()
        newest = connection.rows("SELECT size, root, time_ms FROM checkpoints ORDER BY size DESC LIMIT 1")
        if newest and not self._continues(newest[0][0], bytes(newest[0][1])):
            return False
        position = state(connection)
        found = receipt_entries(connection, position.receipt_seq, STEP, self._store.digests)
        entries = [
            *manifest_entries(connection, self._manifest(), self._manifested, wall),
            *found,
            *audit_entries(connection, position.audit_seq),
        ]
        self.behind_s = max(0.0, wall - found[0].time_ms / 1000) if found else 0.0
        size = position.size
        if entries:
            connection.many(
                "INSERT INTO log_entries (idx, kind, ref, seq, entry, leaf) VALUES (?, ?, ?, ?, ?, ?)",
                [(size + i, e.kind, e.ref, e.seq, e.digest, merkle.leaf_hash(e.digest)) for i, e in enumerate(entries)],
            )
            size += len(entries)
            self._keep_roots(connection, position.size, size)
            store_state(connection, position, size, entries)
        if not newest or size > newest[0][0]:
            root = merkle.root(size, self._tree.hash_of)
            connection.run(
                "INSERT INTO checkpoints (size, root, text, time_ms) VALUES (?, ?, ?, ?)",
                (size, root, self._sign(size, root), int(wall * 1000)),
            )
            self._confirmed = size
        return len(found) == STEP

    def _continues(self, size: int, root: bytes) -> bool:
        """Whether the stored entries still make the tree that was signed for last."""
        if size == self._confirmed:
            return True
        try:
            fits = merkle.root(size, self._tree.hash_of) == root
        except LookupError:
            fits = False
        if fits:
            self._confirmed = size
            return True
        self.stopped = f"the stored entries do not make the root that was signed for size {size}"
        self.alarm("log_equivocation", self.stopped + "; nothing more is signed (see `assay log audit`)")
        return False

    def _keep_roots(self, connection: Sql, before: int, after: int) -> None:
        full = range(before // WIDTH, after // WIDTH)
        if full:
            connection.many(
                "INSERT INTO log_subtrees (number, root) VALUES (?, ?)",
                [(number, merkle.range_hash(0, WIDTH, self._below(number))) for number in full],
            )

    def _below(self, number: int) -> merkle.HashOf:
        """The hashes under one leaf tile, from its leaves alone."""
        tile = self._tree.tile(0, number)

        def hash_of(level: int, index: int) -> bytes:
            if level == 0:
                return tile[index]
            return merkle.node_hash(hash_of(level - 1, 2 * index), hash_of(level - 1, 2 * index + 1))

        return hash_of

    def _own(self) -> Sql:
        assert self._writing is not None
        return self._writing

    # reading

    def _shared(self) -> Sql:
        connection: Sql = self._reading.connection
        return connection

    def _with(self, connection: Sql) -> TileCache:
        self._reading.connection = connection
        return self._shown

    async def checkpoint(self) -> str | None:
        """The newest checkpoint that enough witnesses cosigned; where none did, the newest."""

        def work(connection: Sql) -> str | None:
            found = self._newest(connection, -1)
            return None if found is None else found[1]

        return await self._store.read(work)

    def _newest(self, connection: Sql, index: int) -> tuple[int, str] | None:
        """(size, text) of the checkpoint to show for an entry: a cosigned one if there is any."""
        statement = "SELECT size, text FROM checkpoints WHERE size > ? AND cosignatures >= ? ORDER BY size DESC LIMIT 1"
        for enough in (self._quorum, 0) if self._quorum else (0,):
            found = connection.rows(statement, (index, enough))
            if found:
                return found[0][0], found[0][1]
        return None

    async def proof(self, index: int) -> tuple[dict[str, Any], str] | None:
        """The inclusion proof of an entry towards a checkpoint, and that checkpoint."""

        def work(connection: Sql) -> tuple[dict[str, Any], str] | None:
            newest = self._newest(connection, index)
            if newest is None:
                return None
            size, text = newest
            with self._lock:
                hashes = merkle.inclusion_proof(index, size, self._with(connection).hash_of)
            return {"index": index, "size": size, "hashes": [base64.b64encode(item).decode() for item in hashes]}, text

        return await self._store.read(work)

    async def consistency(self, first: int, second: int) -> list[bytes]:
        """The proof that the tree of `first` entries is the beginning of that of `second`."""

        def work(connection: Sql) -> list[bytes]:
            with self._lock:
                return merkle.consistency_proof(first, second, self._with(connection).hash_of)

        return await self._store.read(work)

    async def latest(self) -> tuple[int, bytes, str] | None:
        """(size, root, text) of the newest checkpoint, cosigned or not."""

        def work(connection: Sql) -> tuple[int, bytes, str] | None:
            found = connection.rows("SELECT size, root, text FROM checkpoints ORDER BY size DESC LIMIT 1")
            return (found[0][0], bytes(found[0][1]), found[0][2]) if found else None

        return await self._store.read(work)

    async def cosigned(self, size: int, lines: Sequence[str]) -> None:
        """Adds witnesses' signature lines to a checkpoint; those it has already are not added again."""

        def work(connection: Sql) -> None:
            found = connection.rows("SELECT text, cosignatures FROM checkpoints WHERE size = ?", (size,))
            fresh = [line for line in lines if found and line not in found[0][0]]
            if fresh:
                connection.run(
                    "UPDATE checkpoints SET text = ?, cosignatures = ? WHERE size = ?",
                    (found[0][0] + "".join(fresh), found[0][1] + len(fresh), size),
                )

        await self._store.read(work)

    async def lead(self, work: int, seconds: float) -> bool:
        """Whether this process may do a work of the installation for the next seconds."""
        now = int(time.time() * 1000)
        until = now + int(seconds * 1000)

        def take(connection: Sql) -> bool:
            connection.run(
                "INSERT INTO log_lease (id, owner, until) VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "owner = excluded.owner, until = excluded.until WHERE log_lease.owner = ? OR log_lease.until < ?",
                (work, self._owner, until, self._owner, now),
            )
            return bool(connection.rows("SELECT 1 FROM log_lease WHERE id = ? AND owner = ?", (work, self._owner)))

        return await self._store.read(take)

    async def tile(self, level: int, number: int, width: int) -> bytes | None:
        """A hash tile, None where the log is not that large or no longer has it."""

        def work(connection: Sql) -> bytes | None:
            position = state(connection)
            if (number * WIDTH + width) << (8 * level) > self._signed(connection):
                return None
            if (number + 1) * WIDTH << (8 * level) <= position.minimum:  # the tile's end index, as pruning defines it
                return None
            with self._lock:
                try:
                    return b"".join(self._with(connection).tile(level, number, width))
                except LookupError:
                    return None

        return await self._store.read(work)

    async def bundle(self, number: int, width: int) -> bytes | None:
        """An entry bundle, None where the log is not that large or no longer has it."""

        def work(connection: Sql) -> bytes | None:
            start = number * WIDTH
            if start + width > self._signed(connection):
                return None
            found = connection.rows(
                "SELECT entry FROM log_entries WHERE idx >= ? AND idx < ? ORDER BY idx", (start, start + width)
            )
            return entry_bundle([bytes(row[0]) for row in found]) if len(found) == width else None

        return await self._store.read(work)

    def _signed(self, connection: Sql) -> int:
        found = connection.rows("SELECT COALESCE(MAX(size), 0) FROM checkpoints")
        return int(found[0][0])


def leaves(connection: Sql, start: int, end: int) -> list[bytes]:
    """Stored leaf hashes of a range."""
    found = connection.rows("SELECT leaf FROM log_entries WHERE idx >= ? AND idx < ? ORDER BY idx", (start, end))
    return [bytes(row[0]) for row in found]


def roots(connection: Sql, start: int, end: int) -> list[bytes]:
    """Stored roots of full leaf tiles of a range."""
    found = connection.rows(
        "SELECT root FROM log_subtrees WHERE number >= ? AND number < ? ORDER BY number", (start, end)
    )
    return [bytes(row[0]) for row in found]
