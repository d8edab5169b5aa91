"""The few edits of answers that the contract allows, each named in the receipt."""

from __future__ import annotations

import base64
import struct
from typing import Any

from gateway.protocols import tolerant

TOOL_INDEX = "tool_call_index"
USAGE_CHOICES = "usage_choices"
EMPTY_FINISH = "empty_finish_reason"
EMBEDDING_ENCODING = "embedding_encoding"


class ToolIndices:
    """Renumbers parallel tool calls that a provider put at one index, so that merging by index gives each whole."""

    __slots__ = ("_open", "_used")

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], tuple[str, int]] = {}
        self._used: dict[int, set[int]] = {}

    def repair(self, choice: int, calls: list[Any]) -> bool:
        """Changes the calls of one delta in place; True if anything changed."""
        changed = False
        used = self._used.setdefault(choice, set())
        for call in calls:
            if not isinstance(call, dict) or type(call.get("index")) is not int:
                continue
            index, id_ = call["index"], call.get("id")
            known = self._open.get((choice, index))
            if isinstance(id_, str) and id_ and (known is None or known[0] != id_):
                target = index
                while target in used:
                    target += 1
                used.add(target)
                self._open[(choice, index)] = known = (id_, target)
            if known is not None and known[1] != index:
                call["index"] = known[1]
                changed = True
        return changed


def empty_finish_reasons(value: dict[str, Any]) -> bool:
    """`finish_reason: ""` becomes null, in place; True if anything changed."""
    changed = False
    for choice in value.get("choices") or ():
        if isinstance(choice, dict) and choice.get("finish_reason") == "":
            choice["finish_reason"] = None
            changed = True
    return changed


def transcode_embeddings(body: bytes, value: dict[str, Any], wanted: str | None) -> tuple[bytes, bool]:
    """The answer with every vector in the encoding that was asked for (absent: as it came). Little-endian float32."""
    if wanted is None:
        return body, False
    changed = False
    for item in value.get("data") or ():
        if not isinstance(item, dict):
            continue
        vector = item.get("embedding")
        if wanted == "base64" and isinstance(vector, list):
            item["embedding"] = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
            changed = True
        elif wanted == "float" and isinstance(vector, str):
            raw = base64.b64decode(vector, validate=True)
            item["embedding"] = list(struct.unpack(f"<{len(raw) // 4}f", raw))
            changed = True
    return (tolerant.dumps(value), True) if changed else (body, False)
