"""Identifiers: a prefix and UUIDv7 hex where order helps (RFC 9562, 5.7), random where nobody may guess."""

from __future__ import annotations

import time

from gateway.entropy import take


def uuid7_hex() -> str:
    """48 bits of Unix milliseconds, version and variant, 74 random bits."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(take(10), "big")
    value = value & ~(0xF << 76) & ~(0x3 << 62) | 0x7 << 76 | 0x2 << 62
    return f"{value:032x}"


def request_id() -> str:
    """The gateway's id of a request: 128 random bits."""
    return f"req_{take(16).hex()}"


def receipt_id() -> str:
    """A receipt's id, in order of time."""
    return f"rcpt_{uuid7_hex()}"


def attempt_id() -> str:
    """What an upstream sees as our request id, new for each attempt, and must give back where it echoes one."""
    return f"asy-{take(16).hex()}"
