"""Receipts are durable when they are acknowledged, on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest
from receipt_scene import SERVER, Scene, database, record, scene

from gateway.errors import ReceiptUnavailable
from gateway.receipts.record import ReceiptFilter
from gateway.storage.receipts_rows import pack
from gateway.storage.sql import SqliteSql

BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
SUPPORT = Path(__file__).resolve().parents[1] / "support"


@pytest.fixture(params=BOTH)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    """An empty store."""
    async with database(request.param, tmp_path) as url, scene(url, tmp_path) as made:
        yield made


async def test_another_tenants_receipt_does_not_exist(store: Scene) -> None:
    """By id, and in lists with every filter."""
    mine = (await store.add(1))[0]
    theirs = (await store.add(1, tenant="beta", session="s"))[0]
    assert await store.store.get(theirs.id, "acme") is None
    assert (await store.store.get(mine.id, "acme")).id == mine.id  # type: ignore[union-attr]
    for wanted in (ReceiptFilter("acme"), ReceiptFilter("acme", session="s"), ReceiptFilter("acme", after=theirs.id)):
        page, _ = await store.store.search(wanted)
        assert theirs.id not in [item.id for item in page]


async def test_pages_show_every_receipt_once_newest_first(store: Scene) -> None:
    """`after` and `has_more` walk through everything, also where many receipts share a millisecond."""
    made = await store.add(25, time_ms=1_700_000_000_000)
    seen: list[str] = []
    more = True
    while more:
        after = seen[-1] if seen else None
        page, more = await store.store.search(ReceiptFilter("acme", after=after, limit=10))
        seen += [item.id for item in page]
    assert sorted(seen) == sorted(item.id for item in made) and len(seen) == 25


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"deployment": "d2"}, ReceiptFilter(deployment="d2")),
        ({"model": "m2"}, ReceiptFilter(model="m2")),
        ({"outcome": "failed"}, ReceiptFilter(outcome="failed")),
        ({"integrity": "flagged"}, ReceiptFilter(integrity="flagged")),
        ({"prompt_tokens": 90_000}, ReceiptFilter(min_prompt_tokens=80_000, max_prompt_tokens=100_000)),
        ({"time_ms": 1_000}, ReceiptFilter(since_ms=500, until_ms=1_001)),
        ({"session": "one"}, ReceiptFilter(session="one")),
    ],
)
async def test_search_finds_what_it_is_asked_for(
    store: Scene, changes: dict[str, object], wanted: ReceiptFilter
) -> None:
    """Each filter alone finds the one receipt among others."""
    await store.add(10)
    odd = record(store.keys, 0, **changes)
    await store.store.submit(odd)
    page, more = await store.store.search(wanted)
    assert ([item.id for item in page], more) == ([odd.id], False)


async def test_erased_keys_open_nothing_and_the_log_still_holds(store: Scene) -> None:
    """Erasure takes the keys of one tenant, before a date, and leaves proofs and signatures as they are."""
    old = (await store.add(1, time_ms=1_000))[0]
    new = (await store.add(1))[0]
    other = (await store.add(1, tenant="beta", time_ms=1_000))[0]
    await store.settled(5)
    assert await store.store.erase("acme", 2_000) == 1
    assert await store.store.openings(old.id) == {}
    assert len(await store.store.openings(new.id)) == len(await store.store.openings(other.id)) == 2
    assert (await store.audit()).problems == []
    kept = await store.store.get(old.id, "acme")
    assert kept is not None and kept.payload == old.payload and kept.index is not None
    assert await store.log.proof(kept.index) is not None


async def test_a_record_that_cannot_be_stored_does_not_take_its_neighbours_along(store: Scene) -> None:
    """One bad row in a batch fails alone."""
    first = (await store.add(1))[0]
    batch = [record(store.keys, 1), record(store.keys, 2, id=first.id), record(store.keys, 3)]
    results = await asyncio.gather(*(store.store.submit(item) for item in batch), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), ReceiptUnavailable, type(None)]
    assert await store.store.get(batch[2].id, None) is not None


async def test_audit_records_and_keys_are_in_the_log(store: Scene) -> None:
    """Not receipts alone: what administrators did and which keys sign are entries too, each once."""
    await store.edit(
        "INSERT INTO audit (time_ms, actor, action, object, detail) VALUES (1, 'admin', 'key.create', 'k', '{}')"
    )
    await store.add(1)
    await store.settled(4)
    await store.add(1)
    await store.settled(5)
    rows = await store.store.read(lambda sql: sql.rows("SELECT kind, COUNT(*) FROM log_entries GROUP BY kind"))
    assert {row[0]: row[1] for row in rows} == {"key": 2, "audit": 1, "receipt": 2}
    assert (await store.audit()).problems == []
    await store.edit("UPDATE audit SET actor = 'nobody'")
    assert "the record is not the one that was logged" in "; ".join((await store.audit()).problems)


@pytest.mark.postgres
async def test_a_lost_database_is_an_unavailable_receipt_and_comes_back(tmp_path: Path) -> None:
    """Connections that are cut fail what waits for them; the next receipt finds a new one."""
    async with database("postgres", tmp_path) as url, scene(url, tmp_path) as made:
        await made.add(1)
        name = url.rsplit("/", 1)[1]
        admin = await asyncpg.connect(f"{SERVER}/postgres")
        try:
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
            with pytest.raises(ReceiptUnavailable):
                await made.store.submit(record(made.keys, 2))
            with pytest.raises(ReceiptUnavailable):
                await made.store.search(ReceiptFilter("acme"))
            await admin.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        finally:
            await admin.close()
        kept = record(made.keys, 3)
        for _ in range(40):
            try:
                await made.store.submit(kept)
                break
            except ReceiptUnavailable:
                await asyncio.sleep(0.1)
        assert await made.store.get(kept.id, "acme") is not None


def script(body: str) -> str:
    head = f"""
        import asyncio, resource, sys
        from pathlib import Path
        sys.path.insert(0, {str(SUPPORT)!r})
        from receipt_scene import record, scene
        from gateway.errors import ReceiptUnavailable
    """
    return textwrap.dedent(head) + textwrap.dedent(body)


WRITER = """
    async def main(url, folder, name):
        async with scene(url, Path(folder)) as made:
            number = 0
            while True:
                batch = [record(made.keys, number + i, id=f"rcpt_{name}_{number + i:08d}") for i in range(20)]
                await asyncio.gather(*(made.store.submit(item) for item in batch))
                number += 20
                print(number, flush=True)
    asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("kind", BOTH)
