"""The journal of `background` durability: records are safe on this machine's disk before the database has them.

One file per process, appended and fsynced in groups by one thread, which then hands the records to the store. When
the store has everything the file is emptied. A database that is away fills the journal up to its bound; then sealing
waits, and after a while fails. At start the files that dead processes left are replayed; a record that is in the
database already stays as it is. What a process had accepted and not yet fsynced when it died is lost: the file's
head says that it was in use, and that is counted.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import struct
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import msgspec

from gateway.errors import ReceiptUnavailable
from gateway.receipts.record import ReceiptRecord

LOG = logging.getLogger("assay.journal")
_HEAD = struct.Struct(">II")  # length, CRC-32
_MAX_RECORD = 4 * 1024 * 1024
_WAIT_S = 5.0
_RETRY_S = 0.5
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(ReceiptRecord)
Submit = Callable[[ReceiptRecord], "asyncio.Future[None]"]


def frame(record: ReceiptRecord) -> bytes:
    """A record as it lies in the file."""
    data = _encode(record)
    return _HEAD.pack(len(data), zlib.crc32(data)) + data


def frames(data: bytes) -> Iterator[ReceiptRecord]:
    """The whole records of a file; a torn one at the end was never acknowledged and ends it."""
    position = 0
    while position + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, position)
        body = data[position + _HEAD.size : position + _HEAD.size + length]
        if not 0 < length <= _MAX_RECORD or len(body) != length or zlib.crc32(body) != checksum:
            LOG.warning("the journal ends with a torn record")
            return
        yield _decoder.decode(body)
        position += _HEAD.size + length


class Journal:
    """One per process. `submit` is the store's queue; call everything from the event loop."""

    def __init__(self, folder: Path, max_bytes: int, submit: Submit) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._submit = submit
        self._file: BinaryIO | None = None
        self._fresh: list[tuple[bytes, ReceiptRecord]] = []
        self._wake = threading.Condition()
        self._open: dict[str, ReceiptRecord] = {}  # accepted, not yet in the database
        self._bytes = 0
        self._room = asyncio.Event()
        self._stopping = False
        self._broken = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.waits = 0

    def start(self) -> None:
        """Opens this process's file. Raises `OSError`."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._loop = asyncio.get_running_loop()
        path = self._folder / f"{os.getpid()}-{secrets.token_hex(4)}.journal"
        self._file = path.open("xb", buffering=0)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._thread = threading.Thread(target=self._write_forever, name="receipt-journal", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> int:
        """Records that the database does not have yet."""
        return len(self._open)

    def accept(self, record: ReceiptRecord) -> Awaitable[None]:
        """Takes a record, at once where there is room. Await the result: it waits while the journal is full, and raises
        `ReceiptUnavailable` when it stays full or cannot be written.
        """
        data = frame(record)
        if self._usable and self._bytes + len(data) <= self._max_bytes:
            self._take(data, record)
            return _nothing()
        return self._wait(data, record)

    @property
    def _usable(self) -> bool:
        return self._file is not None and not self._broken and not self._stopping

    async def _wait(self, data: bytes, record: ReceiptRecord) -> None:
        self.waits += 1
        try:
            async with asyncio.timeout(_WAIT_S):
                while self._usable and self._bytes + len(data) > self._max_bytes:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise ReceiptUnavailable("the journal of receipts is full") from None
        if not self._usable:
            raise ReceiptUnavailable("receipts cannot be recorded now")
        self._take(data, record)

    def _take(self, data: bytes, record: ReceiptRecord) -> None:
        self._bytes += len(data)
        self._open[record.id] = record
        with self._wake:
            self._fresh.append((data, record))
            self._wake.notify()

    def _write_forever(self) -> None:
        while True:
            with self._wake:
                while not self._fresh and not self._stopping:
                    self._wake.wait(0.5)
                taken, self._fresh = self._fresh, []
                if not taken and self._stopping:
                    return
            try:
                assert self._file is not None
                view = memoryview(b"".join(data for data, _ in taken))
                while view:
                    view = view[self._file.write(view) :]
                os.fsync(self._file.fileno())
            except OSError as error:
                self._broken = True
                LOG.critical("the journal cannot be written, no receipt can be taken: %s", error.strerror)
            self._call(self._hand_over, [record for _, record in taken])

    def _call(self, work: Callable[[list[ReceiptRecord]], None], records: list[ReceiptRecord]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(work, records)

    def _hand_over(self, records: list[ReceiptRecord]) -> None:
        for record in records:
            self._submit(record).add_done_callback(partial(self._done, record))

    def _done(self, record: ReceiptRecord, future: asyncio.Future[None]) -> None:
        if future.cancelled() or self._loop is None:
            return
        if future.exception() is not None:
            self._loop.call_later(_RETRY_S, self._hand_over, [record])
            return
        self._open.pop(record.id, None)
        if not self._open and self._file is not None:
            with self._wake:
                if self._fresh:
                    return
                self._file.seek(0)
                self._file.truncate(0)
            self._bytes = 0
            self._broken = False
            self._room.set()

    async def stop(self, wait_s: float = 10.0) -> None:
        """Writes what was taken and lets the database have it; the file goes only when it is empty."""
        self._stopping = True
        with self._wake:
            self._wake.notify()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, wait_s)
        try:
            async with asyncio.timeout(wait_s):
                while self._open:
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            LOG.error("%d receipts stay in the journal and are replayed at the next start", len(self._open))
        if self._file is not None:
            if not self._open:
                self._remove(self._file)
            self._file.close()
            self._file = None

    @staticmethod
    def _remove(file: BinaryIO) -> None:
        Path(file.name).unlink(missing_ok=True)


def leftovers(folder: Path) -> list[tuple[Path, list[ReceiptRecord]]]:
    """The files that dead processes left, with their records; a living one's file is locked and left alone."""
    found = []
    for file in sorted(folder.glob("*.journal")):
        with file.open("rb") as opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            found.append((file, list(frames(opened.read()))))
    return found


async def recover(folder: Path, replay: Callable[[list[ReceiptRecord]], Awaitable[None]]) -> int:
    """Replays what dead processes left, then removes their files; returns how many processes died with one open."""
    found = await asyncio.to_thread(leftovers, folder)
    for file, records in found:
        LOG.critical("a process died with its journal open: %d receipts are replayed", len(records))
        await replay(records)
        await asyncio.to_thread(file.unlink, missing_ok=True)
    return len(found)


async def _nothing() -> None:
    return None
