"""JSON of upstreams: read fast, and tolerantly where strictness would lose an answer.

RFC 8259 allows an escaped lone surrogate; orjson does not. Such an answer must still reach the client, so the reader
falls back to the standard library, and the writer escapes what UTF-8 cannot hold.
"""

from __future__ import annotations

import json
from typing import Any

import orjson


class NotJson(ValueError):
    """The bytes are not one JSON value."""


def loads(data: bytes) -> Any:
    """One JSON value; raises `NotJson`. NaN, Infinity and numbers no double holds are refused (RFC 8259, 6)."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise NotJson(str(error)) from None


def dumps(value: Any) -> bytes:
    """Compact UTF-8 JSON; integers of any size and lone surrogates (escaped) included."""
    try:
        return orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError):
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:
            return json.dumps(value, separators=(",", ":")).encode("ascii")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value