async def test_kill_9_loses_nothing_that_was_acknowledged(kind: str, tmp_path: Path) -> None:
    """A process dies in the middle of writing; everything it had acknowledged is there, and the log goes on."""
    async with database(kind, tmp_path) as url:
        async with scene(url, tmp_path) as made:
            await made.settled(2)
        process = subprocess.Popen(
            [sys.executable, "-c", script(WRITER), url, str(tmp_path), "a"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        acknowledged = 0
        while acknowledged < 600:
            acknowledged = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *(int(line) for line in process.stdout.read().split())])
        process.wait()
        async with scene(url, tmp_path) as made:
            rows = await made.store.read(lambda sql: sql.rows("SELECT id FROM receipts"))
            found = {row[0] for row in rows}
            assert {f"rcpt_a_{n:08d}" for n in range(acknowledged)} <= found
            await made.add(1)
            await made.settled(len(found) + 3)
            assert (await made.audit()).problems == []


@pytest.mark.postgres
async def test_two_replicas_append_at_once_and_the_tree_has_each_receipt_once(tmp_path: Path) -> None:
    """Two processes on one PostgreSQL; `make bench-receipts` does it with 100,000."""
    count = int(os.environ.get("ASSAY_TEST_REPLICA_RECEIPTS", "2000"))
    async with database("postgres", tmp_path) as url:
        async with scene(url, tmp_path) as made:
            await made.settled(2)
        body = WRITER.replace("while True:", f"while number < {count}:")
        writers = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", script(body), url, str(tmp_path), name, stdout=asyncio.subprocess.DEVNULL
            )
            for name in ("a", "b")
        ]
        assert [await writer.wait() for writer in writers] == [0, 0]
        async with scene(url, tmp_path) as made:
            await made.settled(2 * count + 2)
            rows = await made.store.read(
                lambda sql: sql.rows("SELECT ref, COUNT(*) FROM log_entries WHERE kind = 'receipt' GROUP BY ref")
            )
            assert {(row[0], row[1]) for row in rows} == {
                (f"rcpt_{name}_{n:08d}", 1) for name in ("a", "b") for n in range(count)
            }
            assert (await made.audit()).problems == []


