"""Witnesses' cosignatures on checkpoints (C2SP tlog-cosignature, Ed25519) and verifier keys (C2SP signed-note)."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gateway.receipts.checkpoint import Checkpoint, signature_line

ED25519 = 1
COSIGNATURE = 4


class Signs(Protocol):
    """A private key: anything that signs."""

    def sign(self, message: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class VerifierKey:
    """A name, an algorithm of the note format, and a public key."""

    name: str
    kind: int
    public: bytes

    @property
    def id(self) -> bytes:
        """SHA-256(name || 0x0A || kind || key), cut to four bytes."""
        return hashlib.sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public).digest()[:4]

    def __str__(self) -> str:
        material = base64.b64encode(bytes([self.kind]) + self.public).decode()
        return f"{self.name}+{self.id.hex()}+{material}"


def parse_vkey(text: str) -> VerifierKey:
    """`name+id+key` as it is written in configurations; raises `ValueError` when the parts do not agree."""
    parts = text.strip().split("+", 2)  # base64 may hold a plus sign
    if len(parts) != 3 or not parts[0]:
        raise ValueError("a verifier key is name+id+key")
    material = base64.b64decode(parts[2], validate=True)
    key = VerifierKey(parts[0], material[0] if material else 0, material[1:])
    if key.kind not in (ED25519, COSIGNATURE) or len(key.public) != 32 or key.id.hex() != parts[1]:
        raise ValueError("the verifier key is damaged or of an unknown kind")
    return key


def _message(body: bytes, time_s: int) -> bytes:
    return b"cosignature/v1\ntime %d\n%b" % (time_s, body)


def cosign(key: VerifierKey, signer: Signs, checkpoint: Checkpoint, time_s: int) -> str:
    """The signature line of a witness that saw this checkpoint continue the last one."""
    signature = signer.sign(_message(checkpoint.body, time_s))
    return signature_line(key.name, key.id, time_s.to_bytes(8, "big") + signature)


def cosigned_at(key: VerifierKey, checkpoint: Checkpoint) -> int | None:
    """When this witness cosigned it (Unix seconds), None where no valid cosignature of his is on it."""
    public = Ed25519PublicKey.from_public_bytes(key.public)
    for name, id_, signature in checkpoint.signatures():
        if name == key.name and id_ == key.id and len(signature) == 72:
            time_s = int.from_bytes(signature[:8], "big")
            try:
                public.verify(signature[8:], _message(checkpoint.body, time_s))
            except InvalidSignature:
                continue
            return time_s
    return None


def signed_by(key: VerifierKey, checkpoint: Checkpoint) -> bool:
    """Whether a log's own key signed it."""
    public = Ed25519PublicKey.from_public_bytes(key.public)
    for name, id_, signature in checkpoint.signatures():
        if name == key.name == checkpoint.origin and id_ == key.id:
            try:
                public.verify(signature, checkpoint.body)
            except InvalidSignature:
                continue
            return True
    return False
