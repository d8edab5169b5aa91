"""Ed25519 keys (RFC 8032): one for receipts, one for the log, in separate files that are rotated separately."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.config.root_secret import KeysUnavailable, create_private, read_private

Use = Literal["receipt", "log"]
VALID_S = 2 * 365 * 86_400


class SigningKey(Protocol):
    """The seam for a key management service: a name, a public key and signatures."""

    kid: str
    public: bytes

    def sign(self, message: bytes) -> bytes:
        """A 64-byte Ed25519 signature."""
        ...


class FileKey:
    """A key from a file of `keys_dir`."""

    def __init__(self, private: Ed25519PrivateKey, use: Use, not_before: int, not_after: int) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw()
        self.kid = f"{use}-{hashlib.sha256(self.public).hexdigest()[:16]}"
        self.use = use
        self.not_before, self.not_after = not_before, not_after
        self.sign = private.sign

    def jwk(self) -> dict[str, Any]:
        """The public half as a JWK (RFC 8037)."""
        return {
            "kty": "OKP",
            "crv": "Ed25519",
            "kid": self.kid,
            "x": base64.urlsafe_b64encode(self.public).rstrip(b"=").decode(),
            "use": self.use,
            "nbf": self.not_before,
            "exp": self.not_after,
        }


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The current key of each use, and older ones whose signatures must still verify."""

    receipt: FileKey
    log: FileKey
    retired: tuple[dict[str, Any], ...] = ()

    def jwks(self) -> dict[str, Any]:
        """What `/.well-known/assay/keys.json` says."""
        return {"keys": [self.receipt.jwk(), self.log.jwk(), *self.retired]}


def open_keys(folder: Path, *, may_create: bool) -> KeyRing:
    """The key ring of an installation; keys are made on first start where that is allowed."""
    current: dict[str, FileKey] = {}
    retired: list[dict[str, Any]] = []
    for use in ("receipt", "log"):
        files = sorted(folder.glob(f"{use}-*.key"))
        if not files:
            if not may_create:
                raise KeysUnavailable(
                    f"{folder} holds no {use} key; on Kubernetes the keys must be mounted from a Secret"
                )
            files = [new_key(folder, use)]
        keys = sorted((_load(file, use) for file in files), key=lambda key: key.not_before)
        current[use] = keys[-1]
        retired += [key.jwk() for key in keys[:-1]]
    return KeyRing(current["receipt"], current["log"], tuple(retired))


def new_key(folder: Path, use: Use, *, now: int | None = None) -> Path:
    """Makes a key file; the newest of a use signs, the older ones verify until they expire."""
    start = int(time.time()) if now is None else now
    seed = Ed25519PrivateKey.generate().private_bytes_raw()
    content = {"use": use, "seed": base64.b64encode(seed).decode(), "nbf": start, "exp": start + VALID_S}
    file = folder / f"{use}-{start:012d}.key"
    create_private(file, json.dumps(content).encode())
    return file


def _load(file: Path, use: Use) -> FileKey:
    try:
        content = json.loads(read_private(file))
        if content["use"] != use:
            raise ValueError
        seed = base64.b64decode(content["seed"], validate=True)
        return FileKey(Ed25519PrivateKey.from_private_bytes(seed), use, int(content["nbf"]), int(content["exp"]))
    except (ValueError, KeyError, TypeError):
        raise KeysUnavailable(f"{file} is not a key of this gateway") from None
