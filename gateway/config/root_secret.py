"""The root secret of an installation: 32 bytes in `keys_dir`, from which every symmetric key is derived (RFC 5869).

Receipt and log keys are separate files of their own, so that rotating one never touches another. Files are created
with O_EXCL and mode 0600, and never on Kubernetes, where they must be mounted: a pod that made its own would sign with
a key nobody knows.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

_NAME = "root.secret"
_LENGTH = 32


class KeysUnavailable(Exception):
    """`keys_dir` cannot be used; the message says what to do."""


class RootSecret:
    """Derives keys by HKDF-SHA256; the label separates their uses."""

    __slots__ = ("_prk",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) != _LENGTH:
            raise KeysUnavailable("the root secret must have 32 bytes")
        self._prk = hmac.new(b"assay-root-v1", secret, hashlib.sha256).digest()

    def derive(self, label: str, *context: str) -> bytes:
        """A 32-byte key for one use and context (HKDF-Expand with one block)."""
        info = "\x00".join((label, *context)).encode("utf-8", "surrogatepass")
        return hmac.new(self._prk, info + b"\x01", hashlib.sha256).digest()

    def __repr__(self) -> str:
        return "RootSecret(****)"


def open_root(folder: Path, *, may_create: bool) -> RootSecret:
    """The installation's root secret; made on first start where that is allowed."""
    file = folder / _NAME
    if not file.exists():
        if not may_create:
            raise KeysUnavailable(f"{file} is missing; on Kubernetes the keys must be mounted from a Secret")
        create_private(file, secrets.token_bytes(_LENGTH))
    return RootSecret(read_private(file))


def create_private(file: Path, content: bytes) -> None:
    """Writes a file that must not exist yet, mode 0600, durable before it is used."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    try:
        os.write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_private(file: Path) -> bytes:
    """Reads a key file; one that others may read is refused, except read-only mounts, which Kubernetes groups."""
    try:
        if file.stat().st_mode & 0o007:
            raise KeysUnavailable(f"{file} can be read by everybody; make it mode 0600")
        return file.read_bytes()
    except OSError as error:
        raise KeysUnavailable(f"{file} cannot be read: {error.strerror}") from None
