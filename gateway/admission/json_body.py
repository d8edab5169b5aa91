"""The one parse of a client's body: what policy reads and what is forwarded cannot differ.

RFC 8259 leaves duplicate keys undefined and two readers may take different ones, so they are refused at every depth;
so are NaN and Infinity, invalid UTF-8, lone surrogates (RFC 8259, 8.2) and nesting deeper than 64. The byte span of
every top-level member is kept, so that an edit splices the caller's bytes and copies nothing else.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from json.decoder import scanstring
from typing import Any

import orjson

from gateway.errors import DuplicateKey, InvalidJson, InvalidValue

MAX_DEPTH = 64
_SPACE = re.compile(r"[ \t\n\r]*").match
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class _Duplicate(ValueError):
    pass


@dataclass(frozen=True, slots=True)
class Member:
    """Where a top-level member stands, in bytes: its key, its value, and where the next member's key begins (or -1)."""

    key_start: int
    value_start: int
    value_end: int


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A parsed object and the places of its members, in the order written."""

    fields: dict[str, Any]
    members: dict[str, Member]


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Duplicate(key)
            seen.add(key)
    return value


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_SCAN = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant).scan_once  # type: ignore[attr-defined]


def parse(body: bytes) -> JsonBody:
    """The object in `body`. Raises `InvalidJson`, `InvalidValue` or `DuplicateKey`."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidJson("the body is not valid UTF-8") from None
    try:
        fields, places = _object(text)
    except _Duplicate as error:
        raise DuplicateKey(f"the key {_shown(str(error))} is given more than once") from None
    except (ValueError, StopIteration, IndexError):
        raise InvalidJson("the body is not valid JSON") from None
    except RecursionError:
        raise InvalidJson(f"the body is nested deeper than {MAX_DEPTH} levels") from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and _too_deep(fields):
        raise InvalidJson(f"the body is nested deeper than {MAX_DEPTH} levels")
    if _SURROGATE.search(body):
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError:
            if "surrogate" in _surrogate_reason(fields):
                raise InvalidJson("the body holds half a surrogate pair, which is not a character") from None
    if len(text) == len(body):
        members = {key: Member(*place) for key, place in places.items()}
    else:
        members = {key: Member(*(len(text[:at].encode()) for at in place)) for key, place in places.items()}
    return JsonBody(fields, members)


def _object(text: str) -> tuple[dict[str, Any], dict[str, tuple[int, int, int]]]:
    """The top level by hand, so that members keep their places; their values by the C scanner."""
    at = _SPACE(text, 0).end()  # type: ignore[union-attr]
    if text[at] != "{":
        _SCAN(text, at)
        raise InvalidValue("the body must be a JSON object")
    fields: dict[str, Any] = {}
    places: dict[str, tuple[int, int, int]] = {}
    at = _SPACE(text, at + 1).end()  # type: ignore[union-attr]
    if text[at] == "}":
        at += 1
    else:
        while True:
            key_start = at
            if text[at] != '"':
                raise ValueError
            key, at = scanstring(text, at + 1, True)
            if text[at] != ":":
                at = _SPACE(text, at).end()  # type: ignore[union-attr]
                if text[at] != ":":
                    raise ValueError
            at += 1
            if text[at] in " \t\n\r":
                at = _SPACE(text, at).end()  # type: ignore[union-attr]
            value_start = at
            value, at = _SCAN(text, at)
            if key in fields:
                raise _Duplicate(key)
            fields[key] = value
            places[key] = (key_start, value_start, at)
            character = text[at]
            if character in " \t\n\r":
                at = _SPACE(text, at).end()  # type: ignore[union-attr]
                character = text[at]
            if character == "}":
                at += 1
                break
            if character != ",":
                raise ValueError
            at = _SPACE(text, at + 1).end()  # type: ignore[union-attr]
    if _SPACE(text, at).end() != len(text):  # type: ignore[union-attr]
        raise ValueError
    return fields, places


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        following: list[Any] = []
        for item in level:
            children = item.values() if isinstance(item, dict) else item
            following += [child for child in children if isinstance(child, dict | list)]
        if not following:
            return False
        level = following
    return True


def _surrogate_reason(fields: dict[str, Any]) -> str:
    """`surrogate` when some text or key holds one; numbers beyond 64 bits also stop orjson and are fine."""
    try:
        json.dumps(fields, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return "surrogate"
    return ""


def _shown(name: str) -> str:
    return repr(name[:64].encode("ascii", "backslashreplace").decode())
