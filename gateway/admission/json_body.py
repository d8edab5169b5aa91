"""The one parse of a client's body: what policy reads and what is forwarded cannot differ.

RFC 8259 leaves duplicate keys undefined and two readers may take different ones, so they are refused at every depth;
so are NaN, Infinity and numbers no double holds, invalid UTF-8, lone surrogates (RFC 8259, 8.2) and nesting deeper
than 64. `place` finds a top-level member in the caller's bytes, so that an edit splices and copies nothing else.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from gateway.errors import DuplicateKey, InvalidJson, InvalidValue
from gateway.exchange import Span
from gateway.protocols.places import members, skip_space, value_end

MAX_DEPTH = 64
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_FIRST_KEY = re.compile(rb'[ \t\n\r]*\{[ \t\n\r]*(?=")')
_COLON = re.compile(rb"[ \t\n\r]*:[ \t\n\r]*")
_PLAIN_STRING = re.compile(rb'"[^"\\]*"')
_SMALL = 8192
_strict = msgspec.json.Decoder().decode


class _Duplicate(ValueError):
    pass


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


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value


_SCAN = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float).scan_once  # type: ignore[attr-defined]


def parse(body: bytes) -> dict[str, Any]:
    """The object in `body`. Raises `InvalidJson`, `InvalidValue` (not an object) or `DuplicateKey`."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidJson("the body is not valid UTF-8") from None
    try:
        at = 0 if text[:1] == "{" else skip_space(text, 0)
        fields, end = _SCAN(text, at)
        if end != len(text) and skip_space(text, end) != len(text):
            raise InvalidJson("the body is not one JSON value: something follows it")
    except _Duplicate as error:
        raise DuplicateKey(f"the key {_shown(str(error))} is given more than once") from None
    except (ValueError, StopIteration):
        raise InvalidJson("the body is not valid JSON") from None
    except RecursionError:
        raise InvalidJson(f"the body is nested deeper than {MAX_DEPTH} levels") from None
    if type(fields) is not dict:
        raise InvalidValue("the body must be a JSON object")
    # Counting brackets is cheap for small bodies, looking at the containers is for large ones.
    if (len(body) > _SMALL or body.count(b"{") + body.count(b"[") > MAX_DEPTH) and _too_deep(fields):
        raise InvalidJson(f"the body is nested deeper than {MAX_DEPTH} levels")
    if b"\\" in body and _SURROGATE.search(body) and _has_surrogate(fields):
        raise InvalidJson("the body holds half a surrogate pair, which is not a character")
    return fields


def _too_deep(value: dict[str, Any]) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        following: list[Any] = []
        for item in level:
            for child in item.values() if type(item) is dict else item:
                kind = type(child)
                if kind is dict or kind is list:
                    following.append(child)
        if not following:
            return False
        level = following
    return True


def _has_surrogate(fields: dict[str, Any]) -> bool:
    """Whether some text or key holds half a surrogate pair, which UTF-8 cannot encode."""
    try:
        json.dumps(fields, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def place(body: bytes, name: str) -> Span:
    """The bytes of the value of top-level member `name`, which the parsed body must have.

    The key is looked for from the end and proven to stand at the top level: the bytes from it on, behind an opening
    brace, are an object by themselves. Where that proves nothing, all members are walked.
    """
    key = b'"%b"' % name.encode()
    first = _FIRST_KEY.match(body)
    if first is not None and body.startswith(key, first.end()):
        at = first.end()
    else:
        at = body.rfind(key)
        # A quote behind a backslash is text; anything else that starts like this is a token of its own.
        if at < 1 or body[at - 1] == 0x5C or not _is_object(b"{" + body[at:]):
            return _walk(body, name)
    colon = _COLON.match(body, at + len(key))
    if colon is None:
        return _walk(body, name)
    start = colon.end()
    text = _PLAIN_STRING.match(body, start)
    if text is not None:
        return Span(start, text.end())
    rest = body[start:].decode("utf-8")
    return Span(start, start + len(rest[: value_end(rest, 0)].encode()))


def member_place(body: bytes, name: str) -> Span:
    """The whole member with the comma that goes with it, so that what stays is still JSON."""
    text = body.decode("utf-8")
    places = members(text)
    found = places[name]
    ordered = list(places.values())
    index = ordered.index(found)
    if index + 1 < len(ordered):
        start, end = found.key_start, ordered[index + 1].key_start
    elif index:
        start, end = ordered[index - 1].end, found.end
    else:
        start, end = found.key_start, found.end
    return _bytes(text, start, end)


def _is_object(text: bytes) -> bool:
    try:
        return type(_strict(text)) is dict
    except (msgspec.MsgspecError, RecursionError):
        return False


def _walk(body: bytes, name: str) -> Span:
    text = body.decode("utf-8")
    found = members(text)[name]
    return _bytes(text, found.start, found.end)


def _bytes(text: str, start: int, end: int) -> Span:
    if text.isascii():
        return Span(start, end)
    before = len(text[:start].encode())
    return Span(before, before + len(text[start:end].encode()))


def _shown(name: str) -> str:
    return repr(name[:64].encode("ascii", "backslashreplace").decode())
