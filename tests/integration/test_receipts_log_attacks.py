"""Somebody edits the database; the audit says what is wrong. On SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from receipt_scene import Scene, database, scene

from gateway.receipts.checkpoint import sign_checkpoint
from gateway.receipts.signer import open_keys
from gateway.storage.log_prune import prune
from gateway.storage.receipts_rows import pack, unpack


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    """A log of 600 receipts and its two keys."""
    async with database(request.param, tmp_path) as url, scene(url, tmp_path) as made:
        await made.add(300)
        await made.settled(302)
        await made.add(300)
        await made.settled(602)
        yield made


async def found(log: Scene, start: int | None = 0) -> str:
    report = await log.audit(start)
    return "; ".join(report.problems)


async def ref(log: Scene, index: int) -> str:
    rows = await log.store.read(lambda sql: sql.rows("SELECT ref FROM log_entries WHERE idx = ?", (index,)))
    return str(rows[0][0])


async def test_an_honest_log_passes_and_the_audit_goes_on_from_there(log: Scene) -> None:
    """Everything is recomputed once; the next audit begins at the tile where the last one ended."""
    report = await log.audit()
    assert (report.problems, report.entries, report.receipts) == ([], 602, 600)
    assert report.checkpoints >= 2
    await log.add(100)
    await log.settled(702)
    again = await log.audit(None)
    assert (again.problems, again.start, again.size) == ([], 512, 702)


async def test_a_flipped_bit_in_a_receipt_is_found(log: Scene) -> None:
    """One bit of one statement."""
    id_ = await ref(log, 77)
    rows = await log.store.read(lambda sql: sql.rows("SELECT payload FROM receipts WHERE id = ?", (id_,)))
    payload = bytearray(unpack(bytes(rows[0][0])))
    payload[40] ^= 1
    await log.edit("UPDATE receipts SET payload = ? WHERE id = ?", pack(bytes(payload)), id_)
    assert f"entry 77 ({id_}): the record is not the one that was logged" in await found(log)


async def test_a_flipped_bit_in_a_stored_byte_is_found(log: Scene) -> None:
    """Also where the row can no longer be unpacked."""
    id_ = await ref(log, 78)
    await log.edit("UPDATE receipts SET payload = ? WHERE id = ?", b"\x00garbage", id_)
    assert f"entry 78 ({id_})" in await found(log)


async def test_a_receipt_exchanged_with_its_entry_is_found(log: Scene) -> None:
    """Statement and entry changed together no longer make the signed root."""
    id_ = await ref(log, 80)
    await log.edit("UPDATE log_entries SET entry = ?, leaf = ? WHERE idx = 80", b"e" * 32, b"l" * 32)
    problems = await found(log)
    assert "its leaf hash is not its own" in problems and "do not make the root" in problems and id_ in problems


async def test_a_removed_receipt_is_found(log: Scene) -> None:
    """A row that is gone leaves its entry behind."""
    id_ = await ref(log, 100)
    await log.edit("DELETE FROM receipts WHERE id = ?", id_)
    assert f"entry 100 ({id_}) has no record any more" in await found(log)


async def test_a_removed_entry_is_found(log: Scene) -> None:
    """A gap in the log."""
    await log.edit("DELETE FROM log_entries WHERE idx = 101")
    assert "entry 101 is missing" in await found(log)


async def test_a_truncated_log_is_found(log: Scene) -> None:
    """Checkpoints that were signed for more than there is."""
    await log.edit("DELETE FROM log_entries WHERE idx >= 400")
    assert "was signed, and the log has 400 entries" in await found(log)


async def test_a_reordered_pair_is_found(log: Scene) -> None:
    """Two receipts that change places, rows and all."""
    first, second = await ref(log, 200), await ref(log, 201)

    def swap(sql: object) -> None:
        rows = sql.rows("SELECT idx, ref, seq, entry, leaf FROM log_entries WHERE idx IN (200, 201) ORDER BY idx")  # type: ignore[attr-defined]
        a, b = rows
        sql.run("UPDATE log_entries SET ref = ? WHERE idx = 200", ("moving",))  # type: ignore[attr-defined]
        for index, row in ((201, a), (200, b)):
            sql.run(  # type: ignore[attr-defined]
                "UPDATE log_entries SET ref = ?, seq = ?, entry = ?, leaf = ? WHERE idx = ?",
                (row[1], row[2], bytes(row[3]), bytes(row[4]), index),
            )

    await log.store.read(swap)
    problems = await found(log)
    assert f"({first}) stands before or beside" in problems and "do not make the root" in problems and second


async def test_a_forged_checkpoint_is_found(log: Scene, tmp_path: Path) -> None:
    """A root of somebody's own choice, signed with a key of his own."""
    stranger = open_keys(tmp_path / "stranger", may_create=True)
    text = sign_checkpoint("assay.test/log", 500, b"r" * 32, stranger.log)
    await log.edit("INSERT INTO checkpoints (size, root, text, time_ms) VALUES (500, ?, ?, 1)", b"r" * 32, text)
    assert "the checkpoint for size 500 is not signed by a key of this log" in await found(log)


