"""The few edits of answers that the contract allows, each named in the receipt. Everything else keeps its bytes."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Sequence
from typing import Any

import orjson

from gateway.protocols.places import elements, members
from gateway.protocols.views import NotAnAnswer

TOOL_INDEX = "tool_call_index"
USAGE_CHOICES = "usage_choices"
EMPTY_FINISH = "empty_finish_reason"
EMBEDDING_ENCODING = "embedding_encoding"

Path = tuple[str | int, ...]
#: A path into the JSON and the text that takes its value's place; with None the member is removed.
Edit = tuple[Path, str | None]


class NotRepairable(NotAnAnswer):
    """A vector that is neither a list of numbers nor base64 of little-endian float32."""


class ToolIndices:
    """Renumbers parallel tool calls that a provider put at one index, so that merging by index gives each whole.

    A delta with an id opens a call; one without belongs to the last call opened at its index.
    """

    __slots__ = ("_open", "_used")

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], tuple[str, int]] = {}
        self._used: dict[int, set[int]] = {}

    def place(self, choice: int, call: Any) -> int | None:
        """The index that this delta of a call must have, or None when its own is right (or it has none)."""
        if type(call) is not dict or type(call.get("index")) is not int:
            return None
        index, id_ = call["index"], call.get("id")
        known = self._open.get((choice, index))
        if type(id_) is str and id_ and (known is None or known[0] != id_):
            used = self._used.setdefault(choice, set())
            target = index
            while target in used:
                target += 1
            used.add(target)
            self._open[(choice, index)] = known = (id_, target)
        return known[1] if known is not None and known[1] != index else None


def apply(data: bytes, edits: Sequence[Edit]) -> bytes:
    """The JSON with these values replaced or members removed, and every other byte as it was."""
    text = data.decode("utf-8")
    cuts: list[tuple[int, int, str]] = []
    for path, value in edits:
        start, end = _find(text, path)
        if value is None:
            start, end = _whole_member(text, path)
        cuts.append((start, end, value or ""))
    for start, end, value in sorted(cuts, reverse=True):
        text = text[:start] + value + text[end:]
    return text.encode("utf-8")


def add_member(data: bytes, name: str, value: bytes) -> bytes:
    """The JSON object with one more member, in front."""
    at = data.index(b"{") + 1
    comma = b"" if data[at:].lstrip().startswith(b"}") else b","
    return b'%b"%b":%b%b%b' % (data[:at], name.encode(), value, comma, data[at:])


def _find(text: str, path: Path) -> tuple[int, int]:
    start, end = 0, len(text)
    for step in path:
        if isinstance(step, int):
            start, end = elements(text, start)[step]
        else:
            place = members(text, start)[step]
            start, end = place.start, place.end
    return start, end


def _whole_member(text: str, path: Path) -> tuple[int, int]:
    """The range of a member with the comma that goes with it."""
    parent, _ = _find(text, path[:-1])
    places = list(members(text, parent).items())
    index = [name for name, _ in places].index(str(path[-1]))
    place = places[index][1]
    if index + 1 < len(places):
        return place.key_start, places[index + 1][1].key_start
    if index:
        return places[index - 1][1].end, place.end
    return place.key_start, place.end


def empty_finishes(value: dict[str, Any]) -> list[Edit]:
    """`finish_reason: ""` becomes null."""
    choices = value.get("choices")
    return [
        (("choices", index, "finish_reason"), "null")
        for index, choice in enumerate(choices if type(choices) is list else ())
        if type(choice) is dict and choice.get("finish_reason") == ""
    ]


def embedding_encodings(value: dict[str, Any], wanted: Any) -> list[Edit]:
    """Every vector in the encoding that was asked for (absent: as it came). Raises `NotRepairable`."""
    edits: list[Edit] = []
    if wanted not in ("float", "base64"):
        return edits
    data = value.get("data")
    for index, item in enumerate(data if type(data) is list else ()):
        vector = item.get("embedding") if type(item) is dict else None
        path = ("data", index, "embedding")
        if wanted == "base64" and type(vector) is list:
            edits.append((path, f'"{_pack(vector)}"'))
        elif wanted == "float" and type(vector) is str:
            edits.append((path, _unpack(vector)))
    return edits


def _pack(vector: list[Any]) -> str:
    try:
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode("ascii")
    except (struct.error, OverflowError, TypeError):
        raise NotRepairable("an embedding holds something that is not a 32-bit float") from None


def _unpack(text: str) -> str:
    try:
        raw = base64.b64decode(text, validate=True)
        numbers = struct.unpack(f"<{len(raw) // 4}f", raw)
    except (binascii.Error, ValueError, struct.error):
        raise NotRepairable("an embedding is not base64 of 32-bit floats") from None
    if any(number != number or number in (float("inf"), float("-inf")) for number in numbers):
        raise NotRepairable("an embedding holds a number that JSON cannot")
    return orjson.dumps(numbers).decode("ascii")
