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


def sign_checkpoint(origin: str, size: int, root: bytes, *keys: SigningKey) -> str:
    """The checkpoint of a tree, as the log serves it; signed by each key, which is more than one during a rotation."""
    body = f"{origin}\n{size}\n{base64.b64encode(root).decode()}\n"
    lines = [signature_line(origin, key_hash(origin, key.public), key.sign(body.encode())) for key in keys]
    return f"{body}\n{''.join(lines)}"


def signature_line(name: str, id: bytes, signature: bytes) -> str:
    """One signature line of a note."""
    return f"\u2014 {name} {base64.b64encode(id + signature).decode()}\n"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A parsed checkpoint; nothing about it is verified yet."""

    origin: str
    size: int
    root: bytes
    text: str

    @property
    def body(self) -> bytes:
        """What is signed: the note's text with its final newline."""
        return self.text.partition("\n\n")[0].encode() + b"\n"

    def signatures(self) -> list[tuple[str, bytes, bytes]]:
        """(name, key id, signature) of every signature line; raises `ValueError` for anything else there."""
        found = []
        for line in self.text.partition("\n\n")[2].splitlines():
            mark, name, value = line.split(" ")
            raw = base64.b64decode(value, validate=True)
            if mark != "\u2014" or len(raw) < 5:
                raise ValueError("not a signature line")
            found.append((name, raw[:4], raw[4:]))
        return found


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