async def test_a_root_exchanged_beside_a_true_checkpoint_is_found(log: Scene) -> None:
    """The column says one thing and what was signed another."""
    await log.edit("UPDATE checkpoints SET root = ? WHERE size = 602", b"r" * 32)
    assert "the checkpoint stored for size 602 is about another tree" in await found(log)


async def test_a_receipt_signed_by_somebody_else_is_found(log: Scene) -> None:
    """The signature beside an untouched statement."""
    id_ = await ref(log, 300)
    await log.edit("UPDATE receipts SET signature = ? WHERE id = ?", b"s" * 64, id_)
    assert f"entry 300 ({id_}): the record's signature does not fit" in await found(log)


async def test_a_receipt_smuggled_in_behind_the_log_is_found(log: Scene) -> None:
    """A row with an early sequence number that no entry stands for."""
    id_ = await ref(log, 301)
    await log.edit("DELETE FROM log_entries WHERE ref = ?", id_)
    assert "missing" in await found(log)
    rows = await log.audit(512)
    assert f"the receipt {id_} has no entry in the log" in "; ".join(rows.problems)


async def test_the_log_signs_nothing_more_once_its_past_was_rewritten(log: Scene, tmp_path: Path) -> None:
    """A process that starts on a rewritten log raises the alarm instead of signing for two histories."""
    await log.edit("UPDATE log_entries SET entry = ?, leaf = ? WHERE idx = 600", b"e" * 32, b"l" * 32)
    await log.store.stop()
    async with scene(log.url, tmp_path) as again:
        made = await again.add(5)
        await again.store.read(lambda sql: None)
        for _ in range(3):
            await again.add(1)
        assert (await again.log.latest())[0] == 602  # type: ignore[index]
        assert again.log.stopped is not None and again.log.alarms == 1
        assert await again.store.get(made[0].id, "acme") is not None


async def test_pruned_receipts_are_gone_and_the_proofs_of_the_rest_still_hold(log: Scene, tmp_path: Path) -> None:
    """Retention removes whole tiles; later entries prove themselves against old and new checkpoints."""
    middle = await log.store.read(
        lambda sql: sql.rows(
            "SELECT r.time_ms FROM receipts r JOIN log_entries l ON l.ref = r.id WHERE l.idx = 520", ()
        )[0][0]
    )
    await log.edit(
        "UPDATE receipts SET time_ms = ? WHERE id IN (SELECT ref FROM log_entries WHERE idx < 520)", middle - 10_000
    )
    gone, kept = await ref(log, 10), await ref(log, 530)
    before = await log.log.proof(530)
    removed, minimum = await log.store.read(lambda sql: prune(sql, middle))
    assert (removed, minimum) == (510, 512)
    assert await log.store.get(gone, None) is None and await log.store.openings(gone) == {}
    assert (await log.store.get(kept, None)).index == 530  # type: ignore[union-attr]
    assert await log.log.proof(530) == before
    assert await log.log.tile(0, 0, 256) is None and await log.log.bundle(0, 256) is None
    assert await log.log.tile(0, 2, 90) is not None and await log.log.tile(1, 0, 2) is not None
    await log.store.stop()
    async with scene(log.url, tmp_path) as again:
        await again.add(10)
        await again.settled(612)
        assert again.log.stopped is None
        assert (await again.audit(0)).problems == []
        assert await again.log.proof(530) is not None
