"""Commitments: HMAC-SHA256 of content under a random 256-bit key per message.

The log holds only the digest; the key lies in an erasable table. Erased, the digest can no longer be opened, not even
for a guess like "yes" (EDPB Guidelines 02/2025: keep personal data off append-only storage). A plain or globally
salted hash would be pseudonymisation at best.
"""

from __future__ import annotations

import hashlib
import hmac

from gateway.entropy import take
from gateway.exchange import Commitment

DOMAIN = b"assay/commitment/v1\x00"


class Committer:
    """An open commitment that takes content as it passes."""

    __slots__ = ("_hmac", "key", "length", "update")

    def __init__(self) -> None:
        self.key = take(32)
        self._hmac = hmac.new(self.key, DOMAIN, hashlib.sha256)
        self.update = self._hmac.update

    def done(self) -> Commitment:
        """The commitment to everything taken so far."""
        return Commitment(self._hmac.hexdigest(), self.key)


def commit(content: bytes) -> Commitment:
    """A commitment to content that is here whole."""
    key = take(32)
    return Commitment(hmac.digest(key, DOMAIN + content, "sha256").hex(), key)
