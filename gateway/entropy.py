"""Random bytes in bulk: the operating system is asked for 16 KiB at a time, as a call each costs several µs.

The bytes are the kernel's CSPRNG output and each is handed out once. A forked process drops what it inherited.
"""

from __future__ import annotations

import os

_BULK = 16 * 1024


class Entropy:
    """A supply of random bytes for one process and one thread."""

    __slots__ = ("_at", "_bytes")

    def __init__(self) -> None:
        self._bytes = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        """`count` bytes that nobody was given before."""
        end = self._at + count
        if end > len(self._bytes):
            self._bytes = os.urandom(max(_BULK, count))
            self._at, end = 0, count
        piece = self._bytes[self._at : end]
        self._at = end
        return piece

    def forget(self) -> None:
        """Drops what is left, as a child of a fork must."""
        self._bytes, self._at = b"", 0


_SUPPLY = Entropy()
os.register_at_fork(after_in_child=_SUPPLY.forget)
take = _SUPPLY.take
