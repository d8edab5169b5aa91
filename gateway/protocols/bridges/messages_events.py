"""Chunks of a chat stream as the events of an Anthropic message.

Grammar: message_start; for each block content_block_start, deltas, content_block_stop, one block after the other;
message_delta with stop reason and usage; message_stop. Chat may interleave tool calls and this grammar may not: the
first call's block stays open to the end, and what else comes after it is held until then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gateway.protocols.bridges.messages_answer import USAGE, head, stop, to_usage, tool_use
from gateway.protocols.bridges.responses_answer import content_text
from gateway.protocols.bridges.shared import Json, dicts, text
from gateway.protocols.bridges.steps import Step


@dataclass(slots=True)
class _Call:
    """A tool call: its block, and argument text that could not be sent yet."""

    block: Json
    held: list[str] = field(default_factory=list)


class MessagesFromChat(Step):
    """State of one message on its way."""

    def __init__(self) -> None:
        self._events: list[Json] = []
        self._started = False
        self._id: Any = None
        self._index = -1
        self._open: str | None = None  # kind of the open block: text, thinking, tool
        self._calls: dict[int, _Call] = {}
        self._turn: int | None = None  # the call whose block is open
        self._held: list[tuple[str, str]] = []  # (kind, text) that came after the first call began
        self._finish: Any = None
        self._matched: Any = None
        self._usage: Any = None

    def feed(self, event: Json) -> list[Json]:
        self._events = []
        if not self._started:
            self._start(event)
        if event.get("usage") is not None:
            self._usage = event["usage"]
        for choice in dicts(event.get("choices")):
            if not choice.get("index"):
                delta = choice.get("delta")
                if isinstance(delta, dict):
                    self._delta(delta)
                self._finish = choice.get("finish_reason") or self._finish
                self._matched = choice.get("stop_reason") or self._matched
        return self._events

    def end(self) -> list[Json]:
        self._events = []
        if not self._started:
            self._start({})
        for number, call in self._calls.items():
            if number != self._turn:
                self._open_call(number, call)
        self._stop()
        for kind, piece in self._held:
            self._write(kind, piece)
        self._stop()
        reason, sequence = stop(self._finish, self._matched)
        usage = {"output_tokens": 0, "server_tool_use": None, "output_tokens_details": None, **to_usage(self._usage)}
        delta = {"stop_reason": reason, "stop_sequence": sequence, "container": None, "stop_details": None}
        self._events.append({"type": "message_delta", "delta": delta, "usage": usage})
        self._events.append({"type": "message_stop"})
        return self._events

    def _start(self, chunk: Json) -> None:
        self._started = True
        self._id = chunk.get("id")
        usage = {**USAGE, **to_usage(chunk.get("usage"))}
        message = {**head(chunk), "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        self._events.append({"type": "message_start", "message": message})

    def _delta(self, delta: Json) -> None:
        thought = text(delta.get("reasoning_content")) or text(delta.get("reasoning"))
        said = (content_text(delta.get("content")) or "") + (text(delta.get("refusal")) or "")
        for kind, piece in (("thinking", thought), ("text", said)):
            if piece and self._turn is not None:
                self._held.append((kind, piece))
            elif piece:
                self._write(kind, piece)
        for position, call in enumerate(dicts(delta.get("tool_calls"))):
            self._call(call, call["index"] if type(call.get("index")) is int else position)

    def _call(self, call: Json, number: int) -> None:
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        known = self._calls.get(number)
        if known is None:
            known = self._calls[number] = _Call({**tool_use(call, function, self._id, number), "input": {}})
            if self._turn is None:
                self._open_call(number, known)
        piece = text(function.get("arguments"))
        if not piece:
            return
        if self._turn == number:
            self._piece({"type": "input_json_delta", "partial_json": piece})
        else:
            known.held.append(piece)

    def _open_call(self, number: int, call: _Call) -> None:
        self._stop()
        self._index += 1
        self._open, self._turn = "tool", number
        self._events.append({"type": "content_block_start", "index": self._index, "content_block": call.block})
        if call.held:
            self._piece({"type": "input_json_delta", "partial_json": "".join(call.held)})
            call.held = []

    def _write(self, kind: str, piece: str) -> None:
        """Text or thinking, in a block of its kind."""
        if self._open != kind:
            self._stop()
            self._index += 1
            self._open = kind
            block = {"type": kind, kind: "", **({"signature": ""} if kind == "thinking" else {"citations": None})}
            self._events.append({"type": "content_block_start", "index": self._index, "content_block": block})
        self._piece({"type": f"{kind}_delta", kind: piece})

    def _piece(self, delta: Json) -> None:
        self._events.append({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _stop(self) -> None:
        if self._open is not None:
            self._events.append({"type": "content_block_stop", "index": self._index})
            self._open = self._turn = None
