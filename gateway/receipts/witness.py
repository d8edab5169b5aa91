"""A witness (C2SP tlog-witness): it remembers one checkpoint per log and cosigns only what continues it.

A tenant, an auditor or another operator runs one; then the gateway cannot show different logs to different people.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.config.root_secret import create_private, read_private
from gateway.receipts.checkpoint import Checkpoint, parse_checkpoint
from gateway.receipts.cosignature import COSIGNATURE, Signs, VerifierKey, cosign, signed_by
from gateway.receipts.merkle import verify_consistency

MAX_BODY = 64 * 1024
_MAX_PROOF = 63


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, content type and body of a reply."""

    status: int
    content_type: str
    body: bytes


def _plain(status: int, text: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", text.encode() + b"\n")


class Memory:
    """The newest cosigned checkpoint of each log, one file each, durable before anything is answered."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else, in this process or another, reads or writes meanwhile."""
        with self._lock, (self._folder / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _file(self, origin: str) -> Path:
        return self._folder / f"{hashlib.sha256(origin.encode()).hexdigest()[:32]}.checkpoint"

    def last(self, origin: str) -> Checkpoint | None:
        """What was cosigned last; call while held. A damaged memory raises `ValueError`: it must not look empty."""
        file = self._file(origin)
        return parse_checkpoint(file.read_text("utf-8")) if file.exists() else None

    def remember(self, checkpoint: Checkpoint) -> None:
        """Replaces it; call while held."""
        file = self._file(checkpoint.origin)
        temporary = file.with_suffix(".new")
        with temporary.open("w", encoding="utf-8") as out:
            out.write(checkpoint.text)
            out.flush()
            os.fsync(out.fileno())
        temporary.replace(file)
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class Witness:
    """Answers `add-checkpoint`. `logs` are the keys it trusts, by origin."""

    def __init__(
        self,
        key: VerifierKey,
        signer: Signs,
        logs: Mapping[str, Sequence[VerifierKey]],
        memory: Memory,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.key = key
        self._signer = signer
        self._logs = logs
        self._memory = memory
        self._clock = clock

    def add_checkpoint(self, body: bytes) -> Answer:
        """One request, as the protocol orders its checks."""
        try:
            old, proof, checkpoint = _parse(body)
        except (ValueError, IndexError):
            return _plain(400, "this is not an add-checkpoint request")
        keys = self._logs.get(checkpoint.origin)
        if not keys:
            return _plain(404, "this log is not known here")
        try:
            trusted = any(signed_by(key, checkpoint) for key in keys)
        except ValueError:
            return _plain(400, "a signature line is malformed")
        if not trusted:
            return _plain(403, "no key of this log signed the checkpoint")
        if old > checkpoint.size:
            return _plain(400, "the old size is larger than the checkpoint's")
        with self._memory.held():
            return self._decide(old, proof, checkpoint)

    def _decide(self, old: int, proof: list[bytes], checkpoint: Checkpoint) -> Answer:
        last = self._memory.last(checkpoint.origin)
        known = last.size if last is not None else 0
        if old != known:
            return Answer(409, "text/x.tlog.size", b"%d\n" % known)
        if last is not None and last.size == checkpoint.size and last.root != checkpoint.root:
            return _plain(409, "another root was cosigned for this size")
        if last is None or known == 0:
            fits = not proof
        else:
            fits = verify_consistency(known, checkpoint.size, last.root, checkpoint.root, proof)
        if not fits:
            return _plain(422, "the checkpoint does not continue the one that was cosigned")
        self._memory.remember(checkpoint)
        line = cosign(self.key, self._signer, checkpoint, int(self._clock()))
        return Answer(200, "text/plain; charset=utf-8", line.encode())


def _parse(body: bytes) -> tuple[int, list[bytes], Checkpoint]:
    head, separator, note = body.decode("utf-8").partition("\n\n")
    lines = head.split("\n")
    word, _, number = lines[0].partition(" ")
    if not separator or word != "old" or not number.isascii() or not number.isdigit() or number != str(int(number)):
        raise ValueError("malformed")
    if len(lines) - 1 > _MAX_PROOF:
        raise ValueError("too many hashes")
    proof = [base64.b64decode(line, validate=True) for line in lines[1:]]
    if any(len(item) != 32 for item in proof):
        raise ValueError("not hashes")
    return int(number), proof, parse_checkpoint(note)


def open_witness(folder: Path, name: str, logs: Sequence[VerifierKey]) -> Witness:
    """The witness of a folder; its key is made on first use. Raises `KeysUnavailable`."""
    file = folder / "witness.key"
    if not file.exists():
        seed = Ed25519PrivateKey.generate().private_bytes_raw()
        create_private(file, json.dumps({"seed": base64.b64encode(seed).decode()}).encode())
    seed = base64.b64decode(json.loads(read_private(file))["seed"])
    private = Ed25519PrivateKey.from_private_bytes(seed)
    by_origin: dict[str, list[VerifierKey]] = {}
    for log in logs:
        by_origin.setdefault(log.name, []).append(log)
    key = VerifierKey(name, COSIGNATURE, private.public_key().public_bytes_raw())
    return Witness(key, private, by_origin, Memory(folder))
