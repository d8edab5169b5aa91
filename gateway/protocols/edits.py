"""Edits of JSON that copy nothing but what they change."""

from __future__ import annotations


def splice(body: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """The body with byte ranges replaced; edits must not overlap."""
    parts: list[bytes] = []
    at = 0
    for start, end, replacement in sorted(edits):
        parts += (body[at:start], replacement)
        at = end
    parts.append(body[at:])
    return b"".join(parts)
