"""Attacks on a receipt file, each refused by the offline verifier."""

from __future__ import annotations

import base64
import copy
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.exchange import Attempt, Effective, Endpoint, Evidence, Exchange, Grade, Principal, TokenCount, Usage
from gateway.receipts import merkle, verifier
from gateway.receipts.checkpoint import sign_checkpoint
from gateway.receipts.commitments import commit
from gateway.receipts.envelope import envelope, seal
from gateway.receipts.signer import FileKey, new_key, open_keys
from gateway.receipts.statement import Pseudonyms, build
from gateway.receipts.tiles import TileCache

REQUEST, RESPONSE = b'{"model":"m"}', b'{"answer":1}'
ORIGIN = "assay.test/log"


def exchange() -> Exchange:
    made = Exchange("req_1", "rcpt_1", Endpoint.chat, time.time(), time.monotonic())
    made.principal = Principal("tenant-name", "key-name")
    made.requested_model = "m \ud83d"
    made.session = "session-name"
    made.commitments = {"request": commit(REQUEST), "response": commit(RESPONSE)}
    made.attempts = [Attempt("d", "p", "eu", "host.test", "m", 1.0, 2.0, 200, None, "asy-1", "chatcmpl-1")]
    none = Evidence(None, "none", Grade.none)
    model = Evidence("m1", "body.model", Grade.asserted)
    made.effective = Effective(
        "d", Evidence("p", "origin", Grade.observed), Evidence("eu", "config", Grade.declared), model, none
    )
    made.count, made.usage = TokenCount(10, "estimated"), Usage(11, 2)
    made.outcome = "completed"
    return made


class Scene:
    """A signed receipt in a log of 1000 entries."""

    def __init__(self, folder: Path) -> None:
        self.keys = open_keys(folder, may_create=True)
        self.exchange = exchange()
        self.payload = build(self.exchange, Pseudonyms(lambda t: b"k" * 32), time.monotonic(), frozenset({"d"}))
        import hashlib

        leaves = [hashlib.sha256(f"{n}".encode()).digest() for n in range(1000)]
        leaves[637] = hashlib.sha256(self.payload).digest()
        hashes = [merkle.leaf_hash(leaf) for leaf in leaves]
        self.tree = TileCache(lambda start, end: hashes[start:end])
        self.jwks = self.keys.jwks()
        self.document = self.file(self.keys.receipt, self.keys.log)

    def file(self, receipt_key: FileKey, log_key: FileKey, index: int = 637, size: int = 1000) -> dict[str, Any]:
        proof = merkle.inclusion_proof(index, size, self.tree.hash_of)
        root = merkle.root(size, self.tree.hash_of)
        openings = {n: base64.b64encode(c.key).decode() for n, c in self.exchange.commitments.items()}
        return {
            "envelope": envelope(self.payload, receipt_key.kid, seal(self.payload, receipt_key)),
            "proof": {"index": index, "size": size, "hashes": [base64.b64encode(h).decode() for h in proof]},
            "checkpoint": sign_checkpoint(ORIGIN, size, root, log_key),
            "openings": openings,
        }


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "keys")


def refused(document: Any, keys: Any, **content: bytes) -> str:
    with pytest.raises(verifier.VerificationError) as caught:
        verifier.verify(document, keys, **content)
    return str(caught.value)


def test_a_true_receipt_verifies_and_says_what_it_does_not_prove(scene: Scene) -> None:
    """Signature, log position and both commitments; and never that a model ran."""
    result = verifier.verify(scene.document, scene.jwks, request=REQUEST, response=RESPONSE)
    assert len(result.proven) == 4
    assert any("model ran" in line for line in result.unproven)


def test_names_are_not_in_the_statement(scene: Scene) -> None:
    """Tenant, key, session and a self-hosted host are pseudonyms."""
    for name in (b"tenant-name", b"key-name", b"session-name", b"host.test"):
        assert name not in scene.payload


def test_a_tampered_statement_is_refused(scene: Scene) -> None:
    """Another effective model under the old signature."""
    forged = copy.deepcopy(scene.document)
    forged["envelope"]["payload"] = base64.b64encode(scene.payload.replace(b'"m1"', b'"m2"')).decode()
    assert "signature" in refused(forged, scene.jwks)


def test_a_swapped_proof_is_refused(scene: Scene) -> None:
    """The proof of another entry does not lead from this statement."""
    forged = copy.deepcopy(scene.document)
    forged["proof"] = scene.file(scene.keys.receipt, scene.keys.log, index=636)["proof"]
    assert "does not lead" in refused(forged, scene.jwks)


