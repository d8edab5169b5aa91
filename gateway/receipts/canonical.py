"""Canonical JSON (RFC 8785) for receipts: sorted orjson, which equals it where there are no fractional numbers.

RFC 8785 sorts keys by UTF-16 code units and orjson by code points: they differ only above U+FFFF, and every key of a
statement is ASCII.
"""

from __future__ import annotations

from typing import Any

import orjson


def canonical(value: Any) -> bytes:
    """The canonical bytes; text that is not valid Unicode is the caller's to clean before."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


def clean(text: str | None, limit: int = 512) -> str | None:
    """Foreign text as a statement may hold it: bounded, and without halves of surrogate pairs."""
    if text is None:
        return None
    return text[:limit].encode("utf-8", "replace").decode("utf-8")
