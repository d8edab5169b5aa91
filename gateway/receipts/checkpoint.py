"""Checkpoints: the log's signed head, as C2SP `tlog-checkpoint` in a C2SP `signed-note`."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

from gateway.receipts.signer import SigningKey

_ED25519 = b"\x01"


def key_hash(name: str, public: bytes) -> bytes:
    """The four bytes that name a key in a note: SHA-256(name || 0x0A || 0x01 || public key), cut."""
    return hashlib.sha256(name.encode() + b"\n" + _ED25519 + public).digest()[:4]


def sign_checkpoint(origin: str, size: int, root: bytes, key: SigningKey) -> str:
    """The checkpoint of a tree, as the log serves it."""
    body = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
    signature = key_hash(origin, key.public) + key.sign(body.encode())
    return f"{body}\n\u2014 {origin} {base64.b64encode(signature).decode()}\n"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A parsed checkpoint; nothing about it is verified yet."""

    origin: str
    size: int
    root: bytes
    text: str


def parse_checkpoint(text: str) -> Checkpoint:
    """The fields of a checkpoint; raises `ValueError` for anything else."""
    body, separator, _ = text.partition("\n\n")
    lines = body.split("\n")
    if not separator or len(lines) < 3 or not lines[1].isdigit() or (lines[1] != "0" and lines[1].startswith("0")):
        raise ValueError("not a checkpoint")
    root = base64.b64decode(lines[2], validate=True)
    if len(root) != 32:
        raise ValueError("not a checkpoint")
    return Checkpoint(lines[0], int(lines[1]), root, text)
