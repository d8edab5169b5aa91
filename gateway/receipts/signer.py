"""Ed25519 keys (RFC 8032): one for receipts, one for the log, in separate files that are rotated separately."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.config.root_secret import KeysUnavailable, create_private, read_private
from gateway.receipts.canonical import canonical

Use = Literal["receipt", "log"]
MANIFEST_TYPE = "urn:assay:key:v1"
VALID_S = 2 * 365 * 86_400
OVERLAP_S = 7 * 86_400
LOG = logging.getLogger("assay.keys")


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
        self.retired = False
        self.revoked: int | None = None
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
            **({"revoked": self.revoked} if self.revoked is not None else {}),
        }

    def statement(self) -> bytes:
        """What the log says about this key: its public half, its validity, and whether it was revoked."""
        return canonical({"type": MANIFEST_TYPE, **self.jwk()})


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The current key of each use, and older ones whose signatures must still verify."""

    receipt: FileKey
    log: FileKey
    retired: tuple[FileKey, ...] = ()

    def jwks(self) -> dict[str, Any]:
        """What `/.well-known/assay/keys.json` says."""
        return {"keys": [key.jwk() for key in self.every()]}

    def every(self) -> tuple[FileKey, ...]:
        """Current keys first."""
        return (self.receipt, self.log, *self.retired)

    def manifest(self) -> list[bytes]:
        """The statements about keys that belong into the log."""
        return [key.statement() for key in self.every()]

    def log_signers(self, now: float) -> list[FileKey]:
        """The keys that sign checkpoints: the current one, and during a rotation's overlap the one before it."""
        older = [key for key in self.retired if key.use == "log" and key.retired and key.revoked is None]
        return [self.log, *(key for key in older if now < key.not_after)]


class KeyFolder:
    """The keys of `keys_dir`, read again when the folder changes: rotation and revocation need no restart."""

    def __init__(self, folder: Path, *, may_create: bool, check_every_s: float = 1.0) -> None:
        self._folder = folder
        self._every_s = check_every_s
        self._ring = open_keys(folder, may_create=may_create)
        self._stamp = self._seen()
        self._next = time.monotonic() + check_every_s

    def ring(self) -> KeyRing:
        """The key ring as it is now; a folder that cannot be read any more leaves the last one."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + self._every_s
            stamp = self._seen()
            if stamp != self._stamp:
                try:
                    self._ring = open_keys(self._folder, may_create=False)
                    self._stamp = stamp
                except KeysUnavailable as error:
                    LOG.error("the keys cannot be read again, the old ones stay: %s", error)
        return self._ring

    def _seen(self) -> int:
        try:
            return self._folder.stat().st_mtime_ns
        except OSError:
            return 0


def open_keys(folder: Path, *, may_create: bool, now: float | None = None) -> KeyRing:
    """The key ring of an installation; keys are made on first start where that is allowed."""
    time_s = time.time() if now is None else now
    current: dict[str, FileKey] = {}
    others: list[FileKey] = []
    for use in ("receipt", "log"):
        files = sorted(folder.glob(f"{use}-*.key"))
        if not files:
            if not may_create:
                raise KeysUnavailable(
                    f"{folder} holds no {use} key; on Kubernetes the keys must be mounted from a Secret"
                )
            files = [new_key(folder, use)]
        keys = sorted((_load(file, use) for file in files), key=lambda key: key.not_before)
        usable = [k for k in keys if k.revoked is None and k.not_before <= time_s + 1 and time_s < k.not_after]
        if not usable:
            raise KeysUnavailable(f"every {use} key in {folder} is revoked or expired; run `assay signing rotate`")
        current[use] = usable[-1]
        others += [key for key in keys if key is not usable[-1]]
    return KeyRing(current["receipt"], current["log"], tuple(others))


def new_key(folder: Path, use: Use, *, now: int | None = None) -> Path:
    """Makes a key file; the newest of a use signs, the older ones verify until they expire."""
    start = int(time.time()) if now is None else now
    seed = Ed25519PrivateKey.generate().private_bytes_raw()
    content = {"use": use, "seed": base64.b64encode(seed).decode(), "nbf": start, "exp": start + VALID_S}
    file = folder / f"{use}-{start:012d}.key"
    if file.exists():
        raise KeysUnavailable(f"{file} is there already; rotate again in a second")
    create_private(file, json.dumps(content).encode())
    return file


def rotate(folder: Path, use: Use, overlap_s: int, *, now: int | None = None) -> tuple[str, str]:
    """Makes a new key of a use; the old one ends after the overlap. Returns (old kid, new kid).

    For the log's key the overlap is the time in which checkpoints carry both signatures.
    """
    start = int(time.time()) if now is None else now
    ring = open_keys(folder, may_create=False)
    old = ring.receipt if use == "receipt" else ring.log
    made = _load(new_key(folder, use, now=start), use)
    _mark(folder, old.kid, "retired", {"exp": min(old.not_after, start + overlap_s)})
    return old.kid, made.kid


def revoke(folder: Path, kid: str, at: int) -> str | None:
    """Declares a key compromised from a time on: what it signed later no longer verifies. A key that was current is
    replaced at once; returns the kid of its successor.
    """
    ring = open_keys(folder, may_create=False)
    key = next((key for key in ring.every() if key.kid == kid), None)
    if key is None:
        raise KeysUnavailable(f"there is no key {kid}; see `assay signing list`")
    successor = _load(new_key(folder, key.use), key.use).kid if key in (ring.receipt, ring.log) else None
    _mark(folder, kid, "revoked", {"revoked": at})
    return successor


def _mark(folder: Path, kid: str, what: str, content: dict[str, int]) -> None:
    """A note beside the keys, replaced in one step: key files themselves are never written again."""
    temporary = folder / f".{kid}.{what}.{time.time_ns()}"
    create_private(temporary, json.dumps(content).encode())
    temporary.replace(folder / f"{kid}.{what}")


def _marked(folder: Path, kid: str, what: str, name: str) -> int | None:
    file = folder / f"{kid}.{what}"
    return int(json.loads(read_private(file))[name]) if file.exists() else None


def _load(file: Path, use: Use) -> FileKey:
    try:
        content = json.loads(read_private(file))
        if content["use"] != use:
            raise ValueError
        seed = base64.b64decode(content["seed"], validate=True)
        key = FileKey(Ed25519PrivateKey.from_private_bytes(seed), use, int(content["nbf"]), int(content["exp"]))
        ended = _marked(file.parent, key.kid, "retired", "exp")
        if ended is not None:
            key.retired, key.not_after = True, min(key.not_after, ended)
        key.revoked = _marked(file.parent, key.kid, "revoked", "revoked")
        return key
    except (ValueError, KeyError, TypeError):
        raise KeysUnavailable(f"{file} is not a key of this gateway") from None
