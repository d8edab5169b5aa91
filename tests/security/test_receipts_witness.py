"""A log that tells two stories meets its witnesses (C2SP tlog-witness, tlog-cosignature)."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from receipt_scene import database, scene

from gateway.http.witness import witness_app
from gateway.receipts import merkle
from gateway.receipts.checkpoint import parse_checkpoint, sign_checkpoint
from gateway.receipts.cosignature import ED25519, VerifierKey, cosigned_at, parse_vkey
from gateway.receipts.signer import KeyRing, open_keys
from gateway.receipts.tiles import TileCache
from gateway.receipts.witness import Witness, open_witness
from gateway.receipts.witness_client import WitnessClient

ORIGIN = "assay.test/log"


class History:
    """A log of a given past, signed with the log's key."""

    def __init__(self, keys: KeyRing, mark: str = "") -> None:
        self.keys = keys
        leaves = [merkle.leaf_hash(f"{mark}{n}".encode()) for n in range(600)]
        self.tree = TileCache(lambda start, end: leaves[start:end])

    def checkpoint(self, size: int) -> str:
        return sign_checkpoint(ORIGIN, size, merkle.root(size, self.tree.hash_of), self.keys.log)

    def request(self, old: int, size: int) -> bytes:
        proof = merkle.consistency_proof(old, size, self.tree.hash_of) if 0 < old < size else []
        lines = [f"old {old}", *(base64.b64encode(item).decode() for item in proof)]
        return ("\n".join(lines) + "\n\n" + self.checkpoint(size)).encode()


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    """Keys of the log."""
    return open_keys(tmp_path / "keys", may_create=True)


@pytest.fixture
def witness(tmp_path: Path, keys: KeyRing) -> Witness:
    """A witness that knows the log."""
    return open_witness(tmp_path / "witness", "witness.test/w", [VerifierKey(ORIGIN, ED25519, keys.log.public)])


def test_growth_is_cosigned_with_a_time(keys: KeyRing, witness: Witness) -> None:
    """The first checkpoint, a later one with its proof, and the same one again."""
    log = History(keys)
    for old, size in ((0, 10), (10, 300), (300, 300), (300, 600)):
        answer = witness.add_checkpoint(log.request(old, size))
        assert answer.status == 200, answer.body
        seen = parse_checkpoint(log.checkpoint(size) + answer.body.decode())
        assert (cosigned_at(witness.key, seen) or 0) > 1_700_000_000


def test_a_split_view_is_refused(keys: KeyRing, witness: Witness) -> None:
    """Another past, of the same size and larger: 409 and 422, and nothing is cosigned."""
    witness.add_checkpoint(History(keys).request(0, 300))
    forked = History(keys, "other")
    assert witness.add_checkpoint(forked.request(300, 300)).status == 409
    assert witness.add_checkpoint(forked.request(300, 500)).status == 422
    assert witness.add_checkpoint(History(keys).request(300, 500)).status == 200


def test_a_rollback_is_refused_with_the_size_it_knows(keys: KeyRing, witness: Witness) -> None:
    """A log that shows itself smaller than it was."""
    log = History(keys)
    witness.add_checkpoint(log.request(0, 300))
    answer = witness.add_checkpoint(log.request(0, 200))
    assert (answer.status, answer.content_type, answer.body) == (409, "text/x.tlog.size", b"300\n")


def test_what_was_cosigned_survives_a_restart(tmp_path: Path, keys: KeyRing, witness: Witness) -> None:
    """The memory is on disk before the answer; the key stays the same."""
    witness.add_checkpoint(History(keys).request(0, 300))
    log = VerifierKey(ORIGIN, ED25519, keys.log.public)
    again = open_witness(tmp_path / "witness", "witness.test/w", [log])
    assert again.key == witness.key
    assert again.add_checkpoint(History(keys, "other").request(0, 300)).status == 409


def test_strangers_are_not_cosigned(tmp_path: Path, keys: KeyRing, witness: Witness) -> None:
    """An unknown origin is 404, an unknown key 403, an old size that is too large 400."""
    stranger = open_keys(tmp_path / "stranger", may_create=True)
    assert witness.add_checkpoint(History(stranger).request(0, 10)).status == 403
    other = sign_checkpoint("other.test/log", 1, b"r" * 32, keys.log)
    assert witness.add_checkpoint(f"old 0\n\n{other}".encode()).status == 404
    assert witness.add_checkpoint(b"old 11\n\n" + History(keys).checkpoint(10).encode()).status == 400


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_get_an_answer(body: bytes) -> None:
    """Whatever is sent, a witness answers 400, 403 or 404 and never fails."""
    key = VerifierKey(ORIGIN, ED25519, b"k" * 32)
    assert Witness(key, None, {ORIGIN: [key]}, None).add_checkpoint(body).status in (400, 403, 404)  # type: ignore[arg-type]


def test_a_damaged_verifier_key_is_refused(keys: KeyRing) -> None:
    """A key whose parts do not agree is not taken for another."""
    text = str(VerifierKey(ORIGIN, ED25519, keys.log.public))
    assert str(parse_vkey(text)) == text
    for bad in (text.replace("assay", "other"), text[:-4] + "AAA=", "x", "a+b+c", ""):
        with pytest.raises(ValueError):
            parse_vkey(bad)


async def test_the_log_gets_its_cosignatures_and_the_alarm_when_it_forked(tmp_path: Path) -> None:
    """Over HTTP: every new checkpoint is cosigned and shown so; a rewritten log is an alarm, once."""
    async with database("sqlite", tmp_path) as url, scene(url, tmp_path, quorum=1) as made:
        log_key = VerifierKey(ORIGIN, ED25519, made.keys.log.public)
        witness = open_witness(tmp_path / "witness", "witness.test/w", [log_key])
        http = httpx.AsyncClient(transport=httpx.ASGITransport(witness_app(witness)))
        alarms: list[tuple[str, str]] = []
        client = WitnessClient(
            made.log, [(witness.key, "http://witness.test")], lambda kind, what: alarms.append((kind, what)), 1.0, http
        )
        for total in (102, 402):
            await made.add(100 if total == 102 else 300)
            await made.settled(total)
            await client.once()
            shown = parse_checkpoint(await made.log.checkpoint() or "")
            assert shown.size == total and cosigned_at(witness.key, shown) is not None
        proof = await made.log.proof(5)
        assert proof is not None and "witness.test/w" in proof[1]
        await made.add(1)
        await made.settled(403)
        assert "\n402\n" in (await made.log.checkpoint() or ""), "what is shown is what witnesses saw"
        assert alarms == []

        fork = sign_checkpoint(ORIGIN, 500, b"f" * 32, made.keys.log)
        await made.edit("INSERT INTO checkpoints (size, root, text, time_ms) VALUES (500, ?, ?, 1)", b"f" * 32, fork)
        await made.edit("UPDATE log_subtrees SET root = ? WHERE number = 0", b"f" * 32)
        made.log._shown.clear()
        await made.edit(
            "INSERT INTO log_entries (idx, kind, ref, seq, entry, leaf) "
            "SELECT idx + 97, kind, ref || 'x', seq, entry, leaf FROM log_entries WHERE idx BETWEEN 306 AND 402"
        )
        await client.once()
        await client.once()
        assert [kind for kind, _ in alarms] == ["split_view"]
        await http.aclose()