def test_a_truncated_log_is_refused(scene: Scene) -> None:
    """A proof for one size under a checkpoint of another."""
    forged = copy.deepcopy(scene.document)
    forged["checkpoint"] = scene.file(scene.keys.receipt, scene.keys.log, size=900)["checkpoint"]
    assert "another tree size" in refused(forged, scene.jwks)


def test_a_forged_checkpoint_is_refused(scene: Scene) -> None:
    """A root that the log key did not sign."""
    forged = copy.deepcopy(scene.document)
    lines = forged["checkpoint"].split("\n")
    lines[2] = base64.b64encode(b"\x01" * 32).decode()
    forged["checkpoint"] = "\n".join(lines)
    assert "checkpoint's signature" in refused(forged, scene.jwks)


def test_a_wrong_key_is_refused(scene: Scene, tmp_path: Path) -> None:
    """Signed by somebody else, and by the log's key in the receipt key's place."""
    stranger = open_keys(tmp_path / "stranger", may_create=True)
    assert "published" in refused(scene.file(stranger.receipt, scene.keys.log), scene.jwks)
    assert "published" in refused(scene.file(scene.keys.log, scene.keys.log), scene.jwks)
    assert "published" in refused(scene.file(scene.keys.receipt, scene.keys.receipt), scene.jwks)


def test_an_expired_and_a_revoked_key_are_refused(scene: Scene) -> None:
    """A statement outside its key's validity, or after its revocation."""
    for change in ({"exp": 1000}, {"nbf": int(time.time()) + 9999}, {"revoked": 1000}):
        keys = copy.deepcopy(scene.jwks)
        for key in keys["keys"]:
            key.update(change)
        assert "not valid" in refused(scene.document, keys)


def test_other_content_does_not_open_a_commitment(scene: Scene) -> None:
    """One byte more, or an erased key."""
    assert "not the request" in refused(scene.document, scene.jwks, request=REQUEST + b" ")
    erased = {**scene.document, "openings": {}}
    assert "no key" in refused(erased, scene.jwks, request=REQUEST)
    verifier.verify(erased, scene.jwks)


def test_a_receipt_without_a_proof_is_not_proven(scene: Scene) -> None:
    """Not yet in the log is said, and is not a success."""
    assert "no proof" in refused({**scene.document, "proof": None, "checkpoint": None}, scene.jwks)


def test_two_hundred_malformed_files_have_one_failure_type(scene: Scene) -> None:
    """Whatever is cut, exchanged or mistyped, the verifier fails in its one way and never otherwise."""
    dice = random.Random(7)
    text = json.dumps(scene.document)
    for number in range(200):
        document: Any = copy.deepcopy(scene.document)
        choice = number % 5
        if choice == 0:
            key = dice.choice(list(document))
            document[key] = dice.choice([None, 7, [], {}, "x", [None], {"index": -1}])
            if key == "openings":
                continue
        elif choice == 1:
            block = document[dice.choice(["envelope", "proof"])]
            block[dice.choice(list(block))] = dice.choice([None, -1, "é", [], ["%%"], {}, 2**70, 1.5])
        elif choice == 2:
            document["checkpoint"] = document["checkpoint"][: dice.randrange(len(document["checkpoint"]) - 4)]
        elif choice == 3:
            position = dice.randrange(len(text))
            try:
                document = json.loads(text[:position] + dice.choice("0aZ]}") + text[position + 1 :])
            except ValueError:
                continue
            if document == scene.document or json.dumps(document.get("openings", 0)) not in text:
                continue
        else:
            payload = bytearray(scene.payload)
            payload[dice.randrange(len(payload))] ^= 1 << dice.randrange(8)
            document["envelope"]["payload"] = base64.b64encode(bytes(payload)).decode()
        refused(document, scene.jwks)


def test_the_verifier_runs_alone(scene: Scene, tmp_path: Path) -> None:
    """The one file, copied out, in an interpreter that cannot see the gateway."""
    script = tmp_path / "verifier.py"
    script.write_bytes(Path(verifier.__file__).read_bytes())
    (tmp_path / "r.json").write_text(json.dumps(scene.document))
    (tmp_path / "k.json").write_text(json.dumps(scene.jwks))
    command = [sys.executable, "-I", str(script), str(tmp_path / "r.json"), "--keys", str(tmp_path / "k.json")]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert "proven:" in result.stdout and "not proven:" in result.stdout


def test_rotation_keeps_old_signatures_valid(scene: Scene, tmp_path: Path) -> None:
    """A newer receipt key signs from now on; what the older one signed still verifies, and the log key is the same."""
    new_key(tmp_path / "keys", "receipt", now=int(time.time()) + 1)
    rotated = open_keys(tmp_path / "keys", may_create=False)
    assert rotated.receipt.kid != scene.keys.receipt.kid and rotated.log.kid == scene.keys.log.kid
    verifier.verify(scene.document, rotated.jwks())
