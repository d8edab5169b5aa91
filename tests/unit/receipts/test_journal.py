"""Background durability: what the journal promises."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from receipt_scene import record

from gateway.errors import ReceiptUnavailable
from gateway.receipts import journal as module
from gateway.receipts.journal import Journal, frame, frames, leftovers, recover
from gateway.receipts.record import ReceiptRecord
from gateway.receipts.signer import KeyRing, open_keys

SUPPORT = Path(__file__).resolve().parents[2] / "support"


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    """Keys to sign with."""
    return open_keys(tmp_path / "keys", may_create=True)


class Store:
    """A store that can be away."""

    def __init__(self) -> None:
        self.away = False
        self.stored: list[ReceiptRecord] = []

    def submit(self, item: ReceiptRecord) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.away:
            future.set_exception(ReceiptUnavailable("away"))
        else:
            self.stored.append(item)
            future.set_result(None)
        return future


async def wait_for(what: object) -> None:
    async with asyncio.timeout(5):
        while not what():  # type: ignore[operator]
            await asyncio.sleep(0.01)


async def test_receipts_reach_the_store_and_the_file_goes(tmp_path: Path, keys: KeyRing) -> None:
    """An ordered stop leaves nothing behind."""
    store = Store()
    journal = Journal(tmp_path / "journal", 1_000_000, store.submit)
    journal.start()
    for number in range(50):
        await journal.accept(record(keys, number))
    await journal.stop()
    assert len(store.stored) == 50 and list((tmp_path / "journal").iterdir()) == []
    with pytest.raises(ReceiptUnavailable):
        await journal.accept(record(keys, 1))


async def test_a_database_that_is_away_costs_nothing_until_the_journal_is_full(
    tmp_path: Path, keys: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the bound receipts are taken; beyond it sealing waits and then fails; afterwards all are stored."""
    monkeypatch.setattr(module, "_RETRY_S", 0.02)
    monkeypatch.setattr(module, "_WAIT_S", 0.1)
    store = Store()
    store.away = True
    size = len(frame(record(keys, 0)))
    journal = Journal(tmp_path / "journal", size * 10 + 50, store.submit)
    journal.start()
    made = [record(keys, number) for number in range(10)]
    for item in made:
        await journal.accept(item)
    with pytest.raises(ReceiptUnavailable, match="full"):
        await journal.accept(record(keys, 10))
    assert journal.pending == 10 and journal.waits == 1
    store.away = False
    await wait_for(lambda: journal.pending == 0)
    assert sorted(item.id for item in store.stored) == sorted(item.id for item in made)
    await journal.accept(record(keys, 11))
    await journal.stop()
    assert len(store.stored) == 11


def test_a_torn_record_ends_a_journal_and_harms_nothing_before_it(keys: KeyRing) -> None:
    """Power went at any byte of the last record, or flipped one."""
    whole = [record(keys, number) for number in range(3)]
    data = b"".join(frame(item) for item in whole)
    last = len(frame(whole[2]))
    for cut in range(1, last, 37):
        assert list(frames(data[:-cut])) == whole[:2]
    assert list(frames(data[:-1] + bytes([data[-1] ^ 1]))) == whole[:2]
    assert list(frames(data + b"\x00" * 100))[:3] == whole


async def test_the_disk_has_a_record_before_the_database_is_given_it(
    tmp_path: Path, keys: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written, fsynced, handed over: in that order; a disk that fails takes no further receipt."""
    order: list[str] = []
    store = Store()
    journal = Journal(tmp_path / "journal", 1_000_000, lambda item: order.append("store") or store.submit(item))  # type: ignore[func-returns-value]
    synced = os.fsync
    monkeypatch.setattr(module.os, "fsync", lambda descriptor: order.append("disk") or synced(descriptor))
    journal.start()
    await journal.accept(record(keys, 1))
    await wait_for(lambda: len(store.stored) == 1)
    assert order[:2] == ["disk", "store"]

    def broken(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    store.away = True
    monkeypatch.setattr(module.os, "fsync", broken)
    await journal.accept(record(keys, 2))
    await wait_for(lambda: journal._broken)
    with pytest.raises(ReceiptUnavailable):
        await journal.accept(record(keys, 3))
    store.away = False
    await journal.stop()
    assert len(store.stored) == 2


PROCESS = """
    import asyncio, sys
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from receipt_scene import record
    from gateway.receipts.journal import Journal
    from gateway.receipts.signer import open_keys

    async def main(folder):
        keys = open_keys(Path(folder) / "keys", may_create=True)
        journal = Journal(Path(folder) / "journal", 10**7, lambda item: asyncio.get_running_loop().create_future())
        journal.start()
        for number in range(100):
            await journal.accept(record(keys, number, id=f"rcpt_{number:04d}"))
        while journal._fresh:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        print("ready", flush=True)
        await asyncio.sleep(60)
    asyncio.run(main(sys.argv[1]))
"""


async def test_what_a_killed_process_had_on_disk_is_replayed_and_a_living_ones_is_left_alone(tmp_path: Path) -> None:
    """kill -9; the next start takes the records in, once, and counts it."""
    command = [sys.executable, "-c", textwrap.dedent(PROCESS), str(tmp_path), str(SUPPORT)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    assert leftovers(tmp_path / "journal") == []
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    replayed: list[str] = []

    async def replay(records: list[ReceiptRecord]) -> None:
        replayed.extend(item.id for item in records)

    assert await recover(tmp_path / "journal", replay) == 1
    assert replayed == [f"rcpt_{number:04d}" for number in range(100)]
    assert await recover(tmp_path / "journal", replay) == 0
