"""The transparency log on SQLite: integration of committed entries, checkpoints, tiles and proofs."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Any

from gateway.receipts import merkle
from gateway.receipts.tiles import WIDTH, TileCache, entry_bundle
from gateway.storage.receipts_sqlite import unpack

_STEP = 5000
_LEASE_S = 5.0
Sign = Callable[[int, bytes], str]


class SqliteLog:
    """One log per installation. `integrate` runs in the writer's thread; reads have connections of their own."""

    def __init__(self, reader: Callable[[], sqlite3.Connection], sign: Sign, interval_s: float) -> None:
        self._reader = reader
        self._sign = sign
        self._interval_s = interval_s
        self._owner = f"{os.getpid()}-{id(self):x}"
        self._next = 0.0
        self._writing: sqlite3.Connection | None = None
        self._tree = TileCache(self._leaves_of_writer)
        self._lock = threading.Lock()
        self._shown = TileCache(lambda start, end: _leaves(reader(), start, end))
        self.behind_s = 0.0

    def integrate(self, connection: sqlite3.Connection) -> None:
        """Gives new entries their places and signs a checkpoint, at most once an interval."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._interval_s
        self._writing = connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._integrate(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        finally:
            self._writing = None

    def _integrate(self, connection: sqlite3.Connection) -> None:
        wall = time.time()
        row = connection.execute("SELECT owner, until FROM log_lease WHERE id = 1").fetchone()
        if row is not None and row[0] != self._owner and row[1] > wall:
            return
        connection.execute(
            "INSERT INTO log_lease (id, owner, until) VALUES (1, ?, ?) "
            "ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, until = excluded.until",
            (self._owner, wall + _LEASE_S),
        )
        size = connection.execute("SELECT COALESCE(MAX(idx) + 1, 0) FROM log_entries").fetchone()[0]
        position = connection.execute("SELECT COALESCE(MAX(seq), 0) FROM log_entries").fetchone()[0]
        before = size
        rows = connection.execute(
            "SELECT seq, id, payload, time_ms FROM receipts WHERE seq > ? ORDER BY seq LIMIT ?", (position, _STEP)
        ).fetchall()
        entries = []
        for sequence, id_, payload, _ in rows:
            entry = hashlib.sha256(unpack(payload)).digest()
            entries.append((size, "receipt", id_, sequence, entry, merkle.leaf_hash(entry)))
            size += 1
        connection.executemany(
            "INSERT INTO log_entries (idx, kind, ref, seq, entry, leaf) VALUES (?, ?, ?, ?, ?, ?)", entries
        )
        self.behind_s = max(0.0, wall - rows[0][3] / 1000) if rows else 0.0
        signed = connection.execute("SELECT COALESCE(MAX(size), -1) FROM checkpoints").fetchone()[0]
        if size > before or signed < size or signed < 0:
            root = merkle.root(size, self._tree.hash_of)
            connection.execute(
                "INSERT OR REPLACE INTO checkpoints (size, root, text, time_ms) VALUES (?, ?, ?, ?)",
                (size, root, self._sign(size, root), int(wall * 1000)),
            )

    def _leaves_of_writer(self, start: int, end: int) -> list[bytes]:
        assert self._writing is not None
        return _leaves(self._writing, start, end)

    async def checkpoint(self) -> str | None:
        """The newest checkpoint."""

        def read() -> str | None:
            row = self._reader().execute("SELECT text FROM checkpoints ORDER BY size DESC LIMIT 1").fetchone()
            return row[0] if row else None

        return await asyncio.to_thread(read)

    async def proof(self, index: int) -> tuple[dict[str, Any], str] | None:
        """The inclusion proof of an entry towards the newest checkpoint, and that checkpoint."""

        def read() -> tuple[dict[str, Any], str] | None:
            row = self._reader().execute("SELECT size, text FROM checkpoints ORDER BY size DESC LIMIT 1").fetchone()
            if row is None or row[0] <= index:
                return None
            with self._lock:
                hashes = merkle.inclusion_proof(index, row[0], self._shown.hash_of)
            return {
                "index": index,
                "size": row[0],
                "hashes": [base64.b64encode(item).decode() for item in hashes],
            }, row[1]

        return await asyncio.to_thread(read)

    async def tile(self, level: int, number: int, width: int) -> bytes | None:
        """A hash tile, None where the log is not that large."""

        def read() -> bytes | None:
            size = self._signed_size()
            if ((number * WIDTH + width) << (8 * level)) > size:
                return None
            with self._lock:
                return b"".join(self._shown.tile(level, number, width))

        return await asyncio.to_thread(read)

    async def bundle(self, number: int, width: int) -> bytes | None:
        """An entry bundle, None where the log is not that large."""

        def read() -> bytes | None:
            if number * WIDTH + width > self._signed_size():
                return None
            rows = self._reader().execute(
                "SELECT entry FROM log_entries WHERE idx >= ? AND idx < ? ORDER BY idx",
                (number * WIDTH, number * WIDTH + width),
            )
            entries = [bytes(row[0]) for row in rows]
            return entry_bundle(entries) if len(entries) == width else None

        return await asyncio.to_thread(read)

    def _signed_size(self) -> int:
        row = self._reader().execute("SELECT COALESCE(MAX(size), 0) FROM checkpoints").fetchone()
        return int(row[0])


def _leaves(connection: sqlite3.Connection, start: int, end: int) -> list[bytes]:
    rows = connection.execute("SELECT leaf FROM log_entries WHERE idx >= ? AND idx < ? ORDER BY idx", (start, end))
    return [bytes(row[0]) for row in rows]
