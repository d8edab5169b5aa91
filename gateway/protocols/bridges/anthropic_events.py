"""Events of an Anthropic message as chunks of a chat stream."""

from __future__ import annotations

from typing import Any

from gateway.protocols.bridges.anthropic_answer import chat_id, finish_reason, to_usage
from gateway.protocols.bridges.shared import Json, text
from gateway.protocols.bridges.steps import Step
from gateway.protocols.views import NotAnAnswer


class ChatFromMessages(Step):
    """State of one chat stream on its way. `usage` asks for the usage chunk at the end."""

    def __init__(self, created: int, *, usage: bool) -> None:
        self._created = created
        self._with_usage = usage
        self._id = chat_id(None)
        self._model: str | None = None
        self._usage: Json = {}
        self._blocks: dict[int, Json] = {}  # open blocks as they grow: thinking, redacted_thinking, tool_use
        self._calls = 0
        self._numbers: dict[int, int] = {}
        self._finish: str | None = None

    def feed(self, event: Json) -> list[Json]:
        kind = event.get("type")
        if kind == "message_start":
            return self._start(event)
        if kind == "content_block_start":
            return self._open(event)
        if kind == "content_block_delta":
            return self._delta(event)
        if kind == "content_block_stop":
            return self._close(event)
        if kind == "message_delta":
            return self._end_of_message(event)
        return []

    def end(self) -> list[Json]:
        usage = to_usage(self._usage)
        if not self._with_usage or usage is None:
            return []
        return [{**self._head(), "choices": [], "usage": usage}]

    def _head(self) -> Json:
        return {"id": self._id, "object": "chat.completion.chunk", "created": self._created, "model": self._model}

    def _chunk(self, delta: Json, finish: str | None = None) -> list[Json]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return [{**self._head(), "choices": [choice]}]

    def _start(self, event: Json) -> list[Json]:
        message = event.get("message")
        if not isinstance(message, dict):
            raise NotAnAnswer("a message starts without itself")
        self._id = chat_id(message.get("id"))
        self._model = text(message.get("model"))
        self._count(message.get("usage"))
        return self._chunk({"role": "assistant", "content": ""})

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._usage.update({name: value for name, value in usage.items() if value is not None})

    def _open(self, event: Json) -> list[Json]:
        block, index = event.get("content_block"), _index(event)
        if not isinstance(block, dict):
            raise NotAnAnswer("a block starts without itself")
        kind = block.get("type")
        if kind == "text":
            return self._chunk({"content": block["text"]}) if text(block.get("text")) else []
        if kind in ("thinking", "redacted_thinking"):
            self._blocks[index] = dict(block)
            return self._chunk({"reasoning_content": block["thinking"]}) if text(block.get("thinking")) else []
        if kind == "tool_use":
            self._blocks[index] = {"type": kind, "written": False}
            number = self._numbers[index] = self._calls
            self._calls += 1
            function = {"name": text(block.get("name")) or "", "arguments": ""}
            call = {"index": number, "id": text(block.get("id")) or "", "type": "function", "function": function}
            return self._chunk({"tool_calls": [call]})
        raise NotAnAnswer("the message holds a block that was not asked for")

    def _delta(self, event: Json) -> list[Json]:
        delta, index = event.get("delta"), _index(event)
        if not isinstance(delta, dict):
            raise NotAnAnswer("a delta is missing")
        kind = delta.get("type")
        block = self._blocks.get(index, {})
        if kind == "text_delta" and text(delta.get("text")):
            return self._chunk({"content": delta["text"]})
        if kind == "thinking_delta" and text(delta.get("thinking")):
            block["thinking"] = (text(block.get("thinking")) or "") + delta["thinking"]
            return self._chunk({"reasoning_content": delta["thinking"]})
        if kind == "signature_delta" and text(delta.get("signature")):
            block["signature"] = (text(block.get("signature")) or "") + delta["signature"]
        if kind == "input_json_delta" and text(delta.get("partial_json")):
            block["written"] = True
            return self._argument(index, delta["partial_json"])
        return []

    def _argument(self, index: int, piece: str) -> list[Json]:
        call = {"index": self._numbers.get(index, 0), "function": {"arguments": piece}}
        return self._chunk({"tool_calls": [call]})

    def _close(self, event: Json) -> list[Json]:
        index = _index(event)
        block = self._blocks.pop(index, {})
        if block.get("type") in ("thinking", "redacted_thinking"):
            return self._chunk({"thinking_blocks": [block]})
        if block.get("type") == "tool_use" and not block["written"]:
            return self._argument(index, "{}")
        return []

    def _end_of_message(self, event: Json) -> list[Json]:
        self._count(event.get("usage"))
        delta = event.get("delta")
        reason = finish_reason(delta.get("stop_reason") if isinstance(delta, dict) else None)
        return self._chunk({}, reason) if reason else []


def _index(event: Json) -> int:
    index = event.get("index")
    return index if type(index) is int else 0
