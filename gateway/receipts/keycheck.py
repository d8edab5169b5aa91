"""Signatures of an installation's own receipts and checkpoints, checked with its own keys, retired ones included."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gateway.receipts.checkpoint import parse_checkpoint
from gateway.receipts.cosignature import ED25519, VerifierKey, signed_by
from gateway.receipts.envelope import pre_authentication_encoding
from gateway.receipts.signer import KeyRing


class KeyCheck:
    """Says yes or no; it never raises for bad input."""

    def __init__(self, ring: KeyRing) -> None:
        self._receipt = {
            key.kid: Ed25519PublicKey.from_public_bytes(key.public) for key in ring.every() if key.use == "receipt"
        }
        self._log = [key.public for key in ring.every() if key.use == "log"]

    def receipt(self, payload: bytes, kid: str, signature: bytes) -> bool:
        """Whether the receipt key of this name signed the statement."""
        key = self._receipt.get(kid)
        if key is None:
            return False
        try:
            key.verify(signature, pre_authentication_encoding(payload))
        except InvalidSignature:
            return False
        return True

    def checkpoint(self, text: str) -> tuple[int, bytes] | None:
        """(size, root) of a checkpoint that a log key signed, else None."""
        try:
            parsed = parse_checkpoint(text)
            trusted = any(signed_by(VerifierKey(parsed.origin, ED25519, public), parsed) for public in self._log)
        except (ValueError, IndexError):
            return None
        return (parsed.size, parsed.root) if trusted else None