FULL = """
    async def main(url, folder):
        async with scene(url, Path(folder)) as made:
            await made.add(1)
            resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
            stored = 0
            try:
                for number in range(5000):
                    await made.store.submit(record(made.keys, number, id=f"rcpt_{number:08d}", tags="x" * 500))
                    stored += 1
            except ReceiptUnavailable:
                print(stored)
    asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_full_disk_acknowledges_nothing_it_did_not_store(tmp_path: Path) -> None:
    """When the file can grow no further the next receipt is unavailable, and those before it are all there."""
    async with database("sqlite", tmp_path) as url:
        done = subprocess.run(
            [sys.executable, "-c", script(FULL), url, str(tmp_path)], capture_output=True, text=True, timeout=60
        )
        stored = int(done.stdout)
        assert 10 < stored < 5000
        async with scene(url, tmp_path) as made:
            rows = await made.store.read(lambda sql: sql.rows("SELECT id FROM receipts"))
            assert {f"rcpt_{n:08d}" for n in range(stored)} <= {row[0] for row in rows}
            await made.add(1)


@pytest.mark.parametrize("kind", BOTH)
async def test_what_is_changed_between_commit_and_integration_is_not_what_is_logged(kind: str, tmp_path: Path) -> None:
    """The log takes the digest of what was signed and committed, not of what lies in the row a second later."""
    async with database(kind, tmp_path) as url, scene(url, tmp_path, interval_s=1.0) as made:
        await made.settled(2)
        victim = (await made.add(1))[0]
        await made.edit("UPDATE receipts SET payload = ? WHERE id = ?", pack(b'{"forged":1}'), victim.id)
        await made.settled(3)
        assert f"({victim.id}): the record is not the one that was logged" in "; ".join((await made.audit()).problems)


async def test_the_files_hold_a_receipt_at_the_moment_it_is_acknowledged(tmp_path: Path) -> None:
    """A copy of database and write-ahead log, taken as the power would go, has every acknowledged receipt."""
    async with database("sqlite", tmp_path) as url, scene(url, tmp_path) as made:
        for round_ in range(5):
            added = await made.add(7)
            copy = tmp_path / f"copy-{round_}"
            copy.mkdir()
            for name in ("assay.db", "assay.db-wal"):
                shutil.copy(tmp_path / name, copy / name)
            kept = {row[0] for row in SqliteSql(copy / "assay.db").rows("SELECT id FROM receipts")}
            assert {item.id for item in added} <= kept


@pytest.mark.parametrize("kind", BOTH)
async def test_a_commit_returns_only_when_the_disk_has_it(kind: str, tmp_path: Path) -> None:
    """Full synchronisation, whatever the server's default is."""
    async with database(kind, tmp_path) as url, scene(url, tmp_path) as made:
        question = "PRAGMA synchronous" if kind == "sqlite" else "SHOW synchronous_commit"
        assert (await made.store.read(lambda sql: sql.rows(question)))[0][0] in (2, "on")
