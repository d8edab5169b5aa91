"""A stream from upstream to client: events pass as they are, except for the contract's repairs and the usage rule.

One relay per stream. It decides what of an event the client sees, when the stream is complete, and what its end looks
like in the client's dialect; it never invents a finish reason.
"""

from __future__ import annotations

import json
from typing import Any

from gateway.errors import AssayError, error_object
from gateway.exchange import Dialect, EventView
from gateway.protocols import repairs, sse, tolerant
from gateway.protocols.sse import SseEvent

KEEP_ALIVE = b": keep-alive\n\n"
_NULL_USAGE = b',"usage":null'


class StreamRelay:
    """State of one stream on its way to the client."""

    __slots__ = (
        "_choices",
        "_dialect",
        "_expected",
        "_finished",
        "_include_usage",
        "_indices",
        "complete",
        "done",
        "held",
        "repairs",
    )

    def __init__(self, dialect: Dialect, *, choices: int, include_usage: bool) -> None:
        self._dialect = dialect
        self._include_usage = include_usage
        self._expected = choices
        self._choices: set[int] = set()
        self._finished: set[int] = set()
        self._indices = repairs.ToolIndices()
        self.repairs: list[str] = []
        self.complete = False  # every choice has had its finish reason
        self.done = False  # the upstream said that nothing follows
        self.held = b""  # a terminal event that waits for the receipt (responses, messages)

    def relay(self, event: SseEvent, view: EventView) -> bytes:
        """What the client gets for one upstream event; may be nothing."""
        if view.kind == "done":
            self.done = True
            return b""
        if view.kind == "ping":
            return event.raw
        self._choices.update(view.choices_seen)
        for index, _ in view.finish_reasons:
            self._finished.add(index)
        if self._finished and len(self._finished) >= max(self._expected, 1) and self._choices <= self._finished:
            self.complete = True
        if self._dialect in ("responses", "messages"):
            if self.complete:
                self.done, self.held = True, event.raw
                return b""
            return event.raw
        return self._chat(event, view)

    def _chat(self, event: SseEvent, view: EventView) -> bytes:
        body: dict[str, Any] = view.body  # type: ignore[assignment]
        changed = False
        choices = body.get("choices")
        if not choices and body.get("usage"):
            if not self._include_usage:
                return b""
            if choices is None:
                body["choices"] = []
                self._repaired(repairs.USAGE_CHOICES)
                changed = True
        elif not self._include_usage and "usage" in body:
            if body["usage"] is None and _NULL_USAGE in event.raw:
                return event.raw.replace(_NULL_USAGE, b"", 1)
            del body["usage"]
            changed = True
        for choice in choices or ():
            if not isinstance(choice, dict):
                continue
            delta = choice.get("delta")
            calls = delta.get("tool_calls") if isinstance(delta, dict) else None
            if calls and isinstance(calls, list) and self._indices.repair(choice.get("index") or 0, calls):
                self._repaired(repairs.TOOL_INDEX)
                changed = True
            if choice.get("finish_reason") == "":
                repairs.empty_finish_reasons(body)
                self._repaired(repairs.EMPTY_FINISH)
                changed = True
        return sse.event(tolerant.dumps(body)) if changed else event.raw

    def _repaired(self, name: str) -> None:
        if name not in self.repairs:
            self.repairs.append(name)

    def end(self, receipt: str) -> bytes:
        """The last bytes of a complete stream: the receipt's comment, then the dialect's end marker."""
        comment = sse.comment(f"receipt {receipt}")
        if self._dialect in ("responses", "messages"):
            return comment + self.held
        return comment + sse.DONE


def error_event(dialect: Dialect, error: AssayError, receipt: str | None, sequence: int = 0) -> bytes:
    """The one event that ends a failed stream, in the client's dialect."""
    value = error_object(error, receipt)
    if dialect == "messages":
        body = {"type": "error", "error": {**value, "type": "api_error" if error.status >= 500 else value["type"]}}
        return sse.event(json.dumps(body, ensure_ascii=True).encode(), b"error")
    if dialect == "responses":
        failed = {
            "type": "response.failed",
            "sequence_number": sequence,
            "response": {"object": "response", "status": "failed", "error": value},
        }
        return sse.event(json.dumps(failed, ensure_ascii=True).encode(), b"response.failed")
    return sse.event(json.dumps({"error": value}, ensure_ascii=True).encode())
